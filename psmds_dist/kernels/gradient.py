"""Error and gradient of rows: ``g_i = sum_{j != i} (1 - t_ij / d_ij) (x_i - x_j)`` of half the row error.

A pair at distance zero has no direction and adds nothing. In two dimensions and in three one loop does it all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.guided import look
from psmds_dist.kernels.jit import borrowing_tile, kernel, read_only, threads_for, tile
from psmds_dist.kernels.moves import TILE, WIDE_TILE, segment


@tile
def pull_2d(t: Rows, x: Rows, y: Rows, x_i: Any, y_i: Any, zero: Any) -> Any:
    """Error and gradient of a point over a tile of columns, two dimensions."""
    error = along = across = zero
    for j in range(t.size):
        u = x_i - x[j]
        v = y_i - y[j]
        distance = np.sqrt(u * u + v * v)
        residual = distance - t[j]
        error += residual * residual
        weight = residual / distance if distance > 0 else zero
        along += weight * u
        across += weight * v
    return error, along, across


@tile
def pull_3d(t: Rows, x: Rows, y: Rows, z: Rows, x_i: Any, y_i: Any, z_i: Any, zero: Any) -> Any:
    """Error and gradient of a point over a tile of columns, three dimensions."""
    error = along = across = up = zero
    for j in range(t.size):
        u = x_i - x[j]
        v = y_i - y[j]
        w = z_i - z[j]
        distance = np.sqrt(u * u + v * v + w * w)
        residual = distance - t[j]
        error += residual * residual
        weight = residual / distance if distance > 0 else zero
        along += weight * u
        across += weight * v
        up += weight * w
    return error, along, across, up


@borrowing_tile
def row_gradient(t: Rows, i: int, x: Rows, axes: Ints, distances: Rows, weights: Rows, gradient: Floats) -> Any:
    """Error of a row; leaves the gradient of its point. ``distances`` holds a row, ``weights`` a tile of it."""
    zero = x[0, 0] - x[0, 0]
    if x.shape[0] not in (2, 3):
        return look(t, i, x, axes, zero, distances, weights, gradient)
    error = 0.0
    gradient[:] = 0
    for lo in range(0, x.shape[1], TILE):
        for part in range(2):
            a, b = segment(lo, min(x.shape[1], lo + TILE), i, part)
            if a == b:
                continue
            if x.shape[0] == 2:
                part_error, along, across = pull_2d(t[a:b], x[0, a:b], x[1, a:b], x[0, i], x[1, i], zero)
            else:
                part_error, along, across, up = pull_3d(
                    t[a:b], x[0, a:b], x[1, a:b], x[2, a:b], x[0, i], x[1, i], x[2, i], zero
                )
                gradient[2] += up
            error += part_error
            gradient[0] += along
            gradient[1] += across
    return error


@kernel
def _row_gradients(rows: Rows, slots: Ints, points: Ints, x: Rows, errors: Floats, gradients: Floats) -> None:
    axes = np.arange(x.shape[0])
    for k in prange(slots.size):
        distances = np.empty(x.shape[1], x.dtype)
        weights = np.empty(WIDE_TILE, x.dtype)
        errors[k] = row_gradient(rows[slots[k]], points[k], x, axes, distances, weights, gradients[k])


def row_gradients(rows: Rows, slots: Ints, points: Ints, x: Rows) -> tuple[Floats, Floats]:
    """Errors of some rows, and the gradients of half of these.

    Parameters
    ----------
    rows, slots, points, x
        As in `psmds_dist.kernels.moves.propose`.

    Returns
    -------
    errors : (k,) float64
        ``sum_{j != i} (t_ij - d_ij)^2``.
    gradients : (k, L) float64
        Derivatives of half of it by the coordinates of the point.
    """
    errors, gradients = np.empty(slots.size), np.empty((slots.size, x.shape[0]))
    with threads_for(slots.size * x.shape[1]):
        _row_gradients(read_only(rows), slots, points, x, errors, gradients)
    return errors, gradients
