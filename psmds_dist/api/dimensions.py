"""How many dimensions dissimilarities support: stress of maps against their dimensions, beside that of noise."""

from __future__ import annotations

import csv
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from psmds_dist.api.arguments import seed_from, threads_of
from psmds_dist.api.embed import Embedding, embed
from psmds_dist.api.inputs import ids_of, labels_of, row_source
from psmds_dist.api.run import RunContext
from psmds_dist.core.config import SolverConfig, check_int
from psmds_dist.core.errors import DissimilarityWarning
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows, StopReason
from psmds_dist.core.validation import require_size
from psmds_dist.data.cache import stored
from psmds_dist.data.ids import DELIMITERS
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.check import checked, require_complete
from psmds_dist.ingest.scan import Progress
from psmds_dist.planning.memory import require, sample_bytes, sampled

FIRST_DIMS = 6
"""Dimensions that a curve begins in, at least: a random start in many dimensions seldom ends in a poor map, and maps in
fewer dimensions begin at its principal axes."""

EXCELLENT = 0.025
"""Stress below which there is nothing left to explain: the grade "excellent" of Kruskal (1964)."""

CONFIDENCE = 0.995
"""Probability that one more shuffled matrix gains no more than the bound."""

MAX_EPOCHS = 100
"""Epochs of a map. Data that fit exactly would take hundreds, for digits of the stress that no curve shows."""


@dataclass(frozen=True)
class Dimensions:
    """Normalized stress of maps against their dimensions; column ``L - 1`` of an array is for ``L`` dimensions.

    Attributes
    ----------
    stress : (n_init, max_components) ndarray
        Normalized stress of the points, a row for each independent start.
    shuffled : (n_init, max_components) ndarray
        The same of random dissimilarities: the entries shuffled over the pairs, anew for each row.
    points : (n_points,) int64 ndarray
        Rows of the points that were embedded, ascending.
    n : int
        Number of points of the matrix.
    seed : int
        Seed of all random numbers.
    """

    stress: Floats
    shuffled: Floats
    points: Ints
    n: int
    seed: int

    @cached_property
    def gains(self) -> Floats:
        """Share of the stress of one dimension less that each dimension removes, the median of the starts."""
        return np.asarray(np.median(_gains(self.stress), axis=0))

    @cached_property
    def noise_gains(self) -> Floats:
        """The most that it would remove of noise: the upper bound of a 99 % prediction interval of the shuffles."""
        from scipy.special import stdtrit

        gains = _gains(self.shuffled)
        count = len(gains)
        width = stdtrit(count - 1, CONFIDENCE) * np.sqrt(1 + 1 / count)
        return np.asarray(gains.mean(axis=0) + width * gains.std(axis=0, ddof=1))

    @property
    def n_components(self) -> int:
        """Dimensions up to which each gains more than it would of noise; 0 if the first does not."""
        more = self.gains > self.noise_gains
        return int(np.append(more, False).argmin())

    @property
    def coverage(self) -> str:
        """Which points were embedded, and how often."""
        m, starts = len(self.points), len(self.stress)
        drawn = f"{m:,} of {self.n:,} points, drawn at random (seed {self.seed})"
        which = f"all {m:,} points" if m == self.n else drawn
        return f"{which}; {starts} starts and {starts} shuffles"

    @property
    def description(self) -> str:
        """How many dimensions the dissimilarities support, in one sentence."""
        supported, top = self.n_components, self.stress.shape[1]
        if not supported:
            return (
                "stress falls no faster than that of shuffled dissimilarities, even in 1 dimension: a map would show "
                "little but noise"
            )
        falls = f"stress falls faster than that of shuffled dissimilarities up to L = {supported}"
        last = float(np.median(self.stress[:, supported - 1]))
        if last <= EXCELLENT:
            return f"{falls}, where it is {last:.4f}: hardly anything is left for further dimensions"
        if supported == top:
            return f"{falls}, the most that were tried: more may gain as well (max_components, --max)"
        return f"{falls}; further dimensions gain no more than noise would"

    def table(self) -> dict[str, list[float]]:
        """Curves by name, an entry for each number of dimensions; ``low`` and ``high`` are the extremes."""
        columns: dict[str, list[float]] = {"n_components": list(range(1, self.stress.shape[1] + 1))}
        for name, values in (("stress", self.stress), ("shuffled", self.shuffled)):
            columns[name] = np.median(values, axis=0).tolist()
            columns[f"{name}_low"] = values.min(axis=0).tolist()
            columns[f"{name}_high"] = values.max(axis=0).tolist()
        return columns | {"gain": self.gains.tolist(), "noise_gain": self.noise_gains.tolist()}


