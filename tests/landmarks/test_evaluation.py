"""Stress on held-out pairs with its interval, and agreement of starts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist, squareform

from landmarks.evaluation import HeldOut, agreement, estimate


def scene(seed, m=40, c=120, n=400):
    """A noisy map of n points, and the exact stress over all of its pairs."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 2))
    weight = random.uniform(0.5, 1.5, n)  # some points fit worse than others
    noise = random.normal(scale=0.3, size=(n, n)) * np.sqrt(np.outer(weight, weight))
    t = np.abs(squareform(pdist(x)) + (noise + noise.T) / 2)
    np.fill_diagonal(t, 0)
    exact = np.sqrt(((t - squareform(pdist(x))) ** 2).sum() / (t**2).sum())
    chosen = random.permutation(n)
    rows, columns = np.sort(chosen[:m]), np.sort(chosen[m : m + c])
    return x, HeldOut(rows, columns, t[np.ix_(rows, columns)]), exact


def estimated(x, held_out):
    return estimate(held_out, x[held_out.rows], x[held_out.columns])


def test_figures_are_those_of_the_definitions():
    x, held_out, _ = scene(0)
    found = estimated(x, held_out)
    t, d = held_out.values, cdist(x[held_out.rows], x[held_out.columns])
    assert found.normalized_stress == pytest.approx(np.sqrt(((t - d) ** 2).sum() / (t**2).sum()), rel=1e-12)
    assert found.stress1 == pytest.approx(np.sqrt(((t - d) ** 2).sum() / (d**2).sum()), rel=1e-12)
    assert found.mse == pytest.approx(((t - d) ** 2).mean(), rel=1e-12)
    assert found.pairs == 40 * 120


def test_interval_is_the_jackknife_over_points():
    x, held_out, _ = scene(1)
    found = estimated(x, held_out)
    t, d = held_out.values, cdist(x[held_out.rows], x[held_out.columns])
    without = []
    for k in range(40):
        rest = np.arange(40) != k
        without.append(((t - d)[rest] ** 2).sum() / (t[rest] ** 2).sum())
    spread = np.sqrt(39 / 40 * ((without - np.mean(without)) ** 2).sum())
    share = found.normalized_stress**2
    t_table = 2.0226909  # Student's t, 39 degrees of freedom
    assert found.low == pytest.approx(np.sqrt(share - t_table * spread), rel=1e-6)
    assert found.high == pytest.approx(np.sqrt(share + t_table * spread), rel=1e-6)


def test_interval_is_about_that_of_a_bootstrap_over_points():
    x, held_out, _ = scene(2)
    found = estimated(x, held_out)
    random = np.random.default_rng(0)
    stresses = []
    for _ in range(600):
        again = random.integers(0, 40, 40)
        part = HeldOut(held_out.rows[again], held_out.columns, held_out.values[again])
        stresses.append(estimated(x, part).normalized_stress)
    low, high = np.percentile(stresses, [2.5, 97.5])
    assert found.high - found.low == pytest.approx(high - low, rel=0.2)
    assert found.low == pytest.approx(low, rel=0.02)


def test_interval_covers_the_exact_stress_about_as_often_as_it_says():
    hits = []
    for seed in range(200):
        x, held_out, exact = scene(100 + seed, m=50, c=150, n=250)
        found = estimated(x, held_out)
        hits.append(found.low <= exact <= found.high)
    assert np.mean(hits) >= 0.90


def test_missing_pairs_and_points_without_a_place_are_left_out():
    x, held_out, _ = scene(3)
    values = held_out.values.copy()
    values[np.random.default_rng(0).random(values.shape) < 0.3] = np.nan
    x = x.copy()
    x[held_out.columns[5]] = np.nan
    values[4] = np.nan
    found = estimated(x, HeldOut(held_out.rows, held_out.columns, values))
    d = cdist(x[held_out.rows], x[held_out.columns])
    used = ~np.isnan(values) & ~np.isnan(d)
    residual, t = (values - d)[used], values[used]
    assert found.pairs == used.sum()
    assert found.normalized_stress == pytest.approx(np.sqrt((residual**2).sum() / (t**2).sum()))
    assert found.low < found.normalized_stress < found.high


def test_nothing_to_measure_is_nan_and_one_point_has_no_interval():
    nothing = estimate(
        HeldOut(np.arange(2), np.arange(2, 5), np.full((2, 3), np.nan)), np.zeros((2, 2)), np.zeros((3, 2))
    )
    assert np.isnan(nothing.normalized_stress)
    assert np.isnan(nothing.stress1)
    assert nothing.pairs == 0
    one = estimate(HeldOut(np.array([0]), np.array([1, 2]), np.array([[1.0, 2.0]])), np.zeros((1, 2)), np.ones((2, 2)))
    assert one.normalized_stress == pytest.approx(np.sqrt(((1 - 2**0.5) ** 2 + (2 - 2**0.5) ** 2) / 5))
    assert (one.low, one.high) == (0, np.inf)


def test_a_perfect_map_has_no_stress_and_no_doubt():
    x, held_out, _ = scene(4)
    exact = HeldOut(held_out.rows, held_out.columns, cdist(x[held_out.rows], x[held_out.columns]))
    found = estimated(x, exact)
    assert found.normalized_stress == found.high == pytest.approx(0, abs=1e-15)
    assert found.low == 0


def test_points_of_the_pairs():
    held_out = HeldOut(np.array([4, 9]), np.array([1, 9, 30]), np.zeros((2, 3)))
    assert held_out.points.tolist() == [1, 4, 9, 30]


def test_agreement_is_procrustes_disparity_to_the_best():
    random = np.random.default_rng(0)
    best = random.normal(size=(50, 2))
    turned = 3 * best @ np.array([[0.6, -0.8], [0.8, 0.6]]) + 7
    mirrored = best * [1, -1]
    other = random.normal(size=(50, 2))
    found = agreement([best, turned, mirrored, other])
    assert_allclose(found[:2], 0, atol=1e-12)
    assert found[2] == pytest.approx(procrustes(best, other)[2], rel=1e-12)
    assert found[2] > 0.5
    assert agreement([best]).shape == (0,)
