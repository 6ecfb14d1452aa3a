"""Forecast of a run before it starts: the plan of its memory, and its time by the rates of this machine.

Runs over panels, which are not square, are forecast by the package that offers them under the entry point
``psmds.forecasts``; landmark mode does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol

from psmds_dist.api.init import auto_start, memory_of_solve, provider_of, solves_of
from psmds_dist.api.report import describe_seconds, table
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import Layout, format_bytes, round_up
from psmds_dist.core.types import InputError
from psmds_dist.planning.cost import (
    EPOCHS,
    LATER_EPOCHS,
    PLACED_EPOCHS,
    POLISH_PASSES,
    REFITS,
    RESOURCES,
    ROBUST_EPOCHS,
    SHORT_POLISH_PASSES,
    Estimate,
    Job,
    Rates,
    Stage,
    exact_stages,
)
from psmds_dist.planning.memory import (
    AFTERWARDS,
    MemoryRequirement,
    Plan,
    RowStorage,
    checking,
    require,
)
from psmds_dist.solver.optimal import FITTED_PAIRS
from psmds_dist.solver.polish import MANY_STEPS, short_steps

SLOW_DISK = 150_000_000
"""Bytes a second below which streaming a compressed array is faster than a plain one, whatever it holds: of distances
in 0.7 to 0.9 of the time at 100 MB/s, 1.5 at 300 MB/s; of whole numbers in 0.2 to 0.5, and 1.1
(``python -m tests.benchmarks --only compressed``)."""


class Forecast(Protocol):
    """Memory and time of a kind of run."""

    reads_again: bool
    """Whether rows are read more than once, so that it pays to cache them."""

    def memory(self, rows: RowStorage, dims: int, workers: int, *, here: bool) -> Sequence[MemoryRequirement]:
        """What a process needs: for the run first, then for what goes before it."""
        ...

    def stages(self, job: Job, rates: Rates) -> Sequence[Stage]:
        """Stages of the run."""
        ...

    def passes(self, job: Job) -> str:
        """Passes over the rows, in words."""
        ...


@dataclass(frozen=True)
class Work:
    """Passes of the solves of a run, by what they do."""

    epochs: int
    fits: int = 0
    polish: int = 0


@dataclass(frozen=True)
class ExactForecast:
    """Memory and time of a solve on a whole matrix.

    Attributes
    ----------
    config : SolverConfig
        What is asked for; the number of dimensions is told with each question.
    placed : bool
        Whether points have a region.
    """

    config: SolverConfig = field(default_factory=SolverConfig)
    placed: bool = False

    reads_again = True

    def memory(self, rows: RowStorage, dims: int, workers: int, *, here: bool) -> list[MemoryRequirement]:
        """What the solve needs with the start of ``init="auto"``, and the check before it."""
        config, start = replace(self.config, n_components=dims), auto_start(rows.layout.n)
        solve = memory_of_solve(start, rows, config, workers, here=here, placed=self.placed)
        return [solve, checking(rows, workers, here=here)]

    def work(self, n: int, start: str) -> Work:
        """Passes to expect of all solves, given the name of the start; empty for one at random."""
        config, rule = self.config, self.config.rule
        expected = provider_of(start).epochs if start else EPOCHS
        expected = max(expected, ROBUST_EPOCHS * (not rule.least_squares), PLACED_EPOCHS * self.placed)
        solves = solves_of(config, n, placed=self.placed)
        short = min(short_steps(expected, rule) + 1, SHORT_POLISH_PASSES)
        polish = solves * (POLISH_PASSES if config.polishes_fully(n) else short) * config.polishes(n)
        polish += MANY_STEPS * (config.eases(n) and bool(start))
        fits = (solves * REFITS + polish) * min(1.0, FITTED_PAIRS / n**2) * (rule.transformation is not None)
        passes = expected + (solves - 1) * LATER_EPOCHS + (rule.local > 0)  # one finds near pairs
        return Work(passes, math.ceil(fits), polish)

    def stages(self, job: Job, rates: Rates) -> list[Stage]:
        """Stages of the solve, with those of its start."""
        if not job.start:
            return exact_stages(job, rates)
        start = provider_of(job.start)
        return exact_stages(job, rates, start.stages(job, rates), cached=start.passes(job.n) > 0)

    def passes(self, job: Job) -> str:
        """Passes over the matrix, in words."""
        start = provider_of(job.start).passes(job.n) if job.start else 0
        return f"{start + job.epochs + job.fits + job.polish + 2 - job.checked} over the matrix (a guess)"


@cache
def forecast_of(panel: bool) -> Forecast:
    """How runs over a matrix, or over a panel, are forecast.

    Raises
    ------
    InputError
        When no installed package forecasts runs over panels.
    """
    if not panel:
        return ExactForecast()
    for point in entry_points(group="psmds.forecasts"):
        found: Forecast = point.load()
        return found
    raise InputError("no installed package plans runs over panels: install psmds-dist again, with its entry points.")


def plan_of(
    rows: RowStorage,
    dims: int,
    workers: int,
    limit: int,
    *,
    read_cost: float = 1.0,
    forecast: Forecast | None = None,
) -> Plan:
    """Plan the memory of a run over a matrix, or over a panel, or refuse; a forecast by default of the usual run.

    Raises
    ------
    BudgetError
        When the limit is too small.
    """
    forecast = forecast or forecast_of(rows.layout.width is not None)
    needs = forecast.memory(rows, dims, workers, here=workers == 1)
    require(limit, *needs)
    return Plan.of(limit, needs[0], workers, read_cost, again=forecast.reads_again)


def job_of(
    plan: Plan,
    dims: int,
    threads: int,
    *,
    epochs: int | None = None,
    started: bool = True,
    forecast: Forecast | None = None,
    **more: bool,
) -> Job:
    """The job that a plan is for; ``started`` tells whether many points begin where ``init="auto"`` does."""
    layout = plan.layout
    forecast = forecast or forecast_of(layout.width is not None)
    exact = isinstance(forecast, ExactForecast)
    start = auto_start(layout.n) if started and exact else ""
    work = forecast.work(layout.n, start) if isinstance(forecast, ExactForecast) and started else Work(EPOCHS)
    return Job(
        n=layout.n,
        dims=dims,
        workers=plan.workers,
        threads=threads,
        width=0 if exact else layout.width or 0,
        parts=layout.columns // layout.n if exact else 1,
        itemsize=plan.needs.rows.itemsize,
        stored_share=plan.needs.rows.stored_share,
        kept=plan.cached_share,
        read_cost=plan.read_cost,
        epochs=work.epochs if epochs is None else epochs,
        fits=work.fits,
        polish=work.polish,
        start=start,
        local=plan.workers == 1,
        **more,
    )


def estimate(job: Job, rates: Rates, forecast: Forecast | None = None) -> Estimate:
    """Estimate the time of a run."""
    return Estimate(tuple((forecast or forecast_of(bool(job.width))).stages(job, rates)))


def rows_of(n: int, n_landmarks: int | None, dims: int, itemsize: int = 4, parts: int = 1) -> RowStorage:
    """Rows of a matrix, or of so many matrices side by side, or of a panel, in chunks of their blocks.

    Raises
    ------
    InputError
        When no map can be made of so many.
    """
    SolverConfig(n_components=dims)
    if n < 3 or n <= dims:
        raise InputError(f"--points must be at least 3 and more than the {dims} dimensions of the map, not {n}.")
    if n_landmarks is not None and not dims < n_landmarks <= n:
        raise InputError(f"--landmarks must be more than the {dims} dimensions and at most {n}, not {n_landmarks}.")
    return RowStorage(Layout(n, parts * n if parts > 1 else n_landmarks), itemsize)


def report(plan: Plan, job: Job, rates: Rates, forecast: Forecast | None = None) -> str:
    """Describe in a few lines what a run takes and what limits it."""
    forecast = forecast or forecast_of(bool(job.width))
    found = estimate(job, rates, forecast)
    return "\n".join(
        [
            *_memory(plan, job, forecast),
            "",
            *_time(found, job, forecast),
            *_advice(found, job, rates),
            "",
            _stages(found),
        ]
    )


def _memory(plan: Plan, job: Job, forecast: Forecast) -> Sequence[str]:
    kind = "computed, never stored" if job.computed else format_bytes(job.nbytes)
    shares = {**plan.needs.parts, "rows kept and read ahead": 0 if plan.needs.rows.resident else plan.memory.nbytes}
    shares[AFTERWARDS] = max(0, plan.needs.apart - sum(shares.values()))
    spent = ", ".join(f"{format_bytes(count)} {name}" for name, count in shares.items() if count)
    lines = [
        f"rows               {kind}, {plan.keeping}",
        f"memory per worker  {format_bytes(sum(shares.values()))} of {format_bytes(plan.limit)}: {spent}",
        f"least that works   {round_up(plan.needs.min_limit)} per worker",
    ]
    if not job.local:
        needs = forecast.memory(plan.needs.rows, job.dims, 1, here=True)[0]
        gathered = replace(needs, rows=replace(plan.needs.rows, resident=True)).min_limit
        lines.append(f"memory here        {format_bytes(gathered)} in the process that starts the run")
    return lines


def _time(found: Estimate, job: Job, forecast: Forecast) -> Sequence[str]:
    parts = found.parts
    shares = ", ".join(f"{name} {describe_seconds(seconds)}" for name, seconds in parts.items() if seconds)
    network = format_bytes(found.network_bytes)
    return (
        f"passes             {forecast.passes(job)}",
        f"time               about {describe_seconds(found.seconds)} ({shares})",
        f"bytes moved        {format_bytes(found.disk_bytes)} read, {network} through the scheduler's link",
        f"saturates first    {found.bottleneck}",
    )


def _advice(found: Estimate, job: Job, rates: Rates) -> Sequence[str]:
    """Say how less is read, where a run waits for a disk."""
    if found.bottleneck != RESOURCES["disk"] or job.computed or job.width or job.stored_share < 1:
        return ()
    smaller = "a store of two bytes a number halves it (psmds ingest --dtype uint16)"
    if rates.disk > SLOW_DISK:
        return (f"to read less       {smaller}",)
    return (
        f"to read less       {smaller}; a Zarr array compressed by Blosc is worth it at this speed, most of all",
        "                   for whole numbers",
    )


def _stages(found: Estimate) -> str:
    rows = [[stage.name, describe_seconds(stage.seconds), format_bytes(stage.disk_bytes)] for stage in found.stages]
    return table(["stage", "time", "read"], rows)
