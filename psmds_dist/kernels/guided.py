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

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile
from psmds_dist.kernels.moves import TILE, WIDE_TILE, segment, square_distances

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
def pull(weights: Rows, line: Rows, other: Rows, centre: Any, other_centre: Any, zero: Any) -> Any:
    """Gradient along two axes over a tile."""
    along = across = zero
    for j in range(line.size):
        along += weights[j] * (centre - line[j])
        across += weights[j] * (other_centre - other[j])
    return along, across


@tile
def add_slopes(line: Rows, other: Rows, centre: Any, other_centre: Any, along: Any, across: Any, slopes: Rows) -> None:
    """Add two axes to the slopes of a tile."""
    for j in range(line.size):
        slopes[j] += along * (centre - line[j]) + across * (other_centre - other[j])


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
    largest = square = 0.0
    for m in range(gradient.size):
        largest = max(largest, abs(gradient[m]))
    if not 0 < largest < np.inf:
        direction[:] = 0
        return 0.0
    for m in range(gradient.size):
        square += (gradient[m] / largest) ** 2
    length = largest * np.sqrt(square)
    for m in range(gradient.size):
        direction[m] = -gradient[m] / length
    return length


@tile
def look(t: Rows, i: int, x: Rows, axes: Ints, zero: Any, distances: Rows, weights: Rows, gradient: Floats) -> Any:
    """First sweep: the error of a row, its distances, and the gradient along ``axes``."""
    n = x.shape[1]
    error = 0.0
    gradient[:] = 0
    for lo in range(0, n, WIDE_TILE):
        for part in range(2):
            a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
            if a < b:
                square_distances(x, i, a, b, distances[a:b])
                error += error_and_weights(t[a:b], distances[a:b], weights, zero)
                for m in range(0, axes.size, 2):  # two axes a sweep, for half the traffic; an odd one with itself
                    last = min(m + 1, axes.size - 1)
                    p, q = axes[m], axes[last]
                    along, across = pull(weights, x[p, a:b], x[q, a:b], x[p, i], x[q, i], zero)
                    gradient[m] += along
                    if last > m:
                        gradient[last] += across
    return error


@tile
def tilt(i: int, x: Rows, axes: Ints, direction: Rows, slopes: Rows) -> None:
    """Second sweep: how fast each distance times itself grows along a direction, halved."""
    n = x.shape[1]
    slopes[:] = 0
    for lo in range(0, n, WIDE_TILE):
        hi = min(n, lo + WIDE_TILE)
        for m in range(0, axes.size, 2):
            last = min(m + 1, axes.size - 1)
            p, q = axes[m], axes[last]
            across = direction[last] if last > m else direction[m] - direction[m]
            add_slopes(x[p, lo:hi], x[q, lo:hi], x[p, i], x[q, i], direction[m], across, slopes[lo:hi])


@tile
def try_step(t: Rows, i: int, distances: Rows, slopes: Rows, step: Any, square: Any) -> Any:
    """Sum of ``t (d' - d)`` over a row."""
    n = distances.size
    total = 0.0
    for lo in range(0, n, TILE):
        for part in range(2):
            a, b = segment(lo, min(n, lo + TILE), i, part)
            if a < b:
                total += step_gain(t[a:b], distances[a:b], slopes[a:b], step, square, step - step)
    return total


@tile
def closed_form(i: int, x: Rows, sums: Floats, axes: Ints, direction: Rows) -> Any:
    """Sums over a row of the squared direction and of the slopes, in float64."""
    n = x.shape[1]
    square = slope = 0.0
    for m in range(axes.size):
        along = np.float64(direction[m])
        square += along * along
        slope += along * (n * np.float64(x[axes[m], i]) - sums[axes[m]])
    return square, slope


@tile
def better_step(
    t: Rows, i: int, distances: Rows, slopes: Rows, r: Any, length: Any, square: Any, slope: Any, tried: Rows
) -> Any:
    """Length and gain of the better of two steps, the second at the bottom of a parabola through the first."""
    best = gain = bend = 0.0
    tried[0] = r
    for attempt in range(2):
        s = np.float64(tried[0])
        tried[1] = s * s * square
        found = (t.size - 1) * s * s * square + 2 * s * slope
        found -= 2 * try_step(t, i, distances, slopes, tried[0], tried[1])
        if attempt == 0 or found < gain:
            best, gain = s, found
        bend = found + 2 * length * s
        if attempt == 1 or not bend > length * s:
            break
        tried[0] = length * s * s / bend
    return best, gain


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
    for k in prange(slots.size):
        t = rows[slots[k]]
        i = points[k]
        distances = np.empty(n, x.dtype)
        slopes = np.empty(n, x.dtype)
        weights = np.empty(WIDE_TILE, x.dtype)
        gradient = np.empty(axes.size)
        errors[k] = look(t, i, x, axes, r - r, distances, weights, gradient)
        gains[k] = 0
        length = turn_downhill(gradient, steps[k])
        if length > 0:
            tilt(i, x, axes, steps[k], slopes)
            square, slope = closed_form(i, x, sums, axes, steps[k])
            best, gains[k] = better_step(t, i, distances, slopes, r, length, square, slope, weights[:2])
            for m in range(axes.size):
                steps[k, m] *= best


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
        guide_any(read_only(rows), slots, points, x, sums, x.dtype.type(radius), axes, errors, gains, steps)
    return steps, gains, errors
