"""Kernels for any rule: the cost of a row, what every move of its point changes, and its gradient.

A pair costs ``w loss(c, d)``, where ``c`` is the number between its bounds that is nearest to the distance ``d``: the
dissimilarity itself where there is one. Moving a point changes its row by ``sum_j w_j (loss(c'_j, d'_j) - loss(c_j,
d_j))``; differences are summed, never two large sums. In two dimensions one loop reads a row and does it all, so that
what rows are made of is worked out while square roots are waited for. In others each tile of a row is first unpacked
into bounds and weights. Missing pairs, pairs of weight 0, and the self pair get the weight 0. Types and tiles as in
`psmds_dist.kernels.moves`; the loss and the form of rows are compiled into the loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.forms import alone, apart, pair, reweigh
from psmds_dist.kernels.guided import pull, tilt, turn_downhill
from psmds_dist.kernels.jit import compiled_method, kernel, read_only, threads_for, tile
from psmds_dist.kernels.moves import WIDE_TILE, segment, square_distances


@compiled_method
def cost(self: Any, t: Any, d: Any) -> Any:
    """Cost of a pair by a loss of `psmds_dist.core.losses`."""
    return self.cost(t, d)


@compiled_method
def slope(self: Any, t: Any, d: Any) -> Any:
    """Derivative of the cost by the distance."""
    return self.slope(t, d)


@tile
def nearest(d: Any, low: Any, high: Any) -> Any:
    """Number between two bounds that is nearest to a distance."""
    c = low if d < low else d
    return high if c > high else c


@tile
def held(row: Rows, a: int, b: int, form: Any) -> Any:
    """What a row holds about columns ``a`` to ``b``: lower and upper bounds, and weights."""
    return row[a:b], row[form.upper + a : form.upper + b], row[form.weight + a : form.weight + b]


@tile
def unpack(row: Rows, i: int, lo: int, hi: int, form: Any, scratch: Rows) -> Any:
    """Lower bounds, upper bounds and weights of the pairs of point ``i`` with points ``lo`` to ``hi``.

    They are in the first three tiles of ``scratch``; where bounds are the same, the lower ones are both.
    """
    lower, upper, given = held(row, lo, hi, form)
    low, high, weights = scratch[0, : hi - lo], scratch[int(apart(form)), : hi - lo], scratch[2, : hi - lo]
    # one loop for each array that is filled: a loop over more arrays is not vectorised
    for j in range(lower.size):
        low[j] = pair(form, lower[j], upper[j], given[j])[0]
    if apart(form):
        for j in range(lower.size):
            high[j] = pair(form, lower[j], upper[j], given[j])[1]
    for j in range(lower.size):
        weights[j] = pair(form, lower[j], upper[j], given[j])[2]
    reweigh(form, i, lo, low, weights)
    if lo <= i < hi:
        weights[i - lo] = 0
    return low, high, weights


@tile
def costs_of(loss: Any, low: Rows, high: Rows, weights: Rows, squares: Rows, costs: Rows, zero: Any) -> Any:
    """Costs over a tile, from squared distances, and their sum."""
    error = zero
    for j in range(low.size):
        d = np.sqrt(squares[j])
        costs[j] = weights[j] * cost(loss, nearest(d, low[j], high[j]), d)
        error += costs[j]
    return error


@tile
def axis_gains(
    loss: Any, low: Rows, high: Rows, weights: Rows, line: Rows, centre: Any, squares: Rows, costs: Rows, r: Any
) -> Any:
    """Changes of the cost over a tile for the two moves along an axis."""
    two_r = r + r
    r_squared = r * r
    plus = minus = r - r
    for j in range(low.size):
        u = two_r * (centre - line[j])
        moved = squares[j] + r_squared
        # abs, not max: rounding may leave a tiny negative
        d = np.sqrt(abs(moved + u))
        plus += weights[j] * cost(loss, nearest(d, low[j], high[j]), d) - costs[j]
        d = np.sqrt(abs(moved - u))
        minus += weights[j] * cost(loss, nearest(d, low[j], high[j]), d) - costs[j]
    return plus, minus


@tile
def gains_2d(
    loss: Any, form: Any, lower: Rows, upper: Rows, given: Rows, x: Rows, y: Rows, x_i: Any, y_i: Any, r: Any
) -> Any:
    """Cost and its changes for the four moves of a point over a tile: two dimensions in one loop."""
    two_r = r + r
    r_squared = r * r
    error = east = west = north = south = r - r
    for j in range(lower.size):
        t, s, w = pair(form, lower[j], upper[j], given[j])
        u = x_i - x[j]
        v = y_i - y[j]
        square = u * u + v * v
        d = np.sqrt(square)
        before = cost(loss, nearest(d, t, s), d)
        moved = square + r_squared
        u = two_r * u
        v = two_r * v
        error += w * before
        d = np.sqrt(abs(moved + u))
        east += w * (cost(loss, nearest(d, t, s), d) - before)
        d = np.sqrt(abs(moved - u))
        west += w * (cost(loss, nearest(d, t, s), d) - before)
        d = np.sqrt(abs(moved + v))
        north += w * (cost(loss, nearest(d, t, s), d) - before)
        d = np.sqrt(abs(moved - v))
        south += w * (cost(loss, nearest(d, t, s), d) - before)
    return error, east, west, north, south


@tile
def point_gains_2d(row: Rows, x: Rows, i: int, r: Any, loss: Any, form: Any, gains: Floats) -> Any:
    """Cost of a row, and the gains of the four moves of its point, two dimensions."""
    n = x.shape[1]
    error = 0.0
    for lo in range(0, n, WIDE_TILE):
        for part in range(2):
            a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
            if a < b:
                lower, upper, given = held(row, a, b, form)
                part_error, east, west, north, south = gains_2d(
                    loss, form, lower, upper, given, x[0, a:b], x[1, a:b], x[0, i], x[1, i], r
                )
                error += part_error
                gains[0] += east
                gains[1] += west
                gains[2] += north
                gains[3] += south
    return error


@tile
def point_gains(
    row: Rows, x: Rows, i: int, r: Any, axes: Ints, loss: Any, form: Any, scratch: Rows, gains: Floats
) -> Any:
    """Cost of a row; leaves the ``gains`` of the moves of its point, as `psmds_dist.kernels.moves.propose` orders them.

    ``scratch`` holds five tiles.
    """
    n = x.shape[1]
    gains[:] = 0
    if x.shape[0] == 2 and axes.size == 2 and alone(form):
        return point_gains_2d(row, x, i, r, loss, form, gains)
    error = 0.0
    for lo in range(0, n, WIDE_TILE):
        hi = min(n, lo + WIDE_TILE)
        low, high, weights = unpack(row, i, lo, hi, form, scratch)
        squares, costs = scratch[3, : hi - lo], scratch[4, : hi - lo]
        square_distances(x, i, lo, hi, squares)
        error += costs_of(loss, low, high, weights, squares, costs, r - r)
        for m in range(axes.size):
            line, centre = x[axes[m], lo:hi], x[axes[m], i]
            plus, minus = axis_gains(loss, low, high, weights, line, centre, squares, costs, r)
            gains[2 * m] += plus
            gains[2 * m + 1] += minus
    return error


@kernel
def _propose(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Rows,
    r: Any,
    axes: Ints,
    loss: Any,
    form: Any,
    errors: Floats,
    gains: Floats,
) -> None:
    for k in prange(slots.size):
        scratch = np.empty((5, WIDE_TILE), x.dtype)
        errors[k] = point_gains(rows[slots[k]], x, points[k], r, axes, loss, form, scratch, gains[k])


def propose(
    rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints, loss: Any, form: Any
) -> tuple[Floats, Floats]:
    """Row costs and the gain of every candidate move of some points.

    Parameters
    ----------
    rows : (m, k n) float32 or float64
        Dissimilarities, or bounds, and weights, as ``form`` says.
    slots, points, x, radius, axes
        As in `psmds_dist.kernels.moves.propose`.
    loss : named tuple
        A loss of `psmds_dist.core.losses`, its unit of the type of ``x``.
    form : named tuple
        What a row holds, see `psmds_dist.kernels.forms`.

    Returns
    -------
    errors : (k,) float64
        ``sum_j w_ij loss(t_ij, d_ij)``.
    gains : (k, 2 a) float64
        Change of that sum, as in `psmds_dist.kernels.moves.propose`.
    """
    errors, gains = np.empty(slots.size), np.empty((slots.size, 2 * axes.size))
    with threads_for(slots.size * x.shape[1]):
        _propose(read_only(rows), slots, points, x, x.dtype.type(radius), axes, loss, form, errors, gains)
    return errors, gains


@tile
def costs_and_pulls(loss: Any, low: Rows, high: Rows, weights: Rows, squares: Rows, pulls: Rows, zero: Any) -> Any:
    """Cost over a tile, from squared distances; leaves each pair's weight in the gradient of half of it."""
    error = zero
    for j in range(low.size):
        d = np.sqrt(squares[j])
        c = nearest(d, low[j], high[j])
        error += weights[j] * cost(loss, c, d)
        bend = weights[j] * slope(loss, c, d)
        pulls[j] = bend / (d + d) if d > 0 else zero  # coincident points: no direction
    return error


