"""Experiment 7, beyond the paper: time and memory of all methods against the number of points.

Each run is a process of its own, that may take `LIMIT` seconds and `MEMORY` bytes; a method that was stopped is not
tried with more points, and one that is not installed is told.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from study import Cell, Study, claim, picture, table

LIMIT = 120
"""Seconds that a run may take."""

MEMORY = 16 * 2**30
"""Bytes of address space of a run."""

CAPTION = (
    "Seconds and most memory of the whole process (with interpreter and libraries), on logarithmic axes, and stress of "
    "the map in its best scale, against the number of points. A curve ends at the largest size that was tried, or that "
    f"the method finished within {LIMIT} s and {MEMORY >> 30} GiB of addresses: the tables say which of the two ended "
    "it. Points differ from size to size, so stress is to be compared at one size; there pattern search with all "
    "pairs, with landmarks and s_gd2 lie nearly on each other. Peers that are not installed have no curve."
)

DIMENSIONS, CLUSTERS, PAIRS = 20, 10, 200_000

COMPILES = 2100
"""Points of a first run of pattern search, which is not shown: it compiles the kernels of all sizes."""

DRAWN = {"seconds": ("seconds", 1, "log"), "peak": ("MiB", 2**20, "log"), "stress": ("stress", 1, "linear")}
"""Measures in the picture, with their labels, units and scales."""

SIZES = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]


def points(n: int) -> np.ndarray:
    """Return points in 20 dimensions, normally distributed around ten centres."""
    rng = np.random.default_rng(n)
    centres = rng.normal(scale=2, size=(CLUSTERS, DIMENSIONS))
    return centres[rng.integers(CLUSTERS, size=n)] + rng.normal(size=(n, DIMENSIONS))


def exact(given: np.ndarray) -> np.ndarray:
    """Pattern search over all pairs; beyond memory, rows are computed again in each pass."""
    from psmds_dist import PatternSearchMDS, open_points

    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/points.npy", given)
        return PatternSearchMDS(random_state=0).fit_transform(open_points(f"{folder}/points.npy"))


def with_landmarks(given: np.ndarray) -> np.ndarray:
    """Pattern search over landmarks, from which the other points are placed."""
    from landmarks import LandmarkMDS

    return LandmarkMDS(metric="euclidean", random_state=0).fit_transform(given)


def smacof(given: np.ndarray) -> np.ndarray:
    """Majorization from one random start, as scikit-learn has it."""
    from scipy.spatial.distance import pdist, squareform
    from sklearn.manifold import smacof as run

    return run(squareform(pdist(given)), n_init=1, max_iter=300, eps=1e-6, random_state=0)[0]


def pcoa(given: np.ndarray) -> np.ndarray:
    """Classical scaling by a randomized decomposition, as scikit-bio has it."""
    import skbio
    from scipy.spatial.distance import pdist, squareform

    distances = skbio.DistanceMatrix(squareform(pdist(given)), validate=False)
    return skbio.stats.ordination.pcoa(distances, method="fsvd", dimensions=2, seed=0).samples.to_numpy()


def gradient_descent(given: np.ndarray) -> np.ndarray:
    """Stochastic gradient descent over pairs (Zheng, Pawar & Goodman 2019), 30 epochs."""
    import s_gd2
    from scipy.spatial.distance import pdist

    schedule = s_gd2.default_schedule(np.ones(1))
    return s_gd2.mds_direct(len(given), pdist(given), etas=schedule, random_seed=0)


SMACOF_IN_R = """
given <- commandArgs(TRUE)
n <- as.integer(given[2])
t <- structure(readBin(given[1], "double", n * (n - 1) / 2), Size = n, Diag = FALSE, Upper = FALSE, class = "dist")
writeBin(as.vector(smacof::mds(t, ndim = 2, type = "ratio", itmax = 300, eps = 1e-6)$conf), given[3])
"""
"""The distances in the order of SciPy, which is that of R, and the coordinates column after column."""


def smacof_in_r(given: np.ndarray) -> np.ndarray:
    """Majorization from classical scaling, as the package smacof of R has it; distances go there in a file."""
    from scipy.spatial.distance import pdist

    with tempfile.TemporaryDirectory() as folder:
        distances, found = (os.path.join(folder, name) for name in ("distances", "map"))
        pdist(given).tofile(distances)
        command = ["Rscript", "-e", SMACOF_IN_R, distances, str(len(given)), found]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(" ".join(done.stderr.split()))
        return np.fromfile(found).reshape(2, len(given)).T


def sgd_in_torch(given: np.ndarray) -> np.ndarray:
    """Stochastic gradient descent in PyTorch (github.com/DanielHangan01/sgd-mds), which is not on PyPI."""
    import sgd_mds
    from scipy.spatial.distance import pdist, squareform

    return sgd_mds.SGDMDS(random_state=0, device="cpu").fit_transform(squareform(pdist(given)).astype(np.float32))


def mde(given: np.ndarray) -> np.ndarray:
    """L-BFGS in PyTorch over all pairs (PyMDE): the quadratic loss, at most 300 iterations."""
    import pymde
    import torch
    from scipy.spatial.distance import pdist

    pymde.seed(0)
    edges = torch.from_numpy(np.column_stack(np.triu_indices(len(given), 1)))
    loss = pymde.losses.Quadratic(torch.from_numpy(pdist(given).astype(np.float32)))
    return pymde.MDE(len(given), 2, edges, loss).embed().numpy()


def isomap(given: np.ndarray) -> np.ndarray:
    """Classical scaling of shortest paths in the graph of 12 nearest neighbors."""
    from sklearn.manifold import Isomap

    return Isomap(n_neighbors=12).fit_transform(given)


def lle(given: np.ndarray) -> np.ndarray:
    """Locally linear embedding with 12 nearest neighbors."""
    from sklearn.manifold import LocallyLinearEmbedding

    return LocallyLinearEmbedding(n_neighbors=12, random_state=0).fit_transform(given)


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "pattern search, all pairs": exact,
    "pattern search, landmarks": with_landmarks,
    "SMACOF": smacof,
    "PCoA (scikit-bio)": pcoa,
    "s_gd2": gradient_descent,
    "Isomap": isomap,
    "LLE": lle,
    "smacof (R)": smacof_in_r,
    "sgd-mds (PyTorch)": sgd_in_torch,
    "PyMDE (PyTorch)": mde,
}

MODULES = {
    "PCoA (scikit-bio)": "skbio",
    "s_gd2": "s_gd2",
    "sgd-mds (PyTorch)": "sgd_mds",
    "PyMDE (PyTorch)": "pymde",
}
"""What has to be installed for a method."""


@cache
def missing(method: str) -> str:
    """Return what is not installed; empty where a method can run."""
    if method in MODULES:
        return "" if find_spec(MODULES[method]) else "not installed"
    if method != "smacof (R)":
        return ""
    if shutil.which("Rscript") is None:
        return "R is not installed"
    asked = ["Rscript", "-e", 'quit(status = !requireNamespace("smacof", quietly = TRUE))']
    return "smacof is not installed in R" if subprocess.run(asked, capture_output=True).returncode else ""


def scaled_stress(given: np.ndarray, found: np.ndarray) -> float:
    """Stress of a map in its best scale, over pairs drawn at random."""
    i, j = np.random.default_rng(0).integers(len(given), size=(2, PAIRS))
    t, d = np.linalg.norm(given[i] - given[j], axis=1), np.linalg.norm(found[i] - found[j], axis=1)
    return float(np.sqrt(1 - (t @ d) ** 2 / ((t @ t) * (d @ d))))


def measure(method: str, n: int) -> Cell:
    """Return seconds, peak memory and stress of a map; libraries are loaded before."""
    warnings.simplefilter("ignore")
    METHODS[method](points(60))
    given = points(n)
    found, cost = timed(lambda: METHODS[method](given))
    return {**cost, "stress": scaled_stress(given, found)}


def compile_kernels(methods: Iterable[str], *command: str) -> None:
    """Have a script compile what pattern search calls, in processes whose memory and time are not those of a run."""
    for method in methods:
        if method.startswith("pattern search"):
            in_process(*command, method, str(COMPILES))


def timed(make: Callable[[], np.ndarray]) -> tuple[np.ndarray, Cell]:
    """Return a map with its seconds and the peak memory of the process, which ends where it takes too long."""
    signal.alarm(LIMIT + 1)
    began = time.perf_counter()
    found = make()
    seconds = time.perf_counter() - began
    signal.alarm(0)
    return found, {"seconds": seconds, "peak": max(peak_memory(), largest(resource.RUSAGE_CHILDREN))}


def peak_memory() -> int:
    """Peak resident bytes of this process, where the system tells; ``ru_maxrss`` begins with that of the parent."""
    status = Path("/proc/self/status")
    own = re.search(r"VmHWM:\s*(\d+)", status.read_text()) if status.exists() else None
    return int(own[1]) * 1024 if own else largest(resource.RUSAGE_SELF)


def largest(who: int) -> int:
    """Most resident bytes of processes."""
    return resource.getrusage(who).ru_maxrss * 1024


def in_process(*command: str) -> Cell:
    """Measure by a script in a process of its own, or return why there is nothing to measure."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, *command], **pipes) as child:
        try:
            told, errors = child.communicate(timeout=LIMIT + 60)
        except subprocess.TimeoutExpired:
            return TOO_LONG
        finally:
            with suppress(ProcessLookupError):  # with what it may have started
                os.killpg(child.pid, signal.SIGKILL)
    if child.returncode == 0:
        result = json.loads(told.splitlines()[-1])
        return result if result["seconds"] <= LIMIT else TOO_LONG
    if child.returncode == -signal.SIGALRM:
        return TOO_LONG
    last = (errors.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return {"failure": "out of memory" if "emory" in last or child.returncode < 0 else last}


TOO_LONG = {"failure": f"more than {LIMIT} s"}
"""What a run comes to that was stopped."""


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    sizes = study.pick(SIZES, SIZES[:2])
    compile_kernels(METHODS, __file__)
    found = {method: _tried(study, method, sizes) for method in METHODS}
    _draw(study, sizes, found)
    measures = {
        "Seconds": lambda cell: f"{cell['seconds']:.2f}",
        "Most memory of the process (MiB)": lambda cell: f"{cell['peak'] / 2**20:,.0f}",
        f"Stress in the best scale, over {PAIRS:,} pairs drawn at random": lambda cell: f"{cell['stress']:.4f}",
    }
    return f"{_intro()}\n{tables(sizes, found, measures)}\n{_claims(found)}"


def _intro() -> str:
    return (
        f"## 7. Beyond the paper: more points\n\nPoints in {DIMENSIONS} dimensions around {CLUSTERS} centres, others "
        f"for each size, Euclidean distances, two dimensions, one run each in a process of its own, {LIMIT} s and "
        f"{MEMORY >> 30} GiB at the most. *Landmarks* is pattern search over some points, from which the others are "
        "placed; s_gd2 is stochastic gradient descent over pairs; Isomap and LLE have 12 neighbors. Distances are "
        "computed in the time shown; libraries were loaded and kernels compiled before. A method that was stopped is "
        "not tried with more points.\n\n" + picture("scaling.png", CAPTION)
    )


def _tried(study: Study, method: str, sizes: Sequence[int]) -> dict[int, Cell]:
    key = f"scaling {{}} | {method}"
    if key.format(sizes[0]) not in study.cells and (why := missing(method)):
        return {sizes[0]: {"failure": why}}  # not kept: it may be installed later
    return until_stopped(study, key, sizes, lambda n: in_process(__file__, method, str(n)))


def until_stopped(study: Study, key: str, sizes: Sequence[int], run: Callable[[int], Cell]) -> dict[int, Cell]:
    """Return the runs of a method by their number of points, up to the first that failed."""
    cells: dict[int, Cell] = {}
    for n in sizes:
        cells[n] = study.cell(key.format(n), lambda n=n: run(n))
        if "failure" in cells[n]:
            break
    return cells


def tables(sizes: Sequence[int], found: dict[str, dict[int, Cell]], measures: dict[str, Callable[[Cell], str]]) -> str:
    """Return a table of each measure, with the reason where a run failed."""
    return "\n".join(f"### {title}\n\n{_table(sizes, found, form)}" for title, form in measures.items())


def _table(sizes: Sequence[int], found: dict[str, dict[int, Cell]], form: Callable[[Cell], str]) -> str:
    rows = [[method, *(_shown(cells.get(n, {}), form) for n in sizes)] for method, cells in found.items()]
    return table(["method", *(f"{n:,}" for n in sizes)], rows)


def _shown(cell: Cell, form: Callable[[Cell], str]) -> str:
    return form(cell) if "seconds" in cell else cell.get("failure", "")


def _claims(found: dict[str, dict[int, Cell]]) -> str:
    reached = {
        method: max((n for n, cell in cells.items() if "seconds" in cell), default=0) for method, cells in found.items()
    }
    ours = max(reached[method] for method in METHODS if method.startswith("pattern search"))
    theirs = max(n for method, n in reached.items() if not method.startswith("pattern search"))
    shown = (f"{method} {n:,}" if n else f"{method} none" for method, n in reached.items())
    return claim(
        "pattern search goes as far as any of the peers.",
        ours >= theirs,
        "most points within the limits: " + ", ".join(shown),
    )


def _draw(study: Study, sizes: Sequence[int], found: dict[str, dict[int, Cell]]) -> None:
    from pictures import new, save

    figure, axes = new(1, len(DRAWN), 3.2)
    shown = {method: cells for method, cells in found.items() if any("seconds" in cell for cell in cells.values())}
    for one, (measure, (label, unit, scale)) in zip(axes[0], DRAWN.items(), strict=True):
        for marker, (method, cells) in zip("os^vD<>PX*", shown.items(), strict=False):
            done = {n: cell[measure] / unit for n, cell in cells.items() if measure in cell}
            one.semilogx(done.keys(), done.values(), marker=marker, markersize=4, linewidth=1, label=method)
        one.set(xlabel="points", ylabel=label, yscale=scale, xticks=sizes, xticklabels=[f"{n:,}" for n in sizes])
        one.tick_params(axis="x", rotation=45)
        one.minorticks_off()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save(study, figure, "scaling.png")


def answer(measure: Callable[..., Cell]) -> None:
    """Print what a run comes to within the limits, as `in_process` reads it; the last argument is a whole number."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    *names, n = sys.argv[1:]
    print(json.dumps(measure(*names, int(n))))


if __name__ == "__main__":
    answer(measure)
