"""Euclidean and cosine distances of many features through matrix products, with the bits of a computation by pairs.

``|x - y|^2 = |x|^2 + |y|^2 - 2 <x, y>`` is many times faster than a loop over features, but loses digits where points
are near, and its last bits depend on the library, its threads and the block. So it only settles the float32 that a
distance rounds to, where its error is too small to change that (`psmds_dist.kernels.settle`). The few others, all near
pairs among them, are left to `scipy.spatial.distance.cdist`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, Rows

FORMS = {"euclidean": (True, 1.0), "sqeuclidean": (False, 1.0)}
"""Metrics that follow from squared distances: whether by a root, and by which factor."""

UNIT_FORM = (False, 0.5)
"""The same for the cosine distance of unit vectors."""

MIN_FEATURES = 8
"""Fewest features with which products are faster."""

ROWS, COLUMNS = 256, 2048
"""Largest tile of a product."""

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
        rows = min(ROWS, n)
        return 8 * n * features + 16 * n + rows * (n + 8 * min(COLUMNS, n)) + PAIR_BYTES + 16 * (n + features)

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

    def _settled(self, lo: int, hi: int, out: Rows) -> NDArray[np.bool_]:
        """Fill ``out`` as far as products tell, and return where they do not."""
        from psmds_dist.kernels.settle import settle  # late: needs Numba

        n, centred, squares = len(self.points), self._centred, self._squares
        unsure = np.empty(out.shape, np.bool_)
        scratch = np.empty((hi - lo) * min(COLUMNS, n))
        for a in range(0, n, COLUMNS):
            b = min(a + COLUMNS, n)
            products = scratch[: (hi - lo) * (b - a)].reshape(hi - lo, b - a)
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(centred[lo:hi], centred[a:b].T, out=products)
            settle(products, squares[lo:hi], squares[a:b], self._share, self.form, a, out, unsure)
        return unsure

    def _by_pairs(self, lo: int, unsure: NDArray[np.bool_], out: Rows) -> None:
        """Compute the distances that products have left; those of points to themselves are zero."""
        step = max(1, PAIR_BYTES // (8 * self.points.shape[1]))
        selves = np.arange(len(out)), np.arange(lo, lo + len(out))
        out[selves], unsure[selves] = 0, False
        for k in np.flatnonzero(unsure.any(axis=1)).tolist():
            columns = np.flatnonzero(unsure[k])
            for first in range(0, columns.size, step):
                some = columns[first : first + step]
                point = self.points[lo + k : lo + k + 1]
                with np.errstate(over="ignore"):
                    out[k, some] = self.by_pairs(point, self.points[some], np.empty((1, some.size)))[0]
