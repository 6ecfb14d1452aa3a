"""What a fit is made from: a whole matrix, points with a metric, or a panel. All answer the same questions."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from landmarks.evaluation import ROWS, HeldOut
from landmarks.panel.build import check_panel
from landmarks.panel.check import MatrixEntries, PanelEntries
from landmarks.panel.inputs import matrix_panel, panel_input, points_input
from landmarks.panel.memory import PIECE_BYTES, panel_pass
from landmarks.panel.sources import Columns, PointsPanel, StorePanel, TrustedPanel, points_panel, store_panel
from landmarks.selection import LandmarkStream
from psmds_dist.api.inputs import ids_of, row_source, row_type
from psmds_dist.core.arrays import as_array
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import Layout
from psmds_dist.core.rng import generator
from psmds_dist.core.sources import ComputesPairs, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.data.cache import stored
from psmds_dist.data.features import is_sparse, open_points
from psmds_dist.data.functions import Function, is_function
from psmds_dist.data.geodesics import Geodesics, open_geodesics
from psmds_dist.data.ids import read_ids
from psmds_dist.data.objects import open_objects
from psmds_dist.data.sources import load_npy
from psmds_dist.planning.memory import MemoryRequirement, RowStorage

USUAL = 1000
"""Landmarks by default."""

SET_ASIDE_RATIO, MIN_SET_ASIDE = 20, 10
"""One landmark in so many is set aside for the evaluation where a fit uses all columns of a panel; at least a few,
though no more than a quarter: with two or three the interval would be wide."""

GRAPH_PARAMS = ("n_neighbors", "radius", "disconnected")
"""Parameters of the metric ``"geodesic"``."""


class _Data(ABC):
    """Answers that several kinds of data share; the protocol is `landmarks.solver.types.Data`."""

    @property
    @abstractmethod
    def input(self) -> RowSource:
        """What is read."""

    @abstractmethod
    def columns_of(self, landmarks: Ints) -> RowSource:
        """The panel as a source."""

    @abstractmethod
    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Dissimilarities between two lists of points."""

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return "precomputed"

    @property
    def metric_params(self) -> Mapping[str, Any]:
        """Parameters of the metric."""
        return {}

    @property
    def candidates(self) -> Ints | None:
        """Points that can be landmarks; None for all."""
        return None

    @property
    def n(self) -> int:
        """Number of points."""
        return self.input.n

    @property
    def columns(self) -> int:
        """Columns of the input."""
        return self.input.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the dissimilarities."""
        return self.input.dtype

    @property
    def default_n_landmarks(self) -> int:
        """Number of landmarks by default."""
        return min(USUAL, self.n)

    def features(self, points: Ints) -> Floats | None:
        """None: dissimilarities are given."""
        return None

    def stored(self, landmarks: Ints) -> RowStorage:
        """How the panel will be stored."""
        return stored(self.columns_of(landmarks))

    def making(self, landmarks: Ints) -> MemoryRequirement | None:
        """None: nothing is made before it is used."""
        return None

    def trusted(self) -> Self:
        """Itself: there is no whole matrix to be checked."""
        return self

    @contextmanager
    def panel(self, landmarks: Ints, executor: Executor, limit: int, keep: int) -> Iterator[RowSource]:
        """The panel as it is read or computed, never stored."""
        yield self.columns_of(landmarks)

    def columns_with(self, landmarks: Ints) -> Ints | None:
        """None: this is no panel."""
        return None

    def hold_out(self, landmarks: Ints, rows: Ints, columns: Ints, share: slice) -> HeldOut | None:
        """Dissimilarities of the pairs that validation asks for."""
        return HeldOut(rows, columns, self.between(rows, columns))

    def set_aside(self, landmarks: Ints, seed: int) -> Ints:
        """No landmarks: there are other points to validate with."""
        return landmarks[:0]


@dataclass(frozen=True)
class MatrixData(_Data):
    """A whole matrix; only rows of landmarks are read, unless a refinement asks for all."""

    matrix: RowSource
    scratch: str | os.PathLike[str] | None = None
    names: Sequence[str] | None = None
    """Names of the points that were given beside the matrix."""

    checked: bool = False
    """Whether the whole matrix has passed its check and will be read, so that a panel of it needs no check, and rows of
    landmarks can be read without the others of their chunks, which testing checksums takes."""

    origin = "taken out of the matrix once, then read"

    @property
    def input(self) -> RowSource:
        """What is read."""
        return self.matrix

    @cached_property
    def ids(self) -> Sequence[str] | None:
        """Names of the points, those of the source where none were given."""
        return self.names or ids_of(self.matrix)

    def columns_of(self, landmarks: Ints) -> StorePanel:
        """The panel as a source, which goes through the rows of the landmarks at each read."""
        panel = store_panel(self._source, landmarks)
        return TrustedPanel(panel.source, panel.landmarks) if self.checked else panel

    @property
    def _source(self) -> RowSource:
        return self.matrix if self.checked else self.matrix.verified()

    def stored(self, landmarks: Ints) -> RowStorage:
        """How the panel will lie: in chunks of its own."""
        return RowStorage(Layout(self.n, landmarks.size), self.dtype.itemsize)

    def making(self, landmarks: Ints) -> MemoryRequirement:
        """What it takes to take the panel out of the matrix."""
        return panel_pass(stored(self.columns_of(landmarks)))

    def trusted(self) -> MatrixData:
        """The same, whose panels are not checked, nor checksums tested: a pass over the whole matrix will."""
        return replace(self, checked=True)

    @contextmanager
    def panel(self, landmarks: Ints, executor: Executor, limit: int, keep: int) -> Iterator[RowSource]:
        """Rows of the landmarks, turned into columns, once."""
        source, names = self.columns_of(landmarks), self.entries(landmarks)
        with matrix_panel(source, executor, memory_limit=limit, keep=keep, names=names, scratch=self.scratch) as panel:
            if not self.checked:
                check_panel(panel, executor, names=names)
            yield panel

    def entries(self, landmarks: Ints) -> MatrixEntries:
        """Names of the entries of a panel: rows and columns of the matrix."""
        return MatrixEntries(landmarks, self.ids)

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Dissimilarities between two lists of points."""
        source, found = self._source, np.empty((rows.size, columns.size))
        if isinstance(source, ComputesPairs):
            source.read_pairs(rows, columns, found)
            return found.astype(source.dtype).astype(np.float64)
        step = max(1, PIECE_BYTES // (self.n * self.dtype.itemsize))
        for k in range(0, rows.size, step):
            found[k : k + step] = source.take(rows[k : k + step])[:, columns]
        return found


@dataclass(frozen=True, eq=False)
class PointsData(_Data):
    """Points in a space of features; all distances are computed when they are needed."""

    points: RowSource
    all_pairs: PointsPanel
    """A panel of the same points and metric, for its metric."""

    given: Mapping[str, Any]
    ids: Sequence[str] | None = None
    origin = "computed as they are needed"
    matrix = None

    @classmethod
    def of(
        cls, points: RowSource, metric: str, options: Mapping[str, Any], dtype: str, ids: Sequence[str] | None = None
    ) -> PointsData:
        """Points with a metric of `scipy.spatial.distance.cdist`."""
        return cls(points, points_panel(points, [0], metric, options, dtype), options, ids)

    @property
    def input(self) -> RowSource:
        """What is read."""
        return self.points

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the dissimilarities."""
        return self.all_pairs.dtype

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.all_pairs.metric.name

    @property
    def metric_params(self) -> Mapping[str, Any]:
        """Parameters of the metric, with those that come from the points (variances)."""
        return self.all_pairs.metric.options

    def features(self, points: Ints) -> Floats:
        """Features of some points."""
        return self.points.take(points).astype(np.float64)

    def entries(self, landmarks: Ints) -> PanelEntries:
        """Names of the entries of a panel."""
        return PanelEntries(landmarks, self.ids)

    def columns_of(self, landmarks: Ints) -> PointsPanel:
        """The panel as a source."""
        return points_panel(self.points, landmarks, self.all_pairs.metric, dtype=self.dtype.name)

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Distances between two lists of points."""
        a, b = (_prepared(self, points.tobytes()) for points in (rows, columns))
        return self.all_pairs.metric.distances(a, b, np.empty((rows.size, columns.size)))


@lru_cache(maxsize=4)
def _prepared(data: PointsData, points: bytes) -> Floats:
    """Features of some points as the metric takes them; a choice of landmarks asks for the same ones many times."""
    return data.all_pairs.metric.prepared(data.features(np.frombuffer(points, np.int64)))


@dataclass(frozen=True)
class PanelData(_Data):
    """A panel that was made elsewhere: nothing is known beyond its columns."""

    whole: RowSource
    names: Sequence[str] | None = None
    """Names of the points that were given beside the panel."""

    origin = "read as they are needed"
    matrix = None

    @classmethod
    def of(
        cls,
        panel: RowSource,
        executor: Executor,
        memory_limit: int | None = None,
        names: Sequence[str] | None = None,
    ) -> PanelData:
        """A panel whose landmarks are rows of it, checked."""
        if panel.landmarks is None:
            raise InputError(
                f"X has shape {panel.shape}, which is no square matrix: if its rows are points, pass "
                "their metric, such as metric='euclidean' (--metric euclidean); if it is a panel of dissimilarities to "
                "landmarks, landmarks must list the row of each column's landmark, in order (--landmarks rows.txt)."
            )
        data = cls(panel.verified(), names)
        check_panel(panel, executor, names=data.entries(panel.landmarks), memory_limit=memory_limit)
        return data

    @property
    def input(self) -> RowSource:
        """What is read."""
        return self.whole

    @cached_property
    def ids(self) -> Sequence[str] | None:
        """Names of the points, those of the source where none were given."""
        return self.names or ids_of(self.whole)

    @property
    def candidates(self) -> Ints:
        """Points that have a column."""
        assert self.whole.landmarks is not None
        return self.whole.landmarks

    @property
    def default_n_landmarks(self) -> int:
        """All columns."""
        return self.candidates.size

    def entries(self, landmarks: Ints) -> PanelEntries:
        """Names of the entries of a panel with these columns."""
        return PanelEntries(landmarks, self.ids)

    def columns_of(self, landmarks: Ints) -> RowSource:
        """The panel as a source."""
        if np.array_equal(landmarks, self.candidates):
            return self.whole
        return Columns(self.whole, landmarks, self.columns_with(landmarks))

    @cached_property
    def _mutual(self) -> Rows:
        """The part of the panel between landmarks: a choice among them asks for it many times."""
        return self.whole.take(self.candidates)

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Entries of the panel; NaN between two points of which neither has a column."""
        if np.isin(rows, self.candidates).all() and np.isin(columns, self.candidates).all():
            return self._mutual[np.ix_(self.columns_with(rows), self.columns_with(columns))].astype(np.float64)
        found = np.full((rows.size, columns.size), np.nan)
        with_column = np.flatnonzero(np.isin(columns, self.candidates))
        found[:, with_column] = self.whole.take(rows)[:, self.columns_with(columns[with_column])]
        mirrored = np.flatnonzero(np.isin(rows, self.candidates))
        if with_column.size < columns.size and mirrored.size:
            found[mirrored] = self.whole.take(columns)[:, self.columns_with(rows[mirrored])].T
        return found

    def columns_with(self, landmarks: Ints) -> Ints:
        """Columns that hold the landmarks."""
        order = np.argsort(self.candidates)
        return order[np.searchsorted(self.candidates, landmarks, sorter=order)]

    def hold_out(self, landmarks: Ints, rows: Ints, columns: Ints, share: slice) -> HeldOut | None:
        """Pairs of points of which one, the row, has a column that the fit leaves out; None when it uses all."""
        spare = np.setdiff1d(self.candidates, landmarks)[share]
        spare = spare[:: -(-spare.size // ROWS) or 1]
        others = np.setdiff1d(np.union1d(rows, columns), self.candidates)
        return HeldOut(spare, others, self.between(others, spare).T) if spare.size and others.size >= 2 else None

    def set_aside(self, landmarks: Ints, seed: int) -> Ints:
        """Some landmarks, at random, where too few columns are unused."""
        wanted = max(landmarks.size // SET_ASIDE_RATIO, min(MIN_SET_ASIDE, landmarks.size // 4))
        lacking = wanted - (self.candidates.size - landmarks.size) if wanted > 1 else 0
        return np.sort(generator(seed, LandmarkStream.SET_ASIDE).permutation(landmarks)[: max(0, lacking)])


AnyData = MatrixData | PointsData | PanelData


@contextmanager
def open_data(
    X: Any,
    executor: Executor,
    *,
    metric: str | Function = "precomputed",
    metric_params: Mapping[str, Any] | None = None,
    landmarks: Sequence[int] | None = None,
    ids: Sequence[str] | str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    memory_limit: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Iterator[AnyData]:
    """Open whatever a fit is made from.

    Parameters
    ----------
    X : ndarray, data frame, zarr.Array, dask.array.Array, RowSource, or path
        With ``metric="precomputed"`` a square matrix or an n x S panel, otherwise n x d points or what a function
        compares.
    executor : Executor
        Who will read it.
    metric, metric_params : str, mapping
        A metric of `scipy.spatial.distance.cdist` and its parameters; ``"geodesic"`` and those of
        `psmds_dist.open_geodesics`; or a function or the name of one, as `psmds_dist.open_objects` takes it.
    landmarks : sequence of int, optional
        Row of each column of a panel.
    ids : sequence of str or path, optional
        Names of the points, or a file of them; by default those of a store.
    dtype : {"float32", "float64"}
        Type of the dissimilarities.
    memory_limit : int, optional
        Bytes that a process may take to check a panel.
    scratch : path, optional
        Directory for temporary files, shared by all machines that work.

    Raises
    ------
    InputError
        When it is none of these.
    """
    dtype = row_type(dtype)
    if metric_params is not None and not isinstance(metric_params, Mapping):
        raise InputError(f"metric_params must be a dictionary of parameters of the metric, not {metric_params!r}.")
    if metric == "geodesic":
        geodesics = _geodesics(X, metric_params or {}, ids, dtype)
        yield MatrixData(geodesics, scratch, geodesics.ids)
    elif is_function(metric):
        if metric_params:
            raise _no_parameters("a function: bind them to it, as functools.partial does")
        yield MatrixData(open_objects(X, metric, ids=ids, dtype=dtype), scratch)
    elif metric != "precomputed" and is_sparse(X):
        sparse = open_points(X, str(metric), metric_params, dtype)
        yield MatrixData(sparse, scratch, _names(ids, sparse.n))
    elif metric != "precomputed":
        with points_input(X, executor, scratch=scratch) as points:
            yield PointsData.of(points, str(metric), dict(metric_params or {}), dtype, _names(ids, points.n))
    elif metric_params:
        raise _no_parameters("'precomputed': leave them out")
    elif is_panel(X):
        with panel_input(X, executor, landmarks=landmarks, dtype=dtype, scratch=scratch) as panel:
            yield PanelData.of(panel, executor, memory_limit, _names(ids, panel.n))
    else:
        with row_source(X, executor, dtype=dtype, scratch=scratch) as source:
            yield MatrixData(source, scratch, _names(ids, source.n))


def _no_parameters(metric: str) -> InputError:
    return InputError(f"metric_params belong to a metric with a name, but metric is {metric}.")


def _geodesics(
    points: Any, params: Mapping[str, Any], ids: Sequence[str] | str | os.PathLike[str] | None, dtype: str
) -> Geodesics:
    """Open geodesic distances, of which only those from landmarks are computed unless a refinement asks for all."""
    unknown = set(params) - set(GRAPH_PARAMS)
    if unknown:
        raise InputError(f"metric_params of metric='geodesic' are {', '.join(GRAPH_PARAMS)}, not {min(unknown)!r}.")
    return open_geodesics(points, **params, ids=ids, dtype=dtype)


def _names(ids: Sequence[str] | str | os.PathLike[str] | None, n: int) -> Sequence[str] | None:
    return read_ids(ids, n) if isinstance(ids, str | os.PathLike) else ids


def is_panel(X: Any) -> bool:
    """Whether dissimilarities are those to landmarks only: a table that is not square."""
    shape = _shape_of(X) if isinstance(X, str | os.PathLike) else _shape_in_memory(X)
    return shape is not None and len(shape) == 2 and shape[0] != shape[1]


def _shape_in_memory(X: Any) -> tuple[int, ...]:
    return tuple(X.shape) if hasattr(X, "shape") else as_array(X, "X").shape


def _shape_of(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    if Path(path).suffix.lower() == ".npy":
        return load_npy(os.path.abspath(path)).shape
    from psmds_dist.data.store import shape_at

    return shape_at(path)
