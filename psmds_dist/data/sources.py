"""Sources of rows: matrices in files and in memory, and what can be done to their rows on the way."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill, numbers_of
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import InputError, Rows, RowSource
from psmds_dist.data.cache import testing_checksums, written_to
from psmds_dist.data.formats import NPY, ZIP, begins_with, other_format

if TYPE_CHECKING:
    from psmds_dist.data.store import ZarrRows

GATHER_BYTES = 4_000_000
"""Scratch for gathering entries that do not lie side by side."""

NOT_NUMBERS = {
    "O": " (Python objects, None among them perhaps)",
    "U": " (text)",
    "S": " (text)",
    "c": " (Complex data not supported)",  # in the words that scikit-learn's checks look for
}
"""What messages add to a type that is no real number, by its kind."""

Numbers = NDArray[Any]


class ColumnSource(RowSource, Protocol):
    """A source that can be read along columns as well."""

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""


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


def matrix_size(values: Numbers, where: str) -> int:
    """Return ``n`` for a square or condensed matrix."""
    require_numeric(values, where)
    if values.ndim == 1:
        return points_of_condensed(values.size, where)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InputError(
            f"{where} has shape {values.shape}, but a dissimilarity matrix is square (n, n) or condensed "
            "(n (n - 1) / 2,); for points use `psmds distances`, for distances to landmarks `psmds landmarks fit`."
        )
    return int(values.shape[0])


def fill_rows(values: Numbers, n: int, lo: int, hi: int, out: Rows) -> None:
    """Copy rows ``lo`` to ``hi`` of a square or condensed matrix."""
    if values.ndim == 2:
        fill(out[: hi - lo], values[lo:hi])
    else:
        _fill_condensed(values, n, lo, hi, out)


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


def differs(path: str, token: str) -> bool:
    """Whether the file at ``path`` is another one than that in ``token``; one that was removed is mapped as it was."""
    try:
        return file_identity(path) not in token
    except FileNotFoundError:
        return False


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
    while owner is not None and not isinstance(owner, np.memmap):
        owner = getattr(owner, "base", None)
    if owner is None or owner.filename is None or owner.mode not in ("r", "c"):
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


@dataclass(frozen=True)
class NpyMatrix:
    """A ``.npy`` file with a square matrix, or SciPy's condensed form of one."""

    path: str
    n: int
    dtype: np.dtype[Any]
    token: str
    band: int
    """All rows where a row lies scattered over the file: many at once then share its pages."""

    @cached_property
    def _file(self) -> NpyFile:
        return NpyFile(self.path)

    @property
    def copies(self) -> int:
        """Rows as delivered, and as they are mapped."""
        return 1 + -(-self._file.mapped().dtype.itemsize // self.dtype.itemsize)

    @property
    def scratch(self) -> int:
        """Pages that are mapped beside the rows where those lie scattered: about one for each entry of a row."""
        return 0 if self.band == 1 else min(os.stat(self.path).st_size, self.n * mmap.PAGESIZE)

    def changed(self) -> bool:
        """Whether the file has been written since it was opened."""
        return differs(self.path, self.token)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        with self._file.reading() as values:
            fill_rows(values, self.n, lo, hi, out)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        with self._file.reading() as values:
            fill_rows(values.T, self.n, lo, hi, out)


def open_npy(path: str | os.PathLike[str], dtype: str = "float32") -> NpyMatrix:
    """Open a ``.npy`` file as a matrix: 2-D is square, 1-D is condensed."""
    place = os.path.abspath(path)
    values = load_npy(place)
    n = matrix_size(values, place)
    rows_lie_together = values.ndim == 2 and values.flags.c_contiguous
    token = f"npy {file_identity(place)} {dtype}"
    return NpyMatrix(place, n, np.dtype(dtype), token, 1 if rows_lie_together else n)


def open_matrix(path: Any, dtype: str | None = None) -> NpyMatrix | ZarrRows:
    """Open a matrix where it lies: a ``.npy`` file, or a store of ours or another Zarr array.

    Parameters
    ----------
    path : path, URL or zarr.Array
        A file that is no ``.zip`` archive with a Zarr store in it is taken for a ``.npy`` file.
    dtype : {"float32", "float64"}, optional
        Type of the rows to deliver; by default float32, except that our stores deliver what they hold.
    """
    from psmds_dist.data.store import open_rows  # late: needs Zarr

    is_file = isinstance(path, str | os.PathLike) and os.path.isfile(path) and not begins_with(path, ZIP)
    return open_npy(path, dtype or "float32") if is_file else open_rows(path, dtype)


class ArrayRows:
    """Rows of an array in this process, square or condensed, or of a data frame or distance matrix."""

    band = 1

    def __init__(self, values: Any, dtype: str = "float32") -> None:
        self.values = numbers_of(values, "the array")
        self.n = matrix_size(self.values, "the array")
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.token = f"array {uuid.uuid4().hex} {dtype}"
        self._file = mapped_file(self.values)

    def changed(self) -> bool:
        """Whether the array is mapped from a file that has been written to."""
        return self._file is not None and self._file.changed()

    @property
    def resident(self) -> Rows | None:
        """The array itself, when its rows can be used as they lie."""
        values = self.values
        usable = values.ndim == 2 and values.dtype == self.dtype and values.flags.c_contiguous
        return values if usable else None

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        fill_rows(self.values, self.n, lo, hi, out)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        fill_rows(self.values.T, self.n, lo, hi, out)


@dataclass(frozen=True)
class _Changed:
    """Rows of a source, changed on the way."""

    source: RowSource

    @property
    def n(self) -> int:
        """Number of points."""
        return self.source.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.source.dtype

    @property
    def band(self) -> int:
        """Rows that are best read together."""
        return self.source.band

    @property
    def scratch(self) -> int:
        """Bytes that a read takes beside its target."""
        return int(getattr(self.source, "scratch", 0))

    @property
    def copies(self) -> int:
        """How many times over a read holds its rows."""
        return int(getattr(self.source, "copies", 1))

    @property
    def token(self) -> str:
        """Identity of the content."""
        return f"{type(self).__name__} {self.source.token}"

    def changed(self) -> bool:
        """Whether the source has been written to since it was opened."""
        return written_to(self.source)

    def with_checksums(self) -> Self:
        """Return the same rows, read from a source that tests its checksums where it has any."""
        return replace(self, source=testing_checksums(self.source))


@dataclass(frozen=True)
class _WithColumns(_Changed):
    """Rows made of those of a source and the columns of the same index."""

    source: ColumnSource

    @property
    def band(self) -> int:
        """All rows: the more columns are read at once, the fewer passes over the storage."""
        return self.n

    @property
    def copies(self) -> int:
        """Rows, the columns that belong to them, and these as they come."""
        return 3

    def read_both(self, lo: int, hi: int, out: Rows) -> tuple[Rows, Rows]:
        """Fill ``out`` with rows ``lo`` to ``hi``, and return them with the columns of the same index as rows."""
        rows = out[: hi - lo]
        columns = np.empty_like(rows)
        self.source.read(lo, hi, rows)
        self.source.read_columns(lo, hi, columns)
        return rows, columns


def mean_of_orders(rows: Rows, columns: Rows) -> None:
    """Turn entries into the mean of them and their mirror images, which are overwritten.

    Where one of the two is negative it stays, for the check to tell: a mean with the other would hide it.
    """
    lost = None
    if not (rows.min(initial=0) >= 0 and columns.min(initial=0) >= 0):
        lowest, highest = np.minimum(rows, columns), np.maximum(rows, columns)
        lost = np.where(lowest < -1e-5 * highest, lowest, np.nan)  # others are rounded zeros
    rows *= 0.5  # before the sum, which might overflow
    columns *= 0.5
    rows += columns
    if lost is not None:
        np.copyto(rows, lost, where=~np.isnan(lost))


class Symmetrized(_WithColumns):
    """The mean of both orders of every pair; a map fits it best where it fits both orders best."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        mean_of_orders(*self.read_both(lo, hi, out))


TRIANGLES = ("upper", "lower", "auto")
"""What `build` takes for its argument ``triangle``."""


@dataclass(frozen=True)
class OneTriangle(_WithColumns):
    """The entries of one triangle on both sides of the diagonal."""

    side: str
    """``"upper"`` or ``"lower"``."""

    @property
    def token(self) -> str:
        """Identity of the content."""
        return f"{self.side} {super().token}"

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        rows, columns = self.read_both(lo, hi, out)
        for i, row, column in zip(range(lo, hi), rows, columns, strict=True):
            empty = slice(0, i) if self.side == "upper" else slice(i + 1, None)
            row[empty] = column[empty]


@dataclass(frozen=True)
class ZeroDiagonal(_Changed):
    """Rows with the diagonal set to zero."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.source.read(lo, hi, out)
        out[np.arange(hi - lo), np.arange(lo, hi)] = 0
