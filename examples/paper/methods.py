"""Pattern search and its seven peers, called alike."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS

DEFAULT, PAPER = "pattern search, default", "pattern search as in the paper"


@dataclass(frozen=True)
class Problem:
    """Points, the distances that a map should show, and what is known about the points."""

    points: np.ndarray
    distances: np.ndarray
    n_components: int = 2
    truth: np.ndarray | None = None
    labels: np.ndarray | None = None
    n_neighbors: int = 12
    """Nearest neighbors in all graphs, unless a method needs more."""


def default(given: Problem, seed: int) -> np.ndarray:
    """Pattern search as a user gets it."""
    return PatternSearchMDS(given.n_components, random_state=seed).fit_transform(given.distances)


def as_in_paper(given: Problem, seed: int) -> np.ndarray:
    """One random start, moves along all axes, no polish."""
    return paper_settings(given.n_components, seed).fit_transform(given.distances)


def paper_settings(n_components: int, seed: int, **other: object) -> PatternSearchMDS:
    """The paper's algorithm: one random start, moves along all axes, eps = 1e-4."""
    how = {"init": "random", "moves": "axes", "n_init": 1, "effort": "quick", "polish": False, "eps": 1e-4}
    return PatternSearchMDS(n_components, random_state=seed, **{**how, **other})


def smacof(given: Problem, seed: int) -> np.ndarray:
    """Majorization from one random start, at most 300 iterations."""
    from sklearn.manifold import smacof as run

    found, _ = run(
        given.distances, n_components=given.n_components, n_init=1, max_iter=300, eps=1e-6, random_state=seed
    )
    return found


def svd(given: Problem, seed: int) -> np.ndarray:
    """Truncated singular value decomposition of the points."""
    from sklearn.decomposition import TruncatedSVD

    return TruncatedSVD(given.n_components, random_state=seed).fit_transform(given.points)


def isomap(given: Problem, seed: int) -> np.ndarray:
    """Classical scaling of shortest paths in the graph of neighbors."""
    from sklearn.manifold import Isomap

    return Isomap(n_neighbors=given.n_neighbors, n_components=given.n_components).fit_transform(given.points)


LIMIT = 40
"""Seconds that a locally linear embedding may take; with hundreds of neighbors it takes many minutes."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise a RuntimeError after so many seconds."""

    def stop(*_: object) -> None:
        raise RuntimeError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def locally_linear(kind: str, least: Callable[[int], int]) -> Callable[[Problem, int], np.ndarray]:
    """Return a kind of locally linear embedding, with as many neighbors as it needs in so many dimensions."""

    def run(given: Problem, seed: int) -> np.ndarray:
        from sklearn.manifold import LocallyLinearEmbedding

        k = max(given.n_neighbors, least(given.n_components))
        how = {"n_components": given.n_components, "method": kind, "random_state": seed}
        with time_limit(LIMIT):
            return LocallyLinearEmbedding(n_neighbors=k, **how).fit_transform(given.points)

    return run


METHODS: dict[str, Callable[[Problem, int], np.ndarray]] = {
    DEFAULT: default,
    PAPER: as_in_paper,
    "SMACOF": smacof,
    "Isomap": isomap,
    "truncated SVD": svd,
    "LLE": locally_linear("standard", lambda dims: 1),
    "modified LLE": locally_linear("modified", lambda dims: dims + 1),
    "Hessian LLE": locally_linear("hessian", lambda dims: 1 + dims * (dims + 3) // 2),
    "LTSA": locally_linear("ltsa", lambda dims: dims + 1),
}

CLASSICAL_SMACOF = "SMACOF from classical scaling"


def smacof_from_classical(given: Problem, seed: int) -> np.ndarray:
    """Majorization from the map of classical scaling, at most 300 iterations."""
    from sklearn.manifold import ClassicalMDS, smacof

    start = ClassicalMDS(given.n_components, metric="precomputed").fit_transform(given.distances)
    found, _ = smacof(given.distances, n_components=given.n_components, init=start, n_init=1, max_iter=300, eps=1e-6)
    return found


ALL = {**METHODS, CLASSICAL_SMACOF: smacof_from_classical}
"""The methods of the paper, and one more."""

SEEDLESS = {"Isomap", CLASSICAL_SMACOF}
"""Methods that give the same map with every seed."""


COMPILES = 60, 2100
"""Points of the problems that compile the kernels: of small ones, and of those that begin with landmarks."""


@cache
def warm_up(dims: int) -> None:
    """Compile the kernels, so that the first time measured is like the others."""
    small, larger = (_points_in(dims, n) for n in COMPILES)
    default(small, 0), as_in_paper(small, 0), default(larger, 0)


def _points_in(dims: int, n: int) -> Problem:
    points = np.random.default_rng(0).random((n, dims + 1))
    return Problem(points, squareform(pdist(points)), dims)


def timed(method: str, given: Problem, seed: int) -> tuple[np.ndarray | None, float, str]:
    """Return the map of a method with its wall time; or None with the first line of the error that it ended in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method in (DEFAULT, PAPER):
            warm_up(given.n_components)
        began = time.perf_counter()
        try:
            found = ALL[method](given, seed)
        except (ValueError, RuntimeError, np.linalg.LinAlgError) as error:  # ARPACK's errors are RuntimeErrors
            return None, time.perf_counter() - began, str(error).splitlines()[0]
        seconds = time.perf_counter() - began
    if not np.isfinite(found).all():
        return None, seconds, "the map is not finite"
    return found, seconds, ""
