import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import ReadProfile
from psmds_dist.core.types import InputCheck, InputError, Suspicion
from psmds_dist.data.cache import clear_row_cache
from psmds_dist.data.store import (
    create,
    describe,
    open_panel,
    open_rows,
    open_table,
    read_result,
    require_result_place,
    write_result,
)
from psmds_dist.data.store.chunkfile import ADVISED
from psmds_dist.data.store.reading import chunk_file
from psmds_dist.ingest.passes import known_check

N = 101


def distances(n=N, dtype="float32", seed=0):
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return squareform(pdist(points)).astype(dtype)


def a_check(n=N, dtype="float32"):
    return InputCheck(n, dtype, 5.0, 1.5, 1e-4, None, "abc", Suspicion())


def written(path, matrix, ids=None):
    target = create(path, len(matrix), matrix.dtype.name, ids=ids, source_fingerprint="test")
    layout = Layout(len(matrix))
    for block in range(layout.count):
        lo, hi = layout.bounds(block)
        target.write(block, matrix[lo:hi])
    target.finish(a_check(len(matrix), matrix.dtype.name).as_dict())
    return open_rows(path)


def read_all(rows, step=None):
    step = step or Layout(rows.n).rows
    out = np.empty((rows.n, rows.n), rows.dtype)
    for lo in range(0, rows.n, step):
        rows.read(lo, min(lo + step, rows.n), out[lo:])
    return out


@pytest.fixture
def store(tmp_path):
    return written(tmp_path / "d.zarr", distances())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_store_gives_back_what_was_written(tmp_path, dtype):
    matrix = distances(dtype=dtype)
    rows = written(tmp_path / "d.zarr", matrix, ids=[f"s{k}é" for k in range(N)])
    assert rows.direct
    assert rows.dtype == dtype
    assert rows.ids == [f"s{k}é" for k in range(N)]
    np.testing.assert_array_equal(read_all(rows), matrix)
    np.testing.assert_array_equal(rows.array[:], matrix)  # zarr itself agrees, checksums and padding included


@pytest.mark.parametrize("step", [1, 2, 7, 50, N])
def test_any_row_range_can_be_read(store, step):
    np.testing.assert_array_equal(read_all(store, step), distances())


def test_fast_and_slow_path_are_identical(store):
    slow = open_rows(store.location)
    slow.__dict__["direct"] = False
    assert read_all(slow).tobytes() == read_all(store).tobytes()


def test_columns_are_rows_of_the_transpose(tmp_path):
    matrix = np.random.default_rng(0).random((N, N), dtype="float32")
    rows = written(tmp_path / "d.zarr", matrix)
    out = np.empty((20, N), "float32")
    rows.read_columns(30, 45, out)
    np.testing.assert_array_equal(out[:15], matrix.T[30:45])


def test_float64_can_be_asked_for(store):
    np.testing.assert_array_equal(read_all(open_rows(store.location, "float64")), distances().astype("float64"))
    with pytest.raises(InputError, match="dtype must be 'float32' or 'float64'"):
        open_rows(store.location, "float16")


def test_store_describes_itself(store):
    assert store.header["status"] == "complete"
    assert store.header["n"] == N
    assert store.header["symmetric"] is True
    assert store.array.metadata.dimension_names == ("point", "other")
    assert np.isnan(store.array.fill_value)
    assert store.ids is None


def test_rows_pickle_small(tmp_path):
    rows = written(tmp_path / "d.zarr", distances(), ids=[f"a rather long name {k}" for k in range(N)])
    before = pickle.dumps(rows)
    assert len(rows.ids) == N
    data = pickle.dumps(rows)
    assert data == before  # what was asked for meanwhile, as the names were, stays here
    assert len(data) < 3000
    again = pickle.loads(data)
    assert again.content_id == rows.content_id
    assert again.ids == rows.ids
    np.testing.assert_array_equal(read_all(again), distances())


def test_rows_that_arrive_again_are_known(store):
    one, two = (pickle.loads(pickle.dumps(store)) for _ in range(2))
    assert one is two
    testing = pickle.loads(pickle.dumps(store.verified()))
    assert (testing.verify, one.verify) == (True, False)
    clear_row_cache()
    assert pickle.loads(pickle.dumps(store)) is not one


