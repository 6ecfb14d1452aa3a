"""Who owns a path when locks do not reach, and that the one who lost it does no harm."""

import errno
import fcntl
import itertools
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from psmds_dist.api.results import read_result
from psmds_dist.core.errors import InputError, OwnershipLost, StorageError
from psmds_dist.data.store import create, is_unfinished, write_result
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.solver.progress import read_progress, recorder_of
from psmds_dist.utils import lease, locks
from psmds_dist.utils.atomic import atomic_directory
from psmds_dist.utils.lease import Owner, job_of, owner_of
from psmds_dist.utils.locks import claim_on, exclusive_lock, require_owner
from tests.cli.commands import run
from tests.clusters import STOPPING, wait_for


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks, such as NFS without lockd."""

    def flock(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.fixture
def quick(monkeypatch):
    """A lease that ends within a second."""
    monkeypatch.setattr(lease, "INTERVAL", 0.05)
    monkeypatch.setattr(lease, "LEASE", 0.6)


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME", "PSMDS_JOB", "PSMDS_RESTART"):
        monkeypatch.delenv(name, raising=False)


def lost(by):
    """The error of a process that has lost a path."""
    return pytest.raises(OwnershipLost, match=f"was taken over by {by}")


def refused(owner):
    """The error where a path has a live owner."""
    return pytest.raises(StorageError, match=f"is being written by {owner}")


# --- the lock file ----------------------------------------------------------------------------------------------


def test_an_owner_is_read_as_it_was_written(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    owner = Owner.current()
    assert Owner.parse(owner.header() + b"heartbeat 000000000003 now\n") == owner
    assert str(owner) == f"{owner.name} (job 17, restart 0)"


@pytest.mark.parametrize("rest", [b"", b"\n", b'\n{"token": 1', b"\n[]\n", b'\n{"unknown": 1}\n', b"\n\xff\n"])
def test_of_a_lock_file_that_is_not_whole_the_name_is_read(rest):
    assert Owner.parse(b"process 5 on here" + rest) == Owner(name="process 5 on here")


def test_tokens_only_grow():
    first = Owner.current()
    assert abs(first.token - time.time()) < 5
    ahead = Owner(token=first.token + 10**6)  # of a machine whose clock is fast
    assert Owner.current(ahead).token == ahead.token + 1
    assert Owner.current(first).token > first.token


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("", 0)),
        ({"SLURM_JOB_ID": "17"}, ("17", 0)),
        ({"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "big", "SLURM_RESTART_COUNT": "2"}, ("17 of big", 2)),
        ({"SLURM_JOB_ID": "17", "PSMDS_JOB": "chain", "PSMDS_RESTART": "3"}, ("chain", 3)),
    ],
)
def test_a_job_is_known_by_its_environment(environment, expected):
    assert job_of(environment) == expected


def test_a_number_of_restarts_that_is_none_is_refused():
    with pytest.raises(InputError, match="PSMDS_RESTART must be a whole number of restarts, not 'two'"):
        job_of({"PSMDS_JOB": "chain", "PSMDS_RESTART": "two"})


def test_only_a_later_restart_of_the_same_job_replaces():
    first = Owner(job="17", restart=1)
    assert Owner(job="17", restart=2).replaces(first)
    for other in (Owner(job="17", restart=1), Owner(job="17"), Owner(job="18", restart=5), Owner(restart=9)):
        assert not other.replaces(first)
    assert not Owner(restart=1).replaces(Owner())


# --- heartbeats -------------------------------------------------------------------------------------------------


def heartbeats(file):
    *_, last = file.read_text().splitlines()
    return int(last.split()[1])


def test_an_owner_shows_that_it_lives_until_the_block_ends(tmp_path, quick):
    file = tmp_path / ".map.lock"
    before = threading.active_count()
    with exclusive_lock(tmp_path / "map"):
        owner = owner_of(tmp_path / "map")
        wait_for(lambda: heartbeats(file) >= 2)
        assert owner_of(tmp_path / "map") == owner == claim_on(tmp_path / "map/deeper").owner
    wait_for(lambda: threading.active_count() == before)
    assert not list(tmp_path.iterdir())
    assert owner_of(tmp_path / "map") is None


def test_a_lock_file_that_is_gone_is_not_made_again(tmp_path, quick):
    file = tmp_path / ".map.lock"
    before = threading.active_count()
    with lost("another process, which has ended since"), exclusive_lock(tmp_path / "map"):
        file.unlink()
        wait_for(lambda: threading.active_count() == before)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_reached_is_not_lost(tmp_path):
    (tmp_path / "share").mkdir()
    with exclusive_lock(tmp_path / "share/map"):
        (tmp_path / "share").rename(tmp_path / "unmounted")
        require_owner(tmp_path / "share/map")
        (tmp_path / "unmounted").rename(tmp_path / "share")


def test_a_forked_child_gives_nothing_up(tmp_path):
    with exclusive_lock(tmp_path / "map"):
        code = (
            "import os, sys; from psmds_dist.utils.locks import exclusive_lock\n"
            "with exclusive_lock(sys.argv[1]):\n"
            "    pid = os.fork()\n"
            "    if pid: os.waitpid(pid, 0); assert os.path.exists(sys.argv[2])\n"
        )
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, tmp_path / "other", tmp_path / ".other.lock"], check=True
        )


def left_by(place, **facts):
    """Lock file of an owner on another machine that has ended without giving the path up."""
    owner = Owner(**{"name": "process 5 on far", "token": 4, "kernel": "another", "key": "5", **facts})
    file = place.with_name(f".{place.name}.lock")
    file.write_bytes(owner.header() + b"heartbeat 000000000001 then\n")
    return file


def test_an_owner_on_another_machine_is_waited_for_and_then_replaced(tmp_path, quick, caplog):
    left_by(tmp_path / "map")
    began = time.monotonic()
    with exclusive_lock(tmp_path / "map") as certain:
        assert certain
        assert time.monotonic() - began >= lease.LEASE
    waiting, taken = (record.message for record in caplog.records)
    assert "map may be in use by process 5 on far; waiting up to 1 s for a sign of life" in waiting
    assert "process 5 on far showed no sign of life" in taken
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("locks_work", [True, False])
def test_an_owner_on_another_machine_that_shows_life_keeps_its_path(tmp_path, quick, request, locks_work):
    if not locks_work:
        request.getfixturevalue("no_locks")
    file = left_by(tmp_path / "map")
    ended = threading.Event()

    def beat():
        for count in itertools.count(2):
            with file.open("r+b") as record:  # in place, as an owner writes it
                record.seek(-24, os.SEEK_END)
                record.write(f"{count:012d} later.....\n".encode())
            if ended.wait(0.1):
                return

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with refused("process 5 on far"), exclusive_lock(tmp_path / "map"):
            raise AssertionError("taken")
    finally:
        ended.set()
        thread.join()
    assert os.listdir(tmp_path) == [".map.lock"]


def test_a_path_that_is_given_up_while_waiting_is_taken_at_once(tmp_path, quick, monkeypatch):
    monkeypatch.setattr(lease, "LEASE", 600)
    monkeypatch.setattr(lease, "shows_life", lambda file: file.unlink() is None)
    left_by(tmp_path / "map")
    with exclusive_lock(tmp_path / "map"):
        assert owner_of(tmp_path / "map").kernel == lease._kernel()


def test_a_killed_process_of_this_machine_is_not_waited_for(tmp_path):
    left_by(tmp_path / "map", kernel=lease._kernel(), token=2 * 10**9)
    with exclusive_lock(tmp_path / "map") as certain:
        assert certain
        assert owner_of(tmp_path / "map").token == 2 * 10**9 + 1


def test_where_the_lock_file_cannot_be_replaced_the_lock_must_do(tmp_path, quick, monkeypatch):
    def refuse(*given):
        raise PermissionError(errno.EACCES, "Permission denied")

    file = left_by(tmp_path / "map", job="17")
    monkeypatch.setattr(os, "replace", refuse)
    with exclusive_lock(tmp_path / "map") as certain:
        assert certain
        assert claim_on(tmp_path / "map") is None
    file = left_by(tmp_path / "map", job="17")
    monkeypatch.setenv("PSMDS_JOB", "17")
    monkeypatch.setenv("PSMDS_RESTART", "1")
    with file.open() as other, refused("process 5 on far"):
        fcntl.flock(other, fcntl.LOCK_EX)
        with exclusive_lock(tmp_path / "map"):
            raise AssertionError("taken")


# --- two processes ----------------------------------------------------------------------------------------------

PRELUDE = """
import errno, fcntl, os, signal, sys
from psmds_dist.utils import lease

