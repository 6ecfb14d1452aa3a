"""Panels: dissimilarities of all points to landmarks, from points, from a whole matrix, from elsewhere."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist, squareform

from landmarks.panel.build import build_panel, check_panel
from landmarks.panel.check import PanelCheck, PanelEntries, PanelScanner
from landmarks.panel.inputs import matrix_panel, panel_input, points_input
from landmarks.panel.memory import panel_pass
from landmarks.panel.sources import points_panel, store_panel
from landmarks.panel.tables import array_panel, npy_panel
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import RowSource, WrappedSource
from psmds_dist.core.types import InputError
from psmds_dist.data.cache import clear_row_cache, stored
from psmds_dist.data.sources import ArrayRows, open_npy
from psmds_dist.data.store import describe, open_panel, open_rows, open_table
from psmds_dist.data.transforms import Symmetrized
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.solver.tasks import CachedRows

N, S = 203, 7
LANDMARKS = np.array([150, 3, 77, 202, 0, 41, 12])


class Serial:
    n_workers = 1
    in_process = True

    def __init__(self, group=None):
        self._group = group

    def warm_up(self, function):
        function()

    def map(self, work, blocks, *, group=None):
        size = self._group or group or len(blocks)
        for k in range(0, len(blocks), size):
            part = list(blocks[k : k + size])
            yield part, work(part)


def points(n=N, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def distances():
    return squareform(pdist(points()))


def values(dtype="float32"):
    return np.ascontiguousarray(distances()[:, LANDMARKS], dtype)


def saved(path, array):
    np.save(path, array)
    return path


def read_all(source, step=None):
    layout = source.layout
    out = np.full((source.n, layout.columns), -1, source.dtype)
    for lo in range(0, source.n, step or layout.rows):
        source.read(lo, min(lo + (step or layout.rows), source.n), out[lo:])
    return out


# --- tables ---


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i4", "float16", "bool"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_tables_give_their_rows(tmp_path, dtype, order):
    table = np.asarray((10 * np.abs(points())).round().astype(dtype), order=order)
    in_memory = array_panel(table, "float64")
    on_disk = npy_panel(saved(tmp_path / "x.npy", table), "float64")
    for source in (in_memory, on_disk, *map(pickle.loads, map(pickle.dumps, (in_memory, on_disk)))):
        assert (source.shape, source.dtype) == ((N, 5), np.float64)
        for step in (None, 1, 50):
            np.testing.assert_array_equal(read_all(source, step), table.astype("float64"))
        np.testing.assert_array_equal(source.take(LANDMARKS), table[LANDMARKS].astype("float64"))


def test_an_npy_table_is_opened_once_however_often_it_is_read(tmp_path, monkeypatch):
    source = npy_panel(saved(tmp_path / "x.npy", points()), "float64")
    load, opened = np.load, []
    monkeypatch.setattr(np, "load", lambda path, **options: opened.append(path) or load(path, **options))
    for _ in range(2):
        np.testing.assert_array_equal(read_all(source, 10), points())
        np.testing.assert_array_equal(source.take(LANDMARKS), points()[LANDMARKS])
    assert opened == [str(tmp_path / "x.npy")]


def test_identity_of_a_table_in_memory_is_its_content():
    assert array_panel(points()).content_id == array_panel(np.asfortranarray(points())).content_id
    assert array_panel(points()).content_id != array_panel(points(seed=1)).content_id
    assert array_panel(points()).content_id != array_panel(points(), "float64").content_id


def test_table_in_memory_is_used_where_it_lies():
    panel = array_panel(values(), landmarks=LANDMARKS)
    assert panel.in_memory() is panel.values
    assert array_panel(values("float64")).in_memory() is None
    assert array_panel(np.asfortranarray(values())).in_memory() is None


@pytest.mark.parametrize("budget", [10**9, 4 * S * 6 * 5])
def test_panels_go_through_the_row_cache(budget):
    for table in (values(), np.asfortranarray(values())):
        held = CachedRows(array_panel(table), budget)
        assert held.layout == Layout(N, S)
        (found,) = held.collect([0, 3, 2, 33], lambda batch: (batch.rows[batch.slots].copy(),))
        bounds = [held.layout.bounds(block) for block in (0, 2, 3, 33)]
        np.testing.assert_array_equal(found, np.concatenate([values()[lo:hi] for lo, hi in bounds]))
    clear_row_cache()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (np.zeros(5), r"has shape \(5,\), but a table has a row for each point"),
        (np.zeros((5, 0)), r"has shape \(5, 0\)"),
        (np.zeros((5, 2), complex), r"holds complex128 \(Complex data not supported\), but needs"),
        (np.zeros((5, 2), "U3"), "holds <U3"),
    ],
)
def test_unusable_tables_are_told(tmp_path, table, sentence):
    for make in (array_panel, lambda array: npy_panel(saved(tmp_path / "x.npy", array))):
        with pytest.raises(InputError, match=sentence):
            make(table)


@pytest.mark.parametrize(
    ("landmarks", "sentence"),
    [
        ([0, 1], "landmarks lists 2 rows for the 7 columns of the panel"),
        ([0, 1, 2, 3, 4, 5, 203], "landmarks must be row indices from 0 to 202, but 203 is among them"),
        ([0, 1, 2, -3, 4, 5, 6], "but -3 is among them"),
        ([0, 1, 2, 1, 4, 5, 6], "landmarks lists 1 more than once"),
        ([0.5] * 7, r"must be a list of row indices, not float64 of shape \(7,\)"),
        ([], r"must be a list of row indices, not float64 of shape \(0,\)"),
        ([True] * 7, "turn a mask into indices by np.flatnonzero"),
    ],
)
def test_wrong_landmarks_are_told(tmp_path, landmarks, sentence):
    array = zarr.create_array(tmp_path / "p.zarr", data=values())
    for make in (
        lambda: array_panel(values(), landmarks=landmarks),
        lambda: open_panel(array, None, landmarks),
    ):
        with pytest.raises(InputError, match=sentence):
            make()


# --- points ---


METRICS = [
    "braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "euclidean", "jensenshannon",
    "mahalanobis", "minkowski", "seuclidean", "sqeuclidean", "hamming", "jaccard", "dice", "rogerstanimoto",
    "sokalsneath", "yule",
]  # fmt: skip
BINARY = METRICS[METRICS.index("hamming") :]


def features(metric):
    return points(d=12) > 0 if metric in BINARY else np.abs(points(d=6))


@pytest.mark.parametrize("metric", METRICS)
def test_panel_of_points_agrees_with_scipy_row_by_row(metric):
    x = features(metric)
    panel = points_panel(array_panel(x, "float64"), LANDMARKS, metric, dtype="float64")
    found = read_all(panel)
    expected = squareform(pdist(x, metric))[:, LANDMARKS]  # variances of all points, as ours
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_array_equal(found[LANDMARKS, np.arange(S)], 0)
    for step in (1, 2, 7, N):
        assert read_all(panel, step).tobytes() == found.tobytes()
    others = points_panel(array_panel(x[50:], "float64"), panel.sites, panel.metric, dtype="float64")
    assert read_all(others).tobytes() == found[50:].tobytes()  # as for new points


@pytest.mark.parametrize("options", [{"p": 3}, {"p": 1.5, "w": np.array([1.0, 2, 0, 4, 5])}])
def test_parameters_of_metrics(options):
    panel = points_panel(array_panel(points(), "float64"), LANDMARKS, "minkowski", options)
    expected = cdist(points(), points()[LANDMARKS], "minkowski", **options)
    np.testing.assert_array_equal(read_all(panel), expected.astype("float32"))
    other = points_panel(array_panel(points(), "float64"), LANDMARKS, "minkowski", {"p": 4})
    assert panel.content_id != other.content_id


@given(
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(1, 8),
    st.sampled_from(["euclidean", "cosine", "correlation"]),
)
def test_rows_do_not_depend_on_their_neighbours(n, d, step, metric):
    x = np.random.default_rng(n + 100 * d).normal(size=(n + 1, d + 1))
    panel = points_panel(array_panel(x, "float64"), x[:3] if n > 2 else x[:1], metric)
    assert read_all(panel, step).tobytes() == read_all(panel, n + 1).tobytes()


def test_points_are_computed_in_pieces(monkeypatch):
    whole = read_all(points_panel(array_panel(points(), "float64"), LANDMARKS))
    monkeypatch.setattr("landmarks.panel.sources.SCRATCH_BYTES", 8 * S * 3)
    monkeypatch.setattr("landmarks.panel.sources.PIECE_BYTES", 8 * 5 * 11)
    panel = points_panel(array_panel(points(), "float64"), LANDMARKS)
    assert read_all(panel, N).tobytes() == whole.tobytes()
    for metric in ("seuclidean", "mahalanobis"):
        found = read_all(points_panel(array_panel(points(), "float64"), LANDMARKS, metric))
        np.testing.assert_allclose(found, squareform(pdist(points(), metric))[:, LANDMARKS], rtol=1e-5)


@pytest.mark.parametrize("chunks", [(N, 5), (10, 2), (64, 5)])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_points_in_files_give_the_same_bits(tmp_path, chunks, zarr_format):
    x = points().astype("float32")
    expected = read_all(points_panel(array_panel(x, "float64"), LANDMARKS))
    array = zarr.create_array(tmp_path / "x.zarr", data=x, chunks=chunks, zarr_format=zarr_format)
    tables = [
        npy_panel(saved(tmp_path / "x.npy", x), "float64"),
        open_table(array),
        open_table(tmp_path / "x.zarr"),
    ]
    for table in tables:
        sent = points_panel(table, LANDMARKS)
        panel = pickle.loads(pickle.dumps(sent))
        assert read_all(panel, 13).tobytes() == expected.tobytes()
        assert pickle.loads(pickle.dumps(sent)) is panel  # whose landmarks are prepared already
        np.testing.assert_array_equal(panel.landmarks, LANDMARKS)


def test_landmarks_need_not_be_points():
    sites = points(4, seed=9)
    panel = points_panel(array_panel(points(), "float64"), sites)
    np.testing.assert_array_equal(read_all(panel), cdist(points(), sites).astype("float32"))
    assert panel.landmarks is None


@pytest.mark.parametrize(
    ("landmarks", "metric", "options", "sentence"),
    [
        ([0, 203], "euclidean", None, "from 0 to 202, but 203 is among them"),
        (np.zeros((3, 4)), "euclidean", None, "the landmarks have 4 features, but the points have 5"),
        (np.full((3, 5), np.nan), "euclidean", None, "landmark 0 has NaN or infinite features"),
        (np.zeros((1, 5)), "cosine", None, "landmark 0 is zero, so its cosine distance is undefined"),
        ([0, 1], "euclid3an", None, "metric 'euclid3an' cannot be used on these points"),
        ([0, 1], "euclidean", {"nonsense": 1}, "metric 'euclidean' cannot be used"),
    ],
)
def test_unusable_points_are_told(landmarks, metric, options, sentence):
    with pytest.raises(InputError, match=sentence):
        points_panel(array_panel(points(), "float64"), landmarks, metric, options)


@pytest.mark.parametrize(
    ("row", "metric", "sentence"),
    [
        (np.nan, "euclidean", "point 171 has NaN or infinite features"),
        (np.inf, "euclidean", "point 171 has NaN or infinite features"),
        (0, "cosine", "point 171 is zero, so its cosine distance is undefined"),
        (1e300, "cityblock", "distance of point 171 to landmark 150 is 5e.300, which is no finite float32"),
        (1e300, "euclidean", "distance of point 171 to landmark 150 is inf, which is no finite float32"),
    ],
)
def test_unusable_rows_are_named(row, metric, sentence):
    x = points()
    x[171] = row
    panel = points_panel(array_panel(x, "float64"), LANDMARKS, metric)
    for step in (1, 10, N):
        with pytest.raises(InputError, match=sentence):
            read_all(panel, step)


def test_points_are_opened_in_double_precision():
    with pytest.raises(InputError, match="points must be opened as float64, not float32"):
        points_panel(array_panel(points()), LANDMARKS)


# --- a whole matrix ---


class Counting(RowSource):
    """A source that knows nothing but whole rows, and counts them."""

    content_id = "counted"

    def __init__(self, matrix):
        self.matrix, self.shape, self.dtype, self.rows = matrix, matrix.shape, matrix.dtype, []

    def read(self, lo, hi, out):
        self.rows += range(lo, hi)
        out[: hi - lo] = self.matrix[lo:hi]


def matrix_sources(tmp_path):
    matrix = distances().astype("float32")
    build(ArrayRows(matrix), tmp_path / "d.zarr", Serial())
    foreign = zarr.create_array(tmp_path / "a.zarr", data=matrix, chunks=(30, 40))
    yield open_rows(tmp_path / "d.zarr")
    yield open_rows(foreign)
    yield open_npy(saved(tmp_path / "d.npy", matrix))
    yield open_npy(saved(tmp_path / "c.npy", squareform(distances())))
    yield ArrayRows(matrix)
    yield Symmetrized(ArrayRows(matrix))
    yield Counting(matrix)


@pytest.mark.parametrize("step", [1, 37, N])
def test_panel_of_a_matrix_is_its_columns(tmp_path, step, monkeypatch):
    monkeypatch.setattr("landmarks.panel.sources.PIECE_BYTES", 4 * N * 3)
    monkeypatch.setattr("landmarks.panel.sources.TILE", 16)
    for source in matrix_sources(tmp_path):
        panel = pickle.loads(pickle.dumps(store_panel(source, LANDMARKS)))
        np.testing.assert_array_equal(read_all(panel, step), values())


def test_only_rows_of_landmarks_are_read(tmp_path):
    source = Counting(distances())
    read_all(store_panel(source, LANDMARKS), N)
    assert source.rows == sorted(LANDMARKS)
    build(ArrayRows(distances()), tmp_path / "d.zarr", Serial())
    rows = open_rows(tmp_path / "d.zarr")
    height = Layout(N).rows
    for block in set(range(Layout(N).count)) - set(LANDMARKS // height):
        os.unlink(tmp_path / "d.zarr" / "dissimilarities" / f"c.{block}.0")
    for step in (10, N):
        np.testing.assert_array_equal(read_all(store_panel(rows, LANDMARKS), step), values())


def test_damage_in_the_matrix_is_told(tmp_path):
    build(ArrayRows(distances()), tmp_path / "d.zarr", Serial())
    rows = open_rows(tmp_path / "d.zarr")
    slow = open_rows(tmp_path / "d.zarr", "float64")
    chunk = tmp_path / "d.zarr" / "dissimilarities" / f"c.{77 // Layout(N).rows}.0"
    os.truncate(chunk, 100)
    for source in (rows, slow):
        with pytest.raises(DamagedDataError, match=r"the store .*is damaged"):
            read_all(store_panel(source, LANDMARKS))


def test_a_panel_has_no_panel():
    with pytest.raises(InputError, match="taken out of a whole matrix, not out of another panel"):
        store_panel(array_panel(values()), LANDMARKS)


def limit_for(panel, blocks):
    """Bytes with which a pass over a panel reads so many blocks at a time."""
    needs = panel_pass(stored(panel))
    return needs.total + needs.rows.scratch + blocks * needs.rows.block_bytes * 17 // 16  # a little is spared


def test_matrix_panel_in_memory_or_on_disk(tmp_path):
    source = store_panel(Counting(distances().astype("float32")), LANDMARKS)
    with matrix_panel(source, InProcessExecutor(), memory_limit=10**6, keep=10**6) as panel:
        np.testing.assert_array_equal(panel.in_memory(), values())
        np.testing.assert_array_equal(panel.landmarks, LANDMARKS)
    limit = limit_for(source, 2)
    with matrix_panel(source, InProcessExecutor(), memory_limit=limit, keep=0, scratch=tmp_path) as panel:
        assert panel.location.startswith(str(tmp_path))
        np.testing.assert_array_equal(read_all(panel), values())
        np.testing.assert_array_equal(panel.landmarks, LANDMARKS)
    assert not os.listdir(tmp_path)


# --- building ---


def a_source(tmp_path, kind):
    if kind == "points":
        return points_panel(npy_panel(saved(tmp_path / "x.npy", points()), "float64"), LANDMARKS)
    if kind == "matrix":
        return store_panel(open_npy(saved(tmp_path / "d.npy", distances())), LANDMARKS)
    return array_panel(values(), landmarks=LANDMARKS)


@pytest.mark.parametrize("kind", ["points", "matrix", "array"])
@pytest.mark.parametrize("group", [None, 1, 5])
def test_build_writes_and_checks(tmp_path, kind, group):
    source, seen = a_source(tmp_path, kind), []
    ids = [f"sample {k}" for k in range(N)]
    found = build_panel(
        source,
        tmp_path / "p.zarr",
        Serial(group),
        ids=ids,
        metric="euclidean",
        memory_limit=limit_for(source, 5),
        on_progress=lambda *progress: seen.append(progress),
    )
    panel = open_panel(tmp_path / "p.zarr")
    np.testing.assert_array_equal(read_all(panel), values())
    np.testing.assert_array_equal(panel.landmarks, LANDMARKS)
    assert panel.direct
    assert panel.ids == ids
    assert panel.header["metric"] == "euclidean"
    assert seen[-1] == (Layout(N, S).count, Layout(N, S).count)
    assert found == check_panel(source, Serial())
    assert found.known == ((S, N),)
    assert found.missing == 0
    assert found.highest == values().max()
    assert PanelCheck.from_dict(describe(tmp_path / "p.zarr")["checked"]) == found


def test_build_reads_the_landmarks_as_often_as_memory_demands(tmp_path):
    for blocks, times in ((None, 1), (9, 4)):
        source = Counting(distances().astype("float32"))
        panel = store_panel(source, LANDMARKS)
        limit = None if blocks is None else limit_for(panel, blocks)
        build_panel(panel, tmp_path / "p.zarr", Serial(), memory_limit=limit, overwrite=True)
        assert sorted(source.rows) == sorted(np.repeat(LANDMARKS, times))


class Interrupted(Exception):
    pass


@dataclass(frozen=True, eq=False)
class Stopping(WrappedSource):
    """A panel that counts what is read, and fails after some reads."""

    most: int = 10**9
    reads: list = field(default_factory=list)

    @property
    def content_id(self):
        return self.source.content_id

    def read(self, lo, hi, out):
        if len(self.reads) == self.most:
            raise Interrupted
        self.reads.append(range(lo, hi))
        self.source.read(lo, hi, out)


def test_interrupted_build_goes_on(tmp_path):
    source = a_source(tmp_path, "points")
    first, second = Stopping(source, 9), Stopping(source)
    with pytest.raises(Interrupted):
        build_panel(first, tmp_path / "p.zarr", Serial(4))
    with pytest.raises(InputError, match="unfinished"):
        open_panel(tmp_path / "p.zarr")
    with open(tmp_path / "p.zarr" / "panel" / "c.2.0", "r+b") as file:
        file.write(b"damage")
    found = build_panel(second, tmp_path / "p.zarr", Serial(4))
    again = {row for rows in second.reads for row in rows}
    assert again == set(range(N)) - set(range(9 * 6)) | set(range(12, 18))
    assert found == check_panel(source, Serial())
    np.testing.assert_array_equal(read_all(open_panel(tmp_path / "p.zarr")), values())


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
from test_panel import *
from landmarks.panel.sources import PointsPanel
read = PointsPanel.read
def slowly(self, lo, hi, out):
    time.sleep(0.05)
    read(self, lo, hi, out)
PointsPanel.read = slowly
build_panel(points_panel(npy_panel({points!r}, "float64"), LANDMARKS), {store!r}, Serial())
"""


