import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import distances, gains_by_recomputing, gains_of_rows, rounding, search_directions

from psmds_dist.kernels import jit, moves

TYPES = [("float32", "float32"), ("float32", "float64"), ("float64", "float64")]
"""Rows and coordinates. Float64 rows always meet float64 coordinates (`Schedule.arithmetic`)."""


@st.composite
def tasks(draw):
    """A symmetric matrix, coordinates, some of the points, and where their rows lie."""
    n, dims = draw(st.integers(3, 80)), draw(st.integers(1, 6))
    row_type, type_ = draw(st.sampled_from(TYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = 10.0 ** draw(st.integers(-3, 3))
    x = (size * rng.normal(size=(n, dims))).astype(type_)
    if draw(st.booleans()):  # coincident points
        x[rng.integers(0, n, n // 2)] = x[0]
    if draw(st.booleans()):  # some on a grid, so that moves land on other points
        x[::2] = (size * rng.integers(-2, 3, x[::2].shape)).astype(type_)
    t = size * np.abs(rng.normal(2, 1, (n, n)))
    t = (t + t.T) / 2
    if draw(st.booleans()):  # zero dissimilarities
        zero = rng.random((n, n)) < 0.3
        t[zero | zero.T] = 0
    if draw(st.booleans()):  # a map that fits almost
        t = distances(x.astype(float))
    t = t.astype(row_type)
    np.fill_diagonal(t, draw(st.sampled_from([0.0, 7.5, -1e30, np.nan, np.inf])))
    points = rng.permutation(n)[: draw(st.integers(1, 10))]
    radius = float(np.float32(size * draw(st.sampled_from([1.0, 0.37, 2.0**-6, 16.0]))))
    return t, x, points, rng.permutation(points.size), radius


def stored(t, points, slots, read_only):
    """Rows of ``points``, at ``slots`` of a buffer that holds others too."""
    rows = np.full((points.size + 1, len(t)), np.nan, t.dtype)
    rows[slots] = t[points]
    rows.flags.writeable = not read_only
    return rows


def clean(t):
    t = t.copy()
    np.fill_diagonal(t, 0)
    return t


@given(tasks(), st.booleans())
def test_errors_and_gains_are_those_of_a_full_recomputation(task, read_only):
    t, x, points, slots, radius = task
    dims = x.shape[1]
    rows = stored(t, points, slots, read_only)
    errors, gains = moves.propose(
        rows, slots, points, np.ascontiguousarray(x.T), radius, np.arange(dims, dtype=np.int64)
    )
    exact = x.astype(float)
    steps = search_directions(dims, radius)
    wanted_errors, wanted_gains = gains_by_recomputing(clean(t), exact, points, steps)
    off_errors, off_gains = rounding(t[points], exact, points, steps, x.dtype, span=len(t))
    assert errors.dtype == gains.dtype == np.float64
    assert gains.shape == (points.size, 2 * dims)
    assert (np.abs(errors - wanted_errors) <= off_errors).all()
    assert (np.abs(gains - wanted_gains) <= off_gains).all()


@given(tasks(), st.data())
def test_some_axes_in_any_order_give_the_gains_of_those_axes(task, data):
    t, x, points, slots, radius = task
    dims = x.shape[1]
    axes = np.array(data.draw(st.permutations(range(dims)))[: data.draw(st.integers(1, dims))], dtype=np.int64)
    rows = stored(t, points, slots, read_only=False)
    errors, gains = moves.propose(rows, slots, points, np.ascontiguousarray(x.T), radius, axes)
    exact = x.astype(float)
    steps = search_directions(dims, radius)[np.column_stack([2 * axes, 2 * axes + 1]).ravel()]
    wanted_errors, wanted_gains = gains_by_recomputing(clean(t), exact, points, steps)
    off_errors, off_gains = rounding(t[points], exact, points, steps, x.dtype, span=len(t))
    assert gains.shape == (points.size, 2 * axes.size)
    assert (np.abs(errors - wanted_errors) <= off_errors).all()
    assert (np.abs(gains - wanted_gains) <= off_gains).all()


@given(tasks(), st.booleans())
def test_row_sums_are_those_of_the_full_matrices(task, read_only):
    t, x, points, slots, _ = task
    x = x.astype(float)
    sums = moves.row_sums(stored(t, points, slots, read_only), slots, points, np.ascontiguousarray(x.T))
    given_, embedded = clean(t).astype(float)[points], distances(x)[points]
    wanted = np.stack([((given_ - embedded) ** 2), embedded**2, given_**2], axis=2).sum(axis=1)
    largest = np.stack([(given_ + embedded) ** 2, embedded**2, given_**2], axis=2).sum(axis=1)
    assert (np.abs(sums - wanted) <= (len(t) + 20) * np.finfo(float).eps * largest).all()


@pytest.mark.parametrize("dims", [2, 3, 5])
def test_float32_stays_near_float64_over_several_tiles(dims):
    n = 2 * moves.TILE + 905
    edges = [0, 1, moves.WIDE_TILE - 1, moves.TILE - 1, moves.TILE, 2 * moves.TILE, n - 1]
    points = np.array(edges)
    rng = np.random.default_rng(dims)
    x = rng.normal(size=(n, dims)).astype(np.float32)
    rows = np.abs(distances_from(x[points], x) + 0.3 * rng.normal(size=(points.size, n))).astype(np.float32)
    rows[np.arange(points.size), points] = np.nan
    slots = np.arange(points.size)
    axes = np.arange(dims)
    exact = x.astype(float)
    for radius in (1.0, 0.25, 2.0**-9):
        steps = search_directions(dims, radius)
        errors, gains = moves.propose(rows, slots, points, np.ascontiguousarray(x.T), radius, axes)
        wanted_errors, wanted_gains = gains_of_rows(rows, exact, points, steps)
        off_errors, off_gains = rounding(rows, exact, points, steps, np.float32, span=moves.TILE)
        assert (np.abs(errors - wanted_errors) <= off_errors).all()
        assert (np.abs(gains - wanted_gains) <= off_gains).all()
        # and far better than the worst case, so that the choice of moves is sound even at a small radius
        assert np.abs(gains - wanted_gains).max() < (1e-4 if radius > 0.1 else 5e-3) * np.ptp(wanted_gains)
        assert_array_equal(gains.argmin(axis=1), wanted_gains.argmin(axis=1))


def distances_from(a, b):
    return np.sqrt(((a[:, None, :].astype(float) - b[None, :, :]) ** 2).sum(axis=2))


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("type_", ["float32", "float64"])
def test_two_threads_give_the_bits_of_one(dims, type_, monkeypatch):
    assert jit.available_threads() >= 2
    monkeypatch.setattr(jit, "PAIRS_A_THREAD", 1)  # two threads even for a small matrix
    n = 300
    rng = np.random.default_rng(1)
    x = rng.normal(size=(dims, n)).astype(type_)
    t = np.abs(rng.normal(size=(n, n))).astype(np.float32)
    points = rng.permutation(n)
    results = []
    for threads in (1, 2):
        with jit.parallel_region(threads):
            proposal = moves.propose(t, points, points, x, 0.5, np.arange(dims))
            results.append([*proposal, moves.row_sums(t, points, points, x.astype(float))])
    for one, two in zip(*results, strict=True):
        assert_array_equal(one, two)


def test_little_work_wakes_no_second_thread():
    with jit.parallel_region(2):
        for pairs, threads in [(0, 1), (jit.PAIRS_A_THREAD, 1), (2 * jit.PAIRS_A_THREAD, 2), (10**12, 2)]:
            with jit.threads_for(pairs):
                assert numba.get_num_threads() == threads
            assert numba.get_num_threads() == 2


def test_the_place_of_a_row_does_not_change_its_bits():
    n = 203  # rows of odd length lie at every alignment
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, n)).astype(np.float32)
    t = np.abs(rng.normal(size=(n, n))).astype(np.float32)
    everyone = np.arange(n)
    errors, gains = moves.propose(t, everyone, everyone, x, 0.5, np.arange(2))
    for shift in range(1, 17):
        slots = np.roll(everyone, shift)
        rows = np.empty_like(t)
        rows[slots] = t
        again_errors, again_gains = moves.propose(rows, slots, everyone, x, 0.5, np.arange(2))
        assert_array_equal(errors, again_errors)
        assert_array_equal(gains, again_gains)


def test_moving_onto_the_only_partner_removes_its_error():
    # three points on a line at 0, 3, 5 with the dissimilarities of 0, 1, 5: point 1 should go two to the left
    x = np.array([[0.0, 3.0, 5.0], [0.0, 0.0, 0.0]])
    t = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 4.0], [5.0, 4.0, 0.0]])
    errors, gains = moves.propose(t, np.array([1]), np.array([1]), x, 2.0, np.arange(2))
    assert errors == pytest.approx([(1 - 3) ** 2 + (4 - 2) ** 2])
    sideways = (1 - 13**0.5) ** 2 + (4 - 8**0.5) ** 2 - 8
    assert gains[0] == pytest.approx([(1 - 5) ** 2 + (4 - 0) ** 2 - 8, -8, sideways, sideways])


@pytest.mark.wide
@pytest.mark.slow
def test_plain_python_passes_the_same_tests():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "few"}
    some = ["-m", "not slow", "-k", "not two_threads"]  # Python knows no threads of kernels
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_kernel_runs_as_python_only_when_that_was_asked_for():
    compiled = hasattr(moves.propose_2d, "signatures")
    assert compiled == (os.environ.get("NUMBA_DISABLE_JIT") != "1")
