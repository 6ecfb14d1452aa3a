"""Distances between points whose features are read as they are needed, or are sparse."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.core.validation import require_size
from psmds_dist.data import points as held
from psmds_dist.data.formats import NPY, ZIP, begins_with
from psmds_dist.data.points import Metric, Points, trying
from psmds_dist.data.readers.npz import arrays_in
from psmds_dist.data.sources import load_npy, open_npy, require_numeric
from psmds_dist.data.sparse_points import SparsePoints, open_sparse
from psmds_dist.data.stored_points import is_dask, store_points
from psmds_dist.utils.pickling import PickledOnce

HELD_BYTES = 500_000_000
"""Features of a ``.npy`` file, in float64, that are held in memory; those of a larger one are read as needed."""

PIECE_BYTES = 16_000_000
"""Features that are held at a time, on either side of the distances."""


def pieces_of(points: RowSource, lo: int, hi: int) -> Iterator[tuple[int, Floats]]:
    """Yield the first row and the features of each piece of points ``lo`` to ``hi``; a band is one piece."""
    step = max(1, PIECE_BYTES // (8 * points.shape[1]), min(points.read_profile.rows_per_chunk, hi - lo))
    buffer: Floats = np.empty((min(step, hi - lo), points.shape[1]))
    for first in range(lo, hi, step):
        piece = buffer[: min(step, hi - first)]
        points.read(first, first + len(piece), piece)
        _require_finite(piece, np.arange(first, first + len(piece)))
        yield first, piece


def _require_finite(piece: Floats, rows: Ints) -> None:
    finite = np.isfinite(piece).all(axis=1)
    if not finite.all():
        row = rows[int(finite.argmin())]
        raise InputError(f"point {row} has NaN or infinite features; fill them in, or leave it out.")


def spread_of(points: RowSource, *, whole: bool) -> Floats:
    """Variances or covariance of all points, in two passes over blocks that depend on their number only."""
    total = np.zeros(points.shape[1])
    for piece in _blocks(points):
        total += piece.sum(axis=0)
    mean = total / points.n
    spread: Floats = np.zeros((points.shape[1],) * 2 if whole else points.shape[1])
    for piece in _blocks(points):
        centred = piece - mean
        spread += centred.T @ centred if whole else np.square(centred).sum(axis=0)
    return spread / max(1, points.n - 1)


def _blocks(points: RowSource) -> Iterator[Floats]:
    for block in range(points.layout.count):
        for _, piece in pieces_of(points, *points.layout.bounds(block)):
            yield piece


@dataclass(frozen=True, eq=False)
class FromFeatures(PickledOnce, RowSource):
    """Distances from points whose features are read piece by piece; subclasses say to what."""

    points: RowSource
    """Features, in float64."""

    metric: Metric
    dtype: np.dtype[Any]

    @property
    def location(self) -> str | None:
        """Where the features are stored."""
        return self.points.location

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        return self.points.ids

    def verified(self) -> Self:
        """Return the same distances, of verified points."""
        return replace(self, points=self.points.verified())

    def is_stale(self) -> bool:
        """Whether the features have changed since they were opened."""
        return self.points.is_stale()


class StreamedPoints(FromFeatures):
    """Distances between points, with features read on both sides."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, twice."""
        return self.points.n, self.points.n

    @cached_property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"streamed points {self.points.content_id} {self.metric.described} {self.dtype.name}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: features of two pieces, as they come and prepared, and distances; best all rows at once."""
        profile, width = self.points.read_profile, 8 * self.points.shape[1]
        rows = min(max(1, PIECE_BYTES // width, profile.rows_per_chunk), self.n)
        features = 2 * (profile.read_copies + 2) * rows * width
        return ReadProfile(self.n, 2 * profile.scratch_bytes + features + max(held.SCRATCH_BYTES, 8 * rows))

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        for first, some in self._prepared(lo, hi):
            self._compare(some, slice(0, self.n), out[first - lo : first - lo + len(some)])

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        step = max(1, PIECE_BYTES // (8 * self.points.shape[1]))
        for first in range(0, rows.size, step):
            part = rows[first : first + step]
            piece: Floats = self.points.take(part)
            _require_finite(piece, part)
            self._compare(self.metric.prepared(piece, part), columns, out[first : first + part.size])

    def _compare(self, some: Floats, columns: slice, out: Rows) -> None:
        """Fill ``out`` with the distances from prepared points to those of some columns."""
        for start, others in self._prepared(columns.start, columns.stop):
            first = start - columns.start
            self._fill(some, others, out[:, first : first + len(others)])

    def _prepared(self, lo: int, hi: int) -> Iterator[tuple[int, Floats]]:
        for first, piece in pieces_of(self.points, lo, hi):
            yield first, self.metric.prepared(piece, np.arange(first, first + len(piece)))

    def _fill(self, some: Floats, others: Floats, out: Rows) -> None:
        step = max(1, held.SCRATCH_BYTES // (8 * len(others)))
        scratch = np.empty((min(step, len(some)), len(others)))
        for a in range(0, len(some), step):
            part = some[a : a + step]
            fill(out[a : a + step], self.metric.distances(part, others, scratch[: len(part)]))


def open_points(
    points: Any,
    metric: str = "euclidean",
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    *,
    scratch: str | os.PathLike[str] | None = None,
) -> Points | StreamedPoints | SparsePoints:
    """Open the distances between points, which are computed as rows are read.

    Parameters
    ----------
    points : path, zarr.Array, dask.array.Array, or sparse matrix of SciPy
        Array of shape (n, d): a ``.npy`` file, or a Zarr array, of which features larger than memory are read piece by
        piece; a Dask array, which is computed once into a temporary Zarr array; or a sparse matrix, also in a ``.npz``
        file of `scipy.sparse.save_npz`; what is unlisted is zero.
    metric : str
        Name of a metric of `scipy.spatial.distance.cdist`; ``"haversine"``, great circles in km between latitudes and
        longitudes in degrees; or ``"tanimoto"`` for vectors of bits. Of sparse points: euclidean, sqeuclidean, cosine,
        cityblock, or tanimoto.
    options : mapping, optional
        Parameters of the metric, such as ``p`` for ``"minkowski"``, or ``radius`` for ``"haversine"``.
    dtype : {"float32", "float64"}
        Type of the distances to deliver; they are computed in float64.
    scratch : path, optional
        Directory for what a Dask array holds, shared by all machines that work.

    Returns
    -------
    RowSource

    Raises
    ------
    InputError
        When the points cannot be read, or do not suit the metric.
    """
    if is_sparse(points):
        return open_sparse(points, metric, options, dtype)
    is_path = isinstance(points, str | os.PathLike)
    if is_path and os.path.isfile(points) and not (begins_with(points, NPY) and _is_large(os.path.abspath(points))):
        return held.open_points(points, metric, options, dtype)
    table = store_points(points, scratch) if is_dask(points) else _table(points)
    return _streamed(table, Metric(metric, dict(options or {})), np.dtype(dtype))


def is_sparse(points: Any) -> bool:
    """Whether points are a sparse matrix of SciPy, or a file with one."""
    if isinstance(points, str | os.PathLike):
        return begins_with(points, ZIP) and {"format", "shape", "data"}.issubset(arrays_in(os.fspath(points)))
    return hasattr(points, "tocsr")


def _is_large(path: str) -> bool:
    return 8 * load_npy(path).size > HELD_BYTES


def _table(points: Any) -> RowSource:
    """Features as a source."""
    if isinstance(points, str | os.PathLike) and os.path.isfile(points):
        return open_npy(points, "float64", _shape_of)
    from psmds_dist.data.store import open_table  # late: needs Zarr

    return open_table(points)


def _shape_of(values: NDArray[Any], where: str) -> tuple[int, int]:
    if values.dtype.kind != "b":
        require_numeric(values, where)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"{where} has shape {values.shape}, but points are an array of shape (n, d).")
    return int(values.shape[0]), int(values.shape[1])


def _streamed(points: RowSource, metric: Metric, dtype: np.dtype[Any]) -> StreamedPoints:
    require_size(points.n)
    with trying(metric.name, points.location or "these points"):
        if metric.wants:
            metric = metric.fitted(spread_of(points, whole=metric.wants == "VI"))
        first: Floats = np.empty((1, points.shape[1]))
        points.read(0, 1, first)
        prepared = metric.prepared(first)
        metric.distances(prepared, prepared, np.empty((1, 1)))
    return StreamedPoints(points, metric, dtype)
