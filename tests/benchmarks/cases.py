"""What is measured."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS, compare
from psmds_dist.block import gather
from psmds_dist.executor import DaskExecutor, InProcessExecutor, local_client
from psmds_dist.ingest import ArrayRows, build, open_points
from psmds_dist.kernels.jit import FAST_MATH, available_threads
from psmds_dist.kernels.moves import propose
from psmds_dist.partition import Layout, format_bytes
from psmds_dist.report import table
from psmds_dist.run import measure
from psmds_dist.schedule import halves
from psmds_dist.store import open_rows
from tests.benchmarks.data import mnist, swiss_roll
from tests.benchmarks.passes import passes
from tests.benchmarks.tiny import Nothing

MIB = 2**20


def seconds(function: Callable[[], Any], repeat: int = 5) -> float:
    """Median time of a call, after one that does not count."""
    function()
    return statistics.median(once(function) for _ in range(repeat))


def once(function: Callable[[], Any]) -> float:
    """Time of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


@numba.njit(nogil=True, fastmath=FAST_MATH, error_model="numpy")
def _bare_roots(values, times):
    total = 0.0
    for _ in range(times):
        part = values[0] - values[0]
        for j in range(values.size):
            part += np.sqrt(values[j])
        total += part
    return total


def kernel(options: argparse.Namespace) -> dict[str, Any]:
    """Roots a second of the move kernel as a share of bare vectorised roots; one thread, float32, N = 4,096."""
    random = np.random.default_rng(0)
    n = 4096
    rows = random.random((n, n), dtype=np.float32)
    points = np.arange(n)
    values = random.random(4096, dtype=np.float32)
    lines, found = [], {}
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    for dims in (2, 3, 10, 20):
        x = random.random((dims, n), dtype=np.float32)
        axes = np.arange(dims)
        shares, speeds = [], []
        for _ in range(5):
            bare = 4096 * 4096 / seconds(lambda: _bare_roots(values, 4096), 1)
            speed = n * n / seconds(lambda x=x, axes=axes: propose(rows, points, points, x, 0.1, axes), 1)
            shares.append((2 * dims + 1) * speed / bare)
            speeds.append(speed)
        found[dims] = {"share": statistics.median(shares), "pairs_a_second": statistics.median(speeds)}
        lines.append([f"L = {dims}", f"{found[dims]['share']:.2f}", f"{found[dims]['pairs_a_second'] / 1e9:.2f}"])
    numba.set_num_threads(before)
    print(table(["", "share of bare roots", "G pairs/s"], lines))
    return found


def smacof(options: argparse.Namespace) -> dict[str, Any]:
    """File to map against scikit-learn SMACOF (n_init=1, eps=1e-6, 300 iterations, random start) to its stress."""
    points = mnist(options.data)
    if points is None:
        print("MNIST test set not found (--data): digits of scikit-learn instead.")
        from sklearn.datasets import load_digits

        points = load_digits().data
    sizes = [1797, len(points)] if options.full and len(points) > 1797 else [min(1797, len(points))]
    found: dict[str, Any] = {}
    lines = []
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/points.npy", points[:n])
            store = f"{folder}/matrix.zarr"
            build(open_points(f"{folder}/points.npy"), store, InProcessExecutor())
            ours = [_timed_fit(store, seed) for seed in range(5)]
            matrix = compare.load(open_rows(store))
        other = compare.smacof(matrix, random_state=0)
        fit = statistics.median(time for time, _ in ours)
        stress = statistics.median(mds.normalized_stress_ for _, mds in ours)
        found[n] = {
            "smacof_seconds": other.seconds,
            "smacof_stress": other.stress.normalized_stress,
            "seconds": fit,
            "stress": stress,
            "worst_stress": max(mds.normalized_stress_ for _, mds in ours),
            "epochs": [mds.n_epochs_ for _, mds in ours],
            "ratio": other.seconds / fit,
        }
        lines.append(
            [
                f"N = {n:,}",
                f"{other.seconds:.1f}",
                f"{other.stress.normalized_stress:.4f}",
                f"{fit:.2f}",
                f"{stress:.4f}",
                f"{other.seconds / fit:.0f}",
            ]
        )
    print(table(["", "SMACOF s", "its stress", "ours s (median of 5)", "our stress", "times faster"], lines))
    return found


