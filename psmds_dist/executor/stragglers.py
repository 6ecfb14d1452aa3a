"""Pure decisions: which workers are silent, and how long one may take before it counts as late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

FACTOR = 4.0
"""Times as long as the same work took elsewhere that counts as late."""

UNKNOWN = 20
"""Deadlines allowed for work that has not been timed yet: a first read can be long."""

HEARTBEATS = 3
"""Heartbeats that a worker may miss, however short the deadline."""


def silent_workers(last_seen: Mapping[str, float], longest: float) -> set[str]:
    """Workers without a heartbeat for longer than ``longest`` seconds before the latest one of any worker."""
    latest = max(last_seen.values(), default=0.0)
    return {address for address, seen in last_seen.items() if latest - seen > longest}


@dataclass
class StragglerDetector:
    """Time limits of work, from the time that the same kind of work took so far.

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
            Kind of work.
        rates : sequence of float
            Seconds times threads per block of the tasks that this call has finished.
        blocks, threads : int
            Blocks that one worker was given, and its threads.
        """
        known = [self._slowest[kind]] if kind in self._slowest else []
        known += [median(rates)] if rates else []
        return max(self.deadline, FACTOR * max(known) * blocks / threads) if known else UNKNOWN * self.deadline

    def record(self, kind: str, rates: Sequence[float]) -> None:
        """Record a finished call; the slowest one counts, since it had to read."""
        if rates:
            self._slowest[kind] = max(median(rates), self._slowest.get(kind, 0.0))
