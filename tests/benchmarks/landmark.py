"""Landmark mode: compared with the full solve and with scikit-bio, and for millions of points."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.api.embed import measure
from psmds_dist.executor import InProcessExecutor
from tests.benchmarks import data
from tests.benchmarks.child import run_child
from tests.benchmarks.data import DataSet
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held
from tests.benchmarks.methods import Map, Method
from tests.benchmarks.peers import pcoa as run_pcoa
from tests.benchmarks.solver import SEEDS


def landmark(settings: Settings) -> list[Record]:
    """Landmark mode compared with the full solve, matrix in memory: stress, time and passes (medians of five seeds)."""
    found = []
    for one in data.there(data.geodesic_roll(settings, 3000), data.mnist(settings)):
        matrix = np.load(one.matrix)
        for name, make in _ways():
            found.append({"what": f"{one.name} {one.n:,}, {name}", **_medians(one, matrix, make)})
    show(found, what="", stress=".6f", seconds=".2f", passes=".0f")
    return found


def _ways() -> list[tuple[str, Callable[[int], Any]]]:
    ways: list[tuple[str, Callable[[int], Any]]] = [
        (f"exact, {init} start", lambda seed, init=init: PatternSearchMDS(init=init, random_state=seed))
        for init in ("random", "landmarks")
    ]
    for size in (300, 1000):
        for refine in ("none", "full"):
            ways.append((f"S = {size:,}, refine {refine}", lambda seed, s=size, r=refine: _landmarks(seed, s, r)))
    return ways


def _landmarks(seed: int, size: int, refine: str) -> LandmarkMDS:
    return LandmarkMDS(n_landmarks=size, refine=refine, evaluate=False, random_state=seed)


def _medians(one: DataSet, matrix: np.ndarray, make: Callable[[int], Any]) -> Record:
    make(0).fit(matrix)
    fits = [make(seed) for seed in SEEDS]
    times = [once(lambda fit=fit: fit.fit(matrix)) for fit in fits]
    return {
        "stress": statistics.median(_stress(one, fit.embedding_) for fit in fits),
        "seconds": statistics.median(times),
        "passes": statistics.median(fit.n_epochs_ for fit in fits),
    }


def _stress(one: DataSet, embedding: np.ndarray) -> float:
    return measure(one.rows(), embedding, InProcessExecutor()).normalized_stress


def pcoa(settings: Settings) -> list[Record]:
    """Matrix in memory to map, LandmarkMDS(refine="full") and scikit-bio's pcoa(method="fsvd"), alternating."""
    try:
        import skbio  # noqa: F401
    except ImportError:
        print("scikit-bio is not installed: pip install '.[bench]'.")
        return []
    one = data.mnist(settings) or data.euclidean(settings, "clusters", data.clusters(10_000))
    single = np.load(one.matrix)
    double = single.astype(np.float64)
    _full(single, 0), run_pcoa(double, 0)
    ways = {
        "landmarks, refine full": lambda seed: _full(single, seed),
        "pcoa fsvd": lambda seed: run_pcoa(double, seed),
    }
    rounds = [[_timed(one, way, seed) for way in ways.values()] for seed in SEEDS]  # alternating
    runs = dict(zip(ways, zip(*rounds, strict=True), strict=True))
    found = [
        {
            "what": name,
            "seconds": statistics.median(took for took, _ in times),
            "stress": statistics.median(stress for _, stress in times),
        }
        for name, times in runs.items()
    ]
    show(found, what="", seconds=".2f", stress=".4f")
    lines = [held("our time over pcoa's", statistics.median(a / b for (a, _), (b, _) in rounds), most=1.5)]
    show_held(lines)
    return found + lines


def _timed(one: DataSet, way: Callable[[int], Map], seed: int) -> tuple[float, float]:
    began = time.perf_counter()
    found = way(seed)
    return time.perf_counter() - began, _stress(one, found.embedding)


def _full(matrix: np.ndarray, seed: int) -> Map:
    return Map(LandmarkMDS(refine="full", evaluate=False, random_state=seed).fit(matrix).embedding_)


def million(settings: Settings) -> list[Record]:
    """Points in 16 dimensions in landmark mode, in a separate process: time and peak memory, kernels warm.

    100,000 points; with --full 1,000,000, and 10,000,000 by 500 landmarks under a limit of 4 GiB. The panel is
    N x 1,000, computed before. Stress is the method's own estimate on held-out pairs.
    """
    found = _by_landmarks(
        settings.pick(20_000, 100_000, 1_000_000), {"points": "million", "panel": "million_panel"}, settings
    )
    if settings.full:
        found += _by_landmarks(10_000_000, {"points": "ten_million"}, settings)
    show(found, what="", seconds=".1f", peak_memory="bytes", stress=".4f")
    return found


def _by_landmarks(n: int, functions: dict[str, str], settings: Settings) -> list[Record]:
    """Run functions of `ours`, by the source they take, on uniform points that are removed afterwards."""
    one = data.scattered(settings, "uniform", np.random.default_rng(0).random((n, 16)))
    try:
        if "panel" in functions:
            command = ["landmarks", "panel", str(one.points), str(one.panel), "--metric", "euclidean", "-q"]
            subprocess.run([sys.executable, "-m", "psmds_dist", *command], check=True)
        return [_run(function, source, one, settings) for source, function in functions.items()]
    finally:
        shutil.rmtree(one.folder)


def _run(function: str, source: str, one: DataSet, settings: Settings) -> Record:
    """Run one of them on a data set in a separate process."""
    tiny = data.euclidean(settings, "tiny", data.clusters(64, 3))
    method = Method(
        name=source,
        target=f"tests.benchmarks.ours:{function}",
        needs=f"{source}_path",
        limit=one.n,
        full_limit=one.n,
        warm="tests.benchmarks.ours:warm_landmarks",
        measured=False,
    )
    outcome = run_child(method, one, tiny)
    record: Record = {"what": f"from {source}, N = {one.n:,}", "n": one.n, "peak_memory": outcome.get("peak")}
    if "failed" in outcome:
        return {**record, "wrong": f"landmarks {record['what']}: {outcome['failed']}"}
    run = outcome["runs"][0]
    wrong = None if run["finite"] else f"landmarks {record['what']}: coordinates that are not finite"
    return {**record, **run, "wrong": wrong}
