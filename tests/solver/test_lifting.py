"""Maps that are squeezed flat: the rules in plain NumPy, and what they are for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import distances, error, scale_of

from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.pairs import CAUTION, RELAXATION, kernels_of
from psmds_dist.solver.lifting import MOMENTUM, NOISE, flattened, lifted


def noisy(n, dims=5):
    """Dissimilarities of points in some dimensions, as multiples of their root mean square."""
    t = distances(np.random.default_rng(n).normal(size=(n, dims)))
    return (t / scale_of(t)).astype(np.float32)


def start(n, axes, seed=0):
    return np.random.default_rng(seed).normal(size=(axes, n)) / np.sqrt(2 * axes)


def step(t, x, weights, steps):
    """How far all points go against the gradient of half their weighted errors."""
    offset = x[:, None] - x[None]
    length = np.linalg.norm(offset, axis=2) + np.eye(len(t))
    pulls = np.nan_to_num(weights * (1 - t / length)) * (1 - np.eye(len(t)))
    return -steps[:, None] * (pulls[:, :, None] * offset).sum(axis=1)


def in_numpy(t, x, dims, sweeps, weights, steps):
    x = x.T.copy()
    first, speed = np.linalg.norm(x[:, dims:]), np.zeros_like(x)
    for k in range(1, sweeps + 1):
        speed = MOMENTUM * speed + step(t, x, weights, steps)
        x = x + speed
        size, target = np.linalg.norm(x[:, dims:]), first * (1 - k / sweeps)
        for lost in (x, speed):
            lost[:, dims:] *= min(1, target / size)
    return x[:, :dims].T


@pytest.mark.parametrize(("dims", "axes"), [(1, 2), (2, 3), (2, 4)])
def test_the_rules_in_numpy(dims, axes):
    n = 30
    t, x = noisy(n), start(n, axes)
    found = flattened(kernels_of(PLAIN, 1.0), t, x, dims, 12)
    steps = np.full(n, RELAXATION / n)
    assert found.shape == (dims, n)
    assert_allclose(found, in_numpy(t.astype(float), x, dims, 12, np.ones((n, n)), steps), atol=2e-4)


def test_the_rules_in_numpy_with_weights_and_gaps():
    n, rng = 30, np.random.default_rng(1)
    t, x = noisy(n).astype(np.float64), start(n, 3)
    weights = rng.uniform(0, 4, (n, n))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    weights[rng.random((n, n)) < 0.2] = 0
    weights = np.minimum(weights, weights.T)
    rows = np.hstack([t, weights]).astype(np.float32)
    found = flattened(kernels_of(PairRule(weighted=True), 1.0), rows, x, 2, 12)
    assert_allclose(found, in_numpy(t, x, 2, 12, weights, CAUTION / weights.sum(axis=1)), atol=2e-4)


def test_no_sweep_with_weights_raises_the_error():
    """Two halves without a known pair inside: there all points at once may not go as far as each may alone."""
    n = 20
    t, x = noisy(n), start(n, 2).T
    weights = np.zeros((n, n))
    weights[: n // 2, n // 2 :] = weights[n // 2 :, : n // 2] = 1
    kernels = kernels_of(PairRule(weighted=True), 1.0)
    steps = kernels.steps(np.hstack([t, weights]).astype(np.float32), x.T)
    errors = []
    for _ in range(60):
        errors.append((weights * (t - distances(x)) ** 2).sum())
        x = x + step(t, x, weights, steps)
    assert np.all(np.diff(errors) <= 1e-9 * errors[0])
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.parametrize("dims", [1, 2])
def test_bits_do_not_depend_on_threads(dims):
    t, x = noisy(700), start(700, dims + 1)  # large enough for two threads
    maps = []
    for threads in (1, 2):
        with parallel_region(threads):
            maps.append(flattened(kernels_of(PLAIN, 1.0), t, x, dims, 5))
    assert_array_equal(*maps)


def test_a_point_on_the_wrong_side_passes_the_others():
    """One of twenty points in a row stands at the other end: along the row it cannot get past them, above it can."""
    n = 20
    places = np.arange(n, dtype=float)
    t = distances(places[:, None])
    scale = scale_of(t)
    t = (t / scale).astype(np.float32)
    wrong = np.r_[n + 1.0, places[1:]] / scale
    kernels = kernels_of(PLAIN, 1.0)
    settled = flattened(kernels, t, np.vstack([wrong, np.zeros(n)]), 1, 100)
    lifted = flattened(kernels, t, np.vstack([wrong, 0.3 * np.random.default_rng(0).normal(size=n)]), 1, 100)
    assert error(t, settled.T) > 1
    assert error(t, lifted.T) < 1e-3
    assert np.argsort(lifted[0]).tolist() in (list(range(n)), list(range(n))[::-1])


def test_an_axis_of_zeros_is_lost_without_harm():
    t = noisy(12)
    found = flattened(kernels_of(PLAIN, 1.0), t, np.vstack([start(12, 2), np.zeros(12)]), 2, 200)
    again = flattened(kernels_of(PLAIN, 1.0), t, np.vstack([found, np.zeros(12)]), 2, 1)
    assert_allclose(again, found, atol=1e-3)  # where sweeps stand still


def test_an_axis_of_noise_is_drawn_and_leaves_the_others():
    x = start(5000, 2)
    found, again = (lifted(x, np.random.default_rng(3)) for _ in range(2))
    assert_array_equal(found[:2], x)
    assert found.shape == (3, 5000)
    assert abs(found[2].std() - NOISE) < 0.01
    assert_array_equal(found, again)