def test_an_archive_that_gives_way_to_another_is_not_known_as_the_same(tmp_path):
    def archived(matrix):
        with zarr.storage.ZipStore(tmp_path / "new.zip", mode="w") as store:
            zarr.create_array(store, data=matrix, chunks=(40, N))
        (tmp_path / "new.zip").replace(tmp_path / "d.zip")
        return open_rows(zarr.open_array(zarr.storage.ZipStore(tmp_path / "d.zip", mode="r"), mode="r"))

    old = archived(distances())
    np.testing.assert_array_equal(read_all(pickle.loads(pickle.dumps(old))), distances())
    assert not old.is_stale()
    new = archived(2 * distances())
    assert old.is_stale()
    assert new.content_id != old.content_id
    np.testing.assert_array_equal(read_all(pickle.loads(pickle.dumps(new))), 2 * distances())


def test_rows_of_a_relative_path_survive_a_change_of_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written("d.zarr", distances())
    rows = [open_rows("d.zarr"), open_rows(zarr.open_array("d.zarr/dissimilarities", mode="r"))]
    monkeypatch.chdir("/")
    for one in rows:
        np.testing.assert_array_equal(read_all(one), distances())


FOREIGN = [
    (2, (7, 13), "<f4", None),
    (2, (N, N), ">f8", None),
    (2, (10, N), "<i2", "auto"),
    (3, (7, 13), "float64", "auto"),
    (3, (40, N), "float32", None),
    (3, (7, N), "float32", "auto"),
    (3, (N, 1), "float16", None),
    (3, (33, 50), "uint8", "auto"),
]


@pytest.mark.parametrize(("zarr_format", "chunks", "dtype", "compressors"), FOREIGN)
@pytest.mark.parametrize("as_array", [False, True])
def test_foreign_arrays_give_their_rows(tmp_path, zarr_format, chunks, dtype, compressors, as_array):
    matrix = (10 * distances(dtype="float64")).round().astype(dtype)
    path = tmp_path / "a.zarr"
    array = zarr.create_array(
        path,
        shape=(N, N),
        chunks=chunks,
        dtype=dtype,
        zarr_format=zarr_format,
        compressors=compressors,
        config={"write_empty_chunks": True},
    )
    array[:] = matrix
    rows = open_rows(array if as_array else path)
    assert rows.dtype == np.float32
    assert rows.ids is None
    np.testing.assert_array_equal(read_all(rows), matrix.astype("float32"))
    np.testing.assert_array_equal(read_all(pickle.loads(pickle.dumps(rows)), 17), matrix.astype("float32"))


def test_sharded_array_in_a_group(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    array = group.create_array("d", shape=(N, N), chunks=(10, 30), shards=(20, 60), dtype="float32")
    group.create_array("other", data=np.arange(4))
    array[:] = distances()
    np.testing.assert_array_equal(read_all(open_rows(tmp_path / "g.zarr")), distances())
    group.create_array("second", data=distances(5))
    with pytest.raises(InputError, match="2 square 2-D arrays instead of one"):
        open_rows(tmp_path / "g.zarr")


def test_array_in_memory():
    array = zarr.create_array(zarr.storage.MemoryStore(), data=distances(), chunks=(20, 20))
    np.testing.assert_array_equal(read_all(open_rows(array)), distances())


def test_band_and_read_cost(tmp_path):
    def opened(name, chunks, **more):
        array = zarr.create_array(tmp_path / name, data=distances(), chunks=chunks, **more)
        return open_rows(array)

    assert Layout(N).rows == 3
    assert (
        opened("plain", (50, N), compressors=None).read_profile.rows_per_chunk == 1
    )  # parts of a plain chunk are read in place
    tall = opened("tall", (50, N))
    assert tall.read_profile.rows_per_chunk == 50
    assert tall.read_profile.read_amplification == pytest.approx((17 + 17 + 1 + 1) / 3, abs=0.5)
    assert opened("short", (3, 20)).read_profile.rows_per_chunk == 1
    assert opened("short2", (3, 20)).read_profile.read_amplification == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda p: zarr.create_array(p, data=np.zeros((3, 4))),
            "has shape (3, 4), but a dissimilarity matrix is",
        ),
        (lambda p: zarr.create_array(p, data=np.ones((3, 3), bool)), "holds bool"),
        (lambda p: zarr.create_array(p, data=np.ones((3, 3), complex)), "holds complex128"),
        (lambda p: zarr.create_group(p), "0 square 2-D arrays"),
        (lambda p: p.write_text("1,2"), "is a table of numbers as text, but a .npy file or a Zarr store is expected"),
        (lambda p: p.mkdir(), "is not a Zarr store"),
        (lambda p: None, "does not exist"),
        (lambda p: write_result(p, {"x": np.ones(3)}, {}), "holds a result, not dissimilarities"),
    ],
)
def test_what_cannot_be_opened_is_told(tmp_path, make, sentence):
    make(tmp_path / "a.zarr")
    with pytest.raises(InputError) as error:
        open_rows(tmp_path / "a.zarr")
    assert sentence in str(error.value)
    assert str(tmp_path / "a.zarr") in str(error.value)


