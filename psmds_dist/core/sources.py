"""The protocol of row sources: what the solver asks of a matrix or panel, wherever its rows come from."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from psmds_dist.core.layout import Layout
from psmds_dist.core.types import InputError, Ints, Rows


@dataclass(frozen=True)
class ReadProfile:
    """What planning needs to know about reading.

    Attributes
    ----------
    rows_per_chunk : int
        Rows that are stored together, so best read together; 1 when any range of rows is as good as another.
    scratch_bytes : int
        Bytes that a read takes besides its target, whatever it reads.
    read_copies : int
        How many times over a read holds the rows it brings, its target included.
    read_amplification : float
        How often a pass in single blocks reads every stored byte.
    stored_share : float
        Bytes that are stored for each byte delivered.
    """

    rows_per_chunk: int = 1
    scratch_bytes: int = 0
    read_copies: int = 1
    read_amplification: float = 1.0
    stored_share: float = 1.0


class RowSource(ABC):
    """Rows of a matrix of dissimilarities, or of a panel with a column for each landmark.

    Subclasses set or compute ``shape`` and implement `read`; all else has a default. The attributes may be class
    attributes, set in ``__init__``, or properties. A source travels inside tasks: it must be picklable, should pickle
    small, and opens what it needs on first use. `read` may be called from several threads at once.

    Attributes
    ----------
    shape : (int, int)
        Number of points, and numbers in a row: ``(n, n)`` for a matrix, ``(n, n_landmarks)`` for a panel.
    dtype : numpy.dtype
        Type of the rows: float32 (the default) or float64.
    content_id : str
        Identity of the content, the key of caches and of what an interrupted run left. Equal ids mean equal rows.
        By default it is unique to the object and its pickled copies, so that nothing is taken for equal.
    location : str or None
        Where the rows are stored, for messages and records.
    ids : sequence of str or None
        Names of the points.
    landmarks : (n_landmarks,) int64 array or None
        Rows of the points that the columns of a panel belong to, when they are among the points.
    read_profile : ReadProfile
        Cost of reading.
    notes : sequence of str
        What was changed in reading, one phrase each; stores record it.
    """

    if TYPE_CHECKING:  # properties for type checkers only: at run time they could not be set on an instance

        @property
        @abstractmethod
        def shape(self) -> tuple[int, int]:
            """Number of points, and numbers in a row."""

        @property
        def dtype(self) -> np.dtype[Any]:
            """Type of the rows."""

        @property
        def content_id(self) -> str:
            """Identity of the content."""

        @property
        def location(self) -> str | None:
            """Where the rows are stored."""

        @property
        def ids(self) -> Sequence[str] | None:
            """Names of the points."""

        @property
        def landmarks(self) -> Ints | None:
            """Rows that the columns of a panel belong to."""

        @property
        def read_profile(self) -> ReadProfile:
            """Cost of reading."""

        @property
        def notes(self) -> Sequence[str]:
            """What was changed in reading."""

    else:
        dtype = np.dtype(np.float32)
        location = ids = landmarks = None
        notes = ()
        read_profile = ReadProfile()

        @cached_property
        def content_id(self):
            """Identity of the content."""
            return f"{type(self).__name__} {uuid.uuid4().hex}"

    def __getstate__(self) -> object:
        """Pickle the content id as well: copies in other processes are the same source."""
        _ = self.content_id
        return super().__getstate__()

    @cached_property
    def n(self) -> int:
        """Number of points."""
        return int(self.shape[0])

    @property
    def layout(self) -> Layout:
        """How the rows are cut into blocks."""
        return _layout(*self.shape)

    @abstractmethod
    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` (C-contiguous, of `dtype`) with rows ``lo`` to ``hi``, and leave the rest alone."""

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows, in any order, in some neighbouring columns."""
        whole: Rows = np.empty((1, self.shape[1]), self.dtype)
        for row, line in zip(rows.tolist(), out, strict=False):
            self.read(row, row + 1, whole)
            line[:] = whole[0, columns]

    def take(self, rows: Ints) -> Rows:
        """Return some rows."""
        out: Rows = np.empty((rows.size, self.shape[1]), self.dtype)
        self.read_rows(rows, slice(0, self.shape[1]), out)
        return out

    def prefetch(self, lo: int, hi: int) -> None:  # noqa: B027  (doing nothing is a fine default)
        """Announce that rows ``lo`` to ``hi`` will be read soon; by default nothing is done about it."""

    def verified(self) -> Self:
        """Return the source in the form that verifies checksums as it reads; by default the source itself."""
        return self

    def is_stale(self) -> bool:
        """Whether the stored rows have changed since the source was opened, as far as can be seen."""
        return False

    def in_memory(self) -> Rows | None:
        """Return all rows where they lie in the memory of this process, ready for use, or None."""
        return None


@lru_cache(maxsize=16)
def _layout(n: int, width: int) -> Layout:
    """One layout for all who ask, since it remembers its sizes and they ask often."""
    return Layout(int(n)) if n == width else Layout(int(n), int(width))


@dataclass(frozen=True, eq=False)
class WrappedSource(RowSource):
    """A source made of another one, to which it delegates.

    A transform overrides `read`, and what else it changes. `read_rows` and `in_memory` go through `read`, never around
    it.
    """

    source: RowSource

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the wrapped source."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.source.dtype

    @property
    def content_id(self) -> str:
        """Identity of the content: that of the wrapped source, and the kind of wrapper."""
        return f"{type(self).__name__} {self.source.content_id}"

    @property
    def location(self) -> str | None:
        """Where the rows are stored."""
        return self.source.location

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        return self.source.ids

    @property
    def landmarks(self) -> Ints | None:
        """Rows that the columns of a panel belong to."""
        return self.source.landmarks

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading."""
        return self.source.read_profile

    @property
    def notes(self) -> Sequence[str]:
        """What was changed in reading the wrapped source."""
        return self.source.notes

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.source.read(lo, hi, out)

    def prefetch(self, lo: int, hi: int) -> None:
        """Announce a read to the wrapped source."""
        self.source.prefetch(lo, hi)

    def verified(self) -> Self:
        """Return the same rows, made of a verified source."""
        return replace(self, source=self.source.verified())

    def is_stale(self) -> bool:
        """Whether the wrapped source has changed since it was opened."""
        return self.source.is_stale()


