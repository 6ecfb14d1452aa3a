"""Files of every format that is read, most of them damaged: the right matrix comes into the store, or a sentence.

What a damaged text means is told by parsers of a few lines here, on `csv` and `float`, that know how the file was
written; NumPy and h5py tell it of binary files. A store must hold the matrix that was written, or what they make of the
damaged file. Whatever happens, nothing stays beside a file that was refused. HDF5 is read in another process, with a
time limit.
"""

from __future__ import annotations

import bz2
import csv
import gc
import gzip
import io
import lzma
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numcodecs
import numpy as np
import zstandard
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from psmds_dist.data.opening import open_matrix
from psmds_dist.data.readers import hdf5 as hdf5_reader
from psmds_dist.data.store import open_rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from tests.fuzz.aside import aside
from tests.fuzz.choosing import Chooser, seldom
from tests.fuzz.judging import FuzzFailure, judged
from tests.fuzz.oracle import Verdict

PLAIN = ["a", "b", "C3", "x_4", "node-5", "sample 6", "p.7", "Q8"]
AWKWARD = ["0101", "NA", "1e5", "é中", "#9", "-1", "null", "1_000", "=1+1", "it's", "ünï", "(x)", "3", "nan"]
QUOTED = ["x,y", "p;q", 'say "hi"', "a\tb"]
WORDS = ["x", "1..2", "0x1A", "1,5", "--", "#DIV/0!", "inf", "-inf", "1e999", "9" * 400, "1_0", "NaN", "", "NA", "-1"]
MISSING = {"", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "<NA>"}


Damage = Callable[[Chooser, "Made"], bytes]


class Found(NamedTuple):
    """A matrix, and the names of its points."""

    matrix: np.ndarray
    ids: list[str] | None


@dataclass(frozen=True)
class Made:
    """A file that was written: its bytes, and what an independent parser makes of them once they are damaged."""

    kind: str
    content: bytes
    parse: Callable[[bytes], Found]
    """Raises whatever it likes for what is no matrix."""

    format: str | None = None
    delimiter: str = ""
    """Of a text file that can be damaged by lines and cells."""

    aside: bool = False
    """Whether it is read in another process, as its library might loop or crash."""


# what is written -----------------------------------------------------------------------------------------------------


def _matrix(choose: Chooser, n: int) -> np.ndarray:
    """Dissimilarities of some kind."""
    points = np.array([[choose.number(0, 999) for _ in range(3)] for _ in range(n)], float)
    if n < 2:
        return np.zeros((n, n))
    matrix = squareform(pdist(points + np.arange(n)[:, None]))
    kind = choose.pick(["as they are", "integers", "rounded", "large", "small"])
    if kind == "integers":
        return np.rint(matrix)
    scale = {"large": 1e12, "small": 1e-12}.get(kind, 1.0)
    return np.round(matrix, 3) if kind == "rounded" else matrix * scale


def _names(choose: Chooser, n: int, more: list[str]) -> list[str]:
    pool = PLAIN + seldom(choose, [], [AWKWARD, AWKWARD + more], 2)
    picked: list[str] = []
    while len(picked) < n:
        name = choose.pick(pool)
        picked.append(name if name not in picked else f"{name}{len(picked)}")
    return picked


CUTS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "square": lambda k, n: (0, n),
    "lower": lambda k, n: (0, k),
    "lower with diagonal": lambda k, n: (0, k + 1),
    "upper": lambda k, n: (k + 1, n),
    "upper with diagonal": lambda k, n: (k, n),
}


def _cut(matrix: np.ndarray, cut: str) -> list[list[float]]:
    n = len(matrix)
    return [row[slice(*CUTS[cut](k, n))].tolist() for k, row in enumerate(matrix)]


def _filled(rows: list[list[float]], cut: str) -> np.ndarray:
    """The whole matrix of rows that were cut out of one; an error where they were not."""
    n = len(rows)
    matrix = np.zeros((n, n))
    for k, row in enumerate(rows):
        first, last = CUTS[cut](k, n)
        if len(row) != last - first:
            raise ValueError("ragged")
        matrix[k, first:last] = row
        if cut != "square":
            matrix[first:last, k] = row
    return matrix


