"""Work on blocks of rows that measures a map: the totals of each row, and dissimilarities between some points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, Floats, Ints, Rows
from psmds_dist.data.cache import Batch, get_row_cache
from psmds_dist.kernels.neighbors import rate_rows


class Batches(Protocol):
    """Rows of blocks."""

    def batches(self, blocks: Sequence[int]) -> Iterator[Batch]:
        """Yield rows of ``blocks``, each once."""


@dataclass(frozen=True)
class AllRows:
    """All rows of a source, streamed."""

    source: RowSource
    budget: int

    def batches(self, blocks: Sequence[int]) -> Iterator[Batch]:
        """Yield all rows of ``blocks``."""
        with closing(get_row_cache(self.source, self.budget).batches(blocks)) as batches:
            yield from batches


@dataclass(frozen=True)
class SomeRows:
    """Some rows of a source, read by themselves, so many bytes at a time."""

    source: RowSource
    points: Ints
    room: int

    def batches(self, blocks: Sequence[int]) -> Iterator[Batch]:
        """Yield those of the rows that are in ``blocks``."""
        source = self.source.verified()
        wanted = self.points[np.isin(self.points // source.layout.rows, blocks)]
        step = max(1, self.room // (source.shape[1] * source.dtype.itemsize))
        for lo in range(0, wanted.size, step):
            points = wanted[lo : lo + step]
            yield Batch(source.take(points), np.arange(points.size), points)


Rating = tuple[Ints, Floats, Ints, Rows]
"""Points, `psmds_dist.core.quality.RowTotals` of the row of each, and those among ``between`` with the dissimilarities
to all of these."""


@dataclass(frozen=True)
class RateRows:
    """Measure rows of a map.

    Attributes
    ----------
    rows : Batches
        The rows.
    x : (L, n) ndarray
        Coordinates, one axis a line.
    unit : float
        Factor of the dissimilarities that brings them to the units of ``x``.
    n_neighbors : int
        How many points count as near.
    between : (m,) ndarray
        Points, ascending, whose dissimilarities are gathered.
    labels : (n,) ndarray, optional
        Number of the class of each point, from 0.
    """

    rows: Batches
    x: Floats
    unit: float
    n_neighbors: int
    between: Ints
    labels: Ints | None = None

    def __call__(self, blocks: Sequence[int]) -> Rating:
        """Return the ratings of the rows of ``blocks``, in any order."""
        return _joined([self._rate(batch) for batch in self.rows.batches(blocks)])

    def _rate(self, batch: Batch) -> Rating:
        where = (batch.rows, batch.slots, batch.points)
        sums, penalties, near = rate_rows(*where, self.x, self.unit, self.n_neighbors)
        with np.errstate(over="ignore"):
            squares = np.square(np.column_stack((sums[:, 2], sums[:, 2] - sums[:, 1])))
        columns = [sums, squares, penalties]
        if self.labels is not None:
            columns.append(agreement(self.labels[near], self.labels[batch.points]))
        among = np.isin(batch.points, self.between)
        table = batch.rows[np.ix_(batch.slots[among], self.between)]
        return batch.points, np.column_stack(columns), batch.points[among], table


def agreement(near: Ints, own: Ints) -> Floats:
    """Share of the labels in each row of ``near`` that equal ``own``, and whether the most frequent one does."""
    counts = np.stack([(near == column[:, None]).sum(axis=1) for column in near.T], axis=1)
    most = counts == counts.max(axis=1, keepdims=True)
    elected = np.where(most, near, np.iinfo(near.dtype).max).min(axis=1)  # the first of equally frequent ones
    return np.column_stack(((near == own[:, None]).mean(axis=1), elected == own))


def nearest(x: Floats, count: int) -> Ints:
    """The ``count`` nearest other points of each point of a map, one point a row."""
    from scipy.spatial import KDTree  # late: few runs need it

    near = KDTree(x).query(x, list(range(1, count + 2)))[1]
    itself = near == np.arange(len(x))[:, None]
    itself[~itself.any(axis=1), -1] = True  # a point among more than ``count`` that are equal
    return np.asarray(near[~itself].reshape(len(x), count), dtype=np.int64)


def _joined(parts: Sequence[Rating]) -> Rating:
    points, tables, among, given = (np.concatenate(column) for column in zip(*parts, strict=True))
    return points, tables, among, given


def rate(work: RateRows, executor: Executor, blocks: Sequence[int]) -> Rating:
    """Rate the rows of all blocks, in the order of the points."""
    points, tables, among, given = _joined([part for _, part in executor.map(work, blocks)])
    first, second = np.argsort(points), np.argsort(among)
    return points[first], tables[first], among[second], given[second]