def test_missing_chunks_are_refused(tmp_path):
    array = zarr.create_array(tmp_path / "a", shape=(N, N), chunks=(10, 50), shards=(20, 100), dtype="float32")
    array[:80] = distances()[:80]
    with pytest.raises(InputError, match=r"lacks 4 of its 12 chunks, which would read as 0\.0"):
        open_rows(tmp_path / "a")


# --- damage ---


def chunk_path(store, block):
    return os.path.join(store.location, "dissimilarities", f"c.{block}.0")


def flip_a_bit(path):
    with open(path, "r+b") as file:
        file.seek(77)
        byte = file.read(1)[0]
        file.seek(77)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda p: os.truncate(p, 100), "has 100 bytes instead of 1216"),
        (os.unlink, "is missing"),
        (flip_a_bit, "does not match its checksum"),
    ],
)
@pytest.mark.parametrize("block", [4, 33])  # an inner one, and the padded last one
def test_damaged_chunks_are_told(store, damage, sentence, block):
    damage(chunk_path(store, block))
    with pytest.raises(DamagedDataError, match=r"the store is damaged.*c\.\d+\.0 " + sentence):
        read_all(store.verified())


def test_damage_is_told_on_the_slow_path(store):
    slow = open_rows(store.location, "float64")
    flip_a_bit(chunk_path(store, 4))
    with pytest.raises(DamagedDataError, match="is damaged or cannot be read in rows 12 to 14"):
        read_all(slow)


# --- writing ---


def test_interrupted_store_is_continued(tmp_path):
    path, matrix, layout = tmp_path / "d.zarr", distances(), Layout(N)
    target = create(path, N, source_fingerprint="one")
    target.write(5, matrix[15:18])
    (path / "dissimilarities" / f"c.6.{32 * 'a'}.partial").write_bytes(b"x")
    notes = path / "dissimilarities" / "notes.partial"
    notes.write_text("of somebody else")
    with pytest.raises(InputError, match="is unfinished"):
        open_rows(path)
    with pytest.raises(InputError, match=r"contains dissimilarities/notes\.partial, which psmds did not write"):
        create(path, N, source_fingerprint="one")
    assert notes.read_text() == "of somebody else"
    notes.unlink()
    again = pickle.loads(pickle.dumps(create(path, N, source_fingerprint="one")))
    assert not list(path.rglob("*.partial"))
    assert [b for b in range(layout.count) if again.has(b)] == [5]
    out = np.empty((layout.rows, N), "float32")
    again.read(15, 18, out)
    np.testing.assert_array_equal(out, matrix[15:18])
    with pytest.raises(InputError, match="is missing"):
        again.read(18, 21, out)


def test_other_ids_or_types_do_not_continue_a_store(tmp_path):
    create(tmp_path / "d.zarr", 3, ids=["a", "b", "c"])
    create(tmp_path / "d.zarr", 3, ids=["a", "b", "c"], overwrite=True)
    for other in ({"ids": ["a", "b", "d"]}, {}, {"ids": ["a", "b", "c"], "dtype": "float64"}):
        with pytest.raises(InputError, match="an unfinished store of another source"):
            create(tmp_path / "d.zarr", 3, **other)


def test_blocks_of_nan_count_as_written(tmp_path):
    target = create(tmp_path / "d.zarr", N)
    target.write(0, np.full((3, N), np.nan, "float32"))
    assert target.has(0)


def test_a_write_is_a_whole_block(tmp_path):
    target = create(tmp_path / "d.zarr", N)
    with pytest.raises(InputError, match="rows of block 0 must have shape"):
        target.write(0, np.zeros((2, N), "float32"))


