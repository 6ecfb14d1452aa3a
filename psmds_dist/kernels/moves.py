"""Kernels over rows: one pass gives a row's error and the gain of every candidate move, or its exact sums.

Moving ``x_i`` by ``s = +-r`` along axis ``l`` changes the row error ``sum_j (t_ij - d_ij)^2`` by::

    sum_{j != i} [ (r^2 +- 2 r u_jl) - 2 t_ij ( sqrt(d_ij^2 + r^2 +- 2 r u_jl) - d_ij ) ],  u_jl = x_il - x_jl

The first part is closed form in ``sum_j u_jl``; only the roots cost. Differences of roots are summed, never two
large sums: lanes in the type of the coordinates, totals in float64 after each tile of columns. The self pair is
cut out of its tile, so whatever stands on the diagonal plays no part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile

TILE = 2048
"""Columns a float32 partial sum spans before it is added to a float64 total."""

WIDE_TILE = 1024
"""The same for any number of dimensions, where scratch and coordinates must stay in the first caches."""


@tile
def tile_2d(t: Rows, x: Rows, y: Rows, x_i: Any, y_i: Any, r: Any) -> Any:
    """Error and sums of ``t (d' - d)`` for the four moves of a point, over a tile of columns."""
    two_r = r + r
    r_squared = r * r
    error = east = west = north = south = r - r
    for j in range(t.size):
        u = x_i - x[j]
        v = y_i - y[j]
        target = t[j]
        square = u * u + v * v
        distance = np.sqrt(square)
        moved = square + r_squared
        u = two_r * u
        v = two_r * v
        residual = target - distance
        error += residual * residual
        # abs, not max: rounding may leave a tiny negative, and max would stop vectorisation
        east += target * (np.sqrt(abs(moved + u)) - distance)
        west += target * (np.sqrt(abs(moved - u)) - distance)
        north += target * (np.sqrt(abs(moved + v)) - distance)
        south += target * (np.sqrt(abs(moved - v)) - distance)
    return error, east, west, north, south


@tile
def tile_3d(t: Rows, x: Rows, y: Rows, z: Rows, x_i: Any, y_i: Any, z_i: Any, r: Any) -> Any:
    """The same for the six moves in three dimensions."""
    two_r = r + r
    r_squared = r * r
    error = east = west = north = south = up = down = r - r
    for j in range(t.size):
        u = x_i - x[j]
        v = y_i - y[j]
        w = z_i - z[j]
        target = t[j]
        square = u * u + v * v + w * w
        distance = np.sqrt(square)
        moved = square + r_squared
        u = two_r * u
        v = two_r * v
        w = two_r * w
        residual = target - distance
        error += residual * residual
        east += target * (np.sqrt(abs(moved + u)) - distance)
        west += target * (np.sqrt(abs(moved - u)) - distance)
        north += target * (np.sqrt(abs(moved + v)) - distance)
        south += target * (np.sqrt(abs(moved - v)) - distance)
        up += target * (np.sqrt(abs(moved + w)) - distance)
        down += target * (np.sqrt(abs(moved - w)) - distance)
    return error, east, west, north, south, up, down


@tile
def square_distances(x: Rows, i: int, a: int, b: int, squares: Rows) -> None:
    """Squared distances from point ``i`` to points ``a`` to ``b``; two axes a sweep, for half the traffic."""
    squares[:] = 0
    paired = x.shape[0] - x.shape[0] % 2
    for axis in range(0, paired, 2):
        centre, other_centre = x[axis, i], x[axis + 1, i]
        line, other_line = x[axis, a:b], x[axis + 1, a:b]  # a two-dimensional slice would hide their unit stride
        for j in range(line.size):
            u = centre - line[j]
            v = other_centre - other_line[j]
            squares[j] += u * u + v * v
    for axis in range(paired, x.shape[0]):
        centre, line = x[axis, i], x[axis, a:b]
        for j in range(line.size):
            u = centre - line[j]
            squares[j] += u * u


@tile
def first_axis(t: Rows, line: Rows, centre: Any, squares: Rows, distances: Rows, r: Any) -> Any:
    """Error over a tile and sums of ``t (d' - d)`` for the two moves along one axis.

    Leaves distances, and squares that a move of length ``r`` is added to, for the other axes. The row comes from
    memory here, behind three roots a pair: one alone would wait for it.
    """
    two_r = r + r
    r_squared = r * r
    error = plus = minus = r - r
    for j in range(t.size):
        u = two_r * (centre - line[j])
        distance = np.sqrt(squares[j])
        moved = squares[j] + r_squared
        residual = t[j] - distance
        error += residual * residual
        plus += t[j] * (np.sqrt(abs(moved + u)) - distance)
        minus += t[j] * (np.sqrt(abs(moved - u)) - distance)
        distances[j] = distance
        squares[j] = moved
    return error, plus, minus


@tile
def next_axis(t: Rows, line: Rows, centre: Any, moved: Rows, distances: Rows, r: Any) -> Any:
    """Sums of ``t (d' - d)`` for the two moves along another axis."""
    two_r = r + r
    plus = minus = r - r
    for j in range(t.size):
        u = two_r * (centre - line[j])
        plus += t[j] * (np.sqrt(abs(moved[j] + u)) - distances[j])
        minus += t[j] * (np.sqrt(abs(moved[j] - u)) - distances[j])
    return plus, minus


@tile
def tile_any(
    t: Rows, x: Rows, i: int, a: int, b: int, axes: Ints, r: Any, squares: Rows, distances: Rows, gains: Floats
) -> Any:
    """Error over columns ``a`` to ``b``; adds the sums of ``t (d' - d)`` for the moves along ``axes`` to ``gains``.

    ``squares`` and ``distances`` are scratch, long enough for any tile.
    """
    square, distance = squares[: b - a], distances[: b - a]
    square_distances(x, i, a, b, square)
    first = axes[0]
    error, plus, minus = first_axis(t, x[first, a:b], x[first, i], square, distance, r)
    gains[0] += plus
    gains[1] += minus
    for m in range(1, axes.size):
        axis = axes[m]
        plus, minus = next_axis(t, x[axis, a:b], x[axis, i], square, distance, r)
        gains[2 * m] += plus
        gains[2 * m + 1] += minus
    return error


@tile
def segment(lo: int, hi: int, i: int, part: int) -> Any:
    """Columns of a tile left (part 0) or right (part 1) of the self pair; one of them is empty in most tiles."""
    if part == 0:
        return lo, min(hi, i)
    return max(lo, i + 1), hi


@kernel
def propose_2d(
    rows: Rows, slots: Ints, points: Ints, x: Rows, sums: Floats, r: Any, errors: Floats, gains: Floats
) -> None:
    """Errors and the four gains of each point, two dimensions."""
    n = x.shape[1]
    for k in prange(slots.size):
        slot = slots[k]
        i = points[k]
        error = east = west = north = south = 0.0
        for lo in range(0, n, TILE):
            for part in range(2):
                a, b = segment(lo, min(n, lo + TILE), i, part)
                if a < b:
                    part_error, e, w, n_, s = tile_2d(rows[slot, a:b], x[0, a:b], x[1, a:b], x[0, i], x[1, i], r)
                    error += part_error
                    east += e
                    west += w
                    north += n_
                    south += s
        step = np.float64(r)
        constant = (n - 1) * step * step
        u = 2 * step * (n * np.float64(x[0, i]) - sums[0])
        v = 2 * step * (n * np.float64(x[1, i]) - sums[1])
        errors[k] = error
        gains[k, 0] = constant + u - 2 * east
        gains[k, 1] = constant - u - 2 * west
        gains[k, 2] = constant + v - 2 * north
        gains[k, 3] = constant - v - 2 * south


@kernel
def propose_3d(
    rows: Rows, slots: Ints, points: Ints, x: Rows, sums: Floats, r: Any, errors: Floats, gains: Floats
) -> None:
    """Errors and the six gains of each point, three dimensions."""
    n = x.shape[1]
    for k in prange(slots.size):
        slot = slots[k]
        i = points[k]
        error = east = west = north = south = up = down = 0.0
        for lo in range(0, n, TILE):
            for part in range(2):
                a, b = segment(lo, min(n, lo + TILE), i, part)
                if a < b:
                    part_error, e, w, n_, s, p, d = tile_3d(
                        rows[slot, a:b], x[0, a:b], x[1, a:b], x[2, a:b], x[0, i], x[1, i], x[2, i], r
                    )
                    error += part_error
                    east += e
                    west += w
                    north += n_
                    south += s
                    up += p
                    down += d
        step = np.float64(r)
        constant = (n - 1) * step * step
        u = 2 * step * (n * np.float64(x[0, i]) - sums[0])
        v = 2 * step * (n * np.float64(x[1, i]) - sums[1])
        w_ = 2 * step * (n * np.float64(x[2, i]) - sums[2])
        errors[k] = error
        gains[k, 0] = constant + u - 2 * east
        gains[k, 1] = constant - u - 2 * west
        gains[k, 2] = constant + v - 2 * north
        gains[k, 3] = constant - v - 2 * south
        gains[k, 4] = constant + w_ - 2 * up
        gains[k, 5] = constant - w_ - 2 * down


@kernel
def propose_any(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Rows,
    sums: Floats,
    r: Any,
    axes: Ints,
    errors: Floats,
    gains: Floats,
) -> None:
    """Errors and the gains along ``axes`` of each point, any number of dimensions."""
    n = x.shape[1]
    for k in prange(slots.size):
        slot = slots[k]
        i = points[k]
        squares = np.empty(WIDE_TILE, x.dtype)
        distances = np.empty(WIDE_TILE, x.dtype)
        error = 0.0
        gains[k] = 0.0
        for lo in range(0, n, WIDE_TILE):
            for part in range(2):
                a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
                if a < b:
                    error += tile_any(rows[slot, a:b], x, i, a, b, axes, r, squares, distances, gains[k])
        step = np.float64(r)
        constant = (n - 1) * step * step
        errors[k] = error
        for m in range(axes.size):
            u = 2 * step * (n * np.float64(x[axes[m], i]) - sums[axes[m]])
            gains[k, 2 * m] = constant + u - 2 * gains[k, 2 * m]
            gains[k, 2 * m + 1] = constant - u - 2 * gains[k, 2 * m + 1]


@tile
def _tile_sums(t: Rows, squares: Rows) -> Any:
    error = embedded = given = 0.0
    for j in range(t.size):
        target = np.float64(t[j])
        residual = target - np.sqrt(squares[j])
        error += residual * residual
        embedded += squares[j]
        given += target * target
    return error, embedded, given


@kernel
def _row_sums(rows: Rows, slots: Ints, points: Ints, x: Rows, out: Floats) -> None:
    n = x.shape[1]
    for k in prange(slots.size):
        slot = slots[k]
        i = points[k]
        squares = np.empty(WIDE_TILE, x.dtype)
        out[k] = 0.0
        for lo in range(0, n, WIDE_TILE):
            for part in range(2):
                a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
                if a < b:
                    square_distances(x, i, a, b, squares[: b - a])
                    error, embedded, given = _tile_sums(rows[slot, a:b], squares[: b - a])
                    out[k, 0] += error
                    out[k, 1] += embedded
                    out[k, 2] += given


_SPECIALISED = {2: propose_2d, 3: propose_3d}


def propose(rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints) -> tuple[Floats, Floats]:
    """Row errors and the gain of every candidate move of some points.

    Parameters
    ----------
    rows : (m, n) float32 or float64
        Dissimilarities, C-contiguous; row ``slots[k]`` belongs to point ``points[k]``.
    slots, points : (k,) int64
        Where the rows are and whose they are.
    x : (L, n) float32 or float64
        Coordinates, one axis a line; its type is the type of the arithmetic.
    radius : float
        Length of the moves.
    axes : (a,) int64
        Axes to try, both ways.

    Returns
    -------
    errors : (k,) float64
        ``sum_{j != i} (t_ij - d_ij)^2``.
    gains : (k, 2 a) float64
        Change of that sum under ``+radius`` and ``-radius`` along each axis, in the order + - + - ...;
        negative is better.
    """
    errors = np.empty(slots.size)
    gains = np.empty((slots.size, 2 * axes.size))
    sums = x.sum(axis=1, dtype=np.float64)
    r = x.dtype.type(radius)
    specialised = _SPECIALISED.get(x.shape[0])
    with threads_for(slots.size * x.shape[1]):
        if specialised is not None and axes.tolist() == list(range(x.shape[0])):
            specialised(read_only(rows), slots, points, x, sums, r, errors, gains)
        else:
            propose_any(read_only(rows), slots, points, x, sums, r, axes, errors, gains)
    return errors, gains


def row_sums(rows: Rows, slots: Ints, points: Ints, x: Floats) -> Floats:
    """Sums over ``j != i`` of ``(t_ij - d_ij)^2``, ``d_ij^2`` and ``t_ij^2``, as a ``(k, 3)`` array.

    Arguments as in `propose`, with float64 coordinates.
    """
    out = np.empty((slots.size, 3))
    with threads_for(slots.size * x.shape[1]):
        _row_sums(read_only(rows), slots, points, x, out)
    return out
