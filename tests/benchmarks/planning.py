"""The cost model compared with runs, and its scheduler part with hundreds of simulated workers."""

from __future__ import annotations

import itertools
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from psmds_dist import PatternSearchMDS
from psmds_dist.api import probe
from psmds_dist.api.forecast import estimate, job_of, plan_of
from psmds_dist.core.layout import Layout
from psmds_dist.data.cache import stored
from psmds_dist.data.points import open_points
from psmds_dist.data.store import open_rows
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor, InProcessExecutor, dask
from psmds_dist.executor import workers as pool
from psmds_dist.ingest.build import build
from psmds_dist.kernels.jit import available_threads
from psmds_dist.planning.cost import Rates
from psmds_dist.solver.schedule import halves
from psmds_dist.solver.tasks import gather
from tests.benchmarks.cluster import Nothing
from tests.benchmarks.harness import Record, Settings, held, show, show_held

MIB = 2**20
PROCESSES = 4
"""Processes that the simulated workers share."""

PATIENCE = 900.0
"""Seconds that a worker may take: a thousand import and answer one after the other."""

WAYS = {"by tasks": 2, "asked": 0}
"""Coordinates per point that a round sends: with none it is small enough for direct requests."""


def scheduler(settings: Settings) -> list[Record]:
    """Overhead of a round with many simulated workers, N = 200,000, and the line a + b W through it.

    Measured with tasks, like rounds that send coordinates to many workers, and with direct requests, like rounds that
    send little data. Simulated workers share the cores with scheduler and client. So the lines are fitted to the
    processor time of these two, which are in one process: with workers on other machines a round takes that long.
    """
    counts = settings.pick((20,), *[(32, 200, 1000)] * 2)
    found = [record for count in counts for record in _rounds(count)]
    show(found, what="", wall=".3f", of_which_here=".3f")
    return found + ([_line(found, way) for way in WAYS] if len(counts) > 1 else [])


def _line(found: list[Record], way: str) -> Record:
    """Fit and print the line through rounds of one kind."""
    counts, times = zip(*((r["workers"], r["of_which_here"]) for r in found if r["way"] == way), strict=True)
    slope, base = np.polyfit(counts, times, 1).tolist()
    print(f"a round {way} takes {base:.3f} s + {1e3 * slope:.2f} ms x workers of scheduler and client")
    return {"what": f"line through rounds {way}", "base": base, "worker": slope}


def _rounds(count: int) -> list[Record]:
    with _stand_ins(count) as client:
        return [
            {"what": f"{count} workers, {way}", "workers": count, "way": way, **_round(client, dims)}
            for way, dims in WAYS.items()
        ]


def _round(client: Any, dims: int, epochs: int = 3) -> Record:
    """Wall time and processor time of this process per round (medians)."""
    layout = Layout(200_000)
    work = Nothing(layout, np.zeros((dims, layout.n), np.float32))
    with mock.patch.object(dask, "WORKER_TIMEOUT", PATIENCE):
        executor, times = DaskExecutor(client, PATIENCE), []
    with mock.patch.object(pool, "TASK_INTERVAL", math.inf):
        for blocks in itertools.chain(*(halves(layout, 0, epoch) for epoch in range(epochs))):
            began = time.perf_counter(), time.process_time()
            gather(executor, work, layout, blocks)
            times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    wall, here = np.median(times[2:], axis=0).tolist()
    return {"wall": wall, "of_which_here": here}


@contextmanager
def _stand_ins(count: int) -> Iterator[Any]:
    """Start a scheduler and workers of one thread each, without nannies, in a few processes."""
    from distributed import Client, LocalCluster

    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # five for each worker
    shares = [count // PROCESSES + (k < count % PROCESSES) for k in range(PROCESSES)]
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50) as cluster:
        command = [sys.executable, "-m", "tests.benchmarks.standins", cluster.scheduler_address]
        hosts = [subprocess.Popen([*command, f"stand-in-{k}", str(share)]) for k, share in enumerate(shares)]
        try:
            with Client(cluster, set_as_default=False) as client:
                client.wait_for_workers(count, timeout=PATIENCE)
                yield client
        finally:
            for host in hosts:
                host.kill()
                host.wait()


