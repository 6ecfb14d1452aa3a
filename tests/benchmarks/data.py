"""Data of the benchmarks."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def mnist(folder: Path) -> np.ndarray | None:
    """The 10,000 MNIST test digits, or None where they are not."""
    path = folder / "t10k-images-idx3-ubyte.gz"
    if not path.exists():
        return None
    return np.frombuffer(gzip.open(path).read(), np.uint8, offset=16).reshape(-1, 784).astype(np.float64)


def swiss_roll(n: int, neighbours: int = 12) -> np.ndarray:
    """Geodesic distances on a swiss roll: shortest paths on the graph of nearest neighbours."""
    from scipy.sparse.csgraph import shortest_path
    from sklearn.datasets import make_swiss_roll
    from sklearn.neighbors import kneighbors_graph

    points, _ = make_swiss_roll(n, random_state=0)
    graph = kneighbors_graph(points, neighbours, mode="distance")
    distances = shortest_path(graph, directed=False)
    return (distances + distances.T) / 2
