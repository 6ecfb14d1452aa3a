"""The file that says where a run stands."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, PatternSearchMDS
from psmds_dist.core.errors import DamagedDataError, WorkerError
from psmds_dist.core.events import EpochEvent, StageEvent
from psmds_dist.core.executor import ClusterState
from psmds_dist.core.types import StopReason
from psmds_dist.solver import progress
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, DirectoryCheckpoint
from psmds_dist.solver.progress import NO_RECORDER, Progress, Recorder, read_progress, recorder_of

EPOCH = EpochEvent(7, 0.5, 2.0, 14.0, 0.25, 0.125, stress=0.3)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    monkeypatch.setattr(progress, "OVERHEAD", 1.0)


@pytest.fixture
def checkpoint(tmp_path):
    return DirectoryCheckpoint(tmp_path / "run", every=0)


def recorder(checkpoint, cluster=None):
    return Recorder(checkpoint, lambda: cluster)


def wait_for(condition):
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def ended(record, error, act=lambda: None):
    """Let a run act and end with an error."""
    with contextlib.suppress(type(error)), record.recording():
        act()
        raise error


def states(checkpoint):
    checkpoint.attach({"configuration": {"seed": 0}})
    checkpoint.stream("solve").save(0, lambda: {"x": np.zeros(2)}, now=True)


def test_it_tells_process_stage_and_epoch(checkpoint, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1234")
    record = recorder(checkpoint, ClusterState(3, 1, 4096, "http://127.0.0.1:8787/status"))
    before = time.time()
    with record.recording():
        first = wait_for(lambda: read_progress(checkpoint.folder))
        record(StageEvent("epochs", 1, 4))
        record(EPOCH)
        wait_for(lambda: read_progress(checkpoint.folder).epoch)
        found = read_progress(checkpoint.folder)
    assert (first.pid, first.job, first.stage, first.restarts) == (os.getpid(), "Slurm 1234", "start", 0)
    assert before <= first.started == first.session_started <= first.updated <= found.updated
    assert (found.state, found.stage, found.done, found.total, found.at_least) == ("running", "epochs", 1, 4, True)
    assert (found.epoch, found.radius, found.end_radius, found.stress, found.moved) == (7, 0.5, 0.125, 0.3, 0.25)
    assert found.seconds_left > 0
    assert (found.workers, found.workers_lost, found.bytes_read) == (3, 1, 4096)
    assert found.dashboard == "http://127.0.0.1:8787/status"


def test_the_end_is_written(checkpoint):
    record = recorder(checkpoint)
    with record.recording():
        record(EPOCH)
        record.end(StopReason.RADIUS)
    found = read_progress(checkpoint.folder)
    assert (found.state, found.reason, found.epoch, found.seconds_left) == ("ended", "radius_tol", 7, None)
    assert threading.active_count() == 1 or "psmds-progress" not in {thread.name for thread in threading.enumerate()}


def test_it_is_written_at_most_once_in_an_interval(checkpoint, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 3600.0)
    written, record = [], recorder(checkpoint)
    monkeypatch.setattr(record, "_replace_by", written.append)
    with record.recording():
        for _ in range(1000):
            record(EPOCH)
    assert len(written) == 2  # start and end


def test_it_is_written_while_nothing_happens(checkpoint, monkeypatch):
    monkeypatch.setattr(progress, "HEARTBEAT", 0.02)
    with recorder(checkpoint).recording():
        first = wait_for(lambda: read_progress(checkpoint.folder))
        wait_for(lambda: read_progress(checkpoint.folder).updated > first.updated)


def test_the_time_left_of_a_stage_is_proportional(checkpoint, monkeypatch):
    record = recorder(checkpoint)
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    record(StageEvent("placement", 10, 40))
    assert record._progress.seconds_left is None
    clock[0] += 8
    record(StageEvent("placement", 20, 40))
    assert record._progress.seconds_left == pytest.approx(16)  # 10 parts in 8 s, 20 to go
    record(StageEvent("evaluation", last=True))
    assert (record._progress.seconds_left, record._progress.at_least) == (None, False)
    assert (record._progress.done, record._progress.total) == (None, None)


def test_a_resumed_run_counts_its_restarts_and_keeps_its_beginning(checkpoint):
    states(checkpoint)
    started = []
    for restarts in range(3):
        record = recorder(DirectoryCheckpoint(checkpoint.folder, resume=True))
        ended(record, KeyboardInterrupt(), partial(record, EPOCH) if not restarts else lambda: None)
        found = read_progress(checkpoint.folder)
        started.append(found.started)
        assert (found.restarts, found.started, found.epoch) == (restarts + 1, started[0], 7)
        assert (found.state, found.reason) == ("ended", "interrupted")


def test_a_run_that_replaces_another_starts_anew(checkpoint):
    states(checkpoint)
    record = recorder(DirectoryCheckpoint(checkpoint.folder, overwrite=True))
    with record.recording():
        assert wait_for(lambda: read_progress(checkpoint.folder)).restarts == 0


def test_nothing_is_left_of_a_run_that_saved_nothing(checkpoint):
    ended(recorder(checkpoint), InputError("no"), lambda: wait_for(lambda: read_progress(checkpoint.folder)))
    assert not checkpoint.folder.exists()


def test_an_error_is_told_where_there_is_something_to_continue(checkpoint):
    ended(recorder(checkpoint), WorkerError("the cluster is gone."), partial(states, checkpoint))
    found = read_progress(checkpoint.folder)
    assert (found.state, found.reason, found.message) == ("ended", "error", "the cluster is gone.")


def test_a_refused_run_leaves_the_file_of_the_unfinished_one(checkpoint):
    states(checkpoint)
    with recorder(checkpoint).recording():
        pass
    before = read_progress(checkpoint.folder)
    again = recorder(DirectoryCheckpoint(checkpoint.folder, resume=True))
    ended(again, InputError("another run"), lambda: wait_for(lambda: read_progress(checkpoint.folder) != before))
    assert read_progress(checkpoint.folder) == before


def test_files_of_others_stay(checkpoint):
    checkpoint.folder.mkdir()
    own = checkpoint.folder / "progress.json"
    own.write_text('{"done": 1}')
    other = checkpoint.folder / ".0123456789ab-progress.json"
    other.write_text("notes")
    record = recorder(checkpoint)
    with record.recording():
        record(EPOCH)
    checkpoint.remove()
    assert (own.read_text(), other.read_text()) == ('{"done": 1}', "notes")


def test_removal_takes_leftovers_of_killed_processes(checkpoint):
    with recorder(checkpoint).recording():
        pass
    text = (checkpoint.folder / "progress.json").read_text()
    for leftover in ("", text[:40], text):
        (checkpoint.folder / f".{len(leftover):012x}-progress.json").write_text(leftover)
    checkpoint.remove()
    assert not checkpoint.folder.exists()


@pytest.mark.parametrize("trouble", ["vanished", "full"])
def test_a_file_system_that_fails_costs_the_file_only(checkpoint, monkeypatch, trouble):
    def full(*args):
        raise OSError(28, "No space left on device")

    record = recorder(checkpoint)
    with record.recording():
        wait_for(lambda: read_progress(checkpoint.folder))
        if trouble == "full":
            monkeypatch.setattr(progress.os, "replace", full)
        else:
            monkeypatch.setattr(record, "_path", Path("/proc/nowhere/progress.json"))
        record(EPOCH)
    assert read_progress(checkpoint.folder).epoch is None
    assert [path.name for path in checkpoint.folder.iterdir()] == ["progress.json"]


def test_a_file_system_that_hangs_is_left(checkpoint, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    release = threading.Event()
    record = recorder(checkpoint)
    monkeypatch.setattr(record, "_replace_by", lambda text: release.wait(60))
    with record.recording():
        record(EPOCH)
    release.set()


def test_without_a_checkpoint_nothing_is_recorded():
    assert recorder_of(NO_CHECKPOINT, lambda: None) is NO_RECORDER
    with NO_RECORDER.recording():
        NO_RECORDER(EPOCH)
        NO_RECORDER.end(StopReason.RADIUS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 500,
        "{",
        "[]",
        "null",
        '{"kind": "other"}',
        '{"kind": "psmds-dist progress", "epoch": "three"}',
        '{"kind": "psmds-dist progress", "epoch": true}',
        '{"kind": "psmds-dist progress", "radius": NaN}',
        '{"kind": "psmds-dist progress", "host": null}',
        "[" * 60_000,
        b"\xff\xfe",
    ],
)
def test_a_garbled_file_is_a_sentence(tmp_path, text):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "progress.json").write_bytes(data)
    with pytest.raises(DamagedDataError, match=r"progress\.json cannot be read \(.+\)\.$"):
        read_progress(tmp_path)


def test_every_torn_file_is_a_sentence(tmp_path):
    text = Progress(command="psmds fit é", epoch=3, stress=0.25).as_text()
    assert Progress.from_text(text) == Progress(command="psmds fit é", epoch=3, stress=0.25)
    for length in range(0, len(text) - 1, 7):
        (tmp_path / "progress.json").write_text(text[:length])
        with pytest.raises(DamagedDataError):
            read_progress(tmp_path)


def test_a_newer_file_can_be_read_and_numbers_that_json_lacks_are_left_out(tmp_path):
    values = json.loads(Progress(stress=float("nan"), moved=float("inf")).as_text())
    assert values["stress"] is None
    assert values["moved"] is None
    (tmp_path / "progress.json").write_text(json.dumps({**values, "mood": "good", "epoch": 3}))
    assert read_progress(tmp_path).epoch == 3
    assert read_progress(tmp_path / "missing") is None
    assert read_progress(tmp_path / "progress.json") is None


def test_a_fit_records_its_stages_and_the_stress_of_its_epochs(tmp_path):
    matrix = squareform(pdist(np.random.default_rng(0).normal(size=(60, 4))))
    told, folder = [], tmp_path / "run"

    def on_epoch(event):
        found = wait_for(lambda: read_progress(folder) if (folder / "progress.json").exists() else None)
        told.append((event, found))
        return event.epoch == 3

    mds = PatternSearchMDS(init="random", random_state=0, checkpoint=folder, on_epoch=on_epoch).fit(matrix)
    assert {found.state for _, found in told} == {"running"}
    total = np.square(matrix).sum()
    for event, _ in told:
        assert event.stress == pytest.approx(np.sqrt(event.mse * 60**2 / total), rel=1e-6)
    assert mds.normalized_stress_ < told[0][0].stress
    assert not folder.exists()


KILLED = """
import numpy as np
from scipy.spatial.distance import pdist, squareform
from psmds_dist import PatternSearchMDS
matrix = squareform(pdist(np.random.default_rng(0).normal(size=(200, 4))))
endless = dict(max_epochs=10**6, radius_tol=1e-300, eps=1e-300)
PatternSearchMDS(init="random", random_state=0, checkpoint="run", **endless).fit(matrix)
"""


@pytest.mark.slow
def test_a_killed_run_leaves_its_last_state(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path)
    try:
        wait_for(lambda: (found := read_progress(tmp_path / "run")) and found.epoch)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    found = read_progress(tmp_path / "run")
    assert (found.state, found.pid, found.stage) == ("running", process.pid, "epochs")
    assert 0 < found.stress < 1
