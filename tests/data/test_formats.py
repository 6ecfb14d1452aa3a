"""Objects and files that users hand over: taken where that costs nothing, otherwise told with the code that helps."""

import ast
import gzip
import importlib
import os
import pickle
import re
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from landmarks import LandmarkMDS
from psmds_dist import DissimilarityWarning, PatternSearchMDS, open_rows
from psmds_dist.api.inputs import labels_of
from psmds_dist.cli.app import main
from psmds_dist.core.types import InputError
from psmds_dist.data.formats import other_format, table_recipe
from psmds_dist.data.ids import read_ids
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build

N = 40
NAMES = ["0101", "NA", "1e5", "10317.5", "10317.50", "null", "TRUE", "-1", "+3", "1_000"]
NAMES += [f"{k:04d}" for k in range(N - len(NAMES))]


@pytest.fixture(scope="module")
def matrix():
    return np.round(squareform(pdist(np.random.default_rng(1).random((N, 3)))), 6)


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, values, index, columns):
        self.values, self.index, self.columns = values, index, columns
        self.shape = np.shape(values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


class DistanceMatrix:
    """As much of scikit-bio's as is looked at; NumPy sees one object in it."""

    def __init__(self, data, ids):
        self.data, self.ids, self.shape = data, tuple(ids), data.shape


class Container(dict):
    """Stands for an HDF5 file."""


def table(path, matrix, names, separator="\t", corner=""):
    lines = [separator.join([corner, *names])]
    lines += [separator.join([name, *map(repr, row)]) for name, row in zip(names, matrix.tolist(), strict=True)]
    path.write_text("\n".join(lines) + "\n")


# names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "columns", "told"),
    [
        ([101, 2], ["0101", "2"], r"index holds 101 where its columns hold the text '0101' \(row 0\).*converters="),
        ([1.0, float("nan")], ["1.0", "NA"], r"index holds nan where its columns hold the text 'NA' \(row 1\)"),
        (["0101", "x"], [101, "x"], r"columns hold 101 where its index holds the text '0101' \(column 0\)"),
        (["a", "b"], ["b", "a"], r"index and columns name the points in different orders.*frame.loc\[frame.columns\]"),
        (["a", "b"], ["a", "c"], "different names, first 'b' in row 1 and 'c' in column 1"),
    ],
)
def test_axes_that_disagree_are_told_as_what_they_are(index, columns, told):
    frame = Frame(np.array([[0.0, 1.0], [1.0, 0.0]]), index, columns)
    for mds in (PatternSearchMDS(), LandmarkMDS()):
        with pytest.raises(InputError, match=told):
            mds.fit(frame)


def test_an_axis_without_names_takes_those_of_the_other():
    values = np.zeros((2, 2))
    assert labels_of(Frame(values, ["a", "b"], range(2))) == ["a", "b"]
    assert labels_of(Frame(values, range(2), ["00", "01"])) == ["00", "01"]
    assert labels_of(Frame(values, range(2), range(2))) == ["0", "1"]


def test_a_column_of_names_that_is_no_index_is_told():
    frame = Frame(np.zeros((2, 3)), range(2), ["names", "a", "b"])
    for mds in (PatternSearchMDS(), LandmarkMDS()):
        with pytest.raises(InputError, match=r"one column more than rows, 3 and 2: .*frame.set_index\('names'\)"):
            mds.fit(frame)


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("corner", ["", "id"])
def test_the_recipe_keeps_names_that_look_like_numbers(tmp_path, matrix, separator, corner):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / ("matrix.tsv" if separator == "\t" else "matrix.csv")
    for names in (NAMES, [f"{k:04d}" for k in range(N)], [f"1e{k}" for k in range(N)]):
        table(path, matrix, names, separator, corner)
        scope = {"pandas": pandas}
        exec(table_recipe(str(path), separator), scope)
        np.testing.assert_array_equal(scope["frame"].to_numpy(), matrix)
        assert PatternSearchMDS(random_state=0, max_epochs=3).fit(scope["frame"]).ids_ == names
        assert read_ids(path, N) == names
    parsed = pandas.read_csv(path, sep=separator, index_col=0)
    with pytest.raises(InputError, match="read as numbers; read them as text"):
        PatternSearchMDS().fit(parsed)


