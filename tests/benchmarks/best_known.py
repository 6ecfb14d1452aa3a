"""The best map that is known of a data set: several methods, the stress of their maps, and a file that keeps it.

The file ``maps.json`` in the output folder holds what each method reached, by the content of the matrix and the version
of the package, so that later runs repeat the default only. The best of the default is kept as well, and every entry of
a matrix counts, whatever code found it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from psmds_dist import PatternSearchMDS
from psmds_dist.utils.atomic import atomic_file
from tests.benchmarks.harness import Record, Settings

Array = NDArray[np.float64]

STRIP = 512
"""Rows whose distances are computed at once."""

DEFAULT = "default"
"""Name of what is compared with the best that is known."""


def stress(matrix: Array, x: Array) -> float:
    """Normalized stress of a map, over all pairs in float64."""
    return float(np.sqrt(sum(np.vdot(r, r) for *_, r in _strips(matrix, x)) / np.vdot(matrix, matrix)))


def _strips(matrix: Array, x: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Generate distances and residuals of a map, strip by strip."""
    for lo in range(0, len(x), STRIP):
        rows = slice(lo, lo + STRIP)
        distances = cdist(x[rows], x)
        yield rows, distances, distances - matrix[rows]


def polished(matrix: Array, x: Array) -> Array:
    """Descend to the local minimum with L-BFGS-B of SciPy, for at most a thousand steps, fewer for many points."""
    total = np.vdot(matrix, matrix)
    scale = np.sqrt(total) / len(x)

    def objective(flat: Array) -> tuple[float, Array]:
        error, gradient = _error(matrix, scale * flat.reshape(x.shape))
        return error / total, scale / total * gradient.ravel()

    steps = min(1000, 1_000_000 // len(x))
    how = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 20}
    return scale * minimize(objective, x.ravel() / scale, jac=True, method="L-BFGS-B", options=how).x.reshape(x.shape)


def _error(matrix: Array, x: Array) -> tuple[float, Array]:
    """Sum of squared residuals over ordered pairs, and its gradient; points at one place do not pull each other."""
    error, gradient = 0.0, np.empty_like(x)
    for rows, distances, residuals in _strips(matrix, x):
        pull = np.divide(residuals, distances, out=np.zeros_like(residuals), where=distances > 0)
        gradient[rows] = 4 * (pull.sum(axis=1)[:, None] * x[rows] - pull @ x)
        error += np.vdot(residuals, residuals)
    return error, gradient


@dataclass(frozen=True)
class Attempt:
    """A method, the package that it is of, and a function that generates its maps of a matrix in some dimensions."""

    name: str
    package: str
    maps: Callable[[Array, int], Iterator[Array]]

    def run(self, matrix: Array, dims: int) -> list[float]:
        """Stress of all maps, and at last of the best one, polished."""
        with threadpool_limits(1, "blas"):  # its threads wait for each other on a busy machine
            maps = list(self.maps(matrix, dims))
            found = [stress(matrix, x) for x in maps]
            return [*found, stress(matrix, polished(matrix, maps[int(np.argmin(found))]))]


HIGHEST: dict[str, Any] = {"effort": "best"} if "effort" in signature(PatternSearchMDS).parameters else {"n_init": 20}
"""The dial of this package at its highest."""

STARTS = ((300, 100, 20), (1000, 20, 3), (2000, 5, 2), (np.inf, 2, 1))
"""Most points, and the random starts of this package and of SMACOF for as many."""


def attempts(n: int, settings: Settings) -> Sequence[Attempt]:
    """Methods for a matrix of n points: fewer starts and iterations for many points, and in the quick profile."""
    thorough = settings.full and n <= 2000
    ours, theirs = (4, 2) if settings.quick else next(starts for most, *starts in STARTS if n <= most or thorough)
    iterations = 3000 if thorough else min(3000, 300_000 // n)
    return (
        Attempt(", ".join(f"{name}={value}" for name, value in HIGHEST.items()), "psmds-dist", highest_effort),
        Attempt(f"{ours} random starts", "psmds-dist", partial(random_starts, starts=ours)),
        Attempt("SMACOF, classical", "scikit-learn", partial(smacof_classical, iterations=iterations)),
        Attempt(
            f"SMACOF, {theirs} random", "scikit-learn", partial(smacof_random, starts=theirs, iterations=iterations)
        ),
    )


def highest_effort(matrix: Array, dims: int) -> Iterator[Array]:
    """This package, if time does not matter."""
    yield PatternSearchMDS(dims, random_state=0, **HIGHEST).fit(matrix).embedding_


def random_starts(matrix: Array, dims: int, *, starts: int) -> Iterator[Array]:
    """This package from random starts."""
    for seed in range(starts):
        yield PatternSearchMDS(dims, init="random", random_state=seed).fit(matrix).embedding_


def smacof_classical(matrix: Array, dims: int, *, iterations: int) -> Iterator[Array]:
    """SMACOF from classical scaling."""
    from sklearn.manifold import ClassicalMDS

    yield _smacof(matrix, ClassicalMDS(dims, metric="precomputed").fit_transform(matrix), iterations)


def smacof_random(matrix: Array, dims: int, *, starts: int, iterations: int) -> Iterator[Array]:
    """SMACOF from random starts."""
    for seed in range(starts):
        yield _smacof(matrix, np.random.default_rng(seed).random((len(matrix), dims)), iterations)


def _smacof(matrix: Array, start: Array, iterations: int) -> Array:
    from sklearn.manifold import smacof

    return smacof(matrix, init=start, n_init=1, max_iter=iterations, eps=1e-9, normalized_stress=False)[0]


@dataclass
class BestKnown:
    """What methods reached on matrices, kept in a file."""

    path: Path
    entries: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> BestKnown:
        """Read the file, if there is one."""
        return cls(path, json.loads(path.read_text()) if path.exists() else {})

    def best(self, matrix: str) -> tuple[float, str]:
        """Least stress of a matrix, given by its digest, and the method that found it."""
        return min((entry["best"], entry["method"]) for entry in self.entries.values() if entry["matrix"] == matrix)

    def note(self, matrix: str, method: str, of: str, stresses: Sequence[float], **more: object) -> None:
        """Note the stress of maps; the best ever is kept."""
        key = f"{matrix} {method} {of}"
        before = [entry["best"]] if (entry := self.entries.get(key)) else []
        about = {"matrix": matrix, "method": method, "of": of, "best": min([*stresses, *before])}
        self.entries[key] = {**about, **more, "stresses": list(stresses)}
        with atomic_file(self.path) as beside:
            beside.write_text(json.dumps(self.entries, indent=1))

    def run(self, name: str, matrix: Array, dims: int, settings: Settings) -> None:
        """Run the methods that were not run on a matrix with these versions."""
        digest = digest_of(matrix, dims)
        for attempt in attempts(len(matrix), settings):
            of = f"{attempt.package} {version(attempt.package)}"
            if f"{digest} {attempt.name} {of}" in self.entries:
                continue
            began = perf_counter()
            found = attempt.run(matrix, dims)
            took = perf_counter() - began
            self.note(digest, attempt.name, of, found, set=name, seconds=took)
            print(f"{name}: {attempt.name} in {took:.0f} s", flush=True)


def digest_of(matrix: Array, dims: int) -> str:
    """Digest of a matrix and the dimensions of its maps."""
    return f"{hashlib.sha256(matrix.tobytes()).hexdigest()[:16]} {dims}"
