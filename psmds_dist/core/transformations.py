"""Transformations of dissimilarities into disparities, the numbers that distances in a map are compared with.

Dissimilarities are known by their position among some thousands of *knots*: number ``k`` of the last knot below, and
the fraction ``f`` of the way to the next one. A transformation is fitted by least squares to the distances ``d`` in a
map, from sums over the pairs of each bin between two knots, and is a *table*: its values at the knots in one line, or
the lowest and highest disparity of each bin in two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from psmds_dist.core.errors import InputError
from psmds_dist.core.types import Floats, Ints

MAX_BINS = 4096
"""Most bins: so many fit the caches, and are as good as all pairs apart."""

CELLS = 2**18
"""Most cells that the distances of all bins are counted in, where the pairs of a bin may have different disparities."""

SPREAD = 4.0
"""Distances, as multiples of the scale, up to which such cells divide them."""

ALIKE = 1e-3
"""Share of the largest disparity, or of the extent of a map, that does not tell two of them apart."""

CROWDED = 1 / 3
"""Share of the points that places of a map are, up to which it is degenerate."""


class BinGrid(NamedTuple):
    """Where pairs are summed."""

    shape: tuple[int, int, int]
    """Bins, cells of each, and sums."""

    unit: float
    """Steps of the sums, of which whole numbers are added: in one order or another, the sum is the same."""

    @classmethod
    def of(cls, transformation: Transformation, knots: int, x: Floats, scale: float) -> BinGrid:
        """The grid for a map ``(L, n)``, with steps so fine that sums over all its pairs just fit into 63 bits."""
        n = x.shape[1]
        shape = knots, transformation.cells(knots, n), 3 if transformation.stepwise else 6
        square = 2 * float(np.square((x - x.mean(axis=1)[:, None]) / scale).sum(axis=0).mean())  # mean over all pairs
        return cls(shape, 2.0 ** (61 - math.ceil(math.log2(n * n * max(1.0, square)))))


class BinSums(NamedTuple):
    """Sums over the pairs in each cell of each bin, ``(bins, cells)`` each; ordered pairs."""

    pairs: Floats
    d: Floats

    squares: float
    """Sum of all squared distances."""

    f: Floats
    ff: Floats
    fd: Floats

    @classmethod
    def of(cls, totals: Ints, unit: float, scale: float, share: float = 1.0) -> BinSums:
        """Sums from those of whole numbers: distances as multiples of ``scale``, in steps of ``1 / unit``.

        Where pairs are a sample, ``share`` is how many times as many all are. Fractions ``f`` are empty where positions
        are whole numbers.
        """
        step = share / unit
        whole = np.moveaxis(totals, -1, 0)
        pairs, d = share * whole[0], (scale * step) * whole[1]
        f, ff, fd = whole[3:] if len(whole) > 3 else np.empty((3, 0, 0))
        squares = scale * scale * step * int(totals[0, 0, 2])
        return cls(pairs, d, squares, step * f, step * ff, (scale * step) * fd)


class Fit(NamedTuple):
    """A transformation that fits a map."""

    table: Floats
    """``(1, knots)`` values, or ``(2, knots)`` bounds."""

    square: float
    """Sum of squared disparities."""


class Transformation(Protocol):
    """A kind of transformation."""

    @property
    def stepwise(self) -> bool:
        """Whether all dissimilarities of a bin count as the same, so that only their order matters."""
        ...

    def cells(self, knots: int, n: int) -> int:
        """Cells of each bin that tell its distances apart."""
        ...

    def needed(self, knots: Floats) -> Floats:
        """Those among ascending knots that tell all there is to fit."""
        ...

    def begin(self, knots: Floats, dims: int) -> Floats:
        """Values at the knots to begin with, in any unit."""
        ...

    def fit(self, sums: BinSums, knots: Floats) -> Fit:
        """Fit by least squares."""
        ...


@dataclass(frozen=True)
class Splines:
    """Sums of monotone splines with coefficients of at least zero.

    Parameters
    ----------
    degree, inner : int
        Degree of the pieces, and how many knots of the spline lie between its ends; degree 0 is proportional to the
        dissimilarity.
    """

    degree: int
    inner: int = 0
    stepwise = False

    def cells(self, knots: int, n: int) -> int:
        """One: the mean of a bin is all that matters."""
        return 1

    def needed(self, knots: Floats) -> Floats:
        """The ends where the pieces in between are one line."""
        return knots[[0, -1]] if self.degree <= 1 and not self.inner else knots

    def begin(self, knots: Floats, dims: int) -> Floats:
        """Dissimilarities as they are."""
        return knots

    def basis(self, knots: Floats) -> Floats:
        """Values of the splines at the knots, ``(knots, splines)``."""
        from scipy.interpolate import BSpline  # late: few runs need it

        if self.degree == 0:
            return np.asarray(knots[:, None] / knots[-1])
        cuts = np.unique(np.linspace(0, knots.size - 1, self.inner + 2).round().astype(int))
        breaks = np.pad(knots[cuts], self.degree, mode="edge")
        parts = BSpline.design_matrix(knots, breaks, self.degree).toarray()
        return np.ascontiguousarray(np.cumsum(parts[:, ::-1], axis=1)[:, ::-1])

    def fit(self, sums: BinSums, knots: Floats) -> Fit:
        """Fit by least squares: normal equations, by coefficients of at least zero."""
        from scipy.optimize import nnls

        basis = self.basis(knots)
        first, step = basis[:-1], np.diff(basis, axis=0)
        pairs, d, f, ff, fd = (column[:-1, 0] for column in (sums.pairs, sums.d, sums.f, sums.ff, sums.fd))
        mixed = np.einsum("k,ki,kj->ij", f, first, step)
        normal = np.einsum("k,ki,kj->ij", pairs, first, first) + np.einsum("k,ki,kj->ij", ff, step, step)
        normal += mixed + mixed.T
        right = np.einsum("k,ki->i", d, first) + np.einsum("k,ki->i", fd, step)
        values, vectors = np.linalg.eigh(normal)
        roots = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
        turned = np.einsum("ij,i->j", vectors, right) / roots
        coefficients = nnls(roots[:, None] * vectors.T, turned)[0]
        square = float(np.einsum("i,ij,j->", coefficients, normal, coefficients))
        return Fit(np.einsum("ki,i->k", basis, coefficients)[None], square)


@dataclass(frozen=True)
class Monotone:
    """Any values that never fall: monotone regression on the bins, after Kruskal (1964).

    Parameters
    ----------
    split : bool
        Whether equal dissimilarities may have different disparities (the primary treatment of ties) or may not.
    """

    split: bool
    stepwise = True

    def cells(self, knots: int, n: int) -> int:
        """One, or as many as there is room for."""
        return max(1, min(CELLS, 4 * n * n) // knots) if self.split else 1

    def needed(self, knots: Floats) -> Floats:
        """All: any of them may be where disparities rise."""
        return knots

    def begin(self, knots: Floats, dims: int) -> Floats:
        """Distances that lie evenly: what the dissimilarities are, apart from their order, is moot."""
        ranks: Floats = (np.arange(knots.size) + 0.5) / knots.size
        return np.asarray(ranks ** (1 / dims))

    def fit(self, sums: BinSums, knots: Floats) -> Fit:
        """Fit by least squares."""
        from scipy.optimize import isotonic_regression

        known = sums.pairs > 0
        weights = sums.pairs[known]
        values = isotonic_regression(sums.d[known] / weights, weights=weights).x
        square = float((weights * values * values).sum())
        bins = np.nonzero(known)[0]
        lows, highs = _filled(bins, values, knots.size)
        return Fit(_between(lows, highs) if self.split else lows[None], square)


def _filled(bins: Ints, values: Floats, count: int) -> tuple[Floats, Floats]:
    """First and last of the ascending values of each bin; on a line between them where a bin has none."""
    there, first = np.unique(bins, return_index=True)
    last = np.append(first[1:], bins.size) - 1
    places = np.arange(count)
    return np.interp(places, there, values[first]), np.interp(places, there, values[last])


def _between(lows: Floats, highs: Floats) -> Floats:
    """Bounds of bins that touch: half way from the last value of one to the first of the next."""
    cuts = np.concatenate([[0.0], (highs[:-1] + lows[1:]) / 2, [highs[-1]]])
    return np.stack([cuts[:-1], cuts[1:]])


TRANSFORMS = ("ratio", "interval", "spline", "ordinal")
"""Names of transformations."""

TIES = ("primary", "secondary")
"""Treatments of equal dissimilarities."""


def transformation_of(name: str, ties: str) -> Transformation:
    """Return the transformation of a name."""
    smooth = {"ratio": Splines(0), "interval": Splines(1), "spline": Splines(2, inner=2)}
    return Monotone(ties == "primary") if name == "ordinal" else smooth[name]


def knots_of(values: Floats, highest: float = -math.inf) -> tuple[Floats, bool]:
    """Knots for known dissimilarities, and whether these are all that are different.

    Where there are too many, knots are quantiles: where dissimilarities are skewed, most bins of equal width would be
    empty. The last one is ``highest`` where that is more: outliers are rare in a sample, but much of the stress.

    Raises
    ------
    InputError
        When all are the same.
    """
    ordered = np.sort(np.maximum(values, 0) + values.dtype.type(0))  # rounded zeros are zeros, and -0.0 is 0.0
    if highest > ordered.max(initial=-math.inf):
        ordered = np.append(ordered, ordered.dtype.type(highest))
    first = np.append(True, ordered[1:] > ordered[:-1])
    different = ordered[first[: ordered.size]]
    if different.size < 2:
        raise InputError(
            "all dissimilarities that are known are the same, so there is nothing to transform: leave out "
            "transformation."
        )
    if different.size <= MAX_BINS:
        return different.astype(float), True
    places = np.linspace(0, ordered.size - 1, MAX_BINS).astype(int)
    return np.unique(ordered[places]).astype(float), False


def degeneracy(embedding: Floats, curve: Floats) -> str:
    """What makes a map meaningless though its stress is low, in a sentence; empty where nothing does.

    Parameters
    ----------
    embedding : (n, L) ndarray
        Coordinates.
    curve : (2 or 3, k) ndarray
        Knots and disparities; empty where dissimilarities are not transformed.
    """
    if not curve.size or not np.isfinite(curve).all():
        return ""
    first, last = curve[-1, 0], curve[1, -1]
    touching = len(curve) > 2 and curve.shape[1] == 2  # bounds of two bins always do
    if last - first <= ALIKE * last and not touching:
        return (
            "the map is degenerate: the disparities of all pairs are nearly the same, whatever their dissimilarities; "
            "try more components, or transformation='interval'"
        )
    step = ALIKE * math.sqrt(float(np.square(embedding - embedding.mean(axis=0)).sum(axis=1).mean()))
    places = len(np.unique(np.round(embedding / step), axis=0)) if step else 1
    if places <= CROWDED * len(embedding):
        return (
            f"the map may be degenerate: its {len(embedding):,} points lie in {places:,} places, which ties or groups "
            "allow where only the order counts; try ties='secondary', or transformation='interval'"
        )
    return ""
