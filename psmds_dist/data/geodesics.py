"""Geodesic distances: shortest paths on a graph of neighbors, from a few points at a time."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psmds_dist.core.arrays import fill, numbers_of
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.core.validation import require_size
from psmds_dist.data.ids import check_ids, read_ids
from psmds_dist.data.points import require_points, trying
from psmds_dist.data.sources import load_npy
from psmds_dist.utils.pickling import PickledOnce

SCRATCH_BYTES = 4_000_000
"""Float64 distances computed at a time before they are converted."""

HEAP_BYTES = 72
"""Bytes that SciPy's search keeps for a point."""

DEFAULT_NEIGHBORS = 12

MAX_COORDINATE = 1e150

MAX_BRIDGED = 200
"""Most components that are joined: every pair of them gets an edge."""

Names = Sequence[str] | str | os.PathLike[str] | None
Graph = Any  # scipy.sparse.csr_array, symmetric, with explicit zeros between equal points


@dataclass(frozen=True, eq=False)
class Geodesics(PickledOnce, RowSource):
    """Lengths of shortest paths on a connected graph, computed as rows are read; made by `open_geodesics`."""

    graph: Graph
    dtype: np.dtype[Any]
    location: str | None = None
    kept: Ints | None = None
    """Rows of the points that are in the graph; None for all."""

    ids: Sequence[str] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, twice."""
        return self.graph.shape[0], self.graph.shape[0]

    @cached_property
    def content_id(self) -> str:
        """Identity of the content: that of the graph."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.graph.indptr, self.graph.indices, self.graph.data):
            digest.update(part.tobytes())
        return f"geodesics {digest.hexdigest()} {self.dtype.name}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: the graph, with the bytes it was pickled as, a heap of all points, and distances."""
        graph = self.graph.indptr.nbytes + self.graph.indices.nbytes + self.graph.data.nbytes
        return ReadProfile(scratch_bytes=2 * graph + HEAP_BYTES * self.n + 8 * self.n * self._step)

    @property
    def _step(self) -> int:
        """Points whose distances are computed at a time."""
        return min(max(1, SCRATCH_BYTES // (8 * self.n)), self.n)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.read_rows(np.arange(lo, hi), slice(0, self.n), out)

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        from scipy.sparse.csgraph import dijkstra  # late: importing SciPy takes longer than most starts

        for first in range(0, rows.size, self._step):
            some = rows[first : first + self._step]
            fill(out[first : first + some.size], dijkstra(self.graph, indices=some)[:, columns])


def open_geodesics(
    points: Any,
    n_neighbors: int | None = None,
    radius: float | None = None,
    *,
    metric: str = "euclidean",
    disconnected: str = "refuse",
    ids: Names = None,
    dtype: str = "float32",
) -> Geodesics:
    """Open the geodesic distances between points: shortest paths on the graph of their neighbors.

    The graph is computed at once, paths as rows are read. Lengths of edges are rounded to multiples of a power of two,
    about ``n * 2**-53`` of the longest edge, such that every sum along a path is exact: the matrix is symmetric to the
    last bit.

    Parameters
    ----------
    points : array_like, data frame, or path of a .npy file
        Array of shape (n, d).
    n_neighbors : int, optional
        Join each point with so many nearest ones; 12 by default.
    radius : float, optional
        Join all points that are at most so far from each other, instead.
    metric : str
        Metric of the edges, of `sklearn.neighbors.NearestNeighbors`.
    disconnected : {"refuse", "bridge", "largest"}
        What to do where parts of the graph are not connected: raise an error that tells their sizes; join the nearest
        points of every two parts, as `sklearn.manifold.Isomap` does; or leave out all points but those of the largest
        part.
    ids : sequence of str or path, optional
        Names of all points, or a file of them; by default those of rows where points are left out.
    dtype : {"float32", "float64"}
        Type of the distances to deliver; they are computed in float64.

    Returns
    -------
    Geodesics
        A `RowSource`, for `psmds_dist.build`, `PatternSearchMDS.fit` and `LandmarkMDS.fit`, which computes only paths
        from landmarks.

    Raises
    ------
    InputError
        When the points or parameters cannot be used, or the graph is not connected.
    """
    location = os.path.abspath(points) if isinstance(points, str | os.PathLike) else None
    values = _usable(points, location)
    if disconnected not in CONNECT:
        raise InputError(f"disconnected must be {', '.join(map(repr, CONNECT))}, not {disconnected!r}.")
    with trying(metric, location or "these points"):
        found = undirected(*_neighbors(values, n_neighbors, radius, metric), len(values))
        graph, kept = CONNECT[disconnected](values, found, metric)
    require_size(graph.shape[0])
    names = _names(ids, kept, len(values))
    return Geodesics(with_exact_sums(graph), np.dtype(dtype), location, kept, names)


def _usable(points: Any, location: str | None) -> Floats:
    """Points as float64."""
    values = numbers_of(points, "points") if location is None else load_npy(location)
    require_points(values, location or "the array")
    require_size(len(values))
    largest = float(np.abs(values).max())
    if largest > MAX_COORDINATE:
        raise InputError(f"points have coordinates of up to {largest:g}, whose squares overflow; scale the points.")
    return np.asarray(values, dtype=np.float64, order="C")


def _names(ids: Names, kept: Ints | None, n: int) -> list[str] | None:
    """Names of the points in the graph; where some are left out, their rows by default."""
    if ids is None:
        return None if kept is None else [str(row) for row in kept]
    names = read_ids(ids, n) if isinstance(ids, str | os.PathLike) else check_ids(ids, n)
    return names if kept is None else [names[row] for row in kept]


def _neighbors(points: Floats, n_neighbors: int | None, radius: float | None, metric: str) -> tuple[Ints, Ints, Floats]:
    """Edges from each point to its neighbors: both ends, and lengths."""
    from sklearn.neighbors import NearestNeighbors  # late: scikit-learn loads all of SciPy

    search = NearestNeighbors(metric=metric)
    if radius is None:
        k = _check_neighbors(DEFAULT_NEIGHBORS if n_neighbors is None else n_neighbors, len(points))
        found = search.fit(points).kneighbors_graph(n_neighbors=k, mode="distance").tocoo()
    else:
        _check_radius(radius, n_neighbors)
        found = search.fit(points).radius_neighbors_graph(radius=radius, mode="distance").tocoo()
    return found.row, found.col, found.data


def _check_neighbors(n_neighbors: int, n: int) -> int:
    whole = isinstance(n_neighbors, int | np.integer) and not isinstance(n_neighbors, bool)
    if not whole or not 1 <= n_neighbors < n:
        raise InputError(
            f"n_neighbors (--neighbors) must be a whole number from 1 to {n - 1}, one below the number of points, not "
            f"{n_neighbors!r}."
        )
    return int(n_neighbors)


def _check_radius(radius: float, n_neighbors: int | None) -> None:
    if n_neighbors is not None:
        raise InputError(
            "n_neighbors (--neighbors) and radius (--graph-radius) both choose the edges of the graph; give one."
        )
    if not (isinstance(radius, int | float | np.number) and 0 < radius < math.inf):
        raise InputError(f"radius (--graph-radius) must be a positive number, not {radius!r}.")


def undirected(ends: Ints, others: Ints, lengths: Floats, n: int) -> Graph:
    """Symmetric graph of edges, each of them once or in both directions; edges of length zero are kept."""
    from scipy.sparse import csr_array

    pairs = np.minimum(ends, others).astype(np.int64) * n + np.maximum(ends, others)
    pairs, first = np.unique(pairs, return_index=True)
    low, high = np.divmod(pairs, n)
    places = np.concatenate([low, high]).astype(np.int32), np.concatenate([high, low]).astype(np.int32)
    return csr_array((np.tile(lengths[first], 2), places), shape=(n, n))


def with_exact_sums(graph: Graph) -> Graph:
    """Round lengths of edges to multiples of a power of two, such that the sum along any path is exact in float64."""
    longest = float(graph.data.max(initial=0.0)) * graph.shape[0]
    unit = math.ldexp(1.0, math.frexp(longest)[1] - 52)
    graph.data = np.rint(graph.data / unit) * unit
    return graph


def _components(graph: Graph) -> tuple[int, Ints]:
    """Number of components, and that of each point."""
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(graph, directed=False)
    return int(count), labels


Connected = tuple[Graph, Ints | None]


def _refuse(points: Floats, graph: Graph, metric: str) -> Connected:
    """Refuse a graph of several components."""
    count, labels = _components(graph)
    if count > 1:
        raise InputError(
            f"{_in_parts(labels)}; raise n_neighbors (--neighbors) or radius (--graph-radius), or choose "
            "disconnected='bridge' (--disconnected bridge) to join their nearest points, or 'largest' to leave out all "
            "points but those of the largest part."
        )
    return graph, None


def _in_parts(labels: Ints) -> str:
    sizes = np.sort(np.bincount(labels))[::-1]
    shown = ", ".join(f"{size:,}" for size in sizes[:5]) + ", ..." * (sizes.size > 5)
    return f"the graph of neighbors falls into {sizes.size:,} parts without a path between them (of {shown} points)"


def _bridge(points: Floats, graph: Graph, metric: str) -> Connected:
    """Join the nearest points of every two components."""
    count, labels = _components(graph)
    if count > MAX_BRIDGED:
        raise InputError(
            f"{_in_parts(labels)}, but at most {MAX_BRIDGED} are bridged; raise n_neighbors (--neighbors) or "
            "radius (--graph-radius)."
        )
    members = [np.flatnonzero(labels == part) for part in range(count)]
    bridges = [_nearest(points, a, b, metric) for k, a in enumerate(members) for b in members[k + 1 :]]
    edges = graph.tocoo()
    low, high, lengths = np.array(bridges, dtype=np.float64).reshape(-1, 3).T
    ends, others = np.r_[edges.row, low.astype(np.int64)], np.r_[edges.col, high.astype(np.int64)]
    return undirected(ends, others, np.r_[edges.data, lengths], len(points)), None


def _nearest(points: Floats, a: Ints, b: Ints, metric: str) -> tuple[int, int, float]:
    """Nearest points of two sets, and their distance."""
    from sklearn.metrics import pairwise_distances_argmin_min

    partners, distances = pairwise_distances_argmin_min(points[a], points[b], metric=metric)
    k = int(distances.argmin())
    return int(a[k]), int(b[partners[k]]), float(distances[k])


def _largest(points: Floats, graph: Graph, metric: str) -> Connected:
    """Leave out all points but those of the largest component."""
    count, labels = _components(graph)
    if count == 1:
        return graph, None
    kept = np.flatnonzero(labels == np.bincount(labels).argmax())
    return graph[kept][:, kept], kept


CONNECT: dict[str, Callable[[Floats, Graph, str], Connected]] = {
    "refuse": _refuse,
    "bridge": _bridge,
    "largest": _largest,
}
"""What can be done about a graph of several components."""
