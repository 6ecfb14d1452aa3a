"""Rows of a table in memory or in a ``.npy`` file: points by their features, or a panel made elsewhere.

A panel is a row source with ``width``: row ``i`` holds the dissimilarities of point ``i`` to ``S`` landmarks,
NaN where missing, and its ``landmarks`` are the rows of these, or None when they are not among the points.
Points with ``d`` features are the same thing with other numbers in it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill, is_masked, numbers_of
from psmds_dist.core.types import InputError, Ints, Rows, RowSource
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.cache import layout_of
from psmds_dist.data.sources import MappedFile, NpyFile, differs, file_identity, load_npy, mapped_file, require_numeric


class Table(RowSource, Protocol):
    """A row source with rows of its own width."""

    @property
    def width(self) -> int:
        """Numbers in a row."""


class Panel(Table, Protocol):
    """Dissimilarities of all points to landmarks."""

    @property
    def landmarks(self) -> Ints | None:
        """Rows of the landmarks; None when they are not among the points."""


@dataclass(frozen=True, eq=False)
class ArrayPanel:
    """A panel, or points, in the memory of this process; made by `array_panel`."""

    values: NDArray[Any]
    dtype: np.dtype[Any]
    landmarks: Ints | None = None
    file: MappedFile | None = None
    """What it is mapped from."""

    band = 1

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.values.shape[0])

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(self.values.shape[1])

    @cached_property
    def token(self) -> str:
        """Identity of the content, wherever it lies in memory."""
        digest = hashlib.blake2b(f"{self.values.dtype.str} {self.values.shape}".encode(), digest_size=16)
        layout = layout_of(self)
        for block in range(layout.count):
            lo, hi = layout.bounds(block)
            digest.update(self.values[lo:hi].tobytes())
        return f"table {digest.hexdigest()} {self.dtype.name}"

    def changed(self) -> bool:
        """Whether it is mapped from a file that has been written to."""
        return self.file is not None and self.file.changed()

    @property
    def resident(self) -> Rows | None:
        """The array itself, when its rows can be used as they lie."""
        return self.values if self.values.dtype == self.dtype and self.values.flags.c_contiguous else None

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        fill(out[: hi - lo], self.values[lo:hi])

    def read_picked(self, rows: Ints, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: rows.size]``, of width ``hi - lo``, with entries ``lo`` to ``hi`` of some rows."""
        fill(out[: rows.size], self.values[rows, lo:hi])


@dataclass(frozen=True, eq=False)
class NpyPanel:
    """A panel, or points, in a ``.npy`` file; made by `npy_panel`."""

    path: str
    n: int
    width: int
    dtype: np.dtype[Any]
    token: str
    landmarks: Ints | None = None
    band = 1

    @cached_property
    def _file(self) -> NpyFile:
        return NpyFile(self.path)

    @property
    def copies(self) -> int:
        """Rows as delivered, and as they are mapped."""
        return 1 + -(-self._file.mapped().dtype.itemsize // self.dtype.itemsize)

    def changed(self) -> bool:
        """Whether a file has been written since it was opened, unless the table is known by its content."""
        return self.path in self.token and differs(self.path, self.token)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        with self._file.reading() as values:
            fill(out[: hi - lo], values[lo:hi])

    def read_picked(self, rows: Ints, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: rows.size]``, of width ``hi - lo``, with entries ``lo`` to ``hi`` of some rows."""
        with self._file.reading() as values:
            fill(out[: rows.size], values[rows, lo:hi])


def array_panel(values: Any, dtype: str = "float32", landmarks: Sequence[int] | Ints | None = None) -> ArrayPanel:
    """Take a table from memory.

    Parameters
    ----------
    values : (n, S) array_like
        Real numbers.
    dtype : {"float32", "float64"}
        Type of the rows to deliver.
    landmarks : sequence of int, optional
        Row of each column's landmark.
    """
    array = _require_table(numbers_of(without_mask(values), "X"), "X")
    return ArrayPanel(array, np.dtype(dtype), _checked(landmarks, array), mapped_file(array))


def without_mask(values: Any) -> Any:
    """Take masked entries for what they mean, missing."""
    return np.ma.filled(values.astype(np.float64), np.nan) if is_masked(values) else values


def npy_panel(
    path: str | os.PathLike[str], dtype: str = "float32", landmarks: Sequence[int] | Ints | None = None
) -> NpyPanel:
    """Open a ``.npy`` file with a table; parameters as in `array_panel`."""
    place = os.path.abspath(path)
    values = _require_table(load_npy(place), place)
    n, width = values.shape
    token = f"table {file_identity(place)} {dtype}"
    return NpyPanel(place, n, width, np.dtype(dtype), token, _checked(landmarks, values))


def _require_table(values: NDArray[Any], where: str) -> NDArray[Any]:
    if values.dtype.kind != "b":
        require_numeric(values, where)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(
            f"{where} has shape {values.shape}, but a table has a row for each point, and in it a number for "
            "each landmark (a panel) or feature (points)."
        )
    return values


def _checked(landmarks: Sequence[int] | Ints | None, values: NDArray[Any]) -> Ints | None:
    return None if landmarks is None else check_landmarks(landmarks, *values.shape)


def pick(source: RowSource, rows: Ints, lo: int, hi: int, out: Rows) -> None:
    """Fill ``out[: rows.size]``, ``hi - lo`` wide, with entries ``lo`` to ``hi`` of some rows of a source."""
    direct = getattr(source, "read_picked", None)
    if direct is not None:
        direct(rows, lo, hi, out)
        return
    whole: Rows = np.empty((1, layout_of(source).columns), source.dtype)
    for row, line in zip(rows.tolist(), out, strict=False):
        source.read(row, row + 1, whole)
        line[:] = whole[0, lo:hi]


def picked(source: RowSource, rows: Ints) -> Rows:
    """Return some rows of a source."""
    columns = layout_of(source).columns
    out: Rows = np.empty((rows.size, columns), source.dtype)
    pick(source, rows, 0, columns, out)
    return out
