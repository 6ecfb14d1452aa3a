"""Kernel of classical scaling: squared dissimilarities times a block of vectors, in one pass over rows.

Row ``i`` of the product is ``sum_{j != i} t_ij^2 q_cj`` for every vector ``c``. Squares and sums are float64, in an
order that depends on the shape alone; the self pair is left out, so whatever stands on the diagonal plays no part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile

TILE = 1024
"""Columns whose squares are used for every vector before the next tile: they stay in the first cache."""

TOGETHER = 4
"""Vectors that share a load of the squares."""


@tile
def _square(t: Rows, squares: Floats) -> None:
    for j in range(t.size):
        value = np.float64(t[j])
        squares[j] = value * value


@tile
def _dot(squares: Floats, q: Floats) -> Any:
    total = 0.0
    for j in range(squares.size):
        total += squares[j] * q[j]
    return total


@tile
def _four_dots(squares: Floats, q: Floats, r: Floats, s: Floats, u: Floats) -> Any:
    first = second = third = fourth = 0.0
    for j in range(squares.size):
        square = squares[j]
        first += square * q[j]
        second += square * r[j]
        third += square * s[j]
        fourth += square * u[j]
    return first, second, third, fourth


@kernel
def _multiply(rows: Rows, slots: Ints, points: Ints, block: Floats, out: Floats) -> None:
    count, n = block.shape
    grouped = count - count % TOGETHER
    for k in prange(slots.size):
        slot, i = slots[k], points[k]
        scratch = np.empty(TILE)
        out[k] = 0.0
        for lo in range(0, n, TILE):
            hi = min(n, lo + TILE)
            squares = scratch[: hi - lo]
            _square(rows[slot, lo:hi], squares)
            if lo <= i < hi:
                squares[i - lo] = 0.0
            for c in range(0, grouped, TOGETHER):
                first, second, third, fourth = _four_dots(
                    squares, block[c, lo:hi], block[c + 1, lo:hi], block[c + 2, lo:hi], block[c + 3, lo:hi]
                )
                out[k, c] += first
                out[k, c + 1] += second
                out[k, c + 2] += third
                out[k, c + 3] += fourth
            for c in range(grouped, count):
                out[k, c] += _dot(squares, block[c, lo:hi])


def multiply_squares(rows: Rows, slots: Ints, points: Ints, block: Floats) -> Floats:
    """Products of squared dissimilarities and vectors, ``sum_{j != i} t_ij^2 q_cj``.

    Parameters
    ----------
    rows : (m, n) float32 or float64
        Dissimilarities, C-contiguous; row ``slots[k]`` belongs to point ``points[k]``.
    slots, points : (k,) int64
        Where the rows are and whose they are.
    block : (c, n) float64
        Vectors, one a line.

    Returns
    -------
    (k, c) float64
        The product of each of the points with each vector.
    """
    out = np.empty((slots.size, block.shape[0]))
    with threads_for(slots.size * block.shape[1]):
        _multiply(read_only(rows), slots, points, block, out)
    return out