def test_the_readme_gives_the_recipe():
    from pathlib import Path

    readme = " ".join(Path("README.md").read_text().split())
    for line in table_recipe("matrix.tsv").replace("'", '"').split("; "):
        assert line in readme


# objects -------------------------------------------------------------------------------------------------------------


def test_a_distance_matrix_keeps_its_ids_up_to_the_exported_map(tmp_path, matrix):
    given = DistanceMatrix(matrix, NAMES)
    expected = PatternSearchMDS(random_state=0).fit(matrix)
    found = PatternSearchMDS(random_state=0).fit(given)
    np.testing.assert_array_equal(found.embedding_, expected.embedding_)
    found.save(tmp_path / "map.zarr")
    assert CliRunner().invoke(main, ["export", str(tmp_path / "map.zarr"), str(tmp_path / "map.csv")]).exit_code == 0
    assert read_ids(tmp_path / "map.csv", N) == NAMES
    through = LandmarkMDS(n_landmarks=20, random_state=0).fit(given)
    through.save(tmp_path / "landmarks.zarr")
    assert LandmarkMDS.load(tmp_path / "landmarks.zarr").ids_ == NAMES
    condensed = DistanceMatrix(squareform(matrix), NAMES)  # scikit-bio keeps some like that
    np.testing.assert_array_equal(PatternSearchMDS(random_state=0).fit(condensed).embedding_, expected.embedding_)


def test_a_distance_matrix_is_built_into_a_store(tmp_path, matrix):
    given = DistanceMatrix(matrix, NAMES)
    build(ArrayRows(given), tmp_path / "d.zarr", InProcessExecutor(), ids=given.ids)
    assert open_rows(tmp_path / "d.zarr").ids == NAMES


def real(module, make):
    """A test case with an object of a package that may be missing."""
    return pytest.param(module, make, id=f"{module} {make.__name__}")


def nullable(pandas, matrix):
    return pandas.DataFrame(matrix, NAMES, NAMES).astype("Float64")


def arrow(pandas, matrix):
    pytest.importorskip("pyarrow")
    return pandas.DataFrame(matrix, NAMES, NAMES).astype("double[pyarrow]")


def mixed(pandas, matrix):
    frame = pandas.DataFrame(matrix, NAMES, NAMES)
    return frame.astype(dict.fromkeys(NAMES[::2], "Float64"))


def distance_matrix(skbio, matrix):
    return skbio.DistanceMatrix(matrix, NAMES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "make"),
    [real("pandas", nullable), real("pandas", arrow), real("pandas", mixed), real("skbio", distance_matrix)],
)
def test_objects_of_other_packages_are_taken(module, make, matrix):
    given = make(pytest.importorskip(module), matrix)
    expected = PatternSearchMDS(random_state=0).fit(matrix)
    found = PatternSearchMDS(random_state=0).fit(given)
    np.testing.assert_array_equal(found.embedding_, expected.embedding_)
    assert found.ids_ == NAMES
    through = LandmarkMDS(n_landmarks=20, random_state=0).fit(given)
    assert through.ids_ == NAMES


def test_missing_values_of_nullable_frames_are_missing(matrix):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(matrix, NAMES, NAMES).astype("Float64")
    frame.iloc[2, 5] = pandas.NA
    with pytest.raises(InputError, match=r"known in one order only, the first 2 \(id '1e5'\)"):
        PatternSearchMDS().fit(frame)
    frame.iloc[5, 2] = pandas.NA
    with pytest.warns(DissimilarityWarning, match="1 of the 780 pairs of the matrix is missing"):
        PatternSearchMDS(max_epochs=0, init="random", polish=False).fit(frame)


def test_a_frame_with_its_names_in_a_column_is_told(matrix):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(matrix, NAMES, NAMES).reset_index(names="sample")
    for mds in (PatternSearchMDS(), LandmarkMDS(landmarks=range(N))):
        with pytest.raises(InputError, match=r"column 'sample' holds .*frame.set_index\('sample'\)"):
            mds.fit(frame)