def table(choose: Chooser, matrix: np.ndarray) -> Made:
    """A delimited table, with or without names."""
    n = len(matrix)
    delimiter = choose.pick([",", "\t", ";"])
    decimal = choose.pick([".", ","]) if delimiter != "," else "."
    named = choose.pick(["both", "none", "rows"])
    cut = seldom(choose, "square", ["lower with diagonal", "upper with diagonal"], 4) if named == "none" else "square"
    names = _names(choose, n, QUOTED) if named != "none" else None
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    if named == "both" and names:
        writer.writerow(["", *names])
    for k, row in enumerate(_cut(matrix, cut)):
        cells = [repr(value).replace(".", decimal) for value in row]
        writer.writerow([names[k], *cells] if names else cells)

    def parse(content: bytes) -> Found:
        lines = [line for line in _csv(content, delimiter) if any(cell.strip() for cell in line)]
        lines = [line for line in lines if len(lines[0]) == len(line) or not line[0].startswith("#")]
        columns = [cell.strip() for cell in lines.pop(0)[1:]] if named == "both" else None
        ids = [line.pop(0).strip() for line in lines] if names else None
        found = _filled([[_number(cell, decimal) for cell in line] for line in lines], cut)
        return _by_name(found, ids, columns)

    return Made(f"table, {named} named, {cut}", text.getvalue().encode(), parse, None, delimiter)


def _by_name(matrix: np.ndarray, ids: list[str] | None, columns: list[str] | None) -> Found:
    if columns is not None and ids is not None:
        if sorted(columns) != sorted(ids) or len(set(ids)) < len(ids):
            raise ValueError("names do not match")
        matrix = matrix[:, [columns.index(name) for name in ids]]
    return Found(matrix, ids)


def _csv(content: bytes, delimiter: str) -> list[list[str]]:
    text = content.decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))


def _number(cell: str, decimal: str = ".") -> float:
    cell = cell.strip()
    if cell in MISSING:
        return float("nan")
    if "_" in cell or (decimal == "," and "." in cell):
        raise ValueError(cell)
    return float(cell.replace(decimal, "."))


def phylip(choose: Chooser, matrix: np.ndarray) -> Made:
    """A matrix of PHYLIP, relaxed names."""
    n, cut, gap = len(matrix), choose.pick(list(CUTS)), choose.pick(["\t", " ", "  "])
    names = [name.replace(" ", "_").replace('"', "'") for name in _names(choose, n, [])]
    rows = [gap.join([name, *map(repr, row)]) for name, row in zip(names, _cut(matrix, cut), strict=True)]

    def parse(content: bytes) -> Found:
        first, *lines = [line for line in _lines(content) if line.strip()]
        if any(line[:1].isspace() for line in lines):
            raise ValueError("goes on")
        words = [line.split() for line in lines]
        if int(first) != len(words):
            raise ValueError("count")
        return Found(_filled([[_number(cell) for cell in row[1:]] for row in words], cut), [row[0] for row in words])

    content = "\n".join([str(n), *rows, ""]).encode()
    return Made(f"PHYLIP, {cut}", content, parse, choose.pick([None, "phylip"]), gap)


def _lines(content: bytes) -> list[str]:
    return re.split(r"\r?\n", content.decode("utf-8-sig"))


