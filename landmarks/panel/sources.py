"""Panels made of something else: of points by a metric, and of a whole matrix by some of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from landmarks.panel.memory import PIECE_BYTES
from landmarks.panel.tables import Table, array_panel, pick, picked
from psmds_dist.core.arrays import as_array
from psmds_dist.core.layout import Layout
from psmds_dist.core.types import Floats, InputError, Ints, Rows, RowSource
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.cache import stored, testing_checksums
from psmds_dist.data.points import SCRATCH_BYTES, Metric, trying
from psmds_dist.utils.pickling import PickledOnce

TILE = 64
"""Rows of a panel that are transposed at a time: small enough for the cache."""


@dataclass(frozen=True, eq=False)
class PointsPanel(PickledOnce):
    """Distances of points to landmarks, computed as they are asked for; made by `points_panel`.

    A row depends on its own point only: it has the same bits whatever rows are asked for with it.
    """

    points: Table
    sites: Floats
    """Coordinates of the landmarks."""

    metric: Metric
    dtype: np.dtype[Any]
    landmarks: Ints | None = None

    @property
    def n(self) -> int:
        """Number of points."""
        return self.points.n

    @property
    def width(self) -> int:
        """Number of landmarks."""
        return len(self.sites)

    @property
    def band(self) -> int:
        """Rows whose points are stored together."""
        return self.points.band

    @property
    def scratch(self) -> int:
        """Bytes that a read takes beside its target: features as they come and prepared, and distances."""
        points = stored(self.points)
        rows = min(max(1, PIECE_BYTES // (8 * self.points.width), self.band), self.n)
        rows = min(rows, max(Layout(self.n, self.width).rows, self.band))
        distances = min(SCRATCH_BYTES, 8 * self.n * self.width)
        return points.scratch + (points.copies + 2) * rows * points.layout.columns * 8 + distances

    @cached_property
    def token(self) -> str:
        """Identity of the content."""
        sites = array_panel(self.sites, "float64").token
        return f"points panel {self.points.token} {self.metric.described} {sites} {self.dtype.name}"

    @cached_property
    def _others(self) -> Floats:
        return self.metric.prepared(self.sites, self.landmarks, "landmark")

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        for first, points in _pieces(self.points, lo, hi):
            prepared = self.metric.prepared(points, np.arange(first, first + len(points)))
            self._fill(prepared, first, out[first - lo : first - lo + len(points)])

    def _fill(self, points: Floats, first: int, out: Rows) -> None:
        step = max(1, SCRATCH_BYTES // (8 * self.width))
        scratch = np.empty((min(step, len(points)), self.width))
        most = np.finfo(self.dtype).max
        for a in range(0, len(points), step):
            found = self.metric.distances(points[a : a + step], self._others, scratch[: len(points) - a])
            if not found.max() <= most:
                raise self._useless(found, first + a)
            out[a : a + step] = found

    def _useless(self, found: Floats, first: int) -> InputError:
        i, s = np.argwhere(~(found <= np.finfo(self.dtype).max))[0]
        landmark = s if self.landmarks is None else self.landmarks[s]
        return InputError(
            f"the {self.metric.name} distance of point {first + i} to landmark {landmark} is {found[i, s]:g}, which "
            f"is no finite {self.dtype.name}; scale the points, or leave this one out."
        )


def _pieces(points: Table, lo: int, hi: int) -> Iterator[tuple[int, Floats]]:
    """Yield the first row and the features of each piece of points ``lo`` to ``hi``; a band is one piece."""
    step = max(1, PIECE_BYTES // (8 * points.width), min(points.band, hi - lo))
    buffer: Floats = np.empty((min(step, hi - lo), points.width))
    for first in range(lo, hi, step):
        piece = buffer[: min(step, hi - first)]
        points.read(first, first + len(piece), piece)
        finite = np.isfinite(piece).all(axis=1)
        if not finite.all():
            row = first + int(finite.argmin())
            raise InputError(f"point {row} has NaN or infinite features; fill them in, or leave it out.")
        yield first, piece


def points_panel(
    points: Table,
    landmarks: Sequence[int] | Ints | Floats,
    metric: str | Metric = "euclidean",
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> PointsPanel:
    """Distances of points to landmarks by a metric; a matrix of all pairs is never formed.

    Parameters
    ----------
    points : Table
        Features of all points, in float64: `landmarks.panel.tables.array_panel`, `npy_panel` or
        `psmds_dist.data.store.open_table`.
    landmarks : sequence of int or (S, d) array
        Rows of the landmarks, or coordinates of landmarks that need not be among the points.
    metric : str or Metric
        Name of a metric of `scipy.spatial.distance.cdist`. For new points take ``panel.metric`` of the panel
        that the landmarks come from: variances are part of it.
    options : mapping, optional
        Parameters of the metric, such as ``p`` for ``"minkowski"``.
    dtype : {"float32", "float64"}
        Type of the distances to deliver; they are computed in float64.
    """
    if points.dtype != np.float64:
        raise InputError(f"points must be opened as float64, not {points.dtype}: distances are computed so.")
    points = testing_checksums(points)
    sites, rows = _sites(points, landmarks)
    chosen = metric if isinstance(metric, Metric) else Metric(metric, dict(options or {}))
    with trying(chosen.name, "these points"):
        if chosen.wants:
            chosen = chosen.fitted(_spread(points, whole=chosen.wants == "VI"))
        panel = PointsPanel(points, sites, chosen, np.dtype(dtype), rows)
        panel.read(0, 1, np.empty((1, panel.width), panel.dtype))
    return panel


def _sites(points: Table, landmarks: Sequence[int] | Ints | Floats) -> tuple[Floats, Ints | None]:
    """Coordinates of landmarks, and their rows when they were given as such."""
    given, rows = as_array(landmarks, "landmarks"), None
    if given.ndim != 2:
        rows = check_landmarks(given, points.n)
        given = picked(points, rows)
    sites: Floats = np.array(given, dtype=np.float64, order="C")
    if sites.shape[1] != points.width:
        raise InputError(f"the landmarks have {sites.shape[1]} features, but the points have {points.width}.")
    _require_finite(sites, rows)
    return sites, rows


def _require_finite(sites: Floats, rows: Ints | None) -> None:
    finite = np.isfinite(sites).all(axis=1)
    if not finite.all():
        place = int(finite.argmin())
        landmark = place if rows is None else rows[place]
        raise InputError(f"landmark {landmark} has NaN or infinite features; choose another instead.")


def _spread(points: Table, *, whole: bool) -> Floats:
    """Variances or covariance of all points, in two passes over blocks that depend on their number only."""
    total = np.zeros(points.width)
    for piece in _blocks(points):
        total += piece.sum(axis=0)
    mean = total / points.n
    spread: Floats = np.zeros((points.width,) * 2 if whole else points.width)
    for piece in _blocks(points):
        centred = piece - mean
        spread += centred.T @ centred if whole else np.square(centred).sum(axis=0)
    return spread / max(1, points.n - 1)


def _blocks(points: Table) -> Iterator[Floats]:
    layout = Layout(points.n, points.width)
    for block in range(layout.count):
        for _, piece in _pieces(points, *layout.bounds(block)):
            yield piece


@dataclass(frozen=True, eq=False)
class StorePanel:
    """The panel inside a symmetric matrix: column ``s`` is row ``landmarks[s]``; made by `store_panel`.

    Only the rows of landmarks are read, never the others, but every read goes through all of them: read all
    rows at once, or as many as memory allows, as `landmarks.panel.build.build_panel` and
    `landmarks.panel.inputs.matrix_panel` do.
    """

    source: RowSource
    landmarks: Ints

    @property
    def n(self) -> int:
        """Number of points."""
        return self.source.n

    @property
    def width(self) -> int:
        """Number of landmarks."""
        return self.landmarks.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.source.dtype

    @property
    def band(self) -> int:
        """All rows: the more are read at once, the fewer times the landmarks are."""
        return self.n

    @property
    def scratch(self) -> int:
        """Bytes that a read takes beside its target: rows of landmarks, and a chunk that they are read from."""
        rows = stored(self.source)
        height = max(1, PIECE_BYTES // (self.dtype.itemsize * self.n))
        return rows.scratch + rows.block_bytes + min(height, self.width) * self.n * self.dtype.itemsize

    @property
    def token(self) -> str:
        """Identity of the content."""
        rows = ",".join(map(str, self.landmarks))
        return f"panel of {self.source.token} {rows}"

    def with_checksums(self) -> Self:
        """Return the same panel, taken from a source that tests its checksums where it has any."""
        return replace(self, source=testing_checksums(self.source))

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        resident: Rows | None = getattr(self.source, "resident", None)
        if resident is not None:
            for k in range(lo, hi, TILE):
                out[k - lo : min(k + TILE, hi) - lo] = resident[self.landmarks, k : min(k + TILE, hi)].T
            return
        ascending = np.argsort(self.landmarks)
        height = max(1, PIECE_BYTES // (self.dtype.itemsize * (hi - lo)))
        buffer: Rows = np.empty((min(height, self.width), hi - lo), self.dtype)
        for a in range(0, self.width, height):
            columns = ascending[a : a + height]
            pick(self.source, self.landmarks[columns], lo, hi, buffer)
            for k in range(0, hi - lo, TILE):
                out[k : min(k + TILE, hi - lo), columns] = buffer[: columns.size, k : k + TILE].T


@dataclass(frozen=True, eq=False)
class TrustedPanel(StorePanel):
    """The panel inside a matrix of which a later pass tests all checksums before there is a result.

    Testing them here as well would read the chunks around the rows of landmarks.
    """

    def with_checksums(self) -> Self:
        """Return the panel as it is."""
        return self


def store_panel(source: RowSource, landmarks: Sequence[int] | Ints) -> StorePanel:
    """Take the panel of some landmarks out of a symmetric ``n x n`` source."""
    if getattr(source, "width", None) is not None:
        raise InputError("a panel of landmarks is taken out of a whole matrix, not out of another panel.")
    return StorePanel(source, check_landmarks(landmarks, source.n))