def test_other_stores_are_refused_or_overwritten(tmp_path, store):
    with pytest.raises(InputError, match="already holds a finished store of another source; give another path"):
        create(store.location, 10)
    assert create(store.location, 10, source_fingerprint="a", overwrite=True).n == 10
    with pytest.raises(InputError, match="an unfinished store of another source"):
        create(store.location, 10, source_fingerprint="b")
    assert create(store.location, 12, source_fingerprint="b", overwrite=True).n == 12
    assert os.listdir(tmp_path) == ["d.zarr"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["file", "directory", "array", "result"])
def test_what_is_not_a_store_is_never_removed(tmp_path, overwrite, kind):
    path = tmp_path / "mine"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        (path / "sub").mkdir(parents=True)
    elif kind == "array":
        zarr.create_array(path, data=np.ones((3, 3)))
    else:
        write_result(path, {"x": np.ones(3)}, {})
    with pytest.raises(InputError, match="exists and is not a dissimilarity store"):
        create(path, 10, overwrite=overwrite)
    assert path.exists()
    if kind != "result":
        with pytest.raises(InputError, match="exists and is not a result"):
            write_result(path, {"x": np.ones(3)}, {}, overwrite=overwrite)
        assert path.exists()


def test_an_empty_directory_may_become_a_store(tmp_path):
    (tmp_path / "d.zarr").mkdir()
    assert create(tmp_path / "d.zarr", 10).n == 10


def test_what_killed_workers_left_goes_at_the_end(tmp_path):
    matrix = distances()
    target = create(tmp_path / "d.zarr", N, "float32", source_fingerprint="test")
    for block in range(Layout(N).count):
        lo, hi = Layout(N).bounds(block)
        target.write(block, matrix[lo:hi])
    left = f"{chunk_file(target.array, 0).path}.{32 * '0'}.partial"
    Path(left).write_bytes(b"half a chunk")
    notes = Path(left).with_name("notes.partial")
    notes.write_text("of somebody else")
    target.finish(a_check().as_dict())
    assert list(tmp_path.rglob("*.partial")) == [notes]
    np.testing.assert_array_equal(read_all(open_rows(tmp_path / "d.zarr")), matrix)


# --- panels ---

S = 5
LANDMARKS = [7, 100, 0, 55, 23]


def a_panel(dtype="float32"):
    panel = distances(dtype=dtype)[:, LANDMARKS].copy()
    panel[11, 2] = panel[40, :] = np.nan
    return panel


def panel_written(path, panel, landmarks=LANDMARKS, ids=None):
    target = create(path, N, panel.dtype.name, width=S, landmarks=landmarks, ids=ids, source_fingerprint="test")
    layout = Layout(N, S)
    for block in range(layout.count):
        lo, hi = layout.bounds(block)
        target.write(block, panel[lo:hi])
    target.finish({"dtype": panel.dtype.name, "found": 3})
    return open_panel(path)


def read_panel(rows, step=None):
    out = np.empty(rows.shape, rows.dtype)
    step = step or rows.layout.rows
    for lo in range(0, rows.n, step):
        rows.read(lo, min(lo + step, rows.n), out[lo:])
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("step", [1, 7, N])
def test_panel_gives_back_what_was_written(tmp_path, dtype, step):
    rows = panel_written(tmp_path / "p.zarr", a_panel(dtype), ids=[f"s{k}" for k in range(N)])
    assert rows.direct
    assert (rows.shape, rows.dtype, rows.read_profile, rows.layout) == ((N, S), dtype, ReadProfile(), Layout(N, S))
    np.testing.assert_array_equal(rows.landmarks, LANDMARKS)
    assert rows.ids[3] == "s3"
    assert rows.load_check() == {"dtype": dtype, "found": 3}
    np.testing.assert_array_equal(read_panel(rows, step), a_panel(dtype))
    np.testing.assert_array_equal(rows.array[:], a_panel(dtype))
    assert rows.array.chunks == (Layout(N, S).rows, S)
    assert rows.array.metadata.dimension_names == ("point", "landmark")
    again = pickle.loads(pickle.dumps(rows))
    assert again.content_id == rows.content_id
    assert read_panel(again).tobytes() == a_panel(dtype).tobytes()
    np.testing.assert_array_equal(again.landmarks, LANDMARKS)


