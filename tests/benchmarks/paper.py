"""The algorithm of the paper in plain NumPy: one point after the other, bad moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

EPS = 1e-4
RADIUS_TOL = 2e-4
"""Final radius, as a share of the root mean square dissimilarity; the default of this package."""


def pattern_search(
    t: np.ndarray, seed: int, on_epoch: Callable[[float], object], n_components: int = 2, max_epochs: int = 500
) -> np.ndarray:
    """Embed a symmetric matrix with a zero diagonal.

    Parameters
    ----------
    t : (n, n) float64
        Dissimilarities.
    seed : int
        Seed of the start.
    on_epoch : callable
        Called with the sum of squared residuals over ordered pairs after each epoch.
    n_components, max_epochs : int
        Dimensions, and maximum number of epochs.
    """
    n = len(t)
    scale = np.sqrt((t**2).sum() / (n * (n - 1)))
    x = np.random.default_rng(seed).uniform(-scale, scale, (n_components, n))
    radius, last, epoch = scale, np.inf, 0
    current = sum(_error(t[i], squares_from(x, i)) for i in range(n))
    while radius > RADIUS_TOL * scale and epoch < max_epochs:
        if last - current <= EPS * current:
            radius /= 2
        last, current = current, one_epoch(t, x, radius)
        epoch += 1
        on_epoch(current)
    return x.T


def one_epoch(t: np.ndarray, x: np.ndarray, radius: float) -> float:
    """Move every point in turn, in place; return the sum of the errors before each move."""
    error = 0.0
    for i in range(len(t)):
        squares = squares_from(x, i)
        error += _error(t[i], squares)
        axis, step = _best_move(t[i], squares, x, i, radius)
        x[axis, i] += step
    return error


def squares_from(x: np.ndarray, i: int) -> np.ndarray:
    """Squared distances from point ``i`` to all."""
    return ((x[:, i : i + 1] - x) ** 2).sum(axis=0)


def _best_move(row: np.ndarray, squares: np.ndarray, x: np.ndarray, i: int, radius: float) -> tuple[int, float]:
    best = (np.inf, 0, 0.0)
    for axis in range(len(x)):
        for step in (radius, -radius):
            moved = squares + 2 * step * (x[axis, i] - x[axis]) + step * step
            moved[i] = 0
            best = min(best, (_error(row, moved), axis, step))
    return best[1:]


def _error(row: np.ndarray, squares: np.ndarray) -> float:
    residual = row - np.sqrt(np.abs(squares))
    return float(residual @ residual)
