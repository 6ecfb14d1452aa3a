"""How good a map is: stress under its several names, stress of each point, and a canonical orientation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from psmds_dist.core.types import Floats, Ints

if TYPE_CHECKING:
    from psmds_dist.core.quality import Quality


@dataclass(frozen=True)
class Stress:
    """Stress of a map, every figure for the same coordinates.

    Attributes
    ----------
    mse : float
        Mean of ``(t_ij - d_ij)^2`` over all ``n^2`` ordered pairs, the objective of pattern search.
    raw_stress : float
        Sum of ``(t_ij - d_ij)^2`` over pairs ``i < j``.
    stress1 : float
        Kruskal's Stress-1, ``sqrt(sum (t_ij - d_ij)^2 / sum d_ij^2)``.
    normalized_stress : float
        ``sqrt(sum (t_ij - d_ij)^2 / sum t_ij^2)``: free of scale, comparable across data sets.
    point_stress : (n,) ndarray
        The same of each point's own row, ``sqrt(sum_j (t_ij - d_ij)^2 / sum_j t_ij^2)``; 0 for a row of zeros
        that is met exactly, infinite for one that is not.
    error : float
        The objective of a solve as a mean over pairs: that of their losses, with their weights. It is ``mse`` where the
        loss is the squared error.
    standard_error : float
        That of ``normalized_stress`` where all figures are estimates from a sample of the rows; ``point_stress`` is NaN
        for points outside of it then. 0 where all rows were read.

    Where pairs have weights, sums are weighted and means divide by ``n / (n - 1)`` times the sum of the weights, which
    is ``n^2`` for weights of one. A missing pair has the weight 0. Where pairs have bounds, ``t`` is the value between
    them that is nearest to ``d``.
    """

    mse: float
    raw_stress: float
    stress1: float
    normalized_stress: float
    point_stress: Floats
    error: float = math.nan
    standard_error: float = 0.0

    @classmethod
    def from_row_sums(cls, sums: Floats, n: int | None = None) -> Stress:
        """Stress from the row sums of `psmds_dist.kernels.moves.row_sums` or `psmds_dist.kernels.loss.row_sums`.

        They are those of all rows, or of some of ``n`` rows, for estimates.
        """
        n = n or len(sums)
        objective, embedded, given, *others = (n / len(sums) * float(total) for total in sums.sum(axis=0))
        pairs, error = counted_pairs(sums, n), others[0] if others else objective
        squares = sums[:, 3] if others else sums[:, 0]
        return cls(
            mse=error / pairs,
            raw_stress=error / 2,
            stress1=float(_root_ratio(np.array(error), np.array(embedded))),
            normalized_stress=float(_root_ratio(np.array(error), np.array(given))),
            point_stress=_root_ratio(squares, sums[:, 2]),
            error=objective / pairs,
        )

    @classmethod
    def from_sample(cls, sums: Floats, points: Ints, n: int) -> Stress:
        """Estimates from the sums of the rows of some of ``n`` points, drawn at random; the error is by a jackknife."""
        found = cls.from_row_sums(sums, n)
        squares, given = (sums[:, 3] if sums.shape[1] > 3 else sums[:, 0]), sums[:, 2]
        without = _root_ratio(squares.sum() - squares, given.sum() - given)
        of_points = np.full(n, np.nan)
        of_points[points] = found.point_stress
        return replace(found, point_stress=of_points, standard_error=jackknife(without, n))

    @property
    def measured_rows(self) -> int:
        """Number of rows that the figures are from."""
        return int(np.count_nonzero(~np.isnan(self.point_stress)))

    @classmethod
    def unknown(cls, n: int) -> Stress:
        """Stress that was not measured: NaN throughout."""
        nan = float("nan")
        return cls(nan, nan, nan, nan, np.full(n, nan), nan)


def counted_pairs(sums: Floats, n: int | None = None) -> float:
    """Ordered pairs that means are over, from row sums: ``n^2``, or ``n / (n - 1)`` times the sum of the weights.

    With ``n``, sums are those of some of so many rows.
    """
    n = n or len(sums)
    return float(n * n) if sums.shape[1] == 3 else n / len(sums) * float(sums[:, 4].sum()) * n / (n - 1)


def jackknife(without: Floats, n: int) -> float:
    """Standard error of a measure of ``n`` rows, given it without each of the sampled rows in turn."""
    m = len(without)
    return math.sqrt((1 - m / n) * (m - 1) / m * float(np.square(without - without.mean()).sum()))


def _root_ratio(error: Floats, total: Floats) -> Floats:
    ratio = np.where(error == 0, 0.0, np.inf)
    np.divide(error, total, out=ratio, where=total > 0)
    return np.sqrt(ratio)


def canonical(x: Floats) -> Floats:
    """Turn a map into its canonical position: centred, on its principal axes, with fixed signs.

    Distances do not change. Axes come in the order of falling variance; each is oriented so that its coordinate
    of largest magnitude (the first of them on a tie) is positive.

    Parameters
    ----------
    x : (n, L) ndarray
        Coordinates.
    """
    return turned(x, *principal(x))


def principal(x: Floats) -> tuple[Floats, Floats]:
    """Centre ``(L,)`` and axes ``(L, L)`` of the canonical position of a map, for `turned`."""
    x = np.ascontiguousarray(x, dtype=np.float64)  # sums in one order, however the map lies in memory
    centre = x.mean(axis=0)
    centred = x - centre
    # einsum, not matmul: the order of BLAS sums may depend on its threads
    _, vectors = np.linalg.eigh(np.einsum("ij,ik->jk", centred, centred))
    axes = np.ascontiguousarray(vectors[:, ::-1])
    position = turned(x, centre, axes)
    largest = position[np.abs(position).argmax(axis=0), np.arange(axes.shape[1])]
    return centre, axes * np.where(largest < 0, -1.0, 1.0)


def turned(x: Floats, centre: Floats, axes: Floats) -> Floats:
    """``(x - centre) @ axes``, each row by itself: its bits do not depend on the other rows."""
    result: Floats = np.zeros((x.shape[0], axes.shape[1]))
    for k in range(x.shape[1]):
        result += (x[:, k : k + 1] - centre[k]) * axes[k]
    return result


def worst_points(stress: Stress | Quality, ids: Sequence[str] | None, count: int) -> list[tuple[str, float]]:
    """Names and stress of the points that fit worst, highest first; row numbers where there are no names."""
    order = np.argsort(-stress.point_stress, kind="stable")[:count]
    return [(ids[k] if ids else str(k), float(stress.point_stress[k])) for k in order]


ROUNDING = 16 * float(np.finfo(float).eps)
"""Extent of a map, as a share of its largest coordinate, that rounding alone explains."""


def disparity(x: Floats, y: Floats) -> float:
    """Procrustes disparity of two maps: 0 for the same shape, 1 for nothing in common.

    The sum of squared differences after the best translation, rotation, reflection and scaling, with both maps scaled
    to 1 (`scipy.spatial.procrustes`); 1 where a map is a single place.

    Parameters
    ----------
    x, y : (n, L) ndarray
        Maps of the same points.
    """
    a, b = _unit_size(x), _unit_size(y)
    # einsum, not matmul: the order of BLAS sums may depend on its threads
    cosine = np.linalg.svd(np.einsum("ij,ik->jk", a, b), compute_uv=False).sum()
    return max(0.0, 1.0 - float(cosine) ** 2)


def _unit_size(x: Floats) -> Floats:
    """The map centred and with squares that sum to 1; zeros for a single place."""
    largest = float(np.abs(x).max(initial=0.0)) or 1.0  # first, so that no sum or square overflows
    centred = np.asarray(x, float) / largest
    centred -= centred.mean(axis=0)
    spread = float(np.abs(centred).max(initial=0.0))
    if spread <= ROUNDING:
        return np.zeros_like(centred)
    centred /= spread
    return centred / math.sqrt(float(np.square(centred).sum()))
