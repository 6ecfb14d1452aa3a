"""Reference implementations, written from the paper and as directly as possible."""

from __future__ import annotations

import math
import threading

import numba
import numpy as np
from scipy.spatial.distance import pdist, squareform

from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.kernels.jit import FAST_MATH


def distances(x):
    """Full matrix of Euclidean distances between the rows of ``x``."""
    difference = x[:, None, :] - x[None, :, :]
    return np.sqrt((difference**2).sum(axis=2))


def error(t, x):
    """Sum of squared residuals over all ordered pairs of different points."""
    residual = t.astype(float) - distances(x)
    np.fill_diagonal(residual, 0)
    return (residual**2).sum()


def search_directions(n_components, radius):
    """Search directions of Alg. 2, in the order + - + - ..."""
    steps = np.zeros((2 * n_components, n_components))
    for axis in range(n_components):
        steps[2 * axis, axis], steps[2 * axis + 1, axis] = radius, -radius
    return steps


def gains_by_recomputing(t, x, points, steps):
    """Row errors and the change of each point's row error under each step, from full matrices (Alg. 3).

    For a symmetric matrix a move changes row i and column i alike, so the row's share is half of the whole.
    """
    residual = t.astype(float) - distances(x)
    np.fill_diagonal(residual, 0)
    errors = (residual[points] ** 2).sum(axis=1)
    before = error(t, x)
    gains = np.empty((len(points), len(steps)))
    for k, i in enumerate(points):
        for m, step in enumerate(steps):
            moved = x.copy()
            moved[i] += step
            gains[k, m] = (error(t, moved) - before) / 2
    return errors, gains


def gains_of_rows(t_rows, x, points, steps):
    """The same from the row of the moved point only, for matrices that are too large to recompute."""

    def row_error(row, i, place):
        residual = row.astype(float) - np.sqrt(((place - x) ** 2).sum(axis=1))
        residual[i] = 0
        return residual**2

    rows = list(zip(t_rows, points, strict=True))
    here = [row_error(row, i, x[i]) for row, i in rows]
    gains = [
        [math.fsum(row_error(row, i, x[i] + s) - h) for s in steps] for (row, i), h in zip(rows, here, strict=True)
    ]
    return np.array([math.fsum(h) for h in here]), np.array(gains)


def rounding(t_rows, x, points, steps, dtype, span):
    """Bounds on the rounding errors of `psmds_dist.kernels.moves.propose`: of its errors and of its gains.

    One unit ``eps`` per operation, to first order. A squared distance, before or after a move, is a sum of at
    most L + 2 products, each of at most (d + |s|)^2 in size, so it is off by ``(L + 6) eps (d + |s|)^2``. Its
    root is then off by at most the root of that, and by at most that divided by the root. Sums over a tile of
    ``span`` columns may be taken in any order: ``span * eps`` times the sum of magnitudes.
    """
    unit = np.finfo(dtype).eps
    tiny = np.finfo(float).eps
    t = t_rows.astype(float)
    n, dims = x.shape
    t[np.arange(len(points)), points] = 0
    offset = x[points][:, None, :] - x[None, :, :]
    distance = np.sqrt((offset**2).sum(axis=2))
    off_distance = (dims + 4) * unit * distance
    residual = np.abs(t - distance)
    errors = (
        2 * residual * (off_distance + unit * residual) + off_distance**2 + (3 + min(n, span)) * unit * residual**2
    ).sum(axis=1)
    gains = np.empty((len(points), len(steps)))
    for m, step in enumerate(steps):
        length = np.abs(step).sum()
        root = np.sqrt(((offset + step) ** 2).sum(axis=2))
        off_square = (dims + 6) * unit * (distance + length) ** 2
        with np.errstate(divide="ignore"):
            off_root = np.minimum(np.sqrt(off_square), off_square / root)
        terms = t * (off_root + off_distance + 3 * unit * (root + distance))
        sums = min(n, span) * unit * (t * (np.abs(root - distance) + off_root + off_distance)).sum(axis=1)
        closed = 16 * n * tiny * (length**2 + length * np.abs(x).max())
        gains[:, m] = 2 * (terms.sum(axis=1) + sums) + closed
    # rounding of the reference: differences of sums of all squared residuals, in float64
    own = 8 * n * n * tiny * (np.abs(t).max() + distance.max() + np.abs(steps).max()) ** 2
    return errors + own, gains + own