def _gains(stress: Floats) -> Floats:
    """Share of the stress of one dimension less that each dimension removes; without any dimension stress is 1."""
    visible = np.maximum(stress, EXCELLENT)
    before = np.column_stack((np.ones(len(visible)), visible[:, :-1]))
    return np.asarray(1 - visible / before)


def dimensions(
    X: Any,
    max_components: int = 6,
    *,
    n_init: int = 5,
    sample: int = 1000,
    random_state: int | np.random.RandomState | None = None,
    dtype: str = "float32",
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
    on_map: Progress | None = None,
) -> Dimensions:
    """Measure the stress of maps in 1 to ``max_components`` dimensions, and of maps of noise.

    A curve begins with a map in many dimensions from a random start; each map in one dimension less begins at it
    without its least principal axis. So the maps are near the best ones, and curves from several starts differ little.
    The noise is the same dissimilarities, shuffled over the pairs of points: what a dimension gains there, it gains
    without any structure. A dimension is supported if it removes a larger share of the stress than of that of noise;
    stress below 0.025 counts as none.

    Errors of single dissimilarities are no structure, and no dimension is found for them. Errors of the features of
    points are: they lie in dimensions of their own, and only those that are small count as none.

    Maps are computed in this process, so that the result depends on no worker. Only the rows of the sample are read,
    and only entries between its points are checked.

    Parameters
    ----------
    X : ndarray, data frame, zarr.Array, dask.array.Array, RowSource, or path of a Zarr store or .npy file; (n, n)
        Dissimilarities, as `PatternSearchMDS.fit` takes them.
    max_components : int, default=6
        Most dimensions; at most one less than there are points in the sample.
    n_init : int, default=5
        Independent starts, and shuffles of the dissimilarities; at least 3, for an interval.
    sample : int, default=1000
        Points to embed: all points, or so many random ones where there are more.
    random_state : int, RandomState instance or None, default=None
        Seed of starts, shuffles and sample. None draws one.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows.
    memory_limit : int or str, default=None
        Bytes that this process may take, such as ``"4 GiB"``; by default 80 % of the free memory.
    n_jobs : int, default=None
        Kernel threads; None or -1 takes all.
    on_map : callable, default=None
        Called with the number of maps done and the number of all.

    Returns
    -------
    Dimensions
        Curves of stress, the number of dimensions that they support, and a sentence.

    Raises
    ------
    InputError
        (a ValueError) When the matrix or a parameter cannot be used.
    BudgetError
        (a MemoryError) When the sample does not fit into ``memory_limit``.

    Warns
    -----
    DissimilarityWarning
        When the sample is suspicious.

    Examples
    --------
    >>> import numpy as np
    >>> from psmds_dist import dimensions
    >>> points = np.random.default_rng(0).normal(size=(40, 2))
    >>> distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    >>> dimensions(distances, 3, n_init=3, random_state=0).n_components
    2
    """
    most, n_init = check_int("max_components", max_components, 1), check_int("n_init", n_init, 3)
    size, seed = check_int("sample", sample, 3), seed_from(random_state)
    names, executor = labels_of(X), InProcessExecutor(threads_of(n_jobs))
    with row_source(X, executor, dtype=dtype) as source:
        require_size(source.n)
        points = _choose(source.n, size, seed)
        top = min(max(most, FIRST_DIMS), points.size - 1)
        config = SolverConfig(n_components=top, max_epochs=MAX_EPOCHS, effort="quick", seed=seed)
        context = RunContext.of(executor, memory_limit)
        stages = sampled(stored(source), points.size, top, guided=config.guided)
        require(context.limit, *stages)
        with context.running(None, source):
            rows = _read(source, points, stages[0].room(context.limit))
        ids = _names(names or ids_of(source), points, source.n)
    limit = context.limit - sample_bytes(points.size, rows.itemsize)
    require_complete(checked(_source(rows), executor, ids=ids, memory_limit=limit), "the number of dimensions")
    run = partial(embed, executor=executor, memory_limit=limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)  # the check has warned already
        stress, shuffled = _stress(rows, config, n_init, run, on_map)[:, :, :most]
    return Dimensions(stress, shuffled, points, source.n, seed)