def test_fast_and_slow_path_of_a_panel_are_identical(tmp_path):
    fast = panel_written(tmp_path / "p.zarr", a_panel())
    slow = open_panel(tmp_path / "p.zarr")
    slow.__dict__["direct"] = False
    assert read_panel(slow, 4).tobytes() == read_panel(fast, 4).tobytes()
    rows = np.array([40, 3, 100])
    for lo, hi in ((0, S), (2, 4)):
        parts = [np.empty((4, hi - lo), "float32") for _ in range(2)]
        for panel, part in zip((fast, slow), parts, strict=True):
            panel.read_rows(rows, slice(lo, hi), part)
            np.testing.assert_array_equal(part[:3], a_panel()[rows, lo:hi])


def test_parts_of_rows_of_a_matrix(store):
    foreign = open_rows(store.location, "float64")
    rows = np.array([100, 3, 4, 50])
    for source in (store, foreign):
        out = np.empty((4, 20), source.dtype)
        source.read_rows(rows, slice(30, 50), out)
        np.testing.assert_array_equal(out, distances()[rows, 30:50])


@pytest.mark.parametrize("landmarks", [None, LANDMARKS])
@pytest.mark.parametrize(
    ("zarr_format", "chunks", "dtype", "compressors"),
    [
        (2, (7, 2), "<f4", None),
        (2, (N, S), ">f8", "auto"),
        (3, (40, S), "float32", None),
        (3, (10, 1), "float16", "auto"),
    ],
)
def test_foreign_panels_give_their_rows(tmp_path, zarr_format, chunks, dtype, compressors, landmarks):
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(N, S),
        chunks=chunks,
        dtype=dtype,
        zarr_format=zarr_format,
        compressors=compressors,
        config={"write_empty_chunks": True},
    )
    array[:] = a_panel().astype(dtype)
    expected = a_panel().astype(dtype).astype("float32")
    for given_ in (array, tmp_path / "a.zarr"):
        rows = pickle.loads(pickle.dumps(open_panel(given_, landmarks=landmarks)))
        assert rows.dtype == np.float32
        assert rows.ids is None
        assert (rows.landmarks is None) == (landmarks is None)
        np.testing.assert_array_equal(read_panel(rows, 17), expected)
    assert describe(tmp_path / "a.zarr")["columns"].startswith("5, landmarks of a panel (--landmarks) or features")


def test_panel_of_other_landmarks_than_its_own(tmp_path):
    path = tmp_path / "p.zarr"
    panel_written(path, a_panel())
    np.testing.assert_array_equal(open_panel(path, landmarks=LANDMARKS).landmarks, LANDMARKS)
    with pytest.raises(InputError, match=r"landmarks has 55 for column 2, but the panel .* was made for 0 there"):
        open_panel(path, landmarks=[7, 100, 55, 0, 23])
    with pytest.raises(InputError, match="landmarks lists 2 rows for the 5 columns"):
        open_panel(path, landmarks=[7, 100])


def test_landmarks_may_be_none_of_the_points(tmp_path):
    assert panel_written(tmp_path / "p.zarr", a_panel(), landmarks=None).landmarks is None


def test_panels_and_matrices_are_told_apart(tmp_path, store):
    path = tmp_path / "p.zarr"
    panel_written(path, a_panel())
    for given_ in (path, zarr.open_array(path / "panel", mode="r")):
        with pytest.raises(InputError, match="holds a panel, not dissimilarities; give the store it was made from"):
            open_rows(given_)
    with pytest.raises(InputError, match="holds dissimilarities, not a panel; make a panel from it first"):
        open_panel(store.location)
    with pytest.raises(InputError, match=r"holds a panel, not points; give a Zarr array of shape \(n, d\)"):
        open_table(path)
    with pytest.raises(InputError, match="exists and is not a dissimilarity store; it will not"):
        create(path, N, overwrite=True)
    with pytest.raises(InputError, match="exists and is not a panel; it will not"):
        create(store.location, N, width=S, overwrite=True)


