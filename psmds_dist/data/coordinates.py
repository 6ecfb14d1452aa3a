"""Coordinates of maps in files: those that `psmds export` writes, and those of other programs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from psmds_dist.core.types import Floats, InputError
from psmds_dist.data.ids import DELIMITERS, check_ids
from psmds_dist.data.sources import load_npy, require_numeric
from psmds_dist.utils.text import escaped, of_cell

ID_HEADINGS = (
    "",
    "id",
    "ids",
    "index",
    "label",
    "labels",
    "name",
    "names",
    "sample",
    "samples",
    "#sampleid",
    "sampleid",
)
"""Headings, in lower case, of a first column that holds names even if they look like numbers."""

NOT_COORDINATES = ("point_stress",)
"""Headings of columns that `psmds export` writes beside coordinates."""


@dataclass(frozen=True)
class Coordinates:
    """A map that was read from a file.

    Attributes
    ----------
    path : str
        The file, for messages.
    values : (n, L) ndarray
        Coordinates.
    ids : list of str or None
        Names of the points, with control characters escaped.
    what : str
        What the values are, for messages.
    """

    path: str
    values: Floats
    ids: list[str] | None = None
    what: str = "coordinates"

    def ordered(self, ids: Sequence[str] | None) -> Coordinates:
        """The same in the order of ``ids``; in the order of the file where that has no names.

        Names in the file alone may be row numbers, as `write_coordinates` gives them: then they tell the order.

        Raises
        ------
        InputError
            When the names are not the same.
        """
        if self.ids is None:
            return self
        if ids is None:
            numbers = [str(row) for row in range(len(self.ids))]
            return replace(self.ordered(numbers), ids=None) if set(self.ids) == set(numbers) else self
        wanted = _comparable(ids)
        places = {name: place for place, name in enumerate(self.ids)}
        missing = [row for row, name in enumerate(wanted) if name not in places]
        if missing:
            other = sorted(set(self.ids) - set(wanted), key=places.__getitem__)
            raise InputError(
                f"{self.path} has no {self.what} of {len(missing)} points of the matrix, first {wanted[missing[0]]!r} "
                f"in row {missing[0]}, but of others, first {other[0]!r}; give those of this matrix, or remove the "
                "column of ids if the points are in the same order."
            )
        return replace(self, values=self.values[[places[name] for name in wanted]], ids=list(ids))


def holds_coordinates(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a file that `read_coordinates` reads, by its name."""
    return Path(path).suffix.lower() in (*DELIMITERS, ".npy") and os.path.isfile(path)


def read_coordinates(path: str | os.PathLike[str], n: int, ids: Sequence[str] | None = None) -> Coordinates:
    """Read a map of ``n`` points.

    Parameters
    ----------
    path : path
        A ``.npy`` file with an array ``(n, L)``, or a ``.csv`` or ``.tsv`` file with a line for each point, a heading
        or none, and a column for each dimension. The first column may hold names; one of numbers does if its heading
        is ``id`` or similar, or empty, or if it holds the ids of the matrix. A column ``point_stress`` is ignored.
    n : int
        Number of points.
    ids : sequence of str, optional
        Names of the points of the matrix.

    Returns
    -------
    Coordinates
        In the order of ``ids`` if the file has names too, otherwise as they are in the file.

    Raises
    ------
    InputError
        When the file cannot be read as that many coordinates, or its names are not those of the matrix.
    """
    place = os.fspath(path)
    kind = Path(place).suffix.lower()
    if kind == ".npy":
        values = require_numeric(load_npy(place), place)
        return Coordinates(place, np.asarray(values.reshape(n, -1) if values.shape == (n,) else values))
    if kind not in DELIMITERS:
        raise InputError(f"coordinates are read from .csv, .tsv and .npy files, not from {place!r}.")
    return _parse(place, _lines(place, DELIMITERS[kind]), n, ids).ordered(ids)