@pytest.mark.filterwarnings("ignore")
def test_data_sets_of_hdf5_files_are_taken_and_files_told(tmp_path, matrix):
    h5py, pandas = pytest.importorskip("h5py"), pytest.importorskip("pandas")
    with h5py.File(tmp_path / "u.h5", "w") as X:
        X["matrix"], X["order"] = matrix, np.array(NAMES, dtype="S")
        expected = PatternSearchMDS(random_state=0).fit(matrix)
        found = PatternSearchMDS(random_state=0).fit(X["matrix"])
        np.testing.assert_array_equal(found.embedding_, expected.embedding_)
        with pytest.raises(InputError) as told:
            PatternSearchMDS().fit(X)
        line = re.search(r"(pandas\.DataFrame\(.*\)), where ids = (.*)\.$", str(told.value))
        ids = eval(line[2], {"X": X})
        frame = eval(line[1], {"X": X, "pandas": pandas, "ids": ids})
        assert PatternSearchMDS(max_epochs=3).fit(frame).ids_ == NAMES


CONTAINERS = [
    (
        Container(order=[1], matrix=[2]),
        r"container \(Container\) of 'order', 'matrix': pass one array, such as X\['mat",
    ),
    (Container(matrix=[2]), r"such as X\['matrix'\]\."),
    ({}, "of nothing"),
]


@pytest.mark.parametrize(("given", "told"), CONTAINERS, ids=range(3))
@pytest.mark.parametrize("mds", [PatternSearchMDS(), LandmarkMDS(), LandmarkMDS(metric="euclidean")], ids=range(3))
def test_containers_of_arrays_are_told(given, told, mds):
    with pytest.raises(InputError, match=told):
        mds.fit(given)


def test_an_npz_in_memory_is_told(tmp_path, matrix):
    np.savez(tmp_path / "d.npz", D=matrix, other=matrix)
    with np.load(tmp_path / "d.npz") as given, pytest.raises(InputError, match=r"'D', 'other': pass one .* X\['D'\]"):
        PatternSearchMDS().fit(given)


def test_an_anndata_object_is_told(matrix):
    class AnnData:
        obsm, obsp, shape = {}, {}, (40, 7)

    for mds in (PatternSearchMDS(), LandmarkMDS()):
        with pytest.raises(InputError, match=r"X is an AnnData object: pass a complete matrix of X\.obsp, or"):
            mds.fit(AnnData())


# files ---------------------------------------------------------------------------------------------------------------


def zipped(path, *names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "x")


R_TABLE = "a table as R's write.table makes it, without a heading over its names"
FILES = {
    "d.h5": (b"\x89HDF\r\n\x1a\n...", "an HDF5 file"),
    "d.hdf5": (b"\x89HDF\r\n\x1a\n...", "an HDF5 file"),
    "d.h5ad": (b"\x89HDF\r\n\x1a\n...", "an AnnData file"),
    "d.parquet": (b"PAR1....", "a Parquet file"),
    "d.feather": (b"ARROW1..", "a Feather file"),
    "d.RData": (gzip.compress(b"RDX3\nX\n...."), "a file of R"),
    "d.rds": (gzip.compress(b"X\n\0\0\0\3"), "a file of R"),
    "d.mat": (b"MATLAB 5.0 MAT-file\0", "a MATLAB file"),
    "d.xls": (b"\xd0\xcf\x11\xe0....", "an old Excel file"),
    "d.pkl": (pickle.dumps([1, 2]), "a Python pickle, which is never loaded"),
    "d.npy.gz": (gzip.compress(b"\x93NUMPY\1\0"), "a compressed file"),
    "d.bin": (b"\0\1\2\3" * 9, "a file of an unknown format"),
    "d.phylip": (b"\t3\na\nb\t1\nc\t2\t3\n", "a PHYLIP distance matrix"),
    "d.dist": (b"3\na\nb\t1\nc\t2\t3\n", "a PHYLIP distance matrix"),
    "pairs.tsv": (b"a\tb\t1\na\tc\t2\nb\tc\t3\nb\td\t3\n", "a list of pairs"),
    "d.txt": (b"0 1 2\n1 0 3\n2 3 0\n", "a table of numbers as text"),
    "d.csv": (b",a,b\na,0,1\nb,1,0\n", "a table as text"),
    "d.tsv": (b"\ta\tb\na\t0\t1\nb\t1\t0\n", "a table as text"),
    "d.tsv.gz": (gzip.compress(b"\ta\tb\na\t0\t1\nb\t1\t0\n"), "a table as text, compressed"),
    "spaces.txt": (b"0  1 2\n1 0  3\n2 3 0\n", "a table of numbers as text"),
    "r.txt": (b'"a" "b" "c"\n"b" 1 NA\n"c" 2 3\n'.replace(b' "c"\n', b"\n", 1), R_TABLE),
    "r.tsv": (b'"a"\t"b"\n"a"\t0\t1\n"b"\t1\t0\n', R_TABLE),
    "wide.tsv": (b"".join(b"\tname%d" % k for k in range(2000)) + b"\nname0\t0\t1\n", "a table as text"),
    "wide.txt": (b"\t".join([b"0.5"] * 4000) + b"\n", "a table of numbers as text"),
    "wide.phylip": (b"4000\nname0\t" + b"\t".join([b"0.5"] * 4000) + b"\n", "a PHYLIP distance matrix"),
    "ids.txt": (b"0101\nNA\nx\n", "a text file without a table of numbers"),
    "empty.csv": (b"", "an empty file"),
}


