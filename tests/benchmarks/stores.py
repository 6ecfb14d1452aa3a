"""Stores: distances through matrix products, and epochs that stream rows of two bytes a number."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from psmds_dist import InProcessExecutor, build, open_points, open_rows
from psmds_dist.data.cache import RowCache, stored
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.moves import propose
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held
from tests.benchmarks.machine import drop_cached, files_below, sync

REPEAT = 3
FEATURES = 784
STORED = ("float32", "uint16", "float16")


def _folder(settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """Directory where the data of benchmarks are."""
    settings.data.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=settings.data)


def distances(settings: Settings) -> list[Record]:
    """Euclidean distances of points with 784 features into a store, in turns with NumPy's product of as many numbers,
    and with one array of them, of which NumPy computes half.
    """
    n = settings.pick(1000, 20_000, 20_000)
    with _folder(settings) as folder:
        x = np.random.default_rng(0).random((n, FEATURES))
        y = x.copy()
        np.save(f"{folder}/points.npy", x)
        source = open_points(f"{folder}/points.npy")

        def write() -> None:
            build(source, f"{folder}/distances.zarr", InProcessExecutor(), overwrite=True)

        write()
        rounds = [(once(write), once(lambda: x @ y.T), once(lambda: x @ x.T)) for _ in range(REPEAT)]
    seconds, product, symmetric = (statistics.median(column) for column in zip(*rounds, strict=True))
    share, half = (statistics.median(line[k] / line[0] for line in rounds) for k in (1, 2))
    lines: list[Record] = [
        {"what": "a store of distances", "seconds": seconds, "share": None},
        {"what": "NumPy's product of two arrays", "seconds": product, "share": share},
        {"what": "NumPy's product of one with itself", "seconds": symmetric, "share": half},
    ]
    show(lines, what="", seconds=".2f", share=".2f")
    bound = held("speed as a share of NumPy's product of two arrays", share, least=0.6)
    show_held([bound])
    return [*lines, bound]


def half_size(settings: Settings) -> list[Record]:
    """Epochs that stream all rows from the disk, by the type that they are stored in, in turns: bytes and seconds."""
    n = settings.pick(1000, 20_000, 20_000)
    with _folder(settings) as folder:
        np.save(f"{folder}/points.npy", np.random.default_rng(0).normal(size=(n, 10)))
        source = open_points(f"{folder}/points.npy")
        for dtype in STORED:
            build(source, f"{folder}/{dtype}.zarr", InProcessExecutor(), dtype=dtype)
        stores = [Path(folder, f"{dtype}.zarr") for dtype in STORED]
        rounds = [[_cold(store) for store in stores] for _ in range(REPEAT)]
        sizes = [open_rows(f"{folder}/{dtype}.zarr").array.nbytes for dtype in STORED]
    lines: list[Record] = [
        {
            "what": dtype,
            "bytes": sizes[k],
            "seconds": statistics.median(line[k] for line in rounds),
            "ratio": statistics.median(line[k] / line[0] for line in rounds),
        }
        for k, dtype in enumerate(STORED)
    ]
    show(lines, what="", bytes="bytes", seconds=".2f", ratio=".2f")
    bounds = [held(f"an epoch of {line['what']} beside float32", line["ratio"], most=0.65) for line in lines[1:]]
    show_held(bounds)
    return [*lines, *bounds]


def _cold(path: Path) -> float:
    """Seconds of an epoch over rows none of which are in memory, nor in the page cache."""
    sync(files_below(path))
    drop_cached(files_below(path))
    return once(partial(_stream, path))


def _stream(path: Path) -> None:
    source = open_rows(path)
    x = np.random.default_rng(0).normal(size=(2, source.n)).astype(np.float32)
    cache = RowCache(source, stored(source).min_limit)
    with parallel_region(), closing(cache.batches(range(source.layout.count))) as batches:
        for batch in batches:
            propose(batch.rows, batch.slots, batch.points, x, 0.1, np.arange(2))
