"""The peers, called as documented, in two dimensions."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import time
import types
import warnings
from collections.abc import Iterator

import numpy as np

from tests.benchmarks.data import NEIGHBOURS
from tests.benchmarks.methods import Map
from tests.benchmarks.paper import pattern_search

CURVE_POINTS = 3000


def smacof(matrix: np.ndarray, seed: int) -> Map:
    """Majorisation from a random start, at most 300 iterations."""
    from sklearn.manifold import smacof as run

    clock = _Clock(re.compile(r"stress ([0-9.e+]+)"))
    with contextlib.redirect_stdout(clock):
        x, _, passes = run(matrix, n_init=1, max_iter=300, eps=1e-6, random_state=seed, verbose=2, return_n_iter=True)
    return Map(x, passes, trace=lambda: [(when, 2 * raw) for when, raw in clock.seen])


class _Clock(io.TextIOBase):
    """Stream that records the numbers a method prints, and when."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.seen: list[tuple[float, float]] = []
        self._pattern = pattern
        self._began = time.perf_counter()

    def write(self, text: str) -> int:
        for number in self._pattern.findall(text):
            self.seen.append((time.perf_counter() - self._began, float(number)))
        return len(text)


def classical(matrix: np.ndarray, seed: int) -> Map:
    """Classical scaling (Torgerson): eigenvectors of the centered squares."""
    from sklearn.manifold import ClassicalMDS

    return Map(ClassicalMDS(metric="precomputed").fit_transform(matrix))


def isomap(points: np.ndarray, seed: int) -> Map:
    """Classical MDS of shortest paths in a neighbor graph, which it computes itself."""
    from sklearn.manifold import Isomap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Map(Isomap(n_neighbors=NEIGHBOURS).fit_transform(points))


def pcoa(matrix: np.ndarray, seed: int) -> Map:
    """Classical MDS with a randomized singular value decomposition."""
    import skbio

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = skbio.DistanceMatrix(matrix, validate=False)
        return Map(skbio.stats.ordination.pcoa(given, method="fsvd", dimensions=2, seed=seed).samples.to_numpy())


def s_gd2(condensed: np.ndarray, seed: int) -> Map:
    """Stochastic gradient descent over pairs, 30 epochs, with its own schedule.

    It reports no progress, so the curve is from a second run with one epoch per call, with times scaled to the first;
    only for data sets up to `CURVE_POINTS`.
    """
    import s_gd2 as peer

    n = _points(condensed)
    schedule = peer.default_schedule(np.ones(1))  # the value for equal weights; the search of the peer is slow
    began = time.perf_counter()
    x = peer.mds_direct(n, condensed, etas=schedule, random_seed=seed)
    whole = time.perf_counter() - began
    if n > CURVE_POINTS:
        return Map(x, 30)
    return Map(x, 30, trace=lambda: _stretched(list(_epochs_of_s_gd2(n, condensed, seed)), whole))


def _epochs_of_s_gd2(n: int, condensed: np.ndarray, seed: int) -> Iterator[tuple[float, np.ndarray]]:
    import s_gd2 as peer

    weights = np.ones_like(condensed)
    x, spent = np.random.default_rng(seed).random((n, 2)), 0.0
    for eta in peer.default_schedule(np.ones(1)):
        began = time.perf_counter()
        x = peer.mds_direct(n, condensed, weights, np.array([eta]), random_seed=seed, init=x)
        spent += time.perf_counter() - began
        yield spent, x.copy()


def _stretched(trace: list[tuple[float, np.ndarray]], whole: float) -> list[tuple[float, np.ndarray]]:
    return [(when * whole / trace[-1][0], x) for when, x in trace]


def pymde(condensed: np.ndarray, seed: int) -> Map:
    """Minimum-distortion embedding of all pairs with the loss of this package, at most 300 iterations."""
    peer, torch = _import_pymde(seed)
    n = _points(condensed)
    edges = torch.from_numpy(np.column_stack(np.triu_indices(n, 1)))
    deviations = torch.from_numpy(condensed.astype(np.float32))
    problem = peer.MDE(n, 2, edges, peer.losses.Quadratic(deviations))
    x = problem.embed().numpy()
    stats = problem.solve_stats
    errors = 2 * condensed.size * np.asarray(stats.average_distortions)
    times = np.cumsum(stats.times)
    return Map(x, stats.iterations, trace=lambda: list(zip(times.tolist(), errors.tolist(), strict=False)))


def pymde_of_points(points: np.ndarray, seed: int) -> Map:
    """The same on pairs sampled by PyMDE."""
    peer, _ = _import_pymde(seed)
    problem = peer.preserve_distances(points, loss=peer.losses.Quadratic, max_distances=1e7)
    return Map(problem.embed().numpy())


def _import_pymde(seed: int) -> tuple[types.ModuleType, types.ModuleType]:
    """Import PyMDE even if torchvision does not work, which only its example data need."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        sys.modules["torchvision"] = types.ModuleType("torchvision")
    peer, torch = importlib.import_module("pymde"), importlib.import_module("torch")
    peer.seed(seed)
    return peer, torch


def paper(matrix: np.ndarray, seed: int) -> Map:
    """The algorithm of the paper."""
    began, trace = time.perf_counter(), []
    x = pattern_search(matrix, seed, lambda error: trace.append((time.perf_counter() - began, error)))
    return Map(x, len(trace), trace=lambda: trace)


def _points(condensed: np.ndarray) -> int:
    return round((1 + (1 + 8 * condensed.size) ** 0.5) / 2)
