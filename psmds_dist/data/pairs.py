"""Lists of known pairs: a line, or an entry of three columns, for each pair of points; all other pairs are missing."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import is_frame
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.data.ids import check_ids
from psmds_dist.data.readers.cells import MISSING
from psmds_dist.data.readers.text import TextFile, as_text


class PairList(NamedTuple):
    """Pairs by the numbers of their points.

    Attributes
    ----------
    i, j : (k,) array
        Points of each pair.
    t : (k,) array
        Their dissimilarity.
    ids : list of str or None
        Names of all points.
    n : int
        Number of points.
    """

    i: Ints
    j: Ints
    t: Floats
    ids: list[str] | None
    n: int


@dataclass(frozen=True, eq=False)
class PairRows(RowSource):
    """Rows of a matrix of which some pairs are known: NaN elsewhere, zero on the diagonal; made by `open_pairs`."""

    known: Any
    """Known entries, as a sparse array in compressed rows."""

    dtype: np.dtype[Any]
    ids: list[str] | None = None
    location: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, twice."""
        n = int(self.known.shape[0])
        return n, n

    @property
    def known_pairs(self) -> int:
        """Number of pairs of two points of which at least one order is known."""
        i, j = self.known.tocoo().coords
        return int(np.count_nonzero(i < j))

    @cached_property
    def content_id(self) -> str:
        """Identity of the content."""
        parts = (self.known.indptr, self.known.indices, self.known.data)
        digest = hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16)
        return f"pairs {digest.hexdigest()} {self.dtype.name}"

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        _spread(self.known, lo, hi, out)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        _spread(self._transposed, lo, hi, out)

    @cached_property
    def _transposed(self) -> Any:
        return self.known.T.tocsr()


def _spread(known: Any, lo: int, hi: int, out: Rows) -> None:
    """Write sparse rows into full ones."""
    rows = out[: hi - lo]
    rows[:] = np.nan
    rows[np.arange(hi - lo), np.arange(lo, hi)] = 0
    there = slice(known.indptr[lo], known.indptr[hi])
    row = np.repeat(np.arange(hi - lo), np.diff(known.indptr[lo : hi + 1]))
    rows[row, known.indices[there]] = known.data[there]


def open_pairs(pairs: Any, *, ids: Sequence[str] | None = None, dtype: str = "float32") -> PairRows:
    """Open a list of known pairs as a matrix in which all other pairs are missing.

    Parameters
    ----------
    pairs : path, data frame, (i, j, t) of three arrays, or sparse array of SciPy
        Two points and their dissimilarity a line, in any order of the points: a text file with columns separated by
        tabs, commas, semicolons or blanks, where a heading and lines that begin with # are skipped; or three columns in
        memory. Points are called by names or whole numbers. In a sparse array, every stored entry is known.
    ids : sequence of str, optional
        Names of all points, in the order of the rows. By default names are in the order in which they appear, and
        whole numbers ascend.
    dtype : {"float32", "float64"}
        Type of the rows.

    Returns
    -------
    PairRows
        Square matrix with NaN for pairs that are not listed, for `PatternSearchMDS.fit` and `build`. A pair that is
        listed once counts in both orders.

    Raises
    ------
    InputError
        When the list cannot be read, names an unknown point, or gives a pair two values.

    Examples
    --------
    >>> from psmds_dist import open_pairs
    >>> rows = open_pairs((["a", "a", "b"], ["b", "c", "d"], [1.0, 2.0, 1.5]))
    >>> rows.ids
    ['a', 'b', 'c', 'd']
    """
    if hasattr(pairs, "tocoo"):
        found, where = _of_sparse(pairs, ids), None
    elif isinstance(pairs, str | os.PathLike):
        found, where = _named(*_of_file(pairs), ids, os.fspath(pairs)), os.path.abspath(pairs)
    else:
        found, where = _named(*_of_columns(pairs), ids, "the list of pairs"), None
    return rows_of_pairs(found, dtype, where)


def rows_of_pairs(pairs: PairList, dtype: str, location: str | None = None) -> PairRows:
    """Return the matrix of listed pairs, with both orders of those that are listed in one."""
    return PairRows(_table(pairs, np.dtype(dtype)), np.dtype(dtype), pairs.ids, location)


def _of_sparse(matrix: Any, ids: Sequence[str] | None) -> PairList:
    n = matrix.shape[0]
    if matrix.shape != (n, n):
        raise InputError(f"the sparse array has shape {matrix.shape}, but pairs of points need a square one.")
    entries = matrix.tocoo()
    i, j = (np.asarray(axis, np.int64) for axis in (entries.row, entries.col))
    return PairList(i, j, np.asarray(entries.data, np.float64), None if ids is None else check_ids(ids, n), n)


def _of_columns(pairs: Any) -> tuple[list[str], list[str], Floats]:
    columns = [pairs[name] for name in pairs.columns] if is_frame(pairs) else list(pairs)
    if len(columns) != 3 or len({len(column) for column in columns}) != 1:
        raise InputError(
            f"the list of pairs has {len(columns)} columns of lengths {[len(column) for column in columns]}, but needs "
            "three of equal length: a point, another, and their dissimilarity."
        )
    try:
        t = np.asarray(columns[2], np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"the third column of the list of pairs must be numbers ({error}).") from None
    return list(map(str, columns[0])), list(map(str, columns[1])), t


