"""Matrices in ``.npz`` archives: arrays that numpy.savez wrote, and sparse matrices of SciPy."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from psmds_dist.core.arrays import MATRIX_NAMES
from psmds_dist.core.errors import DamagedDataError, InputError, StorageError
from psmds_dist.core.sources import RowSource
from psmds_dist.data.readers.sparse import Compressed, SparseRows
from psmds_dist.data.readers.unpacked import unpack_array
from psmds_dist.data.sources import file_identity

NAMES = ("ids", "order", "names", "labels")
"""Likely names of the ids among several arrays."""


_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, TypeError, LookupError, SyntaxError),
    *(OSError, RuntimeError, NotImplementedError, MemoryError),
)
"""What zipfile and NumPy end in when headers are not what they expect."""


def arrays_in(path: str) -> list[str]:
    """Names of the arrays in an archive; none for other files."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _DAMAGE:
        return []
    return [name.removesuffix(".npy") for name in names if name.endswith(".npy") and "/" not in name]


def open_npz(path: str, name: str | None, dtype: str) -> RowSource:
    """Open a matrix in an ``.npz`` archive: an array, square or condensed, or a sparse matrix of SciPy.

    An array is copied into a temporary file, since parts of it cannot be read where it is.

    Parameters
    ----------
    path : str
        Absolute path of the archive.
    name : str or None
        Name of the array; by default the only one, or one that is called ``matrix`` or ``distances``.
    dtype : {"float32", "float64"}
        Type of the rows.

    Raises
    ------
    InputError
        When there is no such array.
    """
    names, identity = arrays_in(path), file_identity(path)
    if name is None and {"format", "shape", "data"}.issubset(names):  # of scipy.sparse.save_npz
        with _damage_told(path):
            shape = tuple(_array(path, "shape").tolist())
        load, content = partial(_compressed, path), f"sparse {identity} {dtype}"
        return SparseRows(load, (int(shape[0]), int(shape[1])), path, np.dtype(dtype), content)
    chosen = _chosen(path, names, name)
    content, where = f"npz {chosen} {identity} {dtype}", f"{path}::{chosen}"
    with _damage_told(path), zipfile.ZipFile(path) as archive:
        ids = _ids(path, [key for key in names if key != chosen])
        size = archive.getinfo(f"{chosen}.npy").file_size
        with archive.open(f"{chosen}.npy") as member:
            return unpack_array(member, size, where, dtype, content, ids)


def _chosen(path: str, names: list[str], name: str | None) -> str:
    """Name of the array that is meant."""
    if name is not None:
        if name not in names:
            raise InputError(f"{path} has no array {name!r}, but {', '.join(map(repr, names[:5]))}.")
        return name
    if not names:
        raise InputError(f"{path} is no .npz archive with arrays; leave --format out, or check the path.")
    likely = [key for key in names if key in MATRIX_NAMES] or [key for key in names if key not in NAMES]
    if len(likely) != 1:
        listed = ", ".join(map(repr, names[:5]))
        raise InputError(f"{path} has the arrays {listed}; give the name of one, such as {path}::{names[0]}.")
    return likely[0]


def _ids(path: str, names: list[str]) -> list[str] | None:
    """Names of the points, if an array beside the matrix holds text."""
    _require_directory(path)
    key = next((key for key in NAMES if key in names), None)
    values = None if key is None else _array(path, key)
    if values is None or values.ndim != 1 or values.dtype.kind not in "SU":
        return None
    return [str(value) for value in (np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values)]


def _require_directory(path: str) -> None:
    """Refuse a directory that is not that of the members: a damaged one hides names in silence."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            archive.open(member).close()  # compares both of its names
            if member.comment:  # NumPy writes none: it is the rest of the directory
                raise zipfile.BadZipFile(f"the directory ends within {member.filename}")


def _array(path: str, name: str) -> Any:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[name]


def _compressed(path: str) -> Compressed:
    from scipy import sparse

    with _damage_told(path):
        rows = sparse.csr_array(sparse.load_npz(path))
    return Compressed(rows.indptr, rows.indices, rows.data)


@contextmanager
def _damage_told(path: str) -> Iterator[None]:
    """Turn what damaged archives end in into a sentence."""
    try:
        yield
    except (InputError, StorageError):
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise DamagedDataError(f"{path} is damaged or cut short ({reason}); write it again.") from None
