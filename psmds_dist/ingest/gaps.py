"""Missing pairs of a matrix: which pairs each point knows, whether both orders agree, and which points are connected.

Whether a pair is missing in both orders is tested by hash. With a random 64-bit weight for each point, the weights of
the points that are missing in row ``i`` have the same sum (modulo 2^64) as those of the rows that miss column ``i``.
The sums are of integers, so that they do not depend on how blocks are grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Ints

Mask = NDArray[np.bool_]
Hashes = NDArray[np.uint64]

_KEY = 0x6D697373


@lru_cache(maxsize=1)
def hash_weights(n: int) -> Hashes:
    """Random weights of the points."""
    random = np.random.Generator(np.random.Philox(key=[_KEY, n]))
    return random.integers(0, 2**64, n, dtype=np.uint64)


class Components:
    """Points that are joined by pairs, directly or through others; labelled by one of them.

    Parameters
    ----------
    n : int
        Number of points.
    """

    def __init__(self, n: int) -> None:
        self.labels = np.arange(n)
        self._one = n <= 1

    def join(self, members: Mask) -> None:
        """Join the points of a mask; without effect once all are joined."""
        if self._one:
            return
        labels = self.labels[members]
        if (labels != labels[0]).any():  # seldom, once the components are known
            joined = np.unique(labels)
            renamed = np.arange(self.labels.size)
            renamed[joined] = joined[0]
            self.labels = renamed[self.labels]
            self._one = bool((self.labels == self.labels[0]).all())


def merge_labels(found: Sequence[Ints]) -> Ints:
    """Label points by the first of their component, where some labellings of this kind join them together."""
    from scipy.sparse import coo_array  # late: importing SciPy takes longer than most starts
    from scipy.sparse.csgraph import connected_components

    n = found[0].size
    ends: tuple[Any, Any] = (np.tile(np.arange(n), len(found)), np.concatenate(found))
    joined = coo_array((np.ones(ends[0].size, bool), ends), shape=(n, n))
    label = connected_components(joined, directed=False)[1]
    first = np.unique(label, return_index=True)[1]
    return np.asarray(first[label], np.int64)


@dataclass(frozen=True)
class GapScan:
    """What the blocks of one group show of missing pairs.

    Attributes
    ----------
    rows : (k,) array
        Rows with missing pairs.
    known : (k,) array
        Other points that each of them knows.
    row_hashes : (k,) array
        Hashes of what is missing in each of them.
    column_hashes : (n,) array
        Hashes of the rows that miss each column.
    labels : (n,) array
        Components of the points, as far as these rows join them.
    """

    rows: Ints
    known: Ints
    row_hashes: Hashes
    column_hashes: Hashes
    labels: Ints


class GapScanner:
    """Collects what blocks of one group show of missing pairs; those without any need not be added."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._weights = hash_weights(n)
        self._columns = np.zeros(n, np.uint64)
        self._components = Components(n)
        self._rows: list[Ints] = []
        self._known: list[Ints] = []
        self._hashes: list[Hashes] = []

    def add(self, lo: int, missing: Mask) -> None:
        """Look at rows from ``lo`` on, whose missing entries are marked, none of them on the diagonal."""
        rows = np.arange(lo, lo + len(missing))
        self._rows.append(rows)
        self._known.append(self._n - 1 - np.count_nonzero(missing, axis=1))
        self._hashes.append(np.einsum("ij,j->i", missing, self._weights))
        self._columns += np.einsum("ij,i->j", missing, self._weights[rows])
        for line in missing:
            self._components.join(~line)

    def result(self) -> GapScan | None:
        """Return what was collected; None where nothing is missing."""
        if not self._rows:
            return None
        return GapScan(
            rows=np.concatenate(self._rows),
            known=np.concatenate(self._known),
            row_hashes=np.concatenate(self._hashes),
            column_hashes=self._columns,
            labels=self._components.labels,
        )


class Gaps:
    """What a pass shows of missing pairs; groups may come in any order.

    Attributes
    ----------
    known : (n,) array
        Other points that each point knows.
    """

    def __init__(self, n: int) -> None:
        self.known = np.full(n, n - 1, np.int64)
        self._row_hashes = np.zeros(n, np.uint64)
        self._column_hashes = np.zeros(n, np.uint64)
        self._labels: Ints = np.arange(n)

    def add(self, group: GapScan | None) -> None:
        """Take in what a group shows."""
        if group is None:
            return
        self.known[group.rows] = group.known
        self._row_hashes[group.rows] = group.row_hashes
        self._column_hashes += group.column_hashes
        self._labels = merge_labels([self._labels, group.labels])

    @property
    def entries(self) -> int:
        """Entries off the diagonal that are known."""
        return int(self.known.sum())

    @property
    def missing(self) -> int:
        """Pairs that are missing, where both orders agree."""
        n = self.known.size
        return (n * (n - 1) - self.entries) // 2

    @property
    def one_sided(self) -> Ints:
        """Points of which some pairs are known in one order only."""
        return np.flatnonzero(self._row_hashes != self._column_hashes)

    @property
    def labels(self) -> Ints:
        """Component of each point."""
        n = self.known.size
        complete = bool((self.known == n - 1).any())  # such a point joins all
        return np.zeros(n, np.int64) if complete else self._labels

    def poorest(self, count: int) -> list[tuple[int, int]]:
        """Points that know the fewest others, and how many, ascending; none that know all."""
        order = np.argsort(self.known, kind="stable")[:count]
        return [(int(k), int(self.known[k])) for k in order if self.known[k] < self.known.size - 1]


def component_sizes(labels: Ints) -> list[int]:
    """Sizes of components, the largest first."""
    return sorted(np.unique(labels, return_counts=True)[1].tolist(), reverse=True)


def largest_component(labels: Ints) -> int:
    """Label of the component with the most points, the first of equals."""
    return int(np.bincount(labels).argmax())


def names_of(points: Iterable[int], ids: Sequence[str] | None, most: int = 5) -> str:
    """Name some points, of which there may be many."""
    shown = list(points)
    named = ", ".join(str(k) if ids is None else repr(ids[k]) for k in shown[:most])
    return named + ", ..." * (len(shown) > most)
