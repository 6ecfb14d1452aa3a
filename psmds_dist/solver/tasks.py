"""Work on blocks of rows: pure functions of a source, coordinates and a step, picklable as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.layout import Layout
from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.transformations import BinGrid
from psmds_dist.core.types import Executor, Floats, Ints, Rows
from psmds_dist.data.cache import Batch, get_row_cache
from psmds_dist.kernels.multiply import multiply_squares
from psmds_dist.kernels.pairs import PLAIN_KERNELS, PairKernels, RuleKernels
from psmds_dist.solver.parts import known_pairs
from psmds_dist.solver.quality import SomeRows

A = TypeVar("A", bound=tuple[NDArray[np.generic], ...])


@dataclass(frozen=True)
class CachedRows:
    """A source and the bytes that a process may spend on its rows."""

    source: RowSource
    budget: int

    @property
    def layout(self) -> Layout:
        """How its rows are cut."""
        return self.source.layout

    def collect(self, blocks: Sequence[int], of: Callable[[Batch], A]) -> A:
        """Apply ``of`` to the rows of ``blocks`` and put its arrays into the order of the points."""
        points = points_of(self.layout, blocks)
        whole: A | None = None
        with closing(get_row_cache(self.source, self.budget).batches(blocks)) as batches:
            for batch in batches:
                whole = scatter_into(whole, points, batch.points, of(batch))
        assert whole is not None
        return whole


def scatter_into(whole: A | None, points: Ints, some: Ints, part: A) -> A:
    """Put arrays about some of the points, any of which are ascending, where they belong among those about all.

    Each answer goes where it belongs as it comes, so that no two copies of all of them are ever held.
    """
    if some.size == points.size:
        return part
    if whole is None:
        whole = tuple(np.empty((points.size, *column.shape[1:]), column.dtype) for column in part)  # type: ignore[assignment]
    places = np.searchsorted(points, some)
    for column, values in zip(whole, part, strict=True):  # type: ignore[arg-type]
        column[places] = values
    return whole  # type: ignore[return-value]


Proposal = tuple[NDArray[Any], Floats, Floats]
"""For each point of some blocks, ascending: its best move, that move's gain, and its error before the move.

