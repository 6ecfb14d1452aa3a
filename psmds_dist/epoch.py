"""One epoch of moves: with bad moves, or monotone.

Both take the same arguments and return an `EpochReport`; the solve picks one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psmds_dist.block import Held, Measure, Proposal, Propose, gather, points_of
from psmds_dist.schedule import EpochPlan, EpochReport, State
from psmds_dist.types import Executor, Floats, Ints


@dataclass(frozen=True)
class Field:
    """The matrix and who works on it."""

    held: Held
    executor: Executor

    def propose(self, x: Floats, plan: EpochPlan, blocks: Sequence[int]) -> Proposal:
        """Best moves of the points of ``blocks`` from ``x``."""
        work = Propose(self.held, x.astype(plan.dtype), plan.radius, plan.axes)
        return gather(self.executor, work, self.held.layout, blocks)

    def measure(self, x: Floats) -> Floats:
        """Exact sums of every row, ``(n, 3)``: squared residuals, squared distances, squared dissimilarities."""
        (sums,) = gather(self.executor, Measure(self.held, x), self.held.layout, range(self.held.layout.count))
        return sums


Epoch = Callable[[Field, State, EpochPlan], EpochReport]


def bad_moves_epoch(field: Field, state: State, plan: EpochPlan) -> EpochReport:
    """Every point takes its best move, even one that raises the error."""
    layout = field.held.layout
    x = state.x
    errors = np.empty(layout.n)
    for blocks in plan.rounds:
        points = points_of(layout, blocks)
        best, _, errors[points] = field.propose(x, plan, blocks)
        x = moved(x, points, best, plan)
    return EpochReport(x, float(errors.sum()), layout.n)


def monotone_epoch(field: Field, state: State, plan: EpochPlan) -> EpochReport:
    """Only moves that lower the error, together as well as alone.

    Points that would each improve can worsen the map when they move at once, so the summed step is measured. When
    it did not lower the error, only the best half of the movers of one round tries again, and again: a single
    mover with a negative gain always succeeds, which is the condition general pattern search needs.
    """
    layout = field.held.layout
    before = state.error if np.isfinite(state.error) else _error(field, state.x)
    x = state.x
    first: tuple[Ints, NDArray[np.int16], Floats] | None = None
    count = 0
    for blocks in plan.rounds:
        best, gain, _ = field.propose(x, plan, blocks)
        movers = np.flatnonzero(gain < 0)
        step = (points_of(layout, blocks)[movers], best[movers], gain[movers])
        first = first or (step if movers.size else None)
        x = moved(x, step[0], step[1], plan)
        count += movers.size
    if first is None:
        return EpochReport(state.x, before, 0)
    error = _error(field, x)
    points, best, gain = first
    order = np.argsort(gain, kind="stable")
    while not error < before and order.size:
        count = order.size
        x = moved(state.x, points[order], best[order], plan)
        error = _error(field, x)
        order = order[: order.size // 2]
    if not error < before:  # a gain below rounding: the map is stationary at this radius
        return EpochReport(state.x, before, 0)
    return EpochReport(x, error, count)


def _error(field: Field, x: Floats) -> float:
    return float(field.measure(x)[:, 0].sum())


def moved(x: Floats, points: Ints, best: NDArray[np.int16], plan: EpochPlan) -> Floats:
    """Coordinates after the given points have made their moves."""
    axes = np.asarray(plan.axes)[best // 2]
    after = x.copy()
    after[axes, points] += np.where(best % 2 == 0, plan.radius, -plan.radius)
    return after
