"""Guided moves: each point looks along the gradient of its own error, and tries two steps that way.

The gradient of half the row error is ``g_i = sum_{j != i} (1 - t_ij / d_ij) (x_i - x_j)``. Along ``u = -g / |g|`` all
that matters of a pair is its distance and its slope ``p_j = u . (x_i - x_j)``, for a step of length ``s`` takes the
squared distance to ``d_ij^2 + 2 s p_j + s^2``. So after two sweeps over the row that cost one root a pair in all, each
step costs one more, however many dimensions there are. The first step is as long as the radius; the other goes to the
bottom of the parabola through what is known by then (the gradient here, the error there) when that is nearer.
Both are evaluated exactly, as sums of differences of roots; types and tiles as in `psmds_dist.kernels.moves`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.kernels.jit import kernel, threads_for, tile
from psmds_dist.kernels.moves import WIDE_TILE, segment, square_distances
from psmds_dist.types import Floats, Ints, Rows

ROOTS = 3
"""Most square roots that a pair takes."""


@tile
def error_and_weights(t: Rows, distances: Rows, weights: Rows, zero: Any) -> Any:
    """Error over a tile; turns squares into distances, and leaves each pair's weight in the gradient."""
    error = zero
    for j in range(t.size):
        distance = np.sqrt(distances[j])
        residual = distance - t[j]
        error += residual * residual
        distances[j] = distance
        weights[j] = residual / distance if distance > 0 else zero  # coincident points: no direction
    return error


@tile
def pull(weights: Rows, line: Rows, centre: Any, zero: Any) -> Any:
    """Gradient along one axis over a tile."""
    total = zero
    for j in range(line.size):
        total += weights[j] * (centre - line[j])
    return total


@tile
def add_slopes(line: Rows, centre: Any, direction: Any, slopes: Rows) -> None:
    """Add one axis to the slopes of a tile."""
    for j in range(line.size):
        slopes[j] += direction * (centre - line[j])


@tile
def step_gain(t: Rows, distances: Rows, slopes: Rows, step: Any, square: Any, zero: Any) -> Any:
    """Sum of ``t (d' - d)`` over a tile for a step along the slopes, whose squared length is ``square``."""
    twice = step + step
    total = zero
    for j in range(t.size):
        distance = distances[j]
        total += t[j] * (np.sqrt(abs(distance * distance + square + twice * slopes[j])) - distance)
    return total


@tile
def turn_downhill(gradient: Floats, direction: Rows) -> Any:
    """Unit vector against the gradient, and the gradient's length; zero where there is none."""
    largest = np.abs(gradient).max()
    direction[:] = 0
    if not 0 < largest < np.inf:
        return 0.0
    length = largest * np.sqrt(np.square(gradient / largest).sum())
    for m in range(gradient.size):
        direction[m] = -gradient[m] / length
    return length


@kernel
def guide_any(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Rows,
    sums: Floats,
    r: Any,
    axes: Ints,
    errors: Floats,
    gains: Floats,
    steps: Rows,
) -> None:
    """Errors, the better of two steps along ``axes`` against the gradient, and its gain."""
    n = x.shape[1]
    zero = r - r
    for k in prange(slots.size):
        slot = slots[k]
        i = points[k]
        distances = np.empty(n, x.dtype)
        slopes = np.empty(n, x.dtype)
        weights = np.empty(WIDE_TILE, x.dtype)
        gradient = np.zeros(axes.size)
        error = 0.0
        for lo in range(0, n, WIDE_TILE):
            for part in range(2):
                a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
                if a < b:
                    square_distances(x, i, a, b, distances[a:b])
                    error += error_and_weights(rows[slot, a:b], distances[a:b], weights[: b - a], zero)
                    for m in range(axes.size):
                        axis = axes[m]
                        gradient[m] += pull(weights[: b - a], x[axis, a:b], x[axis, i], zero)
        errors[k] = error
        length = turn_downhill(gradient, steps[k])
        slopes[:] = 0
        unit = slope = 0.0
        for m in range(axes.size):
            axis = axes[m]
            along = np.float64(steps[k, m])
            unit += along * along
            slope += along * (n * np.float64(x[axis, i]) - sums[axis])
            for lo in range(0, n, WIDE_TILE):
                hi = min(n, lo + WIDE_TILE)
                add_slopes(x[axis, lo:hi], x[axis, i], steps[k, m], slopes[lo:hi])
        tried = np.empty(2, x.dtype)
        found = np.zeros(2)
        tried[0] = r
        best = 0
        for attempt in range(2):
            step = np.float64(tried[attempt])
            square = np.empty(1, x.dtype)
            square[0] = step * step * unit
            total = 0.0
            for lo in range(0, n, WIDE_TILE):
                for part in range(2):
                    a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
                    if a < b:
                        total += step_gain(
                            rows[slot, a:b], distances[a:b], slopes[a:b], tried[attempt], square[0], zero
                        )
            found[attempt] = (n - 1) * step * step * unit + 2 * step * slope - 2 * total
            if found[attempt] < found[best]:
                best = attempt
            # the parabola with slope -2 length here that meets the gain of the first step
            bend = found[0] + 2 * length * step
            if attempt == 1 or not bend > length * step:
                break
            tried[1] = length * step * step / bend
        gains[k] = found[best] if length > 0 else 0.0
        for m in range(axes.size):
            steps[k, m] *= tried[best]


def guide(rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints) -> tuple[Rows, Floats, Floats]:
    """Row errors and, for some points, the better of two steps against the gradient.

    Parameters
    ----------
    rows, slots, points, x
        As in `psmds_dist.kernels.moves.propose`.
    radius : float
        Length of the first step, and most that the other may have.
    axes : (a,) int64
        Axes along which points may move.

    Returns
    -------
    steps : (k, a) of the type of ``x``
        What to add to the coordinates along ``axes``; zero for a point without a gradient.
    gains : (k,) float64
        Change of the row error that it brings; negative is better.
    errors : (k,) float64
        ``sum_{j != i} (t_ij - d_ij)^2``.
    """
    errors, gains = np.empty(slots.size), np.empty(slots.size)
    steps = np.empty((slots.size, axes.size), x.dtype)
    sums = x.sum(axis=1, dtype=np.float64)
    with threads_for(slots.size * x.shape[1]):
        guide_any(rows, slots, points, x, sums, x.dtype.type(radius), axes, errors, gains, steps)
    return steps, gains, errors
