"""Panels made of something else: points with a metric, rows of a whole matrix, columns of another panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from landmarks.panel.memory import PIECE_BYTES
from landmarks.panel.tables import WithLandmarks, array_panel
from psmds_dist.core.arrays import as_array
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.cache import stored
from psmds_dist.data.features import FromFeatures, pieces_of, spread_of
from psmds_dist.data.points import SCRATCH_BYTES, Metric, trying

TILE = 64
"""Rows of a panel that are transposed at a time: small enough for the cache."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PointsPanel(FromFeatures):
    """Distances of points to landmarks, computed as they are asked for; made by `points_panel`.

    A row depends on its own point only: it has the same bits whatever rows are asked for with it.
    """

    sites: Floats
    """Features of the landmarks."""

    landmarks: Ints | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, and of landmarks."""
        return self.points.n, len(self.sites)

    @cached_property
    def content_id(self) -> str:
        """Identity of the content."""
        sites = array_panel(self.sites, "float64").content_id
        return f"points panel {self.points.content_id} {self.metric.described} {sites} {self.dtype.name}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: features as they come and prepared, and distances."""
        points, height = stored(self.points), self.points.read_profile.rows_per_chunk
        rows = min(max(1, PIECE_BYTES // (8 * self.points.shape[1]), height), self.n)
        rows = min(rows, max(self.layout.rows, height))
        distances = min(SCRATCH_BYTES, 8 * self.n * self.shape[1])
        features = (points.copies + 2) * rows * points.layout.columns * 8
        return ReadProfile(height, points.scratch + features + distances)

    def prefetch(self, lo: int, hi: int) -> None:
        """Prefetch the points."""
        self.points.prefetch(lo, hi)

    @cached_property
    def _others(self) -> Floats:
        return self.metric.prepared(self.sites, self.landmarks, "landmark")

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        for first, points in pieces_of(self.points, lo, hi):
            prepared = self.metric.prepared(points, np.arange(first, first + len(points)))
            self._fill(prepared, first, out[first - lo : first - lo + len(points)])

    def _fill(self, points: Floats, first: int, out: Rows) -> None:
        step = max(1, SCRATCH_BYTES // (8 * self.shape[1]))
        scratch = np.empty((min(step, len(points)), self.shape[1]))
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


def points_panel(
    points: RowSource,
    landmarks: Sequence[int] | Ints | Floats,
    metric: str | Metric = "euclidean",
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> PointsPanel:
    """Distances of points to landmarks by a metric; a matrix of all pairs is never formed.

    Parameters
    ----------
    points : RowSource
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
    points = points.verified()
    sites, rows = _sites(points, landmarks)
    chosen = metric if isinstance(metric, Metric) else Metric(metric, dict(options or {}))
    with trying(chosen.name, "these points"):
        if chosen.wants:
            chosen = chosen.fitted(spread_of(points, whole=chosen.wants == "VI"))
        panel = PointsPanel(points, chosen, np.dtype(dtype), sites=sites, landmarks=rows)
        panel.read(0, 1, np.empty((1, panel.shape[1]), panel.dtype))
    return panel


def _sites(points: RowSource, landmarks: Sequence[int] | Ints | Floats) -> tuple[Floats, Ints | None]:
    """Coordinates of landmarks, and their rows when they were given as such."""
    given, rows = as_array(landmarks, "landmarks"), None
    if given.ndim != 2:
        rows = check_landmarks(given, points.n)
        given = points.take(rows)
    sites: Floats = np.array(given, dtype=np.float64, order="C")
    if sites.shape[1] != points.shape[1]:
        raise InputError(f"the landmarks have {sites.shape[1]} features, but the points have {points.shape[1]}.")
    _require_finite(sites, rows)
    return sites, rows


def _require_finite(sites: Floats, rows: Ints | None) -> None:
    finite = np.isfinite(sites).all(axis=1)
    if not finite.all():
        place = int(finite.argmin())
        landmark = place if rows is None else rows[place]
        raise InputError(f"landmark {landmark} has NaN or infinite features; choose another instead.")


class StorePanel(WithLandmarks):
    """The panel inside a symmetric matrix: column ``s`` is row ``landmarks[s]``; made by `store_panel`.

    Only the rows of landmarks are read, never the others, but every read goes through all of them: read all
    rows at once, or as many as memory allows, as `landmarks.panel.build.build_panel` and
    `landmarks.panel.inputs.matrix_panel` do.
    """

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        rows = ",".join(map(str, self.landmarks))
        return f"panel of {self.source.content_id} {rows}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: rows of landmarks, and a chunk that they are read from; best all rows at once."""
        rows = stored(self.source)
        height = min(max(1, PIECE_BYTES // (self.dtype.itemsize * self.n)), self.shape[1])
        return ReadProfile(self.n, rows.scratch + rows.block_bytes + height * self.n * self.dtype.itemsize)

    def prefetch(self, lo: int, hi: int) -> None:
        """Prefetch nothing: a read takes the same columns of many rows."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        resident = self.source.in_memory()
        if resident is not None:
            for k in range(lo, hi, TILE):
                out[k - lo : min(k + TILE, hi) - lo] = resident[self.landmarks, k : min(k + TILE, hi)].T
            return
        ascending, width = np.argsort(self.landmarks), self.shape[1]
        height = max(1, PIECE_BYTES // (self.dtype.itemsize * (hi - lo)))
        buffer: Rows = np.empty((min(height, width), hi - lo), self.dtype)
        for a in range(0, width, height):
            columns = ascending[a : a + height]
            self.source.read_rows(self.landmarks[columns], slice(lo, hi), buffer)
            for k in range(0, hi - lo, TILE):
                out[k : min(k + TILE, hi - lo), columns] = buffer[: columns.size, k : k + TILE].T


class TrustedPanel(StorePanel):
    """The panel inside a matrix of which a later pass verifies all checksums before there is a result.

    Verifying them here as well would read the chunks around the rows of landmarks.
    """

    def verified(self) -> Self:
        """Return the panel as it is."""
        return self


def store_panel(source: RowSource, landmarks: Sequence[int] | Ints) -> StorePanel:
    """Take the panel of some landmarks out of a symmetric ``n x n`` source."""
    if source.shape[0] != source.shape[1]:
        raise InputError("a panel of landmarks is taken out of a whole matrix, not out of another panel.")
    return StorePanel(source, check_landmarks(landmarks, source.n))


@dataclass(frozen=True, eq=False)
class Columns(WithLandmarks):
    """Some columns of a panel."""

    columns: Ints

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"{self.source.content_id} columns {','.join(map(str, self.columns))}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: rows as they are wanted, and whole."""
        profile = self.source.read_profile
        copies = 1 + -(-profile.read_copies * self.source.shape[1] // self.shape[1])
        return replace(profile, read_copies=copies)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        whole: Rows = np.empty((hi - lo, self.source.shape[1]), self.dtype)
        self.source.read(lo, hi, whole)
        np.take(whole, self.columns, axis=1, out=out[: hi - lo], mode="clip")

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        np.take(self.source.take(rows), self.columns[columns], axis=1, out=out[: rows.size], mode="clip")
