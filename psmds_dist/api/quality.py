"""Stress and other measures of a map that any program has made."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from psmds_dist.api import embed
from psmds_dist.api.arguments import executor_for, seed_from
from psmds_dist.api.inputs import paired_rows
from psmds_dist.api.run import RunContext
from psmds_dist.core.arrays import is_frame, numbers_of
from psmds_dist.core.config import MIN_SAMPLE, check_int
from psmds_dist.core.quality import OF_ALL_PAIRS, Quality, estimate, rank_correlation
from psmds_dist.core.rng import measured_rows
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.sources import RowSource, require_square
from psmds_dist.core.stress import Stress, disparity
from psmds_dist.core.types import Executor, Floats, InputError, Ints
from psmds_dist.core.validation import require_size
from psmds_dist.data.cache import stored
from psmds_dist.data.coordinates import Coordinates, read_coordinates
from psmds_dist.data.ids import check_ids
from psmds_dist.data.labels import labels_for
from psmds_dist.kernels.jit import available_threads
from psmds_dist.kernels.warm import warm_up_rating
from psmds_dist.planning.memory import Plan, rated
from psmds_dist.solver.quality import AllRows, RateRows, Rating, SomeRows, agreement, nearest, rate


def measure(
    X: Any,
    embedding: Any,
    *,
    weights: Any = None,
    upper: Any = None,
    loss: str = "squared",
    weight_power: float = 0.0,
    transformation: str | None = None,
    ties: str = "primary",
    local: float = 0.0,
    local_neighbors: int = 10,
    dtype: str = "float32",
    cluster: Any = None,
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
) -> Stress:
    """Measure the stress of any map of a matrix.

    Parameters
    ----------
    X : ndarray, data frame, zarr.Array, dask.array.Array, RowSource, or path of a Zarr store or .npy file; (n, n)
        Dissimilarities, as `PatternSearchMDS.fit` takes them.
    embedding : (n, L) array_like, data frame, or path of a .csv, .tsv or .npy file
        Coordinates, in units of the dissimilarities. If they and the matrix have names, the names are matched;
        otherwise the points are in the order of the matrix. See `psmds_dist.data.coordinates.read_coordinates`.
    weights, upper : like X, optional
        Weights of the pairs, and upper bounds of the dissimilarities, as in `PatternSearchMDS.fit`.
    loss : str, default="squared"
        What a pair costs, as in `PatternSearchMDS`; tells ``error`` of the result.
    weight_power : float, default=0.0
        Weigh each pair by this power of its dissimilarity, as in `PatternSearchMDS`.
    transformation, ties : str, optional
        As in `PatternSearchMDS`: stress is told against the disparities that fit the map best.
    local, local_neighbors : float, int
        Share of the stress that near pairs have, and how many points are near to each, as in `PatternSearchMDS`.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows.
    cluster : str, distributed.Client or Dask cluster, default=None
        Who does the work, as in `PatternSearchMDS`. None works in this process.
    memory_limit : int or str, default=None
        Bytes a worker (or this process) may take, as in `PatternSearchMDS`.
    n_jobs : int, default=None
        Kernel threads in this process; None or -1 takes all.

    Returns
    -------
    Stress
        Stress under its several names, and that of each point in the order of the matrix.

    Raises
    ------
    InputError
        (a ValueError) When matrix or coordinates cannot be used, or their names differ.
    BudgetError
        (a MemoryError) When it cannot be done within ``memory_limit``.

    Examples
    --------
    >>> from psmds_dist import measure
    >>> measure([[0, 3, 5], [3, 0, 4], [5, 4, 0]], [[0, 0], [3, 0], [3, 4]]).normalized_stress
    0.0
    """
    near = {"local": local, "local_neighbors": local_neighbors}
    fitted = {"transformation": transformation, "ties": ties}
    rule = PairRule.of(loss, weight_power, weights=weights, upper=upper, **fitted, **near)
    with (
        executor_for(cluster, n_jobs) as executor,
        paired_rows(X, weights, upper, executor, dtype=dtype) as (source, names),
    ):
        coordinates = coordinates_for(embedding, source.n, names)
        return embed.measure(source, coordinates, executor, memory_limit, rule)


def coordinates_for(given: Any, n: int, ids: Sequence[str] | None, name: str = "embedding") -> Any:
    """Return coordinates in the order of the matrix, if they have names."""
    if isinstance(given, str | os.PathLike):
        return read_coordinates(given, n, ids).values
    if not is_frame(given):
        return given
    values, names = numbers_of(given, name), list(given.index)
    if len(values) != n or names == list(range(n)):
        return values
    return Coordinates(name, values, check_ids(names, n, f"the index of {name}")).ordered(ids).values


RANKED_POINTS = 2000
"""Most points between which all dissimilarities are ranked: two million pairs, a second and 200 MB."""


def quality(
    X: Any,
    embedding: Any,
    *,
    labels: Any = None,
    truth: Any = None,
    n_neighbors: int | None = None,
    sample: int | None = None,
    random_state: Any = 0,
    weights: Any = None,
    upper: Any = None,
    loss: str = "squared",
    weight_power: float = 0.0,
    transformation: str | None = None,
    ties: str = "primary",
    local: float = 0.0,
    local_neighbors: int = 10,
    dtype: str = "float32",
    cluster: Any = None,
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
) -> Quality:
    """Measure how well a map keeps distances, their order, neighborhoods, classes and known coordinates.

    One pass over the matrix gives all measures at any number of points; with ``sample``, a random sample of its rows
    gives them with 95 % confidence intervals. Where pairs are missing (NaN), or have weights, bounds or another loss,
    the stress is that of `measure`; measures of the map alone (`neighborhood_hit`, `knn_score`, `procrustes`) are given
    as well, and the others, which need all pairs alike, are NaN.

    Parameters
    ----------
    X, embedding
        Dissimilarities and coordinates, as in `measure`.
    labels : (n,) array_like or path, default=None
        Class of each point, for `neighborhood_hit` and `knn_score`; also the path of a file that
        `psmds_dist.data.labels.labels_for` reads.
    truth : (n, K) array_like, data frame or path, default=None
        Known coordinates, for `procrustes`; names are matched as those of ``embedding``.
    n_neighbors : int, default=None
        Nearest points to look at, fewer than half of the points; by default 10, or as many as there may be.
    sample : int, default=None
        Rows to read, at least 20; all by default.
    random_state : int, RandomState instance or None, default=0
        Seed of the sample, and of the points of `spearman` where there are more than 2,000. None draws one.
    weights, upper, loss, weight_power, transformation, ties, local, local_neighbors
        As in `measure`.
    dtype, cluster, memory_limit, n_jobs
        As in `measure`.

    Returns
    -------
    Quality
        The measures.

    Raises
    ------
    InputError
        (a ValueError) When the matrix, the coordinates or a parameter cannot be used.
    BudgetError
        (a MemoryError) When it cannot be done within ``memory_limit``.

    Examples
    --------
    >>> from psmds_dist import quality
    >>> found = quality([[0, 3, 5], [3, 0, 4], [5, 4, 0]], [[0, 0], [6, 0], [6, 8]])
    >>> found.normalized_stress, found.scaled_stress, found.trustworthiness
    (1.0, 0.0, 1.0)
    """
    seed = seed_from(random_state)
    near = {"local": local, "local_neighbors": local_neighbors}
    fitted = {"transformation": transformation, "ties": ties}
    rule = PairRule.of(loss, weight_power, weights=weights, upper=upper, **fitted, **near)
    with (
        executor_for(cluster, n_jobs) as executor,
        paired_rows(X, weights, upper, executor, dtype=dtype) as (source, names),
    ):
        wanted = Wanted.of(source.n, names, labels, truth, n_neighbors, sample, seed)
        return assess(source, coordinates_for(embedding, source.n, names), executor, wanted, memory_limit, rule)


@dataclass(frozen=True)
class Wanted:
    """What to measure, and on which rows."""

    n_neighbors: int
    rows: Ints
    """Points whose rows are read, ascending."""

    ranked: Ints
    """Those between which dissimilarities are ranked, ascending."""

    labels: Ints | None = None
    """Number of the class of each point."""

    truth: Floats | None = None
    """Known coordinates."""

    @classmethod
    def of(
        cls,
        n: int,
        ids: Sequence[str] | None,
        labels: Any,
        truth: Any,
        n_neighbors: int | None,
        sample: int | None,
        seed: int,
    ) -> Wanted:
        """Check what `quality` was asked for, and draw the sample."""
        require_size(n)
        m = n if sample is None else min(n, check_int("sample", sample, MIN_SAMPLE))
        order = measured_rows(n, m, seed)
        return cls(
            n_neighbors=_neighbors(n_neighbors, n),
            rows=np.sort(order),
            ranked=np.sort(order[:RANKED_POINTS]),
            labels=None if labels is None else _classes(labels, n, ids),
            truth=None if truth is None else embed.usable_map(coordinates_for(truth, n, ids, "truth"), n, "truth"),
        )


def _neighbors(n_neighbors: int | None, n: int) -> int:
    most = (n - 1) // 2
    if n_neighbors is None:
        return min(10, most)
    if check_int("n_neighbors", n_neighbors, 1) > most:
        raise InputError(
            f"n_neighbors (--neighbors) is {n_neighbors}, but trustworthiness of {n} points is defined for fewer than "
            f"half of them: give at most {most}."
        )
    return int(n_neighbors)


def _classes(labels: Any, n: int, ids: Sequence[str] | None) -> Ints:
    """Number of the class of each point."""
    kinds, codes = np.unique(labels_for(labels, n, ids), return_inverse=True)
    if kinds.size < 2:
        raise InputError(f"labels are all {kinds[0]!s}, which says nothing about neighborhoods: leave them out.")
    if kinds.size == n or (kinds.dtype.kind == "f" and kinds.size > n // 2):
        raise InputError(
            f"labels name {kinds.size} classes for {n} points, but neighborhoods are compared by classes that points "
            "share: give each point its class (of a table the last column is taken)."
        )
    return codes.astype(np.int64)


def assess(
    source: RowSource,
    embedding: Any,
    executor: Executor,
    wanted: Wanted,
    memory_limit: Any = None,
    rule: PairRule = PLAIN,
) -> Quality:
    """Measure a map, in one pass over all rows or some.

    Unless all pairs count alike, only stress and what the map alone tells are measured; the rest is NaN.

    Parameters
    ----------
    source : RowSource
        The dissimilarities.
    embedding : (n, L) array_like
        Coordinates in the order of the matrix.
    executor : Executor
        Who reads the rows.
    wanted : Wanted
        What to measure.
    memory_limit : int or str, optional
        Bytes that each worker may take.
    rule : PairRule
        What a pair costs.
    """
    x = embed.usable_map(embedding, source.n)
    measure_stress = partial(embed.measure, source, x, executor, memory_limit, rule)
    every = wanted.rows.size == source.n
    alike = rule.plain or (every and replace(rule, local=0.0).plain)  # weights of near pairs matter to stress alone
    rating = _rating(source, x, executor, wanted, memory_limit) if alike else None
    if rating is not None and np.isfinite(rating[1][:, :3]).all():
        found = _quality(source, x, wanted, rating)
        return found if rule.plain else replace(found, **_stress_of(measure_stress()))
    if not every:
        raise InputError(
            "a sample of rows (sample, --sample) measures maps of pairs that count alike, but here pairs are missing, "
            "or have weights, bounds or another loss: leave the sample out."
        )
    return _of_the_map(x, wanted, measure_stress())


def _rating(source: RowSource, x: Floats, executor: Executor, wanted: Wanted, memory_limit: Any) -> Rating:
    """Plan, and read the rows."""
    require_square(source)
    context = RunContext.of(executor, memory_limit)
    count, ranked, threads = wanted.rows.size, wanted.ranked.size, available_threads()
    executor.warm_up(partial(warm_up_rating, source.dtype.name))
    needs = rated(stored(source), count, x.shape[1], wanted.n_neighbors, ranked, threads)
    plan = Plan.of(context.limit, needs, executor.n_workers, source.read_profile.read_amplification, again=False)
    with context.running(plan, source):
        return _rate(source, x, executor, wanted, plan)


def _of_the_map(x: Floats, wanted: Wanted, stress: Stress) -> Quality:
    """Stress, and measures that need no dissimilarities."""
    hit = score = None
    if wanted.labels is not None:
        near = nearest(x, wanted.n_neighbors)
        hit, score = (float(value) for value in agreement(wanted.labels[near], wanted.labels).mean(axis=0))
    absent: dict[str, Any] = dict.fromkeys(OF_ALL_PAIRS, math.nan)
    return Quality(
        n=len(x),
        rows=wanted.rows,
        n_neighbors=wanted.n_neighbors,
        neighborhood_hit=hit,
        knn_score=score,
        procrustes=_procrustes(x, wanted),
        **_stress_of(stress),
        **absent,
    )


def _stress_of(stress: Stress) -> dict[str, Any]:
    """Figures of stress that `Quality` has as well."""
    return {name: value for name, value in vars(stress).items() if name not in ("error", "standard_error")}


def _procrustes(x: Floats, wanted: Wanted) -> float | None:
    return None if wanted.truth is None else disparity(x, wanted.truth)


def _rate(source: RowSource, x: Floats, executor: Executor, wanted: Wanted, plan: Plan) -> Rating:
    """Read the rows."""
    layout, every = source.layout, wanted.rows.size == source.n
    rows = AllRows(source, plan.budget) if every else SomeRows(source, wanted.rows, plan.needs.room(plan.limit))
    blocks = range(layout.count) if every else np.unique(wanted.rows // layout.rows).tolist()
    unit = _unit(x)
    work = RateRows(rows, np.ascontiguousarray(x.T) * unit, unit, wanted.n_neighbors, wanted.ranked, wanted.labels)
    return rate(work, executor, blocks)


def _unit(x: Floats) -> float:
    """Power of two that brings coordinates to about 1, so that no fourth power overflows and no digit is lost."""
    return float(2.0 ** -np.frexp(np.abs(x).max())[1])


def _quality(source: RowSource, x: Floats, wanted: Wanted, rating: Rating) -> Quality:
    """Measures from what the rows told."""
    _, table, _, given = rating
    sums = table[:, :3]
    values, intervals = estimate(table, source.n, wanted.n_neighbors, _unit(x))
    spearman, interval = rank_correlation(given, x[wanted.ranked], source.n)
    if interval is not None:
        intervals["spearman"] = interval
    return Quality(
        n=source.n,
        rows=wanted.rows,
        point_stress=Stress.from_row_sums(sums).point_stress,
        n_neighbors=wanted.n_neighbors,
        spearman=spearman,
        procrustes=_procrustes(x, wanted),
        intervals=intervals,
        **values,
    )
