"""Damage on disk, and disks that take no more: nothing wrong is read in silence, and nothing is lost."""

import json
import os
import resource
import tempfile
from contextlib import contextmanager

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform
from zarr.codecs import Crc32cCodec

from landmarks import LandmarkMDS
from landmarks.panel.build import build_panel
from landmarks.panel.data import Columns, MatrixData
from landmarks.panel.inputs import matrix_panel
from landmarks.panel.sources import points_panel, store_panel
from landmarks.panel.tables import array_panel
from psmds_dist import PatternSearchMDS, open_rows, read_result
from psmds_dist.api.compare import load
from psmds_dist.api.results import write_coordinates
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import BudgetError, InputCheck, InputError, StorageError
from psmds_dist.data.cache import RowCache
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import open_panel, open_table, require_result_place
from psmds_dist.data.store.integrity import digest
from psmds_dist.data.transforms import Symmetrized, ZeroDiagonal
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.ingest.passes import known_check
from tests.cli.commands import refused

N = 64
IDS = [f"p{k}" for k in range(N)]


@pytest.fixture
def matrix():
    return squareform(pdist(np.random.default_rng(5).normal(size=(N, 3)))).astype("f4")


@pytest.fixture
def store(tmp_path, matrix):
    build(ArrayRows(matrix), tmp_path / "d.zarr", InProcessExecutor(), ids=IDS)
    return tmp_path / "d.zarr"


def flip(path, byte, bit=3):
    """Flip a bit as a failing disk does, without a change of times."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextmanager
def small_files():
    """Files cannot grow beyond 100 bytes, as on a full disk; nor can the file that pytest may be writing to."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_flipped_bit_is_told_although_the_check_is_kept(store):
    assert known_check(open_rows(store), InputCheck) is not None
    flip(store / "dissimilarities" / "c.7.0", 77)
    assert known_check(open_rows(store), InputCheck) is not None  # nothing that a listing shows has changed
    for mds in (PatternSearchMDS(random_state=0), LandmarkMDS(n_landmarks=40, random_state=0, evaluate=False)):
        with pytest.raises(InputError, match="does not match its checksum"):
            mds.fit(str(store))


def test_checksums_are_tested_once(store, monkeypatch):
    from psmds_dist.data.store import chunkfile

    tested = []
    real = chunkfile.ChunkFile._verify
    monkeypatch.setattr(chunkfile.ChunkFile, "_verify", lambda *given: tested.append(1) or real(*given))
    rows = open_rows(store)
    budget = 10 * rows.layout.rows * N * 4  # streamed
    cache = RowCache(rows, budget)
    for _ in range(3):
        assert sum(batch.points.size for batch in cache.batches(range(rows.layout.count))) == N
    assert len(tested) == rows.layout.count


def test_an_edited_check_is_not_believed(store, matrix):
    expected = PatternSearchMDS(random_state=0).fit(matrix)
    place = store / "zarr.json"
    content = json.loads(place.read_text())
    header = content["attributes"]["psmds"]
    header["check"]["rms"] *= 1000
    place.write_text(json.dumps(content))
    assert known_check(open_rows(store), InputCheck) is None
    found = PatternSearchMDS(random_state=0).fit(str(store))
    assert np.array_equal(found.embedding_, expected.embedding_)
    assert known_check(open_rows(store), InputCheck).rms == pytest.approx(header["check"]["rms"] / 1000)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda header, content: header.update(metric="other"), "not as they were written"),
        (lambda header, content: header.pop("seal"), "not as they were written"),
        (lambda header, content: header.pop("arrays"), "'arrays' is missing"),
        (lambda header, content: header.update(status="complexe"), "is unfinished"),
        (lambda header, content: content["attributes"].pop("psmds"), "is part of a store of psmds"),
    ],
)
def test_a_changed_header_is_told(store, change, told):
    place = store / "zarr.json"
    content = json.loads(place.read_text())
    change(content["attributes"]["psmds"], content)
    place.write_text(json.dumps(content))
    with pytest.raises(InputError, match=told):
        open_rows(store)
    with pytest.raises(InputError, match=r"is damaged|is unfinished|part of a store"):
        open_rows(zarr.open_array(str(store / "dissimilarities")))


