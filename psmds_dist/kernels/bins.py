"""Kernels of transformations: positions of dissimilarities among knots, and sums over the pairs of each bin.

Sums are of whole numbers, so that they do not depend on the order in which rows, threads and workers add them.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import prange

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, serial_kernel, threads_for, tile

GUIDE = 4
"""Cells of equal width for each knot, that tell where among the knots to look."""


@tile
def last_below(t: Any, knots: Floats, lo: int, hi: int) -> int:
    """Number of the last of ``knots[lo:hi]`` that is not above ``t``; ``lo - 1`` where all are."""
    while lo < hi:
        middle = (lo + hi) // 2
        if knots[middle] <= t:
            lo = middle + 1
        else:
            hi = middle
    return lo - 1


@serial_kernel
def _locate(rows: Rows, knots: Floats, guide: Ints, stepwise: bool) -> None:
    cells = guide.size - 1
    factor = cells / (knots[-1] - knots[0])
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            t = np.float64(rows[i, j])
            if t == t:  # NaN is not
                cell = min(max(int((t - knots[0]) * factor), 1), cells - 2)
                k = last_below(t, knots, guide[cell - 1], guide[cell + 2])  # neighbours too: edges are rounded
                if stepwise:
                    rows[i, j] = max(k, 0)
                else:
                    k = min(max(k, 0), knots.size - 2)
                    rows[i, j] = k + min(max((t - knots[k]) / (knots[k + 1] - knots[k]), 0.0), 1.0)


def locate(rows: Rows, knots: Floats, stepwise: bool) -> None:
    """Replace dissimilarities by their positions among knots; in one thread, beside which kernels may run.

    Parameters
    ----------
    rows : (m, n) float32 or float64
        Dissimilarities; NaN stays.
    knots : (k,) float64
        Ascending; dissimilarities beyond the ends are as those there.
    stepwise : bool
        Whether positions are whole numbers: that of the last knot below.
    """
    edges = np.linspace(knots[0], knots[-1], GUIDE * knots.size + 3)
    guide = np.searchsorted(knots, edges, side="right")
    guide[-1] = knots.size
    _locate(rows, knots, guide, stepwise)


@tile
def _add_row(row: Rows, x: Floats, i: int, steps: int, length: Any, spread: Any, unit: Any, out: Ints) -> None:
    cells, columns = out.shape[1:]
    for j in range(row.size):
        u = np.float64(row[j])
        if u == u and j != i:
            square = 0.0
            for axis in range(x.shape[0]):
                square += (x[axis, i] - x[axis, j]) ** 2
            d = np.sqrt(square) / length
            k = min(max(int(u), 0), steps - 1)
            cell = int(min(d, spread) * (cells / spread))
            cell = min(cell, cells - 1)
            out[k, cell, 0] += 1
            out[k, cell, 1] += int(np.rint(d * unit))
            out[k, cell, 2] += int(np.rint(d * d * unit))
            if columns > 3:
                f = u - k
                out[k, cell, 3] += int(np.rint(f * unit))
                out[k, cell, 4] += int(np.rint(f * f * unit))
                out[k, cell, 5] += int(np.rint(f * d * unit))


@kernel
def _bin_sums(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Floats,
    steps: int,
    length: float,
    spread: float,
    unit: float,
    out: Ints,
) -> None:
    for part in prange(out.shape[0]):
        for k in range(part, slots.size, out.shape[0]):
            _add_row(rows[slots[k]], x, points[k], steps, length, spread, unit, out[part])


def bin_sums(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Floats,
    shape: tuple[int, int, int],
    length: float,
    spread: float,
    unit: float,
) -> Ints:
    """Sums over the pairs of some rows, by bin and by cell of distances.

    Parameters
    ----------
    rows : (slots, n) float32 or float64
        Positions among knots.
    slots, points
        As in `psmds_dist.kernels.moves.propose`.
    x : (L, n) float64
        Coordinates.
    shape : (int, int, int)
        Bins, cells of each, and sums: 3 where positions are whole numbers, else 6.
    length : float
        Unit of distances.
    spread : float
        Distances up to which cells divide them, in that unit.
    unit : float
        Steps of the sums: sums of so many times the numbers are returned.

    Returns
    -------
    (bins, cells, sums) int64
        Number of pairs, ``d``, ``d^2``; and with fractions ``f`` of positions also ``f``, ``f^2``, ``f d``.
    """
    with threads_for(slots.size * x.shape[1]):
        out = np.zeros((numba.get_num_threads(), *shape), np.int64)
        steps = shape[0] if shape[2] == 3 else shape[0] - 1
        _bin_sums(read_only(rows), slots, points, x, steps, length, spread, unit, out)
    total: Ints = out.sum(axis=0)
    return total
