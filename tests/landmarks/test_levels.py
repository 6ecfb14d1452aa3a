"""Maps of the landmarks from coarse to fine."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.datasets import load_digits, make_blobs
from sklearn.manifold import ClassicalMDS
from threadpoolctl import threadpool_info, threadpool_limits

from landmarks import kernels
from landmarks.solver.multilevel import (
    MIN_COARSE,
    SEARCHED,
    SQUEEZED,
    LandmarkDissimilarities,
    classical,
    map_landmarks,
)
from landmarks.solver.placement import PlacementModel
from psmds_dist import PatternSearchMDS
from psmds_dist.core.types import InputError
from psmds_dist.executor import InProcessExecutor


def digits(n):
    points = load_digits().data[:n]
    return cdist(points, points).astype(np.float32)


def mapped(t, n_init=2, seed=0):
    return map_landmarks(LandmarkDissimilarities(t), 2, seed, n_init, InProcessExecutor(), SQUEEZED)


def test_a_start_for_all_points_searches_for_the_map_of_its_landmarks():
    """Clusters in three dimensions, of which a few starts often find a poor arrangement only."""
    points = make_blobs(400, 16, centers=30, cluster_std=3.0, random_state=0)[0]
    among = LandmarkDissimilarities(cdist(points, points).astype(np.float32))

    def stresses(n_init, first):
        found = [map_landmarks(among, 3, seed, n_init, InProcessExecutor(), first) for seed in range(5)]
        return [one.solution.stress.normalized_stress for one in found]

    searched, started = stresses(1, SEARCHED), stresses(3, SQUEEZED)
    assert np.median(searched) <= 1.0005 * min(searched)
    assert np.median(started) > 1.002 * np.median(searched)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_classical_scaling_is_that_of_scikit_learn(dims):
    t = digits(80)
    other = ClassicalMDS(n_components=dims, metric="precomputed").fit_transform(t.astype(float))
    ours = classical(t, dims)
    assert_allclose(np.abs(ours), np.abs(other), atol=1e-6 * t.max())
    assert_allclose(pdist(ours), pdist(other), rtol=1e-6)


def test_classical_scaling_leaves_an_axis_that_is_not_there_at_zero():
    x = np.arange(6.0)[:, None]
    found = classical(cdist(x, x), 2)
    assert_allclose(pdist(found), pdist(x), atol=1e-6)
    assert_allclose(found[:, 1], 0, atol=1e-6)


@pytest.mark.parametrize("values", [1, 2, 3])
def test_classical_scaling_of_equal_dissimilarities(values):
    """Equal eigenvalues, of which LAPACK may find fewer than it is asked for."""
    for n in range(4, 40):
        x = np.random.default_rng(n).integers(0, values, (n, 3))
        t = cdist(x, x, "hamming")
        assert classical(t, 2).shape == (n, 2)
        assert classical(1.0 - np.eye(n), 2).shape == (n, 2)


def test_classical_scaling_does_not_depend_on_threads():
    t = digits(500)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(classical(t, 2))
    assert_array_equal(*found)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_has_one_thread_in_a_classical_scaling_while_another_thread_ends_one(monkeypatch):
    """The first to begin is the first to end, and restores the number of threads of the whole process."""
    import scipy.linalg

    eigh, entered, seen = scipy.linalg.eigh, threading.Semaphore(0), []

    def overlapping(*args, **options):
        if threading.current_thread() is first:
            entered.release()
            first_may_end.wait(0.5)  # in vain where the second waits for its turn
        else:
            first_may_end.set()
            first.join()
        seen.append(blas_threads())
        return eigh(*args, **options)

    monkeypatch.setattr(scipy.linalg, "eigh", overlapping)
    first_may_end, before = threading.Event(), blas_threads()
    first, second = (threading.Thread(target=classical, args=(digits(60), 2)) for _ in range(2))
    first.start()
    assert entered.acquire(timeout=30)
    second.start()
    second.join(30)
    assert seen == [{1}, {1}]
    assert blas_threads() == before


@pytest.mark.parametrize("n", [MIN_COARSE, 2 * MIN_COARSE + 40])
def test_the_map_fits_about_as_well_as_the_best_of_five_random_starts(n):

    t = digits(n)
    ours = [mapped(t, seed=seed).solution.stress.normalized_stress for seed in range(3)]
    random = PatternSearchMDS(init="random", n_init=5, random_state=0).fit(t).normalized_stress_
    print(ours, random)
    assert max(ours) <= 1.02 * random


def test_starts_that_agree_say_so():
    x = np.random.default_rng(0).random((2 * MIN_COARSE + 100, 2))
    found = mapped(squareform(pdist(x)).astype(np.float32), n_init=3)
    assert found.agreement.shape == (2,)
    assert found.agreement.min() < 1e-6
    assert_allclose(pdist(found.solution.embedding), pdist(x), atol=2e-5)
    assert mapped(digits(50), n_init=1).agreement.shape == (0,)


@pytest.mark.wide
def test_a_part_whose_landmarks_coincide_gives_way_to_all():
    x = np.zeros((2 * MIN_COARSE + 1, 2))
    x[7] = 3, 4
    t = cdist(x, x)
    found = [mapped(t, seed=seed).solution.stress.normalized_stress for seed in range(4)]
    assert max(found) < 1e-6


def test_too_few_landmarks():
    with pytest.raises(InputError, match="2 landmarks are too few for 2 dimensions"):
        mapped(digits(2))


def test_a_search_does_not_go_to_and_fro_on_rounding():
    random = np.random.default_rng(0)
    y, x = 40 * random.random((300, 2)), 40 * random.random((500, 2))
    t = (cdist(x, y) * (1 + 0.003 * random.normal(size=(500, 300)))).astype(np.float32)
    frame = PlacementModel.of(y, 20.0)
    start = kernels.locate(t, np.arange(500), frame.y, frame.pull, frame.offset)[0]
    radii = np.full(500, 0.02)
    found = [
        kernels.search(t, np.arange(500), frame.y.astype(np.float32), start, radii, 2e-3, 5e-3, most)
        for most in (40, 300)
    ]
    for few, many in zip(*found, strict=True):
        assert_array_equal(few, many)
