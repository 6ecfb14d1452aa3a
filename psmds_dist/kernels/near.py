"""Kernel of near pairs: how far each point reaches to its nearest ones, and what its pairs cost in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile
from psmds_dist.kernels.loss import cost, unpack
from psmds_dist.kernels.moves import WIDE_TILE


@tile
def _keep_lowest(values: Rows, weights: Rows, lowest: Rows) -> None:
    """Take values of positive weight among the lowest ones so far, ascending."""
    last = lowest.size - 1
    for j in range(values.size):
        value = values[j]
        if weights[j] > 0 and value < lowest[last]:
            k = last
            while k > 0 and lowest[k - 1] > value:
                lowest[k] = lowest[k - 1]
                k -= 1
            lowest[k] = value


@tile
def _costs_in_one_place(loss: Any, t: Rows, weights: Rows, reach: Any, zero: Any, out: Floats) -> None:
    every = near = 0.0
    for j in range(t.size):
        costs = weights[j] * cost(loss, t[j], zero)
        every += costs
        near += costs if t[j] <= reach else zero
    out[0] += every
    out[1] += near


@kernel
def _reaches(
    rows: Rows, slots: Ints, points: Ints, n: int, slack: float, loss: Any, form: Any, lowest: Rows, out: Floats
) -> None:
    for k in prange(slots.size):
        row, i, scratch = rows[slots[k]], points[k], np.empty((5, WIDE_TILE))
        for lo in range(0, n, WIDE_TILE):
            t, _, weights = unpack(row, i, lo, min(n, lo + WIDE_TILE), form, scratch)
            _keep_lowest(t, weights, lowest[k])
        last = lowest.shape[1] - 1
        lowest[k, last] *= slack  # rounded to the type of the rows
        out[k] = 0.0
        for lo in range(0, n, WIDE_TILE):
            t, _, weights = unpack(row, i, lo, min(n, lo + WIDE_TILE), form, scratch)
            _costs_in_one_place(loss, t, weights, lowest[k, last], 0.0, out[k])


def reaches(
    rows: Rows, slots: Ints, points: Ints, n: int, count: int, slack: float, loss: Any, form: Any
) -> tuple[Rows, Floats]:
    """How far some points reach, and what their rows cost with all points in one place.

    Parameters
    ----------
    rows, slots, points, loss, form
        As in `psmds_dist.kernels.loss.propose`, for float64 arithmetic.
    n : int
        Points of the matrix.
    count : int
        How many points are near to each.
    slack : float
        Share by which the reach is longer than the dissimilarity of the last of these.

    Returns
    -------
    reach : (k,) ndarray
        Of the type of the rows; infinite where fewer than ``count`` others are known.
    costs : (k, 2) float64
        ``sum_j w_ij loss(t_ij, 0)`` over all pairs, and over those within the reach.
    """
    lowest, costs = np.full((slots.size, count), np.inf, rows.dtype), np.empty((slots.size, 2))
    with threads_for(slots.size * n):
        _reaches(read_only(rows), slots, points, n, 1 + slack, loss, form, lowest, costs)
    return np.ascontiguousarray(lowest[:, -1]), costs
