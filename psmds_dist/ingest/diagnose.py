"""Passes over a matrix that cannot be used, to say why: the pair, the empty triangle, the groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, Floats, Ints, Rows
from psmds_dist.ingest.gaps import Components, Mask, component_sizes, merge_labels
from psmds_dist.ingest.scan import GatherColumns, InvalidEntries, ScanBlocks, find_invalid, scan_all, total_invalid
from psmds_dist.ingest.triangles import Triangles, count_sides
from psmds_dist.planning.memory import PANEL_BYTES

LOOK_BYTES = 64_000_000
"""Rows and columns gathered for an entry-by-entry comparison, in float64."""


@dataclass(frozen=True)
class Pair:
    """An entry and its mirror image."""

    i: int
    j: int
    value: float
    mirrored: float

    @property
    def difference(self) -> float:
        """How far apart the two are."""
        return abs(self.value - self.mirrored)


def worst_pair(source: RowSource, imbalance: Floats, executor: Executor, room: int = PANEL_BYTES) -> Pair:
    """Compare the most suspect rows with the columns of the same index, entry by entry, and return the worst pair.

    Parameters
    ----------
    source : RowSource
        The matrix.
    imbalance : (n,) array
        How suspect each row is.
    executor : Executor
        Where to run.
    room : int
        Bytes for rows and columns: columns are gathered, as many at a time as it holds, each time in another pass.
    """
    count = max(16, LOOK_BYTES // (16 * source.n))
    suspects = np.sort(np.argsort(-imbalance, kind="stable")[:count])
    room //= 2
    step = max(1, room // (16 * source.n))
    pairs = [
        pair
        for first in range(0, suspects.size, step)
        for pair in _compared(source, suspects[first : first + step], executor, room)
    ]
    return max(pairs, key=lambda pair: np.nan_to_num(pair.difference))


def _compared(source: RowSource, suspects: Ints, executor: Executor, room: int) -> Iterator[Pair]:
    """The worst pair of each suspect row, of those that are known."""
    for i, row, column in _both_orders(source, suspects, executor, room):
        j = int(np.nan_to_num(np.abs(row - column)).argmax())
        yield Pair(i, j, float(row[j]), float(column[j]))


def _both_orders(source: RowSource, rows: Ints, executor: Executor, room: int) -> Iterator[tuple[int, Rows, Floats]]:
    """Some rows, each with its number and the column of the same index, from one pass."""
    columns = np.empty((source.n, rows.size))
    for parts in scan_all(source, GatherColumns(source, rows, room), executor, room):
        for lo, part in parts:
            columns[lo : lo + len(part)] = part
    row = np.empty((1, source.n), source.dtype)
    for k, i in enumerate(rows.tolist()):
        source.read(i, i + 1, row)
        yield i, row[0], columns[:, k]


def one_sided_pair(source: RowSource, row: int, executor: Executor, room: int = PANEL_BYTES) -> Pair:
    """Return the first pair of a row that is known in one order only."""
    [(i, values, column)] = _both_orders(source, np.array([row]), executor, room)
    j = int((np.isnan(values) != np.isnan(column)).argmax())
    return Pair(i, j, float(values[j]), float(column[j]))


class TriangleCounter:
    """Looks at both sides of the diagonal in the rows of some blocks."""

    def __init__(self, n: int) -> None:
        self._layout = Layout(n)
        self._found: list[Triangles] = []

    def add(self, block: int, rows: Rows) -> None:
        """Look at the rows of ``block``."""
        self._found.append(count_sides(rows, self._layout.bounds(block)[0]))

    def result(self) -> Triangles:
        """Return what was found."""
        return Triangles.total(self._found)


def count_triangles(source: RowSource, executor: Executor, room: int = PANEL_BYTES) -> Triangles:
    """Look at both sides of the diagonal, in one pass."""
    work = ScanBlocks(source.verified(), partial(TriangleCounter, source.n), room)
    return Triangles.total(scan_all(source, work, executor, room))


def look_at_triangles(source: RowSource, rows: int = 64) -> Triangles:
    """Look at some rows: enough to see that one side of the diagonal was never filled."""
    row: Rows = np.empty((1, source.n), source.dtype)
    found = []
    for i in spread(source.n, rows).tolist():
        source.read(i, i + 1, row)
        found.append(count_sides(row, i))
    return Triangles.total(found)


def spread(n: int, rows: int) -> Ints:
    """Choose rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, rows).astype(np.int64))


class EntryFinder:
    """Looks for entries off the diagonal, in the rows of some blocks, that pass a test.

    Parameters
    ----------
    layout : Layout
        Blocks of the rows.
    test : callable
        Marks entries, of a square matrix, in some rows.
    """

    def __init__(self, layout: Layout, test: Callable[[Rows], Mask]) -> None:
        self._layout = layout
        self._test = test
        self._found: list[InvalidEntries | None] = []

    def add(self, block: int, rows: Rows) -> None:
        """Look at the rows of ``block``."""
        lo, _ = self._layout.bounds(block)
        marked = self._test(rows)
        marked[np.arange(len(rows)), np.arange(lo, lo + len(rows))] = False
        self._found.append(find_invalid(marked, rows[:, : self._layout.n], lo))

    def result(self) -> InvalidEntries | None:
        """Return what was found."""
        return total_invalid(self._found)


def find_entries(
    source: RowSource, test: Callable[[Rows], Mask], executor: Executor, room: int = PANEL_BYTES
) -> InvalidEntries | None:
    """Count the entries off the diagonal that pass a test, and return where one is, from one pass."""
    work = ScanBlocks(source.verified(), partial(EntryFinder, source.layout, test), room)
    return total_invalid(list(scan_all(source, work, executor, room)))


class GroupFinder:
    """Joins points that have a usable entry between them, within the rows of some blocks."""

    def __init__(self, n: int, largest: float) -> None:
        self._layout = Layout(n)
        self._largest = largest
        self._components = Components(n)

    def add(self, block: int, rows: Rows) -> None:
        """Join what the rows of ``block`` join."""
        lo, _ = self._layout.bounds(block)
        for k, row in enumerate(rows):
            near = np.isfinite(row) & (row <= self._largest)
            near[lo + k] = True
            self._components.join(near)

    def result(self) -> Ints:
        """A label for each point; those of joined points are equal."""
        return self._components.labels


def component_labels(source: RowSource, executor: Executor, largest: float, room: int = PANEL_BYTES) -> Ints:
    """Label points by the first of those that chains of finite entries of at most ``largest`` join."""
    work = ScanBlocks(source.verified(), partial(GroupFinder, source.n, largest), room)
    return merge_labels(list(scan_all(source, work, executor, room)))


def group_sizes(source: RowSource, executor: Executor, largest: float, room: int = PANEL_BYTES) -> list[int]:
    """Sizes of the groups of points between which no entry is finite and at most ``largest``, the largest first."""
    return component_sizes(component_labels(source, executor, largest, room))
