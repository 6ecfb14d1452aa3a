"""Kernel of the input check: what one streamed pass has to know about a block of rows.

Symmetry is tested by sketch. With random weights ``w``, row ``i`` of a symmetric matrix has the same weighted
sum ``sum_j w_j t_ij`` as column ``i``, ``sum_j w_j t_ji``; both come out of one pass over rows. Sums are
float64 throughout: a pair that differs by 1e-4 must stand out of the rounding of a million others.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Rows
from psmds_dist.kernels.jit import kernel, read_only, threads_for, tile

SKETCHES = 2
"""Independent weight vectors."""

TILE = 1024
"""Columns that one thread sums before the next tile, few enough for scratch to stay in the first caches."""

# The loops below are apart because a loop over more arrays than these is not vectorised: the compiler gives
# up proving that they do not overlap.


@tile
def _row_sums(t: Rows, w: Floats, v: Floats) -> tuple[float, float, float]:
    squares = a = b = 0.0
    for j in range(t.size):
        value = np.float64(t[j])
        squares += value * value
        a += w[j] * value
        b += v[j] * value
    return squares, a, b


@tile
def _column_sums(t: Rows, u: Rows, a: float, b: float, c: float, d: float, first: Floats, second: Floats) -> None:
    for j in range(t.size):
        x = np.float64(t[j])
        y = np.float64(u[j])
        first[j] += a * x + b * y
        second[j] += c * x + d * y


@tile
def _extremes(t: Rows, low: Rows, high: Rows) -> None:
    for j in range(t.size):  # elementwise, because a reduction of extremes needs nnan to vectorise
        low[j] = t[j] if t[j] < low[j] else low[j]
        high[j] = t[j] if t[j] > high[j] else high[j]


@kernel
def _scan_tiles(rows: Rows, start: int, weights: Floats, columns: Floats, sums: Floats, extremes: Floats) -> None:
    m, n = rows.shape
    for k in prange(sums.shape[1]):
        a, b = k * TILE, min((k + 1) * TILE, n)
        low, high = rows[0, a:b].copy(), rows[0, a:b].copy()
        for i in range(0, m, 2):
            last = min(i + 1, m - 1)
            for row in range(i, last + 1):
                _extremes(rows[row, a:b], low, high)
                sums[row, k] = _row_sums(rows[row, a:b], weights[0, a:b], weights[1, a:b])
            p, q = start + i, start + last
            keep = 1.0 if last > i else 0.0  # an odd last row is paired with itself, at no weight
            _column_sums(
                rows[i, a:b],
                rows[last, a:b],
                weights[0, p],
                keep * weights[0, q],
                weights[1, p],
                keep * weights[1, q],
                columns[0, a:b],
                columns[1, a:b],
            )
        extremes[k, 0], extremes[k, 1] = low.min(), high.max()


def scan_rows(rows: Rows, start: int, weights: Floats, columns: Floats) -> tuple[Floats, Floats, float, float]:
    """Scan rows ``start`` onwards of a matrix.

    Parameters
    ----------
    rows : array of shape (m, n)
        C-contiguous rows, float32 or float64.
    start : int
        Index of the first of them.
    weights : array of shape (2, n)
        Random weights.
    columns : array of shape (2, n)
        Weighted column sums, to which those of these rows are added.

    Returns
    -------
    squares : array of shape (m,)
        Sum of squares of each row; not finite when the row holds NaN or an infinity.
    sketch : array of shape (m, 2)
        Weighted sums of each row.
    low, high : float
        Extremes; meaningless when a row is not finite.
    """
    tiles = -(-rows.shape[1] // TILE)
    sums = np.empty((rows.shape[0], tiles, 1 + SKETCHES))
    extremes = np.empty((tiles, 2))
    with threads_for(rows.size):
        _scan_tiles(read_only(rows), start, weights, columns, sums, extremes)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at what is not finite
        totals = sums.sum(axis=1)
    return totals[:, 0].copy(), totals[:, 1:].copy(), float(extremes[:, 0].min()), float(extremes[:, 1].max())
