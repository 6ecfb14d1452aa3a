"""Dissimilarities between objects, such as strings, by a function of two of them, computed as rows are read."""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from psmds_dist.core.arrays import fill, is_frame
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.core.validation import require_size
from psmds_dist.data.formats import NPY, begins_with
from psmds_dist.data.functions import Function, PairError, PairMetric, metric_function
from psmds_dist.data.ids import check_ids, read_ids
from psmds_dist.data.points import require_points
from psmds_dist.data.readers.text import TextFile, as_text
from psmds_dist.data.sources import file_identity, load_npy
from psmds_dist.utils.pickling import PickledOnce
from psmds_dist.utils.text import escaped

SCRATCH_BYTES = 4_000_000
"""Float64 dissimilarities computed at a time before they are converted."""

SAMPLE = 4
"""Objects between which a metric is tried in both orders before anything is computed."""

SYMMETRY_TOL = 1e-6
"""Difference between the two orders of a pair, as a share of the dissimilarity, that counts as rounding."""

OBJECT_BYTES = 200
"""Memory of an object besides its content, about: headers, references, and its share of a pickle."""

Items = Any
"""A list of objects, or an array whose rows they are."""

Names = Sequence[str] | str | os.PathLike[str] | None


@dataclass(frozen=True)
class Lines:
    """Lines of a text file, or rows of a ``.npy`` file, which each process reads for itself."""

    path: str
    identity: str
    """That of the file when it was opened."""

    @property
    def items(self) -> Items:
        """All of them."""
        return _items_of(self)

    def changed(self) -> bool:
        """Whether the file has been written since it was opened; one that was removed has been read."""
        try:
            return file_identity(self.path) != self.identity
        except FileNotFoundError:
            return False


@lru_cache(maxsize=2)
def _items_of(file: Lines) -> Items:
    if begins_with(file.path, NPY):
        values = load_npy(file.path)
        require_points(values, file.path)
        return np.array(values)
    return read_strings(file.path)


def read_strings(path: str) -> list[str]:
    """Read a text file of one string a line.

    Raises
    ------
    InputError
        When a line is empty, or the file is not UTF-8.
    """
    lines = [as_text(line, path) for line in TextFile(path).lines()]
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        raise InputError(f"line {lines.index('') + 1} of {path} is empty; give one string per line.")
    return lines


@dataclass(frozen=True)
class InMemory:
    """Objects in the memory of this process, which are sent to others."""

    items: Items

    def changed(self) -> bool:
        """Whether they have changed, which cannot be known."""
        return False


