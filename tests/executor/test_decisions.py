"""What the executor decides about workers and tasks, on fakes: no cluster."""

import time
from concurrent.futures import CancelledError

import numpy as np
import psutil
import pytest
from distributed import KilledWorker
from distributed.comm import CommClosedError

from psmds_dist.core.types import ClusterLost, InputError, WorkerError
from psmds_dist.executor import dask as on_dask
from psmds_dist.executor import dispatch, errors, tasks, workers
from psmds_dist.executor.dispatch import MapCall, Task
from psmds_dist.executor.stragglers import StragglerDetector, silent_workers
from psmds_dist.executor.tasks import keep_alive, probe
from psmds_dist.executor.workers import Worker, WorkerPool
from psmds_dist.planning.cost import INLINE
from psmds_dist.utils.facts import facts_of_process

A, B, C = (Worker(f"name of {k}", k, 1, 10**9, "running", 1000.0) for k in "abc")


class FakeScheduler:
    address = "tcp://scheduler"


class FakeClient:
    status, scheduler = "running", FakeScheduler()

    def __init__(self):
        self.cancelled = []

    def cancel(self, futures, force=False):
        assert force
        self.cancelled += futures


class FakeFuture:
    def __init__(self, function=None, args=(), how=None, status="pending", outcome=None):
        self.function, self.args, self.how = function, args, how or {}
        self.status, self.outcome, self.released = status, outcome, False

    def add_done_callback(self, function):
        pass

    def done(self):
        return self.status != "pending"

    def release(self):
        self.released = True

    def result(self, timeout=None):
        self.timeout = timeout
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakePool(WorkerPool):
    """A pool whose workers are what the test says, and which remembers what was submitted."""

    def __init__(self, *present, deadline=10.0):
        super().__init__(FakeClient(), deadline)
        self.connected = {worker.address: worker for worker in present}
        self.submitted, self.replies, self.asked = [], {}, 0

    def refresh(self):
        return self.available

    def submit(self, function, *args, **how):
        self.submitted.append(FakeFuture(function, args, how))
        return self.submitted[-1]

    def run_in_loop(self, function):
        function()

    def run_on_all(self, function, *args):
        self.asked += 1
        return self.replies

    @property
    def probes(self):
        return [future for future in self.submitted if future.function is probe]


def seen_at(worker, seen):
    return worker._replace(last_seen=seen)


def total(blocks):
    return sum(blocks)


def call_of(pool, *assigned):
    """A call whose tasks, each of some blocks, are with workers since now."""
    call = MapCall(pool, StragglerDetector(pool.deadline), total)
    call._task_work = total
    for worker, blocks in assigned:
        task = Task(list(blocks))
        call._unfinished[task] = None
        call._issue(task, worker)
    return call


def late_by(call, worker, seconds):
    call._started[worker.address] = time.monotonic() - seconds


def workers_of(call):
    return sorted((assignment.worker.address, assignment.task.blocks) for assignment in call._in_flight.values())


# silence


def test_a_worker_is_silent_once_its_heartbeat_is_older_than_the_latest_by_more_than_the_limit():
    assert silent_workers({}, 5) == set()
    assert silent_workers({"a": 100.0, "b": 95.0, "c": 94.9}, 5) == {"c"}
    assert silent_workers({"a": 3.0}, 5) == set()  # a single one is compared with itself


def test_a_silent_worker_gets_no_blocks_and_is_logged_once_until_it_beats_again(caplog):
    caplog.set_level("INFO", "psmds_dist")
    pool = FakePool(A, seen_at(B, 989.9), C)
    for _ in range(2):
        pool._update_silent()
    assert set(pool.responsive) == {"a", "c"}
    assert set(pool.available) == {A.name, C.name}
    assert [record.message for record in caplog.records] == [
        "no heartbeat from worker b for 10 s; reassigning its blocks"
    ]
    pool.connected["b"] = B
    pool._update_silent()
    assert set(pool.responsive) == {"a", "b", "c"}


@pytest.mark.parametrize(("gap", "silent"), [(1.4, set()), (1.6, {"b"})])
def test_three_heartbeats_may_be_missed_however_short_the_deadline(gap, silent):
    pool = FakePool(A, seen_at(B, 1000 - gap), deadline=0.1)
    pool._update_silent()
    assert pool._silent == silent