def test_what_is_no_panel_is_told(tmp_path):
    zarr.create_array(tmp_path / "line", data=np.ones(4))
    with pytest.raises(InputError, match=r"has shape \(4,\), but a panel is 2-D, a row for each point"):
        open_panel(tmp_path / "line")
    with pytest.raises(InputError, match=r"has shape \(4,\), but points are an array of shape \(n, d\)"):
        open_table(tmp_path / "line")
    array = zarr.create_array(tmp_path / "part", shape=(N, S), chunks=(10, S), dtype="float32", fill_value=np.nan)
    array[:50] = a_panel()[:50]
    with pytest.raises(InputError, match="lacks 6 of its 11 chunks, which would read as nan"):
        open_panel(array)
    group = zarr.create_group(tmp_path / "group")
    for name in ("a", "b"):
        group.create_array(name, data=a_panel())
    with pytest.raises(InputError, match="with 2 2-D arrays instead of one"):
        open_panel(tmp_path / "group")


def test_interrupted_panel_is_continued(tmp_path):
    path, layout = tmp_path / "p.zarr", Layout(N, S)
    target = create(path, N, width=S, landmarks=LANDMARKS, source_fingerprint="one")
    lo, hi = layout.bounds(13)
    target.write(13, np.full((hi - lo, S), np.nan, "float32"))
    with pytest.raises(InputError, match="rows of block 0 must have shape"):
        target.write(0, np.zeros((hi - lo, N), "float32"))
    with pytest.raises(InputError, match="is unfinished"):
        open_panel(path)
    again = pickle.loads(pickle.dumps(create(path, N, width=S, landmarks=LANDMARKS, source_fingerprint="one")))
    assert [block for block in range(layout.count) if again.has(block)] == [13]
    out = np.zeros((hi - lo, S), "float32")
    again.verified().read(lo, hi, out)
    assert np.isnan(out).all()
    np.testing.assert_array_equal(again.landmarks, LANDMARKS)
    for other in ({"landmarks": LANDMARKS[::-1]}, {}, {"landmarks": LANDMARKS, "dtype": "float64"}):
        with pytest.raises(InputError, match="an unfinished panel of another source"):
            create(path, N, width=S, source_fingerprint="one", **other)
    again.discard()
    assert not path.exists()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda p: os.truncate(p, 50), "has 50 bytes"),
        (os.unlink, "is missing"),
        (flip_a_bit, "does not match"),
    ],
)
@pytest.mark.parametrize("block", [4, 33])
def test_damaged_panels_are_told(tmp_path, damage, sentence, block):
    path = tmp_path / "p.zarr"
    wide = np.random.default_rng(0).random((N, 40), "float32")
    target = create(path, N, width=40)
    for k in range(Layout(N, 40).count):
        target.write(k, wide[slice(*Layout(N, 40).bounds(k))])
    target.finish({"dtype": "float32"})
    rows = open_panel(path)
    damage(path / "panel" / f"c.{block}.0")
    with pytest.raises(DamagedDataError, match=r"the store is damaged.*c\.\d+\.0 " + sentence):
        read_panel(rows.verified())


# --- the kept check ---


def test_check_is_kept_until_the_store_changes(store):
    assert known_check(store, InputCheck) == a_check()
    assert known_check(open_rows(store.location, "float64"), InputCheck) is None
    copy = store.location + "-copy"
    shutil.copytree(store.location, copy, copy_function=shutil.copy)
    assert known_check(open_rows(copy), InputCheck) is None  # files of another time, so it is looked at again
    os.utime(chunk_path(store, 3), ns=(1, 1))
    assert known_check(open_rows(store.location), InputCheck) is None


@pytest.mark.parametrize("check", ["torn", {}, {**a_check().as_dict(), "more": 1}], ids=["torn", "empty", "more"])
def test_a_check_that_cannot_be_read_is_done_again(store, check):
    place = Path(store.location, "zarr.json")
    described = json.loads(place.read_text())
    described["attributes"]["psmds"]["check"] = check
    place.write_text(json.dumps(described))
    assert known_check(open_rows(store.location), InputCheck) is None


def test_check_of_a_foreign_array_keeps_its_attributes(tmp_path):
    array = zarr.create_array(tmp_path / "a", data=distances(), attributes={"mine": 1})
    rows = open_rows(tmp_path / "a")
    assert known_check(rows, InputCheck) is None
    assert rows.save_check(a_check().as_dict())
    assert known_check(open_rows(array), InputCheck) == a_check()
    assert zarr.open_array(tmp_path / "a").attrs["mine"] == 1


