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

CELLS = 2**18
"""Most cells that tell where among the knots to look."""


KEPT = 0.98
"""Share of the knots that must still differ where they are moved."""


class Guide(NamedTuple):
    """Where to look for positions among knots.

    A cell holds all dissimilarities whose bits begin alike, apart from the last ones: cells are narrow near zero, and
    where they begin is exact.
    """

    knots: Rows
    """Minus infinity, ascending knots, and as many infinite ones as a search may look beyond."""

    finite: int
    """Knots that are finite."""

    shift: Any
    """Bits that do not matter for a cell."""

    base: Any
    """Number of the first cell, which also holds all that is below."""

    last: Any
    """Number of the last cell, less that of the first."""

    before: NDArray[np.uint16]
    """Number of knots in the cells before each; with those of the cell itself where no search is needed."""

    reach: int
    """A power of two: with it, and half of it, and so on, a search comes to the last knot of any cell. 0 where each of
    these is the least number of its cell."""

    @classmethod
    def of(cls, knots: Rows) -> Guide:
        """Guide to ascending knots of at least zero, for dissimilarities of their type."""
        bits = _bits(knots)
        shift, base, last = _cells(bits)
        own = np.maximum((bits >> shift) - base, 0)
        counts = np.bincount(own, minlength=last + 1)
        direct = counts.max() == 1 and np.array_equal(bits, bits >> shift << shift)
        reach = 0 if direct else 1 << (int(counts.max()).bit_length() - 1)
        before = np.cumsum(counts) if direct else np.cumsum(counts) - counts
        ends = np.full(2 * max(1, reach), np.inf, knots.dtype)
        whole = bits.dtype.type
        return cls(
            knots=np.concatenate([-ends[:1], knots, ends]),
            finite=knots.size,
            shift=whole(shift),
            base=whole(base),
            last=whole(last),
            before=before.astype(np.uint16),
            reach=reach,
        )


def _as_whole(rows: Rows) -> Ints:
    """The bits of numbers as whole numbers, whose order is that of positive ones; those below zero are negative."""
    return rows.view(f"i{rows.dtype.itemsize}")


def _bits(knots: Rows) -> Ints:
    """Bits of knots; all that is not above zero counts as zero."""
    return np.maximum(_as_whole(knots), 0)


def _cells(bits: Ints) -> tuple[int, int, int]:
    """Shift, number of the first cell, and number of the last one less that of the first, for knots with such bits."""
    low, high = int(np.min(bits[bits > 0], initial=bits[-1])), int(bits[-1])
    shift = max(0, (high - low).bit_length() - CELLS.bit_length())
    while (high >> shift) - (low >> shift) + 2 > CELLS:
        shift += 1
    base = (low >> shift) - 1
    return shift, base, (high >> shift) - base


def aligned(knots: Floats, dtype: np.dtype[Any]) -> Floats:
    """Move knots down to where the cells of a guide begin, so that positions need no search.

    They move by less than one part in 1,000 in float32, mostly in 8,000: for knots that are as good as their neighbors.
    Where cells are so wide that many knots would become one they are returned as they are.

    Parameters
    ----------
    knots : (k,) float64
        Ascending, at least zero.
    dtype : numpy.dtype
        Type of the dissimilarities.
    """
    bits = _bits(knots.astype(dtype))
    shift = _cells(bits)[0]
    moved = np.unique((bits >> shift << shift).view(dtype).astype(float))
    return moved if moved.size >= KEPT * knots.size else knots


# One loop for each array that is filled, and for what is looked up: a loop over more arrays is not vectorised. What is
# looked up has unsigned numbers: those below zero would be looked for.


