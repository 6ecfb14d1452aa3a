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
from tests.benchmarks.machine import drop_cached, files_below, slow_disk, sync

REPEAT = 3
FEATURES = 784
STORED = ("float32", "uint16", "float16")

SLOW_DISK = 300_000_000
"""Bytes a second of a disk that is slower than two cores, whatever is stored."""


def _folder(settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """Directory where the data of benchmarks are."""
    settings.data.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=settings.data)


def distances(settings: Settings) -> list[Record]:
    """Euclidean distances of points with 784 features into a store, in turns with NumPy's product of as many numbers."""
    n = settings.pick(1000, 20_000, 20_000)
    with _folder(settings) as folder:
        x = np.random.default_rng(0).random((n, FEATURES))
        y = x.copy()
        np.save(f"{folder}/points.npy", x)
        source = open_points(f"{folder}/points.npy")

        def write() -> None:
            build(source, f"{folder}/distances.zarr", InProcessExecutor(), overwrite=True)

        write()
        rounds = [(once(write), once(lambda: x @ y.T)) for _ in range(REPEAT)]
    seconds, product = (statistics.median(column) for column in zip(*rounds, strict=True))
    share = statistics.median(theirs / ours for ours, theirs in rounds)
    lines: list[Record] = [
        {"what": "a store of distances", "seconds": seconds, "share": None},
        {"what": "NumPy's product of two arrays", "seconds": product, "share": share},
    ]
    show(lines, what="", seconds=".2f", share=".2f")
    bound = held("speed as a share of NumPy's product of two arrays", share, least=0.6)
    show_held([bound])
    return [*lines, bound]


def half_size(settings: Settings) -> list[Record]:
    """Epochs that stream all rows from the disk, by the type that they are stored in, in turns: bytes and seconds.

    First as fast as the disk of this machine is, then from one of 300 MB/s, so that it is the limit: reads of this
    process are slowed down to that by a control group of Linux, which takes the rights of root.
    """
    n = settings.pick(1000, 20_000, 20_000)
    with _folder(settings) as folder:
        np.save(f"{folder}/points.npy", np.random.default_rng(0).normal(size=(n, 10)))
        source = open_points(f"{folder}/points.npy")
        for dtype in STORED:
            build(source, f"{folder}/{dtype}.zarr", InProcessExecutor(), dtype=dtype)
        stores = [Path(folder, f"{dtype}.zarr") for dtype in STORED]
        lines = _epochs("this disk", stores)
        with slow_disk(Path(folder), SLOW_DISK) as slowed:
            limited = _epochs(f"{SLOW_DISK / 1e6:.0f} MB/s", stores) if slowed else []
    show([*lines, *limited], what="", disk="", bytes="bytes", read_MB_s=".0f", seconds=".2f", ratio=".2f")
    if not limited:
        print("\nThe disk cannot be slowed down here: that takes Linux, root, and a control group with I/O limits.")
    ratios = {line["what"]: line["ratio"] for line in limited}
    bounds = [
        held(f"an epoch of {dtype} beside float32, limited by the disk", ratios.get(dtype), most=0.65)
        for dtype in STORED[1:]
    ]
    show_held(bounds)
    return [*lines, *limited, *bounds]


def _epochs(disk: str, stores: list[Path]) -> list[Record]:
    """Epochs over each of some stores, in turns."""
    rounds = [[_cold(store) for store in stores] for _ in range(REPEAT)]
    lines: list[Record] = []
    for k, store in enumerate(stores):
        nbytes, seconds = open_rows(store).array.nbytes, statistics.median(line[k] for line in rounds)
        ratio = statistics.median(line[k] / line[0] for line in rounds)
        line = {"what": store.stem, "disk": disk, "bytes": nbytes, "read_MB_s": nbytes / 1e6 / seconds}
        lines.append({**line, "seconds": seconds, "ratio": ratio})
    return lines


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