def _timed_fit(store: str, seed: int) -> tuple[float, PatternSearchMDS]:
    mds = PatternSearchMDS(random_state=seed)
    return once(lambda: mds.fit(store)), mds


def out_of_core(options: argparse.Namespace) -> dict[str, Any]:
    """N = 20,000 (1.6 GB) with 400 MiB for each of two workers: peak memory, and time against all kept in memory."""
    n, limit = 20_000, 400 * MIB
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/points.npy", np.random.default_rng(0).random((n, 8)))
        store = f"{folder}/matrix.zarr"
        build(open_points(f"{folder}/points.npy"), store, InProcessExecutor())
        lines = []
        for name, budget in (("streamed", limit), ("in memory", 2048 * MIB)):
            with local_client(2, max(1, available_threads() // 2)) as client:
                mds = PatternSearchMDS(random_state=0, client=client, memory_limit=budget, max_epochs=20)
                took = once(lambda mds=mds: mds.fit(store))
            peak = max(mds.result_.peak_memory.values())
            epochs = mds.history_["seconds"]
            epoch = float(np.median(np.diff(epochs)))
            found[name] = {"seconds": took, "epoch": epoch, "peak": peak, "limit": budget}
            lines.append(
                [
                    name,
                    format_bytes(budget),
                    format_bytes(peak),
                    format_bytes(peak - budget),
                    f"{took:.1f}",
                    f"{epoch:.2f}",
                ]
            )
    print(table(["", "limit a worker", "peak of a worker", "over", "20 epochs s", "an epoch s"], lines))
    return found


def overhead(options: argparse.Namespace) -> dict[str, Any]:
    """Time of a round beside the kernel: two local workers, N = 200,000, L = 2, answers of full length."""
    layout = Layout(200_000)
    work = Nothing(layout, np.zeros((2, layout.n), np.float32))
    times = []
    with local_client(2, 1) as client:
        executor = DaskExecutor(client)
        for epoch in range(25):
            for blocks in halves(layout, 0, epoch):
                times.append(once(lambda blocks=blocks: gather(executor, work, layout, blocks)))
    steady = 1e3 * np.array(times[10:])
    found = {"median_ms": float(np.median(steady)), "p90_ms": float(np.quantile(steady, 0.9))}
    print(f"median {found['median_ms']:.0f} ms, nine of ten below {found['p90_ms']:.0f} ms ({steady.size} rounds)")
    return found


def landmark(options: argparse.Namespace) -> dict[str, Any]:
    """Landmark mode against the full solve: stress, time and passes over the matrix (medians of five seeds)."""
    sets = {"swiss roll 3,000": swiss_roll(3000).astype(np.float32)}
    points = mnist(options.data)
    if points is not None:
        from scipy.spatial.distance import cdist

        sets["MNIST 10,000"] = cdist(points, points).astype(np.float32)
    found: dict[str, Any] = {}
    lines = []
    for name, matrix in sets.items():
        runs: dict[str, Callable[[int], Any]] = {
            f"exact, {init} start": lambda seed, init=init: PatternSearchMDS(init=init, random_state=seed)
            for init in ("random", "landmarks")
        }
        for size in (300, 1000):
            for refine in ("none", "full"):
                runs[f"S = {size:,}, refine {refine}"] = lambda seed, s=size, r=refine: LandmarkMDS(
                    n_landmarks=s, refine=r, evidence=False, random_state=seed
                )
        for run, make in runs.items():
            fits = [make(seed) for seed in range(5)]
            make(0).fit(matrix)
            times = [once(lambda fit=fit, matrix=matrix: fit.fit(matrix)) for fit in fits]
            source = ArrayRows(matrix)
            stress = [measure(source, fit.embedding_, InProcessExecutor()).normalized_stress for fit in fits]
            key = f"{name}, {run}"
            found[key] = {
                "stress": statistics.median(stress),
                "seconds": statistics.median(times),
                "passes": statistics.median(fit.n_epochs_ for fit in fits),
            }
            lines.append(
                [
                    key,
                    f"{found[key]['stress']:.6f}",
                    f"{found[key]['seconds']:.2f}",
                    f"{found[key]['passes']:.0f}",
                ]
            )
    print(table(["", "normalised stress", "seconds", "passes"], lines))
    return found


def pcoa(options: argparse.Namespace) -> dict[str, Any]:
    """Matrix in memory to map against scikit-bio's pcoa(method="fsvd"), five times in turn, N = 10,000."""
    try:
        import skbio
    except ImportError:
        print("scikit-bio is not installed: pip install '.[bench]'.")
        return {}
    import warnings

    points = mnist(options.data)
    if points is None:
        print("MNIST test set not found (--data): 10,000 random points in 50 dimensions instead.")
        points = np.random.default_rng(0).standard_normal((10_000, 50))
    from scipy.spatial.distance import cdist

    matrix = cdist(points, points)
    given = skbio.DistanceMatrix(matrix, validate=False)
    source = ArrayRows(matrix, dtype="float64")
    times: dict[str, list[float]] = {"landmarks, refine full": [], "scikit-bio pcoa": []}
    stress: dict[str, list[float]] = {name: [] for name in times}
    single = matrix.astype(np.float32)
    LandmarkMDS(refine="full", evidence=False, random_state=0).fit(single)
    for seed in range(5):
        mds = LandmarkMDS(refine="full", evidence=False, random_state=seed)
        times["landmarks, refine full"].append(once(lambda mds=mds: mds.fit(single)))
        stress["landmarks, refine full"].append(mds.normalized_stress_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = time.perf_counter()
            map_ = skbio.stats.ordination.pcoa(given, method="fsvd", dimensions=2, seed=seed)
            times["scikit-bio pcoa"].append(time.perf_counter() - began)
        stress["scikit-bio pcoa"].append(
            measure(source, map_.samples.to_numpy(), InProcessExecutor()).normalized_stress
        )
    ratio = statistics.median(a / b for a, b in zip(*times.values(), strict=True))
    rows = [[name, f"{statistics.median(times[name]):.2f}", f"{statistics.median(stress[name]):.4f}"] for name in times]
    print(table(["", "seconds", "normalised stress"], rows))
    print(f"ours / pcoa: {ratio:.2f} (median of five pairs)")
    return {"seconds": times, "stress": stress, "ratio": ratio}


def million(options: argparse.Namespace) -> dict[str, Any]:
    """1,000,000 points in 16 dimensions by 1,000 landmarks: from points, and from a stored panel (4 GB)."""
    import subprocess
    import sys

    n = 1_000_000 if options.full else 100_000
    found: dict[str, Any] = {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        points = f"{folder}/points.npy"
        np.save(points, np.random.default_rng(0).random((n, 16)))
        panel = [
            "psmds_dist.cli",
            "landmarks",
            "panel",
            points,
            f"{folder}/panel.zarr",
            "--metric",
            "euclidean",
            "-q",
        ]
        subprocess.run([sys.executable, "-m", *panel], check=True)
        for name, source, metric in (
            ("points", points, "euclidean"),
            ("panel", f"{folder}/panel.zarr", "precomputed"),
        ):
            code = (
                "import resource, sys, time; from landmarks import LandmarkMDS; import numpy as np\n"
                "LandmarkMDS(n_landmarks=10, metric='euclidean', random_state=0).fit(np.random.rand(50, 3))\n"
                "began = time.perf_counter()\n"
                f"LandmarkMDS(metric={metric!r}, random_state=0, memory_limit='2 GiB').fit({source!r})\n"
                "print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
            )
            out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
            took, peak = (float(word) for word in out.split())
            found[name] = {"n": n, "seconds": took, "peak": peak}
            rows.append([f"from {name}, N = {n:,}", f"{took:.1f}", format_bytes(peak)])
    print(table(["", "seconds", "peak memory"], rows))
    return found


CASES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "kernel": kernel,
    "smacof": smacof,
    "out-of-core": out_of_core,
    "overhead": overhead,
    "landmark": landmark,
    "pcoa": pcoa,
    "million": million,
    "passes": passes,
}
