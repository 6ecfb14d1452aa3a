"""Kinds of run, their data, and the parts of their outcome that must be equal."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psmds_dist.data.points import open_points
from psmds_dist.data.sources import open_npy
from psmds_dist.data.store.header import KEY
from psmds_dist.data.store.reading import ARRAY
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build

POINTS = 20_000
SMALL, LARGE = 1500, 4000
"""Points of the two matrices."""

HOLES = 2200
"""Points of the one with gaps: as many as begin with a sample."""


@dataclass(frozen=True)
class Kind:
    """A command; words in braces are paths of data."""

    name: str
    words: str
    room: tuple[int, int]
    """Smallest and largest size in bytes of a disk that is too small for it."""

    is_store: bool = False
    """Whether it writes a store, which continues when run again; a map needs ``--resume``."""

    def arguments(self, data: Path, target: Path, resume: bool) -> list[str]:
        """Arguments of ``psmds``."""
        words = [word.format(data=data, target=target) for word in self.words.split()]
        return words + ["--resume"] * (resume and not self.is_store)

    def kept(self, target: Path) -> Path:
        """Directory with the states of an unfinished run."""
        return target / ARRAY if self.is_store else target.with_name(f"{target.name}.checkpoint")

    def outcome(self, target: Path) -> dict[str, Any]:
        """Digests of the parts of the outcome that must not depend on the events."""
        return _of_store(target) if self.is_store else _of_map(target)


def states(folder: Path) -> list[Path]:
    """Count the complete states of an unfinished map, or chunks of a store."""
    return [path for path in folder.glob("[!.]*") if path.suffix not in (".json", ".partial")]


MAP_ROOM = 48 << 10, 256 << 10
STORE_ROOM = 1 << 20, 40 << 20

KINDS = [
    Kind("exact, random start", "fit {data}/small.zarr {target} --init random --eps 1e-5", MAP_ROOM),
    Kind("exact, automatic start", "fit {data}/large.zarr {target} --max-epochs 15", MAP_ROOM),
    Kind(
        "gaps, weights and bounds, a sample",
        "fit {data}/holes.npy {target} --weights {data}/weights.npy --upper {data}/upper.npy --loss huber",
        MAP_ROOM,
    ),
    Kind(
        "ordinal with gaps",
        "fit {data}/some.npy {target} --transformation ordinal --init random --starts 2 --max-epochs 12 --no-polish",
        MAP_ROOM,
    ),
    Kind(
        "pinned and bounded",
        "fit {data}/small.zarr {target} --pinned {data}/pinned.npy --bounds -5:5 --starts 2 --max-epochs 12",
        MAP_ROOM,
    ),
    Kind("landmarks of points", "landmarks fit {data}/many.npy {target} --metric euclidean -S 150", MAP_ROOM),
    Kind(
        "landmarks of points, panel",
        "landmarks fit {data}/many.npy {target} --metric euclidean -S 60 --refine panel",
        MAP_ROOM,
    ),
    Kind("landmarks of a store", "landmarks fit {data}/large.zarr {target} -S 150", MAP_ROOM),
    Kind("landmarks of a store, panel", "landmarks fit {data}/small.zarr {target} -S 150 --refine panel", MAP_ROOM),
    Kind("landmarks of a store, full", "landmarks fit {data}/small.zarr {target} -S 150 --refine full", MAP_ROOM),
    Kind("distances", "distances {data}/wide.npy {target} --metric cityblock", STORE_ROOM, is_store=True),
    Kind("ingest", "ingest {data}/large.npy {target}", STORE_ROOM, is_store=True),
]


def prepare(data: Path) -> None:
    """Write the input data of all kinds."""
    random = np.random.default_rng(0)
    np.save(data / "many.npy", random.normal(size=(POINTS, 8)))
    np.save(data / "wide.npy", random.normal(size=(LARGE, 64)))
    np.save(data / "small-points.npy", random.normal(size=(SMALL, 12)))
    build(open_points(data / "small-points.npy"), data / "small.zarr", InProcessExecutor())
    _prepare_rules(data, random)
    large = distances_of(random.normal(size=(LARGE, 12)))
    np.save(data / "large.npy", large)
    build(open_npy(data / "large.npy", "float32"), data / "large.zarr", InProcessExecutor())


def _prepare_rules(data: Path, random: np.random.Generator) -> None:
    """Write matrices with gaps, weights and bounds, and pinned coordinates."""
    holes = distances_of(random.normal(size=(HOLES, 2)))
    symmetric = np.triu(random.random((HOLES, HOLES)), 1)
    symmetric += symmetric.T
    np.save(data / "weights.npy", 0.5 + symmetric)
    upper = np.where(symmetric > 0.9, np.inf, holes)
    holes[symmetric < 0.3] = upper[symmetric < 0.3] = np.nan
    for values in (holes, upper):
        np.fill_diagonal(values, 0)
    np.save(data / "holes.npy", holes)
    np.save(data / "upper.npy", upper)
    np.save(data / "some.npy", holes[:SMALL, :SMALL])
    pinned = np.full((SMALL, 2), np.nan)
    pinned[::7] = random.normal(size=pinned[::7].shape)
    np.save(data / "pinned.npy", pinned)


def distances_of(points: np.ndarray) -> np.ndarray:
    """Euclidean distances, float64."""
    from scipy.spatial.distance import pdist, squareform

    return squareform(pdist(points))


TIMES = {"history/seconds"}
CIRCUMSTANCES = {"seconds", "stages", "peak_memory", "memory_limit", "versions"}
"""Attributes of a result that depend on the events."""


def _of_map(target: Path) -> dict[str, Any]:
    from psmds_dist.data.store import read_result

    arrays, attributes, _ = read_result(target)
    return {
        **{name: _digest(values.tobytes()) for name, values in arrays.items() if name not in TIMES},
        **{name: repr(value) for name, value in attributes.items() if name not in CIRCUMSTANCES},
    }


def _of_store(target: Path) -> dict[str, Any]:
    import zarr

    header = zarr.open_group(str(target), mode="r").attrs[KEY]
    check = {f"check {name}": repr(value) for name, value in header["check"].items()}
    chunks = {path.name: _digest(path.read_bytes()) for path in (target / ARRAY).iterdir() if path.suffix != ".partial"}
    return {**chunks, **check, "status": header["status"]}


def _digest(contents: bytes) -> str:
    return hashlib.blake2b(contents, digest_size=16).hexdigest()