@tile
def _count_below(row: Rows, bits: Ints, guide: Guide, places: Ints) -> None:
    """Leave the number of knots that are not above each dissimilarity; something for those that are missing."""
    zero = guide.last - guide.last
    for j in range(row.size):
        places[j] = min(max((max(bits[j], zero) >> guide.shift) - guide.base, zero), guide.last)  # -0.0 is negative
    for j in range(row.size):
        places[j] = guide.before[np.uint32(places[j])]
    reach = np.int32(guide.reach)
    while reach > 0:
        for j in range(row.size):
            k = places[j] + reach
            places[j] = k if guide.knots[np.uint32(k)] <= row[j] else places[j]
        reach //= np.int32(2)


@tile
def _locate_row(row: Rows, bits: Ints, guide: Guide, places: Ints) -> None:
    _count_below(row, bits, guide, places)
    last, first = np.int32(guide.finite - 1), guide.knots[1]
    zero, one = first - first, (guide.knots[2] - first) / (guide.knots[2] - first)
    for j in range(row.size):
        places[j] = min(max(places[j], np.int32(1)), last)
    for j in range(row.size):
        k = np.uint32(places[j])
        low, high = guide.knots[k], guide.knots[k + np.uint32(1)]
        share = min(max((row[j] - low) / (high - low), zero), one)
        row[j] = (places[j] - np.int32(1)) + share if row[j] == row[j] else row[j]


@serial_kernel
def _locate(rows: Rows, bits: Ints, guide: Guide) -> None:
    places = np.empty(WIDE_TILE, np.int32)
    for i in range(rows.shape[0]):
        for lo in range(0, rows.shape[1], WIDE_TILE):
            hi = lo + WIDE_TILE
            _locate_row(rows[i, lo:hi], bits[i, lo:hi], guide, places)


@serial_kernel
def _share(rows: Rows, low: Any, high: Any) -> None:
    zero, one, unit = low - low, (high - low) / (high - low), high - low
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(row.size):
            row[j] = min(max((row[j] - low) / unit, zero), one) if row[j] == row[j] else row[j]


def locate(rows: Rows, guide: Guide) -> None:
    """Replace dissimilarities by their positions among knots; in one thread, beside which kernels may run.

    Parameters
    ----------
    rows : (m, n) float32 or float64
        Dissimilarities; NaN stays.
    guide : Guide
        Of the knots; dissimilarities beyond the ends are as those there.
    """
    if guide.finite == 2:
        _share(rows, guide.knots[1], guide.knots[2])
        return
    _locate(rows, _as_whole(rows), guide)


@serial_kernel
def _number(rows: Rows, bits: Ints, guide: Guide, out: NDArray[np.uint16]) -> None:
    places = np.empty(WIDE_TILE, np.int32)
    for i in range(rows.shape[0]):
        for lo in range(0, rows.shape[1], WIDE_TILE):
            hi = lo + WIDE_TILE
            row, numbers = rows[i, lo:hi], out[i, lo:hi]
            _count_below(row, bits[i, lo:hi], guide, places)
            for j in range(row.size):
                numbers[j] = max(places[j] - np.int32(1), np.int32(0)) if row[j] == row[j] else MISSING


def number(rows: Rows, guide: Guide, out: NDArray[np.uint16]) -> None:
    """Find the number of the last knot below each dissimilarity; arguments as in `locate`, and where numbers go.

    It is 0 below all knots, and `MISSING` for NaN.
    """
    _number(rows, _as_whole(rows), guide, out)


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
                if columns > 3:
                    f = np.float64(part[j]) - place
                    out[place, 3] += np.int64(np.rint(f * unit))
                    out[place, 4] += np.int64(np.rint(f * f * unit))
                    out[place, 5] += np.int64(np.rint(f * distances[j] * unit))
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
        out = np.zeros((numba.get_num_threads(), bins * cells, columns), np.int64)
        squares = np.zeros(len(out), np.int64)
        steps = bins if columns == 3 else bins - 1
        _bin_sums(read_only(rows), slots, points, x, steps, cells, length, spread, unit, out, squares)
    total: Ints = out[0]
    for part in out[1:]:
        total += part
    total[0, 2] = squares.sum()
    total *= 2
    return total.reshape(shape)
