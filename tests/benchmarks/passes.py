"""How many passes over the matrix a map takes, against long runs."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.config import RADIUS_TOL
from psmds_dist.report import table
from tests.benchmarks.data import mnist, swiss_roll

SEEDS = range(5)

NEAR = 1.005
"""Stress that counts as reached, as a multiple of the long run's."""


def _matrices(options: argparse.Namespace) -> Iterator[tuple[str, np.ndarray]]:
    from scipy.spatial.distance import cdist

    yield "swiss roll 3,000", swiss_roll(3000).astype(np.float32)
    words = options.data / "words_minilm.npz"
    if words.exists():
        vectors = np.load(words)["vectors"].astype(float)
        for metric in ("cosine", "euclidean"):
            matrix = cdist(vectors, vectors, metric)
            np.fill_diagonal(matrix, 0)
            yield f"words {len(vectors):,}, {metric}", ((matrix + matrix.T) / 2).astype(np.float32)
    points = mnist(options.data)
    if points is not None:
        yield "MNIST 10,000", cdist(points, points).astype(np.float32)
    yield "swiss roll 10,000", swiss_roll(10_000).astype(np.float32)


def _timed(fit: Any, matrix: np.ndarray) -> tuple[float, Any]:
    began = time.perf_counter()
    fit.fit(matrix)
    return time.perf_counter() - began, fit


def _long_run(matrix: np.ndarray) -> float:
    """Least stress of solves to a small radius, from random coordinates and from landmarks."""
    end = RADIUS_TOL * float(np.sqrt(np.square(matrix, dtype=np.float64).mean()))
    settings = [{"init": "random"}, {"init": "landmarks", "eps": 1e-5}]
    return min(
        PatternSearchMDS(random_state=seed, radius_tol=end, **how).fit(matrix).normalized_stress_
        for how in settings
        for seed in SEEDS
    )


def _passes_to(goal: float, make: Callable[[int], Any], matrix: np.ndarray, most: int) -> float:
    """Fewest epochs after which a map is as good as that; a solve with fewer epochs is the same solve cut short."""
    for epochs in range(1, most):
        if make(epochs).fit(matrix).normalized_stress_ <= goal:
            return epochs
    return most


def passes(options: argparse.Namespace) -> dict[str, Any]:
    """Passes over the matrix to within 0.5 % of a long run's stress, all passes, and time against a random start."""
    found: dict[str, Any] = {}
    lines = []
    for name, matrix in _matrices(options):
        long = _long_run(matrix)
        lines.append([name, "long run", f"{long:.6f}", "", "", "", ""])
        runs: dict[str, Callable[[int], Any]] = {
            "random": lambda seed: PatternSearchMDS(init="random", random_state=seed),
            "default": lambda seed: PatternSearchMDS(random_state=seed),
            "S = 300, polished": lambda seed: _polished(seed, 300),
            "S = 1,000, polished": lambda seed: _polished(seed, 1000),
        }
        random = 0.0
        for run, make in runs.items():
            make(0).fit(matrix)
            fits = [_timed(make(seed), matrix) for seed in SEEDS]
            took = statistics.median(seconds for seconds, _ in fits)
            random = random or took
            entry = {
                "long_run": long,
                "stress": statistics.median(fit.normalized_stress_ for _, fit in fits),
                "passes": statistics.median(fit.n_epochs_ for _, fit in fits),
                "seconds": took,
                "ratio": random / took,
            }
            if run == "default":
                entry["passes_to_goal"] = statistics.median(
                    _passes_to(
                        NEAR * long,
                        lambda epochs, seed=seed: PatternSearchMDS(random_state=seed, max_epochs=epochs),
                        matrix,
                        fit.n_epochs_,
                    )
                    if fit.normalized_stress_ <= NEAR * long
                    else np.inf
                    for seed, (_, fit) in zip(SEEDS, fits, strict=True)
                )
            found[f"{name}, {run}"] = entry
            lines.append(
                [
                    name,
                    run,
                    f"{entry['stress']:.6f}",
                    f"{entry['passes_to_goal']:.0f}" if "passes_to_goal" in entry else "",
                    f"{entry['passes']:.0f}",
                    f"{took:.2f}",
                    f"{entry['ratio']:.1f}",
                ]
            )
    head = ["", "", "stress", "passes to +0.5 %", "all passes", "seconds", "times faster than random"]
    print(table(head, lines))
    return found


def _polished(seed: int, size: int) -> LandmarkMDS:
    return LandmarkMDS(n_landmarks=size, refine="full", evidence=False, random_state=seed)
