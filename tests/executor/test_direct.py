"""Calls that follow each other quickly ask the workers directly: same answers, same errors, same care."""

import asyncio
import gc
import os
import signal
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread

import numpy as np
import pytest
from distributed import Client

from psmds_dist.core.types import ClusterLost, InputError, WorkerError
from psmds_dist.executor import DaskExecutor, dispatch, workers
from psmds_dist.executor.rpc import OPERATION, register_handler
from psmds_dist.planning.cost import INLINE
from tests.clusters import all_blocks, wait_for, with_workers

BLOCKS = range(3, 40)


@pytest.fixture
def asked(monkeypatch):
    """How often workers are asked directly, and how often by a task."""
    counts = {"directly": 0, "tasks": 0}

    def counting(name, method):
        def counted(self, *given):
            counts[name] += 1
            return method(self, *given)

        return counted

    monkeypatch.setattr(dispatch.MapCall, "_call", counting("directly", dispatch.MapCall._call))
    monkeypatch.setattr(dispatch.MapCall, "_submit", counting("tasks", dispatch.MapCall._submit))
    return counts


@pytest.fixture(params=[True, False], ids=["reached", "through the scheduler"])
def executor(client, monkeypatch, request):
    """An executor whose next calls are direct."""
    monkeypatch.setattr(workers, "TASK_INTERVAL", 600.0)
    monkeypatch.setattr(client, "direct_to_workers", request.param)
    executor = DaskExecutor(with_workers(client, 2))
    assert all_blocks(executor.map(total, BLOCKS)) == list(BLOCKS)
    return executor


def total(blocks):
    return sum(blocks)


