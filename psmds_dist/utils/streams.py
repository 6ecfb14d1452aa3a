"""Standard streams that are closed, full or no longer read: words that cannot be written cost no result."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class _Forgiving(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: object) -> int:
        with suppress(OSError):
            return super().write(data)  # type: ignore[arg-type]
        return memoryview(data).nbytes  # type: ignore[arg-type]


def open_standard_streams() -> None:
    """Make descriptors 0, 1 and 2 valid, and let standard error drop what it cannot write.

    A file that is opened while one of them is closed gets its number, and what a library or a worker prints is then
    written into that file. Standard output still fails when it cannot be written: it may be what was asked for.
    """
    for number in range(3):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = _text(io.FileIO(os.open(os.devnull, os.O_RDONLY), "w"))  # fails as a closed one does
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    sys.stderr = _text(_Forgiving(2, "w", closefd=False), encoding)


def _text(file: io.FileIO, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(file), encoding, "backslashreplace", line_buffering=True)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def discard_output() -> None:
    """Drop what is printed from now on, with what standard output has not been able to write."""
    sys.stdout = _text(io.FileIO(os.devnull, "w"))


def drop_unwritten_output() -> None:
    """Drop what standard output cannot write; Python would complain about it as the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
