"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EpochEvent:
    """One epoch has ended.

    Attributes
    ----------
    epoch : int
        Epochs done.
    radius : float
        Radius of the moves of this epoch, in units of the dissimilarities.
    mse : float
        Mean squared error over all ordered pairs as collected during the epoch.
    seconds : float
        Time since the solve began.
    moved : float
        Share of the points that moved.
    end_radius : float
        Radius at which the solve will end.
    """

    epoch: int
    radius: float
    mse: float
    seconds: float
    moved: float
    end_radius: float


OnEpoch = Callable[[EpochEvent], object]
"""Called after every epoch; returning True ends the solve."""
