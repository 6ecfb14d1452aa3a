"""What a run will take, said before it starts: the plan of its memory, the probe's rates and the model of its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psmds_dist.api.init import AUTO_POINTS
from psmds_dist.api.report import describe_seconds, table
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import Layout, format_bytes, round_up
from psmds_dist.core.types import InputError
from psmds_dist.planning.cost import EPOCHS, Estimate, Job, Rates, estimate
from psmds_dist.planning.memory import Plan, RowStorage, checking, exact, landmarks, require

LEAST, MOST, SHARE = 300, 1000, 8
"""Landmarks that a solve of many points begins with: a share of the points, within bounds."""


def plan_of(
    rows: RowStorage, dims: int, workers: int, limit: int, *, through_landmarks: bool, read_cost: float = 1.0
) -> Plan:
    """Plan the memory of a run that nobody has started, or refuse.

    Raises
    ------
    BudgetError
        When the limit is too small.
    """
    local = workers == 1
    if through_landmarks:
        needs = landmarks(rows, dims, workers=workers, here=local)
        return Plan.of(limit, needs, workers, read_cost, again=False)
    needs = exact(rows, dims, None, workers, here=local)
    require(limit, needs, checking(rows, workers, here=local))
    return Plan.of(limit, needs, workers, read_cost)


def job_of(
    plan: Plan, dims: int, threads: int, *, epochs: int | None = None, started: bool = True, **more: bool
) -> Job:
    """The job that a plan is for; by landmarks where its rows are those of a panel.

    ``started`` tells whether many points begin at landmarks.
    """
    layout = plan.layout
    begins = started and layout.width is None and layout.n >= AUTO_POINTS
    usual = EPOCHS["landmarks" if begins else "random"]
    return Job(
        n=layout.n,
        dims=dims,
        workers=plan.workers,
        threads=threads,
        landmarks=layout.width or 0,
        itemsize=plan.needs.rows.itemsize,
        kept=plan.cached_share,
        read_cost=plan.read_cost,
        epochs=usual if epochs is None else epochs,
        start=max(min(LEAST, layout.n), min(MOST, layout.n // SHARE)) if begins else 0,
        local=plan.workers == 1,
        **more,
    )


def rows_of(n: int, n_landmarks: int | None, dims: int, itemsize: int = 4) -> RowStorage:
    """Rows of a matrix, or of a panel, in chunks of their blocks.

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
    return RowStorage(Layout(n, n_landmarks), itemsize)


def report(plan: Plan, job: Job, rates: Rates) -> str:
    """Say in a few lines what a run takes and what holds it up."""
    found = estimate(job, rates)
    return "\n".join([*_memory(plan, job), "", *_time(found, job), "", _stages(found)])


def _memory(plan: Plan, job: Job) -> Sequence[str]:
    kind = "computed, never stored" if job.computed else format_bytes(job.nbytes)
    shares = {**plan.needs.parts, "rows kept and read ahead": 0 if plan.needs.rows.resident else plan.memory.nbytes}
    shares["evidence, once rows are let go"] = max(0, plan.needs.apart - sum(shares.values()))
    spent = ", ".join(f"{format_bytes(count)} {name}" for name, count in shares.items() if count)
    lines = [
        f"rows               {kind}, {plan.keeping}",
        f"memory a process   {format_bytes(sum(shares.values()))} of {format_bytes(plan.limit)}: {spent}",
        f"least that works   {round_up(plan.needs.min_limit)} a process",
    ]
    if not job.local:
        kind_of = landmarks if job.landmarks else exact
        gathered = replace(kind_of(plan.needs.rows, job.dims), rows=replace(plan.needs.rows, resident=True)).min_limit
        lines.append(f"memory here        {format_bytes(gathered)} in the process that starts the run")
    return lines


def _time(found: Estimate, job: Job) -> Sequence[str]:
    passes = "1 over the panel" if job.landmarks else f"{job.epochs + 2 - job.checked} over the matrix (a guess)"
    parts = found.parts
    shares = ", ".join(f"{name} {describe_seconds(seconds)}" for name, seconds in parts.items() if seconds)
    network = format_bytes(found.network_bytes)
    return (
        f"passes             {passes}",
        f"time               about {describe_seconds(found.seconds)} ({shares})",
        f"bytes moved        {format_bytes(found.disk_bytes)} read, {network} through the scheduler's link",
        f"saturates first    {found.bottleneck}",
    )


def _stages(found: Estimate) -> str:
    rows = [[stage.name, describe_seconds(stage.seconds), format_bytes(stage.disk_bytes)] for stage in found.stages]
    return table(["stage", "time", "read"], rows)