def _choose(n: int, size: int, seed: int) -> Ints:
    """All points, or a random sample in ascending order."""
    if n <= size:
        return np.arange(n)
    return np.sort(generator(seed, RandomStream.SUBSET).choice(n, size, replace=False))


def _read(source: RowSource, points: Ints, room: int) -> Rows:
    """Dissimilarities between some points, read a few rows at a time."""
    verified = source.verified()
    step = max(1, room // (source.n * source.dtype.itemsize))
    found: Rows = np.empty((points.size, points.size), source.dtype)
    for k in range(0, points.size, step):
        rows = verified.take(points[k : k + step])
        np.take(rows, points, axis=1, out=found[k : k + step], mode="clip")  # any other mode makes a copy
    return found


def _names(ids: list[str] | None, points: Ints, n: int) -> list[str] | None:
    """Names of a sample for messages, which number its points from 0."""
    if ids is not None:
        return [ids[point] for point in points]
    return None if points.size == n else [f"row {point} of the matrix" for point in points]


def _source(rows: Rows) -> RowSource:
    return ArrayRows(rows, rows.dtype.name)


def _stress(
    rows: Rows, config: SolverConfig, n_init: int, run: Callable[..., Embedding], on_map: Progress | None
) -> Floats:
    """Stress ``(2, n_init, n_components)``, of the dissimilarities and of shuffles of them."""
    shape = (2, n_init, config.n_components)
    found: list[float] = []
    for k, source in enumerate(_sources(rows, config.seed, n_init)):
        for stress in _curve(source, replace(config, seed=config.seed + k % n_init), run):
            found.append(stress)
            if on_map is not None:
                on_map(len(found), math.prod(shape))
    # no dimension raises the stress: a map is one in more dimensions as well
    return np.asarray(np.minimum.accumulate(np.reshape(found, shape)[:, :, ::-1], axis=2))


def _sources(rows: Rows, seed: int, n_init: int) -> Iterator[RowSource]:
    """What to embed: the dissimilarities as often as there are starts, then as many shuffles of them."""
    for _ in range(n_init):
        yield _source(rows)
    for k in range(n_init):
        yield _source(_shuffle(rows, generator(seed, RandomStream.SHUFFLE, k)))


def _shuffle(rows: Rows, random: np.random.Generator) -> Rows:
    """Distribute the dissimilarities over the pairs of points at random."""
    from scipy.spatial.distance import squareform

    entries = squareform(rows, checks=False)
    random.shuffle(entries)
    shuffled: Rows = squareform(entries, checks=False)
    return shuffled


def _curve(source: RowSource, config: SolverConfig, run: Callable[..., Embedding]) -> Iterator[float]:
    """Stress of maps in ever fewer dimensions; each begins at the one before, without its least principal axis."""
    start: str | Floats = "random"
    for dims in range(config.n_components, 0, -1):
        solution = run(source, replace(config, n_components=dims), init=start).solution
        if solution.stop_reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        yield solution.stress.normalized_stress
        start = solution.embedding[:, : dims - 1]


def require_curve_place(path: str | os.PathLike[str]) -> None:
    """Refuse a file of another kind than `write_curve` writes, before any work."""
    if Path(path).suffix.lower() not in DELIMITERS:
        raise InputError(f"the curve cannot be written to {str(path)!r}: the name must end in .csv or .tsv.")


def write_curve(path: str | os.PathLike[str], found: Dimensions) -> None:
    """Write the curves to a ``.csv`` or ``.tsv`` file, one line for each number of dimensions.

    Raises
    ------
    InputError
        For any other suffix.
    """
    from psmds_dist.data.store import atomic_file

    require_curve_place(path)
    columns = found.table()
    with atomic_file(path) as fresh, fresh.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, delimiter=DELIMITERS[Path(path).suffix.lower()])
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