def tsplib(choose: Chooser, matrix: np.ndarray) -> Made:
    """An explicit table of TSPLIB."""
    named = {"FULL_MATRIX": "square", "LOWER_ROW": "lower", "LOWER_DIAG_ROW": "lower with diagonal"}
    named |= {"UPPER_ROW": "upper", "UPPER_DIAG_ROW": "upper with diagonal"}
    form = choose.pick(list(named))
    head = f"NAME: x\nTYPE: TSP\nDIMENSION: {len(matrix)}\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {form}\n"
    rows = [" ".join(map(repr, row)) for row in _cut(matrix, named[form])]

    def parse(content: bytes) -> Found:
        lines = _lines(content)
        at = lines.index("EDGE_WEIGHT_SECTION")
        if sorted(lines[:at]) != sorted(head.split("\n")[:-1]):
            raise ValueError("head")
        cells = " ".join(lines[at + 1 : [*lines, "EOF"].index("EOF")]).split()
        sizes = np.cumsum([0, *map(len, _cut(matrix, named[form]))])
        if len(cells) != sizes[-1]:
            raise ValueError("count")
        parts = [cells[a:b] for a, b in pairwise(sizes)]
        return Found(_filled([[_number(cell) for cell in part] for part in parts], named[form]), None)

    content = "\n".join([f"{head}EDGE_WEIGHT_SECTION", *rows, "EOF", ""]).encode()
    return Made(f"TSPLIB, {form}", content, parse, None, " ")


def pairs(choose: Chooser, matrix: np.ndarray) -> Made:
    """A list of pairs."""
    delimiter = choose.pick([",", "\t", ";", " "])
    names = [name.replace(" ", "_") for name in _names(choose, len(matrix), [])]
    names = [f"n{name}" if name[:1] in "#-.0123456789=" or name in MISSING else name for name in names]
    lines = [
        delimiter.join([names[i], names[j], repr(float(matrix[i, j]))])
        for i, j in zip(*np.triu_indices(len(matrix), 1), strict=True)
    ]

    def parse(content: bytes) -> Found:
        lines = [line.split() for line in _lines(content)] if delimiter == " " else _csv(content, delimiter)
        rows = [line for line in lines if any(cell.strip() for cell in line)]
        listed: dict[tuple[str, str], float] = {}
        for first, second, value in rows:
            if first.startswith("#"):
                continue
            number = _number(value)
            if listed.setdefault((first.strip(), second.strip()), number) not in (number,):
                raise ValueError("two values")
        ids = list(dict.fromkeys(name for pair in listed for name in pair))
        if all(name.isdecimal() for name in ids):
            raise ValueError("numbers")
        found = np.full((len(ids), len(ids)), np.nan)
        np.fill_diagonal(found, 0)
        for (first, second), value in listed.items():
            a, b = ids.index(first), ids.index(second)
            found[a, b] = value
            if (second, first) not in listed:
                found[b, a] = value
        return Found(found, ids)

    return Made("pairs", "\n".join([*lines, ""]).encode(), parse, "pairs", delimiter)


def npy(choose: Chooser, matrix: np.ndarray) -> Made:
    """An array of NumPy."""
    file = io.BytesIO()
    order = choose.pick(["<f8", ">f8"])
    np.save(file, matrix.astype(order))
    return Made(f"npy {order}", file.getvalue(), _of_npy)


def _of_npy(content: bytes) -> Found:
    found = np.load(io.BytesIO(content), allow_pickle=False)
    square = squareform(found) if found.ndim == 1 else found
    return Found(np.asarray(square, np.float64), None)


def npz(choose: Chooser, matrix: np.ndarray) -> Made:
    """An archive of NumPy, dense or sparse."""
    file = io.BytesIO()
    ids = _names(choose, len(matrix), QUOTED)
    if choose.pick([False, True]):
        sparse.save_npz(file, sparse.csr_array(matrix), compressed=choose.pick([True, False]))
        return Made("sparse npz", file.getvalue(), _of_sparse)
    choose.pick([np.savez, np.savez_compressed])(file, matrix=matrix, ids=np.array(ids))

    def parse(content: bytes) -> Found:
        arrays = np.load(io.BytesIO(content), allow_pickle=False)
        return Found(arrays["matrix"], [str(name) for name in arrays["ids"]])

    return Made("npz", file.getvalue(), parse)


def _of_sparse(content: bytes) -> Found:
    entries = sparse.load_npz(io.BytesIO(content)).tocoo()
    found = np.full(entries.shape, np.nan)
    np.fill_diagonal(found, 0)
    found[entries.row, entries.col] = entries.data
    return Found(found, None)


