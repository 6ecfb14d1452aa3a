"""Stores, foreign arrays and results in .zip archives, which are read where they lie."""

import shutil

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS, open_rows, read_result
from psmds_dist.cli.app import main
from psmds_dist.core.types import InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import describe
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build

N = 60
IDS = [f"p{k}" for k in range(N)]


@pytest.fixture(scope="module")
def matrix():
    return squareform(pdist(np.random.default_rng(5).normal(size=(N, 3)))).astype("f4")


@pytest.fixture
def archives(tmp_path, matrix):
    """A store of ours as people pack it, its files or its folder, and a foreign array."""
    build(ArrayRows(matrix), tmp_path / "d.zarr", InProcessExecutor(), ids=IDS)
    shutil.make_archive(tmp_path / "files", "zip", tmp_path / "d.zarr")
    shutil.make_archive(tmp_path / "folder", "zip", tmp_path, "d.zarr")
    with zarr.storage.ZipStore(tmp_path / "foreign.zip", mode="w") as store:
        zarr.create_array(store, data=matrix, chunks=(7, N))
    return tmp_path


def run(*arguments):
    ended = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


@pytest.mark.parametrize("name", ["files.zip", "folder.zip", "foreign.zip"])
def test_an_archive_is_read_like_the_store_in_it(archives, matrix, name):
    rows = open_rows(archives / name)
    found = np.empty((N, N), "f4")
    rows.read(0, N, found)
    np.testing.assert_array_equal(found, matrix)
    assert rows.location == str(archives / name)
    assert rows.ids == (None if name == "foreign.zip" else IDS)
    kind = "foreign Zarr array" if name == "foreign.zip" else "dissimilarities"
    assert describe(archives / name)["kind"] == kind
    expected = PatternSearchMDS(random_state=0).fit(matrix)
    map_ = PatternSearchMDS(random_state=0).fit(str(archives / name))
    np.testing.assert_array_equal(map_.embedding_, expected.embedding_)
    assert map_.ids_ == rows.ids
    through = [LandmarkMDS(n_landmarks=30, random_state=0).fit(given) for given in (matrix, str(archives / name))]
    np.testing.assert_array_equal(through[0].embedding_, through[1].embedding_)


@pytest.mark.parametrize("name", ["files.zip", "foreign.zip"])
def test_every_command_reads_an_archive(archives, name):
    source = archives / name
    for arguments in (
        ("info", source),
        ("plan", source),
        ("ingest", source, archives / "copy.zarr"),
        ("fit", source, archives / "map.zarr"),
        ("quality", archives / "map.zarr"),  # which finds the archive again
        ("landmarks", "fit", source, archives / "landmarks.zarr", "-S", 30),
        ("landmarks", "panel", source, archives / "panel.zarr", "-S", 30),
    ):
        ended = run(*arguments)
        assert ended.exit_code == 0, ended.output


@pytest.mark.wide
@pytest.mark.slow
def test_workers_read_an_archive(archives, matrix, client):
    found = PatternSearchMDS(random_state=0, cluster=client).fit(str(archives / "files.zip"))
    np.testing.assert_array_equal(found.embedding_, PatternSearchMDS(random_state=0).fit(matrix).embedding_)


def test_a_map_in_an_archive_is_read(archives, matrix):
    PatternSearchMDS(random_state=0).fit(str(archives / "d.zarr")).save(archives / "map.zarr")
    shutil.make_archive(archives / "map", "zip", archives / "map.zarr")
    kept, packed = (read_result(archives / name) for name in ("map.zarr", "map.zip"))
    np.testing.assert_array_equal(packed.embedding, kept.embedding)
    assert packed.ids == IDS


def test_one_of_several_arrays_in_an_archive_is_named_by_its_path(archives, matrix):
    with zarr.storage.ZipStore(archives / "two.zip", mode="w") as store:
        for name in ("a", "b"):
            zarr.create_array(store, name=name, data=matrix, chunks=(7, N))
    with pytest.raises(InputError, match="2 square 2-D arrays instead of one"):
        open_rows(archives / "two.zip")
    assert open_rows(archives / "two.zip" / "b").n == N
    shutil.copytree(archives / "d.zarr", archives / "both" / "one.zarr")
    shutil.copytree(archives / "d.zarr", archives / "both" / "other.zarr")
    shutil.make_archive(archives / "stores", "zip", archives / "both")
    with pytest.raises(InputError, match=r"2 Zarr stores instead of one; give the path of one, such as .*one\.zarr"):
        open_rows(archives / "stores.zip")
    assert open_rows(archives / "stores.zip" / "other.zarr").ids == IDS


def test_an_array_of_ours_in_an_archive_belongs_to_its_store(archives):
    store = zarr.storage.ZipStore(archives / "files.zip", mode="r")
    assert open_rows(zarr.open_array(store, path="dissimilarities", mode="r")).ids == IDS


@pytest.mark.parametrize("target", ["files.zip", "map.zip"])
def test_nothing_is_written_over_an_archive(archives, matrix, target):
    before = (archives / "files.zip").read_bytes()
    (archives / "map.zip").write_bytes(before)
    np.save(archives / "m.npy", matrix)
    for command in ("ingest", "fit"):
        ended = run(command, archives / "m.npy", archives / target, "--overwrite")
        assert ended.exit_code == 1
    assert (archives / target).read_bytes() == before


@pytest.mark.parametrize("place", ["a chunk", "the metadata", "the end"])
def test_a_damaged_archive_is_a_sentence(archives, place):
    content = bytearray((archives / "files.zip").read_bytes())
    if place == "the end":
        del content[-200:]
    else:
        name = b"dissimilarities/c.3.0" if place == "a chunk" else b"dissimilarities/zarr.json"
        content[content.index(name) + len(name) + 40] ^= 8
    (archives / "files.zip").write_bytes(content)
    ended = run("fit", archives / "files.zip", archives / "map.zarr")
    assert ended.exit_code == 1
    assert "damaged" in ended.output
