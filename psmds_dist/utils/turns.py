"""Work of which the result is kept on disk: one process does it, and those that want the same wait for it."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which a process no longer waits for another, which may be stopped."""

PAUSE = 0.02
"""Seconds between two looks at a lock: with a time limit there is no other way to wait for it."""


class Turn:
    """A turn that one process at a time has; `take` waits for it, `end` gives it to the next.

    Where files cannot be locked nobody waits, and the same work may be done twice.
    """

    def __init__(self) -> None:
        self._taken = ExitStack()

    def take(self, file: Path) -> None:
        """Wait until no other process has the turn of a lock file, or for as long as patience lasts."""
        self.end()
        with suppress(OSError):
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._taken.callback(os.close, handle)
            if _locked(handle):
                self._taken.callback(file.unlink, missing_ok=True)

    def end(self) -> None:
        """Give the turn away, if this process has it."""
        with suppress(OSError):
            self._taken.close()


def _locked(handle: int) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE)
        else:
            return True
    return False
