"""The short chaos, and that it would notice what it looks for."""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from tests.chaos import processes
from tests.chaos.events import Watch
from tests.chaos.kinds import KINDS, distances_of
from tests.chaos.plans import PLACES, Attempt, Moment, Plan, plan_run
from tests.chaos.study import Record, Study, Undisturbed, damaged

INGEST = next(kind for kind in KINDS if kind.name == "ingest")


def test_a_seed_decides_what_happens():
    assert [plan_run(3, k) for k in range(50)] == [plan_run(3, k) for k in range(50)]
    assert plan_run(3, 0) != plan_run(4, 0)


def test_a_hundred_runs_are_of_every_kind_and_place():
    plans = [plan_run(0, k) for k in range(100)]
    assert {plan.kind.name for plan in plans} == {kind.name for kind in KINDS}
    assert {attempt.place for plan in plans for attempt in plan.attempts} == set(PLACES)
    assert all(attempt.events or attempt.scarcity for plan in plans for attempt in plan.attempts)


@pytest.fixture
def store(tmp_path):
    """A small store, as a run of the kind ingest would leave it."""
    target = tmp_path / "run" / "target.zarr"
    build(ArrayRows(distances_of(np.random.default_rng(0).random((100, 3)))), target, InProcessExecutor())
    return target


def compared(store, tmp_path):
    """Record of a run that has ended with this store, when the undisturbed one was the store as it was."""
    study = Study(tmp_path / "study", tmp_path, {"ingest": Undisturbed(1.0, INGEST.outcome(store))})
    record = Record(Plan(0, INGEST, (), Attempt("in process")))
    yield record
    study._compare(record, store)


@pytest.mark.parametrize("how", ["a byte flipped", "truncated", "emptied"])
def test_other_bits_are_noticed(store, tmp_path, how):
    steps = compared(store, tmp_path)
    record = next(steps)
    assert damaged(INGEST.kept(store), how)
    assert next(steps, None) is None
    assert not record.identical
    assert re.match(r"differs in c\.\d+\.0$", record.faults[0])


def test_files_that_stay_are_noticed(store, tmp_path):
    steps = compared(store, tmp_path)
    record = next(steps)
    (store.parent / ".target.zarr.new-0123456789ab").mkdir()
    (INGEST.kept(store) / "c.0.0.1234.partial").touch()
    assert next(steps, None) is None
    assert record.identical
    assert record.faults == ["files left: .target.zarr.new-0123456789ab, dissimilarities/c.0.0.1234.partial"]


def test_processes_that_stay_are_noticed(tmp_path):
    mark = processes.new_mark()
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=processes.environment(mark))
    try:
        deadline = time.monotonic() + 20
        while not processes.marked(mark):
            assert time.monotonic() < deadline
        assert [process.pid for process in processes.marked(mark)] == [left.pid]
        _, names = processes.gone(mark, patience=0.1)
    finally:
        left.kill()
        left.wait()
    assert len(names) == 1
    assert processes.gone(mark, patience=5)[1] == []


def test_moments_are_seen(tmp_path):
    kind, target = KINDS[0], tmp_path / "map.zarr"
    folder = tmp_path / "map.zarr.checkpoint"
    folder.mkdir()
    (folder / "solve-0.000000001.npz").touch()
    watch = Watch(kind, target, usual=3600.0)
    for moment in (Moment("kept", 1), Moment("keeping"), Moment("ending"), Moment("time", 1.0)):
        assert not watch.reached(moment)
    (folder / ".solve-0.000000002.npz.new-0123456789ab").touch()
    assert watch.reached(Moment("keeping"))
    assert not watch.reached(Moment("kept", 1))
    (folder / "solve-0.000000002.npz").touch()
    assert watch.reached(Moment("kept", 1))
    (tmp_path / ".map.zarr.new-0123456789ab").mkdir()
    assert watch.reached(Moment("ending"))
    assert watch.reached(Moment("time", 0.0))


@pytest.mark.slow
@pytest.mark.wide
def test_three_runs_end_with_the_same_bits():
    """`make chaos` makes a hundred."""
    root = Path(__file__).parents[1]
    chaos = [sys.executable, "-m", "tests.chaos", "--runs", "3", "--seed", "101"]
    done = subprocess.run(chaos, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line.split() for line in done.stdout.splitlines() if line.startswith("all "))
    runs, disturbed, _, resumed, identical, faults, _ = line[1:]
    assert (runs, disturbed, identical, faults) == ("3", "3", "3", "0")
    assert int(resumed) >= 1
