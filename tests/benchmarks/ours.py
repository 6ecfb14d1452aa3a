"""Methods of this package, from file to map."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.core.events import EpochEvent
from psmds_dist.data.store import open_rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.check import check_source
from tests.benchmarks.methods import Map


def exact(store: str, seed: int, **options: Any) -> Map:
    """Embed a store in exact mode with the defaults."""
    began, trace = time.perf_counter(), []

    def note(event: EpochEvent) -> None:
        trace.append((time.perf_counter() - began, event.mse))

    mds = PatternSearchMDS(random_state=seed, on_epoch=note, **options).fit(store)
    n = len(mds.embedding_)
    passes = passes_of(mds.history_)
    return Map(mds.embedding_, passes, mds.normalized_stress_, lambda: [(when, mse * n**2) for when, mse in trace])


def passes_of(history: np.ndarray) -> float:
    """Passes over the matrix in the epochs of an exact run; the final measurement is one more."""
    return len(history) + 1


def random(store: str, seed: int) -> Map:
    """Embed a store in exact mode from a random start."""
    return exact(store, seed, init="random")


def wide(store: str, seed: int) -> Map:
    """Embed a store in exact mode from landmarks, with a starting radius that lets points change places."""
    scale = check_source(open_rows(store), InProcessExecutor(), memory_limit=2**30).rms
    return exact(store, seed, init="landmarks", radius=0.2 * scale, eps=1e-4)


def landmarks(store: str, seed: int) -> Map:
    """Embed a store in landmark mode, without a pass over the matrix."""
    return Map(LandmarkMDS(random_state=seed, evaluate=False).fit(store).embedding_, 0)


def landmarks_of_points(points: np.ndarray, seed: int) -> Map:
    """Embed points in landmark mode; no matrix is computed."""
    return Map(LandmarkMDS(metric="euclidean", random_state=seed, evaluate=False).fit(points).embedding_, 0)


def warm(store: str, seed: int) -> None:
    """Load the kernels of the functions above."""
    PatternSearchMDS(init="landmarks", random_state=seed).fit(store)


def million(points: str, seed: int) -> Map:
    """Embed very many points with a thousand landmarks within 2 GiB."""
    return _estimated(LandmarkMDS(metric="euclidean", random_state=seed, memory_limit="2 GiB").fit(points))


def million_panel(panel: str, seed: int) -> Map:
    """Embed a stored panel within 2 GiB."""
    return _estimated(LandmarkMDS(random_state=seed, memory_limit="2 GiB").fit(panel))


def ten_million(points: str, seed: int) -> Map:
    """Embed even more points with 500 landmarks within 4 GiB."""
    mds = LandmarkMDS(n_landmarks=500, metric="euclidean", random_state=seed, memory_limit="4 GiB")
    return _estimated(mds.fit(points))


def _estimated(mds: LandmarkMDS) -> Map:
    return Map(mds.embedding_, 0, mds.normalized_stress_)


def warm_landmarks(source: str, seed: int) -> None:
    """Load the kernels of landmark mode for any source."""
    points = np.random.default_rng(0).random((50, 3))
    LandmarkMDS(n_landmarks=10, metric="euclidean", random_state=seed).fit(points)
