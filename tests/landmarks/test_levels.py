"""Maps of the landmarks from coarse to fine."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.datasets import load_digits, make_blobs

from landmarks import kernels
from landmarks.panel.build import check_panel
from landmarks.panel.check import PanelEntries
from landmarks.panel.tables import array_panel
from landmarks.solver import multilevel
from landmarks.solver.memory import PAIR_BYTES, PAIR_COPIES
from landmarks.solver.multilevel import LandmarkDissimilarities, among_landmarks, map_landmarks
from landmarks.solver.placement import PlacementModel
from psmds_dist import PatternSearchMDS
from psmds_dist.core.types import InputError
from psmds_dist.executor import InProcessExecutor


def digits(n):
    points = load_digits().data[:n]
    return cdist(points, points).astype(np.float32)


def mapped(t, n_init=2, seed=0):
    return map_landmarks(LandmarkDissimilarities(t), 2, seed, n_init, InProcessExecutor())


def test_seeds_agree_on_the_map_of_landmarks_in_clusters():
    """Clusters in three dimensions, of which random starts often find a poor arrangement only."""
    points = make_blobs(400, 16, centers=30, cluster_std=3.0, random_state=0)[0]
    t = cdist(points, points).astype(np.float32)

    def stresses(n_init):
        found = [
            map_landmarks(LandmarkDissimilarities(t), 3, seed, n_init, InProcessExecutor()).solution
            for seed in range(5)
        ]
        return np.array([one.stress.normalized_stress for one in found])

    alone = stresses(1)
    random = [PatternSearchMDS(3, init="random", random_state=seed).fit(t).normalized_stress_ for seed in range(5)]
    assert alone.max() <= 1.002 * min(alone.min(), *random)
    assert max(random) > 1.005 * alone.max()
    assert (stresses(3) <= alone).all()


@pytest.mark.parametrize("better", ["_squeezed", "_searched"])
def test_the_better_of_a_squeezed_and_a_searched_map_is_taken(better, monkeypatch):
    t = digits(200)
    other = {"_squeezed": "_searched", "_searched": "_squeezed"}[better]
    best = mapped(t, n_init=1).solution.stress.normalized_stress
    folded = np.random.default_rng(0).random((200, 2)) * [1e-3, 40.0]  # all in a row, which small moves do not leave
    monkeypatch.setattr(multilevel, other, lambda part, config, executor: folded)
    assert mapped(t, n_init=1).solution.stress.normalized_stress <= 1.01 * best
    monkeypatch.setattr(multilevel, better, lambda part, config, executor: folded)
    assert mapped(t, n_init=1).solution.stress.normalized_stress > 1.01 * best


@pytest.mark.parametrize(("n", "squeezed"), [(300, 300), (640, 640), (640, 300)])
def test_the_map_fits_about_as_well_as_the_best_of_five_random_starts(n, squeezed, monkeypatch):
    monkeypatch.setattr(multilevel, "MOST_SQUEEZED", squeezed)
    t = digits(n)
    ours = [mapped(t, seed=seed).solution.stress.normalized_stress for seed in range(3)]
    random = PatternSearchMDS(init="random", n_init=5, random_state=0).fit(t).normalized_stress_
    print(ours, random)
    assert max(ours) <= 1.02 * random


@pytest.mark.parametrize("squeezed", [300, 700])
def test_starts_that_agree_say_so(squeezed, monkeypatch):
    monkeypatch.setattr(multilevel, "MOST_SQUEEZED", squeezed)
    x = np.random.default_rng(0).random((700, 2))
    found = mapped(squareform(pdist(x)).astype(np.float32), n_init=3)
    assert found.agreement.shape == (2,)
    assert found.agreement.min() < 1e-6
    assert_allclose(pdist(found.solution.embedding), pdist(x), atol=2e-5)
    assert mapped(digits(50), n_init=1).agreement.shape == (0,)


@pytest.mark.wide
def test_a_part_whose_landmarks_coincide_gives_way_to_all():
    x = np.zeros((601, 2))
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_landmarks_are_checked_and_mapped_in_the_memory_that_is_planned_for_them(dtype):
    """Counted by Python: what the C library and compiled code keep is no part of it."""
    size = 1500
    x = np.random.default_rng(0).random((size, 5))
    panel = array_panel(cdist(x, x), dtype, np.arange(size))
    executor, names = InProcessExecutor(1), PanelEntries(np.arange(size))
    check_panel(array_panel(cdist(x[:50], x[:50]), dtype, np.arange(50)), executor)
    mapped(cdist(x[:50], x[:50]).astype(dtype), n_init=1)  # compiles
    tracemalloc.start()
    try:
        check_panel(panel, executor, names=names)
        checked = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        map_landmarks(among_landmarks(panel, np.arange(size), names), 2, 0, 1, executor)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    itemsize = np.dtype(dtype).itemsize
    planned = (PAIR_COPIES * itemsize + PAIR_BYTES) * size**2
    assert checked < planned + 2 * itemsize * size**2  # and rows that the pass reads
    assert 0.5 * planned < taken < planned
