"""Other inputs of the same matrix, and concurrent fits: neither should cost time."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.array
import numpy as np

from psmds_dist import PatternSearchMDS
from psmds_dist.deploy.local import local_client
from tests.benchmarks import data
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held

REPEAT = 5
SEEDS = range(4)


def entries(settings: Settings) -> list[Record]:
    """A .npy file and a store compared with an array, a Dask array with an array on two workers, and four fits in two
    threads with four in sequence, alternating: seconds, and the median of the ratios.
    """
    large = data.euclidean(settings, "clusters", data.clusters(settings.pick(1000, 10_000, 10_000)))
    small = np.load(data.geodesic_roll(settings, settings.pick(500, 2000, 2000)).matrix).astype(np.float64)
    array = np.load(large.matrix)
    lines = [
        _compared(".npy file", lambda: _fit(large.matrix), lambda: _fit(array)),
        _compared("store", lambda: _fit(large.store), lambda: _fit(array)),
    ]
    for jobs in (None, 1):
        what = "side by side" if jobs is None else "side by side, n_jobs=1"
        lines.append(_compared(what, lambda jobs=jobs: _together(small, jobs), lambda jobs=jobs: _in_turn(small, jobs)))
    with local_client(2, 1) as client:
        lazy = dask.array.from_array(small, chunks=500)
        lines.append(_compared("Dask array", lambda: _fit(lazy, cluster=client), lambda: _fit(small, cluster=client)))
    show(lines, what="", seconds=".2f", seconds_of_the_other=".2f", ratio=".2f")
    bounds = [held(line["what"], line["ratio"], most=1.2) for line in lines if line["what"] != "Dask array"]
    show_held(bounds)
    return [*lines, *bounds]


def _compared(what: str, one: Callable[[], Any], other: Callable[[], Any]) -> Record:
    """Seconds of two calls that must return the same maps."""
    record: Record = {"what": what}
    if not np.array_equal(one(), other()):
        record["wrong"] = f"{what}: another map than from the array in memory, in turn."
    pairs = [(once(one), once(other)) for _ in range(REPEAT)]
    ratio = statistics.median(mine / its for mine, its in pairs)
    seconds, seconds_of_the_other = map(statistics.median, zip(*pairs, strict=True))
    return record | {"seconds": seconds, "seconds_of_the_other": seconds_of_the_other, "ratio": ratio}


def _fit(matrix: Any, seed: int = 0, **how: Any) -> np.ndarray:
    return PatternSearchMDS(random_state=seed, init="random", max_epochs=40, **how).fit(matrix).embedding_


def _in_turn(matrix: np.ndarray, jobs: int | None) -> list[np.ndarray]:
    return [_fit(matrix, seed, n_jobs=jobs) for seed in SEEDS]


def _together(matrix: np.ndarray, jobs: int | None) -> list[np.ndarray]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda seed: _fit(matrix, seed, n_jobs=jobs), SEEDS))