def _of_file(path: str | os.PathLike[str]) -> tuple[list[str], list[str], Floats]:
    """Columns of a text file."""
    place = os.path.abspath(path)
    first, second, t = [], [], array("d")
    same: dict[str, str] = {}  # one string for all lines that name a point
    heading: list[str] = []
    try:
        for i, j, value in _lines(place, heading):
            first.append(same.setdefault(i, i))
            second.append(same.setdefault(j, j))
            t.append(value)
    except FileNotFoundError:
        raise InputError(f"the list of pairs {place} does not exist; give a text file of three columns.") from None
    if not same.keys().isdisjoint(heading[:2]):
        raise InputError(
            f"{place} begins with {', '.join(map(repr, heading))}, which names points and no number; correct it, or "
            "remove it."
        )
    return first, second, np.frombuffer(t, np.float64) if t else np.empty(0)


def _lines(path: str, head: list[str]) -> Iterator[tuple[str, str, float]]:
    """Pairs of a text file, line by line; the cells of a heading are added to ``head``."""
    separator = decimal = ""
    for line in TextFile(path).lines():
        text = as_text(line, path)
        if not text.strip() or text.startswith("#"):
            continue
        heading = not separator
        separator = separator or _separator(text)
        cells = _cells(text, separator)
        decimal = decimal or decimal_mark(cells[2:], separator)
        value = cell_number(cells[2], decimal) if len(cells) == 3 else None
        if value is not None:
            yield cells[0].strip(), cells[1].strip(), value
        elif not (heading and len(cells) == 3 and not _BEGINS_LIKE_A_NUMBER.match(cells[2])):
            raise InputError(
                f"line {line.number} of {path} is {text!r}, but needs two points and their dissimilarity, in three "
                f"columns separated by {separator!r}{', with decimal commas' * (decimal == ',')}."
            )
        else:
            decimal = ""
            head.extend(cell.strip() for cell in cells)


def _separator(text: str) -> str:
    """What divides a line into three columns, or else is most frequent; names may hold blanks and commas."""
    three = (mark for mark in "\t;, " if len(_cells(text, mark)) == 3)
    return next(three, None) or max("\t,; ", key=text.count)


def _cells(text: str, separator: str) -> list[str]:
    try:
        [cells] = csv.reader([text.strip(" ")], delimiter=separator, skipinitialspace=True, strict=True)
    except csv.Error:  # a quote that is not closed, or not where a cell ends
        return [text]
    return cells


_BEGINS_LIKE_A_NUMBER = re.compile(r"\s*[-+]?[.,]?\d")
"""What a heading does not do; a number with a mistake is not passed over as one."""


def decimal_mark(cells: Iterable[str], separator: str) -> str:
    """Return the first decimal mark in some cells, ``""`` if there is none; a comma is none where it separates."""
    return "." if separator == "," else next((mark for cell in cells for mark in cell if mark in ".,"), "")


def cell_number(cell: str, decimal: str) -> float | None:
    """Number in a cell, NaN where it is missing; None where there is none, or its decimal mark is another one."""
    if cell.strip() in MISSING:
        return float("nan")
    with suppress(ValueError):
        return float(cell.translate(_SWAPPED) if decimal == "," else cell) if "_" not in cell else None
    return None


_SWAPPED = str.maketrans(".,", ",.")


def _named(first: list[str], second: list[str], t: Floats, ids: Sequence[str] | None, where: str) -> PairList:
    """Number the points that pairs name."""
    if not first:
        raise InputError(f"{where} has no pairs; give two points and their dissimilarity a line.")
    names = _order(dict.fromkeys(name for pair in zip(first, second, strict=True) for name in pair))
    if ids is not None:
        names, named = check_ids(ids, len(ids)), names
        unknown = sorted(set(named) - set(names))
        if unknown:
            raise InputError(f"{where} names the point {unknown[0]!r}, which is not among the {len(names)} ids.")
    row = {name: k for k, name in enumerate(check_ids(names, len(names), where))}
    i, j = (np.fromiter((row[name] for name in side), np.int64, len(side)) for side in (first, second))
    return PairList(i, j, t, names, len(names))


def _order(names: Iterable[str]) -> list[str]:
    """Names as they come; whole numbers ascending."""
    listed = list(names)
    whole = all(name.isdecimal() and str(int(name)) == name for name in listed)
    return sorted(listed, key=int) if whole else listed


def _table(pairs: PairList, dtype: np.dtype[Any]) -> Any:
    """Known entries in compressed rows, with both orders of each pair that is listed in one."""
    from scipy.sparse import csr_array  # late: importing SciPy takes longer than most starts

    known = ~np.isnan(pairs.t)
    keys, t = _distinct(pairs, pairs.i[known] * pairs.n + pairs.j[known], pairs.t[known])
    i, j = np.divmod(keys, pairs.n)
    alone = ~np.isin(j * pairs.n + i, keys)
    ends = np.concatenate((i, j[alone])), np.concatenate((j, i[alone]))
    with np.errstate(over="ignore"):  # the check tells of infinities
        values = np.concatenate((t, t[alone])).astype(dtype)
    table = csr_array((values, ends), shape=(pairs.n, pairs.n))
    table.sort_indices()
    return table


def _distinct(pairs: PairList, keys: NDArray[np.int64], t: Floats) -> tuple[Ints, Floats]:
    """Each ordered pair once, ascending, or refuse one with two values."""
    order = np.argsort(keys, kind="stable")
    keys, t = keys[order], t[order]
    again = np.append(False, keys[1:] == keys[:-1])
    unlike = np.flatnonzero(again & (t != np.roll(t, 1)))
    if unlike.size:
        k = int(unlike[0])
        i, j = divmod(int(keys[k]), pairs.n)
        names = (i, j) if pairs.ids is None else (pairs.ids[i], pairs.ids[j])
        raise InputError(
            f"the list of pairs gives {names[0]!r} and {names[1]!r} two dissimilarities, {t[k - 1]:g} and {t[k]:g}; "
            "keep one of them, or write their mean."
        )
    return keys[~again], t[~again]
