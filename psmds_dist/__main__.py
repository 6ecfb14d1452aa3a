"""The process of the command ``psmds``: standard streams and Ctrl-C are looked after before anything else is loaded."""

from __future__ import annotations

# what the module signal wraps in enums, whose import a Ctrl-C could hit
import _signal as signal  # type: ignore[import-not-found]
import os
import sys


def _leave(number: int, frame: object) -> None:
    """End this process at once: nothing has begun, or everything is done."""
    os._exit(130)


def main() -> None:
    """Run the command line.

    A Ctrl-C ends it with exit code 130 and without a traceback: at once while modules are loaded and once the command
    has ended, otherwise as the command decides (see `psmds_dist.utils.signals.sigterm_as_interrupt`).
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background job ignores it
        signal.signal(signal.SIGINT, _leave)
    import atexit

    from psmds_dist.utils.streams import open_standard_streams, settle_output

    # the first to be registered is the last to run: what Python clears away after it must not be interrupted
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    open_standard_streams()
    from psmds_dist.cli.app import UNWRITABLE
    from psmds_dist.cli.app import main as command

    try:
        command(prog_name="psmds")
    except KeyboardInterrupt:  # one more, while the command was about to end
        os._exit(130)
    except OSError as error:  # of click, which prints help and versions itself
        sys.exit(f"Error: {UNWRITABLE.format(error.strerror)}")
    finally:
        settle_output()


if __name__ == "__main__":
    main()
