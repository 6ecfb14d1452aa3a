"""Row sources of text: square matrices read in place, and triangles unpacked into a temporary file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psmds_dist.core.arrays import fill
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, Rows
from psmds_dist.data.readers.index import Index
from psmds_dist.data.readers.matrix import AHEAD, PARSED_BYTES, TextMatrix
from psmds_dist.data.readers.text import TextFile
from psmds_dist.data.readers.unpacked import unpack_triangle
from psmds_dist.data.sources import file_identity
from psmds_dist.kernels.jit import available_threads

COPIES = 4
"""Times that text is held while it is parsed: as read, as one column, and its numbers in float64 twice."""

SORTED = "columns were put into the order of the rows by name"

log = logging.getLogger(__name__)

Scan = Callable[[TextFile], Index]


@dataclass(frozen=True, eq=False)
class TextRows(RowSource):
    """Rows of a square matrix in a text file, made by `open_text`.

    Rows are found by an index of their places, so that any of them can be read; of a compressed file best in order. An
    index takes a pass over the file, which each process makes for itself.
    """

    path: str
    scan: Scan
    shape: tuple[int, int]
    identity: str
    longest: int
    """Bytes of the longest row."""

    dtype: np.dtype[Any]
    content_id: str

    @property
    def location(self) -> str:
        """Path of the file."""
        return self.path

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: the text that is parsed at a time."""
        pieces = available_threads() + AHEAD
        return ReadProfile(scratch_bytes=pieces * COPIES * (PARSED_BYTES + self.longest))

    @cached_property
    def text(self) -> TextMatrix:
        """The file and its index."""
        file = TextFile(self.path)
        return TextMatrix(file, self.scan(file))

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        return self.text.index.names

    @property
    def notes(self) -> Sequence[str]:
        """Whether columns were put into the order of rows."""
        return () if self.text.index.columns is None else (SORTED,)

    def __getstate__(self) -> object:
        """Pickle without the index."""
        return {name: value for name, value in vars(self).items() if name != "text"}

    def is_stale(self) -> bool:
        """Whether the file has been written since it was opened."""
        try:
            return file_identity(self.path) != self.identity
        except FileNotFoundError:
            return True

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        for first, values in self._steps(lo, hi):
            fill(out[first - lo : first - lo + len(values)], values)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row, in a pass over the file."""
        for first, values in self._steps(0, self.n):
            fill(out[: hi - lo, first : first + len(values)], values[:, lo:hi].T)

    def _steps(self, lo: int, hi: int) -> Iterator[tuple[int, Floats]]:
        """Yield some rows at a time, with columns in the order of rows."""
        columns = self.text.index.columns
        for first, last, found in self.text.read(lo, hi):
            values = found.reshape(last - first, self.n)
            yield first, values if columns is None else values[:, columns]


def open_text(path: str, scan: Scan, dtype: str, kind: str) -> RowSource:
    """Open a matrix in a text file: a square one where it is, a triangle through a temporary file.

    Parameters
    ----------
    path : str
        Absolute path.
    scan : callable
        Finds its rows.
    dtype : {"float32", "float64"}
        Type of the rows.
    kind : str
        Name of the format.
    """
    identity = file_identity(path)
    file = TextFile(path)
    text = TextMatrix(file, scan(file))
    content, rows = f"{kind} {identity} {dtype}", text.index.rows
    if text.index.columns is not None:
        log.info("%s: %s", path, SORTED)
    if text.index.form.side is not None:
        return unpack_triangle(text, np.dtype(dtype), content)
    longest = max((row.end - row.start for row in rows), default=0)
    source = TextRows(path, scan, (len(rows), len(rows)), identity, longest, np.dtype(dtype), content)
    vars(source)["text"] = text
    return source
