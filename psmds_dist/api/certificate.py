"""Certificates of maps: every single move of one length along the axes is tried, by the kernels of a solve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from psmds_dist.api.arguments import executor_for
from psmds_dist.api.embed import plan_run, usable_map, warm_up
from psmds_dist.api.inputs import paired_rows
from psmds_dist.api.quality import coordinates_for
from psmds_dist.api.run import RunContext
from psmds_dist.core.certificate import Certificate
from psmds_dist.core.config import RADIUS_TOL, SolverConfig
from psmds_dist.core.region import Region
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, Floats, InputError
from psmds_dist.ingest.paired import check_rows
from psmds_dist.kernels.pairs import kernels_of
from psmds_dist.planning.memory import Plan
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.nearness import find_nearness
from psmds_dist.solver.schedule import EpochPlan
from psmds_dist.solver.tasks import CachedRows


def certify(
    X: Any,
    embedding: Any,
    radius: float | None = None,
    *,
    weights: Any = None,
    upper: Any = None,
    pinned: Any = None,
    bounds: Any = None,
    loss: str = "squared",
    weight_power: float = 0.0,
    local: float = 0.0,
    local_neighbors: int = 10,
    dtype: str = "float32",
    cluster: Any = None,
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
) -> Certificate:
    """Try every single move of a length along the axes, and tell what the best one gains.

    A monotone solve ends where none gains anything; any map of any program can be judged by this. Axes are those of the
    coordinates, so pass `PatternSearchMDS.raw_embedding_`, which is not turned, to judge where a solve ended.

    Parameters
    ----------
    X, embedding
        Dissimilarities and coordinates, as in `psmds_dist.measure`.
    radius : float, default=None
        Length of the moves, in units of the dissimilarities; 2e-4 of their root mean square by default.
    weights, upper, loss, weight_power, local, local_neighbors
        What a pair costs, as in `psmds_dist.measure`.
    pinned, bounds
        Where points have to stay, as in `PatternSearchMDS`: only moves that these allow are tried.
    dtype, cluster, memory_limit, n_jobs
        As in `psmds_dist.measure`; moves are evaluated in float64.

    Returns
    -------
    Certificate
        Radius, best gain, and number of points.

    Raises
    ------
    InputError
        (a ValueError) When an argument cannot be used.
    BudgetError
        (a MemoryError) When it cannot be done within ``memory_limit``.

    Examples
    --------
    >>> from psmds_dist import certify
    >>> triangle = [[0, 3, 5], [3, 0, 4], [5, 4, 0]]
    >>> certify(triangle, [[0, 0], [3, 0], [3, 4]], 0.1).holds
    True
    >>> certify(triangle, [[0, 0], [3, 0], [3, 4.1]], 0.1).improvable
    1
    """
    near = {"local": local, "local_neighbors": local_neighbors}
    rule = PairRule.of(loss, weight_power, weights=weights, upper=upper, **near)
    with (
        executor_for(cluster, n_jobs) as executor,
        paired_rows(X, weights, upper, executor, dtype=dtype) as (source, names),
    ):
        x = usable_map(coordinates_for(embedding, source.n, names), source.n)
        region = Region.of(source.n, x.shape[1], pinned, bounds)
        return certificate_of(source, x, executor, radius, memory_limit, rule, region)


def certificate_of(
    source: RowSource,
    embedding: Floats,
    executor: Executor,
    radius: float | None = None,
    memory_limit: Any = None,
    rule: PairRule = PLAIN,
    region: Region | None = None,
) -> Certificate:
    """Certificate of a map of a source; arguments as in `certify`."""
    x = np.ascontiguousarray(embedding.T)
    if rule.transformation is not None:
        raise InputError(
            "a certificate is for dissimilarities as they are, but this map was made with a transformation of them: "
            "leave certify (--certify) out."
        )
    if region is not None and not np.array_equal(region.clipped(x), x):
        raise InputError("the map is not where pinned and bounds say: give those that it was made with, or none.")
    config = SolverConfig(n_components=len(x), radius=radius, moves="axes", rule=rule)
    context = RunContext.of(executor, memory_limit)
    plan = plan_run(source, config, context, region=region)
    with context.running(plan, source):
        return _tried(source, x, context, config, plan, region)


def _tried(
    source: RowSource, x: Floats, context: RunContext, config: SolverConfig, plan: Plan, region: Region | None
) -> Certificate:
    """Check the matrix, and try all moves in one pass."""
    check = check_rows(source, config.rule, context.executor, memory_limit=context.limit)
    rule = replace(config.rule, gaps=check.missing > 0)
    warm_up(source, replace(config, rule=rule, polish=False), context.executor)
    rows, executor = CachedRows(source, plan.budget), context.executor
    kernels = kernels_of(rule, check.rms, find_nearness(rows, rule, executor, check.rms))
    objective = Objective(rows, executor, kernels, region)
    radius = config.radius or RADIUS_TOL * check.rms
    blocks = tuple(range(source.layout.count))
    moves = EpochPlan(radius, (blocks,), tuple(range(len(x))), "float64")
    _, gains, errors = objective.propose(x, moves, blocks)
    return Certificate.of(radius, gains, errors)
