"""Data sets of the benchmarks: points, and files of their dissimilarities."""

from __future__ import annotations

import gzip
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psmds_dist.core.sources import RowSource
from psmds_dist.data.points import open_points
from psmds_dist.data.sources import open_npy
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.utils.atomic import atomic_directory, atomic_file
from tests.benchmarks.harness import Settings

MNIST, WORDS = "t10k-images-idx3-ubyte.gz", "words_minilm.npz"
"""Files of the optional data sets."""

NEIGHBOURS = 12
"""Neighbors of a point in the graph whose shortest paths are the geodesic distances."""


@dataclass(frozen=True)
class DataSet:
    """Points and the files of their dissimilarities; passed to child processes as JSON.

    Data sets that are too large for a matrix have points only.
    """

    name: str
    n: int
    metric: str
    folder: str

    @property
    def points(self) -> Path:
        """The points, ``(n, d)``."""
        return Path(self.folder) / "points.npy"

    @property
    def store(self) -> Path:
        """The matrix as a store."""
        return Path(self.folder) / "matrix.zarr"

    @property
    def panel(self) -> Path:
        """Path of the dissimilarities to landmarks."""
        return Path(self.folder) / "panel.zarr"

    @property
    def matrix(self) -> Path:
        """The matrix as one float32 ``.npy`` file, for peers."""
        return Path(self.folder) / "matrix.npy"

    def rows(self) -> RowSource:
        """Open the matrix that maps are measured with."""
        from psmds_dist.data.store import open_rows

        return open_rows(self.store) if self.store.exists() else open_points(self.points, metric=self.metric)

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for JSON."""
        return asdict(self)


def euclidean(settings: Settings, name: str, points: np.ndarray, metric: str = "euclidean") -> DataSet:
    """Distances between points, in files that later runs use again."""
    found = scattered(settings, name, points, metric)
    build_store(found)
    if not found.matrix.exists():
        _copy(found)
    return found


def build_store(found: DataSet) -> None:
    """Compute the distances of a data set into its store unless it exists."""
    if not found.store.exists():
        _store(found, open_points(found.points, metric=found.metric))


def _store(found: DataSet, source: RowSource) -> None:
    """Write the store of a data set atomically: an interrupted run must leave no partial store."""
    print(f"storing the matrix of {found.name}, N = {found.n:,}, for this and later runs", flush=True)
    with atomic_directory(found.store) as fresh:
        build(source, fresh, InProcessExecutor(), metric=found.metric)


def _save(path: Path, array: np.ndarray) -> None:
    """Write an array to a file atomically."""
    with atomic_file(path) as beside:
        np.save(beside, array)


def scattered(settings: Settings, name: str, points: np.ndarray, metric: str = "euclidean") -> DataSet:
    """Points without a matrix."""
    folder = settings.output / "data" / f"{name} {len(points)}".replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    found = DataSet(name, len(points), metric, str(folder))
    if not found.points.exists():
        _save(found.points, points)
    return found


def _copy(found: DataSet) -> None:
    """Copy the rows of a store to one file, block by block."""
    source = found.rows()
    with atomic_file(found.matrix) as beside:
        file = np.lib.format.open_memmap(beside, "w+", np.float32, (found.n, found.n))
        for lo in range(0, found.n, 256):
            source.read(lo, min(lo + 256, found.n), file[lo : lo + 256])
        file.flush()


def geodesic_roll(settings: Settings, n: int) -> DataSet:
    """Geodesic distances on a swiss roll: shortest paths on the graph of nearest neighbours."""
    from sklearn.datasets import make_swiss_roll

    points, _ = make_swiss_roll(n, random_state=0)
    found = scattered(settings, "swiss roll", points, "geodesic")
    if not found.matrix.exists():
        _save(found.matrix, shortest_paths(points).astype(np.float32))
    if not found.store.exists():
        _store(found, open_npy(found.matrix))
    return found


def shortest_paths(points: np.ndarray) -> np.ndarray:
    """Shortest paths on the graph of nearest neighbours."""
    from scipy.sparse.csgraph import shortest_path
    from sklearn.neighbors import kneighbors_graph

    distances = shortest_path(kneighbors_graph(points, NEIGHBOURS, mode="distance"), method="D", directed=False)
    distances += distances.T  # NumPy copies if they overlap
    distances /= 2
    return distances


def digits(settings: Settings, n: int = 1797) -> DataSet:
    """The handwritten digits of scikit-learn."""
    from sklearn.datasets import load_digits

    return euclidean(settings, "digits", load_digits().data[:n])


def mnist(settings: Settings) -> DataSet | None:
    """The 10,000 MNIST test digits, or None if they are missing."""
    path = settings.data / MNIST
    if not path.exists():
        print(f"MNIST test set not found in {settings.data} (--data): left out.")
        return None
    pixels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16).reshape(-1, 784)
    return euclidean(settings, "MNIST", pixels.astype(np.float64))


def words(settings: Settings) -> DataSet | None:
    """Cosine distances of word vectors, or None if they are missing."""
    path = settings.data / WORDS
    if not path.exists():
        print(f"word vectors not found in {settings.data} (--data): left out.")
        return None
    with np.load(path) as file:
        return euclidean(settings, "words", file["vectors"].astype(np.float64), "cosine")


def clusters(n: int, dims: int = 16) -> np.ndarray:
    """Points in thirty overlapping clusters."""
    from sklearn.datasets import make_blobs

    points, _ = make_blobs(n, dims, centers=30, cluster_std=3.0, random_state=0)
    return points


def plane(n: int) -> np.ndarray:
    """Points in the plane, which a map can show exactly."""
    return np.random.default_rng(0).random((n, 2))


def there(*sets: DataSet | None) -> list[DataSet]:
    """The data sets that are available."""
    return [one for one in sets if one is not None]
