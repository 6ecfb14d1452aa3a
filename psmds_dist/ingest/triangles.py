"""Which sides of the diagonal of a matrix are filled: lone triangles, whatever stands in the other half."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from psmds_dist.core.types import Rows


@dataclass(frozen=True)
class Side:
    """Entries on one side of the diagonal that are finite and not zero: how many, and within which bounds."""

    filled: int = 0
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, entries: Rows) -> Side:
        """Look at some entries; those that are left out are zero."""
        there = np.isfinite(entries) & (entries != 0)
        low, high = entries.min(where=there, initial=math.inf), entries.max(where=there, initial=-math.inf)
        return cls(int(np.count_nonzero(there)), float(low), float(high))

    @classmethod
    def total(cls, sides: Iterable[Side]) -> Side:
        """Put together what was found in parts of a side."""
        parts = list(sides)
        return cls(
            sum(part.filled for part in parts),
            min((part.low for part in parts), default=math.inf),
            max((part.high for part in parts), default=-math.inf),
        )

    def empty_beside(self, other: Side) -> bool:
        """Whether nothing is here, or one value alone that stands for it: below or above all on the other side."""
        return not self.filled or (self.low == self.high and not other.low <= self.low <= other.high)

    def __str__(self) -> str:
        """What an empty side holds."""
        return f"zero, missing or {self.low:g}" if self.filled else "zero or missing"


@dataclass(frozen=True)
class Triangles:
    """What is on each side of the diagonal."""

    lower: Side
    upper: Side

    @classmethod
    def total(cls, found: Iterable[Triangles]) -> Triangles:
        """Put together what was found in parts of a matrix."""
        parts = list(found)
        return cls(Side.total(part.lower for part in parts), Side.total(part.upper for part in parts))

    @property
    def only(self) -> str | None:
        """The triangle that is filled, ``"lower"`` or ``"upper"``, when the other one is empty."""
        no_lower, no_upper = self.lower.empty_beside(self.upper), self.upper.empty_beside(self.lower)
        if no_lower == no_upper:
            return None
        return "upper" if no_lower else "lower"


def count_sides(rows: Rows, lo: int) -> Triangles:
    """Look at both sides of the diagonal in neighbouring rows, of which ``lo`` is the first."""
    hi = lo + len(rows)
    corner = rows[:, lo:hi]
    lower = Side.total([Side.of(rows[:, :lo]), Side.of(np.tril(corner, -1))])
    return Triangles(lower, Side.total([Side.of(rows[:, hi:]), Side.of(np.triu(corner, 1))]))


def mirrored(matrix: Rows) -> Rows:
    """A matrix with its lone triangle on both sides of the diagonal; one with two as it is."""
    side = count_sides(matrix, 0).only
    if side is None:
        return matrix
    half: Rows = np.triu(matrix, 1) if side == "upper" else np.tril(matrix, -1)
    return half + half.T
