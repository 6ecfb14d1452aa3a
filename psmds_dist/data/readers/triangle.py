"""A triangle in a temporary file, in panels of columns: whole rows of the matrix come from few contiguous reads."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from psmds_dist.core.arrays import fill
from psmds_dist.core.errors import DamagedDataError, InputError
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, Rows
from psmds_dist.data.readers.index import LOWER, Index
from psmds_dist.data.readers.matrix import TextMatrix

PIECE_BYTES = 1_000_000
"""Bytes of a panel to read at a time."""

BLOCKS_A_PANEL = 4
"""Blocks of rows for which a panel has columns: one is read in four times its bytes, and as many together in those."""


@dataclass(frozen=True)
class Panels:
    """Where the entries of a triangle with its diagonal are: in panels of ``width`` columns, one after the other.

    A panel holds all rows that have entries in its columns; the few places beyond the diagonal are undefined.
    """

    n: int
    is_lower: bool
    itemsize: int

    @cached_property
    def width(self) -> int:
        """Columns of a panel."""
        return min(self.n, BLOCKS_A_PANEL * Layout(self.n).rows)

    @property
    def count(self) -> int:
        """Number of panels."""
        return -(-self.n // self.width)

    def rows(self, panel: int) -> tuple[int, int]:
        """First row of a panel, and the one after its last."""
        return (panel * self.width, self.n) if self.is_lower else (0, min((panel + 1) * self.width, self.n))

    def columns(self, panel: int) -> tuple[int, int]:
        """First column of a panel, and the one after its last."""
        return panel * self.width, min((panel + 1) * self.width, self.n)

    @cached_property
    def _starts(self) -> list[int]:
        rows = [last - first for first, last in map(self.rows, range(self.count))]
        return [0, *np.cumsum(rows, dtype=np.int64).tolist()]

    def place(self, panel: int, row: int) -> int:
        """Byte at which a row of a panel begins."""
        return (self._starts[panel] + row - self.rows(panel)[0]) * self.width * self.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all panels."""
        return self._starts[-1] * self.width * self.itemsize


