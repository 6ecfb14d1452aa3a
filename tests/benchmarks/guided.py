"""Guided moves against moves along all axes, in many dimensions."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from psmds_dist import PatternSearchMDS
from psmds_dist.kernels.guided import ROOTS
from psmds_dist.report import table
from tests.benchmarks.data import mnist

SEEDS = 3
POINTS = 2000


def guided(options: argparse.Namespace) -> dict[str, Any]:
    """Epochs, square roots, time and stress of guided moves and of moves along all axes; random starts, 3 seeds."""
    found: dict[str, Any] = {}
    rows = []
    for name, matrix in _matrices(options).items():
        for dims in (10, 20, 50):
            for moves in ("axes", "guided"):
                PatternSearchMDS(dims, moves=moves, init="random", max_epochs=1, random_state=0).fit(matrix)
                fits = [_fit(matrix, dims, moves, seed) for seed in range(SEEDS)]
                key = f"{name}, L = {dims}, {moves}"
                found[key] = {what: statistics.median(fit[what] for fit in fits) for what in fits[0]}
                rows.append([key, *(f"{value:.4g}" for value in found[key].values())])
    print(table(["medians", "epochs", "roots a pair", "seconds", "normalised stress"], rows))
    return found


def _matrices(options: argparse.Namespace) -> dict[str, np.ndarray]:
    digits = mnist(options.data)
    if digits is None:
        from sklearn.datasets import load_digits

        digits = load_digits().data
    cloud = np.random.default_rng(0).standard_normal((1500, 100))
    sets = {"digits": digits if options.full else digits[:POINTS], "normal in 100 dimensions": cloud}
    return {f"{name}, N = {len(p):,}": cdist(p, p).astype(np.float32) for name, p in sets.items()}


def _fit(matrix: np.ndarray, dims: int, moves: str, seed: int) -> dict[str, float]:
    """One solve; roots are counted over all epochs, the most that a pair can have taken."""
    mds = PatternSearchMDS(dims, moves=moves, init="random", random_state=seed, max_epochs=2000).fit(matrix)
    roots = ROOTS if moves == "guided" else 2 * dims + 1
    return {
        "epochs": mds.n_epochs_,
        "roots": mds.n_epochs_ * roots,
        "seconds": mds.result_.seconds,
        "stress": mds.normalized_stress_,
    }