def read_pinned(path: str | os.PathLike[str], n: int, ids: Sequence[str] | None = None) -> Floats:
    """Read the coordinates of some of ``n`` points, as `read_coordinates` does.

    Names, where the file has them, tell which points those are; without names there is a line for each of the ``n``.

    Returns
    -------
    (n, L) ndarray
        NaN for points that the file does not hold, and where it has NaN.

    Raises
    ------
    InputError
        When the file cannot be read, or has names that are not among ``ids`` (row numbers where there are none).
    """
    found = read_coordinates(path, count_points(path))
    if found.ids is None:
        return found.values
    places = {name: row for row, name in enumerate(map(str, range(n)) if ids is None else _comparable(ids))}
    unknown = [name for name in found.ids if name not in places]
    if unknown:
        raise InputError(
            f"{found.path} has coordinates of {len(unknown)} points that the matrix does not name, first "
            f"{unknown[0]!r}: remove them, or give the names of the points with --ids."
        )
    values = np.full((n, found.values.shape[1]), np.nan)
    values[[places[name] for name in found.ids]] = found.values
    return values


def count_points(path: str | os.PathLike[str]) -> int:
    """Return the number of points of a file of coordinates; in a table, a first line without a number is a heading.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    place = os.fspath(path)
    kind = Path(place).suffix.lower()
    if kind == ".npy":
        values = load_npy(place)
        return len(values) if values.ndim else 0
    lines = _lines(place, DELIMITERS[kind])
    return len(lines) - int(bool(lines) and not _is_number(lines[0][-1]))


def _lines(place: str, separator: str) -> list[list[str]]:
    """Cells of the lines of a table that are not empty."""
    try:
        text = Path(place).read_text(encoding="utf-8-sig")
        lines = csv.reader(io.StringIO(text), delimiter=separator)
        return [[cell.strip() for cell in line] for line in lines if any(map(str.strip, line))]
    except FileNotFoundError:
        raise InputError(f"the file of coordinates {place} does not exist.") from None
    except (ValueError, csv.Error) as error:
        raise InputError(f"the file of coordinates {place} cannot be read ({error}); save it as UTF-8 text.") from None


def _parse(place: str, lines: list[list[str]], n: int, ids: Sequence[str] | None) -> Coordinates:
    """Tell heading, names and coordinates apart."""
    heading, lines = (lines[0], lines[1:]) if len(lines) == n + 1 else ([], lines)
    if len(lines) != n:
        raise InputError(
            f"{place} has {len(lines)} lines for {n} points; give one for each point, below a heading or without one."
        )
    width = len(lines[0])
    short = next((k for k, line in enumerate(lines) if len(line) != width), None)
    if short is not None:
        raise InputError(f"{place} has {len(lines[short])} columns for point {short} and {width} for the first.")
    heading = [""] * (width - len(heading)) + heading if heading else ["1"] * width
    first = [of_cell(line[0]) for line in lines]
    named = heading[0].lower() in ID_HEADINGS or not all(map(_is_number, first)) or _same(first, ids)
    columns = [k for k in range(int(named), width) if heading[k].lower() not in NOT_COORDINATES]
    if not columns:
        raise InputError(
            f"{place} holds no coordinates beside names; separate columns by commas in .csv, tabs in .tsv."
        )
    values = _numbers(place, lines, columns)
    return Coordinates(place, values, check_ids(first, n, place) if named else None)


def _comparable(ids: Sequence[str]) -> list[str]:
    """Names as they are after an export."""
    return [escaped(name).strip() for name in ids]


def _same(names: list[str], ids: Sequence[str] | None) -> bool:
    return ids is not None and set(names) == set(_comparable(ids))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(place: str, lines: list[list[str]], columns: list[int]) -> Floats:
    """Coordinates in some columns."""
    for point, line in enumerate(lines):
        wrong = next((k for k in columns if not _is_number(line[k])), None)
        if wrong is not None:
            raise InputError(
                f"{place} has {line[wrong]!r} in column {wrong + 1} for point {point}, which is no number; keep ids in "
                "the first column and a column for each dimension, separated by commas in .csv, by tabs in .tsv."
            )
    return np.array([[float(line[k]) for k in columns] for line in lines]).reshape(len(lines), len(columns))
