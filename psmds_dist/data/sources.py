"""Row sources of arrays in memory and of ``.npy`` files, whole or condensed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill, numbers_of
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import InputError, Ints, Rows
from psmds_dist.data.formats import NPY, begins_with, other_format

GATHER_BYTES = 4_000_000
"""Scratch for gathering entries that do not lie side by side."""

GATHERED_ROWS = 32
"""Rows of a table that are gathered at a time."""

CONVERTED_BYTES = 2**22
"""Bytes of a matrix that is converted at once rather than block by block: too few for a plan of memory to notice."""

NOT_NUMBERS = {
    "O": " (Python objects, None among them perhaps)",
    "U": " (text)",
    "S": " (text)",
    "c": " (Complex data not supported)",  # in the words that scikit-learn's checks look for
}
"""What messages add to a type that is no real number, by its kind."""

Numbers = NDArray[Any]
ShapeOf = Callable[[Numbers, str], tuple[int, int]]
"""Shape of the rows that an array stands for; refuses, by the name in messages, what stands for none."""


def points_of_condensed(length: int, where: str) -> int:
    """Return ``n`` for a condensed matrix of ``n (n - 1) / 2`` entries."""
    n = (1 + int(np.sqrt(1 + 8 * length))) // 2
    if n * (n - 1) // 2 != length:
        raise InputError(
            f"{where} is 1-D with {length} entries, but SciPy's condensed form of n points has "
            "n (n - 1) / 2; give a square matrix, or the output of scipy.spatial.distance.pdist."
        )
    return n


def require_numeric(values: Numbers, where: str) -> Numbers:
    """Refuse entries that are no real numbers."""
    if values.dtype.kind not in "fiu":
        words = NOT_NUMBERS.get(values.dtype.kind, "")
        how = ", for example with numpy.asarray(x, dtype=float)" * (values.dtype.kind in "OUS")
        raise InputError(f"{where} holds {values.dtype}{words}, but needs floats or integers; convert it{how}.")
    return values


def matrix_shape(values: Numbers, where: str) -> tuple[int, int]:
    """Return ``(n, n)`` for a square or condensed matrix, or refuse what is neither."""
    require_numeric(values, where)
    if values.ndim == 1:
        n = points_of_condensed(values.size, where)
        return n, n
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InputError(
            f"{where} has shape {values.shape}, but a dissimilarity matrix is square (n, n) or condensed "
            "(n (n - 1) / 2,); for points use `psmds distances`, for distances to landmarks `psmds landmarks fit`."
        )
    return int(values.shape[0]), int(values.shape[1])


def fill_rows(values: Numbers, n: int, lo: int, hi: int, out: Rows) -> None:
    """Copy rows ``lo`` to ``hi`` of a table, or of a condensed matrix of ``n`` points."""
    if values.ndim == 2:
        fill(out[: hi - lo], values[lo:hi])
    else:
        _fill_condensed(values, n, lo, hi, out)


def fill_some(values: Numbers, rows: Ints, columns: slice, out: Rows) -> None:
    """Copy some rows of a table, in some columns; a gathered copy of all of them is never made."""
    for lo in range(0, rows.size, GATHERED_ROWS):
        some = rows[lo : lo + GATHERED_ROWS]
        fill(out[lo : lo + some.size], values[some, columns])


def _fill_condensed(values: Numbers, n: int, lo: int, hi: int, out: Rows) -> None:
    """Copy from SciPy's condensed form, in which a row is contiguous right of the diagonal."""
    for i in range(lo, hi):
        start = _condensed_start(n, i)
        out[i - lo, i] = 0
        fill(out[i - lo, i + 1 :], values[start + i + 1 : start + n])
    within = out[: hi - lo, lo:hi]
    within[np.tril_indices(hi - lo, -1)] = within.T[np.tril_indices(hi - lo, -1)]
    step = max(1, GATHER_BYTES // (8 * (hi - lo)))
    for first in range(0, lo, step):
        above = np.arange(first, min(first + step, lo))
        places = _condensed_start(n, above)[:, None] + np.arange(lo, hi)
        fill(out[: hi - lo, above[0] : above[-1] + 1], values[places].T)


def _condensed_start(n: int, i: Any) -> Any:
    """Place of entry ``(i, 0)``, were it stored; ``(i, j)`` is ``j`` further."""
    return i * n - i * (i + 1) // 2 - i - 1


def load_npy(path: str) -> Numbers:
    """Map a ``.npy`` file into memory; unpickling is never allowed."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give a .npy file.") from None
    except Exception as error:  # NumPy evaluates the header, which can end in anything where that is damaged
        if not begins_with(path, NPY) or "object" in str(error).lower():  # NumPy would advise to unpickle them
            raise other_format(path) from None
        raise DamagedDataError(f"{path} is a damaged .npy file ({error}); write it anew with numpy.save.") from None
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    values.close()
    raise other_format(path)


def file_identity(path: str) -> str:
    """Return text that changes when the file does."""
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True)
class MappedFile:
    """A file that an array is mapped from, as it was when the array came."""

    path: str
    inode: int
    identity: str

    @classmethod
    def of(cls, path: str) -> MappedFile:
        """Look at a file."""
        return cls(path, os.stat(path).st_ino, file_identity(path))

    def changed(self) -> bool:
        """Whether it has been written to since; one that is gone, or gave way to another, is mapped as it was."""
        try:
            return os.stat(self.path).st_ino == self.inode and file_identity(self.path) != self.identity
        except FileNotFoundError:
            return False


def mapped_file(values: Numbers) -> MappedFile | None:
    """File that an array is mapped from to be read; where its owner may write as well, the file's time tells late."""
    owner: Any = values
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    if not isinstance(owner, np.memmap) or owner.filename is None or owner.mode not in ("r", "c"):
        return None
    try:
        return MappedFile.of(os.path.abspath(owner.filename))
    except OSError:  # it is gone already
        return None


class NpyFile:
    """A ``.npy`` file that is opened and mapped once by each process that reads it.

    Pages are given back after each read, so that they do not count as memory of the process. A file that was replaced
    is read as it was; one that was written to is mapped anew, since a read beyond the end of a file that was cut short
    would kill the process.

    Parameters
    ----------
    path : str
        Absolute path of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._values: Numbers | None = None
        self._opened: MappedFile | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path alone: each process maps the file for itself."""
        return NpyFile, (self.path,)

    def mapped(self) -> Numbers:
        """Array of the file, none of it read."""
        if self._values is None or (self._opened is not None and self._opened.changed()):
            self._values = load_npy(self.path)
            self._opened = mapped_file(self._values)
        return self._values

    @contextmanager
    def reading(self) -> Iterator[Numbers]:
        """Yield the array to read from; copy what is to stay, since its pages are given back afterwards."""
        values = self.mapped()
        try:
            yield values
        finally:
            _mapping(values).madvise(mmap.MADV_DONTNEED)


def _mapping(values: Numbers) -> mmap.mmap:
    """Mapping that an array from `load_npy` lies in."""
    owner: Any = values
    while not isinstance(owner, mmap.mmap):
        owner = owner.base
    return owner


@dataclass(frozen=True, eq=False)
class NpyRows(RowSource):
    """Rows of a ``.npy`` file with a matrix, SciPy's condensed form of one, or a table; made by `open_npy`."""

    path: str
    shape: tuple[int, int]
    identity: str
    """That of the file when it was opened."""

    scattered: bool
    """Whether a row lies scattered over the file: many rows at once then share its pages."""

    dtype: np.dtype[Any]
    content_id: str
    landmarks: Ints | None = None

    @property
    def location(self) -> str:
        """Path of the file."""
        return self.path

    @cached_property
    def _file(self) -> NpyFile:
        return NpyFile(self.path)

    @cached_property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: rows as delivered and as they are mapped, and about a page for each entry of a row."""
        copies = 1 + -(-self._file.mapped().dtype.itemsize // self.dtype.itemsize)
        if not self.scattered:
            return ReadProfile(read_copies=copies)
        return ReadProfile(self.n, min(os.stat(self.path).st_size, self.shape[1] * mmap.PAGESIZE), copies)

    def is_stale(self) -> bool:
        """Whether the file has been written since it was opened; one that was removed is mapped as it was."""
        try:
            return file_identity(self.path) != self.identity
        except FileNotFoundError:
            return False

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        with self._file.reading() as values:
            fill_rows(values, self.n, lo, hi, out)

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        with self._file.reading() as values:
            if values.ndim == 2:
                fill_some(values, rows, columns, out)
                return
        super().read_rows(rows, columns, out)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        with self._file.reading() as values:
            fill_rows(values.T, self.n, lo, hi, out)


def open_npy(path: str | os.PathLike[str], dtype: str = "float32", shape_of: ShapeOf = matrix_shape) -> NpyRows:
    """Open a ``.npy`` file as a matrix, 2-D and square or 1-D and condensed, or as what else has a shape."""
    place = os.path.abspath(path)
    values = load_npy(place)
    shape, identity = shape_of(values, place), file_identity(place)
    scattered = values.ndim == 1 or not values.flags.c_contiguous
    return NpyRows(place, shape, identity, scattered, np.dtype(dtype), f"npy {identity} {dtype}")


class ArrayRows(RowSource):
    """Rows of an array in this process: a square or condensed matrix.

    Parameters
    ----------
    values : array_like, data frame or distance matrix
        Real numbers.
    dtype : {"float32", "float64"}
        Type of the rows to deliver.
    landmarks : (n_landmarks,) int64 array, optional
        Rows that the columns of a panel belong to.
    """

    shape: tuple[int, int]
    landmarks: Ints | None

    def __init__(self, values: Any, dtype: str = "float32", landmarks: Ints | None = None) -> None:
        self.values = numbers_of(values, "the array")
        self.shape = self._find_shape()
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.landmarks = landmarks
        self._file = mapped_file(self.values)

    def _find_shape(self) -> tuple[int, int]:
        return matrix_shape(self.values, "the array")

    def is_stale(self) -> bool:
        """Whether the array is mapped from a file that has been written to."""
        return self._file is not None and self._file.changed()

    def in_memory(self) -> Rows | None:
        """Return the array itself, when its rows can be used as they lie."""
        values = self.values
        usable = values.ndim == 2 and values.dtype == self.dtype and values.flags.c_contiguous
        return values if usable else None

    def converted(self) -> ArrayRows:
        """Return a source of converted rows, where these are few; else the source itself."""
        n, width = self.shape
        few = n == width and n * width * self.dtype.itemsize <= CONVERTED_BYTES
        if not few or self._file is not None or self.in_memory() is not None:
            return self
        rows: Rows = np.empty(self.shape, self.dtype)
        self.read(0, self.n, rows)
        return ArrayRows(rows, self.dtype.name, self.landmarks)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        fill_rows(self.values, self.n, lo, hi, out)

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        if self.values.ndim == 2:
            fill_some(self.values, rows, columns, out)
        else:
            super().read_rows(rows, columns, out)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        fill_rows(self.values.T, self.n, lo, hi, out)
