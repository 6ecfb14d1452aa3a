"""Sparse matrices, whose unlisted pairs are missing: the distances of nearest neighbours, mostly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Ints, Rows

Sliceable = Any
"""An array, or a data set of which slices are read."""


class Compressed(NamedTuple):
    """A matrix in compressed sparse rows."""

    indptr: Ints
    indices: Sliceable
    data: Sliceable


@dataclass(frozen=True, eq=False)
class SparseRows(RowSource):
    """Rows of a sparse matrix: unlisted entries are NaN, and zero on the diagonal.

    Parameters
    ----------
    load : callable
        Opens it, in each process.
    shape : (int, int)
        Its shape.
    location : str
        Where it is stored.
    dtype : dtype
        Type of the rows.
    content_id : str
        Identity of the content.
    ids : list of str, optional
        Names of the points.
    """

    load: Callable[[], Compressed]
    shape: tuple[int, int]
    location: str
    dtype: np.dtype[Any]
    content_id: str
    ids: list[str] | None = None

    read_profile = ReadProfile(read_copies=2)

    @cached_property
    def _rows(self) -> Compressed:
        return self.load()

    def __getstate__(self) -> object:
        """Pickle without numbers and names."""
        return {**{name: value for name, value in vars(self).items() if name != "_rows"}, "ids": None}

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        rows, columns, values = self._listed(lo, hi)
        found = out[: hi - lo]
        found[...] = np.nan
        found[np.arange(hi - lo), np.arange(lo, hi)] = 0
        numbers = np.empty(values.shape, self.dtype)
        fill(numbers, values)
        found[rows, columns] = numbers

    def _listed(self, lo: int, hi: int) -> tuple[Ints, Ints, NDArray[Any]]:
        """Listed entries of some rows: row from ``lo``, column and value."""
        starts = self._rows.indptr[lo : hi + 1].astype(np.int64)
        first, last = int(starts[0]), int(starts[-1])
        columns, values = np.asarray(self._rows.indices[first:last]), np.asarray(self._rows.data[first:last])
        wrong = (np.diff(starts) < 0).any() or len(columns) < last - first or len(values) < last - first
        if wrong or (columns < 0).any() or (columns >= self.n).any():
            raise DamagedDataError(f"{self.location} is damaged: its sparse indices fit no matrix; write it again.")
        return np.repeat(np.arange(hi - lo), np.diff(starts)), columns.astype(np.int64), values