@pytest.mark.slow
@pytest.mark.wide
def test_killed_build_goes_on(tmp_path):
    source, store = a_source(tmp_path, "points"), tmp_path / "p.zarr"
    code = KILLED.format(tests=os.path.dirname(__file__), points=str(tmp_path / "x.npy"), store=str(store))
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len(list(store.rglob("c.*"))) < 5 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert 5 <= len(list(store.rglob("c.*.0"))) < Layout(N, S).count
    build_panel(source, store, Serial())
    np.testing.assert_array_equal(read_all(open_panel(store)), values())
    assert not list(store.rglob("*.partial"))


def test_another_source_does_not_continue_a_panel(tmp_path):
    table = array_panel(points(), "float64")
    with pytest.raises(Interrupted):
        build_panel(Stopping(points_panel(table, LANDMARKS), 3), tmp_path / "p.zarr", Serial())
    for other in (
        points_panel(table, LANDMARKS[::-1]),
        points_panel(table, LANDMARKS[:4]),
        points_panel(table, LANDMARKS, "cityblock"),
        points_panel(table, LANDMARKS, dtype="float64"),
        points_panel(table, points()[LANDMARKS]),
    ):
        with pytest.raises(InputError, match="an unfinished panel of another source"):
            build_panel(other, tmp_path / "p.zarr", Serial())
    build_panel(points_panel(table, LANDMARKS), tmp_path / "p.zarr", Serial())
    with pytest.raises(InputError, match="already holds a finished panel of another source"):
        build_panel(points_panel(table, LANDMARKS[::-1]), tmp_path / "p.zarr", Serial())


