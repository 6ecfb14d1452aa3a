"""Parts of a matrix with gaps that few known pairs join, such as two batches with some points in common.

Each part keeps its shape in any map of low stress, but a descent seldom turns one against the other: half of its points
would have to pass through worse places. So parts are found, and turned as rigid bodies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.utils.blas import one_thread

WEAK = 0.1
"""Parts are joined weakly where the known pairs between them are at most this share of those of the smaller one."""

SMALLEST = 4
"""Fewest points of a part."""

ITERATIONS = 60
"""Steps of the power method; the sign of each point settles long before the eigenvector does."""

TURNS, STEPS = 24, 40
"""Orientations that a part is tried in, and steps that each is improved by."""

MOST_PAIRS = 4096
"""Most pairs between a part and the rest that decide how it is turned."""

Mask = NDArray[np.bool_]


def known_pairs(rows: Rows, rule: PairRule) -> Mask:
    """Whether each pair counts, by rows that hold what a rule says, ``(m, n)``."""
    n = rows.shape[1] // rule.parts
    known = rows[:, n * rule.bounded : n * rule.bounded + n] >= rows[:, :n]
    return np.asarray(known & (rows[:, -n:] > 0)) if rule.weighted else np.asarray(known)


def weak_parts(known: Mask) -> Ints:
    """Part of each point; all 0 where no cut through the graph of known pairs is weak.

    Parameters
    ----------
    known : (n, n) bool ndarray
        Symmetric; whether each pair is known. The diagonal does not matter.
    """
    labels = np.zeros(len(known), np.int64)
    if known.sum() >= (1 - WEAK) * known.size:
        return labels
    with one_thread():  # the order of sums in BLAS depends on its threads
        for part, points in enumerate(_split(known.astype(np.float32), np.arange(len(known)))):
            labels[points] = part
    return labels


def _split(known: Rows, points: Ints) -> Iterator[Ints]:
    """Cut some points in two as long as there are weak cuts."""
    inner = known[np.ix_(points, points)]
    np.fill_diagonal(inner, 0)
    first = _one_side(inner)
    if first is None:
        yield points
        return
    yield from _split(known, points[first])
    yield from _split(known, points[~first])


def _one_side(known: Rows) -> Mask | None:
    """One side of a weak cut, or None where there is none: the sign of the second eigenvector."""
    degrees = known.sum(axis=1)
    if len(known) < 2 * SMALLEST or not degrees.all():
        return None
    roots = np.sqrt(degrees)
    top = roots / np.sqrt(degrees.sum())
    vector = np.random.default_rng(0).standard_normal(len(known)).astype(np.float32)
    for _ in range(ITERATIONS):
        vector = vector - top * (top @ vector)
        vector = vector + known @ (vector / roots) / roots  # eigenvalues between 0 and 2: bipartite graphs have -1
        vector = vector / np.sqrt(vector @ vector)
    first = vector > 0
    if min(first.sum(), (~first).sum()) < SMALLEST:
        return None
    between = known[first][:, ~first].sum()
    return first if between <= WEAK * min(degrees[first].sum(), degrees[~first].sum()) else None


@dataclass(frozen=True)
class Links:
    """Known pairs between different parts.

    Attributes
    ----------
    labels : (n,) ndarray
        Part of each point.
    i, j : (k,) ndarray
        Points of each pair, in both orders.
    low, high, weights : (k,) ndarray
        Bounds of its dissimilarity, and its weight.
    """

    labels: Ints
    i: Ints
    j: Ints
    low: Floats
    high: Floats
    weights: Floats

    @classmethod
    def of(cls, rows: Rows, labels: Ints, rule: PairRule) -> Links:
        """Pairs between parts, of rows that hold what a rule says."""
        n = len(rows)
        i, j = np.nonzero((labels[:, None] != labels) & known_pairs(rows, rule))
        low, high = rows[i, j], rows[i, n * rule.bounded + j]
        weights = rows[i, rows.shape[1] - n + j] if rule.weighted else np.ones(i.size)
        return cls(labels, i, j, low.astype(float), high.astype(float), weights.astype(float))

    def of_part(self, part: int) -> Links:
        """Pairs of one part, its own points first; of very many, some that are spread evenly."""
        chosen = np.flatnonzero(self.labels[self.i] == part)
        chosen = chosen[:: -(-chosen.size // MOST_PAIRS) or 1]
        low, high, weights = (values[chosen] for values in (self.low, self.high, self.weights))
        return Links(self.labels, self.i[chosen], self.j[chosen], low, high, weights)

    def cost(self, x: Floats) -> float:
        """Weighted squared error of the pairs in a map ``(L, n)``."""
        d = np.sqrt(np.square(x[:, self.i] - x[:, self.j]).sum(axis=0))
        return float(self.weights @ np.square(d - np.clip(d, self.low, self.high)))


def turned(x: Floats, links: Links, random: np.random.Generator) -> Floats:
    """A map, ``(L, n)``, in which each part but the largest is turned and moved to where its known pairs fit best."""
    sizes = np.bincount(links.labels)
    for part in np.argsort(sizes, kind="stable")[:-1].tolist():
        own = links.of_part(part)
        if own.i.size:
            x = min((x, *_placements(x, own, links.labels == part, random)), key=own.cost)
    return x


def _placements(x: Floats, links: Links, part: Mask, random: np.random.Generator) -> Iterator[Floats]:
    """Maps with a part in several orientations, each improved by majorization under which the part stays rigid."""
    dims = len(x)
    for turn in range(TURNS):
        rotation, _ = np.linalg.qr(random.standard_normal((dims, dims)))
        rotation[0] *= 1 if (np.linalg.det(rotation) > 0) == (turn % 2 == 0) else -1
        here, there = x[:, links.i].mean(axis=1), x[:, links.j].mean(axis=1)
        body = np.einsum("ij,jk->ik", rotation, x[:, part] - here[:, None]) + there[:, None]
        found = x.copy()
        found[:, part] = body
        for _ in range(STEPS):
            found[:, part] = _pulled(found, links, part)
        yield found


def _pulled(x: Floats, links: Links, part: Mask) -> Floats:
    """Coordinates of a part, moved as a whole to where its pairs are nearest to their wanted distances."""
    source, away = x[:, links.i], x[:, links.j]
    steps = source - away
    d = np.sqrt(np.square(steps).sum(axis=0))
    target = away + steps * np.divide(np.clip(d, links.low, links.high), d, out=np.zeros(d.size), where=d > 0)
    shares = links.weights / links.weights.sum()
    centre, place = np.einsum("ik,k->i", source, shares), np.einsum("ik,k->i", target, shares)
    spread = np.einsum("ik,jk,k->ij", target - place[:, None], source - centre[:, None], shares)
    u, _, v = np.linalg.svd(spread)
    rotation = np.einsum("ij,jk->ik", u, v)
    return np.asarray(np.einsum("ij,jk->ik", rotation, x[:, part] - centre[:, None]) + place[:, None])
