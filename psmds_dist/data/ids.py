"""Names of points."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from psmds_dist.core.types import InputError
from psmds_dist.utils.text import of_cell

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_ids(path: str | os.PathLike[str], n: int) -> list[str]:
    """Read the names of ``n`` points.

    Parameters
    ----------
    path : path
        A text file with one name a line; a ``.csv`` or ``.tsv`` file, whose first column is taken, without
        its heading when there is one line more than points, and without the apostrophes that `psmds export`
        puts before formulas; or a ``.npy`` file of strings.
    n : int
        Number of points.

    Returns
    -------
    list of str
    """
    place = Path(path)
    what = f"the ids file {place}"
    with _readable(what):
        names = _read_npy(place) if place.suffix.lower() == ".npy" else [line[0] for line in _lines(place, n)]
    return check_ids(names, n, what)


def read_lines(place: Path, n: int, what: str) -> list[list[str]]:
    """Cells of a file with a line for each of ``n`` points, as `read_ids` reads it, without blanks and apostrophes.

    Raises
    ------
    InputError
        Begins with ``what`` when the file cannot be read.
    """
    with _readable(what):
        return _lines(place, n)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn errors of reading into sentences."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{what} does not exist; give a text, .csv, .tsv or .npy file.") from None
    except (ValueError, EOFError, csv.Error) as error:
        raise InputError(f"{what} cannot be read ({error}); save it as UTF-8 text.") from None


def _lines(place: Path, n: int) -> list[list[str]]:
    text = place.read_text(encoding="utf-8-sig")
    delimiter = DELIMITERS.get(place.suffix.lower())
    if delimiter is None:  # splitlines would also split at other characters
        return [[line.strip()] for line in text.rstrip().split("\n")]
    table = csv.reader(io.StringIO(text.rstrip(" \r\n")), delimiter=delimiter)
    lines = [[of_cell(cell.strip()) for cell in line] for line in table if line]
    return lines[1:] if len(lines) == n + 1 else lines


def _read_npy(place: Path) -> list[str]:
    values = np.load(place, allow_pickle=False)
    if values.ndim != 1 or values.dtype.kind not in "SU":
        raise ValueError(f"it holds {values.dtype} of shape {values.shape} instead of a list of strings")
    return [str(name) for name in np.char.decode(values, "utf-8")] if values.dtype.kind == "S" else values.tolist()


def check_ids(ids: Sequence[str], n: int, where: str = "ids") -> list[str]:
    """Return ids as strings, after a test that there are ``n`` of them, all different and none empty."""
    names = [str(name) for name in ids]
    if len(names) != n:
        raise InputError(f"{where} has {len(names)} ids for {n} points; give one id for each point, in order.")
    seen: dict[str, int] = {}
    for row, name in enumerate(names):
        if not name:
            raise InputError(f"{where} has an empty id for point {row}; give every point an id.")
        if seen.setdefault(name, row) != row:
            raise InputError(
                f"{where} has the id {name!r} twice, for points {seen[name]} and {row}; make the ids unique."
            )
    return names