def test_tasks_of_a_silent_worker_are_reassigned_and_no_loss_is_counted():
    pool = FakePool(A, seen_at(B, 900.0))
    call = call_of(pool, (A, [1]), (B, [2, 3]))
    pool._update_silent()
    call._check_workers()
    assert workers_of(call) == [("a", [1]), ("a", [2, 3]), ("b", [2, 3])]
    assert [task.losses for task in call._unfinished] == [0, 0]
    assert pool.probes == []  # nobody asks one that is silent


def test_suspects_get_blocks_only_where_there_is_no_other_worker_and_silent_ones_never():
    pool = FakePool(A, B, seen_at(C, 0.0))
    pool._update_silent()
    pool.suspect("a")
    assert set(pool.responsive) == {"b"}
    pool.suspect("b")
    assert set(pool.responsive) == {"a", "b"}
    assert pool.is_suspect("a")
    for address in "abc":
        pool.suspect(address)
    assert [future.how["workers"] for future in pool.probes] == [
        ["a"],
        ["b"],
    ]  # one probe each, and none for the silent


def test_only_running_workers_are_available():
    pool = FakePool(A, B._replace(status="paused"))
    assert set(pool.available) == {A.name}
    assert set(pool.responsive) == {"a", "b"}


# lateness


def is_late(call, worker):
    return call._is_late(worker, call._sizes_in_flight()[worker.address])


@pytest.mark.parametrize(("seconds", "late"), [(9.0, False), (11.0, True)])
def test_late_is_who_takes_longer_than_the_limit(seconds, late):
    call = call_of(FakePool(A, B), (A, [1]))
    call._rates = [0.1]
    late_by(call, A, seconds)
    assert is_late(call, A) == late
    assert not is_late(call, B)  # it has nothing to do


@pytest.mark.parametrize(("blocks", "threads", "limit"), [(25, 1, 100), (25, 4, 25), (50, 1, 200)])
def test_the_limit_counts_blocks_and_threads(blocks, threads, limit):
    worker = A._replace(threads=threads)
    call = call_of(FakePool(worker, B), (worker, range(blocks)))
    call._rates = [1.0]
    late_by(call, worker, limit - 1)
    assert not is_late(call, worker)
    late_by(call, worker, limit + 1)
    assert is_late(call, worker)


def test_a_suspect_is_not_late_again():
    pool = FakePool(A, B)
    call = call_of(pool, (A, [1]))
    call._rates = [0.1]
    late_by(call, A, 100)
    pool.suspect("a")
    assert not is_late(call, A)


def test_limits_are_four_times_the_slowest_call_and_twenty_deadlines_at_first():
    stragglers = StragglerDetector(10)
    assert stragglers.limit("read", [], 100, 1) == 200
    assert stragglers.limit("read", [1.0], 100, 1) == 400
    stragglers.record("read", [])
    assert stragglers.limit("read", [], 100, 1) == 200
    stragglers.record("read", [2.0])
    stragglers.record("read", [1.0])
    assert stragglers.limit("read", [], 100, 2) == 400


def test_a_late_worker_is_suspected_and_its_task_given_to_another():
    pool = FakePool(A, B)
    call = call_of(pool, (A, [1]), (B, [2]))
    call._rates = [0.1]
    late_by(call, A, 11)
    call._check_workers()
    assert pool.is_suspect("a")
    assert workers_of(call) == [("a", [1]), ("b", [1]), ("b", [2])]
    assert [task.losses for task in call._unfinished] == [0, 0]


def test_where_all_are_late_the_machine_is_slow_and_nobody_is_suspected():
    pool = FakePool(A, B)
    call = call_of(pool, (A, [1]), (B, [2]))
    call._rates = [0.1]
    late_by(call, A, 11)
    late_by(call, B, 11)
    call._check_workers()
    assert pool.probes == []
    assert len(call._in_flight) == 2


# losses


def test_the_fourth_loss_of_the_same_blocks_ends_the_run():
    call = call_of(FakePool(A), (A, [1]), (A, [2]))
    one, other = call._unfinished
    for task in (one, one, one, other, other, other):
        call._record_loss(task, "lost worker")
    with pytest.raises(WorkerError, match=r"lost its workers 4 times over the same blocks \(lost worker\)"):
        call._record_loss(one, "lost worker")


def killed(call):
    """Have the only task of a call killed with its worker, and reassigned."""
    [future] = call._in_flight
    future.status, future.outcome = "error", KilledWorker("task", A, 3)
    assert list(call._collect(future, call._in_flight.pop(future))) == []
    call._check_workers()