def strict(choose: Chooser, matrix: np.ndarray) -> Made:
    """A square matrix of PHYLIP whose names have ten characters."""
    n = len(matrix)
    names = [f"{k} {name}"[:10].strip() for k, name in enumerate(_names(choose, n, []))]
    rows = [f"{name:10}{' '.join(map(repr, row))}" for name, row in zip(names, matrix.tolist(), strict=True)]

    def parse(content: bytes) -> Found:
        first, *lines = [line for line in _lines(content) if line.strip()]
        if int(first) != len(lines) or any(line[:1].isspace() for line in lines):
            raise ValueError("count")
        cells = [[_number(cell) for cell in line[10:].split()] for line in lines]
        return Found(_filled(cells, "square"), [line[:10].strip() for line in lines])

    return Made("strict PHYLIP", "\n".join([str(n), *rows, ""]).encode(), parse, "phylip-strict", " ")


def of_r(choose: Chooser, matrix: np.ndarray) -> Made:
    """What R prints of distances: a triangle in columns, the names above it and beside it."""
    names = [f"n{k}" for k in range(len(matrix))]
    lines = [" ".join(["", *names[:-1]])]
    lines += [" ".join([names[k], *map(repr, matrix[k, :k].tolist())]) for k in range(1, len(matrix))]

    def parse(content: bytes) -> Found:
        heading, *rows = [line.split() for line in _lines(content) if line.strip()]
        names = [heading[0], *(row[0] for row in rows)]
        if names[:-1] != heading or len(set(names)) < len(names):
            raise ValueError("names")
        return Found(_filled([[], *([_number(cell) for cell in row[1:]] for row in rows)], "lower"), names)

    return Made("triangle of R", "\n".join([*lines, ""]).encode(), parse, None, " ")


def hdf5(choose: Chooser, matrix: np.ndarray) -> Made:
    """A file of UniFrac."""
    names = [name.encode() for name in _names(choose, len(matrix), QUOTED)]
    with _hdf5(choose) as (file, written):
        written["matrix"] = matrix
        written["order"] = names if choose.pick([True, False]) else np.array(names)
    return Made("HDF5", file.getvalue(), _of_hdf5, aside=True)


def hdf5_in_chunks(choose: Chooser, matrix: np.ndarray) -> Made:
    """A data set of HDF5 in chunks, with or without checksums."""
    options = choose.pick([{}, {"fletcher32": True}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True}])
    with _hdf5(choose) as (file, written):
        chunks = choose.number(1, min(3, len(matrix))), len(matrix)
        written.create_dataset("distances", data=matrix, chunks=chunks, **options)
    return Made(f"HDF5 in chunks, {options}", file.getvalue(), _of_hdf5, aside=True)


def anndata(choose: Chooser, matrix: np.ndarray) -> Made:
    """A file of AnnData with pairs of its observations, dense or sparse."""
    n = len(matrix)
    with _hdf5(choose) as (file, written):
        written.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        written["X"] = np.ones((n, 2))
        obs = written.create_group("obs")
        obs.attrs.update({"encoding-type": "dataframe", "_index": "cell", "column-order": ["mass"]})
        obs["cell"], obs["mass"] = _names(choose, n, QUOTED), np.arange(n)
        pairs = written.create_group("obsp")
        if sparsely := choose.pick([True, False]):
            _write_sparse(choose, pairs.create_group("distances"), matrix)
        else:
            pairs["distances"] = matrix
    return Made(f"AnnData, {'sparse' if sparsely else 'dense'}", file.getvalue(), _of_anndata, aside=True)


def _write_sparse(choose: Chooser, group: Any, matrix: np.ndarray) -> None:
    entries = sparse.csr_array(matrix)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": matrix.shape})
    for name in ("data", "indices", "indptr"):
        group.create_dataset(name, data=getattr(entries, name), **choose.pick([{}, {"compression": "gzip"}]))


