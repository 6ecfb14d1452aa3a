"""Whole solves of small matrices, one start a thread: the paper's pattern search, point after point.

A matrix that fits the caches leaves nothing to share inside an epoch, so threads share the starts instead. Each point
moves at once, along the axis that lowers its error most, even where none does; an epoch that gains little halves the
radius. Once moves are small beside the residuals, sweeps of majorization settle the map: a point goes where its pairs
pull it, ``x_i - relaxation * g_i / (n - 1)`` with ``g_i`` the gradient of half its error, which lowers the error for
any relaxation below 2 (de Leeuw 1977, for one point at a time).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.gradient import row_gradient
from psmds_dist.kernels.jit import borrowing_tile, kernel, tile
from psmds_dist.kernels.loss import point_gains, point_gradient
from psmds_dist.kernels.moves import WIDE_TILE, tile_2d, tile_3d, tile_any


@borrowing_tile
def row_gains(
    t: Rows, x: Rows, i: int, axes: Ints, r: Any, sums: Floats, squares: Rows, distances: Rows, gains: Floats
) -> Any:
    """Error of a row whose own entry is zero; ``gains`` of the moves of its point, as `moves.propose` orders them."""
    n = x.shape[1]
    gains[:] = 0
    error = 0.0
    if x.shape[0] == 2:
        error, gains[0], gains[1], gains[2], gains[3] = tile_2d(t, x[0], x[1], x[0, i], x[1, i], r)
    elif x.shape[0] == 3:
        error, gains[0], gains[1], gains[2], gains[3], gains[4], gains[5] = tile_3d(
            t, x[0], x[1], x[2], x[0, i], x[1, i], x[2, i], r
        )
    else:
        for lo in range(0, n, WIDE_TILE):
            hi = min(n, lo + WIDE_TILE)
            error += tile_any(t[lo:hi], x, i, lo, hi, axes, r, squares, distances, gains)
    step = np.float64(r)
    constant = (n - 1) * step * step
    for axis in range(x.shape[0]):
        u = 2 * step * (n * np.float64(x[axis, i]) - sums[axis])
        gains[2 * axis] = constant + u - 2 * gains[2 * axis]
        gains[2 * axis + 1] = constant - u - 2 * gains[2 * axis + 1]
    return error


@borrowing_tile
def search_epoch(
    rows: Rows, x: Rows, order: Ints, axes: Ints, r: Any, sums: Floats, squares: Rows, distances: Rows, gains: Floats
) -> Any:
    """Let every point take its best move in turn; return the error as the points met it."""
    sums[:] = 0
    for axis in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[axis] += x[axis, j]
    total = 0.0
    for i in order:
        total += row_gains(rows[i], x, i, axes, r, sums, squares, distances, gains)
        best = gains.argmin()
        step = r if best % 2 == 0 else -r
        x[best // 2, i] += step
        sums[best // 2] += step
    return total


@borrowing_tile
def pull_epoch(
    rows: Rows, x: Rows, order: Ints, axes: Ints, pull: Any, weights: Rows, distances: Rows, gradient: Floats
) -> Any:
    """Let every point go in turn where its pairs pull it; return the error as the points met it."""
    total = 0.0
    for i in order:
        total += row_gradient(rows[i], i, x, axes, distances, weights, gradient)
        for axis in range(x.shape[0]):
            x[axis, i] -= pull * gradient[axis]
    return total


@kernel
def descend(
    rows: Rows,
    x: Rows,
    orders: Ints,
    radii: Rows,
    eps: float,
    end: Any,
    settled: float,
    max_epochs: int,
    sweeps: int,
    pull: Any,
    errors: Floats,
) -> None:
    """Descend from several starts to maps.

    Parameters
    ----------
    rows : (n, n) float32
        Dissimilarities with a zero diagonal.
    x : (m, L, n) float32
        Starts, which the maps replace.
    orders : (m, n) int64
        Order in which each start visits the points.
    radii : (m,) float32
        First radius of each.
    eps : float
        The radius halves when an epoch lowers the error by at most this share of it.
    end : float32
        The search ends when the radius comes down to this,
    settled : float
        or to this share of the root mean square residual.
    max_epochs : int
        Most epochs of a search.
    sweeps : int
        Epochs of majorization after it.
    pull : float32
        Step of these, as a share of the gradient: ``relaxation / (n - 1)``.
    errors : (m,) float64
        Sum of squared residuals over ordered pairs, as the points met it in the last epoch.
    """
    starts, dims, n = x.shape
    axes = np.arange(dims)
    for k in prange(starts):
        squares = np.empty(WIDE_TILE, x.dtype)
        distances = np.empty(max(n, WIDE_TILE), x.dtype)
        gains, sums = np.empty(2 * dims), np.empty(dims)
        r = radii[k]
        before = np.inf
        for _ in range(max_epochs):
            error = search_epoch(rows, x[k], orders[k], axes, r, sums, squares, distances, gains)
            if not before - error > eps * error:
                r = r * np.float32(0.5)
                if r <= end or r <= settled * np.sqrt(error) / n:
                    break
            before = error
        error = before
        for _ in range(sweeps):
            error = pull_epoch(rows, x[k], orders[k], axes, pull, squares, distances, gains[:dims])
        errors[k] = error


@tile
def rule_search_epoch(
    rows: Rows, x: Rows, order: Ints, axes: Ints, r: Any, loss: Any, form: Any, scratch: Rows, gains: Floats
) -> Any:
    """`search_epoch` by any rule."""
    total = 0.0
    for i in order:
        total += point_gains(rows[i], x, i, r, axes, loss, form, scratch, gains)
        best = gains.argmin()
        x[best // 2, i] += r if best % 2 == 0 else -r
    return total


@tile
def rule_pull_epoch(
    rows: Rows,
    x: Rows,
    order: Ints,
    axes: Ints,
    pulls: Rows,
    loss: Any,
    form: Any,
    scratch: Rows,
    gradient: Floats,
) -> Any:
    """`pull_epoch` by any rule; each point has a step of its own."""
    total = 0.0
    for i in order:
        total += point_gradient(rows[i], x, i, axes, loss, form, scratch, gradient)
        for axis in range(x.shape[0]):
            x[axis, i] -= pulls[i] * gradient[axis]
    return total


@kernel
def search_by_rule(
    rows: Rows,
    x: Rows,
    orders: Ints,
    radii: Rows,
    eps: float,
    end: Any,
    settled: float,
    max_epochs: int,
    loss: Any,
    form: Any,
    errors: Floats,
) -> None:
    """Descend from several starts along axes, by any rule.

    Arguments as in `descend`, but for these.

    Parameters
    ----------
    rows : (n, k n) float32
        Dissimilarities, or bounds, and weights, as ``form`` says.
    settled : float
        The search ends when the radius comes down to this multiple of the root of the error.
    loss, form
        As in `psmds_dist.kernels.loss.propose`.
    """
    axes = np.arange(x.shape[1])
    for k in prange(x.shape[0]):
        scratch = np.empty((5, WIDE_TILE), x.dtype)
        gains = np.empty(2 * axes.size)
        r = radii[k]
        errors[k] = np.inf
        for _ in range(max_epochs):
            error = rule_search_epoch(rows, x[k], orders[k], axes, r, loss, form, scratch, gains)
            if not errors[k] - error > eps * error:
                r = r * np.float32(0.5)
                if r <= end or r <= settled * np.sqrt(error):
                    break
            errors[k] = error


@kernel
def settle_by_rule(
    rows: Rows, x: Rows, orders: Ints, sweeps: int, pulls: Rows, loss: Any, form: Any, errors: Floats
) -> None:
    """Settle maps by sweeps of majorization, where the loss is the squared error.

    Arguments as in `search_by_rule`, and ``pulls``, the step of each point as a share of its gradient: ``relaxation /
    sum_j w_ij``.
    """
    axes = np.arange(x.shape[1])
    for k in prange(x.shape[0]):
        scratch = np.empty((5, WIDE_TILE), x.dtype)
        gradient = np.empty(axes.size)
        for _ in range(sweeps):
            errors[k] = rule_pull_epoch(rows, x[k], orders[k], axes, pulls, loss, form, scratch, gradient)
