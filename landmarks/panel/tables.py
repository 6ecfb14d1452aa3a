"""Tables as users have them, in memory or in a ``.npy`` file: points by their features, or a panel made elsewhere.

In a panel, row ``i`` holds the dissimilarities of point ``i`` to the landmarks, NaN where missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import is_masked, numbers_of
from psmds_dist.core.sources import RowSource, WrappedSource
from psmds_dist.core.types import InputError, Ints, Rows
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.sources import ArrayRows, NpyRows, open_npy, require_numeric


def table_shape(values: NDArray[Any], where: str) -> tuple[int, int]:
    """Return the shape of a table of numbers, or refuse what is none."""
    if values.dtype.kind != "b":
        require_numeric(values, where)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(
            f"{where} has shape {values.shape}, but a table has a row for each point, and in it a number for "
            "each landmark (a panel) or feature (points)."
        )
    return int(values.shape[0]), int(values.shape[1])


class ArrayTable(ArrayRows):
    """A table in the memory of this process, known by its content wherever that lies."""

    def _find_shape(self) -> tuple[int, int]:
        return table_shape(self.values, "the array")

    @cached_property
    def content_id(self) -> str:
        """Digest of the content."""
        digest = hashlib.blake2b(f"{self.values.dtype.str} {self.values.shape}".encode(), digest_size=16)
        for block in range(self.layout.count):
            lo, hi = self.layout.bounds(block)
            digest.update(self.values[lo:hi].tobytes())
        return f"table {digest.hexdigest()} {self.dtype.name}"


@dataclass(frozen=True, eq=False)
class LabelledPanel(WrappedSource):
    """A panel whose landmarks the user names."""

    given: Ints

    @property
    def landmarks(self) -> Ints:
        """Rows of the landmarks."""
        return self.given

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        self.source.read_rows(rows, columns, out)

    def in_memory(self) -> Rows | None:
        """Return all rows where they lie in memory, or None."""
        return self.source.in_memory()


def array_panel(values: Any, dtype: str = "float32", landmarks: Sequence[int] | Ints | None = None) -> ArrayTable:
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
    array = numbers_of(without_mask(values), "X")
    return ArrayTable(array, dtype, _checked(landmarks, table_shape(array, "X")))


def without_mask(values: Any) -> Any:
    """Take masked entries for what they mean, missing."""
    return np.ma.filled(values.astype(np.float64), np.nan) if is_masked(values) else values


def npy_panel(
    path: str | os.PathLike[str], dtype: str = "float32", landmarks: Sequence[int] | Ints | None = None
) -> NpyRows:
    """Open a ``.npy`` file with a table; parameters as in `array_panel`."""
    table = open_npy(path, dtype, table_shape)
    return replace(table, landmarks=_checked(landmarks, table.shape))


def labelled(panel: RowSource, landmarks: Sequence[int] | Ints | None) -> RowSource:
    """Add the rows of its landmarks to a panel that does not know them."""
    if landmarks is None:
        return panel
    return LabelledPanel(panel, check_landmarks(landmarks, *panel.shape))


def _checked(landmarks: Sequence[int] | Ints | None, shape: Sequence[int]) -> Ints | None:
    return None if landmarks is None else check_landmarks(landmarks, *shape)
