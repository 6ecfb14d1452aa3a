"""What rows hold about pairs of points, and how kernels read it: bounds of the dissimilarity, and a weight.

A form is one small class, compiled into the loops of kernels as losses are: what it does beside the square roots costs
next to nothing there. Of a pair that does not count the weight is 0, and bounds are numbers that do no harm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from psmds_dist.core.types import Rows
from psmds_dist.kernels.jit import COMPILED, compiled_method, optional_method


@compiled_method
def pair(self: Any, low: Any, high: Any, weight: Any) -> Any:
    """Bounds and weight of a pair by a form, from what its row holds."""
    return self.pair(low, high, weight)


@compiled_method
def apart(self: Any) -> Any:
    """Whether lower and upper bounds may differ by a form."""
    return self.apart()


@optional_method
def alone(self: Any) -> Any:
    """Whether what its row holds about a pair is all there is to know of it."""
    return True


@optional_method
def reweigh(self: Any, i: int, lo: int, low: Rows, weights: Rows) -> None:
    """Change the weights of the pairs of point ``i`` with those from ``lo`` on, where their points matter as well."""


def raised(base: Any, power: Any) -> Any:
    """Power of a number; loops over those of whole powers are vectorised."""
    return base**power


@overload(raised, jit_options=COMPILED)
def _raised(base, power):  # type: ignore[no-untyped-def]
    if not isinstance(power, types.Integer):
        return lambda base, power: base**power

    def whole(base, power):  # type: ignore[no-untyped-def]
        b = base if power > 0 else (base / base) / base
        p = abs(power)
        square = b * b
        low = b if p == 1 else square
        low = b / b if p == 0 else low
        return low if p < 3 else square * (b if p == 3 else square)

    return whole


class Values(NamedTuple):
    """Dissimilarities, or bounds of them, with or without weights."""

    upper: int
    """Upper bounds are at ``upper + j``; 0 where there is one dissimilarity instead of bounds."""

    weight: int
    """Weights are at ``weight + j``; 0 where there are none."""

    scale: Any
    """A dissimilarity."""

    def apart(self):  # type: ignore[no-untyped-def]
        """Whether lower and upper bounds may differ."""
        return self.upper > 0

    def pair(self, low, high, weight):  # type: ignore[no-untyped-def]
        """Bounds and weight of a pair; missing ones are NaN."""
        one = self.scale / self.scale
        counted = weight if self.weight > 0 else one
        known = (counted > 0) & (high >= low)
        return (low if known else self.scale), (high if known else self.scale), (counted if known else one - one)


class Powers(NamedTuple):
    """Dissimilarities, with or without weights, of which a power is a factor of the weight."""

    upper: int
    weight: int
    scale: Any

    power: Any
    """Exponent of ``t / scale``."""

    floor: Any
    """Least ``t / scale``."""

    def apart(self):  # type: ignore[no-untyped-def]
        """Whether lower and upper bounds may differ."""
        return False

    def pair(self, low, high, weight):  # type: ignore[no-untyped-def]
        """Dissimilarity, twice, and weight of a pair; missing ones are NaN."""
        t, _, counted = pair(Values(self.upper, self.weight, self.scale), low, high, weight)
        return t, t, counted * raised(max(t / self.scale, self.floor), self.power)


class Curve(NamedTuple):
    """Positions among knots: the number of the last one below, and the fraction of the way to the next."""

    upper: int
    weight: int
    one: Any

    table: Rows
    """Disparities at the knots, the last one twice."""

    def apart(self):  # type: ignore[no-untyped-def]
        """Whether lower and upper bounds may differ."""
        return False

    def pair(self, low, high, weight):  # type: ignore[no-untyped-def]
        """Disparity, twice, and weight of a pair."""
        zero = self.one - self.one
        known = low == low  # NaN is not
        k = np.uint32(np.int32(low) if known else np.int32(0))  # unsigned: numbers below zero would be looked for
        c = self.table[k]
        c += ((low - np.floor(low)) if known else zero) * (self.table[k + np.uint32(1)] - c)
        return c, c, (self.one if low == low else zero)


class Steps(NamedTuple):
    """Numbers of the last knots below; higher ones than there are knots where a pair is missing."""

    upper: int
    weight: int
    one: Any

    table: Rows
    """Disparity of each."""

    def apart(self):  # type: ignore[no-untyped-def]
        """Whether lower and upper bounds may differ."""
        return False

    def pair(self, low, high, weight):  # type: ignore[no-untyped-def]
        """Disparity, twice, and weight of a pair."""
        known = low < self.table.size
        c = self.table[np.uint32(low) if known else np.uint32(0)]
        return c, c, (self.one if known else self.one - self.one)


class Ranges(NamedTuple):
    """The same where dissimilarities above a knot may have different disparities."""

    upper: int
    weight: int
    one: Any

    lows: Rows
    """Lowest disparity of each."""

    highs: Rows
    """Highest."""

    def apart(self):  # type: ignore[no-untyped-def]
        """Whether lower and upper bounds may differ."""
        return True

    def pair(self, low, high, weight):  # type: ignore[no-untyped-def]
        """Bounds of the disparity, and weight of a pair."""
        known = low < self.lows.size
        k = np.uint32(low) if known else np.uint32(0)
        return self.lows[k], self.highs[k], (self.one if known else self.one - self.one)


class NearPairs(NamedTuple):
    """Dissimilarities as those of `Powers`, of which near pairs weigh more; see `psmds_dist.core.nearness.Nearness`."""

    upper: int
    weight: int
    scale: Any
    power: Any
    floor: Any

    reach: Rows
    """Largest dissimilarity of each point to its nearest ones."""

    near: Any
    """Weight that a pair has more for each of its points that has the other one in reach."""

    far: Any
    """Weight that it has in any case."""

    def alone(self):  # type: ignore[no-untyped-def]
        """Whether a pair is known from its row: its points matter as well."""
        return False

    def apart(self):  # type: ignore[no-untyped-def]
        """Whether lower and upper bounds may differ."""
        return False

    def pair(self, low, high, weight):  # type: ignore[no-untyped-def]
        """Dissimilarity, twice, and weight of a pair, wherever its points are."""
        powers = Powers(self.upper, self.weight, self.scale, self.power, self.floor)
        return pair(powers, low, high, weight)

    def reweigh(self, i, lo, low, weights):  # type: ignore[no-untyped-def]
        """Make near pairs weigh more."""
        zero, own = self.near - self.near, self.reach[i]
        for j in range(low.size):
            weight = self.far + (self.near if low[j] <= own else zero)
            weights[j] *= weight + (self.near if low[j] <= self.reach[lo + j] else zero)
