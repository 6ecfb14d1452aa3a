"""Kernels of landmark mode against recomputation, in every dimension and type."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from landmarks import kernels
from landmarks.solver.placement import PlacementModel
from psmds_dist.kernels import jit

DIMS = [1, 2, 3, 5]
TYPES = [("float32", "float32"), ("float32", "float64"), ("float64", "float64")]
"""Rows and coordinates."""


def task(seed, dims, row_type, size=40, points=12, missing=0.0, scale=1.0):
    """Noisy dissimilarities of some points to landmarks, whose coordinates are centred."""
    random = np.random.default_rng(seed)
    y = scale * random.normal(size=(dims, size))
    y -= y.mean(axis=1, keepdims=True)
    true = scale * random.normal(size=(points, dims))
    rows = cdist(true, y.T) * random.uniform(0.7, 1.3, (points, size))
    rows[random.random(rows.shape) < missing] = np.nan
    return rows.astype(row_type), y, true


def errors_at(rows, y, x):
    """Sum of squared residuals of each point over its known landmarks, in full."""
    return np.nansum((rows.astype(float) - cdist(x, y.T)) ** 2, axis=1)


def moved(x, radius):
    """Every place that a point may move to."""
    for axis in range(x.shape[1]):
        for step in (radius, -radius):
            other = x.copy()
            other[:, axis] += step
            yield other


def search(rows, y, x, radius, *, type_="float64", floor=0.0, share=1e-2, most=300, slots=None):
    slots = np.arange(len(rows)) if slots is None else slots
    radii = np.full(slots.size, float(radius))
    return kernels.search(rows, slots, y.astype(type_), x, radii, floor, share, most)


def locate(rows, y, slots=None):
    frame = PlacementModel.of(y.T, 1.0)
    return kernels.locate(rows, np.arange(len(rows)) if slots is None else slots, frame.y, frame.pull, frame.offset)


# --- pattern search ---


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize(("row_type", "type_"), TYPES)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_search_never_raises_an_error_and_ends_where_no_move_improves(dims, row_type, type_, missing):
    rows, y, start = task(dims, dims, row_type, missing=missing)
    radius, floor = 1.0, 1e-2
    x, errors = search(rows, y, start, radius, type_=type_, floor=floor, share=0.0)
    rounded = y.astype(type_)
    assert x.dtype == errors.dtype == np.float64
    before, after = errors_at(rows, rounded, start), errors_at(rows, rounded, x)
    tolerance = (1e-5 if type_ == "float32" else 1e-12) * after
    assert (after <= before + tolerance).all()
    assert after.sum() < before.sum()
    assert_allclose(errors, after, rtol=1e-5 if type_ == "float32" else 1e-12)
    last = radius
    while last > floor:
        last /= 2  # the last radius tried is the one above
    for other in moved(x, 2 * last):
        assert (errors_at(rows, rounded, other) >= after - tolerance).all()


def plain_search(row, y, x, radius, floor, share, most):
    """Pattern search of one point, recomputing its error for every move."""
    known = ~np.isnan(row)
    error = lambda place: errors_at(row[None, known], y[:, known], place[None])[0]  # noqa: E731
    for _ in range(most):
        here = error(x)
        spread = np.sqrt(here / known.sum())
        if radius < 0:
            radius = spread
            continue
        if radius <= max(floor, share * spread):
            break
        places = [other[0] for other in moved(x[None], radius)]
        best = min(places, key=error)
        if error(best) < here:
            x = best
        else:
            radius /= 2
    return x


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("radius", [-1.0, 0.75])
def test_search_takes_the_path_of_a_plain_one(dims, radius):
    rows, y, _ = task(10 + dims, dims, "float64", missing=0.2)
    start = np.zeros((len(rows), dims))
    x, _ = search(rows, y, start, radius, floor=1e-3, share=1e-2)
    wanted = [plain_search(row, y, place, radius, 1e-3, 1e-2, 300) for row, place in zip(rows, start, strict=True)]
    assert_allclose(x, wanted, atol=1e-9)


def test_probes_are_bounded_and_the_error_told_is_that_of_the_place_told():
    rows, y, true = task(3, 2, "float64")
    for most in (1, 2, 5, 9):
        x, errors = search(rows, y, true + 5, 0.1, most=most, share=0.0)
        assert_allclose(errors, errors_at(rows, y, x), rtol=1e-12)
        assert_allclose(np.abs(x - true - 5).sum(axis=1), 0.1 * (most - 1), atol=1e-12)


def test_slots_say_which_rows_are_meant():
    rows, y, true = task(4, 2, "float32")
    slots = np.array([7, 2, 7, 11])
    x, errors = search(rows, y, true[slots], 0.5, type_="float32", slots=slots)
    for k, slot in enumerate(slots):
        alone = search(rows[slot : slot + 1], y, true[slot : slot + 1], 0.5, type_="float32")
        assert_array_equal(x[k], alone[0][0])
        assert errors[k] == alone[1][0]
    assert search(rows, y, np.empty((0, 2)), 0.5, slots=slots[:0])[0].shape == (0, 2)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("type_", ["float32", "float64"])
@pytest.mark.parametrize("size", [40, kernels.TILE + 3])
def test_a_missing_landmark_is_one_that_is_not_there(dims, type_, size):
    rows, y, true = task(5, dims, "float32", size=size)
    gone = np.random.default_rng(0).permutation(size)[: size // 3]
    with_gaps = rows.copy()
    with_gaps[:, gone] = np.nan
    without = np.ascontiguousarray(np.delete(rows, gone, axis=1))
    one = search(with_gaps, y, true, 0.5, type_=type_)
    other = search(without, np.ascontiguousarray(np.delete(y, gone, axis=1)), true, 0.5, type_=type_)
    assert_array_equal(one[0], other[0])
    assert_array_equal(one[1], other[1])


def test_a_zero_radius_stays():
    rows, y, true = task(6, 3, "float64")
    x, errors = search(rows, y, true, 0.0)
    assert_array_equal(x, true)
    assert_allclose(errors, errors_at(rows, y, true), rtol=1e-12)


# --- closed form ---


def squared_distance_equations(row, y):
    """Solve ``|x|^2 - 2 x.y_s = t_s^2 - |y_s|^2`` for ``x`` and a free ``|x|^2`` by numpy."""
    known = ~np.isnan(row)
    left = np.column_stack((-2 * y[:, known].T, np.ones(known.sum())))
    right = row[known].astype(float) ** 2 - (y[:, known] ** 2).sum(axis=0)
    return np.linalg.lstsq(left, right, rcond=None)[0][:-1]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("row_type", ["float32", "float64"])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("scale", [1.0, 1e9, 1e-9])
def test_closed_form_is_least_squares_on_squared_dissimilarities(dims, row_type, missing, scale):
    rows, y, _ = task(7, dims, row_type, missing=missing, scale=scale)
    x, known, squares = locate(rows, y)
    wanted = [squared_distance_equations(row / scale, y / scale) for row in rows.astype(float)]
    assert_allclose(x / scale, wanted, atol=1e-11)
    assert_array_equal(known, (~np.isnan(rows)).sum(axis=1))
    assert_allclose(squares, np.nansum(rows.astype(float) ** 2, axis=1), rtol=1e-12)


@pytest.mark.parametrize("dims", DIMS)
def test_closed_form_finds_exact_points(dims):
    _, y, true = task(8, dims, "float64")
    exact = cdist(true, y.T)
    assert_allclose(locate(exact, y)[0], true, atol=1e-12)
    exact[:, : exact.shape[1] - dims - 1] = np.nan  # as few as will do
    assert_allclose(locate(exact, y)[0], true, atol=1e-7)


@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, 1.0), (0.6, -0.8)])
def test_known_landmarks_on_a_line_leave_a_point_with_the_right_place_along_it(direction):
    y = np.random.default_rng(9).normal(size=(2, 30))
    y[:, :12] = np.array([[1.0], [2.0]]) + np.outer(direction, np.arange(12))
    y -= y.mean(axis=1, keepdims=True)
    true = np.array([[0.3, 0.4]])
    row = cdist(true, y.T)
    row[:, 12:] = np.nan
    x, _, _ = locate(row, y)
    assert (x - true) @ direction == pytest.approx(0, abs=1e-9)
    assert np.abs(x - y[:, :12].T).min() < 20  # what the line leaves open is near it


# --- pulls on landmarks ---


def plain_sums(rows, y, x, radius):
    """All that `pull_landmarks` sums, landmark by landmark."""
    dims = len(y)
    known = ~np.isnan(rows)
    t = np.where(known, rows, 0).astype(float)
    distance = cdist(x, y.T)
    sums = [known.sum(axis=0), np.where(known, (t - distance) ** 2, 0).sum(axis=0)]
    for axis in range(dims):
        sums.append(np.where(known, y[axis] - x[:, axis : axis + 1], 0).sum(axis=0))
        for step in (radius, -radius):
            other = y.copy()
            other[axis] += step
            sums.append((t * (cdist(x, other.T) - distance)).sum(axis=0))
    return np.array(sums)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize(("row_type", "type_"), TYPES)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_pull_sums_are_those_of_a_recomputation(dims, row_type, type_, missing):
    rows, y, true = task(11, dims, row_type, size=300, missing=missing)
    slots = np.array([3, 0, 9, 4, 11])
    x, y = true[slots].astype(type_), y.astype(type_)
    sums = kernels.pull_landmarks(rows, slots, x, y, 0.25)
    assert sums.dtype == np.float64
    wanted = plain_sums(rows[slots], y.astype(float), x.astype(float), 0.25)
    assert_allclose(sums, wanted, rtol=1e-6, atol=2e-5 if type_ == "float32" else 1e-11)


def test_pulls_tell_the_gain_of_a_landmark_move():
    rows, y, x = task(12, 2, "float64", points=50)
    radius = 0.3
    sums = kernels.pull_landmarks(rows, np.arange(50), x, y, radius)
    count, before, u, up, down = sums[:5]
    assert_allclose(before, errors_at(rows.T, x.T, y.T))
    for step, roots in ((radius, up), (-radius, down)):
        other = y.copy()
        other[0] += step
        gain = errors_at(rows.T, x.T, other.T) - before
        assert_allclose(count * step**2 + 2 * step * u - 2 * roots, gain, atol=1e-10)


# --- how they run ---


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("type_", ["float32", "float64"])
def test_two_threads_give_the_bits_of_one(dims, type_, monkeypatch):
    assert jit.available_threads() >= 2
    monkeypatch.setattr(jit, "PAIRS_A_THREAD", 1)
    rows, y, true = task(13, dims, type_, size=600, points=61, missing=0.1)
    rows[::2] = np.nan_to_num(rows[::2], nan=1.0)
    found = []
    for threads in (1, 2):
        with jit.parallel_region(threads):
            everyone = np.arange(len(rows))
            found.append(
                [
                    *locate(rows, y),
                    *search(rows, y, true, -1.0, type_=type_),
                    kernels.pull_landmarks(rows, everyone, true.astype(type_), y.astype(type_), 0.1),
                ]
            )
    for one, two in zip(*found, strict=True):
        assert_array_equal(one, two)


@given(st.integers(1, 40), st.integers(0, 16), st.sampled_from(DIMS))
def test_where_a_row_lies_does_not_change_its_bits(count, shift, dims):
    rows, y, true = task(14, dims, "float32", size=37, points=40)
    reference = search(rows, y, true, -1.0, type_="float32"), locate(rows, y)
    slots = np.roll(np.arange(40), shift)[:count]
    places = np.random.default_rng(shift).permutation(50)[:count]
    elsewhere = np.zeros((50, 37), np.float32)
    elsewhere[places] = rows[slots]
    found = search(elsewhere, y, true[slots], -1.0, type_="float32", slots=places)
    for got, wanted in zip([*found, *locate(elsewhere, y, places)], [*reference[0], *reference[1]], strict=True):
        assert_array_equal(got, wanted[slots])


def test_rows_are_not_written_to():
    rows, y, true = task(15, 2, "float32", missing=0.1)
    kept = rows.copy()
    rows.flags.writeable = False
    for run in (
        lambda: locate(rows, y),
        lambda: search(rows, y, true, 0.5, type_="float32"),
        lambda: kernels.pull_landmarks(rows, np.arange(len(rows)), true, y, 0.5),
    ):
        run()
        assert_array_equal(rows, kept)


@pytest.mark.wide
@pytest.mark.slow
def test_plain_python_passes_the_same_tests():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "few"}
    some = "not slow and not bits and not 1027 and not takes_the_path"
    chosen = "plain_one or not_there or closed_form or known_landmarks or pull"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "-k",
        f"({chosen}) and {some}",
        __file__,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