def test_changed_metadata_and_names_are_told(store):
    place = store / "dissimilarities" / "zarr.json"
    place.write_text(place.read_text().replace("NaN", "0.0"))
    with pytest.raises(InputError, match="not as they were written"):
        open_rows(store)


def test_attributes_that_a_user_adds_are_no_damage(store, tmp_path):
    PatternSearchMDS(random_state=0, max_epochs=3).fit(str(store)).save(tmp_path / "map.zarr")
    for path in (store / "dissimilarities", store / "ids", store, tmp_path / "map.zarr" / "embedding"):
        node = zarr.open(str(path), mode="r+")
        node.attrs["long_name"] = "UniFrac, März"
        node.attrs["psmds-of-mine"] = [1, None, {"a": 0.5}]
    rows = open_rows(store)
    assert rows.ids == IDS
    assert known_check(rows, InputCheck) is not None
    PatternSearchMDS(random_state=0, max_epochs=3).fit(str(store))
    assert read_result(tmp_path / "map.zarr").ids == IDS


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata.update(shape=[32, 64]),
        lambda metadata: metadata.update(fill_value=0.0),
        lambda metadata: metadata.update(data_type="int32"),
        lambda metadata: metadata["codecs"].pop(),
        lambda metadata: metadata["chunk_grid"]["configuration"].update(chunk_shape=[1, 64]),
    ],
)
def test_metadata_that_numbers_depend_on_are_sealed(store, change):
    place = store / "dissimilarities" / "zarr.json"
    metadata = json.loads(place.read_text())
    change(metadata)
    place.write_text(json.dumps(metadata))
    with pytest.raises(DamagedDataError, match="is damaged"):
        open_rows(store)


def test_a_store_with_one_of_the_first_seals_is_opened(store):
    """They covered the metadata files to the byte."""
    place = store / "zarr.json"
    content = json.loads(place.read_text())
    header = content["attributes"]["psmds"]
    own = {name: value for name, value in header.items() if name not in ("seal", "check", "checked")}
    files = [(store / name / "zarr.json").read_bytes().hex() for name in header["arrays"]]
    header["seal"] = digest(own, {}, files)
    place.write_text(json.dumps(content))
    assert open_rows(store).ids == IDS
    zarr.open_array(str(store / "ids"), mode="r+").attrs["mine"] = 1
    with pytest.raises(InputError, match="not as they were written"):
        open_rows(store)


def test_changed_names_are_told(store):
    group = zarr.open_group(str(store), mode="r+")
    group["ids"][3] = "someone else"
    with pytest.raises(DamagedDataError, match="ids is damaged"):
        PatternSearchMDS().fit(str(store))


def test_damaged_names_are_found_before_their_lengths_are_believed(store):
    chunk = store / "ids" / "c" / "0"
    content = chunk.read_bytes()
    for place in range(len(content)):
        chunk.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        with pytest.raises(DamagedDataError, match="ids is damaged .*checksum"):
            _ = open_rows(store).ids


def test_a_result_whose_place_takes_no_more_is_kept_elsewhere(tmp_path, matrix, monkeypatch):
    mds = PatternSearchMDS(random_state=0).fit(matrix)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def refuse_here(path, *given, real=os.rename):
        if "map.zarr" in str(path) and not str(path).endswith(".lock"):
            raise OSError(28, "No space left on device")
        real(path, *given)

    monkeypatch.setattr(os, "rename", refuse_here)
    with pytest.raises(
        StorageError, match=r"map.zarr cannot be written \(No space.*the result was saved in .*tmp/psmds-"
    ):
        mds.save(tmp_path / "map.zarr")
    (saved,) = (tmp_path / "tmp").glob("psmds-*")
    assert np.array_equal(read_result(saved).embedding, mds.embedding_)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tmp"]
    with small_files(), pytest.raises(StorageError, match="the result is lost; free some space"):
        mds.save(tmp_path / "map.zarr")


