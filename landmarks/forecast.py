"""Forecast of landmark fits, offered under the entry point ``psmds.forecasts``."""

from __future__ import annotations

from landmarks.solver.cost import fit_stages
from landmarks.solver.memory import fit_memory
from psmds_dist.planning.cost import Job, Rates, Stage
from psmds_dist.planning.memory import MemoryRequirement, RowStorage


class LandmarkForecast:
    """Memory and time of a landmark fit without refinement; see `psmds_dist.api.forecast.Forecast`."""

    reads_again = False

    def memory(self, rows: RowStorage, dims: int, workers: int, *, here: bool) -> list[MemoryRequirement]:
        """What a process needs."""
        return [fit_memory(rows, dims, workers=workers, here=here)]

    def stages(self, job: Job, rates: Rates) -> list[Stage]:
        """Stages of a run."""
        return fit_stages(job, rates)

    def passes(self, job: Job) -> str:
        """Passes over the rows, in words."""
        return "1 over the panel"


forecast = LandmarkForecast()
"""The object that the entry point names."""