@runtime_checkable
class SupportsColumns(Protocol):
    """A source that can be read along columns as well."""

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""


@runtime_checkable
class ComputesPairs(Protocol):
    """A square, symmetric source whose entries are computed one by one, at such a cost that none is computed twice."""

    def read_pairs(self, rows: Ints, columns: Ints, out: Rows) -> None:
        """Fill ``out`` with the entries between two lists of points, each pair once where the lists are equal."""


@runtime_checkable
class KeepsChecks(Protocol):
    """A source that keeps the result of its input check, for as long as its rows stay the same."""

    def load_check(self) -> dict[str, Any] | None:
        """Return the result of an earlier check, if it is known and still holds."""

    def save_check(self, check: Mapping[str, Any]) -> bool:
        """Keep the result of a check; return whether that was possible."""


def require_valid(source: RowSource) -> None:
    """Refuse a source whose attributes cannot be used.

    Raises
    ------
    InputError
        When its shape or dtype is none that rows can have.
    """
    name = type(source).__name__
    try:
        shape, dtype = tuple(source.shape), source.dtype
    except (AttributeError, TypeError) as error:
        raise InputError(f"the row source {name} needs the attribute shape, (n, n) for a matrix ({error}).") from None
    if len(shape) != 2 or not all(isinstance(k, int | np.integer) and k >= 0 for k in shape):
        raise InputError(f"the row source {name} has shape {shape}, but needs two whole numbers.")
    if not isinstance(source.content_id, str) or not source.content_id:
        raise InputError(
            f"the row source {name} has content_id {source.content_id!r}, but needs text that is not empty."
        )
    profile = source.read_profile
    if not isinstance(profile, ReadProfile) or profile.rows_per_chunk < 1 or profile.read_copies < 1:
        raise InputError(
            f"the row source {name} has read_profile {profile!r}, but needs a ReadProfile with at least one row per "
            "chunk and one copy."
        )
    if not isinstance(dtype, np.dtype) or dtype.name not in ("float32", "float64"):
        raise InputError(
            f"the row source {name} has dtype {dtype!r}, but rows are numpy.dtype('float32') or numpy.dtype('float64')."
        )


def require_square(source: RowSource) -> None:
    """Refuse a source that is no matrix.

    Raises
    ------
    InputError
        When its shape is not square.
    """
    if source.shape[0] != source.shape[1]:
        raise InputError(
            f"{source.location or 'the matrix'} has shape {source.shape}, but a dissimilarity matrix is square (n, n) "
            "or condensed (n (n - 1) / 2,); for points use `psmds distances`, for distances to landmarks `psmds "
            "landmarks fit`."
        )
