"""What is planned is compared with what NumPy and the operating system count."""

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from landmarks.panel.data import open_data
from landmarks.solver.fit import fit
from landmarks.solver.memory import fit_memory
from landmarks.solver.types import LandmarkConfig
from psmds_dist.api.search import SearchStart
from psmds_dist.core.config import SMALL_POINTS, SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.data.cache import stored
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.sources import ArrayRows
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.ingest.check import check_source
from psmds_dist.planning.memory import (
    SLACK_BYTES,
    RowStorage,
    checking,
    exact,
    with_multiplication,
    with_polish,
    with_search,
)
from psmds_dist.solver import classical, polish
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.solve import solve
from psmds_dist.solver.tasks import CachedRows

N = 3000
SCALE = 8.0


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(N, 60))


@pytest.fixture(scope="module")
def rows(points):
    return ArrayRows(squareform(pdist(points)).astype("float32"))


def traced_peak(work):
    """Most bytes of arrays that a second call holds at once, beside those before it."""
    work()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("moves", ["axes", "guided"])
@pytest.mark.wide
def test_a_solve_holds_what_is_planned(rows, points, moves):
    config = SolverConfig(n_components=50, max_epochs=3, radius=1.0, moves=moves)
    executor = InProcessExecutor(1)
    peak = traced_peak(lambda: solve(rows, config, executor, scale=SCALE, budget=2**30, start=points[:, :50].copy()))
    planned = exact(stored(rows), 50, guided=config.guided).total
    assert 0.6 * planned < peak < planned


def test_classical_scaling_holds_what_is_planned(rows):
    objective = Objective(CachedRows(rows, 2**30), InProcessExecutor(1))
    peak = traced_peak(lambda: classical.classical_scaling(objective, 10, 0))
    vectors, passes = classical.block_vectors(N, 10), classical.most_passes(N)
    planned = with_multiplication(exact(stored(rows), 10), vectors, passes, 1, here=True)
    assert planned.total > exact(stored(rows), 10).total
    assert 0.6 * planned.total < peak < planned.total


def test_a_polish_holds_what_is_planned(points):
    rows = ArrayRows(squareform(pdist(points[:1000])).astype("float32"))
    objective = Objective(CachedRows(rows, 2**30), InProcessExecutor(1))
    x = np.ascontiguousarray(points[:1000, :50].T)
    steps = polish.MEMORY + 5
    peak = traced_peak(lambda: polish.polished(objective, x, scale=SCALE, max_steps=steps))
    planned = with_polish(exact(stored(rows), 50), 50, 1, here=True)
    assert 0.6 * planned.parts["the polish"] < peak < planned.total


@pytest.mark.slow
@pytest.mark.parametrize("dims", [2, 10])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_search_holds_what_is_planned(points, tmp_path, dtype, dims):
    np.save(tmp_path / "t.npy", squareform(pdist(points[:SMALL_POINTS])).astype(dtype))
    source, executor = open_matrix(tmp_path / "t.npy", dtype), InProcessExecutor(1)
    config = SolverConfig(n_components=dims)
    peak = traced_peak(lambda: SearchStart()(source, config, executor, 2**30))
    planned = with_search(exact(stored(source), dims), dims).apart
    assert 0.4 * planned < peak < planned


def test_a_check_holds_what_is_planned(rows):
    peak = traced_peak(lambda: check_source(rows, InProcessExecutor(1)))
    needs = checking(stored(rows))
    assert needs.total / 2 < peak < needs.total + needs.rows.min_limit


@pytest.mark.slow
@pytest.mark.parametrize("refine", ["none", "panel"])
@pytest.mark.wide
def test_a_landmark_fit_holds_what_is_planned(points, refine):
    """Beside the panel, which is converted to a copy in memory, and the small map of the landmarks."""
    panel = np.linalg.norm(points[:, None, :5] - points[None, :40, :5], axis=2)
    config = LandmarkConfig(n_components=10, n_landmarks=30, refine=refine)
    executor = InProcessExecutor(1)

    def work():
        with open_data(panel, executor, landmarks=list(range(40))) as data:
            fit(data, config, executor)

    needs = fit_memory(RowStorage(Layout(N, 40), 4, resident=True), 10, refine)
    peak = traced_peak(work) - panel.size * 4
    assert needs.min_limit / 3 < peak < 1.1 * needs.min_limit


@dataclass(frozen=True)
class Snapshot:
    """Work that only takes coordinates."""

    x: NDArray[np.float64]

    def __call__(self, blocks):
        return float(self.x.sum())


@pytest.mark.wide
@pytest.mark.slow
def test_a_worker_holds_as_many_copies_of_the_coordinates_as_are_planned():
    """A snapshot arrives while the one before is in use: one copy planned, or two plain arrays, would be too little."""
    n, dims = 300_000, 40
    with local_client(1, 1) as client:
        executor = DaskExecutor(client)
        [before] = executor.memory_usage().values()
        for turn in range(4):
            list(executor.map(Snapshot(np.full((dims, n), float(turn))), range(2)))
        [peak] = executor.peak_memory().values()
    growth = peak - before.resident
    planned = exact(RowStorage(Layout(n), 4), dims, here=False).parts["coordinates"]
    assert 8 * n * dims < growth < planned + SLACK_BYTES
