"""What pairs cost by any rule: plain NumPy and SciPy, a full recomputation for every candidate move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import huber

from psmds_dist.core.rules import PairRule
from tests.marks import wide

FORMULAS = {
    "squared": lambda t, d, u: (t - d) ** 2,
    "absolute": lambda t, d, u: np.abs(t - d),
    "huber": lambda t, d, u: 2 * huber(u, t - d),
    "sstress": lambda t, d, u: (t**2 - d**2) ** 2,
    "relative": lambda t, d, u: ((t - d) / np.maximum(t, u)) ** 2,
    "log": lambda t, d, u: (np.log(np.maximum(t, u)) - np.log(np.maximum(d, u))) ** 2,
}
"""Cost of a pair by dissimilarity, distance and threshold or floor."""

SOME_LOSSES = ["squared", "huber", "log", *wide("absolute", "sstress", "relative")]
"""All losses. Kernels of each are compiled for half a minute, so three of them stand for all in a quick search."""

UNITS = {"squared": 1.0, "absolute": 1.0, "huber": 0.1, "sstress": 1.0, "relative": 1e-6, "log": 1e-4}
"""Documented thresholds and floors, as shares of the scale."""


@dataclass
class Pairs:
    """Pairs of a few points: bounds, weights, and which of them count."""

    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    scale: float

    def rows(self, rule: PairRule, dtype: str = "float64") -> np.ndarray:
        """Rows as a rule says that they are."""
        parts = [self.low, *[self.high] * rule.bounded, *[self.weights] * rule.weighted]
        return np.ascontiguousarray(np.hstack(parts), dtype=dtype)

    def full_weights(self, rule: PairRule) -> np.ndarray:
        """Weight of every pair, 0 where it does not count."""
        weights = self.weights if rule.weighted else np.ones_like(self.low)
        known = ~np.isnan(self.low) & ~np.isnan(self.high) & ~np.eye(len(self.low), dtype=bool) & (weights > 0)
        power = np.where(known, self.low / self.scale, 1.0) ** rule.power
        return np.where(known, weights * power, 0.0)

    def costs(self, rule: PairRule, x: np.ndarray, i: int, place: np.ndarray) -> float:
        """Cost of the row of point ``i`` at another place."""
        d = cdist(place[None], x)[0]
        weights = self.full_weights(rule)[i]
        some = weights > 0
        d, high = d[some], (self.high if rule.bounded else self.low)[i, some]
        t = np.clip(d, self.low[i, some], high)
        unit = self.scale * (UNITS[rule.loss] if rule.unit is None else rule.unit)
        return float(np.sum(weights[some] * FORMULAS[rule.loss](t, d, unit)))

    def error(self, rule: PairRule, x: np.ndarray) -> float:
        """Cost of a map over ordered pairs."""
        return sum(self.costs(rule, x, i, x[i]) for i in range(len(x)))

    def gains(self, rule: PairRule, x: np.ndarray, radius: float) -> np.ndarray:
        """Change of each row's cost for every move, in the order + - along each axis."""
        n, dims = x.shape
        gains = np.empty((n, 2 * dims))
        for i in range(n):
            here = self.costs(rule, x, i, x[i])
            for m in range(2 * dims):
                place = x[i].copy()
                place[m // 2] += radius if m % 2 == 0 else -radius
                gains[i, m] = self.costs(rule, x, i, place) - here
        return gains


def random_pairs(n: int, seed: int, *, gaps: float = 0.0, zero: float = 0.0, spread: float = 0.0) -> Pairs:
    """Pairs with random dissimilarities; some missing, some of weight 0, and bounds some way apart or open."""
    rng = np.random.default_rng(seed)
    t = _symmetric(rng.uniform(0.2, 3, (n, n)), 0.0)
    weights = _symmetric(rng.uniform(0.1, 4, (n, n)) * (rng.random((n, n)) >= zero), 0.0)
    high = t + spread * _symmetric(rng.exponential(size=(n, n)), 0.0)
    if spread:
        high[_symmetric(rng.random((n, n)), 1.0) < 0.2] = np.inf
    t = np.where(_symmetric(rng.random((n, n)), 1.0) < gaps, np.nan, t)
    known = ~np.isnan(t) & ~np.eye(n, dtype=bool)
    return Pairs(t, high, weights, float(np.sqrt(np.mean(t[known] ** 2))) if known.any() else 1.0)


def _symmetric(values: np.ndarray, diagonal: float) -> np.ndarray:
    """The upper triangle on both sides."""
    upper = np.triu(values, 1)
    return np.where(np.eye(len(values), dtype=bool), diagonal, upper + upper.T)
