import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import WrappedSource
from psmds_dist.core.types import BudgetError, InputCheck, InputError
from psmds_dist.data.cache import stored
from psmds_dist.data.ids import check_ids, read_ids
from psmds_dist.data.points import open_points
from psmds_dist.data.sources import ArrayRows, open_npy
from psmds_dist.data.store import create, open_rows
from psmds_dist.data.transforms import Symmetrized, ZeroDiagonal
from psmds_dist.ingest.build import BuildBlocks, build
from psmds_dist.ingest.check import check_source
from psmds_dist.ingest.passes import known_check
from psmds_dist.ingest.scan import Scanner
from psmds_dist.planning.memory import building


class Serial:
    n_workers = 1
    in_process = True

    def __init__(self, group=None):
        self._group = group

    def map(self, work, blocks, *, group=None):
        size = self._group or group or len(blocks)
        for k in range(0, len(blocks), size):
            yield blocks[k : k + size], work(blocks[k : k + size])

    def warm_up(self, function):
        function()

    def close(self):
        pass


def points(n=97, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def saved(path, values):
    np.save(path, values)
    return path


def read_all(source, step=None):
    out = np.full((source.n, source.n), -1, source.dtype)
    step = step or Layout(source.n).rows
    for lo in range(0, source.n, step):
        source.read(lo, min(lo + step, source.n), out[lo:])
    return out


# --- sources ---


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(1, 40), st.sampled_from(["float32", "float64"]))
def test_condensed_is_scipys_squareform(n, step, dtype):
    condensed = np.random.default_rng(n).random(n * (n - 1) // 2)
    found = read_all(ArrayRows(condensed, dtype), step)
    np.testing.assert_array_equal(found, squareform(condensed).astype(dtype))


def test_condensed_is_gathered_in_pieces(monkeypatch):
    monkeypatch.setattr("psmds_dist.data.sources.GATHER_BYTES", 8 * 5 * 7)
    condensed = pdist(points())
    np.testing.assert_array_equal(read_all(ArrayRows(condensed, "float64"), 7), squareform(condensed))


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i4", "uint8", "float16"])
@pytest.mark.parametrize("form", ["c", "fortran", "condensed"])
@pytest.mark.parametrize("step", [1, 3, 50])
def test_npy_files_of_any_kind(tmp_path, dtype, form, step):
    matrix = (10 * squareform(pdist(points()))).round().astype(dtype)
    values = {"c": matrix, "fortran": np.asfortranarray(matrix), "condensed": squareform(matrix)}[form]
    source = open_npy(saved(tmp_path / "d.npy", values))
    assert source.dtype == np.float32
    assert source.read_profile.rows_per_chunk == (1 if form == "c" else 97)
    np.testing.assert_array_equal(read_all(source, step), matrix.astype("float32"))
    np.testing.assert_array_equal(read_all(pickle.loads(pickle.dumps(source))), matrix.astype("float32"))


def opened(monkeypatch):
    """List that tells which files NumPy opens from now on."""
    load, files = np.load, []

    def noted(path, **options):
        files.append(os.path.basename(path))
        return load(path, **options)

    monkeypatch.setattr(np, "load", noted)
    return files


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, squareform])
def test_an_npy_file_is_opened_once_however_often_it_is_read(tmp_path, monkeypatch, form):
    matrix = squareform(pdist(points()))
    source = open_npy(saved(tmp_path / "d.npy", form(matrix)), "float64")
    files = opened(monkeypatch)
    for step in (1, 5):
        np.testing.assert_array_equal(read_all(source, step), matrix)
    source.read_columns(0, 97, np.empty((97, 97)))
    assert source.read_profile.read_copies == 2
    assert files == ["d.npy"]
    np.testing.assert_array_equal(read_all(pickle.loads(pickle.dumps(source))), matrix)
    assert files == ["d.npy"] * 2


