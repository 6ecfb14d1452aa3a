"""Classical scaling in passes over rows: the map of SciPy's dense eigensolver, and the same bits however it is run."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_iris, load_wine

from psmds_dist import PatternSearchMDS
from psmds_dist.data.cache import stored
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.planning.memory import RowBuffers
from psmds_dist.solver import classical
from psmds_dist.solver.classical import MISSING_AXIS, block_vectors, classical_scaling, most_passes
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.tasks import CachedRows
from tests.digits import digit_distances


def scaled(t, dims, *, seed=0, executor=None, source=None, budget=10**9):
    rows = CachedRows(source or ArrayRows(t, str(t.dtype)), budget)
    return classical_scaling(Objective(rows, executor or InProcessExecutor()), dims, seed)


def dense(t, dims):
    """The same by an eigensolver for dense matrices, with all eigenvalues."""
    squares = t.astype(float) ** 2
    centring = np.eye(len(t)) - 1 / len(t)
    values, vectors = eigh(-0.5 * centring @ squares @ centring)
    order = np.argsort(-values)[:dims]
    return vectors[:, order] * np.sqrt(np.maximum(values[order], 0)), values


def stress(t, x):
    return np.sqrt(((t - squareform(pdist(x))) ** 2).sum() / (t**2).sum())


def random_matrix(n, seed=0):
    return squareform(np.random.default_rng(seed).uniform(0.5, 1, n * (n - 1) // 2))


def euclidean(n, dims, seed=0):
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, dims))))


def wine():
    data = load_wine().data
    return squareform(pdist((data - data.mean(axis=0)) / data.std(axis=0)))


MATRICES = {
    "iris": lambda: squareform(pdist(load_iris().data)),
    "wine": wine,
    "city block, not Euclidean": lambda: squareform(pdist(np.random.default_rng(1).normal(size=(200, 7)), "cityblock")),
    "cosine, not Euclidean": lambda: squareform(pdist(np.random.default_rng(2).normal(size=(130, 9)) + 1, "cosine")),
    "noise, far from Euclidean": lambda: random_matrix(90),
    "digits": lambda: digit_distances("shuffled")[:400, :400].astype(float),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_small_matrices_are_mapped_as_by_a_dense_eigensolver(name, dims):
    t = MATRICES[name]()
    x, scale = scaled(t, dims)
    expected, _ = dense(t, dims)
    signs = np.sign((x * expected).sum(axis=0))
    assert_allclose(x * signs, expected, atol=1e-6 * np.abs(expected).max())
    assert scale == pytest.approx(np.sqrt((t**2).sum() / (len(t) * (len(t) - 1))), rel=1e-12)


def test_axes_fall_and_have_fixed_signs():
    x, _ = scaled(wine(), 4)
    assert np.all(np.diff(np.square(x).sum(axis=0)) < 0)
    assert_array_equal(x[np.abs(x).argmax(axis=0), range(4)] > 0, True)
    assert_allclose(x.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_points_are_mapped_exactly(n):
    t = euclidean(n, n - 1)
    for seed in range(5):
        x, _ = scaled(t, n - 1, seed=seed)
        assert_allclose(squareform(pdist(x)), t, atol=1e-9 * t.max())


def test_the_diagonal_plays_no_part():
    t = euclidean(40, 4)
    changed = t + np.diag(np.full(40, 7.0))
    assert_array_equal(scaled(t, 2).x, scaled(changed, 2).x)


@pytest.mark.parametrize("factor", [1e-100, 1e-3, 1e100])
def test_a_map_grows_with_its_dissimilarities(factor):
    t = euclidean(50, 5)
    assert_allclose(scaled(factor * t, 2).x / factor, scaled(t, 2).x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("t", "positive"),
    [(euclidean(60, 2), 2), (squareform(pdist(np.arange(30.0)[:, None])), 1), (np.zeros((8, 8)), 0)],
    ids=["plane", "line", "all at one place"],
)
def test_axes_that_the_data_do_not_have_hold_a_little_noise(t, positive):
    found = scaled(t, 4)
    assert_allclose(squareform(pdist(found.x[:, :positive])) if positive else 0, t, atol=1e-8)
    missing = found.x[:, positive:] / (found.scale or 1)
    if found.scale:
        assert_allclose(missing.std(axis=0), MISSING_AXIS, rtol=0.6)
        assert not np.array_equal(found.x[:, -1], scaled(t, 4, seed=1).x[:, -1])
    else:
        assert_array_equal(missing, 0)


def test_large_negative_eigenvalues_are_no_axes():
    """Two groups, far apart within and near between: the largest eigenvalue in magnitude is negative."""
    group = np.arange(80) % 2
    t = np.where(group[:, None] == group, 3.0, 0.2) * (1 - np.eye(80)) + 0.1 * random_matrix(80)
    np.fill_diagonal(t, 0)
    expected, values = dense(t, 2)
    assert -values.min() > 2 * values.max()
    assert_allclose(pdist(scaled(t, 2).x), pdist(expected), atol=1e-6 * expected.max())


@pytest.fixture
def large(monkeypatch):
    """Three passes for any matrix."""
    monkeypatch.setattr(classical, "SMALL_BYTES", 0)


@pytest.mark.usefixtures("large")
def test_three_passes_come_near_the_stress_of_the_exact_map():
    assert most_passes(500) == 3
    t = digit_distances("shuffled")[:500, :500].astype(float)
    expected = stress(t, dense(t, 2)[0])
    for seed in range(3):
        assert stress(t, scaled(t, 2, seed=seed).x) < 1.003 * expected


@pytest.mark.usefixtures("large")
def test_a_large_matrix_takes_so_many_passes_and_so_many_vectors(monkeypatch):
    shapes = []
    multiply = Objective.multiply_squares
    monkeypatch.setattr(
        Objective, "multiply_squares", lambda self, block: (shapes.append(block.shape), multiply(self, block))[1]
    )
    scaled(random_matrix(100), 2)
    assert shapes == [(1 + block_vectors(100, 2), 100), *[(block_vectors(100, 2), 100)] * 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_on_one_thread_and_two_and_streamed(tmp_path, dtype):
    t = digit_distances("sorted").astype(dtype)
    np.save(tmp_path / "t.npy", t)
    source = open_matrix(tmp_path / "t.npy", str(t.dtype))
    least = stored(source).min_limit
    assert RowBuffers.plan(stored(source), least).cached_blocks == 0
    expected = scaled(t, 3)
    for threads, budget in [(1, 10**9), (2, 10**9), (2, least), (1, 3 * least)]:
        found = scaled(t, 3, executor=InProcessExecutor(threads), source=source, budget=budget)
        assert_array_equal(found.x, expected.x)
        assert found.scale == expected.scale


@pytest.mark.slow
def test_same_bits_on_two_workers(client, tmp_path):
    t = digit_distances("shuffled")
    np.save(tmp_path / "t.npy", t)
    ways = {"init": "classical", "random_state": 1, "max_epochs": 6}
    here = PatternSearchMDS(**ways).fit(t)
    there = PatternSearchMDS(cluster=client, **ways).fit(tmp_path / "t.npy")
    assert_array_equal(there.embedding_, here.embedding_)
    executor = DaskExecutor(client)
    found = scaled(t, 2, executor=executor, source=open_matrix(tmp_path / "t.npy", "float32"), budget=10**6)
    executor.close()
    assert_array_equal(found.x, scaled(t, 2).x)