def test_too_little_room_is_told_before(tmp_path):
    with pytest.raises(StorageError, match="needs about .* but only .* are free"):
        require_result_place(tmp_path / "map", overwrite=False, nbytes=2**60)
    with pytest.raises(InputError, match="cannot be written"):
        require_result_place("/proc/map", overwrite=False)


@pytest.mark.parametrize("name", ["map.csv", "map.npy"])
def test_an_export_that_does_not_fit_leaves_what_was_there(tmp_path, name):
    place = tmp_path / name
    place.write_text("earlier")
    with small_files(), pytest.raises(StorageError, match="cannot be written: File too large"):
        write_coordinates(place, np.random.default_rng(0).random((500, 2)))
    assert place.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [place]


def test_export_to_what_is_no_file(tmp_path):
    (tmp_path / "full.npy").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="full.npy cannot be written: No space left on device"):
        write_coordinates(tmp_path / "full.npy", np.zeros((500, 2)))


def test_a_picture_that_does_not_fit_leaves_nothing(tmp_path):
    from psmds_dist.api.plot import save_map

    with small_files(), pytest.raises(StorageError, match=r"map.png cannot be written: File too large"):
        save_map(tmp_path / "map.png", np.zeros((5, 2)))
    assert not list(tmp_path.iterdir())


def test_a_pass_that_cannot_fit_is_refused(tmp_path, matrix):
    with pytest.raises(BudgetError, match="memory_limit is 1 B per process, but building a store of 64 points needs"):
        build(ArrayRows(matrix), tmp_path / "x", InProcessExecutor(), memory_limit=1)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("symmetrize", "mode"), [(False, "r"), (True, "r"), (False, "c")])
def test_a_mapped_array_that_is_written_to_during_a_run_is_told(tmp_path, matrix, symmetrize, mode):
    place = tmp_path / "m.npy"
    np.save(place, matrix)

    def write(event):
        if event.epoch == 2:
            with open(place, "r+b") as file:
                file.seek(-matrix.itemsize, os.SEEK_END)
                file.write(bytes(matrix.itemsize))  # as it was: the time tells

    mds = PatternSearchMDS(random_state=0, symmetrize=symmetrize, on_epoch=write)
    with pytest.raises(InputError, match="the matrix was written to while it was read"):
        mds.fit(np.load(place, mmap_mode=mode))
    assert mds.set_params(on_epoch=None).fit(np.load(place, mmap_mode=mode)).n_epochs_ > 2


@pytest.mark.parametrize("after", [os.remove, lambda place: os.replace(place.with_name("other.npy"), place)])
def test_a_mapped_array_outlives_the_name_of_its_file(tmp_path, matrix, after):
    for name in ("m.npy", "other.npy"):
        np.save(tmp_path / name, matrix)
    wanted = PatternSearchMDS(random_state=0).fit(matrix).embedding_
    mapped = np.load(tmp_path / "m.npy", mmap_mode="r")
    mds = PatternSearchMDS(
        random_state=0, on_epoch=lambda event: event.epoch == 2 and after(tmp_path / "m.npy") and None
    )
    np.testing.assert_array_equal(mds.fit(mapped).embedding_, wanted)
    os.remove(tmp_path / ("other.npy" if after is os.remove else "m.npy"))
    np.testing.assert_array_equal(PatternSearchMDS(random_state=0).fit(mapped).embedding_, wanted)


