"""Limits of the machine, and the fractions that kernel, round and whole run reach."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import numba
import numpy as np
from numba import prange

from psmds_dist import PatternSearchMDS
from psmds_dist.core.layout import Layout
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels.jit import FAST_MATH, available_threads
from psmds_dist.kernels.moves import propose
from psmds_dist.solver.schedule import halves
from psmds_dist.solver.tasks import CachedRows, Propose, gather
from tests.benchmarks import data
from tests.benchmarks.harness import Record, Settings, held, least_seconds, once, seconds, show, show_held
from tests.benchmarks.machine import drop_cached, fetch, files_below, sync

LINE = 4096
"""Numbers whose square roots are computed repeatedly: they stay in the L1 cache."""

CHUNK = 2**23
"""Bytes per read from disk, about one block."""


@numba.njit(nogil=True, parallel=True, fastmath=FAST_MATH, error_model="numpy")
def _roots(values, times):
    totals = np.zeros(times, values.dtype)
    for k in prange(times):
        part = values[0] - values[0]
        for j in range(values.size):
            part += np.sqrt(values[j])
        totals[k] = part
    return totals


@numba.njit(nogil=True, parallel=True, fastmath=FAST_MATH, error_model="numpy")
def _sum_lines(values):
    totals = np.zeros(values.shape[0], values.dtype)
    for k in prange(values.shape[0]):
        part = values[0, 0] - values[0, 0]
        for j in range(values.shape[1]):
            part += values[k, j]
        totals[k] = part
    return totals


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run kernels on a number of threads."""
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def roots_a_second(count: int) -> float:
    """Vectorized float32 square roots per second, on a number of threads."""
    values = np.random.default_rng(0).random(LINE, dtype=np.float32)
    with threads(count):
        return LINE * LINE / least_seconds(lambda: _roots(values, LINE))