@contextmanager
def _hdf5(choose: Chooser) -> Iterator[tuple[io.BytesIO, Any]]:
    """Write a file in memory."""
    file = io.BytesIO()
    with h5py.File(file, "w", libver=choose.pick(["earliest", "latest"])) as written:
        yield file, written


def _of_hdf5(content: bytes) -> Found:
    with h5py.File(io.BytesIO(content)) as file:
        (values,) = [node[()] for node in file.values() if len(node.shape) == 2]
        return Found(values, _texts(file, "order", len(values)))


def _of_anndata(content: bytes) -> Found:
    with h5py.File(io.BytesIO(content)) as file:
        (node,) = file["obsp"].values()
        values = node[()] if isinstance(node, h5py.Dataset) else _scattered(node)
        return Found(values, _texts(file["obs"], file["obs"].attrs["_index"], len(values)))


def _texts(group: Any, name: str, n: int) -> list[str] | None:
    """Names of points; None where damage has hidden them."""
    if name not in group or group[name].shape != (n,):
        return None
    return [text.decode() if isinstance(text, bytes) else str(text) for text in group[name][()].tolist()]


def _scattered(group: Any) -> np.ndarray:
    """A sparse matrix, entry by entry."""
    ends, columns, values = (group[name][()].tolist() for name in ("indptr", "indices", "data"))
    found = np.full(group.attrs["shape"], np.nan)
    np.fill_diagonal(found, 0)
    for row, (start, end) in enumerate(pairwise(ends)):
        for k in range(start, end):
            found[row, columns[k]] = values[k]
    return found


def archive(choose: Chooser, matrix: np.ndarray) -> Made:
    """A compressed table."""
    inside = table(choose, matrix)
    packed = {"gzip": (gzip.compress, gzip.decompress), "bz2": (bz2.compress, bz2.decompress)}
    packed |= {"xz": (lzma.compress, lzma.decompress), "zstd": (_zstd(choose), numcodecs.Zstd().decode)}
    kind = choose.pick([*packed, "zstd"])
    compress, decompress = packed[kind]

    def parse(content: bytes) -> Found:
        return inside.parse(bytes(decompress(content)))

    return Made(f"{inside.kind}, {kind}", compress(inside.content), parse)


def _zstd(choose: Chooser) -> Callable[[bytes], bytes]:
    """A compressor of zstd, as its command writes or as libraries do."""
    checksum, size = choose.pick([True, False]), choose.pick([True, False])
    return zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size).compress


FORMATS = (table, table, table, phylip, phylip, strict, of_r, tsplib, pairs, npy, npz, hdf5, hdf5_in_chunks)
FORMATS += (anndata, archive)

# how it is damaged ---------------------------------------------------------------------------------------------------


def _at(choose: Chooser, content: bytes) -> int:
    return choose.number(0, max(0, len(content) - 1))


def cut_short(choose: Chooser, made: Made) -> bytes:
    """The file ends early."""
    return made.content[: _at(choose, made.content)]


def flipped(choose: Chooser, made: Made) -> bytes:
    """A bit is another one."""
    content, place = bytearray(made.content), _at(choose, made.content)
    content[place] ^= 1 << choose.number(0, 7)
    return bytes(content)


def overwritten(choose: Chooser, made: Made) -> bytes:
    """Some bytes are replaced by others, or by none."""
    start = _at(choose, made.content)
    other = choose.pick(
        [b"", b"\n", b'"', b"\t", b",", b";", b" ", b"\0", b"\xff", b"x", b"#", b".", b"-", b"7", b"9" * 30]
    )
    return made.content[:start] + other + made.content[start + choose.number(0, 9) :]


def _by_lines(change: Callable[[Chooser, list[bytes]], list[bytes]]) -> Damage:
    def damage(choose: Chooser, made: Made) -> bytes:
        return b"\n".join(change(choose, made.content.split(b"\n")))

    damage.__name__ = change.__name__
    return damage


@_by_lines
def line_gone(choose: Chooser, lines: list[bytes]) -> list[bytes]:
    """A line is missing."""
    k = choose.number(0, len(lines) - 1)
    return lines[:k] + lines[k + 1 :]


