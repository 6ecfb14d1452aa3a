"""Kernels of transformations: positions of dissimilarities among knots, and sums over the pairs of each bin.

Sums are of whole numbers, so that they do not depend on the order in which rows, threads and workers add them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import prange
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import kernel, read_only, serial_kernel, threads_for, tile
from psmds_dist.kernels.moves import WIDE_TILE, square_distances

MISSING = np.uint16(2**16 - 1)
"""Number of a knot that stands for none."""

GUIDE = 16
"""Cells of equal width for each knot, that tell where among the knots to look."""


class Guide(NamedTuple):
    """Where to look for positions among knots.

    A cell is a function of the dissimilarity that never falls, also as it is rounded, so that the knots in earlier
    cells are surely below, and those in later ones above.
    """

    knots: Rows
    """Minus infinity, ascending knots, and as many infinite ones as a search may look beyond."""

    finite: int
    """Knots that are finite."""

    factor: Any
    """Cells for a unit of dissimilarity."""

    last: Any
    """Number of the last cell."""

    before: NDArray[np.uint16]
    """Number of knots in the cells before each."""

    reach: int
    """A power of two: with it, and half of it, and so on, a search comes to the last knot of any cell."""

    @classmethod
    def of(cls, knots: Rows) -> Guide:
        """Guide to ascending knots, for dissimilarities of their type."""
        cells = GUIDE * knots.size
        factor = knots.dtype.type((cells - 1) / (float(knots[-1]) - float(knots[0])))
        own = np.clip((knots - knots[0]) * factor, 0, cells - 1).astype(np.int32)
        counts = np.bincount(own, minlength=cells)
        reach = 1 << (int(counts.max()).bit_length() - 1)
        ends = np.full(2 * reach, np.inf, knots.dtype)
        before = np.append(0, np.cumsum(counts)[:-1]).astype(np.uint16)
        return cls(
            np.concatenate([-ends[:1], knots, ends]), knots.size, factor, knots.dtype.type(cells - 1), before, reach
        )


# One loop for each array that is filled, and for what is looked up: a loop over more arrays is not vectorised. What is
# looked up has unsigned numbers: those below zero would be looked for.


@tile
def _count_below(row: Rows, guide: Guide, values: Rows, places: Ints) -> None:
    """Leave known dissimilarities, and the number of knots that are not above each."""
    first = guide.knots[1]
    for j in range(row.size):
        values[j] = row[j] if row[j] == row[j] else first  # NaN is not
    for j in range(row.size):
        places[j] = np.int32(min(max((values[j] - first) * guide.factor, first - first), guide.last))
    for j in range(row.size):
        places[j] = guide.before[np.uint32(places[j])]
    reach = np.int32(guide.reach)
    while reach > 0:
        for j in range(row.size):
            k = places[j] + reach
            places[j] = k if guide.knots[np.uint32(k)] <= values[j] else places[j]
        reach //= np.int32(2)


@tile
def _locate_row(row: Rows, guide: Guide, values: Rows, places: Ints) -> None:
    _count_below(row, guide, values, places)
    last = np.int32(guide.finite - 1)
    for j in range(row.size):
        places[j] = min(max(places[j], np.int32(1)), last)
    for j in range(row.size):
        k = np.uint32(places[j])
        low, high = guide.knots[k], guide.knots[k + np.uint32(1)]
        share = min(max((values[j] - low) / (high - low), low - low), guide.factor / guide.factor)
        row[j] = (places[j] - np.int32(1)) + share if row[j] == row[j] else row[j]


@serial_kernel
def _locate(rows: Rows, guide: Guide) -> None:
    values, places = np.empty(WIDE_TILE, guide.knots.dtype), np.empty(WIDE_TILE, np.int32)
    for i in range(rows.shape[0]):
        for lo in range(0, rows.shape[1], WIDE_TILE):
            _locate_row(rows[i, lo : lo + WIDE_TILE], guide, values, places)


def locate(rows: Rows, guide: Guide) -> None:
    """Replace dissimilarities by their positions among knots; in one thread, beside which kernels may run.

    Parameters
    ----------
    rows : (m, n) float32 or float64
        Dissimilarities; NaN stays.
    guide : Guide
        Of the knots; dissimilarities beyond the ends are as those there.
    """
    _locate(rows, guide)


@serial_kernel
def _number(rows: Rows, guide: Guide, out: NDArray[np.uint16]) -> None:
    values, places = np.empty(WIDE_TILE, guide.knots.dtype), np.empty(WIDE_TILE, np.int32)
    for i in range(rows.shape[0]):
        for lo in range(0, rows.shape[1], WIDE_TILE):
            row, numbers = rows[i, lo : lo + WIDE_TILE], out[i, lo : lo + WIDE_TILE]
            _count_below(row, guide, values, places)
            for j in range(row.size):
                numbers[j] = max(places[j] - np.int32(1), np.int32(0)) if row[j] == row[j] else MISSING


def number(rows: Rows, guide: Guide, out: NDArray[np.uint16]) -> None:
    """Find the number of the last knot below each dissimilarity; arguments as in `locate`, and where numbers go.

    It is 0 below all knots, and `MISSING` for NaN.
    """
    _number(rows, guide, out)


@tile
def _whole_numbers(
    row: Rows, squares: Floats, most: int, length: Any, unit: Any, distances: Floats, wholes: Ints
) -> Any:
    """Leave distances, and these in whole steps; return the sum of their squares in such steps, of known pairs."""
    total: Any = 0
    for j in range(row.size):
        distances[j] = np.sqrt(squares[j]) / length
    for j in range(row.size):
        wholes[j] = np.int64(np.rint(distances[j] * unit))
    for j in range(row.size):
        known = row[j] <= most  # NaN is not
        total += np.int64(np.rint(distances[j] * distances[j] * unit)) if known else np.int64(0)
    return total


@tile
def _places(row: Rows, distances: Floats, steps: int, cells: int, spread: Any, places: Ints) -> None:
    """Number of the cell of each pair among those of all bins; those of missing pairs do not count."""
    share = cells / spread
    for j in range(row.size):
        u = np.float64(row[j]) if row[j] <= steps else 0.0
        places[j] = cells * min(max(np.int32(u), np.int32(0)), np.int32(steps - 1))
    if cells > 1:
        for j in range(row.size):
            places[j] += min(np.int32(min(distances[j], spread) * share), np.int32(cells - 1))


@tile
def _add_row(
    row: Rows,
    x: Floats,
    i: int,
    steps: int,
    cells: int,
    length: Any,
    spread: Any,
    unit: Any,
    scratch: Floats,
    wholes: Ints,
    places: Ints,
    out: Ints,
) -> Any:
    """Add the pairs of point ``i`` with later ones; return the sum of their squared distances."""
    n, total, columns = x.shape[1], 0, out.shape[1]
    for lo in range(i + 1, n, WIDE_TILE):
        hi = min(n, lo + WIDE_TILE)
        part, squares, distances = row[lo:hi], scratch[0, : hi - lo], scratch[1, : hi - lo]
        square_distances(x, i, lo, hi, squares)
        total += _whole_numbers(part, squares, steps, length, unit, distances, wholes)
        _places(part, distances, steps, cells, spread, places)
        for j in range(part.size):
            if part[j] <= steps:
                place = places[j]
                out[place, 0] += 1
                out[place, 1] += wholes[j]
                if columns > 2:
                    f = np.float64(part[j]) - place
                    out[place, 2] += np.int64(np.rint(f * unit))
                    out[place, 3] += np.int64(np.rint(f * f * unit))
                    out[place, 4] += np.int64(np.rint(f * distances[j] * unit))
    return total


@kernel
def _bin_sums(
    rows: Rows,
    slots: Ints,
    points: Ints,
    x: Floats,
    steps: int,
    cells: int,
    length: float,
    spread: float,
    unit: float,
    out: Ints,
    squares: Ints,
) -> None:
    for part in prange(out.shape[0]):
        scratch = np.empty((2, WIDE_TILE))
        wholes, places = np.empty(WIDE_TILE, np.int64), np.empty(WIDE_TILE, np.int32)
        for k in range(part, slots.size, out.shape[0]):
            squares[part] += _add_row(
                rows[slots[k]],
                x,
                points[k],
                steps,
                cells,
                length,
                spread,
                unit,
                scratch,
                wholes,
                places,
                out[part],
            )


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
    """Sums over the pairs of some rows, by bin and by cell of distances: twice over those with later points.

    Over all rows that is the same as over all ordered pairs, for half the work.

    Parameters
    ----------
    rows : (slots, n) float32, float64 or uint16
        Positions among knots, or numbers of these.
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
        Number of pairs, ``d``, ``d^2``; and with fractions ``f`` of positions also ``f``, ``f^2``, ``f d``. Of ``d^2``
        only the total is of use: the first cell of the first bin holds it.
    """
    bins, cells, columns = shape
    with threads_for(slots.size * x.shape[1]):
        out = np.zeros((numba.get_num_threads(), bins * cells, columns - 1), np.int64)
        squares = np.zeros(len(out), np.int64)
        steps = bins if columns == 3 else bins - 1
        _bin_sums(read_only(rows), slots, points, x, steps, cells, length, spread, unit, out, squares)
    total = np.zeros((bins * cells, columns), np.int64)
    total[:, np.arange(columns) != 2] = 2 * out.sum(axis=0)
    total[0, 2] = 2 * squares.sum()
    return total.reshape(shape)