def test_check_is_not_kept_where_changes_go_unnoticed():
    store = zarr.storage.MemoryStore()
    rows = open_rows(zarr.create_array(store, data=distances()))
    assert not rows.save_check(a_check().as_dict())


# --- results ---


def test_result_comes_back(tmp_path):
    arrays = {
        "embedding": np.random.default_rng(0).normal(size=(7, 2)),
        "history/epoch": np.arange(3),
        "history/mse": np.empty(0),
    }
    write_result(tmp_path / "r.zarr", arrays, {"seed": 3, "config": {"eps": 0.1}}, ["a", "b"])
    found, attributes, ids = read_result(tmp_path / "r.zarr")
    assert attributes == {"seed": 3, "config": {"eps": 0.1}}
    assert ids == ["a", "b"]
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)
    assert os.listdir(tmp_path) == ["r.zarr"]


def test_result_replaces_only_when_asked_and_only_when_complete(tmp_path):
    path = tmp_path / "r.zarr"
    write_result(path, {"x": np.ones(3)}, {})
    with pytest.raises(InputError, match="already holds a result; choose another path or use overwrite=True"):
        write_result(path, {"x": np.zeros(3)}, {})
    with pytest.raises(TypeError):
        write_result(path, {"x": np.zeros(3)}, {"bad": object()}, overwrite=True)
    np.testing.assert_array_equal(read_result(path)[0]["x"], 1)
    write_result(path, {"x": np.zeros(3)}, {}, overwrite=True)
    np.testing.assert_array_equal(read_result(path)[0]["x"], 0)
    assert os.listdir(tmp_path) == ["r.zarr"]


def test_a_result_that_will_have_no_place_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for wrong in ("file/r", "file/deep/r"):
        with pytest.raises(InputError, match=r"r cannot be written because .*file is not a writable directory"):
            require_result_place(tmp_path / wrong, overwrite=True)
    require_result_place(tmp_path / "new/deep/r", overwrite=False)
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path)  # whatever the user may do
    with pytest.raises(InputError, match="cannot be written"):
        require_result_place(tmp_path / "r", overwrite=False)


def test_what_is_no_result_is_told(tmp_path, store):
    with pytest.raises(InputError, match="holds dissimilarities; give the result of a fit"):
        read_result(store.location)
    with pytest.raises(InputError, match="does not exist"):
        read_result(tmp_path / "none")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda place: shutil.rmtree(place / "map"), r"r is damaged \(.*map/zarr.json"),
        (lambda place: shutil.rmtree(place / "map/c"), r"map is damaged \(it is not complete"),
        (
            lambda place: flip(next(p for p in (place / "map/c").rglob("*") if p.is_file())),
            r"map is damaged \(.*checksum",
        ),
        (lambda place: forget(place / "zarr.json", "mse"), r"r is damaged \('mse' is missing"),
    ],
    ids=["array", "chunk", "bit", "attribute"],
)
def test_damaged_results_are_told(tmp_path, damage, sentence):
    arrays = {"map": np.zeros((5, 2)), "history/epoch": np.arange(0)}
    write_result(tmp_path / "r", arrays, {"mse": 0.5})
    damage(tmp_path / "r")
    with pytest.raises(InputError, match=rf"{sentence}.*; restore it from a copy"):
        asked(tmp_path / "r")


def asked(place):
    arrays, attributes, _ = read_result(place)
    return arrays["map"], attributes["mse"]


def flip(file):
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)


def forget(file, name):
    described = json.loads(file.read_text())
    del described["attributes"][name]
    file.write_text(json.dumps(described))


@pytest.mark.parametrize("file", ["zarr.json", "dissimilarities/zarr.json"])
@pytest.mark.parametrize("content", ["", "{", None])
def test_torn_descriptions_are_told(store, file, content):
    place = Path(store.location, file)
    place.unlink() if content is None else place.write_text(content)
    with pytest.raises(InputError, match=r"d\.zarr is (damaged|not a Zarr store)"):
        open_rows(store.location)
    with pytest.raises(InputError):
        describe(store.location)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot be told")