def test_work_that_always_dies_is_tried_four_times():
    call = call_of(FakePool(A, B), (A, [1]))
    for _ in range(3):
        killed(call)
    with pytest.raises(WorkerError, match=r"lost its workers 4 times over the same blocks \(KilledWorker\)"):
        killed(call)


def test_after_a_loss_the_work_is_sent_again_by_tasks_and_handlers_are_installed_anew():
    pool = FakePool(A)
    pool.with_handler, pool.without_handler = {"a"}, {"b"}
    call = call_of(pool, (A, [1]))
    call._rpc_work = object()
    call._record_loss(next(iter(call._unfinished)), "cause")
    assert (call._task_work, call._rpc_work, pool.with_handler, pool.without_handler) == (None, None, set(), set())
    assert time.monotonic() - call._checked_at > 1  # so that workers are looked at before anything else


def test_tasks_of_a_worker_that_left_are_lost_once_and_given_to_another():
    pool = FakePool(A, B)
    call = call_of(pool, (A, [1]), (B, [2]))
    [gone] = [future for future, assignment in call._in_flight.items() if assignment.worker is A]
    del pool.connected["a"]
    call._check_workers()
    assert workers_of(call) == [("b", [1]), ("b", [2])]
    assert sorted((task.blocks, task.losses) for task in call._unfinished) == [([1], 1), ([2], 0)]
    assert gone in pool.client.cancelled


@pytest.mark.parametrize("status", ["pending", "finished", "cancelled", "lost"])
def test_a_result_that_cannot_be_fetched_is_a_loss(status):
    call = call_of(FakePool(A), (A, [1]))
    [(future, assignment)] = call._in_flight.items()
    future.status, future.outcome = status, TimeoutError("timed out")
    assert list(call._collect(future, call._in_flight.pop(future))) == []
    assert assignment.task.losses == 1
    assert future.released


def test_an_error_of_the_work_is_no_loss():
    call = call_of(FakePool(A), (A, [1]))
    [(future, assignment)] = call._in_flight.items()
    future.status, future.outcome = "error", InputError("the matrix is blue.")
    with pytest.raises(InputError, match="the matrix is blue") as caught:
        list(call._collect(future, call._in_flight.pop(future)))
    assert caught.value is future.outcome
    assert assignment.task.losses == 0


def test_the_first_result_counts_and_cancels_its_twins():
    pool = FakePool(A, B)
    call = call_of(pool, (A, [1]))
    [task] = call._unfinished
    call._issue(task, B)
    first, second = call._in_flight
    second.status, second.outcome = "finished", 7
    assert list(call._collect(second, call._in_flight.pop(second))) == [([1], 7)]
    assert (call._in_flight, call._unfinished, pool.client.cancelled) == ({}, {}, [first])
    assert pool.last_results == {"b": second}


# reassigning


def test_stranded_tasks_go_to_the_worker_with_the_least_to_do_for_its_threads():
    wide = C._replace(threads=4)
    pool = FakePool(A, B, wide)
    call = call_of(pool, (B, [1, 2]), (wide, [3, 4, 5, 6]))
    stranded = Task([7, 8])
    call._unfinished[stranded] = None
    call._issue(stranded, Worker("gone", "gone", 1, 0, "running", 0.0))
    call._started["a"] = 0.0  # it has been idle since long ago, which is not late
    call._reissue()
    assert ("a", [7, 8]) in workers_of(call)
    assert time.monotonic() - call._started["a"] < 5
    del pool.connected["a"]
    call._reissue()
    assert ("c", [7, 8]) in workers_of(call)


def test_a_worker_at_work_does_not_get_a_later_start_with_another_task():
    call = call_of(FakePool(A), (A, [1]))
    late_by(call, A, 50)
    stranded = Task([2])
    call._unfinished[stranded] = None
    call._reissue()
    assert time.monotonic() - call._started["a"] > 49


def test_large_work_that_only_a_silent_worker_has_is_sent_again():
    pool = FakePool(A, seen_at(B, 0.0))
    call = call_of(pool, (B, [1]))
    call._task_work = FakeFuture()
    pool.holders = lambda future: {"b"}
    pool._update_silent()
    call._check_workers()
    assert workers_of(call) == [("a", [1])]
    assert call._task_work in pool.submitted


# direct calls