@_by_lines
def line_twice(choose: Chooser, lines: list[bytes]) -> list[bytes]:
    """A line is there twice."""
    k = choose.number(0, len(lines) - 1)
    return lines[: k + 1] + lines[k:]


@_by_lines
def lines_swapped(choose: Chooser, lines: list[bytes]) -> list[bytes]:
    """Two lines have changed places."""
    i, j = (choose.number(0, len(lines) - 1) for _ in "ij")
    lines[i], lines[j] = lines[j], lines[i]
    return lines


@_by_lines
def line_inserted(choose: Chooser, lines: list[bytes]) -> list[bytes]:
    """A line of something else is between the others."""
    k = choose.number(0, len(lines) - 1)
    return [*lines[:k], choose.pick([b"-----", b"1", b"x", b"# note", b"   ", b"total 9"]), *lines[k:]]


def _by_cells(change: Callable[[Chooser, list[str], str], list[str]]) -> Damage:
    def damage(choose: Chooser, made: Made) -> bytes:
        lines = made.content.decode().split("\n")
        k = choose.number(0, len(lines) - 1)
        lines[k] = made.delimiter.join(change(choose, lines[k].split(made.delimiter), made.delimiter))
        return "\n".join(lines).encode()

    damage.__name__ = change.__name__
    return damage


@_by_cells
def word_in_cell(choose: Chooser, cells: list[str], delimiter: str) -> list[str]:
    """A cell holds something else."""
    cells[choose.number(0, len(cells) - 1)] = choose.pick(WORDS)
    return cells


@_by_cells
def cell_gone(choose: Chooser, cells: list[str], delimiter: str) -> list[str]:
    """A cell is missing."""
    del cells[choose.number(0, len(cells) - 1)]
    return cells


@_by_cells
def cell_twice(choose: Chooser, cells: list[str], delimiter: str) -> list[str]:
    """A cell is there twice."""
    k = choose.number(0, len(cells) - 1)
    return cells[: k + 1] + cells[k:]


@_by_cells
def other_delimiter(choose: Chooser, cells: list[str], delimiter: str) -> list[str]:
    """A line has other delimiters."""
    return [choose.pick([",", "\t", ";", " ", "|"]).join(cells)]


@_by_cells
def other_decimal(choose: Chooser, cells: list[str], delimiter: str) -> list[str]:
    """A number has the decimal mark of another country."""
    k = choose.number(0, len(cells) - 1)
    cells[k] = cells[k].translate(str.maketrans(".,", ",."))
    return cells


def other_encoding(choose: Chooser, made: Made) -> bytes:
    """A text is in another encoding."""
    encoding = choose.pick(["utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252"])
    return made.content.decode().encode(encoding, "replace")


def empty(choose: Chooser, made: Made) -> bytes:
    """Nothing is in the file, or blanks alone."""
    return choose.pick([b"", b"\n", b"  \n\n", b"\xef\xbb\xbf", b"\0" * 64, b"#\n"])


ANY: tuple[Damage, ...] = (cut_short, flipped, overwritten, overwritten)
IN_TEXT: tuple[Damage, ...] = (
    line_gone,
    line_twice,
    lines_swapped,
    line_inserted,
    word_in_cell,
    word_in_cell,
    cell_gone,
)
IN_TEXT += (cell_twice, other_delimiter, other_decimal, other_encoding, empty, *ANY)


def as_meant(choose: Chooser, made: Made) -> tuple[str, bytes]:
    """The same in another form: line ends, a byte order mark, empty lines, none at the end, compressed."""
    content, told = made.content, []
    if made.delimiter:
        pack, compress = choose.pick(
            [("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zstd", _zstd(choose))]
        )
        forms: list[tuple[str, Callable[[bytes], bytes]]] = [
            ("\\r\\n", lambda text: text.replace(b"\n", b"\r\n")),
            ("a byte order mark", lambda text: b"\xef\xbb\xbf" + text),
            ("no last line end", lambda text: text.rstrip(b"\n") if made.kind != "PHYLIP, upper" else text),
            ("empty lines", lambda text: text + b"\n\n"),
            (pack, compress),
        ]
        for name, change in forms:
            if choose.number(1, 5) == 5:
                content = change(content)
                told.append(name)
    return ", ".join(told) or "as it is", content


