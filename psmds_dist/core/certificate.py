"""What can be said about a map by trying every single move of one length along the axes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from psmds_dist.core.types import Floats


@dataclass(frozen=True)
class Certificate:
    """What single moves along the axes can gain at a map.

    Attributes
    ----------
    radius : float
        Length of the moves.
    gain : float
        Most that one of them lowers the sum of the costs of all pairs; 0 where none lowers it.
    share : float
        The same as a share of that sum.
    improvable : int
        Points of which a move lowers it.
    points : int
        Points whose moves were tried, both ways along every axis; pinned ones have none.
    """

    radius: float
    gain: float
    share: float
    improvable: int
    points: int

    @classmethod
    def of(cls, radius: float, gains: Floats, errors: Floats) -> Self:
        """Certificate from the change by the best move of each point, infinite without any, and the cost of its row."""
        tried = gains[gains != np.inf]
        gain, error = max(0.0, -float(tried.min(initial=0.0))), float(errors.sum()) / 2
        improvable = int(np.count_nonzero(tried < 0))
        return cls(radius, gain, gain / error if error else 0.0, improvable, int(tried.size))

    @property
    def holds(self) -> bool:
        """Whether no move lowers the sum."""
        return self.gain == 0

    def describe(self) -> str:
        """Return a sentence."""
        if self.holds:
            return f"No move of {self.radius:.4g} along an axis lowers the error ({self.points:,} points checked)."
        return (
            f"Moves of {self.radius:.4g} along an axis lower the error at {self.improvable:,} of {self.points:,} "
            f"points, the best one by {self.gain:.3g}, {self.share:.2g} of the error."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for attributes and JSON."""
        return asdict(self)
