"""Kernel of quality measures: sums over a row, and ranks of the nearest points of map and matrix in each other.

Ranks count from 1; of equal values the one of the lower point comes first. The penalty of the ``k`` nearest points is
``sum max(0, rank - k)`` of their ranks on the other side. The self pair is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile

SUMS = 8
"""Sums of a row, see `rate_rows`."""


@tile
def _square_distances(x: Floats, i: int, out: Floats) -> None:
    out[:] = 0.0
    for axis in range(x.shape[0]):
        for j in range(out.size):
            step = x[axis, j] - x[axis, i]
            out[j] += step * step


@tile
def _add_sums(given: Floats, squares: Floats, sums: Floats) -> None:
    error = embedded = total = t_sum = d_sum = product = fourth = gap = 0.0
    for j in range(given.size):
        t, square = given[j], squares[j]
        d = np.sqrt(square)
        error += (t - d) * (t - d)
        embedded += square
        total += t * t
        t_sum += t
        d_sum += d
        product += t * d
        fourth += t * t * t * t
        gap += (t * t - square) * (t * t - square)
    for k, value in enumerate((error, embedded, total, t_sum, d_sum, product, fourth, gap)):
        sums[k] += value


@tile
def _nearest(values: Floats, places: Ints, lowest: Floats) -> None:
    """Places of the lowest values, ascending."""
    places[:] = 0
    lowest[:] = np.inf
    last = places.size - 1
    for j in range(values.size):
        value = values[j]
        if value < lowest[last]:
            k = last
            while k > 0 and lowest[k - 1] > value:
                lowest[k], places[k] = lowest[k - 1], places[k - 1]
                k -= 1
            lowest[k], places[k] = value, j


@tile
def _penalty(values: Floats, chosen: Ints, nearest: Ints) -> Any:
    """Sum of ``max(0, rank - k)`` of the chosen places; the nearest ones have the ranks 1 to k."""
    last = nearest[nearest.size - 1]
    penalty = 0
    for place in chosen:
        value = values[place]
        if value > values[last] or (value == values[last] and place > last):
            rank = 1
            for j in range(place):
                rank += values[j] <= value
            for j in range(place + 1, values.size):
                rank += values[j] < value
            penalty += rank - nearest.size
    return penalty


@kernel
def _rate_rows(
    rows: Rows, slots: Ints, points: Ints, x: Floats, unit: float, sums: Floats, penalties: Floats, near: Ints
) -> None:
    n, k = x.shape[1], near.shape[1]
    for row in prange(slots.size):
        i = points[row]
        given, squares, lowest = np.empty(n), np.empty(n), np.empty(k)
        around = np.empty(k, np.int64)
        for j in range(n):
            given[j] = rows[slots[row], j] * unit
        _square_distances(x, i, squares)
        sums[row] = 0.0
        _add_sums(given[:i], squares[:i], sums[row])
        _add_sums(given[i + 1 :], squares[i + 1 :], sums[row])
        given[i] = squares[i] = np.inf
        _nearest(given, around, lowest)
        _nearest(squares, near[row], lowest)
        penalties[row, 0] = _penalty(given, near[row], around)
        penalties[row, 1] = _penalty(squares, around, near[row])


def rate_rows(
    rows: Rows, slots: Ints, points: Ints, x: Floats, unit: float, n_neighbors: int
) -> tuple[Floats, Floats, Ints]:
    """Sums and neighbors of some rows.

    Parameters
    ----------
    rows : (m, n) float32 or float64
        Dissimilarities, C-contiguous; row ``slots[k]`` belongs to point ``points[k]``.
    slots, points : (r,) int64
        Where the rows are and whose they are.
    x : (L, n) float64
        Coordinates, one axis a line.
    unit : float
        Factor of the dissimilarities that brings them to the units of ``x``.
    n_neighbors : int
        How many points count as near.

    Returns
    -------
    sums : (r, 8) float64
        Sums over ``j != i`` of ``(t - d)^2``, ``d^2``, ``t^2``, ``t``, ``d``, ``t d``, ``t^4`` and ``(t^2 - d^2)^2``.
    penalties : (r, 2) float64
        Of the nearest points in the map, ranked by dissimilarity; and of those in the matrix, ranked by distance.
    nearest : (r, n_neighbors) int64
        Nearest points in the map, ascending.
    """
    sums, penalties = np.empty((slots.size, SUMS)), np.empty((slots.size, 2))
    nearest = np.empty((slots.size, n_neighbors), np.int64)
    with threads_for(slots.size * x.shape[1]):
        _rate_rows(read_only(rows), slots, points, x, unit, sums, penalties, nearest)
    return sums, penalties, nearest
