"""Euclidean and cosine distances of many features through matrix products, with the bits of a computation by pairs.

``|x - y|^2 = |x|^2 + |y|^2 - 2 <x, y>`` is many times faster than a loop over features, but loses digits where points
are near, and its last bits depend on the library, its threads and the block. So it only settles the float32 that a
distance rounds to, where its error is too small to change that (`psmds_dist.kernels.settle`). The few others, all near
pairs among them, are left to `scipy.spatial.distance.cdist`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import available_threads, current_threads
from psmds_dist.utils.blas import one_thread

FORMS = {"euclidean": (True, 1.0), "sqeuclidean": (False, 1.0)}
"""Metrics that follow from squared distances: whether by a root, and by which factor."""

UNIT_FORM = (False, 0.5)
"""The same for the cosine distance of unit vectors."""

MIN_FEATURES = 8
"""Fewest features with which products are faster."""

ROWS, COLUMNS = 512, 1024
"""Largest tile of a product. With fewer rows it takes longer to arrange the columns for them: 100 rows reach 60 GFLOPS,
512 rows 78 (`python -m tests.benchmarks --only distances`)."""

PAIR_BYTES = 1_000_000
"""Features that are gathered at a time for distances by pairs."""


@dataclass(frozen=True, eq=False)
class Products:
    """Points whose distances are computed through matrix products.

    Attributes
    ----------
    points : (n, d) float64 array
        The points.
    form : (bool, float)
        As in `FORMS`.
    by_pairs : callable
        ``by_pairs(points, others, out)`` computes distances pair by pair, in float64.
    """

    points: Floats
    form: tuple[bool, float]
    by_pairs: Callable[[Floats, Floats, Floats], Floats]

    @staticmethod
    def scratch_bytes(n: int, features: int) -> int:
        """Bytes that the points take beside themselves, and a computation of rows."""
        tiles = 8 * min(ROWS, n) * (min(COLUMNS, n) * available_threads() + -(-n // COLUMNS))
        return 8 * n * features + 16 * n + tiles + PAIR_BYTES + 17 * (n + features)

    @cached_property
    def _centred(self) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # what is no number is left to the pairs
            centred: Floats = self.points - self.points.mean(axis=0)
        return centred

    @cached_property
    def _squares(self) -> Floats:
        squares: Floats = np.einsum("ij,ij->i", self._centred, self._centred)
        return squares

    @property
    def _share(self) -> float:
        """Bound for errors of products, lengths, centring and the computation by pairs, in any order of their sums."""
        return 4 * (int(self.points.shape[1]) + 16) * 2.0**-53

    def fill(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out`` with the distances, in float32, from points ``lo`` to ``hi`` to all."""
        for first in range(lo, hi, ROWS):
            last = min(first + ROWS, hi)
            rows = out[first - lo : last - lo]
            self._by_pairs(first, self._settled(first, last, rows), rows)

    def _settled(self, lo: int, hi: int, out: Rows) -> Ints:
        """Fill ``out`` as far as products tell, NaN elsewhere, and return how many are left in each row.

        Each thread computes products and what follows from them, tile by tile: the threads of BLAS would wait for the
        one that does the rest.
        """
        n = len(self.points)
        first = range(0, n, COLUMNS)
        unsure = np.empty((len(first), hi - lo), np.int64)
        settle = partial(self._settle, lo, hi, out)
        _ = self._squares  # before threads ask for them
        threads = min(current_threads(), len(first))
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):
            if threads == 1:
                list(map(settle, first, unsure))
            else:
                with ThreadPoolExecutor(threads, thread_name_prefix="psmds-products") as pool:
                    list(pool.map(settle, first, unsure))
        left: Ints = unsure.sum(axis=0)
        return left

    def _settle(self, lo: int, hi: int, out: Rows, first: int, unsure: Ints) -> None:
        """Fill a tile of columns."""
        from psmds_dist.kernels.settle import settle  # late: compiles

        centred, squares = self._centred, self._squares
        last = min(first + COLUMNS, len(centred))
        with np.errstate(over="ignore", invalid="ignore"):  # threads have states of their own
            products = np.matmul(centred[lo:hi], centred[first:last].T)
        settle(products, squares[lo:hi], squares[first:last], self._share, self.form, first, out, unsure)

    def _by_pairs(self, lo: int, unsure: Ints, out: Rows) -> None:
        """Compute the distances that products have left; those of points to themselves are zero."""
        step = max(1, PAIR_BYTES // (8 * self.points.shape[1]))
        selves = np.arange(len(out)), np.arange(lo, lo + len(out))
        left = unsure - np.isnan(out[selves])
        out[selves] = 0
        for k in np.flatnonzero(left).tolist():
            columns = np.flatnonzero(np.isnan(out[k]))
            for first in range(0, columns.size, step):
                some = columns[first : first + step]
                point = self.points[lo + k : lo + k + 1]
                with np.errstate(over="ignore"):
                    out[k, some] = self.by_pairs(point, self.points[some], np.empty((1, some.size)))[0]
