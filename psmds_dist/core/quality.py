"""Measures of how well a map keeps its dissimilarities, from totals of its rows; intervals where rows were sampled."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from psmds_dist.core.stress import ROUNDING, jackknife
from psmds_dist.core.types import Floats, Ints, Rows

Interval = tuple[float, float]
Intervals = dict[str, Interval]

CONFIDENCE = 0.95

OF_ALL_PAIRS = ("scaled_stress", "strain", "pearson", "spearman", "trustworthiness", "continuity")
"""Measures that need all dissimilarities, and count them alike."""


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Measures of a map; ``t`` are dissimilarities, ``d`` the distances of the map.

    A measure that was not asked for is None. NaN stands for one that has no value, as the correlation of equal numbers,
    or for one of `OF_ALL_PAIRS` where pairs are missing, or have weights, bounds or another loss.

    Attributes
    ----------
    n : int
        Number of points.
    rows : (m,) ndarray
        Points whose rows were read, ascending: all, or a sample.
    point_stress : (m,) ndarray
        Normalized stress of the row of each.
    mse, raw_stress, stress1, normalized_stress : float
        As in `psmds_dist.Stress`.
    scaled_stress : float
        Normalized stress after the best scaling of the map, ``sqrt(1 - (sum t d)^2 / (sum t^2 sum d^2))``: the shape
        alone counts.
    strain : float
        Misfit of classical scaling, ``||B - X X'|| / ||B||``, where ``B`` is the doubly centred matrix of
        ``-t^2 / 2`` and ``X`` the centred map.
    pearson, spearman : float
        Correlation of ``t`` and ``d`` over the pairs of points, and of their ranks; equal values share their mean
        rank. Beyond 2,000 points `spearman` is taken over the pairs of that many random points.
    n_neighbors : int
        Number of nearest points, ``k``.
    trustworthiness : float
        Whether the k nearest points in the map are near by their dissimilarities: 1 if they are the k nearest, and
        less by their ranks otherwise. Of equal dissimilarities, that of the lower point counts as the smaller.
    continuity : float
        The same with map and matrix exchanged: whether near points stay near.
    neighborhood_hit : float or None
        Mean share of the k nearest points in the map that have the label of the point.
    knn_score : float or None
        Share of points with the label that is most frequent among the k nearest other points in the map; of equally
        frequent labels, the first in order counts.
    procrustes : float or None
        Disparity to the known coordinates, as in `scipy.spatial.procrustes`: the sum of squared differences once both
        are centred, scaled to 1 and turned. 0 for the same shape, 1 for nothing in common.
    intervals : dict
        For each measure that was estimated, the lower and upper end of its 95 % confidence interval. It is too short
        where a few far points make up most of a sum.
    """

    n: int
    rows: Ints
    point_stress: Floats
    mse: float
    raw_stress: float
    stress1: float
    normalized_stress: float
    scaled_stress: float
    strain: float
    pearson: float
    spearman: float
    n_neighbors: int
    trustworthiness: float
    continuity: float
    neighborhood_hit: float | None = None
    knn_score: float | None = None
    procrustes: float | None = None
    intervals: Intervals = field(default_factory=dict)

    @property
    def left_out(self) -> bool:
        """Whether the measures of all pairs were left out."""
        return all(math.isnan(getattr(self, name)) for name in OF_ALL_PAIRS)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values without those of single points, for JSON: `rows` is their number; NaN becomes None."""
        values = asdict(self) | {"rows": len(self.rows)}
        del values["point_stress"]
        return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: [_plain(end) for end in ends] for name, ends in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


class RowTotals(NamedTuple):
    """Totals of a row of the matrix; or of each of several rows, or means of them, as arrays."""

    error: Any
    """Sum of ``(t - d)^2``."""

    embedded: Any
    """Sum of ``d^2``."""

    given: Any
    """Sum of ``t^2``."""

    t: Any
    d: Any
    product: Any
    """Sum of ``t d``."""

    fourth: Any
    """Sum of ``t^4``."""

    gap: Any
    """Sum of ``(t^2 - d^2)^2``."""

    given_square: Any
    """Square of the sum of ``t^2``."""

    gap_square: Any
    """Square of the sum of ``t^2 - d^2``."""

    untrusted: Any
    """Penalty of the nearest points in the map."""

    discontinuous: Any
    """Penalty of the nearest points in the matrix."""

    hits: Any = None
    """Share of nearest points with the label of the point."""

    correct: Any = None
    """Whether the most frequent label around the point is its own."""


def measures(mean: RowTotals, n: int, n_neighbors: int, unit: float) -> dict[str, Any]:
    """Measures of a map of ``n`` points from the means of its rows; an array for each where the means are arrays."""
    worst = n_neighbors * (2 * n - 3 * n_neighbors - 1) / 2  # of the mean penalty: then the measure is 0
    others = n - 1
    covariance = mean.product * others - mean.t * mean.d
    variances = _variance(mean.given, mean.t, others) * _variance(mean.embedded, mean.d, others)
    # the double centring of a symmetric matrix A: |JAJ|^2 = |A|^2 - 2/n |row sums|^2 + (total / n)^2
    misfit = n * mean.gap - 2 * mean.gap_square + (mean.given - mean.embedded) ** 2
    centred = n * mean.fourth - 2 * mean.given_square + mean.given**2
    found = {
        "mse": mean.error / n / unit**2,
        "raw_stress": mean.error * n / 2 / unit**2,
        "stress1": _root(_ratio(mean.error, mean.embedded)),
        "normalized_stress": _root(_ratio(mean.error, mean.given)),
        "scaled_stress": _root(1 - _ratio(mean.product**2, mean.given * mean.embedded)),
        "strain": _root(_ratio(misfit, centred)),
        "pearson": covariance / np.sqrt(variances),
        "trustworthiness": 1 - mean.untrusted / worst,
        "continuity": 1 - mean.discontinuous / worst,
    }
    return found if mean.hits is None else found | {"neighborhood_hit": mean.hits, "knn_score": mean.correct}


def _variance(squares: Any, total: Any, count: int) -> Any:
    """Variance of numbers times the square of their count; NaN where only rounding tells them apart."""
    variance = squares * count - total**2
    return np.where(variance > ROUNDING * squares * count, variance, np.nan)


SHARES = ("trustworthiness", "continuity", "neighborhood_hit", "knn_score")
"""Measures that are means of numbers from 0 to 1."""


def _ratio(part: Any, whole: Any) -> Any:
    return np.where(np.equal(part, 0), 0.0, np.divide(part, whole))


def _root(value: Any) -> Any:
    """Square root; rounding may have left a zero negative."""
    return np.sqrt(np.maximum(value, 0.0))


def estimate(table: Floats, n: int, n_neighbors: int, unit: float = 1.0) -> tuple[dict[str, float], Intervals]:
    """Measures from the totals of some rows, and confidence intervals unless these are all rows.

    Rows are the sampling unit: what a sampled row tells is exact, and pairs of a row hang together. The spread comes
    from a jackknife over the rows, less what a sample without replacement knows already.

    Parameters
    ----------
    table : (m, ...) ndarray
        `RowTotals` of each row.
    n : int
        Rows of the matrix.
    n_neighbors : int
        Nearest points that the penalties belong to.
    unit : float
        Factor of the lengths in the totals.
    """
    m, rest = len(table), (n, n_neighbors, unit)
    with np.errstate(all="ignore"):  # what overflows has no value
        found = measures(RowTotals(*table.mean(axis=0)), *rest)
        values = {name: float(value) for name, value in found.items()}
        if m == n:
            return values, {}
        without = measures(RowTotals(*((table.sum(axis=0) - table) / (m - 1)).T), *rest)
        spread = {name: jackknife(column, n) for name, column in without.items()}
    return values, {name: _interval(name, value, spread[name], m, n) for name, value in values.items()}


def _interval(name: str, value: float, error: float, m: int, n: int) -> Interval:
    reach = _quantile(m - 1)
    if name not in SHARES:
        return value - reach * error, value + reach * error
    return _wilson(value, m / (1 - m / n) if error == 0 else value * (1 - value) / error**2, reach)


def _wilson(share: float, size: float, reach: float) -> Interval:
    """Wilson's interval of a share, of a sample as large as its standard error tells: it never is a single number."""
    weight = 1 / (1 + reach**2 / size)
    centre = weight * share + (1 - weight) / 2
    half = weight * reach * math.sqrt(share * (1 - share) / size + (reach / size) ** 2 / 4)
    return centre - half, centre + half


