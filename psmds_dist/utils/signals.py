"""Handling of Ctrl-C: SIGTERM as an interrupt, deferred and swallowed interrupts, and what libraries report later."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

RETRY_DELAY = 0.05
"""Seconds until an interrupt that Python swallowed is raised again."""


def _in_main_thread() -> bool:
    """Whether this is the main thread, the only one that may set signal handlers."""
    return threading.current_thread() is threading.main_thread()


class Interrupts:
    """Signal handler that raises KeyboardInterrupt, and records that it did."""

    came = False

    def __call__(self, number: int, frame: object) -> None:
        """Raise KeyboardInterrupt."""
        self.came = True
        raise KeyboardInterrupt


@contextmanager
def sigterm_as_interrupt(interrupts: Interrupts | None = None) -> Iterator[Interrupts]:
    """Raise KeyboardInterrupt on Ctrl-C and on SIGTERM, which batch systems send before they kill a job.

    An ignored signal, such as SIGINT in a background job of a shell, stays ignored.
    """
    interrupts = interrupts or Interrupts()
    if not _in_main_thread():
        yield interrupts
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in before.items():
            if number == signal.SIGTERM or callable(handler):
                signal.signal(number, interrupts)
        with reraise_swallowed_interrupt():
            yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def hide_consequences(interrupts: Interrupts) -> None:
    """Print nothing that libraries report after an interrupt, until this process ends.

    An interrupt leaves their objects half changed. What finalisers, callbacks of the garbage collector, threads, tasks
    of asyncio and exit functions then report, with tracebacks, is a consequence and no fault.
    """

    def unless_interrupted(report: Callable[..., object]) -> Callable[..., None]:
        def report_or_not(*what: object) -> None:
            if not interrupts.came:
                report(*what)

        return report_or_not

    class Logger(logging.Logger):
        def handle(self, record: logging.LogRecord) -> None:
            unless_interrupted(super().handle)(record)

    logging.setLoggerClass(Logger)
    sys.unraisablehook = unless_interrupted(sys.unraisablehook)
    threading.excepthook = unless_interrupted(threading.excepthook)
    warnings.showwarning = unless_interrupted(warnings.showwarning)


@contextmanager
def reraise_swallowed_interrupt() -> Iterator[None]:
    """Raise an interrupt again that was raised in a finaliser or a callback of a weak reference.

    Python cannot propagate exceptions from there: it prints "Exception ignored in" and continues, and so would the run.
    """
    if not _in_main_thread():
        yield
        return
    before = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            before(ignored)
            return
        again = threading.Timer(RETRY_DELAY, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Defer interrupts until the end of the block, and shield from Ctrl-C the threads and processes it starts.

    They inherit a blocked SIGINT, and so do workers that are restarted later; the run itself ends them in order. A
    Ctrl-C or SIGTERM that arrives in the block is raised at its end, when everything that must be ended has started.
    The block is given a function that says whether one has arrived; a block that then fails has been interrupted.
    """
    from multiprocessing.resource_tracker import ensure_running  # late: multiprocessing takes a while

    ensure_running()  # a helper process of Python, whose start unblocks the signal
    caught: list[int] = []
    handled = [s for s in (signal.SIGINT, signal.SIGTERM) if _in_main_thread() and callable(signal.getsignal(s))]
    before = {s: signal.signal(s, lambda number, frame: caught.append(number)) for s in handled}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield lambda: bool(caught) or signal.SIGINT in signal.sigpending()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])
