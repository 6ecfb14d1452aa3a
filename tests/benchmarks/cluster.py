"""Dask workers: overhead of a round, two workers and one, and a matrix larger than memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from psmds_dist import PatternSearchMDS
from psmds_dist.core.events import EpochEvent
from psmds_dist.core.layout import Layout
from psmds_dist.data.cache import AHEAD
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor
from psmds_dist.kernels.jit import available_threads
from psmds_dist.solver.schedule import halves
from psmds_dist.solver.tasks import Proposal, gather
from tests.benchmarks import data
from tests.benchmarks.data import DataSet
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held
from tests.benchmarks.machine import bytes_from_disk, drop_cached, files_below, sync
from tests.benchmarks.ours import passes_of
from tests.benchmarks.roofline import cold_read

MIB = 2**20


@dataclass(frozen=True)
class Nothing:
    """Work of a round without reading rows: takes coordinates and returns answers of full size."""

    layout: Layout
    x: np.ndarray

    def __call__(self, blocks: Sequence[int]) -> Proposal:
        k = self.layout.points(blocks).size
        return np.zeros(k, np.int16), np.zeros(k), np.zeros(k)


def overhead(settings: Settings) -> list[Record]:
    """Overhead of a round: two local workers, N = 200,000, L = 2, answers of full length."""
    layout = Layout(200_000)
    work = Nothing(layout, np.zeros((2, layout.n), np.float32))
    times = []
    with local_client(2, 1) as client:
        executor = DaskExecutor(client)
        for epoch in range(25):
            for blocks in halves(layout, 0, epoch):
                times.append(once(lambda blocks=blocks: gather(executor, work, layout, blocks)))
    steady = 1e3 * np.array(times[10:])
    found = [{"what": "a round", "median_ms": float(np.median(steady)), "p90_ms": float(np.quantile(steady, 0.9))}]
    show(found, what="", median_ms=".0f", p90_ms=".0f")
    return found


def workers(settings: Settings) -> list[Record]:
    """Two Dask workers and one, one thread each, rows in memory, N = 20,000: seconds per epoch, alternating."""
    one = data.euclidean(settings, "clusters", data.clusters(20_000))
    pairs = [(epoch_seconds(one, 1), epoch_seconds(one, 2)) for _ in range(settings.pick(1, 5, 5))]
    alone, both = (float(np.median(column)) for column in zip(*pairs, strict=True))
    found = [{"what": "1 worker", "epoch_s": alone}, {"what": "2 workers", "epoch_s": both}]
    show(found, what="", epoch_s=".4f")
    lines = [held("one worker's epoch over two workers'", float(np.median([a / b for a, b in pairs])), least=1.85)]
    show_held(lines)
    return found + lines


def epoch_seconds(one: DataSet, count: int) -> float:
    """Median seconds per epoch on local workers of one thread, with rows in memory."""
    with local_client(count, 1) as client:
        mds = PatternSearchMDS(init="random", cluster=client, random_state=0, max_epochs=15)
        mds.fit(one.store)
    return float(np.median(np.diff(mds.history_["seconds"])[2:]))


def out_of_core(settings: Settings) -> list[Record]:
    """A matrix larger than the memory limit, dropped from the page cache before every epoch; two workers.

    N = 20,000 (1.6 GB) with 400 MiB a worker, and with --full N = 50,000 (10 GB) with 1 GiB a worker. Disk speed is
    that of reading the same files, cold, with the best number of streams, before and after the run, because disks
    drift; and again with reads announced in advance, like the solver. Dropping pages is not counted. A ratio above 1.25
    means that something other than the disk limits the run.
    """
    found, lines = [], []
    sizes = [(20_000, 400 * MIB), (50_000, 1024 * MIB)]
    for n, limit in settings.pick([(6000, 120 * MIB)], sizes[:1], sizes):
        one = data.scattered(settings, "out of core", data.clusters(n))
        try:
            data.build_store(one)
            found.append(_cold(one, limit))
        finally:
            shutil.rmtree(one.folder)
        lines.append(held(f"{found[-1]['what']}: wall over that of the disk", found[-1]["over_disk"], most=1.25))
        lines.append(held(f"{found[-1]['what']}: MiB over the limit", found[-1]["over_limit"] / MIB, most=200))
    memory = {"limit": "bytes", "kept": ".0%", "peak": "bytes", "matrix": "bytes", "read_from_disk": "bytes"}
    speeds = {"disk_GB_s": ".2f", "told_GB_s": ".2f", "over_disk": ".2f", "over_told": ".2f"}
    show(found, what="", **memory, seconds=".1f", passes=".0f", **speeds, stress=".5f")
    show_held(lines)
    return found + lines


def _cold(one: DataSet, limit: int) -> Record:
    paths = files_below(one.store)
    slowness = [_slowness(paths)]
    with local_client(2, max(1, available_threads() // 2)) as client:
        drop = _Dropper(lambda: drop_cached(paths))
        mds = PatternSearchMDS(random_state=0, cluster=client, memory_limit=limit, max_epochs=8, on_epoch=drop)
        sync(paths)
        drop(None)
        before, drop.seconds = bytes_from_disk(), 0.0
        took = once(lambda: mds.fit(one.store)) - drop.seconds
        read = bytes_from_disk() - before
    slowness.append(_slowness(paths))
    plain, told = np.mean(slowness, axis=0).tolist()
    matrix = 4 * one.n**2
    passes = passes_of(mds.history_)
    peak = max(mds.result_.peak_memory.values())
    return {
        "what": f"N = {one.n:,}",
        "limit": limit,
        "peak": peak,
        "over_limit": peak - limit,
        "seconds": took,
        "passes": passes,
        "disk_GB_s": 1e-9 / plain,
        "told_GB_s": 1e-9 / told,
        "matrix": matrix,
        "read_from_disk": read,
        "over_disk": took / (passes * matrix * plain),
        "over_told": took / (passes * matrix * told),
        "stress": mds.normalized_stress_,
        "kept": mds.result_.plan.cached_share,
        "start": mds.start_,
    }


def _slowness(paths: list[Path]) -> tuple[float, float]:
    """Seconds per byte of cold reads, plain and announced, with the best number of streams."""
    plain, told = (max(cold_read(paths, streams, ahead) for streams in (2, 4)) for ahead in (None, AHEAD))
    return 1 / plain, 1 / told


class _Dropper:
    """Callback that drops pages after each epoch and measures its own time."""

    def __init__(self, drop: Callable[[], None]) -> None:
        self._drop = drop
        self.seconds = 0.0

    def __call__(self, event: EpochEvent | None) -> None:
        began = time.perf_counter()
        self._drop()
        self.seconds += time.perf_counter() - began
