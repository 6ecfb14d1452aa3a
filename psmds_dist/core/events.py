"""Events of a run: stages and epochs."""

from __future__ import annotations

import math
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
    stress : float
        Normalized stress as collected during the epoch.
    """

    epoch: int
    radius: float
    mse: float
    seconds: float
    moved: float
    end_radius: float
    stress: float = math.nan


@dataclass(frozen=True)
class StageEvent:
    """A stage of a run has begun, or a part of it is done.

    Attributes
    ----------
    stage : str
        ``"check"``, ``"compilation"`` (short once kernels are cached), ``"start"``, ``"epochs"``, ``"polish"`` or
        ``"stress"``; of landmark fits also ``"panel"``, ``"landmarks"``, ``"placement"``, ``"refinement"`` and
        ``"evaluation"``; of stores ``"writing"``.
    done : int
        Parts that are done.
    total : int or None
        All parts; None where a stage has no parts.
    last : bool
        Whether nothing that takes long follows.
    """

    stage: str
    done: int = 0
    total: int | None = None
    last: bool = False


Event = EpochEvent | StageEvent

OnEpoch = Callable[[EpochEvent], object]
"""Called after every epoch; returning True ends the solve."""

OnEvent = Callable[[Event], object]
"""Called with every event; what it returns does not matter."""


def ignore(event: Event) -> None:
    """Do nothing with an event."""
