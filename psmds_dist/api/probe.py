"""Short measurements of what this machine does in a second, for `psmds_dist.planning.cost`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import psutil

from psmds_dist.core.config import SolverConfig
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Rows
from psmds_dist.data.cache import prefetch_ahead
from psmds_dist.kernels.jit import available_threads as available_threads
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.pairs import RuleKernels, kernels_of
from psmds_dist.utils.machine import available_memory

COLUMNS = 4096
"""Points of the kernel's probe: their rows take 64 MB, so that they come from memory as in a run, not from caches."""

READ_BYTES = 64_000_000
"""Bytes that the probe of the disk reads."""

SECONDS = 0.15
"""Time that a probe takes."""


KNOTS = 4096
"""Knots of the probe's disparities, as many as a run has of continuous dissimilarities."""


def roots(dims: int, threads: int | None = None, rule: PairRule = PLAIN) -> float:
    """Square roots a second and thread of the move kernel of a rule, all threads at work.

    Counted as if all axes were tried, also where moves are guided: what is wanted is the time of a pair.
    """
    count = min(threads or available_threads(), available_threads())
    random = np.random.default_rng(0)
    rows = np.tile(random.random((256, COLUMNS * rule.parts), dtype=np.float32), (COLUMNS // 256, 1))
    kernels = kernels_of(rule, 1.0)
    if isinstance(kernels, RuleKernels) and rule.transformation is not None:
        kernels, rows = replace(kernels, table=np.linspace(0, 1, KNOTS)[None]), rows * (KNOTS - 1)
    points = np.arange(COLUMNS)
    x = random.random((dims, COLUMNS), dtype=np.float32)
    kernel = kernels.guide if SolverConfig(n_components=dims).guided else kernels.propose
    with parallel_region(count):
        seconds = best(lambda: kernel(rows, points, points, x, 0.1, np.arange(dims)))
    return (2 * dims + 1) * COLUMNS**2 / (seconds * count)


class Reading(NamedTuple):
    """How a store is read.

    Attributes
    ----------
    speed : float
        Bytes a second.
    busy : float
        Share of that time for which a core is at work, and not waiting for a device.
    """

    speed: float
    busy: float


def reading(source: RowSource) -> Reading:
    """Read some blocks of a store as a pass does, as they lie now."""
    layout = source.layout
    nbytes = layout.rows * layout.columns * source.dtype.itemsize
    buffer: Rows = np.empty((layout.rows, layout.columns), source.dtype)
    count = max(1, min(layout.count - 1, READ_BYTES // nbytes))
    spans = [layout.bounds(block) for block in np.linspace(0, layout.count - 1, count).astype(int).tolist()]
    buffer[:] = 0
    began, worked = time.perf_counter(), time.process_time()
    done, share = 0.0, source.read_profile.stored_share
    for turn, (lo, hi) in enumerate(spans):
        prefetch_ahead(source, spans, turn)
        source.read(lo, hi, buffer)
        done += (hi - lo) * layout.columns * source.dtype.itemsize * share
        if time.perf_counter() - began > 2 * SECONDS:
            break
    taken = time.perf_counter() - began
    return Reading(done / taken, min(1.0, (time.process_time() - worked) / taken))


def distances(features: int) -> float:
    """Euclidean distances a second from points with so many features, in one thread as a pass computes them."""
    from scipy.spatial.distance import cdist

    points = np.random.default_rng(0).random((1500, features))
    out = np.empty((1000, 500))
    return out.size / best(lambda: cdist(points[:1000], points[1000:], out=out))


def memory_share(workers: int) -> int:
    """Bytes that a worker may take by default when so many share this machine."""
    if workers == 1:
        return int(0.8 * available_memory())
    return int(psutil.virtual_memory().total // (2 * workers))


def best(function: Callable[[], object]) -> float:
    """Shortest time of some calls after one that does not count."""
    function()
    times: list[float] = []
    while sum(times) < SECONDS or len(times) < 3:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)
