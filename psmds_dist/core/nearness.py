"""Near pairs against the whole: which points are near to each other, and how much more their pairs weigh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from psmds_dist.core.errors import InputError
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import Floats, Ints, Rows

SLACK = 1e-6
"""Share by which a reach is longer than the dissimilarity that it ends at, whose other order may differ by rounding."""


@dataclass(frozen=True, eq=False)
class Nearness:
    """Weights of near pairs, found from each row and the reach of its other points.

    A pair weighs ``far + near m``, where ``m`` is 0, 1 or 2: how many of its points have the other one among their
    nearest. Both are chosen so that the objective is ``(1 - local) A + local B``: of ``A``, the mean cost of all pairs,
    and of ``B``, that of the nearest points of each point, each as a share of what it is with all points in one place.

    Attributes
    ----------
    reach : (n,) ndarray
        Largest dissimilarity of each point to its nearest points, of the type of the rows; infinite where it knows
        fewer others.
    near, far : float
        As above.
    """

    reach: Rows
    near: float
    far: float

    @classmethod
    def of(cls, rule: PairRule, reach: Rows, costs: Floats) -> Self:
        """Weights by a rule.

        Parameters
        ----------
        rule : PairRule
            Says which share near pairs have.
        reach : (n,) ndarray
            As in the class.
        costs : (n, 2) ndarray
            Costs of each row with all points in one place: of all pairs, and of those within the point's own reach.

        Raises
        ------
        InputError
            When near pairs cost nothing in one place.
        """
        whole, nearest = (float(total) for total in costs.sum(axis=0))
        if not nearest > 0:
            raise InputError(
                f"the {rule.local_neighbors} nearest points of every point are at dissimilarity 0, so that local has "
                "nothing to weigh: raise local_neighbors (--local-neighbors), or merge points that are the same."
            )
        return cls(reach, near=0.5 * rule.local * whole / nearest, far=1 - rule.local)

    def of_points(self, points: Ints) -> Self:
        """Return the same for some of the points."""
        return replace(self, reach=self.reach[points])


NOWHERE = Nearness(np.empty(0), near=0.0, far=1.0)
"""No pair is near: all weigh as they are."""
