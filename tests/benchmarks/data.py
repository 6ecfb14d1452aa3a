"""Data of the benchmarks: points, and the matrices of their dissimilarities as files."""

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
"""Files of the data that nobody need have."""

NEIGHBOURS = 12
"""Neighbours of a point in the graph whose shortest paths are the geodesic distances."""


@dataclass(frozen=True)
class DataSet:
    """Points and the files of their dissimilarities; it travels to child processes as JSON.

    A set too large for a matrix has points only.
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
        """The matrix as a store of ours."""
        return Path(self.folder) / "matrix.zarr"

    @property
    def panel(self) -> Path:
        """Where dissimilarities to landmarks go."""
        return Path(self.folder) / "panel.zarr"

    @property
    def matrix(self) -> Path:
        """The same as one ``.npy`` file in float32, for peers."""
        return Path(self.folder) / "matrix.npy"

    def rows(self) -> RowSource:
        """Open what a map is measured against."""
        from psmds_dist.data.store import open_rows

        return open_rows(self.store) if self.store.exists() else open_points(self.points, metric=self.metric)

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for JSON."""
        return asdict(self)


def euclidean(settings: Settings, name: str, points: np.ndarray, metric: str = "euclidean") -> DataSet:
    """Distances between points, as files that the next run finds again."""
    found = scattered(settings, name, points, metric)
    build_store(found)
    if not found.matrix.exists():
        _copy(found)
    return found


def build_store(found: DataSet) -> None:
    """Compute the distances of a set into its store, if they are not there yet."""
    if not found.store.exists():
        _store(found, open_points(found.points, metric=found.metric))


def _store(found: DataSet, source: RowSource) -> None:
    """Write a set's store: all of it or none, as a run that is interrupted must not leave a part to the next."""
    print(f"storing the matrix of {found.name}, N = {found.n:,}, for this and later runs", flush=True)
    with atomic_directory(found.store) as fresh:
        build(source, fresh, InProcessExecutor(), metric=found.metric)


def _save(path: Path, array: np.ndarray) -> None:
    """Write an array into a file: all of it or none."""
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
    """Write a store's rows into one file, block by block."""
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
        _save(found.matrix, _shortest_paths(points))
    if not found.store.exists():
        _store(found, open_npy(found.matrix))
    return found


def _shortest_paths(points: np.ndarray) -> np.ndarray:
    from scipy.sparse.csgraph import shortest_path
    from sklearn.neighbors import kneighbors_graph

    distances = shortest_path(kneighbors_graph(points, NEIGHBOURS, mode="distance"), method="D", directed=False)
    distances += distances.T  # NumPy copies where the two overlap
    distances /= 2
    return distances.astype(np.float32)


def digits(settings: Settings, n: int = 1797) -> DataSet:
    """The handwritten digits that scikit-learn ships."""
    from sklearn.datasets import load_digits

    return euclidean(settings, "digits", load_digits().data[:n])


def mnist(settings: Settings) -> DataSet | None:
    """The 10,000 MNIST test digits, or None where they are not."""
    path = settings.data / MNIST
    if not path.exists():
        print(f"MNIST test set not found in {settings.data} (--data): left out.")
        return None
    pixels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16).reshape(-1, 784)
    return euclidean(settings, "MNIST", pixels.astype(np.float64))


def words(settings: Settings) -> DataSet | None:
    """Cosine distances of word vectors, or None where they are not."""
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
    """Points that a map can show as they are."""
    return np.random.default_rng(0).random((n, 2))


def there(*sets: DataSet | None) -> list[DataSet]:
    """Those that could be had."""
    return [one for one in sets if one is not None]