@tile
def gradient_2d(
    loss: Any, form: Any, lower: Rows, upper: Rows, given: Rows, x: Rows, y: Rows, x_i: Any, y_i: Any, zero: Any
) -> Any:
    """Cost over a tile, and the gradient of half of it: two dimensions in one loop."""
    error = along = across = zero
    for j in range(lower.size):
        t, s, w = pair(form, lower[j], upper[j], given[j])
        u = x_i - x[j]
        v = y_i - y[j]
        d = np.sqrt(u * u + v * v)
        c = nearest(d, t, s)
        error += w * cost(loss, c, d)
        bend = w * slope(loss, c, d) / (d + d) if d > 0 else zero
        along += bend * u
        across += bend * v
    return error, along, across


@tile
def point_gradient_2d(row: Rows, x: Rows, i: int, loss: Any, form: Any, gradient: Floats) -> Any:
    """Cost of a row, and the gradient of half of it, two dimensions."""
    n = x.shape[1]
    zero = x[0, 0] - x[0, 0]
    error = 0.0
    for lo in range(0, n, WIDE_TILE):
        for part in range(2):
            a, b = segment(lo, min(n, lo + WIDE_TILE), i, part)
            if a < b:
                lower, upper, given = held(row, a, b, form)
                part_error, along, across = gradient_2d(
                    loss, form, lower, upper, given, x[0, a:b], x[1, a:b], x[0, i], x[1, i], zero
                )
                error += part_error
                gradient[0] += along
                gradient[1] += across
    return error


