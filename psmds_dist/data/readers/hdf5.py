"""Matrices in HDF5 files: those of UniFrac and scikit-bio, pairs of AnnData's observations, and any data set."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from psmds_dist.core.arrays import MATRIX_NAMES, fill
from psmds_dist.core.errors import DamagedDataError, InputError
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Rows
from psmds_dist.data.readers.sparse import Compressed, SparseRows
from psmds_dist.data.sources import file_identity, matrix_shape
from psmds_dist.utils.extras import extra
from psmds_dist.utils.trial import fault_in

MAGIC = b"\x89HDF\r\n\x1a\n"

SEPARATOR = "::"
"""Between the path of a file and the name of a data set in it."""

LOOK_SECONDS = 20
"""Time of a processor in which it is known what a file holds; files of thousands of data sets take one or two."""

ORDER = "order"
"""Data set of the ids, in files of UniFrac and scikit-bio."""

PAIRS = "obsp"
"""Group of pairs of observations, in files of AnnData."""


@dataclass(frozen=True, eq=False)
class Hdf5Rows(RowSource):
    """Rows of a square data set in an HDF5 file; made by `open_hdf5`."""

    file: str
    name: str
    shape: tuple[int, int]
    identity: str
    dtype: np.dtype[Any]
    content_id: str
    read_profile: ReadProfile

    @property
    def location(self) -> str:
        """Path of the file, and name of the data set."""
        return f"{self.file}{SEPARATOR}{self.name}"

    @cached_property
    def _file(self) -> Any:
        return _opened(self.file)

    @cached_property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        with _damage_told(self.location):
            return _names(self._file, self.name, self.n)

    def __getstate__(self) -> object:
        """Pickle without what each process opens for itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_file", "ids")}

    def is_stale(self) -> bool:
        """Whether the file has been written since it was opened; one that was removed is read as it was."""
        return os.path.exists(self.file) and file_identity(self.file) != self.identity

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        with _damage_told(self.location):
            fill(out[: hi - lo], self._file[self.name][lo:hi])

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        with _damage_told(self.location):
            fill(out[: hi - lo], self._file[self.name][:, lo:hi].T)


