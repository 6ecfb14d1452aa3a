"""What becomes of a Ctrl-C: it is kept back, comes again where it was lost, and has a SIGTERM for a twin."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.resource_tracker import ensure_running

AGAIN = 0.05
"""Seconds after which an interrupt comes again that Python swallowed."""


def _here() -> bool:
    """Tell whether this is the thread that signals come to, the only one that may say what they do."""
    return threading.current_thread() is threading.main_thread()


class Interrupts:
    """A handler that raises KeyboardInterrupt, and knows whether it has done so."""

    came = False

    def __call__(self, number: int, frame: object) -> None:
        """Raise KeyboardInterrupt."""
        self.came = True
        raise KeyboardInterrupt


@contextmanager
def sigterm_as_interrupt() -> Iterator[Interrupts]:
    """Let a Ctrl-C, or a SIGTERM with which batch systems announce the end, raise KeyboardInterrupt; neither is lost.

    A signal that is ignored, as SIGINT is in a background job of a shell, stays ignored.
    """
    interrupts = Interrupts()
    if not _here():
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


@contextmanager
def reraise_swallowed_interrupt() -> Iterator[None]:
    """Let an interrupt come again that falls into a finaliser or a callback of a weak reference.

    Python cannot pass on what is raised there: it writes "Exception ignored in" and goes on, as a run would for ever.
    """
    if not _here():
        yield
        return
    before = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            before(ignored)
            return
        again = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Start threads and processes that a Ctrl-C at the terminal does not reach: the run ends them, in order.

    They inherit that the signal is blocked, and so do workers that are started again later. A Ctrl-C that comes
    meanwhile, or a SIGTERM that means the same, counts at the end, when there is something to be ended in order.
    """
    ensure_running()  # Python's own helper process, whose start would unblock the signal
    caught: list[int] = []
    heeded = [s for s in (signal.SIGINT, signal.SIGTERM) if _here() and callable(signal.getsignal(s))]
    before = {s: signal.signal(s, lambda number, frame: caught.append(number)) for s in heeded}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])