@pytest.mark.parametrize(
    ("tasks", "bytes_", "inline", "direct"),
    [(2, 0, True, True), (3, 0, True, False), (2, INLINE // 2 - 2000, True, True), (2, INLINE // 2 + 1, False, False)],
)
def test_small_work_with_one_task_per_worker_is_called_directly(tasks, bytes_, inline, direct):
    pool = FakePool(A, B)
    pool.last_task_call, pool.with_handler = time.monotonic(), {"a", "b"}
    call = MapCall(pool, StragglerDetector(10), Ballast(np.zeros(max(0, bytes_), np.uint8)))
    call._choose_transport(tasks, 2)
    assert (call._task_work is not None, call._rpc_work is not None) == (inline, direct)


class Ballast:
    def __init__(self, ballast):
        self.ballast = ballast

    def __call__(self, blocks):
        pass


def test_the_scheduler_must_see_tasks_every_five_seconds():
    pool = FakePool(A)
    pool.with_handler = {"a"}
    assert not pool.can_call_directly()
    pool.last_task_call = time.monotonic() - 4
    assert pool.can_call_directly()
    pool.last_task_call = time.monotonic() - 6
    assert not pool.can_call_directly()
    assert pool.asked == 0


def test_handlers_are_installed_once_on_each_worker_and_failures_are_remembered(caplog):
    caplog.set_level("INFO", "psmds_dist")
    pool = FakePool(A, B)
    pool.last_task_call = time.monotonic()
    pool.replies = {"a": 0, "b": AttributeError("handlers")}
    assert not pool.can_call_directly()
    assert not pool.can_call_directly()
    assert (pool.asked, pool.with_handler, pool.without_handler) == (1, {"a"}, {"b"})
    assert "worker b cannot be called directly (AttributeError('handlers')); its rounds go by tasks" in caplog.messages
    pool.replies = {"a": 0, "b": CommClosedError("gone")}  # it may be there again a moment later
    pool.forget_handlers()
    assert not pool.can_call_directly()
    assert not pool.can_call_directly()
    assert pool.asked == 3


def test_workers_that_are_called_directly_are_kept_alive_for_two_intervals():
    pool = FakePool(A, B)
    for _ in range(3):
        pool.keep_alive()
    assert {(f.function, f.args, *f.how["workers"]) for f in pool.submitted} == {
        (keep_alive, (10.0,), "a"),
        (keep_alive, (10.0,), "b"),
    }
    assert len(pool.submitted) == 2
    pool.connected["c"] = C
    pool.keep_alive()
    assert len(pool.submitted) == 5
    pool._kept_alive_at -= 5.1
    pool.keep_alive()
    assert len(pool.submitted) == 8


def test_a_list_of_workers_is_current_for_a_second():
    pool = FakePool(A)
    assert pool.current() == {}
    pool._refreshed_at = time.monotonic() - 0.5
    assert pool.current() == {A.name: A}
    pool._refreshed_at = time.monotonic() - 1.1
    assert pool.current() == {}


@pytest.mark.parametrize("failures", [3, 4])
def test_a_broadcast_in_which_workers_die_is_repeated_three_times(monkeypatch, failures):
    monkeypatch.setattr(workers, "RETRY_DELAY", 0.0)
    pool, left = FakePool(A), [CommClosedError("gone")] * failures

    def broadcast_once(order):
        if left:
            raise left.pop()

    pool._broadcast_once = broadcast_once
    if failures < errors.ATTEMPTS:
        pool.broadcast(None)
    else:
        with pytest.raises(CommClosedError):
            pool.broadcast(None)
    assert left == []


# errors and limits


def test_errors_of_the_cluster_are_translated_and_those_of_the_work_returned_as_they_are():
    own = InputError("the matrix is blue.")
    assert errors.translate_error(own) is own
    assert own.__cause__ is None
    kinds = {CommClosedError: ClusterLost, CancelledError: ClusterLost, ModuleNotFoundError: WorkerError}
    for given, kind in kinds.items():
        error = given("gone")
        found = errors.translate_error(error)
        assert type(found) is kind
        assert found.__cause__ is error
    killed = KilledWorker("task", A, 3)
    assert type(errors.translate_error(killed)) is WorkerError
    assert "lost its workers 4 times" in str(errors.translate_error(killed))


def test_losses_are_faults_of_the_cluster():
    assert all(map(errors.is_loss, [KilledWorker("task", A, 3), CancelledError(), CommClosedError("gone")]))
    assert not any(map(errors.is_loss, [OSError(5, "x"), TimeoutError(), MemoryError(), InputError("x")]))


def test_a_client_that_gave_up_on_its_scheduler_is_a_lost_cluster():
    pool = FakePool(A)
    for status in ("running", "connecting"):
        pool.client.status = status
        pool.require_scheduler()
        assert pool.is_connected() == (status == "running")
    for status in ("closing", "closed"):
        pool.client.status = status
        with pytest.raises(ClusterLost):
            pool.require_scheduler()
        with pytest.raises(ClusterLost), pool.scheduler_required():
            raise RuntimeError("whatever Dask says then")


@pytest.mark.parametrize(("limits", "expected"), [((10**9, 4 * 10**8), 2 * 10**8), ((0, 10**9), 5 * 10**8)])
def test_the_memory_limit_is_half_of_the_smallest_known(limits, expected):
    executor = on_dask.DaskExecutor.__new__(on_dask.DaskExecutor)
    executor._pool = FakePool(*(w._replace(memory_limit=limit) for w, limit in zip((A, B), limits, strict=True)))
    assert executor.memory_limit() == expected


def test_the_memory_limit_without_limits_of_workers_is_half_of_what_is_free_for_each():
    executor = on_dask.DaskExecutor.__new__(on_dask.DaskExecutor)
    executor._pool = FakePool(*(w._replace(memory_limit=0) for w in (A, B)))
    executor._facts = dict.fromkeys("ab", facts_of_process())
    assert executor.memory_limit() == pytest.approx(psutil.virtual_memory().available / 4, rel=0.2)


def test_facts_of_a_worker_are_read_from_the_scheduler():
    facts = {"name": 3, "nthreads": 2, "memory_limit": None, "status": "running", "last_seen": 5.0, "other": 1}
    assert workers._worker("a", facts) == Worker("3", "a", 2, 0, "running", 5.0)
    assert workers._worker("a", {**facts, "memory_limit": 7}).memory_limit == 7


# whole calls and documented times


class Immediate(FakeFuture):
    """A future whose result is there when somebody asks to be called back."""

    def add_done_callback(self, function):
        self.status, (work, blocks) = "finished", self.args
        self.outcome = work(blocks.tolist())
        function(self)


class ImmediatePool(FakePool):
    def submit(self, function, *args, **how):
        self.submitted.append(Immediate(function, args, how))
        return self.submitted[-1]


def test_a_call_yields_each_block_once_and_records_its_time():
    pool = ImmediatePool(A, B)
    call = MapCall(pool, StragglerDetector(10), total)
    parts = list(call.results(range(9), 2))
    assert sorted(block for part, _ in parts for block in part) == list(range(9))
    assert all(result == sum(part) for part, result in parts)
    assert max(len(part) for part, _ in parts) == 2
    assert set(call._stragglers._slowest) == {"total"}
    assert {future.timeout for future in pool.submitted} == {10.0}  # a lost result is not waited for longer
    assert time.monotonic() - pool.last_task_call < 5


def test_the_time_of_a_task_counts_threads_and_blocks_and_the_next_begins_when_it_ends():
    worker = A._replace(threads=2)
    call = call_of(FakePool(worker), (worker, range(5)))
    late_by(call, worker, 10)
    call._record_time(Task(list(range(5))), worker)
    assert call._rates == [pytest.approx(4, abs=0.5)]
    assert time.monotonic() - call._started["a"] < 5


def test_a_suspect_is_trusted_again_once_its_probe_has_run():
    pool = FakePool(A, B)
    facts = {"nthreads": 1, "memory_limit": 1, "status": "running", "last_seen": 1000.0}
    pool._in_loop = lambda function: {a: {"name": a, **facts} for a in "ab"}
    pool.suspect("a")
    assert set(WorkerPool.refresh(pool)) == {"b"}
    pool.probes[0].status = "finished"
    assert set(WorkerPool.refresh(pool)) == {"a", "b"}
    pool.suspect("b")
    pool._in_loop = lambda function: {"a": {"name": "a", **facts}}
    WorkerPool.refresh(pool)
    assert not pool.is_suspect("b")  # another worker may come to its address
    assert pool.current()


def test_times_are_those_that_are_documented():
    """In ``cluster/README.md`` and the docstring of `DaskExecutor`."""
    assert (on_dask.DEADLINE, workers.TASK_INTERVAL, workers.WORKER_TIMEOUT) == (30, 5, 60)
    assert max(dispatch.CHECK_INTERVAL, workers.REFRESH_INTERVAL, workers.RETRY_DELAY) <= 1  # "a second or two"
    assert workers.LOG_DELAY <= 2
    assert tasks.KEEP_ALIVE_STEP <= 0.1