def half(blocks, x):
    return x[: len(x) // 2] * len(blocks)


def failing(blocks, error):
    if 7 in blocks:
        raise error
    return len(blocks)


def dying(blocks, place, once):
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if once:
            return sum(blocks)
    return os.kill(os.getpid(), signal.SIGKILL)


def napping(blocks):
    time.sleep(0.4)
    return os.getpid()


@pytest.mark.slow
def test_the_second_call_is_direct_and_answers_the_same(executor, asked):
    x = np.arange(10.0)
    parts = list(executor.map(partial(half, x=x), BLOCKS))
    assert asked == {"directly": 2, "tasks": 0}
    assert sorted(b for part, _ in parts for b in part) == list(BLOCKS)
    for part, answer in parts:
        assert np.array_equal(answer, x[:5] * len(part))


def test_the_scheduler_is_shown_a_task_now_and_then(client, asked, monkeypatch):
    monkeypatch.setattr(workers, "TASK_INTERVAL", 1.0)
    executor = DaskExecutor(client)
    end = time.monotonic() + 2.5 * workers.TASK_INTERVAL
    while time.monotonic() < end:
        list(executor.map(total, BLOCKS))
    assert asked["tasks"] in (4, 6)  # at the beginning and after each second, unless the machine stops for one
    assert asked["directly"] > asked["tasks"]


def test_a_call_with_nothing_for_some_of_the_workers_is_direct(executor, asked):
    assert all_blocks(executor.map(total, [4, 5])) == [4, 5]
    assert asked == {"directly": 1, "tasks": 0}


def test_large_work_and_many_parts_go_by_tasks(executor, asked):
    list(executor.map(partial(half, x=np.ones(INLINE // 8)), BLOCKS))
    list(executor.map(total, BLOCKS, group=4))
    assert asked["directly"] == 0
    assert asked["tasks"] > 2


@pytest.mark.parametrize("error", [InputError("the matrix is blue."), OSError(5, "Input/output error", "x.npy")])
def test_an_error_of_the_work_comes_as_itself(executor, asked, error):
    with pytest.raises(type(error)) as caught:
        list(executor.map(partial(failing, error=error), BLOCKS))
    assert str(caught.value) == str(error)
    assert asked == {"directly": 2, "tasks": 0}
    assert len(list(executor.map(total, BLOCKS))) == 2


@pytest.mark.slow
@pytest.mark.wide
def test_a_worker_that_dies_is_made_up_for_and_its_successor_asked_again(executor, client, asked, tmp_path, quiet):
    before = set(client.run(os.getpid).values())
    work = partial(dying, place=tmp_path / "died", once=True)
    parts = list(executor.map(work, BLOCKS))
    assert sorted(b for part, _ in parts for b in part) == list(BLOCKS)
    assert all(answer == sum(part) for part, answer in parts)
    assert (asked["directly"], asked["tasks"] >= 1) == (2, True)
    wait_for(lambda: len(client.run(os.getpid)) == 2 and set(client.run(os.getpid).values()) != before)
    asked.update(directly=0, tasks=0)
    time.sleep(workers.REFRESH_INTERVAL)
    assert {pid for _, pid in executor.map(napping, BLOCKS)} == set(client.run(os.getpid).values())
    assert asked == {"directly": 2, "tasks": 0}


@pytest.fixture
def uncollected():
    """Keep Python from finding garbage that refers to itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def psmds_tasks(dask_scheduler):
    return [key for key in dask_scheduler.tasks if key.startswith("psmds")]


@pytest.mark.slow
@pytest.mark.usefixtures("quiet", "uncollected")
@pytest.mark.wide
def test_a_call_that_lost_a_worker_leaves_nothing_on_the_cluster(executor, client, asked, tmp_path):
    work = partial(dying, place=tmp_path / "died", once=True)
    assert all_blocks(executor.map(work, BLOCKS)) == list(BLOCKS)
    assert (asked["directly"], asked["tasks"] >= 1) == (2, True)
    executor.close()
    wait_for(lambda: not client.run_on_scheduler(psmds_tasks), seconds=20)
    with_workers(client, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("uncollected")
@pytest.mark.wide
def test_answers_are_let_go_of_with_their_call(executor, asked):
    (_, answer), _ = executor.map(partial(half, x=np.ones(100)), BLOCKS)
    assert asked == {"directly": 2, "tasks": 0}
    gone = weakref.ref(answer)
    del answer
    assert gone() is None


@pytest.mark.slow
@pytest.mark.wide
def test_work_that_kills_every_worker_ends_in_a_sentence(executor, client, tmp_path, quiet):
    with pytest.raises(WorkerError, match="lost its workers 4 times"):
        list(executor.map(partial(dying, place=tmp_path / "died", once=False), BLOCKS))
    with_workers(client, 2)


@pytest.mark.slow
@pytest.mark.wide
def test_a_worker_that_joins_is_asked_like_the_others(executor, client, asked):
    with_workers(client, 3)
    time.sleep(workers.REFRESH_INTERVAL)
    assert len({pid for _, pid in executor.map(napping, BLOCKS)}) == 3
    assert asked == {"directly": 3, "tasks": 0}
    with_workers(client, 2)
    assert len({pid for _, pid in executor.map(napping, BLOCKS)}) == 2


def test_a_client_that_was_closed_between_two_calls_is_told(client):
    with Client(client.scheduler.address, set_as_default=False) as other:
        executor = DaskExecutor(other)
        list(executor.map(total, BLOCKS))
        other.close()
        with pytest.raises(ClusterLost, match="or the client was closed"):
            list(executor.map(total, BLOCKS))


CALLS = {
    "map": lambda executor: list(executor.map(total, BLOCKS)),
    "run_on_all": lambda executor: executor.memory_usage(),
    "broadcast": lambda executor: executor.warm_up(bool),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nobody_waits_for_a_loop_that_ends_before_it_comes_to_a_call(executor, client, monkeypatch, call):
    told = []

    def run():
        with pytest.raises(ClusterLost) as caught:
            call(executor)
        told.append(str(caught.value))

    list(executor.map(total, BLOCKS))
    with monkeypatch.context() as patch:
        patch.setattr(workers, "REFRESH_INTERVAL", 600.0)
        patch.setattr(client.loop, "add_callback", lambda *_: patch.setattr(client, "status", "closed"))
        caller = Thread(target=run, daemon=True)
        caller.start()
        caller.join(20)
    executor.close()
    assert "or the client was closed" in told[0]


def test_a_call_that_the_loop_gives_up_as_it_ends_is_told(executor, client, monkeypatch):
    with monkeypatch.context() as patch:

        async def given_up(self):
            patch.setattr(client, "status", "closed")
            raise asyncio.CancelledError

        patch.setattr(workers.WorkerPool, "_identify", given_up)
        with pytest.raises(ClusterLost, match="or the client was closed"):
            executor.memory_usage()


def slow_over_three(blocks):
    if 3 in blocks:
        time.sleep(3)


def test_leaving_early_waits_for_nobody(executor, asked):
    began = time.monotonic()
    for _ in executor.map(slow_over_three, BLOCKS):
        break
    assert time.monotonic() - began < 2.5
    assert asked["directly"] == 2
    assert all_blocks(executor.map(total, BLOCKS)) == list(BLOCKS)


def forget(dask_worker):
    return dask_worker.handlers.pop(OPERATION) is not None


def test_a_successor_at_the_same_address_is_taught_anew(executor, client, asked, quiet):
    list(executor.map(total, BLOCKS))
    assert all(client.run(forget).values())
    assert all_blocks(executor.map(total, BLOCKS)) == list(BLOCKS)
    assert asked == {"directly": 4, "tasks": 2}
    list(executor.map(total, BLOCKS))
    assert asked == {"directly": 6, "tasks": 2}


async def ask_without_threads(dask_worker):
    """Ask a worker that has closed its threads already."""
    before = dask_worker.executors["default"]
    dask_worker.executors["default"] = ThreadPoolExecutor(1)
    dask_worker.executors["default"].shutdown()
    try:
        return await dask_worker.handlers[OPERATION](total, [1])
    finally:
        dask_worker.executors["default"] = before


def test_what_keeps_a_worker_from_its_work_is_not_an_error_of_the_work(client, quiet):
    assert all(client.run(register_handler).values())
    errors = client.run(ask_without_threads, on_error="return").values()
    assert [str(error) for error in errors] == ["cannot schedule new futures after shutdown"] * 2


def needs(dask_scheduler):
    """Whether the scheduler, by its own judgement, is idle, and the workers that it could do without."""
    dask_scheduler.check_idle()  # notes what has changed since it looked last
    return dask_scheduler.check_idle() is not None, dask_scheduler.workers_to_close()


def test_the_scheduler_sees_that_workers_asked_directly_are_needed(executor, client, asked):
    gc.collect()  # tasks of other executors go with them
    wait_for(lambda: client.run_on_scheduler(needs)[0])
    list(executor.map(total, BLOCKS))
    wait_for(lambda: client.run_on_scheduler(needs) == (False, []))
    for _ in range(20):
        list(executor.map(total, BLOCKS))
        assert client.run_on_scheduler(needs) == (False, [])
    assert asked == {"directly": 42, "tasks": 0}


def unrunnable(dask_scheduler):
    return len(dask_scheduler.unrunnable)


@pytest.mark.slow
@pytest.mark.wide
def test_the_scheduler_sees_at_once_that_a_worker_which_joined_is_needed_and_one_that_left_is_not(executor, client):
    for count in (2, 3, 2):
        with_workers(client, count)
        time.sleep(workers.REFRESH_INTERVAL)
        list(executor.map(total, BLOCKS))
        wait_for(lambda: client.run_on_scheduler(needs) == (False, []), seconds=5)
        wait_for(lambda: not client.run_on_scheduler(unrunnable), seconds=5)


def tasks_of(dask_worker):
    return list(dask_worker.state.tasks)


@pytest.mark.wide
def test_what_stays_with_the_workers_ends_with_the_run_and_comes_again_with_the_next(executor, client):
    gc.collect()  # tasks of other executors go with them
    list(executor.map(total, BLOCKS))
    executor.close()
    wait_for(lambda: not any(client.run(tasks_of).values()), seconds=5)
    list(executor.map(total, BLOCKS))
    wait_for(lambda: client.run_on_scheduler(needs) == (False, []), seconds=5)
