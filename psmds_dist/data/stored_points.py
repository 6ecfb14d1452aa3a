"""Points of a Dask array, computed once into a temporary Zarr array: distances read them many times."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from psmds_dist.core.arrays import fill
from psmds_dist.core.sources import WrappedSource
from psmds_dist.core.types import Floats, InputError

CHUNK_BYTES = 16_000_000
"""Features in a chunk of the array, about, which is what a task computes."""

Compute = Callable[[Any], object]
"""Computes a Dask collection."""


class _Folder:
    """A temporary directory, removed with the last source that reads it, or at the end of the process."""

    def __init__(self, scratch: str | os.PathLike[str] | None) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="psmds-", dir=scratch))
        except OSError as error:
            raise InputError(f"scratch={str(scratch)!r} cannot be written to: {error.strerror}.") from None
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class StoredPoints(WrappedSource):
    """Features in a temporary array, which stays as long as the source does where it was made."""

    folder: _Folder | None = field(default=None, repr=False)

    @property
    def location(self) -> None:
        """Nothing that is worth telling."""

    def __getstate__(self) -> object:
        """Pickle without the duty to keep the array."""
        return {**vars(self), "folder": None}


def is_dask(points: Any) -> bool:
    """Whether points are an array of Dask."""
    return type(points).__module__.startswith("dask.") and hasattr(points, "rechunk")


def store_points(
    points: Any,
    scratch: str | os.PathLike[str] | None = None,
    compute: Compute = lambda collection: collection.compute(),
    check: Callable[[str], object] = lambda folder: None,
) -> StoredPoints:
    """Compute a Dask array of shape (n, d), a piece at a time, and open it as a source.

    Parameters
    ----------
    points : dask.array.Array
        The features.
    scratch : path, optional
        Directory of the temporary array, shared by all machines that compute or read it.
    compute : callable
        Computes a collection; by default wherever Dask computes it.
    check : callable
        Refuses a directory that those who compute cannot write to.

    Raises
    ------
    InputError
        When it is no array of numbers of shape (n, d).
    """
    from psmds_dist.data.store import create_table, open_table

    n, width = _shape_of(points)
    rows = max(1, CHUNK_BYTES // (8 * width))
    folder = _Folder(scratch)
    check(str(folder.path))
    path = folder.path / "points.zarr"
    create_table(path, (n, width), rows)
    whole = points.rechunk((rows, width))
    ends = ((1,) * whole.numblocks[0], (1,))
    compute(whole.map_blocks(partial(_write, str(path), rows), dtype=bool, chunks=ends, meta=np.zeros((0, 0), bool)))
    return StoredPoints(open_table(path), folder)


def _write(path: str, rows: int, part: Any, block_id: tuple[int, int]) -> Any:
    """Write one chunk, where it is computed."""
    from psmds_dist.data.store import write_table

    features: Floats = np.empty(part.shape)
    fill(features, part)
    write_table(path, block_id[0] * rows, features)
    return np.zeros((1, 1), bool)


def _shape_of(points: Any) -> tuple[int, int]:
    shape = tuple(points.shape)
    if not all(length == length for length in shape):
        raise InputError("points are a Dask array of unknown shape: call its compute_chunk_sizes() first.")
    if len(shape) != 2 or 0 in shape:
        raise InputError(f"points are a Dask array of shape {shape}, but need shape (n, d).")
    if points.dtype.kind not in "fiub":
        raise InputError(f"points are a Dask array of {points.dtype}, but need floats or integers; convert it.")
    return int(shape[0]), int(shape[1])