def sequential(t, x, radius, *, radius_tol, eps=1e-4, bad_moves=True, max_epochs=1000):
    """Embed by Alg. 1 to 3, one point after another, recomputing the matrix for every move. Small input only.

    Returns the last coordinates, the error of every epoch, and the number of epochs.
    """
    x = x.copy()
    last, current, history = math.inf, error(t, x), []
    while radius > radius_tol and len(history) < max_epochs:
        if last - current <= eps * current:
            radius /= 2
            if radius <= radius_tol:
                break
        steps = search_directions(x.shape[1], radius)
        for i in range(len(x)):
            _, gains = gains_by_recomputing(t, x, [i], steps)
            best = gains[0].argmin()
            if bad_moves or gains[0, best] < 0:
                x[i] += steps[best]
        last, current = current, error(t, x)
        history.append(current)
    return x, history


@numba.njit(fastmath=FAST_MATH, error_model="numpy")
def _fast_pass(t, x, y, radius, bad_moves):
    n = x.size
    for i in range(n):
        here = east = west = north = south = 0.0
        for j in range(n):
            u = x[i] - x[j]
            v = y[i] - y[j]
            target = t[i, j]
            square = u * u + v * v
            moved = square + radius * radius
            here += (target - math.sqrt(square)) ** 2
            east += (target - math.sqrt(abs(moved + 2 * radius * u))) ** 2
            west += (target - math.sqrt(abs(moved - 2 * radius * u))) ** 2
            north += (target - math.sqrt(abs(moved + 2 * radius * v))) ** 2
            south += (target - math.sqrt(abs(moved - 2 * radius * v))) ** 2
        # the self pair was counted at distance radius, and stays at distance 0
        least = min(east, west, north, south) - radius * radius
        if bad_moves or least < here:
            if least == east - radius * radius:
                x[i] += radius
            elif least == west - radius * radius:
                x[i] -= radius
            elif least == north - radius * radius:
                y[i] += radius
            else:
                y[i] -= radius


def sequential_fast(t, x, radius, *, radius_tol, eps=1e-4, bad_moves=True, max_epochs=1000):
    """The same as `sequential` for a matrix with a zero diagonal and two dimensions, row by row."""
    t = np.ascontiguousarray(t, dtype=float)
    a, b = (np.ascontiguousarray(column, dtype=float) for column in x.T)

    def measured():
        return 2 * ((squareform(t, checks=False) - pdist(np.column_stack([a, b]))) ** 2).sum()

    last, current, history = math.inf, measured(), []
    while radius > radius_tol and len(history) < max_epochs:
        if last - current <= eps * current:
            radius /= 2
            if radius <= radius_tol:
                break
        a, b = a.copy(), b.copy()
        _fast_pass(t, a, b, radius, bad_moves)
        last, current = current, measured()
        history.append(current)
    return np.column_stack([a, b]), history


def scale_of(t):
    """Root mean square of the off-diagonal dissimilarities."""
    n = len(t)
    return math.sqrt((t.astype(float) ** 2).sum() / (n * (n - 1)))


class MatrixRows(RowSource):
    """A row source over an array that pretends to be storage: not in memory, and it counts what is read.

    A matrix that is not square is a panel: some columns for all points.
    """

    def __init__(self, matrix, band=1, token="matrix", before_read=None):
        self.matrix = matrix
        self.shape = matrix.shape
        self.dtype = matrix.dtype
        self.read_profile = ReadProfile(rows_per_chunk=band)
        self.content_id = f"{token} {id(matrix)} {band}"
        self.reads = []
        self.expected = []
        self._before_read = before_read
        self._reading = threading.Lock()

    @property
    def rows_read(self):
        return sum(hi - lo for lo, hi in self.reads)

    def prefetch(self, lo, hi):
        self.expected.append((lo, hi))

    def read(self, lo, hi, out):
        assert 0 <= lo < hi <= self.n
        assert out.shape[0] >= hi - lo
        assert out.shape[1] == self.matrix.shape[1]
        assert out.dtype == self.dtype
        assert out.flags.c_contiguous
        if self._before_read is not None:
            self._before_read(lo, hi)
        with self._reading:
            self.reads.append((lo, hi))
        out[: hi - lo] = self.matrix[lo:hi]
