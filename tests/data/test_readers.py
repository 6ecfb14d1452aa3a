"""Files of other programs: what independent libraries write is read back, and damaged files end in a sentence."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, PatternSearchMDS, open_rows
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.readers import cells, hdf5, table, triangle, unpacked
from psmds_dist.data.readers import matrix as reading_text
from psmds_dist.data.readers.text import TextFile
from psmds_dist.data.store import describe
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

AWKWARD = ["0101", "NA", "1e5", "a b", "é\u4e2d", "x,y", "p;q", 'say "hi"', "#9", "-1", "null", "1_000", "=1+1", "it's"]
visible = st.characters(codec="utf-8", categories=("L", "N", "P", "S"))
names = st.one_of(st.sampled_from(AWKWARD), st.text(visible, min_size=1, max_size=12))
"""Names of all kinds, without blanks at their ends."""


@st.composite
def matrices(draw, least=2, most=6):
    """A symmetric matrix without a diagonal, and unique names that are not all numbers."""
    n = draw(st.integers(least, most))
    ids = draw(st.lists(names, min_size=n, max_size=n, unique=True))
    off = draw(st.lists(st.floats(0, 2.0**40, width=32), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2))
    return squareform(np.array(off, float)) if n > 1 else np.zeros((1, 1)), ids


def matrix_of(n, seed=0):
    return squareform(pdist(np.random.default_rng(seed).random((n, 3))))


def written(folder, content, name="matrix.txt"):
    place = Path(folder, name)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(place)


def all_rows(source):
    out = np.empty(source.shape, source.dtype)
    source.read(0, source.n, out)
    return out


def check(path, matrix, ids, format=None):
    source = open_matrix(path, "float64", format)
    np.testing.assert_array_equal(all_rows(source), matrix)
    assert (None if source.ids is None else list(source.ids)) == ids


def phylip(matrix, ids, cells, separator="\t", end="\n"):
    rows = [
        separator.join([name, *map(repr, row[slice(*cells(k))])]) for k, (name, row) in enumerate(rows_of(matrix, ids))
    ]
    return end.join([str(len(ids)), *rows, ""])


def rows_of(matrix, ids):
    return zip(ids, matrix.tolist(), strict=True)


# tables --------------------------------------------------------------------------------------------------------------


@SETTINGS
@example((np.zeros((1, 1)), ["a"]), ",", "\n", ".", "whole")
@example((matrix_of(2), ["1", "2x"]), "\t", "\r\n", ".", "whole")
@example((matrix_of(3), ["l\nm", '"', "x\ty"]), "\t", "\n", ",", "whole")
@given(
    matrices(),
    st.sampled_from(",;\t"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(".,"),
    st.sampled_from(["whole", "heading", "names", "numbers", "reordered", "BOM"]),
)
def test_tables_of_pandas(tmp_path, made, separator, end, decimal, parts):
    matrix, ids = made
    decimal = "." if separator == "," else decimal
    if any(name.startswith("#") for name in ids):
        ids = [f"x{name}" for name in ids]  # in few rows, a comment looks like one of them
    if sum(map(_looks_numeric, ids)) == len(ids):
        ids = [f"n{name}" for name in ids]
    frame = pd.DataFrame(matrix, ids, ids)
    if parts == "reordered":
        frame = frame.iloc[:, ::-1]
    how = {"heading": {"index": False}, "names": {"header": False}, "numbers": {"index": False, "header": False}}
    text = frame.to_csv(sep=separator, lineterminator=end, decimal=decimal, **how.get(parts, {}))
    content = (b"\xef\xbb\xbf" if parts == "BOM" else b"") + text.encode()
    check(written(tmp_path, content), matrix, None if parts == "numbers" else ids)


def _looks_numeric(name):
    return name in cells.MISSING or re.fullmatch(r"[\d.,eE+-]+", name) is not None


@pytest.mark.parametrize("ids", [["0101", "2", "3"], ["NA", "1e5", "null"], ["3", "1", "2"], ["-1", "nan", "-12"]])
def test_names_that_look_like_numbers_stay_as_they_are(tmp_path, ids):
    matrix = matrix_of(3)
    for label in ("", "id"):
        text = pd.DataFrame(matrix, ids, ids).to_csv(sep="\t", index_label=label)
        check(written(tmp_path, text), matrix, ids)


def test_comments_and_empty_lines_are_left_out(tmp_path):
    matrix, ids = matrix_of(3), ["a", "b", "c"]
    text = "# distances, made today\n\n" + pd.DataFrame(matrix, ids, ids).to_csv() + "\n\n"
    check(written(tmp_path, text), matrix, ids)
    text = pd.DataFrame(matrix, ids, ids).to_csv(sep="\t", index_label="#SampleID")
    check(written(tmp_path, text), matrix, ids)


def test_tables_of_r(tmp_path):
    matrix, ids = matrix_of(4), ["a b", "c", "d", "0101"]
    heading = " ".join(f'"{name}"' for name in ids)
    whole = "\n".join([heading, *(f'"{name}" ' + " ".join(map(repr, row)) for name, row in rows_of(matrix, ids)), ""])
    check(written(tmp_path, whole), matrix, ids)  # write.table
    printed = "\n".join(
        [
            "      a     c     d",
            *(f"{n}  " + "  ".join(map(repr, r[:k])) + "   " for k, (n, r) in enumerate(rows_of(matrix, "acde")) if k),
        ]
    )
    check(written(tmp_path, printed), matrix, list("acde"))  # print(dist)


def test_triangles_without_names(tmp_path):
    matrix = matrix_of(5)
    text = "\n".join(",".join(map(repr, row[: k + 1])) for k, row in enumerate(matrix.tolist()))
    check(written(tmp_path, text), matrix, None)


def test_empty_cells_and_words_for_missing_are_nan(tmp_path, monkeypatch):
    matrix, ids = matrix_of(4), list("abcd")
    matrix[0, 1] = matrix[1, 0] = matrix[3, 0] = np.nan
    for word in ("", "NA", "NaN", "nan"):
        path = written(tmp_path, pd.DataFrame(matrix, ids, ids).to_csv(na_rep=word))
        check(path, matrix, ids)
        with monkeypatch.context() as without:
            without.setattr(cells, "_arrow", lambda: None)
            check(path, matrix, ids)


@pytest.mark.parametrize(
    "compress", [gzip.compress, bz2.compress, lzma.compress, "zstd"], ids=["gzip", "bz2", "xz", "zstd"]
)
def test_compressed_text(tmp_path, compress):
    if compress == "zstd":
        compress = pytest.importorskip("zstandard").ZstdCompressor().compress
    matrix, ids = matrix_of(40), [f"p{k}" for k in range(40)]
    text = pd.DataFrame(matrix, ids, ids).to_csv(sep="\t").encode()
    source = open_matrix(written(tmp_path, compress(text)), "float64")
    np.testing.assert_array_equal(all_rows(source), matrix)
    last = np.empty((1, 40))
    source.read(39, 40, last)
    source.read(0, 1, last)  # goes back
    np.testing.assert_array_equal(last[0], matrix[0])
    for cut in (60, 500, len(compress(text)) - 5):
        with pytest.raises(InputError, match=r"matrix\.txt (is|has)"):
            all_rows(open_matrix(written(tmp_path, compress(text)[:cut])))


@SETTINGS
@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=30),
    st.sampled_from(["%r", "%.17e", "%.25g", "%.3f", "+%r"]),
)
def test_numbers_are_rounded_like_those_of_python(values, form):
    column = "\n".join((form % value).replace("+-", "-") for value in values)
    expected = [float(cell) for cell in column.split("\n")]
    for parse in (cells.numbers, cells._by_numpy):
        np.testing.assert_array_equal(parse(column.encode()), expected)


# PHYLIP --------------------------------------------------------------------------------------------------------------

CUTS = {
    "square": lambda n: lambda k: (0, n),
    "lower": lambda n: lambda k: (0, k),
    "lower, diagonal": lambda n: lambda k: (0, k + 1),
    "upper": lambda n: lambda k: (k + 1, n),
    "upper, diagonal": lambda n: lambda k: (k, n),
}


@SETTINGS
@given(matrices(), st.sampled_from(list(CUTS)), st.sampled_from(["\t", " ", "  "]), st.sampled_from(["\n", "\r\n"]))
def test_phylip_matrices(tmp_path, made, cut, separator, end):
    matrix, ids = made
    ids = [name.replace(" ", "_") for name in ids] if separator != "\t" else ids
    ids = [f"{k}{name}" for k, name in enumerate(ids)]
    text = phylip(matrix, ids, CUTS[cut](len(ids)), separator, end)
    check(written(tmp_path, text), matrix, ids, "phylip")


@pytest.mark.parametrize("cut", CUTS)
def test_names_of_ten_characters_may_hold_blanks(tmp_path, cut):
    matrix = matrix_of(5)
    ids = ["Homo 1", "Homo 2", "Pan", "Gorilla go", "Pongo 12"]
    padded = [name.ljust(10) for name in ids]
    check(written(tmp_path, phylip(matrix, padded, CUTS[cut](5), " ")), matrix, ids)


def test_rows_may_go_on_in_other_lines(tmp_path):
    matrix, ids = matrix_of(7), [f"taxon{k}" for k in range(7)]
    text = "7\n" + "".join(
        f"{n}  {' '.join(map(repr, r[:3]))}\n   {' '.join(map(repr, r[3:]))}\n" for n, r in rows_of(matrix, ids)
    )
    check(written(tmp_path, text), matrix, ids)


def test_the_files_of_mash_and_mothur_are_recognized(tmp_path):
    matrix, ids = matrix_of(4), ["a.fna", "b c.fna", "d.fna", "e.fna"]
    mash = "\t" + phylip(matrix, ids, CUTS["lower"](4))
    check(written(tmp_path, mash), matrix, ids)
    mothur = phylip(matrix, ids, CUTS["square"](4)).replace("\n", "\t\n").replace("4\t\n", "4\n", 1)
    check(written(tmp_path, mothur), matrix, ids)


def test_scikit_bio_reads_the_same(tmp_path):
    skbio = pytest.importorskip("skbio")
    matrix, ids = matrix_of(6), [f"s{k}" for k in range(6)]
    given_matrix = skbio.DistanceMatrix(matrix, ids)
    given_matrix.write(str(tmp_path / "lsmat.tsv"))
    check(str(tmp_path / "lsmat.tsv"), matrix, ids)
    given_matrix.write(str(tmp_path / "binary.h5"), format="binary_dm")
    check(str(tmp_path / "binary.h5"), matrix, ids)


# arrays in files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", ">u4"])
@pytest.mark.parametrize("chunks", [None, (3, 5)])
def test_hdf5_files_of_unifrac(tmp_path, monkeypatch, dtype, chunks):
    h5py = pytest.importorskip("h5py")
    if chunks is None:  # another process looks through the others first
        monkeypatch.setattr(hdf5, "fault_in", lambda *arguments, **options: None)
    matrix, ids = (matrix_of(12) * 100).astype(dtype), [f"s.{k}" for k in range(12)]
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("matrix", data=matrix, chunks=chunks)
        file["order"] = ids
        file["pcoa_samples"] = np.zeros((12, 3))
        file["more/other"] = matrix + 1
    check(str(tmp_path / "u.h5"), matrix, ids)
    check(f"{tmp_path / 'u.h5'}::more/other", matrix + 1, None)
    for name, told in {
        "pcoa_samples": r"has shape \(12, 3\)",
        "nothing": r"has no data set 'nothing', but the matrices 'matrix', 'more/other'",
        "more": "has a group at 'more'",
    }.items():
        with pytest.raises(InputError, match=told):
            open_matrix(f"{tmp_path / 'u.h5'}::{name}")
    content = (tmp_path / "u.h5").read_bytes()
    for cut in (100, len(content) // 2, len(content) - 50):
        with pytest.raises(InputError, match="damaged or cut short"):
            all_rows(open_matrix(written(tmp_path, content[:cut], "cut.h5")))


def test_several_matrices_ask_for_a_name(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["a"], file["b"] = matrix_of(3), matrix_of(3)
    with pytest.raises(InputError, match=r"'a', 'b'; give the name of one, such as .*u\.h5::a\."):
        open_matrix(tmp_path / "u.h5")
    np.savez(tmp_path / "u.npz", a=matrix_of(3), b=matrix_of(3))
    with pytest.raises(InputError, match=r"'a', 'b'; give the name of one, such as .*u\.npz::a\."):
        open_matrix(tmp_path / "u.npz")
    check(f"{tmp_path / 'u.npz'}::b", matrix_of(3), None)


@pytest.mark.parametrize("form", ["csr", "dense"])
def test_pairs_of_anndata(tmp_path, form):
    """The layout of AnnData's files, which h5py writes here."""
    h5py = pytest.importorskip("h5py")
    matrix, ids = matrix_of(9), [f"cell{k}" for k in range(9)]
    known = np.where(matrix < 0.7, matrix, 0)
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = np.zeros((9, 9))
        file["obs/barcode"] = ids
        file["obs"].attrs["_index"] = "barcode"
        if form == "dense":
            file["obsp/distances"] = matrix
        else:
            rows, group = sparse.csr_array(known), file.create_group("obsp/distances")
            group.attrs["shape"] = rows.shape
            group["data"], group["indices"], group["indptr"] = rows.data, rows.indices, rows.indptr
    unlisted = np.where((known > 0) | np.eye(9, dtype=bool), matrix, np.nan)
    check(str(tmp_path / "a.h5ad"), matrix if form == "dense" else unlisted, ids)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files(tmp_path, save):
    matrix, ids = matrix_of(6), np.array(["a", "0101", "é", "d", "e", "f"])
    for array in (matrix, np.asfortranarray(matrix), squareform(matrix), matrix.astype(">f8")):
        save(tmp_path / "d.npz", D=array, ids=ids)
        check(str(tmp_path / "d.npz"), matrix, ids.tolist())
    content = (tmp_path / "d.npz").read_bytes()
    damaged = content[:200] + bytes(60) + content[260:]
    with pytest.raises(InputError, match="damaged or cut short"):
        open_matrix(written(tmp_path, damaged, "damaged.npz"))