def test_an_npy_file_that_is_removed_during_a_fit_costs_no_map(tmp_path):
    matrix = squareform(pdist(points()))
    path = saved(tmp_path / "d.npy", matrix)

    def remove(event):
        path.unlink(missing_ok=True)

    mds = PatternSearchMDS(random_state=0, on_epoch=remove).fit(path)
    assert not path.exists()
    assert mds.embedding_.tobytes() == PatternSearchMDS(random_state=0).fit(matrix).embedding_.tobytes()


def test_a_pickled_npy_matrix_has_none_of_its_entries_in_it(tmp_path):
    source = open_npy(saved(tmp_path / "d.npy", np.zeros((500, 500))))
    read_all(source)
    assert len(pickle.dumps(source)) < 2000


MAPPED = """
import sys
import numpy as np
import psutil
from psmds_dist.data.sources import open_npy

source = open_npy(sys.argv[1])
out = np.ones((100, source.n), np.float32)
before = psutil.Process().memory_info().rss
for lo in range(0, source.n, 100):
    source.read(lo, lo + 100, out)
assert not out.any()
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.parametrize("order", ["C", "F"])
def test_pages_of_an_npy_file_do_not_stay_in_the_memory_of_the_process(tmp_path, order):
    place = saved(tmp_path / "d.npy", np.zeros((3000, 3000), order=order))  # 72 MB
    done = subprocess.run([sys.executable, "-c", MAPPED, place], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 10e6


def test_an_npy_file_that_was_replaced_is_read_as_it_was_opened_and_known_as_changed(tmp_path):
    matrix = squareform(pdist(points()))
    source = open_npy(saved(tmp_path / "d.npy", matrix), "float64")
    read_all(source)
    assert not source.is_stale()
    os.replace(saved(tmp_path / "other.npy", 2 * matrix[:50, :50]), tmp_path / "d.npy")
    np.testing.assert_array_equal(read_all(source), matrix)
    assert source.is_stale()


def test_an_npy_file_that_is_cut_short_while_it_is_mapped_is_told(tmp_path):
    """Reading on in the mapping would end the process with SIGBUS."""
    source = open_npy(saved(tmp_path / "d.npy", np.zeros((500, 500))))
    read_all(source)
    os.truncate(tmp_path / "d.npy", 5000)
    with pytest.raises(InputError, match=r"d\.npy is a damaged .npy file \(mmap length is greater"):
        read_all(source)


def test_columns_are_rows_of_the_transpose(tmp_path):
    matrix = np.random.default_rng(0).random((50, 50))
    for source in (open_npy(saved(tmp_path / "d.npy", matrix), "float64"), ArrayRows(matrix, "float64")):
        out = np.empty((12, 50))
        source.read_columns(7, 19, out)
        np.testing.assert_array_equal(out, matrix.T[7:19])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.zeros((3, 4)), r"has shape \(3, 4\), but a dissimilarity matrix is square"),
        (np.zeros((3, 3, 3)), r"has shape \(3, 3, 3\)"),
        (np.zeros(7), r"is 1-D with 7 entries, but SciPy's condensed form"),
        (np.zeros((3, 3), bool), "holds bool, but needs floats or integers"),
        (np.zeros((3, 3), complex), "holds complex128"),
        (np.zeros((3, 3), "M8[s]"), r"holds datetime64\[s\]"),
        (
            np.zeros((3, 3), "U3"),
            r"holds <U3 \(text\), .* convert it, for example with numpy\.asarray\(x, dtype=float\)",
        ),
        (
            np.array([[None, 1], [2, 3]], dtype=object),
            "is a .npy file of Python objects, .* write its numbers anew with numpy.save",
        ),
    ],
)
def test_unusable_arrays_are_told(tmp_path, values, sentence):
    np.save(tmp_path / "d.npy", values, allow_pickle=True)
    with pytest.raises(InputError, match=sentence) as error:
        open_npy(tmp_path / "d.npy")
    assert str(tmp_path / "d.npy") in str(error.value)
    if values.dtype != object:
        with pytest.raises(InputError, match=sentence):
            ArrayRows(values)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file, but a .npy file or a Zarr store is expected"),
        (b"1,2,3\n", "a table of numbers as text, but a .npy file"),
        (b"\x93NUMPY\x01\x00", "a damaged .npy file"),
    ],
)
def test_other_files_are_told(tmp_path, content, told):
    (tmp_path / "d.npy").write_bytes(content)
    with pytest.raises(InputError, match=rf"d\.npy is {told}"):
        open_npy(tmp_path / "d.npy")
    with pytest.raises(InputError, match="does not exist"):
        open_npy(tmp_path / "none.npy")


def test_array_rows_are_used_in_place_where_possible_and_converted_where_few(monkeypatch):
    matrix = squareform(pdist(points())).astype("float32")
    plain = ArrayRows(matrix)
    assert plain.in_memory() is matrix
    assert plain.converted() is plain
    sources = [ArrayRows(*how) for how in ((matrix, "float64"), (np.asfortranarray(matrix),), (squareform(matrix),))]
    for source in sources:
        assert source.in_memory() is None
        found = source.converted().in_memory()
        assert found.dtype == source.dtype
        np.testing.assert_array_equal(found, matrix)
    monkeypatch.setattr("psmds_dist.data.sources.CONVERTED_BYTES", matrix.nbytes - 1)
    assert all(source.converted() is source for source in sources)
    assert ArrayRows(matrix).content_id != ArrayRows(matrix).content_id


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_symmetrized_is_the_mean_and_exactly_symmetric(dtype):
    matrix = np.random.default_rng(0).random((60, 60)).astype(dtype)
    found = read_all(Symmetrized(ArrayRows(matrix, dtype)), 7)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, (matrix + matrix.T) / 2, rtol=1e-6)


def test_zero_diagonal():
    matrix = np.random.default_rng(0).random((60, 60))
    found = read_all(ZeroDiagonal(ArrayRows(matrix, "float64")), 7)
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(found, matrix)


METRICS = [
    "braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "euclidean", "jensenshannon",
    "mahalanobis", "minkowski", "seuclidean", "sqeuclidean", "hamming", "jaccard", "dice", "rogerstanimoto",
    "sokalsneath", "yule",
]  # fmt: skip
BINARY = METRICS[METRICS.index("hamming") :]


@pytest.mark.parametrize("metric", METRICS)
def test_points_agree_with_pdist_and_are_symmetric(tmp_path, metric):
    x = points(d=12) > 0 if metric in BINARY else np.abs(points(d=6))
    source = open_points(saved(tmp_path / "x.npy", x), metric, dtype="float64")
    found = read_all(pickle.loads(pickle.dumps(source)), 5)
    np.testing.assert_allclose(found, squareform(pdist(x, metric)), rtol=1e-7, atol=1e-12)
    # Jensen-Shannon adds the two halves of its sum in the order of its arguments
    np.testing.assert_allclose(found, found.T, rtol=1e-14 * (metric == "jensenshannon"))
    np.testing.assert_array_equal(found.diagonal(), 0)


def test_points_are_computed_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("psmds_dist.data.points.SCRATCH_BYTES", 8 * 97 * 2)
    source = open_points(saved(tmp_path / "x.npy", points().astype("float32")), "minkowski", {"p": 3})
    expected = squareform(pdist(points().astype("float32"), "minkowski", p=3)).astype("float32")
    np.testing.assert_array_equal(read_all(source), expected)


@pytest.mark.parametrize(
    ("values", "metric", "options", "sentence"),
    [
        (np.zeros(5), "euclidean", {}, r"has shape \(5,\), but points are an array of shape"),
        (np.array([[1.0], [np.nan]]), "euclidean", {}, "NaN or infinite coordinates, first in row 1"),
        (np.zeros((5, 2), complex), "euclidean", {}, "holds complex128"),
        (points(), "euclid3an", {}, "metric 'euclid3an' cannot be used on"),
        (points(), "euclidean", {"nonsense": 1}, "metric 'euclidean' cannot be used on"),
        (np.ones((5, 2)), "mahalanobis", {}, "metric 'mahalanobis' cannot be used on"),
        (np.eye(4)[:, :3], "cosine", {}, "point 3 is zero, so its cosine distance is undefined"),
        (np.ones((4, 3)), "correlation", {}, "point 0 is constant, so its correlation distance is undefined"),
    ],
)
def test_unusable_points_are_told(tmp_path, values, metric, options, sentence):
    with pytest.raises(InputError, match=sentence):
        open_points(saved(tmp_path / "x.npy", values), metric, options)


# --- building ---


def test_sources_and_work_pickle(tmp_path):
    matrix = squareform(pdist(points()))
    array = zarr.create_array(tmp_path / "a.zarr", data=matrix, chunks=(20, 30))
    target = create(tmp_path / "d.zarr", 97)
    computed = open_points(saved(tmp_path / "x.npy", points()))
    for source in (ArrayRows(matrix), open_npy(saved(tmp_path / "d.npy", matrix)), computed, open_rows(array)):
        for changed in (source, ZeroDiagonal(source), *([] if source is computed else [Symmetrized(source)])):
            assert pickle.loads(pickle.dumps(changed)).content_id == changed.content_id
        work = pickle.loads(
            pickle.dumps(BuildBlocks(ZeroDiagonal(source), target, 1, partial(Scanner, 97, source.dtype)))
        )
        assert [scan.block for scan in work([0, 2]).blocks] == [0, 2]


def test_array_input_needs_neither_zarr_nor_scipy():
    code = "import sys, psmds_dist.data.sources, psmds_dist.ingest.build; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"zarr", "scipy.spatial", "dask"} & set(found.stdout.split())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("group", [None, 1, 5])
def test_build_writes_and_checks(tmp_path, dtype, group):
    source = open_points(saved(tmp_path / "x.npy", points()), dtype=dtype)
    seen = []
    ids = [f"sample {k}" for k in range(97)]
    found = build(
        source,
        tmp_path / "d.zarr",
        Serial(group),
        ids=ids,
        metric="euclidean",
        on_progress=lambda *progress: seen.append(progress),
    )
    rows = open_rows(tmp_path / "d.zarr")
    np.testing.assert_array_equal(read_all(rows), squareform(pdist(points())).astype(dtype))
    assert seen[-1] == (Layout(97).count, Layout(97).count)
    assert rows.ids == ids
    assert rows.header["metric"] == "euclidean"
    assert known_check(rows, InputCheck) == found == check_source(rows, Serial())


def test_build_under_a_small_budget(tmp_path):
    matrix = squareform(pdist(points()))
    source = open_npy(saved(tmp_path / "d.npy", squareform(matrix)))
    least = building(stored(source)).min_limit
    with pytest.raises(BudgetError, match=r"building a store of .* points needs .*: raise memory_limit"):
        build(source, tmp_path / "a.zarr", Serial(), memory_limit=least - 1)
    assert not (tmp_path / "a.zarr").exists()
    check = build(source, tmp_path / "a.zarr", Serial(), memory_limit=least)
    assert build(source, tmp_path / "b.zarr", Serial()) == check
    np.testing.assert_array_equal(read_all(open_rows(tmp_path / "a.zarr")), matrix.astype("float32"))


class Interrupted(Exception):
    pass


@dataclass(frozen=True, eq=False)
class Counting(WrappedSource):
    """A source that counts what is read, and fails after some blocks."""

    most: int = 10**9
    blocks: list = field(default_factory=list)
    content_id = "counted"

    def read(self, lo, hi, out):
        if len(self.blocks) == self.most:
            raise Interrupted
        self.blocks.append(lo // Layout(self.n).rows)
        self.source.read(lo, hi, out)


@pytest.mark.parametrize("group", [1, 4])
def test_interrupted_build_goes_on(tmp_path, group):
    source = ArrayRows(squareform(pdist(points())))
    first, second = Counting(source, 9), Counting(source)
    with pytest.raises(Interrupted):
        build(first, tmp_path / "d.zarr", Serial(group))
    with pytest.raises(InputError, match="unfinished"):
        open_rows(tmp_path / "d.zarr")
    damaged = tmp_path / "d.zarr" / "dissimilarities" / "c.2.0"
    with open(damaged, "r+b") as file:
        file.write(b"damage")
    found = build(second, tmp_path / "d.zarr", Serial(group))
    everything = set(range(Layout(97).count))
    assert set(second.blocks) == (everything - set(first.blocks)) | {2}
    assert build(Counting(source), tmp_path / "e.zarr", Serial()) == found
    np.testing.assert_array_equal(read_all(open_rows(tmp_path / "d.zarr")), read_all(source))


KILLED = """
import time
from psmds_dist import InProcessExecutor, build, open_points
from psmds_dist.data.points import Points
read = Points.read
def slowly(self, lo, hi, out):
    time.sleep(0.05)
    read(self, lo, hi, out)
