"""One call of `DaskExecutor.map`: its tasks, which worker has which, and what happens to those that do not come back.

Work is pure, so several workers may have the same task: the first result counts, and all are the same.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from psmds_dist.core.layout import groups, owners
from psmds_dist.executor._dask_internals import allow_connections, serialize, serialized_bytes
from psmds_dist.executor.errors import ATTEMPTS, is_loss, lost_too_often, translate_error
from psmds_dist.executor.rpc import RpcFuture
from psmds_dist.executor.stragglers import StragglerDetector
from psmds_dist.executor.tasks import Work, identity, run_task
from psmds_dist.executor.workers import Worker, WorkerPool
from psmds_dist.planning.cost import INLINE

if TYPE_CHECKING:
    from distributed import Future
    from distributed.protocol.serialize import Serialized

R = TypeVar("R")

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the workers during a call."""

SPARE_CONNECTIONS = 64
"""Connections of a client beside those of direct calls."""


@dataclass(eq=False)
class Task:
    """Blocks that are computed together, the futures that compute them, and the workers lost over them."""

    blocks: list[int]
    futures: list[Future | RpcFuture[Any]] = field(default_factory=list)
    losses: int = 0


@dataclass(frozen=True)
class Assignment:
    """A task and the worker that it was given to."""

    task: Task
    worker: Worker