# what comes of it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A file and what is to come of it."""

    content: bytes
    made: Made
    written: Found
    verdict: Verdict
    story: str


def read_file(choose: Chooser, folder: Path) -> str:
    """A file into a store, by its content or by the name of its format."""
    n = seldom(choose, choose.number(3, 7), [1, 2, 12], 8)
    form = choose.pick(FORMATS)
    made = form(choose, _matrix(choose, max(n, 3) if form in (pairs, of_r) else n))
    written = made.parse(made.content)
    if choose.number(1, 4) == 1:
        what, content = as_meant(choose, made)
        verdict = Verdict.RIGHT if n > 2 else Verdict.EITHER
    else:
        damage = choose.pick(IN_TEXT if made.delimiter else ANY)
        if damage is lines_swapped and n < 4:  # three lines of a triangle the other way round are another triangle
            damage = line_twice
        what, content = damage.__name__, damage(choose, made)
        if made.delimiter and choose.number(1, 6) == 6:
            what, content = f"{what}, compressed", choose.pick([gzip.compress, lzma.compress])(content)
        verdict = Verdict.EITHER
    case = Case(
        content, made, written, verdict, f"{made.kind}, {n} points, {what}: {content[: 300 if made.aside else 3000]!r}"
    )
    return aside(case.story, end_of, case, folder) if made.aside else end_of(case, folder)


def end_of(case: Case, folder: Path) -> str:
    """Read a file, and tell how it ended."""
    right = [case.written]
    if case.verdict is not Verdict.RIGHT:
        right += _independent(case.made, case.content)
    place = folder / "a matrix.txt"
    place.write_bytes(case.content)
    hdf5_reader.LOOK_SECONDS = 3
    with _own_temporary_files(folder):
        end = judged(lambda: _require_one_of(right, _ingested(place, case.made.format)), case.verdict, case.story)
        gc.collect()
        left = [path.name for path in (*folder.iterdir(), *(folder / "temporary").iterdir())]
    expected = {place.name, "temporary"} | ({"store"} if end == "right" else set())
    if set(left) != expected:
        raise FuzzFailure(f"{case.story}: {end}, and left {sorted(set(left) - expected)}")
    return end


def _independent(made: Made, content: bytes) -> list[Found]:
    """What another parser makes of a damaged file."""
    with suppress(Exception):
        for magic, opened in ((b"\x1f\x8b", gzip.decompress), (b"\xfd7zXZ", lzma.decompress)):
            content = opened(content) if content.startswith(magic) else content
        return [made.parse(content)]
    return []


def _ingested(place: Path, format: str | None) -> Found:
    source = open_matrix(place, "float64", format)
    store = place.parent / "store"
    build(source, store, InProcessExecutor())
    rows = open_rows(store).verified()
    found = np.empty((rows.n, rows.n), rows.dtype)
    rows.read(0, rows.n, found)
    return Found(found, None if rows.ids is None else list(rows.ids))


def _require_one_of(right: list[Found], found: Found) -> None:
    for one in right:
        same = one.matrix.shape == found.matrix.shape and np.array_equal(one.matrix, found.matrix, equal_nan=True)
        if same and (found.ids == one.ids or one.ids is None):
            return
    wanted = " or ".join(f"{one.matrix.tolist()} of {one.ids}" for one in right)
    raise AssertionError(f"another matrix in silence, {found.matrix.tolist()} of {found.ids} instead of {wanted}")


@contextmanager
def _own_temporary_files(folder: Path) -> Iterator[None]:
    """Have temporary files written where they are seen."""
    (folder / "temporary").mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(folder / "temporary")
    try:
        yield
    finally:
        tempfile.tempdir = before


ENTRIES: dict[str, Any] = {"files of other programs": read_file}