A move is the number of a direction (int16) or, guided, a step of its own (one float for each axis tried).
"""


@dataclass(frozen=True)
class Propose:
    """Find the best move along an axis of every point of some blocks against one snapshot of the coordinates."""

    rows: CachedRows
    x: Rows
    radius: float
    axes: tuple[int, ...]
    kernels: PairKernels = PLAIN_KERNELS

    def __call__(self, blocks: Sequence[int]) -> Proposal:
        """Return the proposals for ``blocks``; a tie goes to the first move."""
        return self.rows.collect(blocks, self._best)

    def _best(self, batch: Batch) -> Proposal:
        axes = np.asarray(self.axes, dtype=np.int64)
        errors, gains = self.kernels.propose(batch.rows, batch.slots, batch.points, self.x, self.radius, axes)
        best = gains.argmin(axis=1)
        return best.astype(np.int16), gains[np.arange(best.size), best], errors


class ProposeGradientSteps(Propose):
    """Find a good step against its own gradient instead."""

    def _best(self, batch: Batch) -> Proposal:
        axes = np.asarray(self.axes, dtype=np.int64)
        return self.kernels.guide(batch.rows, batch.slots, batch.points, self.x, self.radius, axes)


@dataclass(frozen=True)
class ProposeAllowed(Propose):
    """Find the best of the moves that each point may make; one that may make none is only measured."""

    allowed: NDArray[np.bool_] = field(kw_only=True)
    """Moves along the axes, ``(n, 2 a)``."""

    def _best(self, batch: Batch) -> Proposal:
        """Return gains of infinity where there is no move."""
        allowed = self.allowed[batch.points]
        able = allowed.any(axis=1)
        errors, gains = np.empty(able.size), np.full(allowed.shape, np.inf)
        axes = np.asarray(self.axes, dtype=np.int64)
        some = batch.rows, batch.slots[able], batch.points[able]
        errors[able], gains[able] = self.kernels.propose(*some, self.x, self.radius, axes)
        others = batch.rows, batch.slots[~able], batch.points[~able]
        errors[~able] = self.kernels.row_sums(*others, self.x.astype(float))[:, 0]
        gains[~allowed] = np.inf
        best = gains.argmin(axis=1)
        return best.astype(np.int16), gains[np.arange(best.size), best], errors


@dataclass(frozen=True)
class Measure:
    """Exact row sums for given coordinates."""

    rows: CachedRows
    x: Floats
    kernels: PairKernels = PLAIN_KERNELS

    def __call__(self, blocks: Sequence[int]) -> tuple[Floats]:
        """Return ``(k, 3)`` sums as `psmds_dist.kernels.moves.row_sums` gives them, or those of another rule."""
        return self.rows.collect(blocks, lambda b: (self.kernels.row_sums(b.rows, b.slots, b.points, self.x),))


@dataclass(frozen=True)
class MeasureSome:
    """Exact sums of the rows of some points, for given coordinates."""

    rows: SomeRows
    x: Floats
    kernels: PairKernels = PLAIN_KERNELS

    def __call__(self, blocks: Sequence[int]) -> tuple[Ints, Floats]:
        """Return the points that are in ``blocks``, and their sums as those of `Measure`."""
        parts = [
            (batch.points, self.kernels.row_sums(batch.rows, batch.slots, batch.points, self.x))
            for batch in self.rows.batches(blocks)
        ]
        points, sums = zip(*parts, strict=True)
        return np.concatenate(points), np.concatenate(sums)


@dataclass(frozen=True)
class FindReach:
    """How far each point reaches to its nearest ones."""

    rows: CachedRows
    kernels: RuleKernels

    def __call__(self, blocks: Sequence[int]) -> tuple[Rows, Floats]:
        """Return what `psmds_dist.kernels.near.reaches` gives for the points of ``blocks``."""
        n = self.rows.source.n
        return self.rows.collect(blocks, lambda b: self.kernels.reaches(b.rows, b.slots, b.points, n))


@dataclass(frozen=True)
class SumBins:
    """Sums over the pairs of each bin of dissimilarities, for given coordinates."""

    rows: CachedRows
    x: Floats
    kernels: RuleKernels
    grid: BinGrid

    def __call__(self, blocks: Sequence[int]) -> Ints:
        """Return what `psmds_dist.kernels.bins.bin_sums` gives for the rows of ``blocks``."""
        total = np.zeros(self.grid.shape, np.int64)
        with closing(get_row_cache(self.rows.source, self.rows.budget).batches(blocks)) as batches:
            for batch in batches:
                total += self.kernels.bin_sums(batch.rows, batch.slots, batch.points, self.x, self.grid)
        return total


@dataclass(frozen=True)
class CountLinks:
    """Number of known pairs of each point with points of another part."""

    rows: CachedRows
    labels: Ints
    rule: PairRule

    def __call__(self, blocks: Sequence[int]) -> tuple[Ints]:
        """Return the counts of the points of ``blocks``."""
        return self.rows.collect(blocks, self._counts)

    def _counts(self, batch: Batch) -> tuple[Ints]:
        counts = np.empty(batch.points.size, np.int64)
        for first in range(0, batch.points.size, STRIP):
            some = slice(first, first + STRIP)
            other = self.labels[batch.points[some], None] != self.labels
            counts[some] = np.count_nonzero(known_pairs(batch.rows[batch.slots[some]], self.rule) & other, axis=1)
        return (counts,)


STRIP = 32
"""Rows of which known pairs are counted at a time."""


@dataclass(frozen=True)
class MultiplySquares:
    """Squared dissimilarities times a block of vectors, one a line: ``(c, n)``."""

    rows: CachedRows
    block: Floats

    def __call__(self, blocks: Sequence[int]) -> tuple[Floats]:
        """Return ``(k, c)`` products as `psmds_dist.kernels.multiply.multiply_squares` gives them."""
        return self.rows.collect(blocks, lambda b: (multiply_squares(b.rows, b.slots, b.points, self.block),))


@dataclass(frozen=True)
class RowGradients:
    """Errors of rows for given coordinates, and their gradients."""

    rows: CachedRows
    x: Rows
    kernels: PairKernels = PLAIN_KERNELS

    def __call__(self, blocks: Sequence[int]) -> tuple[Floats, Floats]:
        """Return what `psmds_dist.kernels.gradient.row_gradients` gives for ``blocks``."""
        return self.rows.collect(blocks, lambda b: self.kernels.row_gradients(b.rows, b.slots, b.points, self.x))


@dataclass(frozen=True)
class SelectColumns:
    """Some columns of the rows of some blocks."""

    rows: CachedRows
    columns: Ints

    def __call__(self, blocks: Sequence[int]) -> tuple[Rows]:
        """Return the ``(k, columns)`` part of the matrix; of matrices side by side, that of each."""
        n, width = self.rows.source.shape
        columns = np.concatenate([self.columns + first for first in range(0, width, n)])
        return self.rows.collect(blocks, lambda b: (b.rows[np.ix_(b.slots, columns)],))


def gather(executor: Executor, work: Callable[[Sequence[int]], A], layout: Layout, blocks: Sequence[int]) -> A:
    """Run work over blocks and put the arrays of all groups into the order of the points."""
    points: Ints | None = None
    whole: A | None = None
    for group, part in executor.map(work, blocks):
        if len(group) == len(blocks):  # in small epochs it counts what need not be done
            whole = part
            continue
        points = points_of(layout, blocks) if points is None else points
        whole = scatter_into(whole, points, points_of(layout, group), part)
    assert whole is not None
    return whole


def points_of(layout: Layout, blocks: Sequence[int]) -> Ints:
    """Points of some blocks, ascending."""
    return layout.points(sorted(blocks))