def planning(settings: Settings) -> list[Record]:
    """Predicted and actual seconds of whole runs, given their epochs; the median of five tries."""
    pairs: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n, dims in settings.pick([(3000, 2)], *[[(6000, 2), (6000, 5), (12_000, 2)]] * 2):
            store = f"{folder}/{n}.zarr"
            np.save(f"{folder}/points.npy", np.random.default_rng(0).random((n, 8)))
            build(open_points(f"{folder}/points.npy"), store, InProcessExecutor(), overwrite=True)
            share = 4 * n * n // 4
            for name, limit, workers in (("kept", 4096 * MIB, 1), ("streamed", share, 1), ("2 workers", share, 2)):
                tries = [_exact(store, dims, limit, workers) for _ in range(settings.pick(1, 5, 5))]
                pairs[f"N = {n:,}, L = {dims}, {name}"] = _middle(tries)
        for tries in zip(*(_by_landmarks(folder).items() for _ in range(settings.pick(1, 5, 5))), strict=True):
            pairs[tries[0][0]] = _middle([pair for _, pair in tries])
    found: list[Record] = [
        {"what": name, "predicted": predicted, "actual": actual, "ratio": predicted / actual}
        for name, (predicted, actual) in pairs.items()
    ]
    show(found, what="", predicted=".2f", actual=".2f", ratio=".2f")
    worst = max(max(record["ratio"], 1 / record["ratio"]) for record in found)
    bounds = [held("worst ratio of predicted to actual, either way", worst, most=1.25)]
    show_held(bounds)
    return found + bounds


EPOCHS = 12


def _middle(tries: list[tuple[float, float]]) -> tuple[float, float]:
    """The try with the median ratio: other guests of the machine halve its speed for seconds at a time."""
    return sorted(tries, key=lambda pair: pair[0] / pair[1])[len(tries) // 2]


def _exact(store: str, dims: int, limit: int, workers: int) -> tuple[float, float]:
    source = open_rows(store)
    threads = max(1, available_threads() // workers)
    settings = {"n_components": dims, "max_epochs": EPOCHS, "radius": 0.1, "random_state": 0, "memory_limit": limit}
    with ExitStack() as stack:
        client = None if workers == 1 else stack.enter_context(local_client(workers, threads))
        mds = PatternSearchMDS(cluster=client, **settings)
        rates = _rates(dims, threads * workers, source)
        mds.fit(store)  # load kernels, and allocate the memory that a host may have to find first: it is requested
        # again within two seconds, after which a guest returns free memory
        actual = float(mds.fit(store).result_.seconds)
    plan = plan_of(stored(source), dims, workers, limit, read_cost=source.read_profile.read_amplification)
    job = job_of(plan, dims, threads, epochs=EPOCHS, started=False, checked=True)
    return estimate(job, rates).seconds, actual


def _by_landmarks(folder: str, n: int = 100_000, size: int = 500) -> dict[str, tuple[float, float]]:
    from landmarks import LandmarkMDS
    from landmarks.panel.build import build_panel
    from landmarks.panel.sources import points_panel
    from landmarks.panel.tables import npy_panel
    from psmds_dist.data.store import open_panel

    points, panel = f"{folder}/p.npy", f"{folder}/panel.zarr"
    np.save(points, np.random.default_rng(0).random((n, 16)))
    build_panel(points_panel(npy_panel(points, "float64"), np.arange(size)), panel, InProcessExecutor(), overwrite=True)
    found = {}
    for name, given, metric in (("points", points, "euclidean"), ("panel", panel, "precomputed")):
        mds = LandmarkMDS(n_landmarks=size - 20, metric=metric, random_state=0, memory_limit=512 * MIB)
        mds.fit(given)
        began = time.perf_counter()
        mds.fit(given)
        actual = time.perf_counter() - began
        rows = stored(open_panel(panel))
        plan = plan_of(rows, 2, 1, 512 * MIB)
        job = job_of(plan, 2, available_threads(), computed=name == "points")
        rates = _rates(2, available_threads(), open_panel(panel))
        found[f"N = {n:,}, S = {size - 20}, from {name}"] = estimate(job, rates).seconds, actual
    return found


def _rates(dims: int, threads: int, source: Any) -> Rates:
    speed, busy = probe.reading(source)
    return Rates(probe.roots(dims, threads), distances=probe.distances(16), disk=speed, reading=busy)
