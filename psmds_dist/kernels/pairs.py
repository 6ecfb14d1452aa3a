"""What a pass over rows computes, for the plain rule and for any other: the one place where the two part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from psmds_dist.core.losses import Kruskal
from psmds_dist.core.nearness import NOWHERE, SLACK, Nearness
from psmds_dist.core.rules import FLOOR, PairRule
from psmds_dist.core.transformations import SPREAD, BinGrid
from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels import gradient, guided, loss, moves
from psmds_dist.kernels.bins import bin_sums
from psmds_dist.kernels.descent import descend, search_by_rule, settle_by_rule
from psmds_dist.kernels.forms import Curve, NearPairs, Powers, Ranges, Steps, Values
from psmds_dist.kernels.near import reaches

RELAXATION, CAUTION = 1.8, 0.9
"""Length of a step of majorization where all points move at once, with equal weights and with any."""


@dataclass(frozen=True)
class DescentPlan:
    """How descents of a search proceed.

    Attributes
    ----------
    eps : float
        The radius halves when an epoch lowers the error by at most this share of it.
    end, settled : float
        A search ends when the radius comes down to ``end``, or to the share ``settled`` of the root of the mean cost.
    max_epochs, sweeps : int
        Most epochs along axes, and sweeps of majorization after them.
    relaxation : float
        Length of a step of majorization.
    """

    eps: float
    end: float
    settled: float
    max_epochs: int
    sweeps: int
    relaxation: float


class PairKernels(Protocol):
    """Kernels of a rule; picklable."""

    @property
    def parts(self) -> int:
        """Numbers that rows hold about each pair."""
        ...

    def propose(
        self, rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints
    ) -> tuple[Floats, Floats]:
        """Errors and gains, as `psmds_dist.kernels.moves.propose` returns them."""
        ...

    def guide(
        self, rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints
    ) -> tuple[Rows, Floats, Floats]:
        """Steps, gains and errors, as `psmds_dist.kernels.guided.guide` returns them."""
        ...

    def row_gradients(self, rows: Rows, slots: Ints, points: Ints, x: Rows) -> tuple[Floats, Floats]:
        """Errors and halved gradients, as `psmds_dist.kernels.gradient.row_gradients` returns them."""
        ...

    def row_sums(self, rows: Rows, slots: Ints, points: Ints, x: Floats) -> Floats:
        """Sums that `psmds_dist.core.stress.Stress.from_row_sums` takes."""
        ...

    def descend(self, rows: Rows, x: Rows, orders: Ints, radii: Rows, plan: DescentPlan) -> Floats:
        """Turn the starts ``x`` into maps, as `psmds_dist.kernels.descent.descend` does, and return their mean costs.

        Rows are multiples of the root mean square dissimilarity; ``x``, ``orders`` and ``radii`` have a line for each
        start.
        """
        ...

    def steps(self, rows: Rows, x: Rows) -> Floats:
        """How far each point goes against its halved gradient in a sweep of majorization, where all go at once.

        The type of these numbers is that of the coordinates for which kernels are compiled.
        """
        ...

    def of_points(self, points: Ints) -> Self:
        """Return the kernels for rows and columns of some of the points."""
        ...


@dataclass(frozen=True)
class PlainKernels:
    """The squared error of every pair."""

    parts = 1
    propose = staticmethod(moves.propose)
    guide = staticmethod(guided.guide)
    row_gradients = staticmethod(gradient.row_gradients)
    row_sums = staticmethod(moves.row_sums)

    def descend(self, rows: Rows, x: Rows, orders: Ints, radii: Rows, plan: DescentPlan) -> Floats:
        """Turn starts into maps, and return their mean squared errors."""
        n, errors = len(rows), np.empty(len(x))
        pull, end = np.float32(plan.relaxation / (n - 1)), np.float32(plan.end)
        descend(rows, x, orders, radii, plan.eps, end, plan.settled, plan.max_epochs, plan.sweeps, pull, errors)
        return errors / (n * (n - 1))

    def steps(self, rows: Rows, x: Rows) -> Floats:
        """Return the same for all points: with equal weights sweeps may go far beyond the minimum of their bound."""
        return np.full(len(rows), RELAXATION / len(rows), np.float32)

    def of_points(self, points: Ints) -> Self:
        """Return itself: points do not matter."""
        return self


@dataclass(frozen=True, eq=False)
class RuleKernels:
    """Any rule, for data of a scale.

    Parameters
    ----------
    rule : PairRule
        What a pair costs.
    scale : float
        Root mean square dissimilarity.
    table : (1 or 2, knots) ndarray
        Disparities at knots, where rows are positions among these; empty where they are dissimilarities.
    share : float
        Share of the squared distances that a pair costs less, where there is a table.
    nearness : Nearness
        Which pairs are near, and what they weigh.
    """

    rule: PairRule
    scale: float
    table: Floats = field(default_factory=lambda: np.empty((0, 0)))
    share: float = 0.0
    nearness: Nearness = NOWHERE

    @property
    def parts(self) -> int:
        """Numbers that rows hold about each pair."""
        return self.rule.parts

    def terms(self, x: Rows) -> tuple[Any, Any]:
        """Loss and form of rows, as kernels take them, for coordinates of a type."""
        number, n, rule = x.dtype.type, x.shape[-1], self.rule
        if self.table.size:
            return Kruskal(number(self.share)), self._transformed(number)
        held = n * rule.bounded, (rule.parts - 1) * n * rule.weighted, number(self.scale)
        power = int(rule.power) if int(rule.power) == rule.power else number(rule.power)
        form: Any = Powers(*held, power, number(FLOOR)) if rule.power else Values(*held)
        if (near := self.nearness).reach.size:
            reach = near.reach.astype(number)
            form = NearPairs(*held, power, number(FLOOR), reach, number(near.near), number(near.far))
        return rule.facts.kind(number(rule.share * self.scale)), form

    def _transformed(self, number: type[Any]) -> Any:
        """Form of rows that hold positions among knots."""
        table = self.table.astype(number)
        if self.rule.transformation == "ordinal":
            return Steps(0, 0, number(1), *table) if len(table) == 1 else Ranges(0, 0, number(1), *table)
        return Curve(0, 0, number(1), np.append(table[0], table[0, -1]))

    def propose(
        self, rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints
    ) -> tuple[Floats, Floats]:
        """Errors and gains."""
        return loss.propose(rows, slots, points, x, radius, axes, *self.terms(x))

    def guide(
        self, rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints
    ) -> tuple[Rows, Floats, Floats]:
        """Steps, gains and errors."""
        return loss.guide(rows, slots, points, x, radius, axes, *self.terms(x))

    def row_gradients(self, rows: Rows, slots: Ints, points: Ints, x: Rows) -> tuple[Floats, Floats]:
        """Errors and halved gradients."""
        return loss.row_gradients(rows, slots, points, x, *self.terms(x))

    def row_sums(self, rows: Rows, slots: Ints, points: Ints, x: Floats) -> Floats:
        """Sums of `psmds_dist.kernels.loss.row_sums`."""
        return loss.row_sums(rows, slots, points, x, *self.terms(x))

    def bin_sums(self, rows: Rows, slots: Ints, points: Ints, x: Floats, grid: BinGrid) -> Ints:
        """Sums of `psmds_dist.kernels.bins.bin_sums`."""
        return bin_sums(rows, slots, points, x, grid.shape, self.scale, SPREAD, grid.unit)

    def reaches(self, rows: Rows, slots: Ints, points: Ints, n: int) -> tuple[Rows, Floats]:
        """What `psmds_dist.core.nearness.Nearness.of` takes about some of ``n`` points."""
        terms = self.terms(np.empty((1, n)))
        return reaches(rows, slots, points, n, self.rule.local_neighbors, SLACK, *terms)

    def of_points(self, points: Ints) -> Self:
        """Return the same with the reach of some of the points."""
        return replace(self, nearness=self.nearness.of_points(points)) if self.rule.local else self

    def descend(self, rows: Rows, x: Rows, orders: Ints, radii: Rows, plan: DescentPlan) -> Floats:
        """Turn starts into maps, and return their mean costs."""
        errors, weights = np.empty(len(x)), self._weights(rows, x[0])
        if plan.max_epochs:
            settled, end = plan.settled / np.sqrt(weights.sum()), np.float32(plan.end)
            steps = plan.eps, end, settled, plan.max_epochs
            search_by_rule(rows, x, orders, radii, *steps, *self.terms(x), errors)
        if plan.sweeps:
            pulls = np.zeros(weights.size, np.float32)
            np.divide(plan.relaxation, weights, out=pulls, where=weights > 0, casting="same_kind")
            settle_by_rule(rows, x, orders, plan.sweeps, pulls, *self.terms(x), errors)
        return np.asarray(errors / weights.sum())

    def steps(self, rows: Rows, x: Rows) -> Floats:
        """Return those that raise no error however pairs are weighted: the bound curves at most twice its diagonal."""
        weights = self._weights(rows, x)
        return np.divide(CAUTION, weights, out=np.zeros(weights.size), where=weights > 0)

    def _weights(self, rows: Rows, x: Rows) -> Floats:
        """Sum of the weights of the pairs of each point."""
        points = np.arange(len(rows))
        return self.row_sums(rows, points, points, np.ascontiguousarray(x, float))[:, 4]


PLAIN_KERNELS = PlainKernels()


def kernels_of(rule: PairRule, scale: float, nearness: Nearness = NOWHERE) -> PairKernels:
    """Kernels of a rule, for data of a root mean square dissimilarity, and what near pairs weigh."""
    return PLAIN_KERNELS if rule.plain else RuleKernels(rule, scale, nearness=nearness)