@tile
def point_gradient(
    row: Rows, x: Rows, i: int, axes: Ints, loss: Any, form: Any, scratch: Rows, gradient: Floats
) -> Any:
    """Cost of a row; leaves the gradient of half of it along ``axes``. ``scratch`` holds five tiles."""
    n = x.shape[1]
    gradient[:] = 0
    if x.shape[0] == 2 and axes.size == 2 and alone(form):
        return point_gradient_2d(row, x, i, loss, form, gradient)
    zero = x[0, 0] - x[0, 0]
    error = 0.0
    for lo in range(0, n, WIDE_TILE):
        hi = min(n, lo + WIDE_TILE)
        low, high, weights = unpack(row, i, lo, hi, form, scratch)
        squares, pulls = scratch[3, : hi - lo], scratch[4, : hi - lo]
        square_distances(x, i, lo, hi, squares)
        error += costs_and_pulls(loss, low, high, weights, squares, pulls, zero)
        for m in range(0, axes.size, 2):  # two axes a sweep; an odd one with itself
            last = min(m + 1, axes.size - 1)
            p, q = axes[m], axes[last]
            along, across = pull(pulls, x[p, lo:hi], x[q, lo:hi], x[p, i], x[q, i], zero)
            gradient[m] += along
            if last > m:
                gradient[last] += across
    return error


@kernel
def _row_gradients(
    rows: Rows, slots: Ints, points: Ints, x: Rows, loss: Any, form: Any, errors: Floats, gradients: Floats
) -> None:
    axes = np.arange(x.shape[0])
    for k in prange(slots.size):
        scratch = np.empty((5, WIDE_TILE), x.dtype)
        errors[k] = point_gradient(rows[slots[k]], x, points[k], axes, loss, form, scratch, gradients[k])


def row_gradients(rows: Rows, slots: Ints, points: Ints, x: Rows, loss: Any, form: Any) -> tuple[Floats, Floats]:
    """Costs of some rows, and the gradients of half of these; arguments as in `propose`.

    Returns
    -------
    errors : (k,) float64
        ``sum_j w_ij loss(t_ij, d_ij)``.
    gradients : (k, L) float64
        Derivatives of half of it by the coordinates of the point.
    """
    errors, gradients = np.empty(slots.size), np.empty((slots.size, x.shape[0]))
    with threads_for(slots.size * x.shape[1]):
        _row_gradients(read_only(rows), slots, points, x, loss, form, errors, gradients)
    return errors, gradients


@tile
def step_change(
    loss: Any, low: Rows, high: Rows, weights: Rows, squares: Rows, slopes: Rows, step: Any, square: Any, zero: Any
) -> Any:
    """Change of the cost over a tile for a step along the slopes, whose squared length is ``square``."""
    twice = step + step
    total = zero
    for j in range(low.size):
        before = np.sqrt(squares[j])
        after = np.sqrt(abs(squares[j] + square + twice * slopes[j]))
        change = cost(loss, nearest(after, low[j], high[j]), after)
        total += weights[j] * (change - cost(loss, nearest(before, low[j], high[j]), before))
    return total


