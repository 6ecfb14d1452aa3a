"""Standard streams that are closed, full or no longer read: a failure to print does not affect a result."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class _LossyFile(io.FileIO):
    """A file that discards what it cannot write."""

    def write(self, data: object) -> int:
        with suppress(OSError):
            return super().write(data)  # type: ignore[arg-type]
        return memoryview(data).nbytes  # type: ignore[arg-type]


class _Text(io.TextIOWrapper):
    """Text of a file; what it cannot write when it is closed is dropped, of which Python 3.13 would tell."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def open_standard_streams() -> None:
    """Make descriptors 0, 1 and 2 valid, and let standard error discard what it cannot write.

    A file that is opened while one of them is closed gets its number, and then receives what a library or a worker
    prints. Standard output still fails if it cannot be written, because it may carry the result of a command.
    """
    for number in range(3):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = _text(io.FileIO(os.open(os.devnull, os.O_RDONLY), "w"))  # fails on writing, like a closed one
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    sys.stderr = _text(_LossyFile(2, "w", closefd=False), encoding)


def _text(file: io.FileIO, encoding: str = "utf-8") -> io.TextIOWrapper:
    return _Text(io.BufferedWriter(file), encoding, "backslashreplace", line_buffering=True)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def discard_output() -> None:
    """Discard what is printed from now on, and what standard output could not write so far."""
    sys.stdout = _text(io.FileIO(os.devnull, "w"))


def drop_unwritten_output() -> None:
    """Discard what standard output cannot write, about which Python would complain when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