def flock(handle, how):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

if os.environ.get("NO_LOCKS"):
    fcntl.flock = flock
lease.INTERVAL, lease.LEASE = 0.2, 2.0
"""

OWNER = """
from psmds_dist.core.errors import OwnershipLost
from psmds_dist.utils.locks import exclusive_lock
try:
    with exclusive_lock(sys.argv[1]):
        print("owner", flush=True)
        input()
except OwnershipLost as lost:
    print(lost, flush=True)
"""


@contextmanager
def another_owner(place, **environment):
    """A process that owns a path, until a line is sent to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + OWNER, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout.readline() == "owner\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_later_restart_of_a_job_takes_over_from_a_process_that_holds_the_lock(tmp_path, monkeypatch, caplog):
    place = tmp_path / "map"
    with another_owner(place, SLURM_JOB_ID="17") as old:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        with refused(r"process \d+ on .* \(job 17, restart 0\)"), exclusive_lock(place):
            raise AssertionError("taken without a restart")
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        before = owner_of(place)
        with exclusive_lock(place) as certain:
            assert certain
            assert owner_of(place).token > before.token
            said, _ = old.communicate("\n")
            require_owner(place)  # what the old owner cleans up is its own
        assert f"{place} was taken over by process {os.getpid()} on" in said
        assert "(job 17, restart 1), because" in said
    assert "this is a later restart of its job" in caplog.text
    assert not list(tmp_path.iterdir())


