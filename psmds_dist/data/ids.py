"""Names of points."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
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
    try:
        names = _read(place)
    except FileNotFoundError:
        raise InputError(f"the ids file {place} does not exist; give a text, .csv, .tsv or .npy file.") from None
    except (ValueError, EOFError, csv.Error) as error:
        raise InputError(f"the ids file {place} cannot be read ({error}); save it as UTF-8 text.") from None
    if place.suffix.lower() in DELIMITERS and len(names) == n + 1:
        names = names[1:]
    return check_ids(names, n, f"the ids file {place}")


def _read(place: Path) -> list[str]:
    suffix = place.suffix.lower()
    if suffix == ".npy":
        return _read_npy(place)
    text = place.read_text(encoding="utf-8-sig")
    if suffix in DELIMITERS:
        rows = csv.reader(io.StringIO(text), delimiter=DELIMITERS[suffix])
        return [of_cell(row[0].strip()) for row in rows if row]
    return [line.strip() for line in text.rstrip().split("\n")]  # splitlines would also split at other characters


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
