"""Kernels of landmark mode: placing points against fixed landmarks, and moving landmarks against placed points.

A row of a panel holds a point's dissimilarities to the ``S`` landmarks; NaN marks one that is missing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile
from psmds_dist.kernels.moves import tile_2d, tile_any

TILE = 1024

PROBES = 16
"""Probes that a point takes, about."""


@tile
def _count_known(row: Rows) -> Any:
    count = 0
    for s in range(row.size):
        if row[s] == row[s]:
            count += 1
    return count


@tile
def _sum_squares(row: Rows) -> Any:
    total = 0.0
    for s in range(row.size):
        target = np.float64(row[s])
        total += target * target if row[s] == row[s] else 0.0
    return total


@tile
def _normal_equations(row: Rows, y: Rows, centre: Floats, matrix: Floats, right: Floats) -> None:
    """Least squares of ``-2 z.w_s = t_s^2 - |w_s|^2`` over the known landmarks ``w_s``, seen from their centre.

    From there ``|z|^2`` drops out, and with it any dependence on the unit of the data.
    """
    dims = y.shape[0]
    count = 0
    centre[:] = 0.0
    for s in range(row.size):
        if row[s] == row[s]:
            count += 1
            for a in range(dims):
                centre[a] += np.float64(y[a, s])
    centre /= max(1, count)
    matrix[:] = 0.0
    right[:] = 0.0
    left = np.empty(dims)
    for s in range(row.size):
        if row[s] == row[s]:
            target = np.float64(row[s]) * np.float64(row[s])
            for a in range(dims):
                left[a] = np.float64(y[a, s]) - centre[a]
                target -= left[a] * left[a]
            for a in range(dims):
                right[a] -= 0.5 * left[a] * target
                for b in range(dims):
                    matrix[a, b] += left[a] * left[b]


@tile
def _eliminate(matrix: Floats, right: Floats) -> None:
    """Solve in place; what the equations, whose matrix is positive semidefinite, leave open becomes zero."""
    size = right.size
    largest = 0.0
    for a in range(size):
        largest = max(largest, matrix[a, a])
    for a in range(size):
        if matrix[a, a] > 1e-13 * largest:
            for b in range(a + 1, size):
                factor = matrix[b, a] / matrix[a, a]
                right[b] -= factor * right[a]
                for c in range(a, size):
                    matrix[b, c] -= factor * matrix[a, c]
    for a in range(size - 1, -1, -1):
        for c in range(a + 1, size):
            right[a] -= matrix[a, c] * right[c]
        right[a] = right[a] / matrix[a, a] if matrix[a, a] > 1e-13 * largest else 0.0


@kernel
def _locate(
    rows: Rows, slots: Ints, y: Rows, pull: Floats, offset: Floats, known: Ints, squares: Rows, x: Rows
) -> None:
    dims, size = pull.shape
    for k in prange(slots.size):
        row = rows[slots[k]]
        known[k] = _count_known(row)
        squares[k] = _sum_squares(row)
        if known[k] == size:
            for a in range(dims):
                line = pull[a]
                total = 0.0
                for s in range(size):
                    target = np.float64(row[s])
                    total += line[s] * (target * target - offset[s])
                x[k, a] = -0.5 * total
        else:
            matrix = np.empty((dims, dims))
            right = np.empty(dims)
            centre = np.empty(dims)
            _normal_equations(row, y, centre, matrix, right)
            _eliminate(matrix, right)
            for a in range(dims):
                x[k, a] = centre[a] + right[a]


@tile
def _known_part(row: Rows, y: Rows, count: int) -> Any:
    """The known dissimilarities of a row, and the coordinates of their landmarks with room for one point more."""
    targets = np.empty(count, row.dtype)
    places = np.empty((y.shape[0], count + 1), y.dtype)
    if count == row.size:
        targets[:] = row
        places[:, :count] = y
        return targets, places
    filled = 0
    for s in range(row.size):
        if row[s] == row[s]:
            targets[filled] = row[s]
            for a in range(y.shape[0]):
                places[a, filled] = y[a, s]
            filled += 1
    return targets, places


@tile
def _probe(t: Rows, y: Rows, axes: Ints, r: Any, squares: Rows, distances: Rows, gains: Floats) -> Any:
    """Error of a point, and the gains of its moves; the point stands in the last column of ``y``."""
    size = t.size
    gains[:] = 0.0
    error = 0.0
    for lo in range(0, size, TILE):
        hi = min(size, lo + TILE)
        if axes.size == 2:
            e, east, west, north, south = tile_2d(t[lo:hi], y[0, lo:hi], y[1, lo:hi], y[0, size], y[1, size], r)
            error += e
            gains[0] += east
            gains[1] += west
            gains[2] += north
            gains[3] += south
        else:
            error += tile_any(t[lo:hi], y, size, lo, hi, axes, r, squares, distances, gains)
    return error


@tile
def _close(gains: Floats, y: Rows, size: int, sums: Floats, r: Any) -> Any:
    """Add the part of the gains that needs no roots, and return the best move."""
    step = np.float64(r)
    best = 0
    for a in range(y.shape[0]):
        u = 2 * step * (size * np.float64(y[a, size]) - sums[a])
        gains[2 * a] = size * step * step + u - 2 * gains[2 * a]
        gains[2 * a + 1] = size * step * step - u - 2 * gains[2 * a + 1]
        if gains[2 * a] < gains[best]:
            best = 2 * a
        if gains[2 * a + 1] < gains[best]:
            best = 2 * a + 1
    return best


@kernel
def _search(
    rows: Rows, slots: Ints, y: Rows, radii: Floats, floor: float, share: float, most: int, x: Rows, errors: Floats
) -> None:
    dims = y.shape[0]
    for k in prange(slots.size):
        full = rows[slots[k]]
        count = _count_known(full)
        row, frame = _known_part(full, y, count)
        sums = np.empty(dims)
        for a in range(dims):
            total = 0.0
            for s in range(count):
                total += np.float64(frame[a, s])
            sums[a] = total
            frame[a, count] = x[k, a]
        squares = np.empty(TILE, y.dtype)
        distances = np.empty(TILE, y.dtype)
        gains = np.empty(2 * dims)
        axes = np.arange(dims)
        radius = radii[k]
        back = -1  # the move that would undo the last one: at the same radius only rounding can favour it
        for step in range(most):
            r = y.dtype.type(radius)
            errors[k] = _probe(row, frame, axes, r, squares, distances, gains)
            spread = math.sqrt(errors[k] / count)
            if radius < 0.0:
                radius = spread
                continue
            if radius <= max(floor, share * spread) or step == most - 1:
                break
            best = _close(gains, frame, count, sums, r)
            if gains[best] < 0.0 and best != back:
                x[k, best // 2] += radius if best % 2 == 0 else -radius
                frame[best // 2, count] = x[k, best // 2]
                back = best ^ 1
            else:
                radius /= 2
                back = -1


@kernel
def _pull_landmarks(rows: Rows, slots: Ints, x: Rows, y: Rows, r: Any, sums: Floats) -> None:
    """For each landmark: error, number of points, and for each axis the sum of ``u`` and both sums of roots."""
    dims, size = y.shape
    width = 256
    for part in prange((size + width - 1) // width):
        lo = part * width
        hi = min(size, lo + width)
        squares = np.empty(hi - lo, y.dtype)
        distances = np.empty(hi - lo, y.dtype)
        target = np.empty(hi - lo, y.dtype)
        for k in range(slots.size):
            row = rows[slots[k], lo:hi]
            squares[:] = 0
            for s in range(hi - lo):
                known = row[s] == row[s]
                target[s] = row[s] if known else 0
                sums[0, lo + s] += 1.0 if known else 0.0
            for a in range(dims):
                line = y[a, lo:hi]
                for s in range(hi - lo):
                    u = line[s] - x[k, a]
                    squares[s] += u * u
            for s in range(hi - lo):
                distances[s] = math.sqrt(squares[s])
                residual = target[s] - distances[s] if row[s] == row[s] else r - r
                sums[1, lo + s] += residual * residual
                squares[s] += r * r
            for a in range(dims):
                line = y[a, lo:hi]
                for s in range(hi - lo):
                    u = line[s] - x[k, a] if row[s] == row[s] else r - r
                    step = (r + r) * (line[s] - x[k, a])
                    sums[2 + 3 * a, lo + s] += u
                    sums[3 + 3 * a, lo + s] += target[s] * (math.sqrt(abs(squares[s] + step)) - distances[s])
                    sums[4 + 3 * a, lo + s] += target[s] * (math.sqrt(abs(squares[s] - step)) - distances[s])


def locate(rows: Rows, slots: Ints, y: Floats, pull: Floats, offset: Floats) -> tuple[Floats, Ints, Floats]:
    """Place points in closed form.

    With every landmark known, ``x = -1/2 pull (t^2 - offset)``; with some missing, least squares on the squared
    dissimilarities to the others.

    Parameters
    ----------
    rows : (m, S) ndarray
        Dissimilarities to the landmarks, NaN where missing.
    slots : (k,) int64
        Rows to use.
    y : (L, S) ndarray
        Landmark coordinates.
    pull : (L, S) ndarray
        Linear map of the closed form.
    offset : (S,) ndarray
        What is subtracted from the squares first.

    Returns
    -------
    x : (k, L) ndarray
        Coordinates.
    known : (k,) int64
        Landmarks that were not missing.
    squares : (k,) float64
        Sum of the squared dissimilarities to them.
    """
    x = np.empty((slots.size, y.shape[0]))
    known = np.empty(slots.size, np.int64)
    squares = np.empty(slots.size)
    with threads_for(slots.size * pull.shape[1]):
        _locate(read_only(rows), slots, read_only(y), read_only(pull), read_only(offset), known, squares, x)
    return x, known, squares


def search(
    rows: Rows, slots: Ints, y: Rows, x: Floats, radii: Floats, floor: float, share: float, most: int
) -> tuple[Floats, Floats]:
    """Pattern search of each point alone against fixed landmarks.

    A point tries both ways along every axis, takes the best move that lowers its error, and halves its own radius
    when none does.

    Parameters
    ----------
    rows, slots
        As in `locate`.
    y : (L, S) float32 or float64
        Landmark coordinates; their type is that of the arithmetic.
    x : (k, L) float64
        Where the points begin.
    radii : (k,) float64
        Radius each begins with; a negative one means the root mean square residual of its start.
    floor, share : float
        A point ends when its radius is at most ``floor``, or ``share`` of its root mean square residual.
    most : int
        Most probes of a point.

    Returns
    -------
    x : (k, L) float64
        Where they end.
    errors : (k,) float64
        Sum of squared residuals of each over its known landmarks.
    """
    after = x.copy()
    errors = np.zeros(slots.size)
    with threads_for(PROBES * slots.size * y.shape[1]):
        _search(read_only(rows), slots, read_only(y), radii, floor, share, most, after, errors)
    return after, errors


def pull_landmarks(rows: Rows, slots: Ints, x: Rows, y: Rows, radius: float) -> Floats:
    """What some points say about moves of the landmarks.

    Parameters
    ----------
    rows, slots
        As in `locate`.
    x : (k, L) ndarray
        Coordinates of the points.
    y : (L, S) ndarray
        Coordinates of the landmarks, of the same type.
    radius : float
        Length of the moves.

    Returns
    -------
    sums : (2 + 3 L, S) float64
        Points known to the landmark; squared residuals; then for each axis the sum of ``u``, and the sums of
        ``t (d' - d)`` for the move up and the move down.
    """
    sums = np.zeros((2 + 3 * y.shape[0], y.shape[1]))
    with threads_for(slots.size * y.shape[1]):
        _pull_landmarks(read_only(rows), slots, x, y, y.dtype.type(radius), sums)
    return sums
