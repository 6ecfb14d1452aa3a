"""What a pass over rows computes, for the plain rule and for any other: the one place where the two part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from psmds_dist.core.rules import FLOOR, PairRule
from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels import gradient, guided, loss, moves


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


@dataclass(frozen=True)
class PlainKernels:
    """The squared error of every pair."""

    parts = 1
    propose = staticmethod(moves.propose)
    guide = staticmethod(guided.guide)
    row_gradients = staticmethod(gradient.row_gradients)
    row_sums = staticmethod(moves.row_sums)


@dataclass(frozen=True)
class RuleKernels:
    """Any rule, for data of a scale.

    Parameters
    ----------
    rule : PairRule
        What a pair costs.
    scale : float
        Root mean square dissimilarity.
    """

    rule: PairRule
    scale: float

    @property
    def parts(self) -> int:
        """Numbers that rows hold about each pair."""
        return self.rule.parts

    def terms(self, x: Rows) -> tuple[Any, loss.RowForm]:
        """Loss and form of rows, as kernels take them, for coordinates of a type."""
        number, n, rule = x.dtype.type, x.shape[-1], self.rule
        power = int(rule.power) if rule.power == int(rule.power) else number(rule.power)
        form = loss.RowForm(
            n * rule.bounded, (rule.parts - 1) * n * rule.weighted, power, number(FLOOR), number(self.scale)
        )
        return rule.facts.kind(number(rule.share * self.scale)), form

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
        return loss.row_sums(rows, slots, points, np.asarray(x), *self.terms(x))


PLAIN_KERNELS = PlainKernels()


def kernels_of(rule: PairRule, scale: float) -> PairKernels:
    """Kernels of a rule, for data of a root mean square dissimilarity."""
    return PLAIN_KERNELS if rule.plain else RuleKernels(rule, scale)
