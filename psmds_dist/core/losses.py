"""Losses: what a pair costs whose dissimilarity is ``t`` and whose distance in the map is ``d``.

A loss is one small class. Kernels compile its two functions into their loops, so that these use numbers, comparisons
and NumPy's elementwise functions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Squared(NamedTuple):
    """``(t - d)^2``, the loss of metric scaling."""

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        return (t - d) * (t - d)

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance."""
        return (d - t) + (d - t)


class Kruskal(NamedTuple):
    """``(t - d)^2 - u d^2``: where ``u`` is the square of Stress-1, its gradient is that of Stress-1 times a factor."""

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        return (t - d) * (t - d) - self.unit * (d * d)

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance."""
        e = (d - t) - self.unit * d
        return e + e


class Absolute(NamedTuple):
    """``|t - d|``: a few wrong dissimilarities do little harm."""

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        return abs(t - d)

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance; 0 at its corner."""
        return np.sign(d - t)


class Huber(NamedTuple):
    """``e^2`` of a residual ``e = |t - d|`` up to a threshold ``u``, ``u (2 e - u)`` beyond: robust and smooth.

    The threshold is 0.1 of the root mean square dissimilarity by default.
    """

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        e = abs(t - d)
        return e * e if e <= self.unit else self.unit * (e + e - self.unit)

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance."""
        e = d - t
        e = self.unit if e > self.unit else e
        e = -self.unit if e < -self.unit else e
        return e + e


class SquaredDistances(NamedTuple):
    """``(t^2 - d^2)^2``, the loss of S-stress: large dissimilarities count most."""

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        e = (t - d) * (t + d)
        return e * e

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance."""
        e = d * (d - t) * (d + t)
        return (e + e) + (e + e)


class Relative(NamedTuple):
    """``((t - d) / t)^2``: every pair counts by its relative error; dissimilarities must be positive.

    Bounds below 1e-6 of the root mean square dissimilarity count as so much.
    """

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        e = (t - d) / (t if t > self.unit else self.unit)
        return e * e

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance."""
        s = t if t > self.unit else self.unit
        e = (d - t) / s / s
        return e + e


class Log(NamedTuple):
    """``(log t - log d)^2``: twice as far costs as much as half as far; dissimilarities must be positive.

    Dissimilarities and distances below 1e-4 of the root mean square dissimilarity count as so much.
    """

    unit: Any

    def cost(self, t, d):  # type: ignore[no-untyped-def]
        """Cost of a pair."""
        s, e = (t if t > self.unit else self.unit), (d if d > self.unit else self.unit)
        e = np.log(e / s)
        return e * e

    def slope(self, t, d):  # type: ignore[no-untyped-def]
        """Derivative of the cost by the distance; 0 below the floor."""
        s, e = (t if t > self.unit else self.unit), (d if d > self.unit else self.unit)
        e = np.log(e / s) / e
        return e + e if d > self.unit else e - e


@dataclass(frozen=True)
class Loss:
    """A loss and what a solve needs to know of it.

    Attributes
    ----------
    kind : type
        Named tuple of ``unit``, a length that may serve as a threshold or floor, with functions ``cost`` and ``slope``.
    degree : int
        Power of lengths that its costs are.
    share : float
        Default of ``unit``, as a share of the root mean square dissimilarity.
    smooth : bool
        Whether it has a continuous derivative.
    divides : bool
        Whether it needs positive dissimilarities.
    steep : bool
        Whether rounding of float32 shows in costs of small distances, so that a solve computes in float64.
    """

    kind: type[Any]
    degree: int
    share: float = 0.0
    smooth: bool = True
    divides: bool = False
    steep: bool = False


LOSSES = {
    "squared": Loss(Squared, degree=2),
    "absolute": Loss(Absolute, degree=1, smooth=False),
    "huber": Loss(Huber, degree=2, share=0.1),
    "sstress": Loss(SquaredDistances, degree=4),
    "relative": Loss(Relative, degree=0, share=1e-6, divides=True),
    "log": Loss(Log, degree=0, share=1e-4, divides=True, steep=True),
}
"""Losses by name."""
