"""Files that hold a matrix in another format: what they are, by their first bytes, and how to convert them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from psmds_dist.core.errors import InputError
from psmds_dist.utils.extras import extra

NPY = b"\x93NUMPY"
ZIP = b"PK\x03\x04"

HEAD = 8192
"""Bytes of a file to look at."""

Kind = tuple[str, str]
"""What a file is, and what to do about it."""

_SAVED = "; fit takes it in Python, and for the command line save it with `numpy.save('matrix.npy', {array})`"
_FRAME = _SAVED.format(array="frame.to_numpy()")
_AS_TEXT = "converters={0: str}, keep_default_na=False, na_values=''"
"""How pandas keeps names as text; since its version 3 a converter alone makes ``NA`` a missing value."""

_IN_R = "write it in R with `write.csv(as.matrix(d), 'matrix.csv')`, which 'psmds ingest' reads"
_INGEST = "a matrix of dissimilarities is stored with 'psmds ingest' first"

_BINARY: tuple[tuple[bytes, Kind], ...] = (
    (b"PAR1", ("a Parquet file", "read it with `frame = pandas.read_parquet(PATH)`" + _FRAME)),
    (b"ARROW1", ("a Feather file", "read it with `frame = pandas.read_feather(PATH)`" + _FRAME)),
    (
        b"MATLAB 5.0",
        ("a MATLAB file", "save a variable: `numpy.save('matrix.npy', scipy.io.loadmat(PATH)['D'])`"),
    ),
    (b"\xd0\xcf\x11\xe0", ("an old Excel file", "save it as .xlsx or .csv first")),
    (b"\x80", ("a Python pickle, which is never loaded", "load it if you trust its origin, then use numpy.save")),
    *((begin, ("a file of R", _IN_R)) for begin in (b"RDX", b"RDA", b"X\n\0\0", b"A\n2\n", b"A\n3\n")),
)
"""What binary files begin with; PATH stands for the path of the file."""


def _open(path: str) -> IO[Any]:
    return open(path, "rb")


def _open_zstd(path: str) -> IO[Any]:
    zstandard = extra("zstandard", "text", f"{path} is compressed with zstd, which")
    return io.BufferedReader(zstandard.open(path, "rb"))


COMPRESSED: tuple[tuple[bytes, Callable[..., IO[Any]]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ", lzma.open),
    (b"\x28\xb5\x2f\xfd", _open_zstd),
)
"""How compressed files are opened, by their first bytes."""


def head_of(path: str | os.PathLike[str], read: Callable[[str], IO[Any]] = _open) -> bytes:
    """Return the first bytes of a file; none where it cannot be read."""
    try:
        with read(os.fspath(path)) as file:
            return bytes(file.read(HEAD))
    except Exception as error:
        if isinstance(error, OSError) or is_damage(error):
            return b""
        raise


def is_damage(error: Exception) -> bool:
    """Whether a decompressor has refused its input; that of zstd is known by its name, as it may not be there."""
    if isinstance(error, OSError):
        return error.errno is None  # otherwise it is the system's
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError) or type(error).__name__ == "ZstdError"


def opener_of(path: str) -> Callable[[str], IO[Any]] | None:
    """Return what decompresses a file; None for one that is not compressed."""
    head = head_of(path)
    return next((read for magic, read in COMPRESSED if head.startswith(magic)), None)


def lines_of(path: str) -> list[str]:
    """Return the first lines of a text file, compressed or not, without comments; none of other files."""
    head = head_of(path, opener_of(path) or _open)
    binary = any(head.startswith(magic) for magic, _ in _BINARY)
    text = "" if binary or not head else head.decode("utf-8-sig", errors="replace")
    return [] if "\0" in text else content_lines(text)


def content_lines(text: str) -> list[str]:
    """Return lines that are not empty, without comments unless there is nothing else."""
    lines = [line for line in text.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith("#")] or lines


def begins_with(path: str | os.PathLike[str], magic: bytes) -> bool:
    """Whether a file begins with the bytes that mark a format."""
    return head_of(path).startswith(magic)


def table_recipe(path: str, separator: str = "\t") -> str:
    """Lines of Python that read a table of distances and keep its names as text, whatever they look like."""
    return (
        f"frame = pandas.read_csv({path!r}, sep={separator!r}, {_AS_TEXT}); frame = frame.set_index(frame.columns[0])"
    )


def other_format(path: str | os.PathLike[str]) -> InputError:
    """Return the error for a file that is neither a ``.npy`` file nor a Zarr store.

    Parameters
    ----------
    path : path
        A file.

    Returns
    -------
    InputError
        One sentence: what the file is, what is expected, and the code that converts it.
    """
    place = os.fspath(path)
    kind, advice = _recognized(place)
    return InputError(f"{place} is {kind}, but a .npy file or a Zarr store is expected; {advice}.")


def _recognized(path: str) -> Kind:
    if os.path.isdir(path):
        return "a directory", "give the file in it"
    head = head_of(path)
    if not head:
        return "an empty file", "check how it was written"
    if head.startswith(NPY):
        return "a .npy file of Python objects, or a damaged one", "write its numbers anew with numpy.save"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return _hdf5(path)
    if head.startswith(ZIP):
        return _zipped(path)
    read = opener_of(path)
    if read is not None:
        return _compressed(path, head_of(path, read))
    return _plain(path, head)


def _plain(path: str, head: bytes) -> Kind:
    for magic, (kind, advice) in _BINARY:
        if head.startswith(magic):
            return kind, advice.replace("PATH", repr(path))
    text = head.decode("utf-8-sig", errors="replace")
    if "\0" in text or not text.strip():
        return "a file of an unknown format", "load its matrix with what wrote it, then use numpy.save"
    return _text(path, text)


def _hdf5(path: str) -> Kind:
    if path.lower().endswith(".h5ad"):
        return "an AnnData file", (
            f"{_INGEST}; save points with `numpy.save('points.npy', anndata.read_h5ad({path!r}).obsm['X_pca'])` and "
            "use psmds distances or psmds landmarks fit --metric"
        )
    return "an HDF5 file", _INGEST


def _zipped(path: str) -> Kind:
    names: list[str] = []
    with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    arrays = [name.removesuffix(".npy") for name in names if name.endswith(".npy")]
    if {"format", "shape", "data"}.issubset(arrays):
        return "a sparse matrix in an .npz file", _INGEST
    if arrays:
        return f"an .npz file with {', '.join(map(repr, arrays[:5]))}", (
            f"{_INGEST}, or save one array of it: `numpy.save('matrix.npy', numpy.load({path!r})[{arrays[0]!r}])`"
        )
    if "xl/workbook.xml" in names:
        return "an Excel file", (
            f"read it with `frame = pandas.read_excel({path!r}, {_AS_TEXT}); "
            f"frame = frame.set_index(frame.columns[0])`{_FRAME}"
        )
    return "a .zip archive without a Zarr store in it", "unpack it first"


def _compressed(path: str, inside: bytes) -> Kind:
    kind, advice = _plain(path, inside) if inside else ("", "")
    if kind == "a file of R":
        return kind, advice
    if kind.startswith("a table"):  # pandas and NumPy decompress what they read
        return f"{kind}, compressed", advice
    return "a compressed file", "decompress it first"


def _text(path: str, text: str) -> Kind:
    lines = content_lines(text)
    if is_phylip(lines):
        return "a PHYLIP distance matrix", _INGEST
    separator, cells = _split(lines)
    blanks = separator == " "
    cut = len(text) > HEAD // 2
    if cut:  # so the last cell may be
        cells[-1].pop()
    body = cells[1:-1] if cut else cells[1:]
    if is_pairs(lines):
        return "a list of pairs", _INGEST
    if all(_is_number(cell) for row in cells for cell in row):
        return "a table of numbers as text", _numbers_advice(path, separator, cells)
    long_header = cut and len(lines) == 1 and len(cells[0]) > 2
    if not long_header and not any(_is_number(cell) for row in cells[1:] for cell in row[1:]):
        return (
            "a text file without a table of numbers",
            "check its path (a list of names goes with --ids, lines to compare with --metric package.module.function)",
        )
    if body and all(len(row) == len(cells[0]) + 1 for row in body):
        return "a table as R's write.table makes it, without a heading over its names", _INGEST
    ids = f" and give --ids {path}" if path.lower().endswith((".csv", ".tsv")) else ""
    recipe = table_recipe(path, r"\s+" if blanks else separator)
    return "a table as text", f"{_INGEST}; read other tables with `{recipe}`{_FRAME}{ids}"


def _numbers_advice(path: str, separator: str, cells: list[list[str]]) -> str:
    """How to make a ``.npy`` file of a table of numbers; one with a diagonal of zeros may be dissimilarities."""
    delimiter = "" if separator == " " else f", delimiter={separator!r}"
    recipe = f"`numpy.save({Path(path).stem + '.npy'!r}, numpy.loadtxt({path!r}{delimiter}))`"
    hollow = all(float(row[k]) == 0 for k, row in enumerate(cells) if k < len(row))
    return f"{_INGEST}; save other tables with {recipe}" if hollow else f"save points, or a panel, with {recipe}"


def _split(lines: list[str]) -> tuple[str, list[list[str]]]:
    """Separator of a table, a blank where any run of blanks is one, and its cells."""
    separator = max("\t,; ", key=lines[0].count)
    return separator, [line.split(None if separator == " " else separator) for line in lines]


def is_pairs(lines: list[str]) -> bool:
    """Whether lines are an edge list: two names or whole numbers and a number each."""
    body = _split(lines)[1][1:] if lines else []
    body = body[:-1] if len(body) > 4 else body  # the last line may be cut
    named = len(body) > 3 or not all(_is_number(cell) for row in body for cell in row[:2])  # or a heading over 3 points
    return named and len(body) > 2 and all(len(row) == 3 and _is_number(row[2]) and _are_names(row[:2]) for row in body)


def _are_names(cells: list[str]) -> bool:
    """Whether cells may name points: fractions are coordinates."""
    return all(cell.strip().isdecimal() or not _is_number(cell) for cell in cells)


def is_phylip(lines: list[str]) -> bool:
    """Whether lines begin with a count and then have a name and distances each, of which the first may have none."""
    if not lines:
        return False
    cells = [cell for line in lines[1:3] for cell in line.split()[1:]]
    count = lines[0].strip()  # a single 0 begins a lower triangle
    return count.isdecimal() and int(count) > 0 and any(map(_is_number, cells))


def _is_number(cell: str) -> bool:
    with suppress(ValueError):
        float(cell)
        return True
    return False
