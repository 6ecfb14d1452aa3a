"""The process of the command ``psmds``, which sets up standard streams and Ctrl-C before it loads anything else."""

from __future__ import annotations

# the module signal wraps it in enums, and Ctrl-C could hit their import
import _signal as signal  # type: ignore[import-not-found]
import os
import sys

GRACE = 5.0
"""Seconds that libraries get to clean up after an interrupted command."""


def _exit(*given: object) -> None:
    """End this process immediately: the command has not started, or is done."""
    os._exit(130)


def _exit_after(seconds: float) -> None:
    """End this process when it has not ended by itself."""
    from threading import Timer

    limit = Timer(seconds, _exit)
    limit.daemon = True
    limit.start()


def main() -> None:
    """Run the command line.

    Ctrl-C ends it with exit code 130 and without a traceback: immediately while modules are loaded and after the
    command has ended, otherwise as the command decides (see `psmds_dist.utils.signals.sigterm_as_interrupt`). After an
    interrupted command, exit functions of libraries run, but their threads and finalisers are not waited for.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job of a shell ignores SIGINT
        signal.signal(signal.SIGINT, _exit)
    import atexit
    from contextlib import ExitStack

    from psmds_dist.utils.signals import Interrupts, hide_consequences
    from psmds_dist.utils.streams import drop_unwritten_output, open_standard_streams

    # registered first, so run last: Python's own cleanup after it must not be interrupted
    last = ExitStack()
    atexit.register(last.close)
    last.callback(signal.signal, signal.SIGINT, signal.SIG_IGN)
    open_standard_streams()
    interrupts = Interrupts()
    hide_consequences(interrupts)
    from psmds_dist.cli.app import main as command
    from psmds_dist.cli.exits import INTERRUPTED
    from psmds_dist.cli.output import UNWRITABLE

    try:
        command(prog_name="psmds", obj=interrupts)
    except KeyboardInterrupt:  # a second one, while the command was ending
        _exit()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # its finalisers may wait for what is half closed, its threads for anything
            last.callback(_exit)
            _exit_after(GRACE)
        raise
    except OSError as error:  # from click, which prints help and versions itself
        sys.exit(f"Error: {UNWRITABLE.format(error.strerror)}")
    finally:
        drop_unwritten_output()


if __name__ == "__main__":
    main()
