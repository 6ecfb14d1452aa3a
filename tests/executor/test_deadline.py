"""Workers that hang or lag: real processes, stopped by a signal."""

import os
import signal
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from psmds_dist import PatternSearchMDS
from psmds_dist.api.embed import embed
from psmds_dist.cli.fit import fit
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.types import InputError, WorkerError
from psmds_dist.data import cache as rows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import open_rows
from psmds_dist.deploy.settings import setting
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.executor.dask import DEADLINE as DEADLINE_OF_EXECUTOR
from psmds_dist.executor.stragglers import FACTOR, UNKNOWN, StragglerDetector
from psmds_dist.ingest.build import build
from tests.clusters import all_blocks, wait_for

BLOCKS = range(24)
DEADLINE = 2.0

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def executor(client):
    wait_for(lambda: len(DaskExecutor(client)._pool.refresh()) == 2)
    return DaskExecutor(client, DEADLINE)


@contextmanager
def stopped(*pids):
    """Hang some processes for the length of the block."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def who(blocks):
    time.sleep(0.05)
    return os.getpid()


def once(blocks, place, act):
    """Do something in the first worker that comes here; the claim is atomic."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return sum(blocks)
    act()
    return sum(blocks)


def stop_myself():
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.slow
@pytest.mark.parametrize("group", [None, 3])
@pytest.mark.wide
def test_a_worker_that_hangs_costs_one_deadline_and_comes_back(client, executor, group):
    pids = client.run(os.getpid)
    hung, other = sorted(pids.values())
    with stopped(hung):
        assert {pid for _, pid in executor.map(who, BLOCKS, group=group)} == {other}
        assert executor.n_workers == 1  # so the next ones do not ask it
        parts = list(executor.map(who, BLOCKS, group=group))
        assert all_blocks(parts) == list(BLOCKS)
    wait_for(lambda: {pid for _, pid in executor.map(who, BLOCKS)} == {hung, other})


def test_a_worker_that_stops_in_a_task(client, executor, tmp_path):
    try:
        work = partial(once, place=str(tmp_path / "claim"), act=stop_myself)
        parts = list(executor.map(work, BLOCKS, group=4))
        assert all_blocks(parts) == list(BLOCKS)
        assert all(total == sum(part) for part, total in parts)
    finally:
        for child in client.cluster.workers.values():
            os.kill(child.pid, signal.SIGCONT)


@pytest.mark.wide
def test_a_straggler_is_left_alone_until_it_answers(client, executor, tmp_path):
    work = partial(once, place=str(tmp_path / "claim"), act=partial(time.sleep, 5 * DEADLINE))
    parts = list(executor.map(work, BLOCKS, group=3))
    assert all_blocks(parts) == list(BLOCKS)
    assert executor.n_workers == 1  # it is at it still
    assert len({pid for _, pid in executor.map(who, BLOCKS)}) == 1
    wait_for(lambda: executor.n_workers == 2)
    assert len({pid for _, pid in executor.map(who, BLOCKS)}) == 2


def test_nothing_waits_for_a_worker_that_hangs(client, executor, tmp_path):
    hung = min(client.run(os.getpid).values())
    with stopped(hung):
        executor.warm_up(os.getpid)
        executor.check_writable(str(tmp_path))
        assert len(executor.peak_memory()) == 1
        executor.close()
        assert len(DaskExecutor(client, DEADLINE).peak_memory()) == 1
    assert not [name for name in client.cluster.scheduler.worker_plugins if "psmds" in name]


def test_a_worker_that_hangs_while_it_has_nothing_to_do_is_noticed_by_its_heartbeats(client, executor, caplog):
    caplog.set_level("INFO", "psmds_dist")
    hung = min(client.run(os.getpid).values())
    with stopped(hung):
        wait_for(lambda: len(executor._pool.refresh()) == 1, seconds=20)
        assert executor._pool._suspects == {}  # it never missed a deadline
        [message] = [m for m in caplog.messages if m.startswith("no heartbeat")]
        assert message.endswith(f"for {DEADLINE:.0f} s; reassigning its blocks")
    wait_for(lambda: executor.n_workers == 2)


def hold_rows(path):
    rows.get_row_cache(open_rows(path), 10**6)


def held_rows():
    return len(rows._HELD)


def test_a_worker_that_hangs_at_the_end_lets_go_of_its_rows_when_it_comes_back(client, executor, tmp_path):
    build(ArrayRows(np.ones((9, 9), np.float32) - np.eye(9, dtype=np.float32)), tmp_path / "m", InProcessExecutor())
    client.run(hold_rows, tmp_path / "m")
    assert set(client.run(held_rows).values()) == {1}
    with stopped(min(client.run(os.getpid).values())):
        assert len({pid for _, pid in executor.map(who, BLOCKS)}) == 1
        executor.close()
    wait_for(lambda: set(client.run(held_rows).values()) == {0})


def test_a_cluster_that_hangs_is_told(client, executor):
    with (
        stopped(*client.run(os.getpid).values()),
        pytest.raises(WorkerError, match=r"none of the 2 workers of .* has answered in 1 seconds: check whether"),
    ):
        DaskExecutor(client, 1)


def test_a_hang_in_a_fit_changes_no_bit(client, executor):
    random = np.random.default_rng(0)
    points = random.normal(size=(300, 4))
    matrix = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)).astype(np.float32)
    reference = PatternSearchMDS(n_jobs=1, random_state=1, max_epochs=12, init="random").fit(matrix)
    hung = max(client.run(os.getpid).values())

    def hang(event):
        if event.epoch == 3:
            os.kill(hung, signal.SIGSTOP)
        if event.epoch == 9:
            os.kill(hung, signal.SIGCONT)

    result = embed(ArrayRows(matrix), SolverConfig(seed=1, max_epochs=12), executor, init="random", on_epoch=hang)
    assert np.array_equal(result.solution.embedding, reference.embedding_)


@pytest.mark.parametrize("deadline", [0, -1, float("inf"), float("nan"), "30", True])
def test_a_deadline_is_a_number_of_seconds(client, deadline):
    with pytest.raises(InputError, match="deadline must be a positive number of seconds, not"):
        DaskExecutor(client, deadline)


def test_commands_and_estimators_have_the_same_deadline():
    assert setting("deadline") == DEADLINE_OF_EXECUTOR
    (option,) = [option for option in fit.params if option.name == "deadline"]
    assert f"[default: {DEADLINE_OF_EXECUTOR:g}]" in option.help


def test_time_limits_follow_the_slowest_call():
    stragglers = StragglerDetector(10)
    assert stragglers.limit("read", [], 100, 1) == 10 * UNKNOWN  # a first read can be long
    assert stragglers.limit("read", [1.0, 3.0, 99.0], 100, 2) == FACTOR * 3 * 100 / 2
    assert stragglers.limit("read", [0.001], 100, 2) == 10
    stragglers.record("read", [1.0, 3.0, 99.0])
    stragglers.record("read", [0.1, 0.1])
    assert stragglers.limit("read", [0.1], 100, 1) == FACTOR * 3 * 100  # the slowest call had to read
    assert stragglers.limit("other", [], 1, 1) == 10 * UNKNOWN
