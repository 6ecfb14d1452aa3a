"""One live process writes to a place at a time, and a dead one is in nobody's way."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from click.testing import CliRunner

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.api.results import read_result
from psmds_dist.cli.app import main
from psmds_dist.core.errors import StorageError
from psmds_dist.utils.atomic import atomic_directory
from psmds_dist.utils.locks import exclusive_lock

OWNER = """
import sys
from psmds_dist.utils.locks import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print(flush=True)
    input()
"""
COUNTING = """
import sys
from pathlib import Path
from psmds_dist.core.errors import StorageError
from psmds_dist.utils.locks import exclusive_lock

done = 0
while done < 60:
    try:
        with exclusive_lock(sys.argv[1] + "/place") as certain:
            assert certain
            count = Path(sys.argv[1], "count")
            count.write_text(str(int(count.read_text()) + 1))
            done += 1
    except StorageError:
        pass
"""


@contextmanager
def another_owner(place):
    """A live process that owns a place."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_owner_is_named_and_leaves_nothing_when_killed(tmp_path):
    place = tmp_path / "map.zarr"
    with another_owner(place) as process:
        sentence = f"map.zarr is being written by process {process.pid} on {socket.gethostname()}; wait until"
        with pytest.raises(StorageError, match=sentence), exclusive_lock(place):
            raise AssertionError("locked twice")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with exclusive_lock(place) as certain:
            assert certain
    assert not list(tmp_path.iterdir())


def test_never_two_at_once(tmp_path):
    (tmp_path / "count").write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNTING, tmp_path]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "180"
    assert os.listdir(tmp_path) == ["count"]


def test_a_lock_is_not_taken_on_a_file_that_has_lost_its_name(tmp_path, monkeypatch):
    """Another process gives the place back between our opening of the file and our locking of it."""
    flock, file = fcntl.flock, tmp_path / ".map.lock"
    calls = []

    def late(handle, how):
        calls.append(handle)
        if len(calls) == 1:
            file.unlink()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with exclusive_lock(tmp_path / "map") as certain:
        assert certain
        assert file.read_text().splitlines()[0] == f"process {os.getpid()} on {socket.gethostname()}"
    assert len(calls) == 2


def test_a_thread_may_ask_again_and_another_may_not(tmp_path):
    (tmp_path / "link").symlink_to("map")
    refused = []

    def other():
        try:
            with exclusive_lock(tmp_path / "map"):
                pass
        except StorageError:
            refused.append(True)

    with exclusive_lock(tmp_path / "map"), exclusive_lock(tmp_path / "link") as certain:
        assert certain
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert refused == [True]
    other()
    assert refused == [True]


def test_folders_go_again_where_nothing_came_of_them(tmp_path):
    with exclusive_lock(tmp_path / "a/b/map"):
        assert (tmp_path / "a/b").is_dir()
    assert not list(tmp_path.iterdir())
    with exclusive_lock(tmp_path / "a/b/map"):
        (tmp_path / "a/file").touch()
    assert os.listdir(tmp_path / "a") == ["file"]


@pytest.mark.parametrize("missing", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF])
def test_without_locks_all_goes_on_but_nothing_is_swept(tmp_path, monkeypatch, missing):
    def none(handle, how):
        raise OSError(missing, os.strerror(missing))

    monkeypatch.setattr(fcntl, "flock", none)
    left = tmp_path / ".map.new-0123456789ab"
    left.mkdir()
    with exclusive_lock(tmp_path / "map") as certain:
        assert not certain
    with atomic_directory(tmp_path / "map") as fresh:
        fresh.mkdir()
    assert sorted(os.listdir(tmp_path)) == [left.name, "map"]


def test_what_another_user_has_made_can_be_locked(tmp_path, monkeypatch):
    """The lock file of another user can be read only."""
    file, real = tmp_path / ".map.lock", os.open
    file.touch()

    def refusing(path, flags, *more):
        if path == file and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *more)

    with another_owner(tmp_path / "map"):
        monkeypatch.setattr(os, "open", refusing)
        with pytest.raises(StorageError, match="is being written by"), exclusive_lock(tmp_path / "map"):
            raise AssertionError("locked twice")


# --- commands and estimators ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locks")
    np.save(folder / "points.npy", np.random.default_rng(0).random((60, 5)))
    assert CliRunner().invoke(main, ["distances", f"{folder}/points.npy", f"{folder}/d.zarr", "-q"]).exit_code == 0
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "distances points.npy",
        "ingest d.zarr",
        "fit d.zarr",
        "fit d.zarr --resume",
        "landmarks fit d.zarr -S 20",
        "landmarks panel d.zarr -S 20",
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_second_live_command_is_refused_at_its_start(data, tmp_path, monkeypatch, command, there):
    monkeypatch.chdir(data)
    target = tmp_path / "target"
    words = [*command.split(), str(target), "-q"]
    if there:
        assert CliRunner().invoke(main, words).exit_code == 0
        words.append("--overwrite")
    with another_owner(target) as process:
        before = sorted(tmp_path.rglob("*"))
        refused = CliRunner().invoke(main, words)
        assert sorted(tmp_path.rglob("*")) == before
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"Error: {target} is being written by process {process.pid} on")
    assert CliRunner().invoke(main, words).exit_code == 0
    assert os.listdir(tmp_path) == ["target"]


@pytest.mark.parametrize("make", [PatternSearchMDS, LandmarkMDS])
def test_a_checkpoint_is_kept_by_one_live_run(data, tmp_path, make):
    with another_owner(tmp_path / "kept"), pytest.raises(StorageError, match="kept is being written by process"):
        make(checkpoint=tmp_path / "kept", resume=True).fit(data / "d.zarr")
    make(checkpoint=tmp_path / "kept", resume=True).fit(data / "d.zarr")
    assert not list(tmp_path.iterdir())


def test_a_map_is_saved_elsewhere_while_another_process_writes(data, tmp_path, monkeypatch):
    mds = PatternSearchMDS(random_state=0).fit(data / "d.zarr")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with another_owner(tmp_path / "map"), pytest.raises(StorageError, match="being written by .* result was saved in"):
        mds.save(tmp_path / "map")
    (saved,) = (tmp_path / "tmp").iterdir()
    np.testing.assert_array_equal(read_result(saved).embedding, mds.embedding_)


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_of_somebody_else_with_the_name_of_a_lock_stays(tmp_path, linked):
    mine = tmp_path / "mine.txt"
    lock = tmp_path / ".map.zarr.lock"
    mine.write_text("notes")
    if linked:
        lock.symlink_to(mine)
    else:
        lock.write_text("notes")
    with exclusive_lock(tmp_path / "map.zarr") as certain:
        assert not certain
    assert lock.read_text() == mine.read_text() == "notes"
    assert lock.is_symlink() == linked


def test_nobody_owns_the_root():
    with exclusive_lock("/") as certain:
        assert not certain
