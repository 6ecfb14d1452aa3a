"""Tables of dissimilarities between two kinds of points, such as judges and what they rate, for one map of both."""

from __future__ import annotations

import csv
import os
from typing import Any, NamedTuple

import numpy as np

from psmds_dist.core.arrays import is_frame, is_masked, numbers_of
from psmds_dist.core.types import Floats, InputError
from psmds_dist.data.formats import NPY, begins_with
from psmds_dist.data.ids import check_ids
from psmds_dist.data.pairs import PairList, PairRows, cell_number, decimal_mark, rows_of_pairs
from psmds_dist.data.readers.text import TextFile, as_text
from psmds_dist.data.sources import load_npy, require_numeric

Names = list[str] | None


class Table(NamedTuple):
    """Dissimilarities between rows and columns, NaN where missing, and the names of both."""

    values: Floats
    rows: Names
    columns: Names


def unfold(table: Any, *, dtype: str = "float32") -> PairRows:
    """Open a table of dissimilarities between two kinds of points as one matrix of all points.

    Parameters
    ----------
    table : (n, m) array_like, data frame, or path of a text or .npy file
        Dissimilarity of each row to each column, NaN (or masked, or an empty cell) where it is missing. A text file has
        the names of the columns in its first line, and those of the rows in its first column.
    dtype : {"float32", "float64"}
        Type of the rows.

    Returns
    -------
    PairRows
        Matrix of the ``n`` rows and then the ``m`` columns as points, in which pairs within a kind are missing; for
        `PatternSearchMDS.fit` and `build`. Its ``ids`` are the names of both, beginning with ``"row "`` and
        ``"column "`` where a name would be there twice, or where there are none.

    Raises
    ------
    InputError
        When it is no table of numbers.

    Examples
    --------
    >>> from psmds_dist import unfold
    >>> unfold([[1.0, 2.0, 3.0], [2.0, 1.0, 2.0]]).ids
    ['row 0', 'row 1', 'column 0', 'column 1', 'column 2']
    """
    location = os.path.abspath(table) if isinstance(table, str | os.PathLike) else None
    found = _in_memory(table) if location is None else _of_file(location)
    n, m = found.values.shape
    i, j = np.nonzero(~np.isnan(found.values))
    pairs = PairList(i, n + j, found.values[i, j], _both(found), n + m)
    return rows_of_pairs(pairs, dtype, location)


def _both(table: Table) -> list[str]:
    """Names of rows and columns, told apart."""
    n, m = table.values.shape
    rows, columns = (table.rows or list(map(str, range(n)))), (table.columns or list(map(str, range(m))))
    named = table.rows is not None and table.columns is not None and not set(rows) & set(columns)
    both = [*rows, *columns] if named else [*(f"row {name}" for name in rows), *(f"column {name}" for name in columns)]
    return check_ids(both, n + m, "the table")


def _in_memory(table: Any) -> Table:
    if is_masked(table):
        values = np.where(table.mask, np.nan, require_numeric(table.data, "the table"))
    else:
        values = require_numeric(numbers_of(table, "the table"), "the table")
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"the table has shape {values.shape}, but needs rows and columns.")
    names = (list(map(str, axis)) for axis in (table.index, table.columns)) if is_frame(table) else (None, None)
    return Table(values.astype(np.float64), *names)


def _of_file(path: str) -> Table:
    if begins_with(path, NPY):
        return _in_memory(load_npy(path))
    head: list[str] = []
    names, lines = [], []
    separator = decimal = ""
    for line in TextFile(path).lines():
        text = as_text(line, path)
        if not text.strip() or text.startswith("#"):
            continue
        separator = separator or max("\t,;", key=text.count)
        cells = _cells(text, separator, line.number, path)
        if not head:
            head = [cell.strip() for cell in cells]
            continue
        decimal = decimal or decimal_mark(cells[1:], separator)
        names.append(cells[0].strip())
        lines.append(_numbers(cells[1:], decimal, line.number, path))
    return _named(head, names, lines, path)


def _cells(text: str, separator: str, line: int, path: str) -> list[str]:
    try:
        [cells] = csv.reader([text], delimiter=separator, strict=True)
    except csv.Error as error:
        raise InputError(f"line {line} of {path} is no row of cells ({error}); correct its quotes.") from None
    return cells


def _numbers(cells: list[str], decimal: str, line: int, path: str) -> list[float]:
    found = [cell_number(cell, decimal) for cell in cells]
    if None in found:
        raise InputError(f"line {line} of {path} has {cells[found.index(None)]!r} where a number is expected.")
    return [value for value in found if value is not None]


def _named(head: list[str], names: list[str], lines: list[list[float]], path: str) -> Table:
    """Table of lines, each of which has a number for each column."""
    width = len(lines[0]) if lines else 0
    uneven = next((name for name, line in zip(names, lines, strict=True) if len(line) != width), None)
    if not width or uneven is not None:
        where = "has no rows of numbers" if uneven is None else f"has a row of another length, {uneven!r}"
        raise InputError(f"{path} {where}; name columns in the first line, and rows before their numbers.")
    columns = head[-width:]
    if len(columns) != width or len(head) - width > 1:
        raise InputError(f"{path} names {len(head)} columns, but its rows have {width} numbers; give each one name.")
    return Table(np.array(lines), names, columns)