@pytest.mark.parametrize("kind", ["zarr", "npy"])
def test_a_matrix_that_is_written_to_during_a_run_is_told(tmp_path, matrix, kind):
    """Rows are read anew in every epoch where they do not fit: the map would be one of two matrices."""
    place = tmp_path / f"m.{kind}"

    def write(scale):
        if kind == "npy":
            np.save(place, scale * matrix)
        else:
            zarr.create_array(str(place), data=scale * matrix, overwrite=True)

    write(1)
    mds = PatternSearchMDS(
        random_state=0,
        checkpoint=tmp_path / "kept",
        on_epoch=lambda event: write(2) if event.epoch == 2 else None,
    )
    with pytest.raises(InputError, match=rf"{place} was written to while it was read"):
        mds.fit(place)
    assert not hasattr(mds, "embedding_")
    assert not (tmp_path / "kept").exists()
    assert PatternSearchMDS(random_state=0).fit(place).n_epochs_ > 2


def flip_pair(store, matrix, i, j):
    """Flip the same bit of an entry and of its mirror image, so that the matrix stays symmetric."""
    height = open_rows(store).array.chunks[0]
    for row, column in ((i, j), (j, i)):
        chunk, line = divmod(row, height)
        flip(store / "dissimilarities" / f"c.{chunk}.0", (line * len(matrix) + column) * 4 + 2)


COPIES = {
    "as it is": lambda rows: rows,
    "with a zero diagonal": ZeroDiagonal,
    "symmetrized": Symmetrized,
    "both": lambda rows: ZeroDiagonal(Symmetrized(rows)),
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_no_copy_of_a_damaged_store_gets_a_checksum(tmp_path, store, matrix, change):
    flip_pair(store, matrix, 3, 50)
    with pytest.raises(InputError, match="checksum"):
        build(change(open_rows(store)), tmp_path / "copy.zarr", InProcessExecutor())


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--zero-diagonal",), ("--symmetrize",), ("--workers", "1")])
@pytest.mark.wide
def test_ingest_refuses_a_damaged_store(tmp_path, store, matrix, options):
    flip_pair(store, matrix, 3, 50)
    assert "checksum" in refused("ingest", store, tmp_path / "copy.zarr", *options)


def test_panels_are_taken_out_of_what_matches_its_checksums(tmp_path, store, matrix):
    flip_pair(store, matrix, 3, 50)
    executor, rows = InProcessExecutor(), open_rows(store)
    columns = Columns(open_panel(damaged_panel(tmp_path, matrix)), np.arange(5), np.arange(5))
    for name, panel in {"rows": store_panel(rows, range(40)), "columns": columns}.items():
        with pytest.raises(InputError, match="does not match its checksum"):
            build_panel(panel, tmp_path / name, executor)
    for keep in (1 << 30, 0):  # in memory, and in a scratch store
        with (
            pytest.raises(InputError, match="does not match its checksum"),
            matrix_panel(store_panel(rows, range(40)), executor, memory_limit=1 << 30, keep=keep),
        ):
            pass


def damaged_panel(tmp_path, matrix):
    """A panel store in which a bit has flipped."""
    path = tmp_path / "damaged.zarr"
    build_panel(array_panel(matrix[:, :20], "float32", range(20)), path, InProcessExecutor())
    flip(path / "panel" / "c.0.0", 30)
    return path


def test_a_start_from_landmarks_reads_no_more_than_their_rows(store):
    data = MatrixData(open_rows(store))
    trusted, other = (kind.columns_of(np.arange(5)).verified().source for kind in (data.trusted(), data))
    assert not trusted.verify  # the solve tests all of the matrix
    assert other.verify


def test_points_and_comparisons_read_what_matches_its_checksums(tmp_path, store, matrix):
    points = zarr.create_array(
        str(tmp_path / "points.zarr"), shape=(N, 3), chunks=(1, 3), dtype="f8", compressors=[Crc32cCodec()]
    )
    points[:] = np.random.default_rng(0).normal(size=(N, 3))
    flip(tmp_path / "points.zarr" / "c" / "3" / "0", 6)
    with pytest.raises(InputError, match="does not match its checksum"):
        points_panel(open_table(tmp_path / "points.zarr"), range(5))
    flip_pair(store, matrix, 3, 50)
    with pytest.raises(InputError, match="does not match its checksum"):
        load(open_rows(store))
