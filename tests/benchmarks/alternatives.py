"""Rejected methods, compared with what is done instead."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from psmds_dist import PatternSearchMDS
from psmds_dist.api.embed import measure
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels.jit import FAST_MATH
from psmds_dist.kernels.moves import propose
from tests.benchmarks import data
from tests.benchmarks.harness import Record, Settings, least_seconds, show
from tests.benchmarks.ours import passes_of
from tests.benchmarks.roofline import threads

Array = NDArray[np.float64]

COLUMNS = 300
"""Columns of a sampled round."""

EPS, HALVINGS = 1e-3, 14
"""Share of the error that an epoch must gain to keep the radius, and number of halvings."""


def alternatives(settings: Settings) -> list[Record]:
    """Rejected methods: column-sampled rounds, several moves per read of a row, pairs used twice.

    A sampled round reads 300 columns, redrawn at each radius. Several moves of a point are tried one after the other
    against one snapshot of the others, the later ones only if they help. Both descend from a random start with the same
    rule for the radius, and are compared with the default. Medians of three seeds. Pairs used twice: the square root of
    a move of one point is also that of the opposite move of the other, so a kernel over pairs takes half the roots, but
    adds to the sums of both points.
    """
    found = []
    for one in (data.digits(settings, settings.pick(400, 1000, 1500)), data.geodesic_roll(settings, 1500)):
        matrix = np.asarray(np.load(one.matrix), dtype=np.float64)
        n = len(matrix)
        ways = {
            "all columns, one move": Descent(matrix),
            f"{COLUMNS} columns": Descent(matrix, columns=min(COLUMNS, n // 2)),
            "2 moves while at hand": Descent(matrix, moves=2),
            "4 moves while at hand": Descent(matrix, moves=4),
        }
        found += [{"what": f"{one.name} {n:,}, {name}", **_medians(way.run)} for name, way in ways.items()]
        found.append({"what": f"{one.name} {n:,}, ours", **_medians(lambda seed, m=matrix: _ours(m, seed))})
    show(found, what="", passes=".1f", roots_a_pair=".0f", stress=".6f")
    print()
    pairs = _pairs()
    show([pairs], what="", ns_a_pair=".2f", ns_a_pair_used_twice=".2f", gain=".2f", of_a_round=".2f")
    return [*found, pairs]


def _medians(run):
    fits = [run(seed) for seed in range(3)]
    return {what: statistics.median(fit[what] for fit in fits) for what in fits[0]}


def _ours(matrix: Array, seed: int) -> Record:
    mds = PatternSearchMDS(random_state=seed).fit(matrix)
    return {"passes": passes_of(mds.history_), "stress": mds.normalized_stress_}


@dataclass(frozen=True)
class Descent:
    """Pattern search in two dimensions with bad moves, in two rounds an epoch.

    Parameters
    ----------
    matrix : (n, n) float64
        Dissimilarities.
    columns : int, optional
        Number of columns in a round, redrawn at each radius; all by default.
    moves : int
        Most moves of a point per read of its row.
    """

    matrix: Array
    columns: int | None = None
    moves: int = 1

    def run(self, seed: int) -> Record:
        """Descend from a random start; return passes and roots, relative to whole rows, and the stress of the map.

        Roots are an upper bound, because later moves of a point end where they do not help.
        """
        random = np.random.default_rng(seed)
        n = len(self.matrix)
        scale = float(np.sqrt((self.matrix**2).mean()))
        x, radius, epochs = random.normal(scale=scale / 2, size=(n, 2)), scale, 0
        for _ in range(HALVINGS):
            seen = np.arange(n) if self.columns is None else np.sort(random.permutation(n)[: self.columns])
            before = np.inf
            while True:
                x, error = self._epoch(x, radius, seen, random)
                epochs += 1
                if not error < (1 - EPS) * before:
                    break
                before = error
            radius /= 2
        passes = epochs * len(seen) / n
        roots = passes * (1 + 4 * self.moves)
        stress = measure(ArrayRows(self.matrix, "float64"), x, InProcessExecutor()).normalized_stress
        return {"passes": passes, "roots_a_pair": roots, "stress": stress}

    def _epoch(self, x: Array, radius: float, seen: Array, random: np.random.Generator) -> tuple[Array, float]:
        error = 0.0
        for half in np.array_split(random.permutation(len(x)), 2):
            moved = x.copy()
            error += _move(self.matrix, half, x, seen, radius, self.moves, moved)
            x = moved
        return x, error


@numba.njit(nogil=True)
def _move(matrix, points, x, seen, radius, moves, moved):
    """Move points against a snapshot of all; return their errors before."""
    total = 0.0
    for k in points:
        p, q = x[k]
        error = _error(matrix[k], x, seen, k, p, q)
        total += error
        for turn in range(moves):
            least, best = np.inf, (p, q)
            for u, v in ((radius, 0.0), (-radius, 0.0), (0.0, radius), (0.0, -radius)):
                tried = _error(matrix[k], x, seen, k, p + u, q + v)
                if tried < least:
                    least, best = tried, (p + u, q + v)
            if turn and not least < error:
                break
            error = least
            p, q = best
        moved[k] = p, q
    return total


@numba.njit(nogil=True, fastmath=FAST_MATH)
def _error(row, x, seen, k, p, q):
    """Error of point ``k`` at ``(p, q)``."""
    total = 0.0
    for j in seen:
        if j != k:
            total += (np.sqrt((p - x[j, 0]) ** 2 + (q - x[j, 1]) ** 2) - row[j]) ** 2
    return total


@numba.njit(nogil=True, fastmath=FAST_MATH, error_model="numpy")
def _pair_tile(t, x, y, x_i, y_i, r, error, east, west, north, south):
    """Sums for a point, and the contribution of each pair to the sums of its other point."""
    two_r, r_squared = r + r, r * r
    own = own_east = own_west = own_north = own_south = r - r
    for j in range(t.size):
        u, v = x_i - x[j], y_i - y[j]
        square = u * u + v * v
        distance = np.sqrt(square)
        moved = square + r_squared
        u, v = two_r * u, two_r * v
        residual = t[j] - distance
        e = t[j] * (np.sqrt(abs(moved + u)) - distance)
        w = t[j] * (np.sqrt(abs(moved - u)) - distance)
        n = t[j] * (np.sqrt(abs(moved + v)) - distance)
        s = t[j] * (np.sqrt(abs(moved - v)) - distance)
        own += residual * residual
        own_east += e
        own_west += w
        own_north += n
        own_south += s
        error[j] += residual * residual
        east[j] += w
        west[j] += e
        north[j] += s
        south[j] += n
    return own, own_east, own_west, own_north, own_south


@numba.njit(nogil=True, fastmath=FAST_MATH, error_model="numpy")
def _propose_pairs(rows, x, r, sums):
    """The sums of the move kernel in float32, computed once per pair."""
    n = x.shape[1]
    for i in range(n):
        found = _pair_tile(
            rows[i, i + 1 :], x[0, i + 1 :], x[1, i + 1 :], x[0, i], x[1, i], r,
            sums[0, i + 1 :], sums[1, i + 1 :], sums[2, i + 1 :], sums[3, i + 1 :], sums[4, i + 1 :],
        )  # fmt: skip
        for k in range(5):
            sums[k, i] += found[k]


def _pairs(n: int = 4096) -> Record:
    """Time per pair of points in both directions: move kernel, and a kernel that uses each root twice.

    In a round half of the points move against a snapshot of all, so only pairs inside that half could be used twice:
    half of those in a round.
    """
    random = np.random.default_rng(0)
    x = random.random((2, n), dtype=np.float32)
    rows = random.random((n, n), dtype=np.float32)
    rows = (rows + rows.T) / 2
    points, axes, sums = np.arange(n), np.arange(2), np.zeros((5, n), np.float32)
    with threads(1):
        once = least_seconds(lambda: propose(rows, points, points, x, 0.1, axes))
        twice = least_seconds(lambda: _propose_pairs(rows, x, np.float32(0.1), sums))
    errors, _ = propose(rows, points, points, x, 0.1, axes)
    sums[:] = 0
    _propose_pairs(rows, x, np.float32(0.1), sums)
    wrong = None if np.allclose(sums[0], errors, rtol=1e-3) else "the kernel over pairs disagrees with the move kernel"
    pairs = n * (n - 1) / 2
    return {
        "what": "a pair, from both its points",
        "ns_a_pair": 1e9 * once / pairs,
        "ns_a_pair_used_twice": 1e9 * twice / pairs,
        "gain": once / twice,
        "of_a_round": 2 / (1 + twice / once),
        "wrong": wrong,
    }
