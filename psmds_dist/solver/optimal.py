"""Optimal scaling: a transformation of the dissimilarities that is fitted to the map anew as that changes.

Points move against disparities, which are fixed while they move; then the transformation is fitted to the map, from
sums that one pass over the rows gathers. Both lower Kruskal's Stress-1, ``S = sqrt(sum (d - f(t))^2 / sum d^2)``. While
points move, disparities are scaled so that the sum of their squares stays the same, or else all would collapse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from psmds_dist.core.layout import MIN_BLOCKS, Layout
from psmds_dist.core.nearness import NOWHERE, Nearness
from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.transformations import BinGrid, BinSums, Fit, Monotone, Transformation, knots_of, transformation_of
from psmds_dist.core.types import Executor, Floats
from psmds_dist.data.positions import Disparities, Positions
from psmds_dist.kernels.bins import aligned
from psmds_dist.kernels.pairs import RuleKernels, kernels_of
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.schedule import Schedule
from psmds_dist.solver.tasks import CachedRows, SelectColumns, SumBins, gather, points_of

SAMPLE = 2000
"""Points between which all dissimilarities are looked at for knots; of more points, so many are drawn."""

FITTED_PAIRS = 2**25
"""Ordered pairs that disparities are fitted to while points move, some thousands a bin; their stress is told by all."""


@dataclass(frozen=True)
class Scaling:
    """A transformation and the knots of a matrix.

    Attributes
    ----------
    transformation : Transformation
        Its kind.
    knots : (k,) ndarray
        Dissimilarities, ascending.
    first : (k,) ndarray
        Disparities to begin with, of about the root mean square of the dissimilarities.
    """

    transformation: Transformation
    knots: Floats
    first: Floats

    @classmethod
    def of(
        cls,
        source: RowSource,
        rule: PairRule,
        executor: Executor,
        schedule: Schedule,
        budget: int,
        highest: float = -math.inf,
    ) -> Self | None:
        """Scaling of a matrix by a rule, with knots from a sample; None where dissimilarities count as they are.

        The last knot is the highest dissimilarity, if that is given.
        """
        if rule.transformation is None:
            return None
        rows = CachedRows(source, budget)
        blocks = schedule.sample_blocks(SAMPLE)
        columns = points_of(rows.layout, blocks)
        (part,) = gather(executor, SelectColumns(rows, columns), rows.layout, blocks)
        values = part[~np.eye(len(part), dtype=bool) & ~np.isnan(part)]
        knots, complete = knots_of(values, highest)
        if rule.transformation == "ratio" and columns.size < source.n:
            knots = np.union1d(0.0, knots)  # of the smallest ones too, that no sample may hold
        kind = transformation_of(rule.transformation, rule.ties if complete else "secondary")
        if kind.stepwise and not complete and columns.size < source.n:  # quantiles of a sample, good to some digits
            knots = aligned(knots, source.dtype)
        knots = kind.needed(knots)
        first = kind.begin(knots, schedule.config.n_components)
        usual = math.sqrt(np.mean(np.interp(values, knots, first) ** 2))
        return cls(kind, knots, first * (schedule.scale / usual))

    def followed(self, rule: PairRule) -> PairRule:
        """Rule that a solve follows: beyond 4,096 different dissimilarities, near ones share a disparity."""
        shared = isinstance(self.transformation, Monotone) and not self.transformation.split
        return replace(rule, ties="secondary") if shared else rule

    def positions(self, source: RowSource) -> RowSource:
        """Rows that a solve reads."""
        return Positions(source, self.knots, self.transformation.stepwise)

    def disparities(self, source: RowSource) -> RowSource:
        """Rows for finding a start: dissimilarities, or disparities to begin with where these have an order only."""
        if not self.transformation.stepwise:
            return source
        return Disparities(self.positions(source), self.first.astype(source.dtype))


def fitted_blocks(layout: Layout) -> Sequence[int]:
    """Blocks of rows, spread evenly, whose pairs with later points are enough for a fit; all of a smaller matrix."""
    count = min(layout.count, max(MIN_BLOCKS, -(-layout.count * FITTED_PAIRS // layout.n**2)))
    return sorted({round(block) for block in np.linspace(0, layout.count - 1, count)})


@dataclass(frozen=True)
class ScaledObjective(Objective):
    """An objective whose dissimilarities are transformed; rows hold their positions among knots."""

    kernels: RuleKernels
    scaling: Scaling = field(kw_only=True)

    @property
    def curve(self) -> Floats:
        """Knots and disparities at them, or their bounds."""
        return np.vstack([self.scaling.knots, self.kernels.table])

    def fit(self, x: Floats, *, whole: bool = False) -> tuple[Fit, BinSums]:
        """Fit the transformation to a map: to some rows of a large matrix, which tell it to enough digits, or to all.

        Sums are those over all rows, or estimates of these.
        """
        layout = self.rows.layout
        grid = BinGrid.of(self.scaling.transformation, self.scaling.knots.size, x, self.kernels.scale)
        work = SumBins(self.rows, x, self.kernels, grid)
        blocks = range(layout.count) if whole else fitted_blocks(layout)
        total = np.zeros(grid.shape, np.int64)
        for _, part in self.executor.map(work, blocks):
            total += part
        later = layout.n - 1 - points_of(layout, blocks)
        share = layout.n * (layout.n - 1) / (2 * int(later.sum()))
        sums = BinSums.of(total, grid.unit, self.kernels.scale, share)
        return self.scaling.transformation.fit(sums, self.scaling.knots), sums

    def with_table(self, table: Floats, share: float = 0.0) -> Self:
        """Return the same with other disparities."""
        return replace(self, kernels=replace(self.kernels, table=table, share=share))

    def fitted(self, x: Floats) -> Self:
        """Return the same with the disparities that fit a map best, by which its stress is told."""
        return self.with_table(self.fit(x, whole=True)[0].table)

    def refitted(self, x: Floats) -> tuple[Self, float]:
        """Return the same with such disparities, of the usual root mean square, and the error of the map then."""
        fit, sums = self.fit(x)
        if fit.square == 0:  # all points in one place
            return self, math.nan
        wanted = self.kernels.scale**2 * float(sums.pairs.sum())
        factor = math.sqrt(wanted / fit.square)
        return self.with_table(factor * fit.table), sums.squares - 2 * factor * fit.square + wanted

    def gradient(self, x: Floats, dtype: str = "float64") -> tuple[float, Floats]:
        """Square of Stress-1 with the best disparities, and its derivatives.

        Disparities are the best ones, so that their own change does not matter. Where ``S`` is known, those of ``S^2``
        are those of ``(sum (d - f(t))^2 - S^2 sum d^2) / sum d^2`` with ``S^2`` fixed in it.
        """
        fit, sums = self.fit(x)
        share = max(0.0, 1 - fit.square / sums.squares)
        error, slopes = Objective.gradient(self.with_table(fit.table, share), x, dtype)
        return share + error / sums.squares, slopes / sums.squares


def objective_of(
    source: RowSource,
    rule: PairRule,
    executor: Executor,
    scale: float,
    budget: int,
    scaling: Scaling | None = None,
    nearness: Nearness = NOWHERE,
) -> Objective:
    """Objective of a matrix by a rule; with the disparities to begin with where dissimilarities are transformed."""
    if scaling is None:
        return Objective(CachedRows(source, budget), executor, kernels_of(rule, scale, nearness))
    rows = CachedRows(scaling.positions(source), budget)
    return ScaledObjective(rows, executor, RuleKernels(rule, scale, scaling.first[None]), scaling=scaling)