def test_rows_that_are_not_at_hand_are_asked_for(tmp_path, monkeypatch):
    matrix, asked = distances(400), []
    array = zarr.create_array(str(tmp_path / "tall.zarr"), data=matrix, chunks=(400, 400), compressors=None)
    assert array.nbytes > 4 * ADVISED
    rows = open_rows(tmp_path / "tall.zarr")
    assert rows.direct
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *args: asked.append(args))
    monkeypatch.setattr("psmds_dist.data.store.chunkfile._is_at_hand", lambda file, offset: True)
    rows.prefetch(0, 400)
    assert asked == []
    monkeypatch.setattr("psmds_dist.data.store.chunkfile._is_at_hand", lambda file, offset: False)
    rows.prefetch(100, 300)
    assert all(how == os.POSIX_FADV_WILLNEED and count <= ADVISED for _, count, how in asked)
    assert asked[0][0] == 100 * 1600
    assert sum(count for _, count, _ in asked) == 200 * 1600
    assert [offset + count for offset, count, _ in asked[:-1]] == [offset for offset, _, _ in asked[1:]]
    next((tmp_path / "tall.zarr").glob("c/*/*")).unlink()
    rows.prefetch(0, 400)  # a read says that it is gone


def test_a_store_whose_protocol_nobody_speaks_here_is_told(monkeypatch):
    def unable(*_, **__):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(zarr, "open", unable)
    with pytest.raises(InputError, match=r"^s3://b/x.zarr cannot be reached from here: Install s3fs .* copy it to a"):
        open_rows("s3://b/x.zarr")


def anndata_like(path, zarr_format, features=4):
    """A group as AnnData writes it: features, names, an embedding, distances, and a sparse graph."""
    random = np.random.default_rng(0)
    x = random.normal(size=(N, features)).astype("float32")
    group = zarr.create_group(path, zarr_format=zarr_format, attributes={"encoding-type": "anndata"})
    group.create_array("X", data=x, chunks=(50, features))
    for name in ("obs", "var"):
        table = group.create_group(name, attributes={"encoding-type": "dataframe"})
        table.create_array("size", data=np.arange(N if name == "obs" else features))
    group.create_group("obsm").create_array("X_pca", data=x[:, :2], chunks=(50, 2))
    pairs = group.create_group("obsp")
    pairs.create_array("distances", data=squareform(pdist(x)), chunks=(50, N))
    graph = pairs.create_group("connectivities", attributes={"encoding-type": "csr_matrix"})
    for name in ("data", "indices", "indptr"):
        graph.create_array(name, data=np.arange(5))
    return x


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("features", [4, N])
def test_an_anndata_group_is_described_as_one_and_says_which_path_to_give(tmp_path, zarr_format, features):
    """Its X holds features, even where there are as many as points."""
    path = tmp_path / "cells.zarr"
    anndata_like(path, zarr_format, features)
    facts = describe(path)
    assert facts["kind"] == "AnnData group"
    assert facts["dissimilarities"] == [f"{path}/obsp/distances"]
    assert facts["points or panels"] == [f"{path}/X", f"{path}/obsm/X_pca"]
    assert facts["sparse, not read"] == [f"{path}/obsp/connectivities"]
    assert facts["arrays"]["X"] == f"{N} x {features} float32"
    assert not {"landmarks", "columns", "points"} & facts.keys()
    assert describe(facts["dissimilarities"][0])["points"] == N
    with pytest.raises(InputError, match=rf"is an AnnData group, whose X .*, such as {path}/obsp/distances\.$"):
        open_rows(path)
    assert open_rows(facts["dissimilarities"][0]).n == N
    with pytest.raises(InputError, match="is an AnnData group, whose X holds features and not a panel"):
        open_panel(path)
    assert open_table(path).shape == (N, features)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_group_of_several_arrays_is_described_by_their_paths(tmp_path, zarr_format):
    path = tmp_path / "g.zarr"
    group = zarr.create_group(path, zarr_format=zarr_format)
    group.create_array("one", data=distances(), chunks=(50, N))
    facts = describe(path)
    assert (facts["kind"], facts["points"]) == ("foreign Zarr array", N)  # it stands for the only one
    group.create_group("inner").create_array("two", data=distances(), chunks=(50, N))
    group.create_array("wide", data=distances()[:, :3], chunks=(50, 3))
    facts = describe(path)
    assert facts["kind"] == "foreign Zarr group"
    assert facts["dissimilarities"] == [f"{path}/inner/two", f"{path}/one"]
    assert facts["points or panels"] == [f"{path}/wide"]
    assert facts["sparse, not read"] == []