class MapCall(Generic[R]):
    """Assigns the tasks of a call to workers and collects their results.

    Every task goes to exactly one worker, so that it is known which worker is late. Tasks whose worker is lost, silent
    or late are reassigned. Calls in quick succession are direct, until one of them fails.

    Parameters
    ----------
    pool : WorkerPool
        The workers.
    stragglers : StragglerDetector
        Time limits.
    work : callable
        Work on blocks.
    """

    def __init__(self, pool: WorkerPool, stragglers: StragglerDetector, work: Work[R]) -> None:
        self._pool = pool
        self._stragglers = stragglers
        self._work = work
        self._kind = _kind(work)
        self._task_work: Work[R] | Future | None = None
        """The work as tasks take it: itself when small, else a future; None until it is sent."""

        self._rpc_work: Serialized | None = None
        """The work as direct calls take it; None for a call by tasks."""

        self._unfinished: dict[Task, None] = {}
        self._in_flight: dict[Future | RpcFuture[R], Assignment] = {}
        self._done: Queue[Future | RpcFuture[R]] = Queue()
        self._started: dict[str, float] = {}
        self._rates: list[float] = []
        self._checked_at = time.monotonic()

    def results(self, blocks: Sequence[int], group: int | None) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the blocks and result of each task as it comes."""
        workers = self._pool.current() or self._pool.wait_for_available()
        by_worker = owners(blocks, {name: worker.threads for name, worker in workers.items()})
        assignments = [
            Assignment(Task(part), workers[name]) for name, own in by_worker.items() for part in groups(own, group)
        ]
        self._unfinished = dict.fromkeys(assignment.task for assignment in assignments)
        self._choose_transport(len(assignments), len(workers))
        self._pool.run_in_loop(partial(self._issue_all, assignments))
        while self._unfinished:
            future = self._next()
            if future is not None and future in self._in_flight:
                yield from self._collect(future, self._in_flight.pop(future))
            if time.monotonic() - self._checked_at > CHECK_INTERVAL:
                self._check_workers()
        self._stragglers.record(self._kind, self._rates)

    def _choose_transport(self, tasks: int, workers: int) -> None:
        """Send small work with every task, and call directly where there is one task per worker."""
        message = serialize(self._work)
        if tasks * serialized_bytes(message) <= INLINE:
            self._task_work = self._work
            self._rpc_work = message if tasks <= workers and self._pool.can_call_directly() else None

    def cancel(self) -> None:
        """Cancel what is still in flight."""
        if self._pool.is_connected():
            self._cancel(list(self._in_flight))

    def _issue_all(self, assignments: list[Assignment]) -> None:
        if self._rpc_work is not None:
            self._pool.keep_alive()
            allow_connections(self._pool.client, len(assignments) + SPARE_CONNECTIONS)
        for assignment in assignments:
            self._issue(assignment.task, assignment.worker)
        self._pool.last_results.clear()

    def _issue(self, task: Task, worker: Worker) -> None:
        self._started.setdefault(worker.address, time.monotonic())
        future = self._submit(task, worker) if self._rpc_work is None else self._call(task, worker, self._rpc_work)
        self._in_flight[future] = Assignment(task, worker)
        task.futures.append(future)
        future.add_done_callback(self._done.put)

    def _call(self, task: Task, worker: Worker, work: Serialized) -> RpcFuture[R]:
        return RpcFuture(self._pool.client, worker.address, work, task.blocks)

    def _submit(self, task: Task, worker: Worker) -> Future:
        self._pool.last_task_call = time.monotonic()
        if self._task_work is None:
            self._task_work = self._send_work(worker)
        blocks = np.array(task.blocks, dtype=np.int64)  # not a list, in which Dask would look for futures
        key = f"psmds-{uuid.uuid4().hex}"
        return self._pool.submit(run_task, self._task_work, blocks, key=key, workers=[worker.address])

    def _send_work(self, worker: Worker) -> Future:
        """Put the work, with the coordinates in it, on one worker, from which the others fetch it."""
        key = f"psmds-work-{uuid.uuid4().hex}"
        where = {"workers": [worker.address], "allow_other_workers": True}
        with _large_messages():
            return self._pool.submit(identity, self._work, key=key, **where)

    def _next(self) -> Future | RpcFuture[R] | None:
        try:
            return self._done.get(timeout=CHECK_INTERVAL)
        except Empty:
            return None

    def _collect(self, future: Future | RpcFuture[R], assignment: Assignment) -> Iterator[tuple[Sequence[int], R]]:
        task, worker = assignment.task, assignment.worker
        try:
            result = future.result(timeout=self._pool.deadline)
        except Exception as error:
            failed = future.status == "error"  # else the result was lost, or could not be fetched
            future.release()  # the client would keep it, and with the error's traceback this whole call
            self._pool.require_scheduler()
            if failed and not is_loss(error):
                raise translate_error(error)  # noqa: B904 - it has its cause
            self._record_loss(task, type(error).__name__)
        else:
            self._record_time(task, worker)
            del self._unfinished[task]
            self._cancel([twin for twin in task.futures if twin in self._in_flight])
            if isinstance(future, RpcFuture):
                future.release()
            else:
                self._pool.last_results[worker.address] = future
            yield task.blocks, result

    def _record_time(self, task: Task, worker: Worker) -> None:
        now = time.monotonic()
        self._rates.append((now - self._started[worker.address]) * worker.threads / len(task.blocks))
        self._started[worker.address] = now

    def _record_loss(self, task: Task, cause: str) -> None:
        task.losses += 1
        if task.losses == ATTEMPTS:
            raise lost_too_often(cause)
        self._task_work = None  # it may be lost as well
        self._rpc_work = None
        self._pool.forget_handlers()
        self._checked_at = 0.0

    def _cancel(self, futures: list[Future | RpcFuture[R]]) -> None:
        for future in futures:
            del self._in_flight[future]
            if isinstance(future, RpcFuture):
                future.cancel()
        if tasks := [future for future in futures if not isinstance(future, RpcFuture)]:
            self._pool.client.cancel(tasks, force=True)

    def _check_workers(self) -> None:
        """Reassign the tasks of workers that are lost, silent or late."""
        self._checked_at = time.monotonic()
        available = self._pool.refresh()
        if self._rpc_work is not None:
            self._pool.keep_alive()
        sizes = self._sizes_in_flight()
        late = [worker.address for worker in available.values() if self._is_late(worker, sizes[worker.address])]
        for address in late if len(late) < len(available) else []:  # when all are late the machine is slow
            self._pool.suspect(address)
        self._drop_lost()
        if len(self._pool.responsive) < len(self._pool.connected) and not self._is_work_at_hand():
            self._cancel(list(self._in_flight))  # they wait for it, on whatever worker
            self._task_work = None
        self._reissue()

    def _drop_lost(self) -> None:
        """Record the loss of tasks whose worker has left the cluster."""
        connected = self._pool.connected
        lost = [future for future, assignment in self._in_flight.items() if assignment.worker.address not in connected]
        for task in {self._in_flight[future].task for future in lost}:
            self._record_loss(task, "lost worker")
        self._cancel(lost)

    def _reissue(self) -> None:
        """Give each stranded task to the available worker with the least to do."""
        stranded = self._stranded()
        if stranded and not self._pool.available:
            self._pool.wait_for_available()
            stranded = self._stranded()
        available, sizes = self._pool.available.values(), self._sizes_in_flight()
        for task in stranded:
            worker = min(available, key=lambda worker: sum(sizes[worker.address]) / worker.threads)
            if not sizes[worker.address]:
                self._started.pop(worker.address, None)  # it was idle, not late
            self._issue(task, worker)
            sizes[worker.address].append(len(task.blocks))
        self._checked_at = time.monotonic()

    def _stranded(self) -> list[Task]:
        """Tasks that no responsive worker has."""
        responsive = self._pool.responsive
        assigned = {a.task for a in self._in_flight.values() if a.worker.address in responsive}
        return [task for task in self._unfinished if task not in assigned]

    def _is_late(self, worker: Worker, sizes: Sequence[int]) -> bool:
        if not sizes or self._pool.is_suspect(worker.address):
            return False
        limit = self._stragglers.limit(self._kind, self._rates, max(sizes), worker.threads)
        return time.monotonic() - self._started[worker.address] > limit

    def _is_work_at_hand(self) -> bool:
        """Whether a responsive worker has the work, so that others can fetch it."""
        if self._task_work is None:
            return False
        if self._task_work is self._work:
            return True
        return not self._pool.responsive.keys().isdisjoint(self._pool.holders(self._task_work))

    def _sizes_in_flight(self) -> defaultdict[str, list[int]]:
        """Numbers of blocks of the tasks that each worker has, by address."""
        sizes: defaultdict[str, list[int]] = defaultdict(list)
        for assignment in self._in_flight.values():
            sizes[assignment.worker.address].append(len(assignment.task.blocks))
        return sizes


def _kind(work: Work[R]) -> str:
    """Name of a piece of work, whatever its arguments."""
    function = getattr(work, "func", work)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


@contextmanager
def _large_messages() -> Iterator[None]:
    """Keep Dask from warning about coordinates of more than 10 MB in a task: they must be sent every round."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "10GB"}):
        yield
