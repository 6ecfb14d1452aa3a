"""The row source that a path stands for: the table of readers, and how a file is recognized."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from psmds_dist.core.errors import InputError
from psmds_dist.core.sources import RowSource
from psmds_dist.data.formats import NPY, ZIP, begins_with, is_pairs, is_phylip, lines_of
from psmds_dist.data.pairs import PairRows, open_pairs
from psmds_dist.data.readers import hdf5, npz, phylip, table, tsplib
from psmds_dist.data.readers.cells import Dialect
from psmds_dist.data.readers.rows import Scan, open_text
from psmds_dist.data.readers.text import TextFile
from psmds_dist.data.sources import open_npy
from psmds_dist.data.unfolding import unfold

SEPARATOR = "::"
"""Between the path of a file and the name of a matrix in it."""


@dataclass(frozen=True)
class Reader:
    """A format of files.

    Attributes
    ----------
    name : str
        What ``--format`` calls it.
    open : callable
        Opens a matrix: ``open(path, name in the file or None, dtype)``.
    recognizes : callable
        Whether a file has this format, by its first bytes.
    """

    name: str
    open: Callable[[str, str | None, str], RowSource]
    recognizes: Callable[[str], bool] = lambda path: False


def _text(kind: str, scan: Scan) -> Callable[[str, str | None, str], RowSource]:
    return partial(_open_text, kind, scan)


def _open_text(kind: str, scan: Scan, path: str, name: str | None, dtype: str) -> RowSource:
    _refuse_name(path, name)
    return open_text(path, scan, dtype, kind)


def _open_npy(path: str, name: str | None, dtype: str) -> RowSource:
    _refuse_name(path, name)
    return open_npy(path, dtype)


def _refuse_name(path: str, name: str | None) -> None:
    if name is not None:
        raise InputError(f"{path} holds one matrix, so leave {SEPARATOR}{name} out.")


def _is_tsplib(path: str) -> bool:
    return tsplib.is_tsplib(lines_of(path))


def _is_phylip(path: str) -> bool:
    return is_phylip(lines_of(path))


def _open_pairs(path: str, name: str | None, dtype: str) -> RowSource:
    _refuse_name(path, name)
    return open_pairs(path, dtype=dtype)


def _open_unfolded(path: str, name: str | None, dtype: str) -> RowSource:
    _refuse_name(path, name)
    return unfold(path, dtype=dtype)


def _is_pairs(path: str) -> bool:
    return is_pairs(lines_of(path))


def _is_table(path: str) -> bool:
    lines = lines_of(path)
    if not lines or is_pairs(lines):
        return False
    try:
        table.sniff(TextFile(path))
    except InputError:
        return False
    return True


READERS = (
    Reader("npy", _open_npy, lambda path: begins_with(path, NPY)),
    Reader("npz", npz.open_npz, lambda path: begins_with(path, ZIP) and bool(npz.arrays_in(path))),
    Reader("hdf5", hdf5.open_hdf5, lambda path: begins_with(path, hdf5.MAGIC)),
    Reader("tsplib", _text("tsplib", tsplib.read_index), _is_tsplib),
    Reader("phylip", _text("phylip", phylip.read_index), _is_phylip),
    Reader("phylip-strict", _text("phylip-strict", phylip.read_strict_index)),
    Reader("pairs", _open_pairs, _is_pairs),
    Reader("unfold", _open_unfolded),
    Reader("table", _text("table", table.read_index), _is_table),
    Reader("csv", _text("csv", partial(table.read_index, dialect=Dialect(",")))),
    Reader("tsv", _text("tsv", partial(table.read_index, dialect=Dialect("\t")))),
)
"""In the order in which they are tried on a file; those without ``recognizes`` are used by name only."""

FORMATS = tuple(reader.name for reader in READERS)


def open_matrix(path: Any, dtype: str | None = None, format: str | None = None) -> RowSource:
    """Open a matrix where it lies: a file of any format that is read, a store of ours or another Zarr array.

    Parameters
    ----------
    path : path, URL or zarr.Array
        Of an ``.npz`` or HDF5 file with several matrices: ``file.h5::name``.
    dtype : {"float32", "float64"}, optional
        Type of the rows to deliver; by default float32, except that our stores deliver what they hold.
    format : str, optional
        One of `FORMATS`; by default it is recognized by the content of the file.

    Returns
    -------
    RowSource

    Raises
    ------
    InputError
        When the file is not there, damaged, or of a format that is not read.
    """
    from psmds_dist.data.store import open_rows  # late: needs Zarr

    file, name = _parts(path) if isinstance(path, str | os.PathLike) else ("", None)
    reader = _reader(file, format) if file else None
    if reader is not None:
        rows = reader.open(os.path.abspath(file), name, dtype or "float32")
        if format is None and isinstance(rows, PairRows):
            _refuse_properties(rows, file)
        return rows
    if file and not begins_with(file, ZIP):
        return open_npy(file, dtype or "float32")  # tells what it is instead
    return open_rows(path, dtype)


def _refuse_properties(rows: PairRows, path: str) -> None:
    """Refuse what looks like a list of pairs, but has fewer of them than points, as a table of properties does."""
    pairs, n = rows.known_pairs, rows.n
    if pairs < n:
        raise InputError(
            f"{path} looks like a list of pairs, but has {pairs:,} for {n:,} points, too few for a map. If it holds "
            f"properties of points, color their map by it: psmds plot map.zarr map.png --color {path}. If each line is "
            "a pair of points and their dissimilarity all the same, give format='pairs' (--format pairs)."
        )


def _parts(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """File, and name of a matrix in it, that a path means; empty where there is no such file."""
    place = os.fspath(path)
    if os.path.isfile(place):
        return place, None
    file, _, name = place.partition(SEPARATOR)
    return (file, name) if name and os.path.isfile(file) else ("", None)


def _reader(file: str, format: str | None) -> Reader | None:
    if format is None:
        return next((reader for reader in READERS if reader.recognizes(file)), None)
    found = next((reader for reader in READERS if reader.name == format), None)
    if found is None:
        raise InputError(f"format must be one of {', '.join(map(repr, FORMATS))}, not {format!r}.")
    return found
