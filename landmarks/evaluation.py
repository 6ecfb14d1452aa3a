"""Stress of a landmark map on pairs that no fit has seen, and agreement of starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psmds_dist.core.stress import disparity
from psmds_dist.core.types import Floats, Ints

ROWS, COLUMNS = 100, 400
"""Held-out points, and the points that each is compared with."""

TAILS = 0.975
"""Quantile that leaves 5 % outside on both sides."""


@dataclass(frozen=True)
class HeldOut:
    """Dissimilarities between pairs of points of which neither is a landmark; NaN where missing or a point itself.

    Rows are fewer than columns: the interval comes from how they differ.
    """

    rows: Ints
    columns: Ints
    values: Floats

    @property
    def points(self) -> Ints:
        """All points involved, ascending."""
        return np.union1d(self.rows, self.columns)


@dataclass(frozen=True)
class StressEstimate:
    """Stress of a map, estimated on held-out pairs.

    Attributes
    ----------
    normalized_stress : float
        ``sqrt(sum (t - d)^2 / sum t^2)`` over the pairs.
    low, high : float
        95 % confidence interval, from a jackknife over the held-out points: pairs of one point hang together.
    stress1 : float
        Kruskal's Stress-1 over the pairs.
    mse : float
        Mean of ``(t - d)^2`` over the pairs.
    pairs : int
        Pairs used.
    """

    normalized_stress: float
    low: float
    high: float
    stress1: float
    mse: float
    pairs: int


def estimate(held_out: HeldOut, x_rows: Floats, x_columns: Floats) -> StressEstimate:
    """Stress of coordinates on held-out pairs.

    Parameters
    ----------
    held_out : HeldOut
        The pairs.
    x_rows : (m, L) ndarray
        Coordinates of ``held_out.rows``.
    x_columns : (c, L) ndarray
        Coordinates of ``held_out.columns``.
    """
    distances = np.sqrt(np.square(x_rows[:, None, :] - x_columns[None, :, :]).sum(axis=2))
    used = np.isfinite(held_out.values) & np.isfinite(distances)
    given = np.where(used, held_out.values, 0.0)
    distances = np.where(used, distances, 0.0)
    error = np.square(given - distances).sum(axis=1)
    total = np.square(given).sum(axis=1)
    share, spread = _jackknife(error, total)
    pairs = int(used.sum())
    return StressEstimate(
        normalized_stress=math.sqrt(share),
        low=math.sqrt(max(0.0, share - spread)),
        high=math.sqrt(share + spread),
        stress1=_root(error.sum(), np.square(distances).sum()),
        mse=float(error.sum()) / max(1, pairs),
        pairs=pairs,
    )


def _jackknife(error: Floats, total: Floats) -> tuple[float, float]:
    """Ratio of two sums over rows, and how far its confidence interval reaches, as rows are left out in turn."""
    from scipy.special import stdtrit  # late: SciPy takes a while

    share = float(error.sum() / total.sum()) if total.sum() > 0 else math.nan
    m = error.size
    rest = total.sum() - total
    if m < 2 or not (rest > 0).all():
        return share, math.inf
    without = (error.sum() - error) / rest
    error_of_share = math.sqrt((m - 1) / m * float(np.square(without - without.mean()).sum()))
    return share, float(stdtrit(m - 1, TAILS)) * error_of_share  # Student's t: rows may be few


def _root(error: float, total: float) -> float:
    return math.sqrt(error / total) if total > 0 else math.nan


def agreement(maps: Sequence[Floats]) -> Floats:
    """Procrustes disparity of each map to the first: 0 for the same shape, 1 for nothing in common.

    Parameters
    ----------
    maps : sequence of (S, L) ndarray
        Maps of the same points, the best first.

    Returns
    -------
    (len(maps) - 1,) ndarray
        As `psmds_dist.core.stress.disparity` gives it.
    """
    return np.array([disparity(maps[0], other) for other in maps[1:]])