@tile
def try_step(
    row: Rows, x: Rows, i: int, slopes: Rows, step: Any, square: Any, loss: Any, form: Any, scratch: Rows
) -> Any:
    """Change of the cost of a row for a step along the slopes."""
    n = x.shape[1]
    total = 0.0
    for lo in range(0, n, WIDE_TILE):
        hi = min(n, lo + WIDE_TILE)
        low, high, weights = unpack(row, i, lo, hi, form, scratch)
        squares = scratch[3, : hi - lo]
        square_distances(x, i, lo, hi, squares)
        total += step_change(loss, low, high, weights, squares, slopes[lo:hi], step, square, step - step)
    return total


@tile
def better_step(
    row: Rows,
    x: Rows,
    i: int,
    slopes: Rows,
    r: Any,
    length: Any,
    loss: Any,
    form: Any,
    scratch: Rows,
    direction: Rows,
) -> Any:
    """Length and gain of the better of two steps, the second at the bottom of a parabola through the first."""
    best = gain = unit = 0.0
    for m in range(direction.size):
        unit += np.float64(direction[m]) ** 2
    tried = scratch[4]
    tried[0] = r
    for attempt in range(2):
        s = np.float64(tried[0])
        tried[1] = s * s * unit
        found = try_step(row, x, i, slopes, tried[0], tried[1], loss, form, scratch)
        if attempt == 0 or found < gain:
            best, gain = s, found
        bend = found + 2 * length * s
        if attempt == 1 or not bend > length * s:
            break
        tried[0] = length * s * s / bend
    return best, gain


@kernel
def _guide(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Rows,
    r: Any,
    axes: Ints,
    loss: Any,
    form: Any,
    errors: Floats,
    gains: Floats,
    steps: Rows,
) -> None:
    for k in prange(slots.size):
        row = rows[slots[k]]
        i = points[k]
        slopes = np.empty(x.shape[1], x.dtype)
        scratch = np.empty((5, WIDE_TILE), x.dtype)
        gradient = np.empty(axes.size)
        errors[k] = point_gradient(row, x, i, axes, loss, form, scratch, gradient)
        gains[k] = 0
        length = turn_downhill(gradient, steps[k])
        if length > 0:
            tilt(i, x, axes, steps[k], slopes)
            best, gains[k] = better_step(row, x, i, slopes, r, length, loss, form, scratch, steps[k])
            for m in range(axes.size):
                steps[k, m] *= best


def guide(
    rows: Rows, slots: Ints, points: Ints, x: Rows, radius: float, axes: Ints, loss: Any, form: Any
) -> tuple[Rows, Floats, Floats]:
    """Row costs and, for some points, the better of two steps against the gradient.

    Arguments as in `propose`, returns as `psmds_dist.kernels.guided.guide`.
    """
    errors, gains = np.empty(slots.size), np.empty(slots.size)
    steps = np.empty((slots.size, axes.size), x.dtype)
    with threads_for(slots.size * x.shape[1]):
        _guide(read_only(rows), slots, points, x, x.dtype.type(radius), axes, loss, form, errors, gains, steps)
    return steps, gains, errors


@tile
def _tile_sums(loss: Any, low: Rows, high: Rows, weights: Rows, squares: Rows, zero: Any, out: Floats) -> None:
    objective = embedded = told = error = total = zero
    for j in range(low.size):
        w = weights[j]
        d = np.sqrt(squares[j])
        c = nearest(d, low[j], high[j])
        objective += w * cost(loss, c, d)
        embedded += w * squares[j]
        told += w * (c * c)
        error += w * ((c - d) * (c - d))
        total += w
    out[0] += objective
    out[1] += embedded
    out[2] += told
    out[3] += error
    out[4] += total


@kernel
def _row_sums(rows: Rows, slots: Ints, points: Ints, x: Rows, loss: Any, form: Any, out: Floats) -> None:
    n = x.shape[1]
    for k in prange(slots.size):
        scratch = np.empty((4, WIDE_TILE), x.dtype)
        out[k] = 0.0
        for lo in range(0, n, WIDE_TILE):
            hi = min(n, lo + WIDE_TILE)
            low, high, weights = unpack(rows[slots[k]], points[k], lo, hi, form, scratch)
            squares = scratch[3, : hi - lo]
            square_distances(x, points[k], lo, hi, squares)
            _tile_sums(loss, low, high, weights, squares, x[0, 0] - x[0, 0], out[k])


def row_sums(rows: Rows, slots: Ints, points: Ints, x: Floats, loss: Any, form: Any) -> Floats:
    """Sums over the pairs of each row, ``(k, 5)``; arguments as in `propose`, with float64 coordinates.

    Sums of ``w loss(t, d)``, ``w d^2``, ``w t^2``, ``w (t - d)^2`` and ``w``, where ``t`` is the number between the
    bounds that is nearest to ``d``.
    """
    out = np.empty((slots.size, 5))
    with threads_for(slots.size * x.shape[1]):
        _row_sums(read_only(rows), slots, points, x, loss, form, out)
    return out