Points.read = slowly
build(open_points({points!r}), {store!r}, InProcessExecutor())
"""


def test_killed_build_goes_on(tmp_path):
    path, store = saved(tmp_path / "x.npy", points()), tmp_path / "d.zarr"
    code = KILLED.format(points=str(path), store=str(store))
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len(list(store.rglob("c.*"))) < 5 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = len(list(store.rglob("c.*.0")))
    assert 5 <= done < Layout(97).count
    build(open_points(path), store, Serial())
    found = read_all(open_rows(store))
    np.testing.assert_array_equal(found, squareform(pdist(points())).astype("float32"))
    assert not list(store.rglob("*.partial"))


def test_changed_source_does_not_continue_a_store(tmp_path):
    path = saved(tmp_path / "d.npy", squareform(pdist(points())))

    class Stopping(Serial):
        def map(self, work, blocks, *, group=None):
            yield from list(super().map(work, blocks[:3]))
            raise Interrupted

    with pytest.raises(Interrupted):
        build(open_npy(path), tmp_path / "d.zarr", Stopping())
    with pytest.raises(InputError, match="unfinished store of another source"):
        build(open_npy(path), tmp_path / "d.zarr", Serial(), symmetrize=True)
    saved(path, squareform(pdist(points(seed=1))))
    with pytest.raises(InputError, match="unfinished store of another source"):
        build(open_npy(path), tmp_path / "d.zarr", Serial())
    build(open_npy(path), tmp_path / "d.zarr", Serial(), overwrite=True)
    with pytest.raises(InputError, match="already holds a finished store of another source"):
        build(open_npy(path), tmp_path / "d.zarr", Serial(), symmetrize=True)


def test_a_finished_store_is_only_checked_again(tmp_path):
    """A run that was killed when all was done, or that a batch system starts anew."""
    path = saved(tmp_path / "d.npy", squareform(pdist(points())))
    first = build(open_npy(path), tmp_path / "d.zarr", Serial())
    chunks = {file: file.stat() for file in (tmp_path / "d.zarr").rglob("c.*")}
    damaged = min(chunks)
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    assert build(open_npy(path), tmp_path / "d.zarr", Serial()) == first
    written = {file for file, before in chunks.items() if file.stat().st_mtime_ns != before.st_mtime_ns}
    assert written == {damaged}
    np.testing.assert_array_equal(read_all(open_rows(tmp_path / "d.zarr")), np.load(path).astype("float32"))
    assert known_check(open_rows(tmp_path / "d.zarr"), InputCheck) == first


def test_build_that_fails_its_check_leaves_nothing_and_can_be_repaired(tmp_path):
    matrix = squareform(pdist(points()))
    matrix[4, 7] += 0.5
    matrix[3, 3] = 0.01
    path = saved(tmp_path / "d.npy", matrix)
    with pytest.raises(InputError, match=r"set it to zero \(numpy.fill_diagonal, or psmds ingest --zero-diagonal\)"):
        build(open_npy(path), tmp_path / "d.zarr", Serial())
    with pytest.raises(InputError, match=r"\b4 \(id '104'\) .*use symmetrize=True"):
        build(
            open_npy(path),
            tmp_path / "d.zarr",
            Serial(),
            zero_diagonal=True,
            ids=[str(100 + k) for k in range(97)],
        )
    assert os.listdir(tmp_path) == ["d.npy"]
    build(open_npy(path), tmp_path / "d.zarr", Serial(), zero_diagonal=True, symmetrize=True)
    expected = (matrix + matrix.T) / 2
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(read_all(open_rows(tmp_path / "d.zarr")), expected, rtol=1e-6)


def test_foreign_zarr_can_be_symmetrized(tmp_path):
    matrix = squareform(pdist(points()))
    matrix[4, 7] += 0.5
    array = zarr.create_array(tmp_path / "a.zarr", data=matrix, chunks=(20, 30))
    build(open_rows(array), tmp_path / "d.zarr", Serial(), symmetrize=True)
    expected = (matrix + matrix.T) / 2
    np.testing.assert_allclose(read_all(open_rows(tmp_path / "d.zarr")), expected, rtol=1e-6)


@pytest.mark.parametrize("source", ["d.zarr", "d.zarr/dissimilarities", "link"])
def test_a_store_is_not_built_over_its_source(tmp_path, source):
    build(ArrayRows(matrix := squareform(pdist(points()))), tmp_path / "d.zarr", Serial())
    (tmp_path / "link").symlink_to("d.zarr")
    with pytest.raises(InputError, match="is given twice|because it contains"):
        build(open_rows(tmp_path / source), tmp_path / "d.zarr", Serial(), overwrite=True, symmetrize=True)
    np.testing.assert_array_equal(open_rows(tmp_path / "d.zarr").array[:], matrix.astype(np.float32))


def test_build_refuses_what_makes_no_sense(tmp_path):
    source = open_points(saved(tmp_path / "x.npy", points()))
    with pytest.raises(InputError, match="distances are symmetric, so leave them out"):
        build(source, tmp_path / "d.zarr", Serial(), symmetrize=True)
    with pytest.raises(InputError, match="ids has 3 ids for 97 points"):
        build(source, tmp_path / "d.zarr", Serial(), ids=["a", "b", "c"])
    with pytest.raises(InputError, match="has 2 points, but a map needs at least 3"):
        build(ArrayRows(np.zeros((2, 2))), tmp_path / "d.zarr", Serial())
    assert os.listdir(tmp_path) == ["x.npy"]


# --- ids ---


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", "a b\nß\nc,d\n"),
        ("ids.txt", "\ufeffa b\r\nß\r\nc,d\r\n\r\n"),
        ("ids.csv", 'a b,1\nß,2\n"c,d",3\n'),
        ("ids.csv", 'name,value\na b,1\nß,2\n"c,d",3\n'),
        ("ids.tsv", "a b\t1\nß\t2\nc,d\t3\n"),
    ],
)
def test_ids_from_text(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert read_ids(tmp_path / name, 3) == ["a b", "ß", "c,d"]


@pytest.mark.parametrize("dtype", ["U5", "S5"])
def test_ids_from_npy(tmp_path, dtype):
    assert read_ids(saved(tmp_path / "ids.npy", np.array(["a", "b"], dtype)), 2) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("ids.txt", b"a\nb\n", "has 2 ids for 3 points"),
        ("ids.txt", b"a\nb\na\n", "has the id 'a' twice, for points 0 and 2"),
        ("ids.txt", b"a\n\nb\n", "has an empty id for point 1"),
        ("ids.txt", b"\xff\xfe\n", "cannot be read"),
        ("ids.npy", b"nonsense", "cannot be read"),
    ],
)
def test_unusable_ids_are_told(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_ids(tmp_path / name, 3)


def test_more_unusable_ids_are_told(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_ids(tmp_path / "none.txt", 3)
    np.save(tmp_path / "n.npy", np.array(["a", 1], object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        read_ids(tmp_path / "n.npy", 2)
    with pytest.raises(InputError, match="instead of a list of strings"):
        read_ids(saved(tmp_path / "i.npy", np.arange(3)), 3)
    assert check_ids([1, 2], 2) == ["1", "2"]


def test_squares_that_overflow_are_told_whatever_is_asked(tmp_path):
    huge = saved(tmp_path / "huge.npy", squareform(pdist(points())) * 1e300)
    with pytest.raises(InputError, match="the squares of the dissimilarities overflow"):
        build(open_npy(huge, "float64"), tmp_path / "a.zarr", Serial(), zero_diagonal=True)