def test_unlisted_entries_of_sparse_matrices_are_missing(tmp_path):
    matrix = matrix_of(7)
    known = sparse.csr_array(np.where(matrix < 0.6, matrix, 0))
    expected = np.where((known.toarray() > 0) | np.eye(7, dtype=bool), matrix, np.nan)
    for form in (known, known.tocsc(), known.tocoo()):
        sparse.save_npz(tmp_path / "s.npz", form)
        np.testing.assert_array_equal(all_rows(open_matrix(tmp_path / "s.npz", "float64")), expected)


# refusals ------------------------------------------------------------------------------------------------------------

LINES = ["\ta\tb\tc", "a\t0\t1\t2", "b\t1\t0\t3", "c\t2\t3\t0"]


def changed(line, text):
    return "\n".join([*LINES[:line], text, *LINES[line + 1 :], ""])


REFUSED = {
    "a word": (changed(2, "b\t1\tzero\t3"), r"has 'zero' instead of a number in line 3, number 2 of its row"),
    "two numbers in a cell": (changed(2, "b\t1\t0 0\t3"), r"has '0 0' instead of a number in line 3, number 2"),
    "a long line": (changed(2, "b\t1\t0\t3\t4"), r"has 4 numbers in line 3 instead of 3, as a square matrix of 3"),
    "a short line": (changed(1, "a\t0\t1"), r"has 2 numbers in line 2 instead of 3"),
    "a cut line": (changed(3, "c\t2"), r"has 1 number in line 4 instead of 3, .*the file may be cut short"),
    "a cut file": ("\n".join(LINES[:3]) + "\n", "has a heading of 4 cells above 2 rows.*may be cut short"),
    "rows that lack": ("a\t0\t1\t2\nb\t1\t0\t3\n", r"has 2 rows of 3 numbers, but .* square\. It may be cut short"),
    "another column": (changed(0, "\ta\tb\tx"), r"has a column 'x' \(3\) but no row of that name"),
    "twin columns": (changed(0, "\ta\tb\tb"), r"has 2 columns of the name 'b'"),
    "a word in a first row without names": ("0\t?\t2\n?\t0\t3\n2\t3\t0\n", r"has '\?' instead of a number in line 1"),
    "two decimal marks": (changed(1, "a\t0\t1,5\t2.5"), r"has '(1,5|2\.5)' instead of a number in line 2"),
    "another encoding": (changed(2, "b\udcff\t1\t0\t3"), r"is not UTF-8 text .* in line 3\)?; save it as UTF-8"),
    "PHYLIP, cut": ("4\na\nb 1\nc 2 3\n", "announces 4 sequences and has lines of 3; the file may be cut short"),
    "PHYLIP, a word": ("3\na\nb 1\nc 2 x\n", r"has 'x' instead of a number in line 4, number 2 of its row"),
    "PHYLIP, ragged": ("3\na\nb 1\nc 2\n", r"has 1 number in line 4 instead of 2, as a lower triangle of 3 points has"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_damaged_text_is_told_with_its_line(tmp_path, name):
    text, told = REFUSED[name]
    path = written(tmp_path, text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=told) as refused:
        build(open_matrix(path), tmp_path / "m.zarr", InProcessExecutor())
    assert str(refused.value).startswith(path)
    assert not (tmp_path / "m.zarr").exists()


LOWER = "0.0\n1.5\t0.0\n2.5\t3.5\t0.0\n4.5\t5.5\t6.5\t0.0\n"


def test_a_triangle_that_lost_its_first_line_has_no_names(tmp_path):
    check(
        written(tmp_path, LOWER),
        np.array([[0, 1.5, 2.5, 4.5], [1.5, 0, 3.5, 5.5], [2.5, 3.5, 0, 6.5], [4.5, 5.5, 6.5, 0]]),
        None,
    )
    with pytest.raises(InputError, match=r"has 2 numbers in line 1 instead of"):
        open_matrix(written(tmp_path, LOWER[4:]))


def test_a_word_in_the_first_column_of_numbers_is_told(tmp_path):
    with pytest.raises(InputError, match=r"has '2\.5#' instead of a number in line 3"):
        all_rows(open_matrix(written(tmp_path, LOWER.replace("2.5", "2.5#"))))


def test_the_first_row_of_a_triangle_is_no_heading(tmp_path):
    with pytest.raises(InputError, match="has 3 numbers in line 1 instead of 4"):
        open_matrix(written(tmp_path, "0.0\t1.5\t2.54.5\n0.0\t3.5\t5.5\n0.0\t6.5\n0.0\n".replace("2.54.5", "25e4")))


def test_a_word_in_the_first_row_of_a_triangle_is_told(tmp_path):
    with pytest.raises(InputError, match=r"has '2\.-' instead of a number in line 1, number 3"):
        all_rows(open_matrix(written(tmp_path, "0.0\t1.5\t2.-\t4.5\n0.0\t3.5\t5.5\n0.0\t6.5\n0.0\n")))


def test_a_heading_in_another_encoding_is_told(tmp_path):
    text = pd.DataFrame(matrix_of(3), list("abc"), ["a", "b", "é"]).to_csv().encode("latin-1")
    with pytest.raises(InputError, match=r"not UTF-8 text .* in line 1\)"):
        open_matrix(written(tmp_path, text))


def test_a_heading_with_other_delimiters_is_no_point(tmp_path):
    with pytest.raises(InputError, match=r"other delimiters in line 1, ';n0;n1', than below"):
        open_matrix(written(tmp_path, ";n0;n1\nn1 1.5\nn2 2.5 3.5\n"))


def test_errors_of_spreadsheets_are_no_comments(tmp_path):
    with pytest.raises(InputError, match=r"has '#DIV/0!' instead of a number in line 1"):
        all_rows(open_matrix(written(tmp_path, "#DIV/0!;1.5;2.5\n0.0;3.5\n0.0\n")))


def test_quotes_are_around_numbers_only(tmp_path):
    matrix = matrix_of(3)
    text = "\n".join(",".join(f'"{value!r}"' for value in row) for row in matrix.tolist())
    check(written(tmp_path, text), matrix, None)
    for quoted in ('1"5', '"1.5', '15"'):
        with pytest.raises(InputError):
            all_rows(open_matrix(written(tmp_path, f"0,1.5,2.5\n1.5,0,3.5\n2.5,{quoted},0\n")))


def test_the_ten_characters_of_a_strict_name_are_no_numbers(tmp_path):
    """A line with other delimiters would be taken for a name and what is left of its numbers."""
    lines = ["3", "C3|0.0", "D4 89.0 41|0.0", "E5 1.0 412.0 0.0"]
    with pytest.raises(InputError):
        all_rows(open_matrix(written(tmp_path, "\n".join(lines))))
    tabs = ["3", "C3\t0.0", "D4|896.0|0.0", "E5\t1.000\t42.0 0.0"]
    with pytest.raises(InputError):
        all_rows(open_matrix(written(tmp_path, "\n".join(tabs))))


def test_a_tab_among_blanks_is_in_no_name(tmp_path):
    with pytest.raises(InputError, match=r"in line 3"):
        open_matrix(written(tmp_path, "3\na 1.5 2.5\nb 3.\t25\nc\n"), format="phylip")
    with pytest.raises(InputError):
        open_matrix(written(tmp_path, "4\na 1.5 2.5 4.5\nb 3.\t25 5.5\nc 6.5\nd\n"))
    matrix = matrix_of(4)
    rows = [f"Homo {k}\t" + " ".join(map(repr, row)) for k, row in enumerate(matrix.tolist())]
    check(written(tmp_path, "\n".join(["4", *rows])), matrix, ["Homo 0", "Homo 1", "Homo 2", "Homo 3"])


@pytest.mark.parametrize("count", ["1e999", "x", "-3"])
def test_a_damaged_count_is_no_point(tmp_path, count):
    text = phylip(matrix_of(4), list("abcd"), CUTS["lower, diagonal"](4))
    with pytest.raises(InputError, match="line 1 did not belong to it; it must be the number of sequences"):
        open_matrix(written(tmp_path, text.replace("4", count, 1)))


def test_a_count_in_the_last_line_is_no_point(tmp_path):
    """With it as a seventh point, an upper triangle with its diagonal is one without."""
    numbers = [" ".join(map(repr, row[k:])) for k, row in enumerate(matrix_of(6).tolist())]

    def opened(names):
        lines = [f"{name} {row}".strip() for name, row in zip(names, [*numbers, ""], strict=True)]
        return open_matrix(written(tmp_path, "\n".join(["", *lines, ""])))

    with pytest.raises(InputError, match="has the number of its other rows, 6, alone in line 8"):
        opened("abcdef6")
    assert opened("abcdefx").n == opened("0123456").n == 7


def test_twin_rows_are_refused_by_name(tmp_path):
    path = written(tmp_path, "a,0,1,2\nb,1,0,3\na,2,3,0\n")
    with pytest.raises(InputError, match="has the id 'a' twice, for points 0 and 2"):
        build(open_matrix(path), tmp_path / "m.zarr", InProcessExecutor())


def test_counted_columns_are_matched_to_rows_in_another_order(tmp_path):
    matrix = matrix_of(3)
    frame = pd.DataFrame(matrix, ["3", "1", "2"], ["3", "1", "2"])[["1", "2", "3"]]
    check(written(tmp_path, frame.to_csv()), matrix, ["3", "1", "2"])


def test_a_heading_without_a_cell_above_the_names_may_mix_numbers_and_words(tmp_path):
    check(written(tmp_path, "1 A 2\n1 0 1 2\nA 1 0 3\n2 2 3 0\n"), [[0, 1, 2], [1, 0, 3], [2, 3, 0]], ["1", "A", "2"])


def test_a_lower_triangle_may_begin_with_zero(tmp_path):
    check(written(tmp_path, "0\n1 0\n2 3 0\n"), [[0, 1, 2], [1, 0, 3], [2, 3, 0]], None)


def test_decimal_commas_go_with_one_mark_only(tmp_path):
    path = written(tmp_path, "0;1,5;2000\n1,5;0;2,5\n2000;2,5;0\n")
    check(path, [[0, 1.5, 2000], [1.5, 0, 2.5], [2000, 2.5, 0]], None)
    mixed = written(tmp_path, "0;1,5;2,5\n1,5;0;3.25\n2,5;3,25;0\n")
    with pytest.raises(InputError, match=r"has '1,5' instead of a number in line 1"):
        all_rows(open_matrix(mixed))


def test_formats_are_named(tmp_path):
    path = written(tmp_path, "1,2\n3,4\n")
    with pytest.raises(InputError, match=r"is no \.npz archive with arrays"):
        open_matrix(path, format="npz")
    with pytest.raises(InputError, match="format must be one of 'npy', 'npz', 'hdf5', .*not 'excel'"):
        open_matrix(path, format="excel")
    with pytest.raises(InputError, match="does not begin with the number of its sequences"):
        open_matrix(path, format="phylip")
    with pytest.raises(InputError, match=r"holds one matrix, so leave ::x out"):
        open_matrix(f"{path}::x")


@pytest.mark.parametrize(("module", "extra", "name"), [("h5py", "hdf5", "m.h5"), ("zstandard", "text", "m.csv.zst")])
def test_a_missing_library_is_told_with_the_command(tmp_path, monkeypatch, module, extra, name):
    monkeypatch.setitem(sys.modules, module, None)
    content = b"\x89HDF\r\n\x1a\n..." if module == "h5py" else b"\x28\xb5\x2f\xfd...."
    with pytest.raises(InputError, match=rf"needs {module}: pip install 'psmds-dist\[{extra}\]'"):
        open_matrix(written(tmp_path, content, name))


def test_a_full_temporary_directory_is_told(tmp_path, monkeypatch):
    text = phylip(matrix_of(5), list("abcde"), CUTS["lower"](5))
    usage = type("Usage", (), {"free": 3})
    monkeypatch.setattr(unpacked.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match="set the environment variable TMPDIR to a directory with more room"):
        open_matrix(written(tmp_path, text))


def test_temporary_files_go_with_their_source(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacked.tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    source = open_matrix(written(tmp_path, phylip(matrix_of(5), list("abcde"), CUTS["lower"](5))), "float64")
    copy = source.verified()
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    del source
    np.testing.assert_array_equal(all_rows(copy), matrix_of(5))
    del copy
    assert not list((tmp_path / "scratch").iterdir())


# the same map --------------------------------------------------------------------------------------------------------


def test_every_format_gives_the_same_map_and_store(tmp_path):
    matrix, ids = matrix_of(40), [f"{k:04d}" for k in range(40)]
    np.save(tmp_path / "m.npy", matrix)
    frame = pd.DataFrame(matrix, ids, ids)
    frame.to_csv(tmp_path / "m.csv")
    written(tmp_path, phylip(matrix, ids, CUTS["lower"](40)), "m.phylip")
    np.savez(tmp_path / "m.npz", D=matrix, ids=ids)
    build(open_matrix(tmp_path / "m.npy"), tmp_path / "npy.zarr", InProcessExecutor(), ids=ids)
    stored = open_rows(tmp_path / "npy.zarr")
    expected = PatternSearchMDS(random_state=0, effort="quick").fit(str(tmp_path / "npy.zarr"))
    for suffix in ("csv", "phylip", "npz"):
        build(open_matrix(tmp_path / f"m.{suffix}"), tmp_path / f"{suffix}.zarr", InProcessExecutor())
        again = open_rows(tmp_path / f"{suffix}.zarr")
        assert again.load_check() == stored.load_check()
        assert again.ids == ids
        found = PatternSearchMDS(random_state=0, effort="quick").fit(str(tmp_path / f"m.{suffix}"))
        np.testing.assert_array_equal(found.embedding_, expected.embedding_)
        assert list(found.ids_) == ids


def test_memory_stays_bounded(tmp_path):
    """Rows are parsed some at a time, whatever is asked for at once."""
    import tracemalloc

    n = 1200
    text = io.StringIO()
    np.savetxt(text, matrix_of(n), delimiter="\t")
    source = open_matrix(written(tmp_path, text.getvalue()))
    out = np.empty((n, n), np.float32)
    tracemalloc.start()
    source.read(0, n, out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < source.read_profile.scratch_bytes
    assert source.read_profile.scratch_bytes < 1.2 * len(text.getvalue())  # 36 MB


def test_the_index_of_a_table_keeps_no_text(tmp_path):
    import tracemalloc

    text = io.StringIO()
    np.savetxt(text, matrix_of(500), delimiter=",")
    path = written(tmp_path, text.getvalue())
    tracemalloc.start()
    index = table.read_index(TextFile(path), cells.Dialect(","))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert index.n == 500
    assert peak < 0.15 * len(text.getvalue())  # 6 MB


def test_parsing_loads_no_pandas():
    pytest.importorskip("pyarrow")
    code = (
        "import sys; from psmds_dist.data.readers.cells import numbers; "
        "assert str(numbers(b'1\\n\\nNA\\n2')) == '[ 1. nan nan  2.]'; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("cut", ["lower", "lower, diagonal", "upper", "upper, diagonal"])
def test_any_rows_of_a_triangle(tmp_path, monkeypatch, cut):
    """A triangle is cut into panels of columns, of which some rows are read at a time."""
    n = 150
    matrix, ids = matrix_of(n), [f"p{k}" for k in range(n)]
    if "diagonal" in cut:
        np.fill_diagonal(matrix, np.arange(n))
    monkeypatch.setattr(triangle, "PIECE_BYTES", 1000)
    monkeypatch.setattr(reading_text, "PARSED_BYTES", 5000)
    opened = open_matrix(written(tmp_path, phylip(matrix, ids, CUTS[cut](n))), "float64")
    source = pickle.loads(pickle.dumps(opened))
    assert source.read_profile.rows_per_chunk == 16
    for lo, hi in [(0, n), (0, 1), (n - 1, n), (5, 9), (16, 32), (20, 100), (140, n)]:
        out = np.empty((hi - lo, n), source.dtype)
        source.read(lo, hi, out)
        np.testing.assert_array_equal(out, matrix[lo:hi])


def test_a_triangle_that_is_cut_short_while_it_is_read_is_told(tmp_path):
    source = open_matrix(written(tmp_path, phylip(matrix_of(40), [f"p{k}" for k in range(40)], CUTS["lower"](40))))
    os.truncate(source.source.path, 100)
    with pytest.raises(InputError, match="was cut short while it was read"):
        all_rows(source)


# garbled files -------------------------------------------------------------------------------------------------------


def contents(folder):
    """A valid file of every format but HDF5, whose own library may loop in a damaged heap of strings."""
    matrix, ids = matrix_of(6), ["0101", "a b", 'say "hi"', "x,y", "é", "NA"]
    frame = pd.DataFrame(matrix, ids, ids)
    np.savez(folder / "a.npz", D=matrix, ids=ids)
    sparse.save_npz(folder / "s.npz", sparse.csr_array(matrix))
    return {
        "csv": frame.to_csv().encode(),
        "tsv": frame.to_csv(sep="\t", lineterminator="\r\n").encode(),
        "semicolons": frame.to_csv(sep=";", decimal=",").encode(),
        "gz": gzip.compress(frame.to_csv().encode()),
        "phylip": phylip(matrix, list("abcdef"), CUTS["lower"](6)).encode(),
        "npz": (folder / "a.npz").read_bytes(),
        "sparse": (folder / "s.npz").read_bytes(),
    }


edits = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 40),
        st.sampled_from([b"", b"\n", b'"', b"\t", b",", b"\0", b"\xff", b"x", b"#", b"9" * 30]),
    ),
    min_size=1,
    max_size=3,
)


def garbled(content, changes):
    for share, length, insert in changes:
        at = int(share * len(content))
        content = content[:at] + insert + content[at + length :]
    return content


def refused_or_read(path):
    """Read a file, or see that it is refused in a sentence that names it."""
    told = None
    try:
        source = open_matrix(path)
        rows = all_rows(source)
        assert rows.shape == (source.n, source.n)
        assert source.ids is None or len(list(source.ids)) == source.n
    except InputError as error:
        told = str(error)
    assert told is None or (os.path.basename(path) in told and told.endswith("."))


@settings(SETTINGS, max_examples=150)
@given(st.data())
def test_garbled_files_are_read_or_refused(tmp_path, data):
    files = contents(tmp_path)
    kind = data.draw(st.sampled_from(sorted(files)))
    refused_or_read(written(tmp_path, garbled(files[kind], data.draw(edits)), f"garbled.{kind}"))


@pytest.mark.wide
@settings(SETTINGS, max_examples=5000)
@given(st.data())
def test_many_garbled_files_are_read_or_refused(tmp_path, data):
    files = contents(tmp_path)
    kind = data.draw(st.sampled_from(sorted(files)))
    refused_or_read(written(tmp_path, garbled(files[kind], data.draw(edits)), f"garbled.{kind}"))


def test_columns_in_another_order_are_put_right_by_name_and_recorded(tmp_path, caplog):
    matrix = matrix_of(4)
    text = pd.DataFrame(matrix, list("abcd"), list("abcd"))[list("dbca")].to_csv()
    with caplog.at_level("INFO", "psmds_dist"):
        source = open_matrix(written(tmp_path, text), "float64")
    assert "columns were put into the order of the rows by name" in caplog.text
    build(source, tmp_path / "m.zarr", InProcessExecutor())
    np.testing.assert_array_equal(all_rows(open_matrix(tmp_path / "m.zarr")), matrix)
    assert describe(tmp_path / "m.zarr")["notes"] == ["columns were put into the order of the rows by name"]


def test_a_triangle_with_columns_in_another_order_is_refused_by_name(tmp_path):
    path = written(tmp_path, "id,b,a,c\na,0,,\nb,1,0,\nc,2,3,0\n".replace(",,\n", "\n").replace("0,\n", "0\n"))
    with pytest.raises(InputError, match=r"is a triangle whose columns .* row 1, 'a', is column 2"):
        open_matrix(path)


def test_twin_columns_are_refused_by_name(tmp_path):
    path = written(tmp_path, "id,a,b,b\na,0,1,2\nb,1,0,3\nc,2,3,0\n")
    with pytest.raises(InputError, match="has 2 columns of the name 'b'"):
        open_matrix(path)


# tsplib --------------------------------------------------------------------------------------------------------------

LISTED = {
    "FULL_MATRIX": lambda d: d.ravel(),
    "UPPER_ROW": lambda d: d[np.triu_indices(len(d), 1)],
    "LOWER_ROW": lambda d: d[np.tril_indices(len(d), -1)],
    "UPPER_DIAG_ROW": lambda d: d[np.triu_indices(len(d))],
    "LOWER_DIAG_ROW": lambda d: d[np.tril_indices(len(d))],
    "UPPER_DIAG_COL": lambda d: d.T[np.tril_indices(len(d))],
    "LOWER_COL": lambda d: d.T[np.triu_indices(len(d), 1)],
}


def tsplib(matrix, kind, wrap, end="\n", **fields):
    header = {"NAME": "made", "TYPE": "TSP", "COMMENT": "1: of 2", "DIMENSION": len(matrix), **fields}
    header = {"EDGE_WEIGHT_TYPE": "EXPLICIT", "EDGE_WEIGHT_FORMAT": kind, **header}
    cells = [repr(value) for value in LISTED[kind](np.asarray(matrix)).tolist()]
    lines = ["  ".join(cells[k : k + wrap]) for k in range(0, len(cells), wrap)]
    top = [f"{key}: {value}" if key != "TYPE" else f"{key} : {value}" for key, value in header.items()]
    return end.join([*top, "EDGE_WEIGHT_SECTION", *lines, "DISPLAY_DATA_SECTION", "1 2.0 3.0", "EOF", ""])


@pytest.mark.parametrize("kind", LISTED)
@pytest.mark.parametrize("wrap", [1, 7, 1000])
def test_explicit_tables_of_tsplib(tmp_path, kind, wrap):
    for n in (2, 3, 9):
        matrix = matrix_of(n)
        check(written(tmp_path, tsplib(matrix, kind, wrap)), matrix, None)
    check(written(tmp_path, tsplib(matrix, kind, wrap, "\r\n")), matrix, None, "tsplib")


def test_a_table_of_tsplib_as_it_is_published(tmp_path):
    text = """NAME: gr5
TYPE: TSP
COMMENT: 5-city problem
DIMENSION: 5
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: LOWER_DIAG_ROW
EDGE_WEIGHT_SECTION
 0 633 0 257 390 0 91 661 228 0 412 227
 169 383 0
EOF
"""
    expected = [[0, 633, 257, 91, 412], [633, 0, 390, 661, 227], [257, 390, 0, 228, 169], [91, 661, 228, 0, 383]]
    check(written(tmp_path, text), [*expected, [412, 227, 169, 383, 0]], None)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"DIMENSION": 4}, "has 3 numbers in its EDGE_WEIGHT_SECTION instead of 6"),
        ({"DIMENSION": "many"}, "has DIMENSION 'many'"),
        ({"EDGE_WEIGHT_TYPE": "EUC_2D"}, "lists no distances; save its coordinates"),
        ({"EDGE_WEIGHT_FORMAT": "FUNCTION"}, "has EDGE_WEIGHT_FORMAT 'FUNCTION', but needs one of FULL_MATRIX"),
    ],
)
def test_faults_of_tables_of_tsplib_are_told(tmp_path, fields, told):
    with pytest.raises(InputError, match=told):
        open_matrix(written(tmp_path, tsplib(matrix_of(3), "UPPER_ROW", 7, **fields)))