class SparseHdf5Rows(SparseRows):
    """Rows of a sparse matrix in an HDF5 file."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        with _damage_told(self.location):
            super().read(lo, hi, out)


def open_hdf5(path: str, name: str | None, dtype: str) -> RowSource:
    """Open a matrix in an HDF5 file, dense, or sparse as AnnData has it.

    Parameters
    ----------
    path : str
        Absolute path of the file.
    name : str or None
        Name of the data set in it; by default the only matrix, or one that is called ``matrix`` or ``distances``.
    dtype : {"float32", "float64"}
        Type of the rows.

    Raises
    ------
    InputError
        When h5py is missing, or there is no such matrix.
    """
    extra("h5py", "hdf5", f"{path} is an HDF5 file, which")
    identity = file_identity(path)
    if fault := _fault(path, name or "", identity):
        raise DamagedDataError(f"{path} is damaged (in the HDF5 library {fault}); copy or write the file again.")
    return _open(path, name, dtype, identity)


def _open(path: str, name: str | None, dtype: str, identity: str) -> RowSource:
    file = _opened(path)
    with _damage_told(path):
        name = name.strip("/") if name else _only_matrix(file, path)
        if name not in file:
            raise InputError(f"{path} has no data set {name!r}, but {_listed(_matrices(file))}.")
        node = file[name]
        content = f"hdf5 {name} {identity} {dtype}"
        if _is_sparse(node):
            shape = tuple(int(length) for length in node.attrs["shape"])
            ids = _names(file, name, shape[0])
            load = partial(_compressed, path, name)
            return SparseHdf5Rows(load, (shape[0], shape[1]), f"{path}{SEPARATOR}{name}", np.dtype(dtype), content, ids)
        return Hdf5Rows(path, name, _shape(node, path, name), identity, np.dtype(dtype), content, _profile(node))


@lru_cache(maxsize=8)
def _fault(path: str, name: str, identity: str) -> str | None:
    """Why HDF5 would not come back from a damaged file: it may loop in one forever, or crash."""
    return fault_in(look_through, path, name, identity, seconds=LOOK_SECONDS)


def look_through(path: str, name: str, identity: str) -> None:
    """Open a matrix, its names, its first and last row, and the index of all chunks."""
    source = _open(path, name or None, "float32", identity)
    for lo in (0, source.n - 1):
        source.read(lo, lo + 1, np.empty((1, source.n), np.float32))
    list(source.ids or ())
    _opened(path).visititems(_count_chunks)


def _count_chunks(name: str, node: Any) -> None:
    if getattr(node, "chunks", None):
        node.id.get_num_chunks()


def _opened(path: str) -> Any:
    h5py = extra("h5py", "hdf5", f"{path} is an HDF5 file, which")
    with _damage_told(path):
        return h5py.File(path, "r")


def _shape(node: Any, path: str, name: str) -> tuple[int, int]:
    """Shape of a data set, or a refusal of one that is no square matrix."""
    if not hasattr(node, "dtype"):
        raise InputError(
            f"{path} has a group at {name!r}, not a data set; give one of {_listed(_matrices(node, name))}."
        )
    if len(node.shape) != 2:
        raise InputError(
            f"{path}{SEPARATOR}{name} has shape {node.shape}, but a dissimilarity matrix is square (n, n)."
        )
    return matrix_shape(np.broadcast_to(np.empty((), node.dtype), node.shape), f"{path}{SEPARATOR}{name}")


def _profile(node: Any) -> ReadProfile:
    """Cost of reading: rows as delivered and as stored; chunks are read whole."""
    copies = 1 + -(-node.dtype.itemsize // 4)
    return ReadProfile(max(1, min(node.chunks[0], node.shape[0])) if node.chunks else 1, read_copies=copies)


def _is_sparse(node: Any) -> bool:
    return not hasattr(node, "dtype") and {"data", "indices", "indptr"}.issubset(node) and "shape" in node.attrs


def _compressed(path: str, name: str) -> Compressed:
    group = _opened(path)[name]
    return Compressed(group["indptr"][:], group["indices"], group["data"])


def _matrices(group: Any, above: str = "") -> list[str]:
    """Names of all square data sets and sparse matrices in a group."""
    found: list[str] = []

    def look(name: str, node: Any) -> None:
        square = hasattr(node, "dtype") and len(node.shape) == 2 and node.shape[0] == node.shape[1] > 0
        if _is_sparse(node) or (square and node.dtype.kind in "fiu"):
            found.append(f"{above}/{name}".lstrip("/"))

    group.visititems(look)
    is_anndata = PAIRS in group and "obs" in group
    return [name for name in found if not is_anndata or name.startswith(f"{PAIRS}/")]


def _only_matrix(file: Any, path: str) -> str:
    """Name of the matrix that a file is about."""
    names = _matrices(file)
    likely = [name for name in names if name.rpartition("/")[2] in MATRIX_NAMES]
    chosen = likely if len(likely) == 1 else names
    if len(chosen) != 1:
        raise InputError(
            f"{path} has {_listed(names)}; give the name of one, such as {path}{SEPARATOR}{(names or ['NAME'])[0]}."
        )
    return chosen[0]


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "no square matrix"
    return f"the matrices {', '.join(map(repr, names[:5]))}" + ", ..." * (len(names) > 5)


def _names(file: Any, name: str, n: int) -> list[str] | None:
    """Names of points: beside a matrix of UniFrac or scikit-bio, and the index of the observations of AnnData."""
    above = name.rpartition("/")[0]
    place = f"{above}/{ORDER}".lstrip("/")
    if above == PAIRS and "obs" in file:
        place = f"obs/{file['obs'].attrs.get('_index', '_index')}"
    if place not in file or not hasattr(file[place], "dtype") or file[place].shape != (n,):
        return None
    values = file[place][:].tolist()
    return [value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values]


@contextmanager
def _damage_told(where: str) -> Iterator[None]:
    """Turn what h5py ends in into a sentence."""
    try:
        yield
    except (InputError, FileNotFoundError, PermissionError):
        raise
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DamagedDataError(f"{where} is damaged or cut short ({reason}); copy or write the file again.") from None