def test_without_locks_a_live_owner_keeps_its_path(tmp_path, no_locks, monkeypatch):
    monkeypatch.setattr(lease, "LEASE", 60)
    with (
        another_owner(tmp_path / "map", NO_LOCKS="1") as owner,
        refused(f"process {owner.pid} on"),
        exclusive_lock(tmp_path / "map"),
    ):
        raise AssertionError("taken")


def test_without_locks_a_stopped_owner_is_replaced_and_ends(tmp_path, no_locks, quick):
    with another_owner(tmp_path / "map", NO_LOCKS="1") as owner:
        owner.send_signal(signal.SIGSTOP)
        with exclusive_lock(tmp_path / "map") as certain:
            assert not certain
            owner.send_signal(signal.SIGCONT)
            said, _ = owner.communicate("\n")
            assert "was taken over by" in said
            require_owner(tmp_path / "map")
    assert not list(tmp_path.iterdir())


# --- every moment at which an owner may be stopped ----------------------------------------------------------------

CALLS = ("open", "rename", "replace", "unlink", "mkdir", "rmdir", "stat", "link", "truncate", "pwrite", "scandir")
"""Functions of ``os`` before which a process is stopped."""


class Machine:
    """A process with its own environment, simulated in this one: what runs on it holds locks of its own."""

    def __init__(self, restart):
        self.restart = restart
        self.held = {}

    @contextmanager
    def __call__(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(locks, "_HELD", self.held)
            patch.setenv("SLURM_JOB_ID", "17")
            patch.setenv("SLURM_RESTART_COUNT", str(self.restart))
            yield


@contextmanager
def stopped_before(number, act):
    """Call ``act`` before one of the calls of ``os`` in the block; yields the list of all that were made."""
    made, acting = [], []

    def counted(name, function):
        def call(*given, **named):
            if threading.current_thread() is threading.main_thread() and not acting:
                made.append(name)
                if len(made) == number:
                    acting.append(name)
                    act()
                    acting.clear()
            return function(*given, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:  # all the time: shutil compares functions of os by identity
        for name in CALLS:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield made


@pytest.fixture
def swift(monkeypatch):
    monkeypatch.setattr(lease, "PAUSE", 0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@contextmanager
def writing(place, content):
    """A command that owns its target until it has written it: a directory with the content twice."""
    with exclusive_lock(place), atomic_directory(place) as fresh:
        fresh.mkdir()
        (fresh / "zarr.json").touch()
        (fresh / "one").write_text(content)
        yield
        (fresh / "two").write_text(content)


def read(place):
    """First part of the content of a directory; None without one."""
    return (place / "one").read_text() if place.exists() else None


def every_moment(tmp_path, run):
    """Run a scenario, stopped before the first call, the second, ..., until it is stopped no more."""
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        if run(folder, number) < number:
            return number
        shutil.rmtree(folder)
    return None


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_owner_stopped_at_any_moment_leaves_one_whole_map_of_its_successor(tmp_path, swift, at_once, earlier):
    """The successor writes while the other one is stopped, or begins then and writes when the other one has ended."""

    def run(folder, number):
        old, new = Machine(0), Machine(1)
        place = folder / "map"
        if earlier:
            place.mkdir()
            (place / "one").write_text("earlier")
            (place / "zarr.json").touch()
        second = writing(place, "new")
        seen = []

        def take_over():
            with new():
                second.__enter__()
                if at_once:
                    second.__exit__(None, None, None)
            seen.append(read(place))

        noticed = False
        with old():
            first = writing(place, "old")
            first.__enter__()
            with stopped_before(number, take_over) as made:
                try:
                    first.__exit__(None, None, None)
                except OwnershipLost:
                    noticed = True
        # the loser puts nothing there after that; it may put back what was there before
        assert not seen or read(place) in (seen[0], "earlier" if earlier else None), (number, made)
        if seen and not at_once:
            with new():
                second.__exit__(None, None, None)
        winner = "new" if len(made) >= number else "old"
        assert [(place / name).read_text() for name in ("one", "two")] == [winner, winner], (number, made)
        assert os.listdir(folder) == ["map"], (number, made[number - 1])
        assert not noticed or winner == "new"
        return len(made)

    assert every_moment(tmp_path, run) > 15  # versions of Python differ in their calls


def test_a_successor_stopped_at_any_moment_leaves_one_whole_map(tmp_path, swift):
    """The old owner, which is alive, writes its map or finds out that it lost while the successor is stopped."""

    def run(folder, number):
        old, new = Machine(0), Machine(1)
        place = folder / "map"
        with old():
            first = writing(place, "old")
            first.__enter__()

        def end():
            with old(), suppress(OwnershipLost):
                first.__exit__(None, None, None)

        with new(), stopped_before(number, end) as made, writing(place, "new"):
            pass
        if len(made) < number:
            end()
        assert [(place / name).read_text() for name in ("one", "two")] == ["new", "new"], (number, made)
        assert os.listdir(folder) == ["map"], (number, made)
        return len(made)

    assert every_moment(tmp_path, run) > 15  # versions of Python differ in their calls


class Run:
    """A run that saves its states in a directory, each with a number and its name."""

    def __init__(self, folder, name, identity, overwrite=False):
        self.said = []
        self.name = name
        self.folder = folder
        self.options = {"resume": True, "overwrite": overwrite, "every": 0.0, "say": self.said.append}
        self.identity = identity

    @contextmanager
    def __call__(self):
        with exclusive_lock(self.folder):
            self.store = DirectoryCheckpoint(self.folder, **self.options)
            self.store.attach(self.identity)
            self.stream = self.store.stream("solve")
            state = self.stream.last()
            self.last = 0 if state is None else int(state["number"])
            yield self

    def save(self, states):
        for _ in range(states):
            self.last += 1
            self.stream.save(self.last, lambda: {"number": self.last, "name": np.array(self.name)})


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_owner_stopped_at_any_moment_spoils_no_checkpoint(tmp_path, swift, at_once, anew, ends):
    """The successor goes on with the run or starts another; the old owner saves, and removes all states at its end."""

    def run(folder, number):
        old, new = Machine(0), Machine(1)
        place = folder / "kept"
        one = Run(place, "old", {"run": 1})
        other = Run(place, "new", {"run": 2 if anew else 1}, overwrite=anew)
        second = other()

        def go_on():
            other.save(3)
            second.__exit__(None, None, None)

        def take_over():
            with new():
                second.__enter__()
                if at_once:
                    go_on()

        with old():
            first = one()
            first.__enter__()
            one.save(2)
            with stopped_before(number, take_over) as made, suppress(OwnershipLost):
                try:
                    one.save(2)
                    if ends:
                        one.store.remove()
                finally:
                    first.__exit__(None, None, None)
        if len(made) < number:
            return len(made)
        if not at_once:
            with new():
                go_on()
        with Machine(2)(), Run(place, "last", other.identity)() as last:
            state = last.stream.last()
            assert (int(state["number"]), str(state["name"])) == (other.last, "new"), (number, made)
            last.store.remove()
        assert not os.listdir(folder), (number, made)
        assert one.said + other.said + last.said == []
        return len(made)

    assert every_moment(tmp_path, run) > 15  # versions of Python differ in their calls


# --- what a loser does elsewhere --------------------------------------------------------------------------------


def replaced(place):
    """Replace the lock file of a path by that of a later owner."""
    return left_by(place, token=2 * 10**9, name="process 6 on near")


def test_tasks_in_other_processes_write_no_chunks_for_a_run_that_lost_its_store(tmp_path):
    rows = np.zeros((5, 5), np.float32)
    with lost("process 6 on near"), exclusive_lock(tmp_path / "d.zarr"):
        target = create(tmp_path / "d.zarr", 5)
        sent = pickle.loads(pickle.dumps(target))
        sent.write(0, rows[:1])
        replaced(tmp_path / "d.zarr")
        with lost("process 6 on near"):
            sent.write(1, rows[:1])
        with lost("process 6 on near"):
            target.finish({})
        with lost("process 6 on near"):
            target.discard()
        assert sent.has(0)
        assert not sent.has(1)
    assert is_unfinished(tmp_path / "d.zarr")


def test_a_map_is_saved_nowhere_else_by_a_run_that_lost_its_target(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with lost("process 6 on near"), exclusive_lock(tmp_path / "map"):
        replaced(tmp_path / "map")
        write_result(tmp_path / "map", {"x": np.zeros(3)}, {})
    assert sorted(os.listdir(tmp_path)) == [".map.lock", "tmp"]
    assert not os.listdir(tmp_path / "tmp")


def test_progress_of_a_run_that_lost_its_checkpoint_is_not_written(tmp_path):
    folder = tmp_path / "kept"
    with lost("process 6 on near"), exclusive_lock(folder):
        checkpoint = DirectoryCheckpoint(folder, resume=True)
        with recorder_of(checkpoint, lambda: None).recording():
            wait_for(lambda: read_progress(folder) is not None)
            replaced(folder)
            time.sleep(0.2)  # for a write that has just begun
            shutil.rmtree(folder)  # as the new owner does when it has ended
    assert os.listdir(tmp_path) == [".kept.lock"]


def test_whatever_ends_a_block_a_loss_is_what_is_reported(tmp_path):
    with lost("process 6 on near"), exclusive_lock(tmp_path / "map"):
        replaced(tmp_path / "map")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == [".map.lock"]


# --- a fit that is stopped --------------------------------------------------------------------------------------


OPTIONS = ["--init", "random", "--radius-tol", "0.05", "--starts", "1", "--no-polish", "--resume", "-q"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A matrix, and the map of a run without disturbances."""
    folder = tmp_path_factory.mktemp("plain")
    points = np.random.default_rng(0).normal(size=(300, 5))
    np.save(folder / "matrix.npy", np.linalg.norm(points[:, None] - points, axis=2).astype("float32"))
    run("fit", folder / "matrix.npy", folder / "map.zarr", *OPTIONS)
    return folder


@pytest.mark.wide  # as the tests above, with processes
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["state", "map"])
def test_a_fit_that_was_stopped_writes_nothing_after_another_took_it_over(plain, tmp_path, moment):
    """Without locks, and stopped between its last look at the lock file and the renaming of what it has written."""
    waiting = tmp_path / "waiting"
    target = tmp_path / "out/map.zarr"
    arguments = [waiting, "fit", plain / "matrix.npy", target, *OPTIONS]
    how = {"env": {**os.environ, "NO_LOCKS": "1"}, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen([*STOPPING, moment, *arguments], **how)
    try:
        wait_for(lambda: waiting.exists() or first.poll() is not None, 120)
        first.send_signal(signal.SIGSTOP)
        second = subprocess.run([*STOPPING, "never", *arguments], **how, check=False)
        assert second.returncode == 0, second.stderr
        assert f"may be in use by process {first.pid} on" in second.stderr
        waiting.unlink()
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=60)
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == 1, said
    assert re.fullmatch(r"Error: .*/map.zarr(\.checkpoint)? was taken over by another process, which .*\n", said)
    assert os.listdir(tmp_path / "out") == ["map.zarr"]
    found, expected = read_result(target), read_result(plain / "map.zarr")
    np.testing.assert_array_equal(found.raw_embedding, expected.raw_embedding)
    np.testing.assert_array_equal(found.embedding, expected.embedding)