def test_a_finished_panel_is_only_checked_again(tmp_path):
    panel = points_panel(array_panel(points(), "float64"), LANDMARKS)
    first = build_panel(panel, tmp_path / "p.zarr", Serial())
    chunks = {file: file.stat().st_mtime_ns for file in (tmp_path / "p.zarr").rglob("c.*")}
    assert chunks
    again = build_panel(panel, tmp_path / "p.zarr", Serial())
    assert again.as_dict() == first.as_dict()
    assert all(file.stat().st_mtime_ns == before for file, before in chunks.items())


# --- the check ---


def with_holes():
    table = values()
    table[5, :] = np.nan
    table[100, [1, 4]] = np.nan
    table[170:174, 2] = np.nan
    return table


def test_missing_dissimilarities_are_counted(tmp_path):
    source = array_panel(with_holes(), landmarks=LANDMARKS)
    found = build_panel(source, tmp_path / "p.zarr", Serial(3))
    assert found.known == ((0, 1), (5, 1), (6, 4), (7, N - 6))
    assert found.poorest == 5
    assert found.missing == 13
    assert found.highest == np.nanmax(with_holes())
    np.testing.assert_array_equal(read_all(open_panel(tmp_path / "p.zarr")), with_holes())


def test_scan_of_any_block():
    scanner = PanelScanner(N, S)
    scanner.add(0, np.full((6, S), np.nan, "float32"))
    (block,) = scanner.result()
    assert (block.highest, block.known, block.poorest) == (0.0, {0: 6}, (0, 0))


