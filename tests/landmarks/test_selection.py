"""Which points serve as landmarks."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.spatial.distance import cdist

from landmarks import choose
from landmarks.selection import CANDIDATES, FEWEST_CANDIDATES
from psmds_dist.core.types import InputError

METHODS = ["random", "maxmin", "kmeans++"]
N = 400


def points(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3))


def distances_of(x):
    return lambda i, others: cdist(x[i : i + 1], x[others])[0]


def unused(i, others):
    raise AssertionError("a random choice looks at no distances")


@pytest.mark.parametrize("method", METHODS)
def test_a_choice_is_of_different_points_and_follows_the_seed(method):
    x = points()
    one, same, other = (choose(N, 30, method, seed, distances_of(x)) for seed in (5, 5, 6))
    assert one.dtype == np.int64
    assert len(set(one.tolist())) == 30
    assert one.min() >= 0
    assert one.max() < N
    assert_array_equal(one, same)
    assert set(one.tolist()) != set(other.tolist())


@pytest.mark.parametrize("method", METHODS)
def test_the_first_of_a_choice_are_a_smaller_choice(method):
    x = points()
    assert_array_equal(choose(N, 40, method, 3, distances_of(x))[:15], choose(N, 15, method, 3, distances_of(x)))


def test_random_takes_every_point_as_often_and_looks_at_no_distance():
    chosen = np.concatenate([choose(20, 5, "random", seed, unused) for seed in range(800)])
    counts = np.bincount(chosen, minlength=20)
    assert counts.sum() == 4000
    assert abs(counts - 200).max() < 5 * np.sqrt(200 * 0.75)
    assert sorted(choose(20, 20, "random", 0, unused)) == list(range(20))


def test_maxmin_takes_the_farthest_of_all_each_time():
    x = points()
    chosen = choose(N, 25, "maxmin", 1, distances_of(x))
    between = cdist(x, x)
    for k in range(1, 25):
        nearest = between[:, chosen[:k]].min(axis=1)
        assert chosen[k] == nearest.argmax()


def test_kmeans_takes_points_in_proportion_to_the_squared_distance():
    x = np.array([[0.0], [1.0], [3.0]])
    second = {first: np.zeros(3, int) for first in range(3)}
    for seed in range(3000):
        a, b = choose(3, 2, "kmeans++", seed, distances_of(x))
        second[int(a)][b] += 1
    for first, expected in ((0, [0, 0.1, 0.9]), (1, [0.2, 0, 0.8]), (2, [9 / 13, 4 / 13, 0])):
        share = second[first] / second[first].sum()
        assert second[first].sum() > 800
        assert share == pytest.approx(expected, abs=0.06)
        assert share[first] == 0


@pytest.mark.parametrize("method", METHODS)
def test_only_points_of_the_pool_are_chosen(method):
    candidates = np.array([7, 3, 90, 41, 12, 200, 399])
    x = points()
    assert set(choose(N, 5, method, 0, distances_of(x), candidates).tolist()) <= set(candidates.tolist())
    assert set(choose(N, 7, method, 0, distances_of(x), candidates).tolist()) == set(candidates.tolist())
    with pytest.raises(InputError, match="at most .* 7, not 8"):
        choose(N, 8, method, 0, distances_of(x), candidates)


@pytest.mark.parametrize("method", ["maxmin", "kmeans++"])
def test_duplicates_are_not_chosen_twice_and_too_few_distinct_points_are_told(method):
    x = np.repeat(points(6), 50, axis=0)
    chosen = choose(300, 6, method, 2, distances_of(x))
    assert len({k // 50 for k in chosen.tolist()}) == 6
    with pytest.raises(
        InputError, match="n_landmarks is 7, but there are only 6 distinct points among the 300 candidates"
    ):
        choose(300, 7, method, 2, distances_of(x))


@pytest.mark.parametrize("method", ["random", "maxmin", "kmeans++"])
def test_landmarks_know_each_other(method):
    x = points(60)
    between = cdist(x, x)
    hidden = np.random.default_rng(1).random(between.shape) < 0.05
    between[hidden | hidden.T] = np.nan
    candidates = np.arange(60) if method == "random" else None
    chosen = choose(60, 12, method, 0, lambda i, others: between[i, others], candidates)
    assert len(set(chosen.tolist())) == 12
    among = between[np.ix_(chosen, chosen)]
    assert not np.isnan(among[~np.eye(12, dtype=bool)]).any()
    if method == "maxmin":
        nearest = between[:, chosen[:11]].min(axis=1)  # NaN where one of them is not known
        assert between[chosen[11], chosen[:11]].min() == np.nanmax(nearest)
    with pytest.raises(InputError, match=r"n_landmarks is 55, but .* know each other"):
        choose(60, 55, method, 0, lambda i, others: between[i, others], candidates)


def test_the_work_does_not_grow_with_the_points():
    seen = []

    def distances(i, others):
        seen.append(others.size)
        return np.abs(others - i).astype(float)

    choose(100_000, 20, "maxmin", 0, distances)
    assert seen == [FEWEST_CANDIDATES] * 19
    seen.clear()
    choose(100_000, 600, "maxmin", 0, distances)
    assert set(seen) == {600 * CANDIDATES}


def test_faults_are_sentences():
    with pytest.raises(InputError, match=r"selection must be one of 'random', 'maxmin', 'kmeans\+\+', not 'best'\."):
        choose(10, 3, "best", 0, unused)
    with pytest.raises(InputError, match="n_landmarks must be at most the number of points, 10, not 11"):
        choose(10, 11, "random", 0, unused)


@pytest.mark.parametrize("method", ["maxmin", "kmeans++"])
def test_too_few_landmarks_that_know_each_other_are_told_as_such(method):
    """Also where the missing dissimilarities are not those of the last landmark: all points are distinct."""
    between = cdist(points(60), points(60))
    for i, j in ((3, 4), (5, 6), (7, 8)):
        between[i, j] = between[j, i] = np.nan
    told = r"n_landmarks is 60, but there are only 57 distinct points that know each other .*; ask for at most 57\.$"
    for seed in range(10):
        with pytest.raises(InputError, match=told):
            choose(60, 60, method, seed, lambda i, others: between[i, others])
        assert len(choose(60, 57, method, seed, lambda i, others: between[i, others])) == 57


@pytest.mark.parametrize("method", ["maxmin", "kmeans++"])
@pytest.mark.parametrize("factor", [1e-200, 1e-300, 1.0, 1e200, 1e300, np.inf])
def test_all_points_are_chosen_where_they_are_distinct(method, factor):
    """However small or large their dissimilarities are, also where those between two groups are infinite."""
    between = cdist(points(60), points(60))
    if np.isinf(factor):
        between[:30, 30:] = between[30:, :30] = np.inf
    else:
        between *= factor
    for seed in range(10):
        chosen = choose(60, 60, method, seed, lambda i, others: between[i, others])
        assert sorted(chosen.tolist()) == list(range(60))
        if np.isfinite(factor) and method == "maxmin":
            assert_array_equal(chosen, choose(60, 60, method, seed, distances_of(points(60))))
