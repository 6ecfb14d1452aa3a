"""Guided moves compared with moves along all axes, in many dimensions."""

from __future__ import annotations

import statistics

import numpy as np
from scipy.spatial.distance import cdist

from psmds_dist import PatternSearchMDS
from psmds_dist.kernels.guided import ROOTS
from tests.benchmarks import data
from tests.benchmarks.harness import Record, Settings, held, show, show_held

SEEDS = 3
POINTS = 2000


def guided(settings: Settings) -> list[Record]:
    """Guided moves and moves along all axes, in many dimensions, from random starts (medians of three seeds)."""
    found, bounds = [], []
    for name, matrix in _matrices(settings).items():
        of_this = []
        for dims in (10, 20, 50):
            lines = [_medians(matrix, dims, moves) for moves in ("axes", "guided")]
            of_this += [{"what": f"{name}, L = {dims}, {line['moves']}", **line} for line in lines]
            if dims == 20:
                axes, ours = lines
                bounds += [
                    held(f"{name}, L = 20: times fewer roots", axes["roots_a_pair"] / ours["roots_a_pair"], least=4),
                    held(f"{name}, L = 20: stress against axes", ours["stress"] / axes["stress"], most=1.005),
                ]
        show(of_this, what="", epochs=".0f", roots_a_pair=".0f", seconds=".2f", stress=".6f")
        print()
        found += of_this
    show_held(bounds)
    return [*found, *bounds]


def _matrices(settings: Settings) -> dict[str, np.ndarray]:
    digits = data.mnist(settings) or data.digits(settings)
    points = np.load(digits.points)
    cloud = np.random.default_rng(0).standard_normal((1500, 100))
    sets = {digits.name: points if settings.full else points[:POINTS], "normal in 100 dimensions": cloud}
    return {f"{name} {len(p):,}": cdist(p, p).astype(np.float32) for name, p in sets.items()}


def _medians(matrix: np.ndarray, dims: int, moves: str) -> Record:
    PatternSearchMDS(dims, moves=moves, init="random", max_epochs=1, random_state=0).fit(matrix)
    fits = [_fit(matrix, dims, moves, seed) for seed in range(SEEDS)]
    return {"moves": moves, **{what: statistics.median(fit[what] for fit in fits) for what in fits[0]}}


def _fit(matrix: np.ndarray, dims: int, moves: str, seed: int) -> dict[str, float]:
    """Run one solve; roots are counted over all epochs, as an upper bound per pair."""
    mds = PatternSearchMDS(dims, moves=moves, init="random", random_state=seed, max_epochs=2000).fit(matrix)
    roots = ROOTS if moves == "guided" else 2 * dims + 1
    return {
        "epochs": mds.n_epochs_,
        "roots_a_pair": mds.n_epochs_ * roots,
        "seconds": mds.result_.seconds,
        "stress": mds.normalized_stress_,
    }