def wrong(row, column, value):
    table = with_holes()
    table[row, column] = value
    return table


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            wrong(5, 3, np.inf),
            r"has 1 infinite entry as float32, the first in row 5 \(id 'p5'\), column 3 \(landmark 202, id 'p202'\);",
        ),
        (wrong(5, 3, -np.inf), r"1 infinite entry as float32, the first in row 5 \(id 'p5'\), column 3"),
        (
            wrong(6, [2, 3], -1),
            r"2 negative entries, the lowest in row 6 .*, column 2 \(landmark 77, id 'p77'\) \(-1\)",
        ),
        (
            wrong(77, 2, 0.5),
            r"0\.5 instead of 0 from landmark 77 \(id 'p77'\) to itself, in row 77 .*, column 2 ",
        ),
        (
            wrong(202, 1, 9.0),
            r"not symmetric between landmarks: the worst pair is 3 \(id 'p3'\) and 202 .*, with "
            r"[\d.]+ in row 3 .*, column \d \(landmark 202.* and 9 in row 202 .*, column 1 \(landmark 3, .* differ by",
        ),
        (values()[:, ::-1], "instead of 0 from landmark .* to itself.*landmarks does not list the rows"),
    ],
)
def test_unusable_panels_are_told_and_removed(tmp_path, table, sentence):
    ids = [f"p{k}" for k in range(N)]
    source = array_panel(table, landmarks=LANDMARKS)
    with pytest.raises(InputError, match=sentence):
        check_panel(source, Serial(), names=PanelEntries(source.landmarks, ids))
    with pytest.raises(InputError, match=sentence):
        build_panel(source, tmp_path / "p.zarr", Serial(), ids=ids)
    assert not os.listdir(tmp_path)