READ = ("a PHYLIP", "a table", "a list of pairs", "an HDF5", "an AnnData")
"""Kinds of which matrices are read; as points or panels they are told like others."""

NPY_ONLY = (LandmarkMDS().fit, LandmarkMDS(metric="euclidean").fit)
ALL = (open_matrix, PatternSearchMDS().fit, *NPY_ONLY)


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_formats_are_recognized(tmp_path, name):
    content, kind = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    wanted = f"{path} is {kind}, but a .npy file or a Zarr store is expected; "
    is_read = kind.startswith(READ)
    for fit in NPY_ONLY if is_read else ALL:
        with pytest.raises(InputError) as told:
            fit(str(path))
        assert str(told.value).startswith(wanted)
        assert str(told.value).endswith(".")
    assert ("read_csv" in str(told.value)) == kind.startswith("a table as text")
    assert ("'psmds ingest'" in str(told.value)) == ((is_read and name != "wide.txt") or kind == "a file of R")
    for line in re.findall(r"`([^`]*)`", str(told.value)) if kind != "a file of R" else ():
        ast.parse(line)
    for command in (["landmarks", "fit"], ["distances"], *([] if is_read else [["fit"], ["ingest"]])):
        ended = CliRunner().invoke(main, [*command, str(path), str(tmp_path / "target")])
        assert ended.exit_code == 1
        assert wanted in ended.output


def test_archives_of_other_formats_are_recognized(tmp_path, matrix):
    np.savez(tmp_path / "d.npz", D=matrix)
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_array(matrix))
    zipped(tmp_path / "d.xlsx", "[Content_Types].xml", "xl/workbook.xml")
    zipped(tmp_path / "d.zip", "matrix.csv")
    for name, (kind, fits) in {
        "d.npz": ("an .npz file with 'D'", NPY_ONLY),
        "s.npz": ("a sparse matrix in an .npz file", NPY_ONLY[:1]),  # points may be sparse
        "d.xlsx": ("an Excel file", ALL),
        "d.zip": ("a .zip archive without a Zarr store in it", ALL),
    }.items():
        for fit in fits:
            with pytest.raises(InputError, match=f"{name} is {kind}, but a .npy file") as told:
                fit(str(tmp_path / name))
    told = other_format(tmp_path / "d.npz")
    for line in re.findall(r"`([^`]*)`", str(told)):
        exec(line.replace("'matrix.npy'", repr(str(tmp_path / "matrix.npy"))), {"numpy": np})
    np.testing.assert_array_equal(np.load(tmp_path / "matrix.npy"), matrix)


def test_no_dependency_is_imported_for_other_people_s_objects(matrix):
    PatternSearchMDS(max_epochs=2).fit(DistanceMatrix(matrix, NAMES))
    for name in ("psmds_dist.core.arrays", "psmds_dist.data.formats", "psmds_dist.api.inputs"):
        assert not {"pandas", "h5py", "skbio"} & set(vars(importlib.import_module(name)))


@pytest.mark.parametrize("table", [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 2.0], [2.0, 0.0]]])
def test_code_for_a_table_of_numbers_writes_a_file_of_its_name(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("pts.csv", table, delimiter=",")
    advice = str(other_format("pts.csv"))
    assert ("psmds ingest" in advice) == (table[0][0] == 0)
    exec(advice.split("`")[1], {"numpy": np})
    assert sorted(os.listdir()) == ["pts.csv", "pts.npy"]
    np.testing.assert_array_equal(np.load("pts.npy"), table)