def memory_bandwidth(count: int, nbytes: int = 2**29) -> float:
    """Bytes per second read by a sum over a large array."""
    values = np.ones((nbytes // 2**16, 2**14), np.float32)
    with threads(count):
        return nbytes / least_seconds(lambda: _sum_lines(values))


def disk_bandwidth(folder: Path, nbytes: int, streams: int = 1) -> float:
    """Bytes per second from disk: files just written, dropped from the page cache, read in pieces of a block."""
    paths = [folder / f"probe-{k}.bin" for k in range(streams)]
    block = np.random.default_rng(0).bytes(CHUNK)
    try:
        for path in paths:
            with open(path, "wb") as file:
                for _ in range(nbytes // CHUNK // streams):
                    file.write(block)
        return cold_read(paths, streams)
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def cold_read(paths: list[Path], streams: int, ahead: int | None = None) -> float:
    """Bytes per second of reading files that are dropped from the page cache first.

    Each is read from end to end; with ``ahead``, reads are announced that many files in advance, like the solver.
    """
    sync(paths)
    drop_cached(paths)
    total = sum(path.stat().st_size for path in paths)
    shares = [paths[k::streams] for k in range(streams)]
    with ThreadPoolExecutor(streams) as pool:
        return total / once(lambda: list(pool.map(partial(_read_all, ahead=ahead), shares)))


def _read_all(paths: list[Path], ahead: int | None) -> None:
    buffer = bytearray(CHUNK)
    for turn, path in enumerate(paths):
        if ahead is not None:
            fetch(paths[turn + ahead : turn + ahead + 1])
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


@dataclass(frozen=True)
class Machine:
    """Rates of bare loops per second, with one and with all threads."""

    roots: float
    roots_all: float
    memory: float
    memory_all: float
    disk: float
    disk_two: float

    @classmethod
    @cache
    def measure(cls, folder: Path, nbytes: int) -> Machine:
        """Measure the machine, once per run of the suite."""
        folder.mkdir(parents=True, exist_ok=True)
        every = available_threads()
        return cls(
            roots_a_second(1),
            roots_a_second(every),
            memory_bandwidth(1),
            memory_bandwidth(every),
            disk_bandwidth(folder, nbytes, 1),
            disk_bandwidth(folder, nbytes, 2),
        )


def roofline(settings: Settings) -> list[Record]:
    """Square roots, memory and disk with bare loops, and the fractions of these that the solver reaches.

    A round is half an epoch of 10,000 points in memory; the whole run is file to map from a random start, including the
    final measurement. Fractions refer to the bare speed of one thread or all threads, measured in the same run.
    """
    machine = Machine.measure(settings.output, settings.pick(2**28, 2**30, 2**32))
    print(f"bare square roots: {machine.roots / 1e9:.2f} G/s on one thread, {machine.roots_all / 1e9:.2f} on all")
    print(f"memory: {machine.memory / 1e9:.1f} GB/s on one thread, {machine.memory_all / 1e9:.1f} on all")
    print(f"disk: {machine.disk / 1e9:.2f} GB/s in one stream, {machine.disk_two / 1e9:.2f} in two\n")
    n = settings.pick(3000, 10_000, 20_000)
    kernels = _kernels(settings)
    rounds = [_round(n, dims, machine) for dims in (2, 10)]
    whole = [] if settings.quick else [_whole_run(settings, machine)]
    show(rounds + whole, what="", roots_share=".2f", memory_share=".2f", disk_share=".2f", seconds=".3f")
    return [{"what": "machine", **asdict(machine)}, *kernels, *rounds, *whole]


BOUNDS = {2: 0.9, 3: 0.9, 10: 0.75, 20: 0.75}
"""Dimensions at which the kernel is measured, and the fraction of bare roots that it must reach."""


def _kernels(settings: Settings) -> list[Record]:
    """The move kernel compared with bare square roots, float32, N = 4,096, alternating; and two threads with one.

    Bare roots show what a second core adds at the moment: other guests of the machine may use it.
    """
    found, lines = [], []
    for dims, bound in BOUNDS.items():
        found.append(_kernel(dims, settings.pick(1, 5, 5)))
        lines.append(held(f"share of bare roots, L = {dims}, 1 thread", found[-1]["share_1_thread"], least=bound))
        lines.append(held(f"2 threads over 1, L = {dims}", found[-1]["threads_gain"], least=1.9))
    columns = ("share_1_thread", "share_2_threads", "threads_gain", "bare_gain", "G_pairs")
    show(found, what="", **dict.fromkeys(columns, ".2f"))
    show_held(lines)
    print()
    return found + lines


def _kernel(dims: int, repeat: int) -> Record:
    runs = [[_kernel_beside_roots(dims, count) for count in (1, 2)] for _ in range(repeat)]
    return {
        "what": f"kernel, L = {dims}",
        "share_1_thread": statistics.median(speed / bare for (speed, bare), _ in runs),
        "share_2_threads": statistics.median(speed / bare for _, (speed, bare) in runs),
        "threads_gain": statistics.median(two / one for (one, _), (two, _) in runs),
        "bare_gain": statistics.median(two / one for (_, one), (_, two) in runs),
        "G_pairs": statistics.median(speed for (speed, _), _ in runs) / (2 * dims + 1) / 1e9,
    }


def _kernel_beside_roots(dims: int, count: int) -> tuple[float, float]:
    """Roots per second of the kernel, and of the bare loop right after it."""
    rows, x = _random_matrix(LINE), np.random.default_rng(1).random((dims, LINE), dtype=np.float32)
    points, axes = np.arange(LINE), np.arange(dims)
    with threads(count):
        took = least_seconds(lambda: propose(rows, points, points, x, 0.1, axes), 3)
    return (2 * dims + 1) * LINE**2 / took, roots_a_second(count)


@cache
def _random_matrix(n: int) -> np.ndarray:
    return np.random.default_rng(0).random((n, n), dtype=np.float32)


def _round(n: int, dims: int, machine: Machine) -> Record:
    """Half an epoch including everything around the kernel, rows in memory, all threads."""
    took, pairs = half_epoch(n, dims)
    return {
        "what": f"round, N = {n:,}, L = {dims}",
        "roots_share": (2 * dims + 1) * pairs / took / machine.roots_all,
        "memory_share": 4 * pairs / took / machine.memory_all,
        "seconds": took,
    }


def half_epoch(n: int, dims: int, repeat: int = 5) -> tuple[float, float]:
    """Seconds of a round on rows in memory, and the number of its pairs."""
    matrix = ArrayRows(_random_matrix(n))
    x = np.random.default_rng(1).random((dims, n), dtype=np.float32)
    layout, executor = Layout(n), InProcessExecutor()
    work = Propose(CachedRows(matrix, n * n * 4), x, 0.1, tuple(range(dims)))
    blocks, _ = halves(layout, 0, 0)
    took = seconds(lambda: gather(executor, work, layout, blocks), repeat)
    return took, float(layout.points(blocks).size) * n


def _whole_run(settings: Settings, machine: Machine) -> Record:
    """File to map from a random start, with the file dropped from the page cache first."""
    one = data.mnist(settings) or data.euclidean(settings, "clusters", data.clusters(10_000))
    PatternSearchMDS(random_state=0).fit(data.digits(settings, 1000).store)
    sync(files_below(one.store))
    drop_cached(files_below(one.store))
    mds = PatternSearchMDS(init="random", random_state=0)
    took = once(lambda: mds.fit(one.store))
    pairs = float(one.n) ** 2
    return {
        "what": f"whole run, {one.name}, N = {one.n:,}, cold file",
        "roots_share": (5 * mds.n_epochs_ + 1) * pairs / took / machine.roots_all,
        "memory_share": 4 * (mds.n_epochs_ + 1) * pairs / took / machine.memory_all,
        "disk_share": 4 * pairs / took / machine.disk,
        "seconds": took,
    }