def test_missing_between_landmarks_is_let_pass():
    table = values()
    table[LANDMARKS[0], 1] = table[LANDMARKS[3], 3] = np.nan
    assert check_panel(array_panel(table, landmarks=LANDMARKS), Serial()).asymmetry < 1e-6


def test_check_of_a_foreign_panel_is_kept(tmp_path, monkeypatch):
    array = zarr.create_array(tmp_path / "p.zarr", data=values(), chunks=(50, 3))
    found = check_panel(open_panel(array, landmarks=LANDMARKS), Serial())
    assert found.asymmetry is not None
    assert check_panel(open_panel(array), Serial()).asymmetry is None
    again = check_panel(open_panel(array, landmarks=LANDMARKS), Serial())
    assert again == found
    monkeypatch.setattr("landmarks.panel.check.PanelChecker.evaluate", None)  # so that no further pass can end
    assert check_panel(open_panel(array, landmarks=LANDMARKS), Serial()) == found


# --- what users hand over ---


def test_panel_input_of_every_kind(tmp_path):
    zarr.create_array(tmp_path / "p.zarr", data=values("float64"), chunks=(50, 3))
    for given_ in (
        values("float64").tolist(),
        values("float64"),
        saved(tmp_path / "p.npy", values("float64")),
        str(tmp_path / "p.zarr"),
        zarr.open_array(tmp_path / "p.zarr", mode="r"),
    ):
        with panel_input(given_, InProcessExecutor(), landmarks=LANDMARKS) as panel:
            np.testing.assert_array_equal(read_all(panel), values())
            np.testing.assert_array_equal(panel.landmarks, LANDMARKS)
        with panel_input(given_, InProcessExecutor(), dtype="float64") as panel:
            np.testing.assert_array_equal(read_all(panel), values("float64"))
            assert panel.landmarks is None


