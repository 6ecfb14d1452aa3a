"""Stores: distances through matrix products, and epochs that stream rows of two bytes a number."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import zarr
from scipy.spatial.distance import cdist
from zarr.codecs import BloscCodec

from psmds_dist import InProcessExecutor, build, open_points, open_rows
from psmds_dist.core.layout import Layout
from psmds_dist.data.cache import RowCache, stored
from psmds_dist.data.sources import ArrayRows
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
    """Euclidean distances of points with 784 features into a store, in turns with NumPy's product for as many."""
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


def compressed(settings: Settings) -> list[Record]:
    """Epochs that stream all rows from a disk of 100 and of 300 MB/s, by compression of the store: Zarr arrays with
    Blosc (bits shuffled), beside stores of four and of two bytes a number.

    Of distances between points, and of whole numbers such as edit distances, which repeat.
    """
    n = settings.pick(1000, 8000, 20_000)
    points = np.random.default_rng(0).normal(size=(n, 10))
    lines: list[Record] = []
    with _folder(settings) as folder:
        for kind, unit in (("distances", None), ("whole numbers", 0.2)):
            stores = _written(Path(folder, kind), points, unit)
            for rate in (100_000_000, 300_000_000):
                with slow_disk(Path(folder), rate) as slowed:
                    found = _epochs(f"{rate / 1e6:.0f} MB/s", stores) if slowed else []
                lines += [{**line, "of": kind, "bytes": _size(stores[k])} for k, line in enumerate(found)]
    show(lines, what="", of="", disk="", bytes="bytes", seconds=".2f", ratio=".2f")
    if not lines:
        print("The disk cannot be slowed down here: that takes Linux, root, and a control group with I/O limits.")
    return lines


def _written(folder: Path, points: np.ndarray, unit: float | None) -> list[Path]:
    """Distances in stores of ours, and in compressed arrays of Zarr; in whole units where one is given."""
    matrix = cdist(points, points).astype(np.float32)
    matrix = matrix if unit is None else np.rint(matrix / np.float32(unit))
    for dtype in STORED[:2]:
        build(ArrayRows(matrix), folder / f"{dtype}.zarr", InProcessExecutor(), dtype=dtype)
    for name in ("lz4", "zstd"):
        codec = BloscCodec(cname=name, clevel=3, shuffle="bitshuffle")
        chunks = (Layout(len(matrix)).rows, len(matrix))
        place = str(folder / f"Blosc {name}.zarr")
        zarr.create_array(place, data=matrix, chunks=chunks, compressors=[codec])
    return sorted(folder.iterdir(), key=lambda path: path.name != "float32.zarr")


def _size(store: Path) -> int:
    return sum(file.stat().st_size for file in files_below(store))


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
