"""Experiment 8, beyond the paper: the sheets of experiment 1 with ten and a hundred times the points.

The limits of time and memory are those of experiment 7, for each run; a method that was stopped on one sheet is not
tried with so many points of the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from manifolds import neighbors
from measures import to_truth
from scaling import (
    LIMIT,
    MEMORY,
    PAIRS,
    answer,
    compile_kernels,
    in_process,
    scaled_stress,
    tables,
    timed,
    until_stopped,
)
from study import Cell, Study, claim

from psmds_dist import open_geodesics
from psmds_dist.shapes import SHAPES

SHEETS = ["swiss roll", "S-curve"]
"""Shapes whose true coordinates are lengths along them."""

SIZES = [1000, 10_000, 100_000]

Method = Callable[[np.ndarray, int], np.ndarray]


def exact(given: np.ndarray, k: int) -> np.ndarray:
    """Pattern search over shortest paths between all pairs."""
    from psmds_dist import PatternSearchMDS

    return PatternSearchMDS(random_state=0).fit_transform(open_geodesics(given, k, disconnected="bridge"))


def with_landmarks(given: np.ndarray, k: int) -> np.ndarray:
    """Pattern search over shortest paths to landmarks."""
    from landmarks import LandmarkMDS

    return LandmarkMDS(random_state=0).fit_transform(open_geodesics(given, k, disconnected="bridge"))


def smacof(given: np.ndarray, k: int) -> np.ndarray:
    """Majorization of the same shortest paths from one random start."""
    from sklearn.manifold import smacof as run

    paths = open_geodesics(given, k, disconnected="bridge", dtype="float64").take(np.arange(len(given)))
    return run(paths, n_init=1, max_iter=300, eps=1e-6, random_state=0)[0]


def isomap(given: np.ndarray, k: int) -> np.ndarray:
    """Classical scaling of shortest paths, which it finds itself."""
    from sklearn.manifold import Isomap

    return Isomap(n_neighbors=k).fit_transform(given)


def lle(given: np.ndarray, k: int) -> np.ndarray:
    """Locally linear embedding."""
    from sklearn.manifold import LocallyLinearEmbedding

    return LocallyLinearEmbedding(n_neighbors=k, random_state=0).fit_transform(given)


def svd(given: np.ndarray, k: int) -> np.ndarray:
    """Truncated singular value decomposition of the points."""
    from sklearn.decomposition import TruncatedSVD

    return TruncatedSVD(2, random_state=0).fit_transform(given)


METHODS: dict[str, Method] = {
    "pattern search, all pairs": exact,
    "pattern search, landmarks": with_landmarks,
    "SMACOF": smacof,
    "Isomap": isomap,
    "LLE": lle,
    "truncated SVD": svd,
}


def measure(name: str, method: str, n: int) -> Cell:
    """Return seconds, peak memory, and how far a map is from the flat sheet; libraries are loaded before."""
    warnings.simplefilter("ignore")
    run, small, shape = METHODS[method], SHAPES[name](120, random_state=1), SHAPES[name](n, random_state=0)
    run(small.points, neighbors(name, 120))
    found, cost = timed(lambda: run(shape.points, neighbors(name, n)))
    truth = shape.parameters
    return {**cost, **to_truth(truth, found), "stress": scaled_stress(truth, found)}


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    sizes = study.pick(SIZES, [300, 600])
    compile_kernels(METHODS, __file__, SHEETS[0])
    found: dict[str, dict[str, dict[int, Cell]]] = {}
    for name in SHEETS:
        found[name] = {method: _tried(study, name, method, sizes, list(found.values())) for method in METHODS}
    measures = {
        "Procrustes": lambda cell: f"{cell['procrustes']:.1e}",
        "stress": lambda cell: f"{cell['stress']:.4f}",
        "seconds": lambda cell: f"{cell['seconds']:.1f}",
        "most memory (MiB)": lambda cell: f"{cell['peak'] / 2**20:,.0f}",
    }
    told = "\n".join(
        tables(sizes, of, {f"{name}: {measure}": form for measure, form in measures.items()})
        for name, of in found.items()
    )
    return f"{_intro(sizes)}\n{told}\n" + "".join(_claim(name, of) for name, of in found.items())


def _tried(
    study: Study, name: str, method: str, sizes: list[int], before: list[dict[str, dict[int, Cell]]]
) -> dict[int, Cell]:
    """Runs of a method, up to the number of points at which it was stopped, here or on a sheet before."""
    stopped = {n: cell for of in before for n, cell in of[method].items() if "failure" in cell}

    def once(n: int) -> Cell:
        return stopped.get(n) or in_process(__file__, name, method, str(n))

    return until_stopped(study, f"larger {name} {{}} | {method}", sizes, once)


def _intro(sizes: list[int]) -> str:
    return (
        "## 8. Beyond the paper: more points on the sheets\n\n"
        f"{', '.join(f'{n:,}' for n in sizes)} points on each sheet, {neighbors(SHEETS[0], sizes[-1])} nearest "
        f"neighbors, one run each in a process of its own, {LIMIT} s and {MEMORY >> 30} GiB at the most; shortest "
        "paths are found in the time shown. Procrustes: disparity to the flat sheet, 0 is perfect. Stress: that of the "
        f"map in its best scale against distances on the flat sheet, over {PAIRS:,} pairs. A method that was stopped "
        "is not tried with more points, nor with as many of the other sheet.\n"
    )


def _claim(name: str, found: dict[str, dict[int, Cell]]) -> str:
    best = {
        method: max((n for n, cell in of.items() if "procrustes" in cell), default=0) for method, of in found.items()
    }
    most = max(best.values())
    there = {method: found[method][most]["procrustes"] for method, n in best.items() if n == most}
    first = min(there, key=lambda method: there[method])
    return claim(
        f"with most points of the {name}, pattern search is nearest to the flat sheet.",
        first.startswith("pattern search"),
        f"{most:,} points: " + ", ".join(f"{method} {value:.1e}" for method, value in there.items()),
    )


if __name__ == "__main__":
    answer(measure)
