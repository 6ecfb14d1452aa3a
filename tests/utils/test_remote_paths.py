"""Objects at URLs answer as `pathlib.Path` does."""

import hashlib
import os
import time
from contextlib import suppress

import pytest

from psmds_dist.utils.atomic import atomic_file, replace_unsynced
from psmds_dist.utils.remote import is_url
from psmds_dist.utils.remote_paths import RemotePath, path_of
from tests.servers import BUCKET, file_server, s3_server

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def s3():
    with s3_server():
        yield f"s3://{BUCKET}"


@pytest.fixture(params=["directory", "URL"])
def folder(request, tmp_path, s3):
    name = request.node.name.partition("[")[0]
    return path_of(tmp_path / name if request.param == "directory" else f"{s3}/{name}/")


def test_files_are_written_found_read_and_removed(folder):
    assert not folder.is_dir()
    folder.mkdir()
    for name in ("a.npz", ".b.npz", "c.txt"):
        with atomic_file(folder / name) as fresh:
            fresh.write_bytes(name.encode())
    replace_unsynced(folder / "c.txt", "other")
    assert folder.is_dir()
    assert not folder.exists() or not isinstance(folder, RemotePath)  # no object has the name of a directory
    assert sorted(path.name for path in folder.glob("*.npz")) == [".b.npz", "a.npz"]
    assert [path.name for path in folder.glob(".*.npz")] == [".b.npz"]
    with (folder / "c.txt").open("rb") as file:
        assert file.read(2) == b"ot"
        assert hashlib.file_digest(file, "sha256").digest() == hashlib.sha256(b"her").digest()
    assert (folder / "a.npz").parent == folder
    for path in list(folder.glob("*")):
        assert path.exists()
        path.unlink()
        path.unlink(missing_ok=True)
        assert not path.exists()
    with pytest.raises(FileNotFoundError):
        (folder / "a.npz").open("rb")
    folder.rmdir()
    assert not folder.is_dir()


def test_a_failed_write_leaves_what_was_there(folder):
    folder.mkdir()
    replace_unsynced(folder / "file", "earlier")
    with suppress(ZeroDivisionError), atomic_file(folder / "file") as fresh:
        fresh.write_text("later")
        raise ZeroDivisionError
    with (folder / "file").open("rb") as file:
        assert file.read() == b"earlier"
    assert [path.name for path in folder.glob("*")] == ["file"]


def test_the_time_of_a_write_is_known(s3):
    path = path_of(f"{s3}/time")
    path.write_bytes(b"x")
    assert path.modified() == pytest.approx(time.time(), abs=60)
    assert is_url(path)
    assert os.fspath(path) == str(path) == f"{s3}/time"


def test_a_large_file_is_uploaded_in_parts_and_read_back(s3):
    content = os.urandom(1 << 20) * 12
    path = path_of(f"{s3}/large")
    with atomic_file(path) as fresh:
        fresh.write_bytes(content)
    with path.open() as file:
        assert file.read() == content


@pytest.mark.parametrize("size", [0, 5, 20, 21, 1000])
def test_edges_are_those_of_the_newest_version(s3, size):
    folder = path_of(f"{s3}/edges-{size}")
    for content in (os.urandom(size), os.urandom(size)):
        (folder / "object").write_bytes(content)
        expected = content if size <= 20 else content[:10] + content[-10:]
        (listed,) = folder.glob("*")
        assert listed.edges(10) == listed.edges(10) == (folder / "object").edges(10) == expected


def test_nothing_is_listed_by_http(tmp_path):
    (tmp_path / "file").write_text("text")
    with file_server(tmp_path) as url:
        assert not path_of(url).is_dir()
        assert not (path_of(url) / "other").exists()
        with (path_of(url) / "file").open() as file:
            assert file.read() == b"text"
