import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import smacof

from psmds_dist.core.stress import Stress, canonical, worst_points
from psmds_dist.kernels.moves import row_sums


def stress_of(t, x):
    everyone = np.arange(len(t))
    return Stress.from_row_sums(row_sums(t, everyone, everyone, np.ascontiguousarray(x.T)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "dims"), [(3, 1), (50, 2), (120, 5)])
def test_every_stress_is_its_formula(n, dims, dtype):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, dims))
    t = squareform(rng.uniform(0, 4, n * (n - 1) // 2)).astype(dtype)
    given_, embedded = squareform(t.astype(float)), pdist(x)
    residual = ((given_ - embedded) ** 2).sum()
    stress = stress_of(t, x)
    assert stress.mse == pytest.approx(2 * residual / n**2, rel=1e-12)
    assert stress.raw_stress == pytest.approx(residual, rel=1e-12)
    assert stress.stress1 == pytest.approx(math.sqrt(residual / (embedded**2).sum()), rel=1e-12)
    assert stress.normalized_stress == pytest.approx(math.sqrt(residual / (given_**2).sum()), rel=1e-12)
    rows = (squareform(given_ - embedded) ** 2).sum(axis=1) / (squareform(given_) ** 2).sum(axis=1)
    assert_allclose(stress.point_stress, np.sqrt(rows), rtol=1e-12)


def test_raw_stress_is_what_smacof_minimises():
    rng = np.random.default_rng(4)
    t = squareform(rng.uniform(1, 2, 40 * 39 // 2))
    x, theirs = smacof(
        t,
        n_components=2,
        init=rng.normal(size=(40, 2)),
        n_init=1,
        eps=1e-9,
        max_iter=3000,
        normalized_stress=False,
    )
    assert stress_of(t, x).raw_stress == pytest.approx(theirs, rel=1e-6)


def test_points_without_dissimilarities_have_stress_zero_or_infinite():
    t = np.zeros((3, 3))
    t[1, 2] = t[2, 1] = 1.0
    stress = stress_of(t, np.array([[0.0], [0.0], [1.0]]))
    assert_array_equal(stress.point_stress, [math.inf, 0.0, 1.0])
    stress = stress_of(np.zeros((3, 3)), np.zeros((3, 1)))
    assert_array_equal(stress.point_stress, [0.0, 0.0, 0.0])
    assert (stress.mse, stress.stress1, stress.normalized_stress) == (0.0, 0.0, 0.0)
    collapsed = stress_of(1 - np.eye(3), np.zeros((3, 1)))
    assert (collapsed.stress1, collapsed.normalized_stress) == (math.inf, 1.0)


def test_stress_that_was_not_measured_is_nan():
    stress = Stress.unknown(4)
    assert_array_equal(stress.point_stress, np.full(4, np.nan))
    figures = [stress.mse, stress.raw_stress, stress.stress1, stress.normalized_stress]
    assert_array_equal(figures, np.full(4, np.nan))


def test_worst_points_come_in_the_order_of_their_stress():
    stress = Stress(0, 0, 0, 0, np.array([0.1, 0.9, 0.3, 0.9]))
    assert worst_points(stress, ["a", "b", "c", "d"], 3) == [("b", 0.9), ("d", 0.9), ("c", 0.3)]
    assert worst_points(stress, None, 1) == [("1", 0.9)]


@given(st.integers(4, 60), st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e9]))
def test_canonical_position(n, dims, seed, size):
    rng = np.random.default_rng(seed)
    x = size * (rng.normal(size=(n, dims)) * rng.uniform(0.5, 3, dims) + rng.normal(size=dims))
    turned = canonical(x)
    spread = np.abs(x).max()
    assert turned.shape == x.shape
    assert_allclose(pdist(turned), pdist(x), atol=1e-12 * spread)
    assert np.abs(turned.mean(axis=0)).max() <= 1e-13 * spread
    covariance = turned.T @ turned
    variance = np.diag(covariance)
    assert np.abs(covariance - np.diag(variance)).max() <= 1e-12 * variance.max()
    assert (np.diff(variance) <= 1e-12 * variance.max()).all()
    largest = turned[np.abs(turned).argmax(axis=0), np.arange(dims)]
    assert (largest > 0).all()


@given(st.integers(20, 60), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_canonical_position_is_the_same_from_every_pose(n, dims, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dims)) * 2.0 ** np.arange(dims)
    x += 4 * 2.0 ** np.arange(dims) * (np.arange(n) == 0)[:, None]  # no tie for the largest coordinate
    once = canonical(x)
    rotation, _ = np.linalg.qr(rng.normal(size=(dims, dims)))
    assert_allclose(canonical(once), once, atol=1e-10)
    assert_allclose(canonical(x @ rotation + rng.normal(size=dims)), once, atol=1e-10)


def test_canonical_position_of_a_degenerate_map():
    line = np.array([[1.0, 1.0], [2.0, 2.0], [5.0, 5.0]])
    expected = np.sqrt(2) * (np.array([1.0, 2.0, 5.0]) - 8 / 3)
    assert_allclose(canonical(line), np.column_stack([expected, np.zeros(3)]), atol=1e-12)
    assert_array_equal(canonical(np.full((4, 2), 3.0)), np.zeros((4, 2)))


def test_canonical_position_does_not_depend_on_how_a_map_lies_in_memory():
    x = np.random.default_rng(0).normal(size=(501, 3))
    assert_array_equal(canonical(np.asfortranarray(x)), canonical(x))