def _quantile(freedom: int) -> float:
    """Quantile of Student's t that leaves 5 % outside on both sides."""
    from scipy.special import stdtrit  # late: SciPy takes a while

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def rank_correlation(given: Rows, x: Floats, n: int) -> tuple[float, Interval | None]:
    """Spearman correlation over the pairs of some points, and its interval unless these are all ``n`` points.

    Parameters
    ----------
    given : (m, m) ndarray
        Dissimilarities between the points.
    x : (m, L) ndarray
        Their coordinates.
    n : int
        Points of the map.
    """
    from scipy.spatial.distance import pdist, squareform
    from scipy.stats import rankdata

    m = len(x)
    u, v = (rankdata(values) / (m * (m - 1) / 2) for values in (squareform(given, checks=False), pdist(x)))
    scale = u.std() * v.std()
    if scale == 0:
        return math.nan, None
    value = float(((u - u.mean()) * (v - v.mean())).mean() / scale)
    if m == n:
        return value, None
    influence = u * v + _beyond(u, v) + _beyond(v, u)  # of a pair: by its own ranks, and on those of the others
    of_point = squareform(influence / scale).sum(axis=1) / (m - 1)
    error = 2 * math.sqrt((1 - m / n) / (m * (m - 1)) * float(np.square(of_point - of_point.mean()).sum()))
    reach = _quantile(m - 1) * error
    return value, (value - reach, value + reach)


def _beyond(u: Floats, v: Floats) -> Floats:
    """For each pair, the mean over all of ``v`` where ``u`` is at least its own."""
    order = np.argsort(-u, kind="stable")
    sums = np.empty_like(v)
    sums[order] = np.cumsum(v[order]) / v.size
    return sums
