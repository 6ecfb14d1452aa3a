"""Gradients of rows: the kernel against NumPy's formula and against differences of the error."""

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import error

from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels.gradient import row_gradients
from psmds_dist.kernels.jit import PAIRS_A_THREAD
from psmds_dist.kernels.moves import TILE, WIDE_TILE
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.tasks import CachedRows

DIMS = [1, 2, 3, 5]


def matrix_and_map(n, dims, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    t = size * np.abs(rng.normal(2, 1, (n, n)))
    t = (t + t.T) / 2
    np.fill_diagonal(t, 0)
    return t, size * rng.normal(size=(n, dims))


def expected(t, x, points):
    """Errors of rows and gradients of half of them; pairs at distance zero have no direction."""
    offset = x[points][:, None, :] - x[None, :, :]
    length = np.sqrt((offset**2).sum(axis=2))
    residual = length - t[points]
    residual[np.arange(len(points)), points] = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.where(length > 0, residual / length, 0)
    return (residual**2).sum(axis=1), np.einsum("kj,kjl->kl", weights, offset)


def found(t, x, points, slots=None):
    slots = np.arange(len(points)) if slots is None else slots
    stored = np.empty((len(points), len(t)), t.dtype)
    stored[slots] = t[points]
    return row_gradients(stored, slots, points, np.ascontiguousarray(x.T))


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_errors_and_gradients_of_any_rows_in_any_order(dims, size):
    t, x = matrix_and_map(60, dims, size=size)
    points = np.random.default_rng(1).permutation(60)[:20]
    errors, gradients = found(t, x, points, slots=np.arange(20)[::-1].copy())
    wanted_errors, wanted = expected(t, x, points)
    assert_allclose(errors, wanted_errors, rtol=1e-12)
    assert_allclose(gradients, wanted, rtol=1e-10, atol=1e-11 * size)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("rows", ["float32", "float64"])
def test_float32_coordinates_stay_near_float64_over_several_tiles(dims, rows):
    n = 2 * max(TILE, WIDE_TILE) + 77
    t, x = matrix_and_map(n, dims)
    t, x = t.astype(rows), x.astype("float32")
    points = np.array([0, TILE - 1, TILE, WIDE_TILE, n - 1])
    single, double = found(t, x, points), found(t, x.astype(float), points)
    wanted = expected(t.astype(float), x.astype(float), points)
    for one, two, right in zip(single, double, wanted, strict=True):
        assert one.dtype == two.dtype == np.float64
        assert_allclose(two, right, rtol=1e-9, atol=1e-9)
        assert_allclose(one, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())


@pytest.mark.parametrize("dims", DIMS)
def test_coincident_points_have_no_direction_but_an_error(dims):
    t, x = matrix_and_map(30, dims)
    x[10:20] = x[3]
    points = np.arange(30)
    errors, gradients = found(t, x, points)
    wanted_errors, wanted = expected(t, x, points)
    assert np.isfinite(gradients).all()
    assert_allclose(errors, wanted_errors, rtol=1e-12)
    assert_allclose(gradients, wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dims", DIMS)
def test_all_points_at_one_place_have_no_gradient(dims):
    t, _ = matrix_and_map(8, dims)
    errors, gradients = found(t, np.full((8, dims), 0.7), np.arange(8))
    assert_array_equal(gradients, 0)
    assert_allclose(errors, (t**2).sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("diagonal", [1.0, np.nan, np.inf])
def test_a_point_and_itself_are_no_pair(dims, diagonal):
    t, x = matrix_and_map(40, dims)
    spoilt = t.copy()
    np.fill_diagonal(spoilt, diagonal)
    for one, two in zip(found(spoilt, x, np.arange(40)), found(t, x, np.arange(40)), strict=True):
        assert_array_equal(one, two)


@pytest.mark.parametrize("dims", DIMS)
def test_the_gradient_of_the_objective_predicts_differences_of_the_error(dims):
    t, x = matrix_and_map(25, dims)
    objective = Objective(CachedRows(ArrayRows(t, "float64"), 10**6), InProcessExecutor(1))
    total, gradient = objective.gradient(np.ascontiguousarray(x.T))
    assert total == pytest.approx(error(t, x), rel=1e-12)
    assert gradient.shape == (dims, 25)
    step = 1e-5
    for i in (0, 7, 24):
        for axis in range(dims):
            ahead, behind = x.copy(), x.copy()
            ahead[i, axis] += step
            behind[i, axis] -= step
            difference = (error(t, ahead) - error(t, behind)) / (2 * step)
            assert gradient[axis, i] == pytest.approx(difference, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("dims", DIMS)
def test_bits_do_not_depend_on_threads_or_on_the_other_rows(dims):
    n = 1 + int(np.sqrt(2 * PAIRS_A_THREAD))  # enough for two threads
    t, x = matrix_and_map(n, dims)
    together = found(t, x, np.arange(n))
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = found(t, x, np.arange(n))
    finally:
        numba.set_num_threads(before)
    some = found(t, x, np.arange(0, n, 50))
    for one, two, part in zip(together, alone, some, strict=True):
        assert_array_equal(one, two)
        assert_array_equal(one[::50], part)
