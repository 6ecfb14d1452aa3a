"""Whole solves in one kernel: against the same rules in plain Python, and each start by itself."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import distances, error

from psmds_dist.kernels.descent import descend
from psmds_dist.kernels.jit import parallel_region

DIMS = [1, 2, 3, 5]


def noisy(n, seed=0):
    """Distances in many dimensions, with a mean square of 1."""
    t = distances(np.random.default_rng(seed).normal(size=(n, 8)))
    return (t / math.sqrt((t**2).sum() / (n * (n - 1)))).astype(np.float32)


def starts(n, dims, count, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.8, 0.8, (count, dims, n)).astype(np.float32)
    return x, np.stack([rng.permutation(n) for _ in range(count)])


def run(t, x, orders, *, radius=0.5, eps=1e-3, end=1e-3, settled=0.0, epochs=0, sweeps=0, relaxation=1.0, threads=None):
    """Maps and errors of `descend`; the starts stay as they are."""
    x, errors = x.copy(), np.empty(len(x))
    radii = np.broadcast_to(np.float32(radius), len(x)).copy()
    pull = np.float32(relaxation / (len(t) - 1))
    with parallel_region(threads):
        descend(t, x, orders, radii, eps, np.float32(end), settled, epochs, sweeps, pull, errors)
    return x, errors


def row_error(t, x, i):
    residual = np.linalg.norm(x[i] - x, axis=1) - t[i]
    return float(residual @ residual)


def plain(t, x, order, *, radius=0.5, eps=1e-3, end=1e-3, settled=0.0, epochs=0, sweeps=0, relaxation=1.0):
    """The rules of `descend` for one start, move by move; ``x`` is ``(n, L)``."""
    n, dims = x.shape
    t, x, before = t.astype(float), x.astype(float), math.inf
    steps = [sign * axis for axis in np.eye(dims) for sign in (1, -1)]
    for _ in range(epochs):
        total = 0.0
        for i in order:
            total += row_error(t, x, i)
            trials = []
            for step in steps:
                moved = x.copy()
                moved[i] += radius * step
                trials.append(row_error(t, moved, i))
            x[i] += radius * steps[int(np.argmin(trials))]
        if not before - total > eps * total:
            radius /= 2
            if radius <= end or radius <= settled * math.sqrt(total) / n:
                break
        before = total
    for _ in range(sweeps):
        before = 0.0
        for i in order:
            before += row_error(t, x, i)
            offset = x[i] - x
            length = np.linalg.norm(offset, axis=1)
            length[i] = 1
            x[i] -= relaxation / (n - 1) * ((1 - t[i] / length) @ offset)
    return x, before


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("epochs", [1, 4])
def test_moves_are_those_of_the_rules_in_plain_python(dims, epochs):
    t = noisy(20)
    x, orders = starts(20, dims, 3)
    found, errors = run(t, x, orders, epochs=epochs)
    for k in range(3):
        wanted, total = plain(t, x[k].T, orders[k], epochs=epochs)
        assert_allclose(found[k].T, wanted, atol=2e-6)
        assert errors[k] == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("relaxation", [1.0, 1.8])
def test_sweeps_are_those_of_the_rules_in_plain_python(dims, relaxation):
    t = noisy(20)
    x, orders = starts(20, dims, 3)
    found, errors = run(t, x, orders, sweeps=4, relaxation=relaxation)
    for k in range(3):
        wanted, total = plain(t, x[k].T, orders[k], sweeps=4, relaxation=relaxation)
        assert_allclose(found[k].T, wanted, atol=2e-5)
        assert errors[k] == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("ending", [{"end": 0.1}, {"end": 1e-9, "settled": 0.3}], ids=str)
def test_the_radius_halves_and_ends_by_the_rules(dims, ending):
    """Both endings are reached long before the most epochs, so that a wrong one shows in the map."""
    t = noisy(15)
    x, orders = starts(15, dims, 2)
    rules = {"radius": 0.5, "eps": 0.02, "epochs": 60, "sweeps": 1, **ending}
    found, errors = run(t, x, orders, **rules)
    for k in range(2):
        wanted, total = plain(t, x[k].T, orders[k], **rules)
        assert_allclose(found[k].T, wanted, atol=2e-5)
        assert errors[k] == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("relaxation", [0.3, 1.0, 1.8, 1.99])
def test_no_sweep_raises_the_error_for_a_relaxation_below_two(dims, relaxation):
    """Down to rounding of float32 coordinates."""
    t = noisy(40)
    x, orders = starts(40, dims, 2)
    before = [error(t, start.T.astype(float)) for start in x]
    for _ in range(30):
        x, _ = run(t, x, orders, sweeps=1, relaxation=relaxation)
        after = [error(t, start.T.astype(float)) for start in x]
        assert np.all(np.array(after) <= np.array(before) * (1 + 1e-6))
        before = after


def test_coincident_points_do_no_harm():
    t = noisy(20)
    t[:5, :5] = 0
    x, orders = starts(20, 2, 2)
    x[:, :, 5:12] = 0.1
    found, errors = run(t, x, orders, epochs=50, sweeps=5)
    assert np.isfinite(found).all()
    for k in range(2):
        assert errors[k] < 0.5 * error(t, x[k].T.astype(float))


def test_reported_errors_are_those_of_the_settled_map():
    t = noisy(40)
    x, orders = starts(40, 2, 4)
    found, errors = run(t, x, orders, epochs=200, sweeps=200, relaxation=1.8)
    for k in range(4):
        assert errors[k] == pytest.approx(error(t, found[k].T.astype(float)), rel=1e-5)


@pytest.mark.parametrize("dims", DIMS)
def test_bits_of_a_start_do_not_depend_on_the_others_or_on_threads(dims):
    t = noisy(70)
    x, orders = starts(70, dims, 5)
    radii = np.array([1.0, 0.5, 0.3, 0.1, 0.05], np.float32)
    rules = {"epochs": 60, "sweeps": 10, "relaxation": 1.8, "settled": 0.05}
    together, errors = run(t, x, orders, radius=radii, **rules)
    for k in range(5):
        part = slice(k, k + 1)
        alone, own = run(t, x[part], orders[part], radius=radii[part], **rules)
        assert_array_equal(alone[0], together[k])
        assert own[0] == errors[k]
    single, same = run(t, x, orders, radius=radii, threads=1, **rules)
    assert_array_equal(single, together)
    assert_array_equal(same, errors)
