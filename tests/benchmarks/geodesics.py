"""Geodesic distances of a swiss roll: one and two workers within a memory limit, and scikit-learn with SciPy."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from sklearn.datasets import make_swiss_roll
from sklearn.neighbors import kneighbors_graph

from psmds_dist import build, open_geodesics, open_rows
from psmds_dist.core.layout import parse_bytes
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor
from psmds_dist.planning.memory import RESERVED_BYTES
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held

NEIGHBORS = 12
MEMORY = "512 MiB"
BLOCK = 500


def geodesics(settings: Settings) -> list[Record]:
    """Geodesic distances of a swiss roll into a store by one worker and by two, and by SciPy on the graph of
    scikit-learn in one process: seconds, peak memory of a worker, and the largest difference.
    """
    points = make_swiss_roll(settings.pick(500, 3000, 20_000), random_state=0)[0]
    with tempfile.TemporaryDirectory() as folder:
        lines = [_by_workers(points, count, Path(folder)) for count in (1, 2)]
        found: list[float] = []
        seconds = once(lambda: found.extend(_differences(points, Path(folder) / "2.zarr")))
    peer: Record = {"what": "scikit-learn and SciPy, compared", "seconds": seconds, "difference": max(found)}
    if peer["difference"] > 1e-6:
        peer["wrong"] = f"geodesic distances differ from SciPy's by {peer['difference']:.2g} of their size."
    show([*lines, peer], what="", seconds=".1f", peak_memory="bytes", difference=".2g")
    most = parse_bytes(MEMORY) + RESERVED_BYTES
    bounds = [
        held("times as fast with two workers", lines[0]["seconds"] / lines[1]["seconds"], least=1.8),
        held("peak memory, as a share of limit and overhead", lines[1]["peak_memory"] / most, most=1),
    ]
    show_held(bounds)
    return [*lines, peer, *bounds]


def _by_workers(points: np.ndarray, count: int, folder: Path) -> Record:
    source, place = open_geodesics(points, NEIGHBORS), folder / f"{count}.zarr"
    warm = open_geodesics(points[:200], NEIGHBORS)
    with local_client(count, 1) as client, closing(DaskExecutor(client)) as executor:
        build(warm, folder / "warm.zarr", executor, overwrite=True)
        seconds = once(lambda: build(source, place, executor, memory_limit=parse_bytes(MEMORY)))
        peak = max(usage.peak for usage in executor.memory_usage().values())
    return {"what": f"{len(points):,} points, workers: {count}", "seconds": seconds, "peak_memory": peak}


def _differences(points: np.ndarray, place: Path) -> Iterator[float]:
    """Largest relative differences of blocks of rows from SciPy's paths on scikit-learn's graph."""
    from scipy.sparse.csgraph import dijkstra

    graph, source = kneighbors_graph(points, NEIGHBORS, mode="distance"), open_rows(place)
    for lo in range(0, source.n, BLOCK):
        rows = np.arange(lo, min(source.n, lo + BLOCK))
        paths = dijkstra(graph, directed=False, indices=rows)
        yield float(np.max(np.abs(source.take(rows) - paths) / np.maximum(paths, paths.mean())))
