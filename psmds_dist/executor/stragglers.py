"""Pure: how long a worker may take before it counts as late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

FACTOR = 4.0
"""How many times longer than the same work took elsewhere is late."""

UNKNOWN = 20
"""Deadlines that work may take of which nothing is known yet: a first read can be long."""


@dataclass
class StragglerDetector:
    """Judges the time that work takes by what the same kind of work took so far.

    Parameters
    ----------
    deadline : float
        Seconds below which nothing is late.
    """

    deadline: float
    _slowest: dict[str, float] = field(default_factory=dict)

    def limit(self, kind: str, rates: Sequence[float], blocks: int, threads: int) -> float:
        """Seconds that a worker may take for some blocks.

        Parameters
        ----------
        kind : str
            What is done.
        rates : sequence of float
            Seconds a block and thread of what this call has finished so far.
        blocks, threads : int
            What one worker was given, and what it has.
        """
        known = [self._slowest[kind]] if kind in self._slowest else []
        known += [median(rates)] if rates else []
        return max(self.deadline, FACTOR * max(known) * blocks / threads) if known else UNKNOWN * self.deadline

    def note(self, kind: str, rates: Sequence[float]) -> None:
        """Remember a finished call; the slowest one counts, which is the one that had to read."""
        if rates:
            self._slowest[kind] = max(median(rates), self._slowest.get(kind, 0.0))