def endless(content):
    """A file of HDF5 in which the library never finds the end of a text."""
    at = content.index(b"GCOL") + 24  # size of the first one
    return content[:at] + b"\x64" + content[at + 1 :]


def test_a_file_in_which_hdf5_loops_forever_is_damaged(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.setattr(hdf5, "LOOK_SECONDS", 2)
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file["matrix"] = squareform([1.0, 2.0, 2.5])
        file["order"] = ["a", "b", "c"]
    assert open_matrix(path).ids == ["a", "b", "c"]
    path.write_bytes(endless(path.read_bytes()))
    with pytest.raises(DamagedDataError, match=r"m.h5 is damaged \(in the HDF5 library there is no end in 2 s\)"):
        open_matrix(path)


@pytest.mark.parametrize("name", ["matrix/order", "obsp/d/indices"])
def test_damage_behind_what_is_opened_is_told_in_a_sentence(tmp_path, name):
    """Names in texts of variable length, and a sparse matrix, are read late; their checksums are tested then."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        if name == "matrix/order":
            file["matrix"] = squareform([1.0, 2.0, 2.5])
            file["order"] = ["a", "b", "c"]
        else:
            group = file.create_group("obsp/d")
            group.attrs["shape"] = (3, 3)
            group["data"], group["indptr"] = np.ones(6), [0, 2, 4, 6]
            group.create_dataset("indices", data=[1, 2, 0, 2, 0, 1], chunks=(6,), fletcher32=True)
    content = path.read_bytes()
    wanted = b"GCOL" if name == "matrix/order" else np.array([1, 2, 0, 2, 0, 1]).tobytes()
    path.write_bytes(content.replace(wanted, b"X" + wanted[1:]))
    with pytest.raises(DamagedDataError, match="m.h5.* is damaged or cut short"):
        build(open_matrix(path), tmp_path / "store", InProcessExecutor())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("flip", [(b"ids.npy", 2, 16), (b"matrix.npy", -13, 1)])
def test_a_directory_that_hides_the_names_of_an_archive_is_damaged(tmp_path, flip):
    np.savez(tmp_path / "m.npz", matrix=matrix_of(4), ids=np.array(list("abcd")))
    content, (name, place, bit) = bytearray((tmp_path / "m.npz").read_bytes()), flip
    content[content.rindex(name) + place] ^= bit
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(DamagedDataError, match="m.npz is damaged"):
        open_matrix(str(tmp_path / "m.npz"))
