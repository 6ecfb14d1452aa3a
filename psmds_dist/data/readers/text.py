"""Text files, plain or compressed: their lines, and pieces of them by their places."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, NamedTuple

from psmds_dist.core.errors import DamagedDataError, InputError
from psmds_dist.data.formats import is_damage, opener_of

BUFFER_BYTES = 1 << 18
"""Of a file; lines are longer than Python's own buffers."""

SKIP_BYTES = 1 << 20
"""Bytes to decompress at a time on the way to a place."""

LONGEST_LINE = 1 << 28
"""Bytes of a line; a row of ten million numbers is shorter."""

BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a text file."""

    number: int
    """Counted from 1, for messages."""

    start: int
    """Place of its first byte in the text."""

    text: bytes
    """Without its end."""

    @property
    def end(self) -> int:
        """Place after its last byte."""
        return self.start + len(self.text)


class TextFile:
    """A text file that is read in order, or at places that go forward; a compressed one begins anew to go back.

    Parameters
    ----------
    path : str
        Absolute path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._opener = opener_of(path)
        self._file: IO[bytes] | None = None
        self._place = 0
        self._lock = threading.Lock()

    @property
    def compressed(self) -> bool:
        """Whether reads that go back are expensive."""
        return self._opener is not None

    def open(self) -> IO[bytes]:
        """Open the text."""
        return open(self.path, "rb", BUFFER_BYTES) if self._opener is None else self._opener(self.path)

    def lines(self) -> Iterator[Line]:
        """Yield all lines, one in memory at a time, without a byte order mark.

        Raises
        ------
        DamagedDataError
            When the file is cut short or garbled.
        """
        place = 0
        with self._damage_told(), self.open() as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
                if len(line) >= LONGEST_LINE:
                    raise DamagedDataError(f"{self.path} has a line of more than {LONGEST_LINE:,} bytes, {number}.")
                skipped = len(BOM) if number == 1 and line.startswith(BOM) else 0
                yield Line(number, place + skipped, line[skipped:].rstrip(b"\r\n"))
                place += len(line)

    def pieces(self, spans: list[tuple[int, int]]) -> list[bytes]:
        """Return the bytes between places, which ascend."""
        with self._lock, self._damage_told():
            return [self._piece(start, end) for start, end in spans]

    def _piece(self, start: int, end: int) -> bytes:
        file = self._at(start)
        found = file.read(end - start)
        self._place = start + len(found)
        if len(found) < end - start:
            raise DamagedDataError(f"{self.path} ends at byte {self._place:,}: it has changed since it was opened.")
        return found

    def _at(self, place: int) -> IO[bytes]:
        if self._file is None or (self.compressed and place < self._place):
            self._file, self._place = self.open(), 0
            weakref.finalize(self, self._file.close)
        if not self.compressed:
            self._file.seek(place)
            return self._file
        while self._place < place:
            self._place += len(self._file.read(min(SKIP_BYTES, place - self._place))) or self._cut()
        return self._file

    def _cut(self) -> int:
        raise EOFError("unexpected end")

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        """Turn what damaged archives end in into a sentence."""
        try:
            yield
        except (FileNotFoundError, InputError):
            raise
        except Exception as error:
            if not is_damage(error):
                raise
            raise DamagedDataError(
                f"{self.path} is damaged or cut short ({error}); copy or write the file again."
            ) from None


def as_text(line: Line, path: str) -> str:
    """Decode a line, with the blanks around it.

    Raises
    ------
    InputError
        When it is not UTF-8.
    """
    as_name(line.text, path, line.number)
    return line.text.decode("utf-8")


def as_name(raw: bytes, path: str, line: int) -> str:
    """Decode the name of a point, without blanks around it.

    Raises
    ------
    InputError
        When it is not UTF-8.
    """
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text ({error.reason} in the name in line {line}); save it as UTF-8."
        ) from None