@dataclass(frozen=True, eq=False)
class Objects(PickledOnce, RowSource):
    """Dissimilarities between objects by a function of two of them, computed as rows are read; see `open_objects`."""

    objects: Lines | InMemory
    metric: PairMetric
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    content_id: str
    location: str | None = None
    names: list[str] | None = None
    """Names that were given; strings name themselves."""

    @property
    def described(self) -> str:
        """What is compared, in words."""
        items = self.objects.items
        if isinstance(items, np.ndarray):
            return f"{self.n:,} rows of {' x '.join(map(str, items.shape[1:])) or 'one'} numbers"
        return f"{self.n:,} {'strings, one per line' if self.location else 'objects'}"

    @cached_property
    def ids(self) -> list[str] | None:
        """Names of the points: the strings themselves, if all are different, unless others were given."""
        return self.names if self.names is not None else _own_names(self.objects.items)

    @cached_property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: the objects, as pickled as well, and dissimilarities as they are computed."""
        return ReadProfile(scratch_bytes=_bytes_of(self.objects.items) + max(16 * self.n, 2 * SCRATCH_BYTES))

    def is_stale(self) -> bool:
        """Whether the file of the objects has changed since it was opened."""
        return self.objects.changed()

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.read_rows(np.arange(lo, hi), slice(0, self.n), out)

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        self.read_pairs(rows, np.arange(columns.start, columns.stop), out[: rows.size])

    def read_pairs(self, rows: Ints, columns: Ints, out: Rows) -> None:
        """Fill ``out`` with the entries between two lists of points, each pair once where the lists are equal."""
        if np.array_equal(rows, columns) and 8 * rows.size**2 <= SCRATCH_BYTES:
            some = self._some(rows)
            fill(out, self._computed(rows, columns, some, some))
            return
        others, step = self._some(columns), max(1, SCRATCH_BYTES // (8 * max(1, columns.size)))
        for first in range(0, rows.size, step):
            part = rows[first : first + step]
            fill(out[first : first + part.size], self._computed(part, columns, self._some(part), others))

    def _some(self, rows: Ints) -> Items:
        items = self.objects.items
        return items[rows] if isinstance(items, np.ndarray) else [items[row] for row in rows.tolist()]

    def _computed(self, rows: Ints, columns: Ints, some: Items, others: Items) -> Floats:
        """Dissimilarities between points, checked."""
        found = np.empty((rows.size, columns.size))
        try:
            self.metric.fill(some, others, found)
        except PairError as error:
            raise self._error(rows[error.i], columns[error.j], error.what) from error.__cause__
        if not (found.min(initial=0) >= 0 and found.max(initial=0) < np.inf):
            i, j = np.argwhere(~((found >= 0) & (found < np.inf)))[0]
            raise self._error(rows[i], columns[j], f"gives {found[i, j]:g}, but dissimilarities are zero or more")
        return found

    def _error(self, i: int, j: int, what: str) -> InputError:
        return InputError(f"metric {self.metric.name} {what} (for points {self._called(i)} and {self._called(j)}).")

    def _called(self, row: int) -> str:
        return f"{row}" if self.ids is None else f"{row}, {escaped(self.ids[row])[:40]!r},"


def open_objects(objects: Any, metric: Function | str, *, ids: Names = None, dtype: str = "float32") -> Objects:
    """Open the dissimilarities between objects by a function of two of them.

    They are computed as rows are read. `psmds_dist.build` computes each pair once and stores both orders; landmark mode
    computes those to landmarks only. A function that holds Python's global lock runs on one thread: use Dask workers.

    Parameters
    ----------
    objects : sequence, (n, d) array, or path
        What the function compares: strings, rows of an array, or anything that can be pickled. Of a file: the lines of
        a text file, which may be compressed, or the rows of a ``.npy`` file.
    metric : callable or str
        Symmetric function of two objects that returns a number of zero or more, and zero for equal objects; or its
        name, such as ``"rapidfuzz.distance.Levenshtein.distance"``. Functions of RapidFuzz run on all threads.
    ids : sequence of str or path, optional
        Names of the points, or a file of them; by default strings name themselves if all are different.
    dtype : {"float32", "float64"}
        Type of the dissimilarities to deliver; they are computed in float64.

    Returns
    -------
    Objects
        A `RowSource`, for `psmds_dist.build`, `PatternSearchMDS.fit` and `LandmarkMDS.fit`.

    Raises
    ------
    InputError
        When there is no such function, the objects cannot be read, or the function is no dissimilarity on a sample
        of them.

    Examples
    --------
    >>> from psmds_dist import open_objects
    >>> source = open_objects(["cat", "cart", "dog"], lambda a, b: abs(len(a) - len(b)))
    >>> source.take(source.layout.points([0]))
    array([[0., 1., 0.]], dtype=float32)
    """
    function = metric_function(metric)
    location = os.path.abspath(objects) if isinstance(objects, str | os.PathLike) else None
    held = InMemory(_sequence(objects)) if location is None else _file(location)
    n = len(held.items)
    require_size(n)
    known = _digest(held.items), function.identity
    content = f"{uuid.uuid4().hex}" if None in known else " ".join(map(str, known))
    names = _names(ids, n)
    content_id = f"objects {content} {dtype}"
    source = Objects(held, function, (n, n), np.dtype(dtype), content_id, location, names)
    require_dissimilarity(source)
    return source


def require_dissimilarity(source: Objects) -> None:
    """Refuse a metric that is not symmetric, or not zero between equal objects, in a sample.

    Raises
    ------
    InputError
        With the pair.
    """
    rows = np.unique(np.linspace(0, source.n - 1, SAMPLE).astype(np.int64))
    found: Rows = np.array([_one(source, i, j) for i in rows for j in rows]).reshape(rows.size, rows.size)
    k = int(found.diagonal().argmax())
    if found[k, k] > SYMMETRY_TOL * found.max():
        row = source._called(int(rows[k])).rstrip(",")
        raise InputError(
            f"metric {source.metric.name} gives {found[k, k]:g} between point {row} and itself, but a dissimilarity is "
            "zero there; if it is a similarity, choose the distance that belongs to it."
        )
    i, j = divmod(int(np.abs(found - found.T).argmax()), rows.size)
    if abs(found[i, j] - found[j, i]) > SYMMETRY_TOL * found.max():
        raise source._error(
            int(rows[i]),
            int(rows[j]),
            f"is not symmetric: it gives {found[i, j]:g} in one order and {found[j, i]:g} in the other; return the "
            "mean of both, which has the same best map",
        )


def _one(source: Objects, i: int, j: int) -> float:
    """One entry, computed in this order of its points; the diagonal is not taken for granted."""
    some, others = source._some(np.array([i])), source._some(np.array([j]))
    return float(source._computed(np.array([i]), np.array([j]), some, others)[0, 0])


def _file(path: str) -> Lines:
    try:
        return Lines(path, file_identity(path))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give a text file of one string per line, or a .npy file.") from None


def _sequence(objects: Any) -> Items:
    """Objects that can be indexed."""
    if is_frame(objects):
        objects = objects.to_numpy()
    if isinstance(objects, np.ndarray):
        if objects.ndim == 0:
            raise InputError("objects must be a sequence, or an array of shape (n, d), not a single value.")
        return objects if objects.dtype.kind in "fiub" else objects.tolist()
    try:
        return list(objects)
    except TypeError:
        raise InputError(f"objects must be a sequence or a path, not {type(objects).__name__}.") from None


def _names(ids: Names, n: int) -> list[str] | None:
    if ids is None:
        return None
    return read_ids(ids, n) if isinstance(ids, str | os.PathLike) else check_ids(ids, n)


def _own_names(items: Items) -> list[str] | None:
    """Strings that are all different, and not empty, as names."""
    named = not isinstance(items, np.ndarray) and all(isinstance(item, str) and item for item in items)
    return list(items) if named and len(set(items)) == len(items) else None


def _digest(items: Items) -> str | None:
    """Text that is equal for equal objects; None for those of which this is not known."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(items, np.ndarray):
        digest.update(f"{items.dtype.str} {items.shape} ".encode() + np.ascontiguousarray(items).tobytes())
    elif all(isinstance(item, str) for item in items):
        for item in items:
            digest.update(f"{len(item)} {item}".encode("utf-8", "surrogatepass"))
    else:
        return None
    return digest.hexdigest()


def _bytes_of(items: Items) -> int:
    """Memory of objects, with the pickle that they are sent in."""
    if isinstance(items, np.ndarray):
        return 2 * items.nbytes
    return sum(2 * (4 * len(item) if isinstance(item, str) else sys.getsizeof(item)) + OBJECT_BYTES for item in items)