@dataclass(frozen=True, eq=False)
class TriangleRows(RowSource):
    """Rows of a symmetric matrix, one triangle of which was written by `write_triangle`."""

    path: str
    panels: Panels
    dtype: np.dtype[Any]
    content_id: str

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, twice."""
        return self.panels.n, self.panels.n

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: panels are read together, some of their rows at a time."""
        return ReadProfile(
            self.panels.width,
            scratch_bytes=PIECE_BYTES + self.panels.width * self.dtype.itemsize,
            read_amplification=BLOCKS_A_PANEL / 2,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what is needed to read: each process opens the file for itself."""
        return {name: value for name, value in vars(self).items() if name != "_descriptor"}

    @cached_property
    def _descriptor(self) -> int:
        descriptor = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, descriptor)
        return descriptor

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        panels, width = self.panels, self.panels.width
        own = range((hi - 1) // width + 1) if panels.is_lower else range(lo // width, panels.count)
        for panel in own:
            first, last = panels.columns(panel)
            for start, rows in self._pieces(panel, lo, hi):
                out[start - lo : start - lo + len(rows), first:last] = rows[:, : last - first]
        for panel in range(lo // width, (hi - 1) // width + 1):
            self._transposed(panel, lo, hi, out)
        _mirror(out[: hi - lo, lo:hi], self.panels.is_lower)

    def _transposed(self, panel: int, lo: int, hi: int, out: Rows) -> None:
        """Fill the rest of rows ``lo`` to ``hi`` from the columns that they are in a panel."""
        left, right = self.panels.columns(panel)
        first, last = max(lo, left), min(hi, right)
        others = (hi, self.panels.n) if self.panels.is_lower else (0, lo)
        for start, rows in self._pieces(panel, *others):
            out[first - lo : last - lo, start : start + len(rows)] = rows[:, first - left : last - left].T

    def _pieces(self, panel: int, lo: int, hi: int) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of a panel between two, some at a time, with the first of these."""
        first, last = self.panels.rows(panel)
        step = max(1, PIECE_BYTES // (self.panels.width * self.dtype.itemsize))
        for start in range(max(lo, first), min(hi, last), step):
            stop = min(start + step, hi, last)
            yield start, self._piece(panel, start, stop)

    def _piece(self, panel: int, start: int, stop: int) -> Rows:
        rows: Rows = np.empty((stop - start, self.panels.width), self.dtype)
        if os.preadv(self._descriptor, [rows.data], self.panels.place(panel, start)) < rows.nbytes:
            raise DamagedDataError(f"{self.path} was cut short while it was read; run again.")
        return rows

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, which are rows as well."""
        self.read(lo, hi, out)


def _mirror(corner: Rows, is_lower: bool) -> None:
    """Copy one triangle of a small matrix to the other one."""
    for k in range(len(corner)):
        if is_lower:
            corner[:k, k] = corner[k, :k]
        else:
            corner[k, :k] = corner[:k, k]


def write_triangle(text: TextMatrix, path: Path, dtype: np.dtype[Any], content: str) -> TriangleRows:
    """Write the triangle in a text file to panels, in one pass, and open them.

    Parameters
    ----------
    text : TextMatrix
        The triangle.
    path : Path
        File to write.
    dtype : dtype
        Type of the numbers.
    content : str
        Identity of the text file.

    Raises
    ------
    InputError
        When a cell is no number.
    """
    panels, apart = panels_of(text.index, dtype), False
    with path.open("wb") as file:
        file.truncate(panels.nbytes)
        for first, last, found in text.read(0, panels.n):
            left, rows = _dense(text.index, first, last, found, dtype)
            _write(panels, first, left, rows, file.fileno())
            ends = np.cumsum([row.cells for row in text.index.rows[first:last]])
            apart = apart or bool(found[ends[ends > 0] - 1].any())
    if not apart and panels.n > 2 and text.index.form is LOWER:
        raise _shifted(text)
    return TriangleRows(str(path), panels, dtype, content)


def _shifted(text: TextMatrix) -> InputError:
    """Error about a triangle whose diagonal is taken for the distances of neighbours, since a line is before it."""
    first = text.index.rows[0].line
    return InputError(
        f"{text.file.path} has a zero at the end of each row of a lower triangle, as if line {first} did not belong to "
        "it; it must be the number of sequences in a PHYLIP matrix, otherwise remove it."
    )


def panels_of(index: Index, dtype: np.dtype[Any]) -> Panels:
    """Where the entries of a triangle will be."""
    return Panels(index.n, index.form.side == "lower", dtype.itemsize)


def _dense(index: Index, first: int, last: int, found: Floats, dtype: np.dtype[Any]) -> tuple[int, Rows]:
    """Rows of a triangle side by side, from the leftmost column on that any of them has entries in."""
    is_lower = index.form.side == "lower"
    left, right = (0, last) if is_lower else (first, index.n)
    rows: Rows = np.zeros((last - first, right - left), dtype)
    end = 0
    for k, row in enumerate(index.rows[first:last]):
        end, cells = end + row.cells, found[end : end + row.cells]
        fill(rows[k, : row.cells] if is_lower else rows[k, right - left - row.cells :], cells)
    return left, rows


def _write(panels: Panels, first: int, left: int, rows: Rows, descriptor: int) -> None:
    """Write neighbouring rows, which begin at column ``left``, to all panels in which they have entries."""
    right = left + rows.shape[1]
    for panel in range(left // panels.width, (right - 1) // panels.width + 1):
        start, stop = panels.columns(panel)
        top, bottom = panels.rows(panel)
        some = rows[max(0, top - first) : max(0, bottom - first)]
        piece: Rows = np.zeros((len(some), panels.width), rows.dtype)
        a, b = max(start, left), min(stop, right)
        piece[:, a - start : b - start] = some[:, a - left : b - left]
        place = panels.place(panel, max(first, top))
        os.pwrite(descriptor, piece.data, place)
