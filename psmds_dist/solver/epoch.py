"""One epoch of moves: with bad moves, or monotone.

Both take the same arguments and return an `EpochReport`; the solve picks one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.region import Region
from psmds_dist.core.types import Executor, Floats, Ints
from psmds_dist.kernels.pairs import PLAIN_KERNELS, PairKernels
from psmds_dist.solver.quality import SomeRows
from psmds_dist.solver.schedule import EpochPlan, EpochReport, State
from psmds_dist.solver.tasks import (
    CachedRows,
    Measure,
    MeasureSome,
    MultiplySquares,
    Proposal,
    Propose,
    ProposeAllowed,
    ProposeGradientSteps,
    RowGradients,
    gather,
    points_of,
)


@dataclass(frozen=True)
class Objective:
    """The matrix, who works on it, and what a pair costs."""

    rows: CachedRows
    executor: Executor
    kernels: PairKernels = PLAIN_KERNELS
    region: Region | None = None
    """Where points may be; anywhere by default. Its moves are along axes."""

    def propose(self, x: Floats, plan: EpochPlan, blocks: Sequence[int]) -> Proposal:
        """Best moves of the points of ``blocks`` from ``x``; the gain of a point without a move is infinite."""
        return gather(self.executor, self._proposing(x, plan), self.rows.layout, blocks)

    def _proposing(self, x: Floats, plan: EpochPlan) -> Propose:
        given = self.rows, x.astype(plan.dtype), plan.radius, plan.axes, self.kernels
        if self.region is not None:
            return ProposeAllowed(*given, allowed=self.region.allows(x, plan.radius, plan.axes))
        return (ProposeGradientSteps if plan.guided else Propose)(*given)

    def measure(self, x: Floats) -> Floats:
        """Exact sums of every row: its error, squared distances, squared dissimilarities, and more by other rules."""
        layout = self.rows.layout
        (sums,) = gather(self.executor, Measure(self.rows, x, self.kernels), layout, range(layout.count))
        return sums

    def measure_some(self, x: Floats, points: Ints) -> Floats:
        """Exact sums of the rows of some points, ascending, which are read by themselves, a block at a time."""
        source, layout = self.rows.source, self.rows.layout
        rows = SomeRows(source, points, layout.rows * source.shape[1] * source.dtype.itemsize)
        work = MeasureSome(rows, x, self.kernels)
        parts = [part for _, part in self.executor.map(work, np.unique(points // layout.rows).tolist())]
        found, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        return np.asarray(sums[np.argsort(found)])

    def gradient(self, x: Floats, dtype: str = "float64") -> tuple[float, Floats]:
        """Error over ordered pairs, and its derivatives by the coordinates, ``(L, n)``; in arithmetic of a type."""
        layout, work = self.rows.layout, RowGradients(self.rows, x.astype(dtype, copy=False), self.kernels)
        errors, halves = gather(self.executor, work, layout, range(layout.count))
        return float(errors.sum()), np.ascontiguousarray(4 * halves.T)  # each pair is in two rows

    def refitted(self, x: Floats) -> tuple[Objective, float]:
        """Fit to a map anew what it is compared with; return that, or itself where nothing is fitted, and the error."""
        return self, np.nan

    @property
    def curve(self) -> Floats:
        """Knots and disparities, where dissimilarities are transformed; else empty."""
        return np.empty((0, 0))

    def fitted(self, x: Floats) -> Objective:
        """Return what the stress of a map is told by."""
        return self

    def multiply_squares(self, block: Floats) -> Floats:
        """Squared dissimilarities times the vectors of a block, one a line: ``(c, n)`` like the block."""
        layout = self.rows.layout
        (products,) = gather(self.executor, MultiplySquares(self.rows, block), layout, range(layout.count))
        return np.ascontiguousarray(products.T)


Epoch = Callable[[Objective, State, EpochPlan], EpochReport]


def bad_moves_epoch(objective: Objective, state: State, plan: EpochPlan) -> EpochReport:
    """Every point takes its best move, even one that raises the error; one without a move stays."""
    layout = objective.rows.layout
    x = state.x
    errors, moved = np.empty(layout.n), 0
    for blocks in plan.rounds:
        points = points_of(layout, blocks)
        best, gains, errors[points] = objective.propose(x, plan, blocks)
        able = gains != np.inf
        x = apply_moves(x, points[able], best[able], plan)
        moved += int(np.count_nonzero(able))
    return EpochReport(x, float(errors.sum()), moved)


def monotone_epoch(objective: Objective, state: State, plan: EpochPlan) -> EpochReport:
    """Only moves that lower the error, together as well as alone.

    Points that would each improve can worsen the map when they move at once, so the summed step is measured. When
    it did not lower the error, the movers of one round try again from where the epoch began, then the better half
    of them, and again: a single mover with a negative gain always succeeds, which is the condition general
    pattern search needs. The second round has its turn only where the first holds none but gains below rounding.
    """
    before = state.error if np.isfinite(state.error) else _error(objective, state.x)
    x = state.x
    steps: list[_Step] = []
    for blocks in plan.rounds:
        steps.append(_improving(objective, x, plan, blocks))
        x = apply_moves(x, steps[-1].points, steps[-1].best, plan)
    count = sum(step.points.size for step in steps)
    error = _error(objective, x) if count else before
    if error < before:
        return EpochReport(x, error, count)
    stayed = True
    for blocks, proposed in zip(plan.rounds, steps, strict=True):
        step = proposed if stayed else _improving(objective, state.x, plan, blocks)
        stayed = stayed and not step.points.size
        count = step.points.size
        while count:
            x = apply_moves(state.x, step.points[:count], step.best[:count], plan)
            error = _error(objective, x)
            if error < before:
                return EpochReport(x, error, count)
            count //= 2
    return EpochReport(state.x, before, 0)


@dataclass(frozen=True)
class _Step:
    """Moves that lower the error, each alone: the best first."""

    points: Ints
    best: NDArray[Any]


def _improving(objective: Objective, x: Floats, plan: EpochPlan, blocks: Sequence[int]) -> _Step:
    best, gain, _ = objective.propose(x, plan, blocks)
    order = np.argsort(gain, kind="stable")[: np.count_nonzero(gain < 0)]
    return _Step(points_of(objective.rows.layout, blocks)[order], best[order])


def _error(objective: Objective, x: Floats) -> float:
    return float(objective.measure(x)[:, 0].sum())


def apply_moves(x: Floats, points: Ints, best: NDArray[Any], plan: EpochPlan) -> Floats:
    """Coordinates after the given points have made their moves."""
    after = x.copy()
    axes = np.asarray(plan.axes)
    if plan.guided:
        after[np.ix_(axes, points)] += best.T
        return after
    after[axes[best // 2], points] += np.where(best % 2 == 0, plan.radius, -plan.radius)
    return after