def test_points_input_of_every_kind(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=points())
    for given_ in (points(), saved(tmp_path / "x.npy", points()), tmp_path / "x.zarr"):
        with points_input(given_, InProcessExecutor()) as table:
            np.testing.assert_array_equal(read_all(points_panel(table, LANDMARKS)), values())


@pytest.mark.wide
@pytest.mark.slow
def test_panels_on_a_cluster_are_those_of_this_process(tmp_path):
    matrix = distances().astype("float32")
    here = build_panel(array_panel(values(), landmarks=LANDMARKS), tmp_path / "here.zarr", InProcessExecutor())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with local_client(2, 1) as client:
        executor = DaskExecutor(client)
        with points_input(points(), executor, scratch=scratch) as table:
            assert table.location.startswith(str(scratch))
            source = points_panel(table, LANDMARKS)
            assert source.content_id == points_panel(array_panel(points(), "float64"), LANDMARKS).content_id
            assert build_panel(source, tmp_path / "points.zarr", executor) == here
        with panel_input(values(), executor, landmarks=LANDMARKS, scratch=scratch) as panel:
            assert check_panel(panel, executor) == here
        build(ArrayRows(matrix), tmp_path / "d.zarr", Serial())
        taken = store_panel(open_rows(tmp_path / "d.zarr"), LANDMARKS)
        with matrix_panel(taken, executor, memory_limit=10**8, keep=10**8, scratch=scratch) as panel:
            assert check_panel(panel, executor) == here
        assert not os.listdir(scratch)
    for block in range(Layout(N, S).count):
        name = f"panel/c.{block}.0"
        assert (tmp_path / "points.zarr" / name).read_bytes() == (tmp_path / "here.zarr" / name).read_bytes()
