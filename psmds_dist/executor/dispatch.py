"""One call of `DaskExecutor.run`: its parts, who has them, and what happens to those that do not come back.

Parts are pure, so the same part may be with several workers: the first answer counts, and all are the same.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from psmds_dist.core.layout import groups, owners
from psmds_dist.executor.errors import ATTEMPTS, is_loss, lost_too_often, translate_error
from psmds_dist.executor.rpc import RpcFuture
from psmds_dist.executor.stragglers import StragglerDetector
from psmds_dist.executor.tasks import Work, call, identity, packed, weight
from psmds_dist.executor.workers import Worker, WorkerPool
from psmds_dist.planning.cost import INLINE

if TYPE_CHECKING:
    from distributed import Future
    from distributed.protocol.serialize import Serialized

R = TypeVar("R")

LOOK = 1.0
"""Seconds between two looks at the workers of a call that lasts."""


@dataclass(eq=False)
class Task:
    """Blocks that are answered together, who was asked, and how often they were lost with their worker."""

    blocks: list[int]
    futures: list[Future | RpcFuture[Any]] = field(default_factory=list)
    losses: int = 0


@dataclass(frozen=True)
class Assignment:
    """A part and the worker it was given to."""

    part: Task
    worker: Worker


class MapCall(Generic[R]):
    """Hands out the parts of a call and takes the answers.

    Every part goes to one worker and nobody else, so that who is late is known. Parts whose worker is gone, silent
    or late go to others. Calls that follow each other quickly ask the workers directly, until one does not answer.

    Parameters
    ----------
    pool : WorkerPool
        The workers.
    stragglers : StragglerDetector
        What is late.
    work : callable
        What to do with blocks.
    """

    def __init__(self, pool: WorkerPool, stragglers: StragglerDetector, work: Work[R]) -> None:
        self._pool = pool
        self._stragglers = stragglers
        self._work = work
        self._kind = _kind(work)
        self._held: Work[R] | Future | None = None
        self._parcel: Serialized | None = None
        """The work as it travels while workers are asked directly."""

        self._open: dict[Task, None] = {}
        self._out: dict[Future | RpcFuture[R], Assignment] = {}
        self._done: Queue[Future | RpcFuture[R]] = Queue()
        self._since: dict[str, float] = {}
        self._rates: list[float] = []
        self._looked = time.monotonic()

    def results(self, blocks: Sequence[int], group: int | None) -> Iterator[tuple[Sequence[int], R]]:
        """Yield each part with its answer as it comes."""
        able = self._pool.recent() or self._pool.await_able()
        owned = owners(blocks, {name: worker.threads for name, worker in able.items()})
        assignments = [Assignment(Task(part), able[name]) for name, own in owned.items() for part in groups(own, group)]
        self._open = dict.fromkeys(assignment.part for assignment in assignments)
        parcel = packed(self._work)
        if len(assignments) * weight(parcel) <= INLINE:
            self._held = self._work
            self._parcel = parcel if len(assignments) <= len(able) and self._pool.can_be_asked() else None
        self._pool.at_once(partial(self._begin, assignments))
        while self._open:
            future = self._next()
            if future is not None and future in self._out:
                yield from self._take(future, self._out.pop(future))
            if time.monotonic() - self._looked > LOOK:
                self._look_after()
        self._stragglers.note(self._kind, self._rates)

    def end(self) -> None:
        """Call off what is still out."""
        if self._pool.client.status == "running":
            self._drop(list(self._out))

    def _begin(self, assignments: list[Assignment]) -> None:
        if self._parcel is not None:
            self._pool.keep()
        for assignment in assignments:
            self._issue(assignment.part, assignment.worker)
        self._pool.lingering.clear()

    def _issue(self, part: Task, worker: Worker) -> None:
        self._since.setdefault(worker.address, time.monotonic())
        future = self._submit(part, worker) if self._parcel is None else self._ask(part, worker, self._parcel)
        self._out[future] = Assignment(part, worker)
        part.futures.append(future)
        future.add_done_callback(self._done.put)

    def _ask(self, part: Task, worker: Worker, parcel: Serialized) -> RpcFuture[R]:
        return RpcFuture(self._pool.client, worker.address, parcel, part.blocks)

    def _submit(self, part: Task, worker: Worker) -> Future:
        self._pool.shown = time.monotonic()
        if self._held is None:
            self._held = self._send(worker)
        blocks = np.array(part.blocks, dtype=np.int64)  # not a list, in which Dask would look for futures
        key = f"psmds-{uuid.uuid4().hex}"
        return self._pool.submit(call, self._held, blocks, key=key, workers=[worker.address])

    def _send(self, worker: Worker) -> Future:
        """Put the work, with the coordinates in it, on a worker; the others fetch it there."""
        key = f"psmds-work-{uuid.uuid4().hex}"
        where = {"workers": [worker.address], "allow_other_workers": True}
        with _large_messages():
            return self._pool.submit(identity, self._work, key=key, **where)

    def _next(self) -> Future | RpcFuture[R] | None:
        try:
            return self._done.get(timeout=LOOK)
        except Empty:
            return None

    def _take(self, future: Future | RpcFuture[R], assignment: Assignment) -> Iterator[tuple[Sequence[int], R]]:
        part, worker = assignment.part, assignment.worker
        try:
            result = future.result(timeout=self._pool.deadline)
        except Exception as error:
            failed = future.status == "error"  # else its answer was lost, or could not be fetched
            future.release()  # the client would keep it, and with the error's traceback this whole run
            self._pool.require_scheduler()
            if failed and not is_loss(error):
                translate_error(error)
            self._lose(part, type(error).__name__)
        else:
            now = time.monotonic()
            self._rates.append((now - self._since[worker.address]) * worker.threads / len(part.blocks))
            self._since[worker.address] = now
            del self._open[part]
            self._drop([twin for twin in part.futures if twin in self._out])
            if isinstance(future, RpcFuture):
                future.release()
            else:
                self._pool.lingering[worker.address] = future
            yield part.blocks, result

    def _lose(self, part: Task, cause: str) -> None:
        part.losses += 1
        if part.losses == ATTEMPTS:
            raise lost_too_often(cause)
        self._held = None  # it may be lost as well
        self._parcel = None
        self._pool.listening.clear()
        self._looked = 0.0

    def _drop(self, futures: list[Future | RpcFuture[R]]) -> None:
        for future in futures:
            del self._out[future]
            if isinstance(future, RpcFuture):
                future.cancel()
        if tasks := [future for future in futures if not isinstance(future, RpcFuture)]:
            self._pool.client.cancel(tasks, force=True)

    def _look_after(self) -> None:
        """Give to others what is with workers that are gone, silent or late."""
        self._looked = time.monotonic()
        able = self._pool.look()
        if self._parcel is not None:
            self._pool.keep()
        late = [worker.address for worker in able.values() if self._is_late(worker)]
        for address in late if len(late) < len(able) else []:  # where all are late it is the machine that is slow
            self._pool.suspect(address)
        gone = [
            future for future, assignment in self._out.items() if assignment.worker.address not in self._pool.present
        ]
        for part in {self._out[future].part for future in gone}:
            self._lose(part, "lost worker")
        self._drop(gone)
        if len(self._pool.trusted) < len(self._pool.present) and not self._is_work_at_hand():
            self._drop(list(self._out))  # they wait for it, wherever they are
            self._held = None
        self._reissue()

    def _reissue(self) -> None:
        stranded = self._stranded()
        if stranded and not self._pool.able:
            self._pool.await_able()
            stranded = self._stranded()
        for part in stranded:
            worker = min(self._pool.able.values(), key=self._load)
            if not self._load(worker):
                self._since.pop(worker.address, None)  # it was idle, not late
            self._issue(part, worker)
        self._looked = time.monotonic()

    def _stranded(self) -> list[Task]:
        """Parts that nobody trusted has."""
        kept = {assignment.part for assignment in self._out.values() if assignment.worker.address in self._pool.trusted}
        return [part for part in self._open if part not in kept]

    def _is_late(self, worker: Worker) -> bool:
        blocks = [len(e.part.blocks) for e in self._out.values() if e.worker.address == worker.address]
        if not blocks or self._pool.is_suspect(worker.address):
            return False
        limit = self._stragglers.limit(self._kind, self._rates, max(blocks), worker.threads)
        return time.monotonic() - self._since[worker.address] > limit

    def _is_work_at_hand(self) -> bool:
        """Whether somebody trusted has the work, so that the others can fetch it."""
        if self._held is None:
            return False
        if self._held is self._work:
            return True
        return not self._pool.trusted.keys().isdisjoint(self._pool.holders(self._held))

    def _load(self, worker: Worker) -> float:
        out = sum(len(e.part.blocks) for e in self._out.values() if e.worker.address == worker.address)
        return out / worker.threads


def _kind(work: Work[R]) -> str:
    """Name what work does, whatever it was given to do it with."""
    function = getattr(work, "func", work)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


@contextmanager
def _large_messages() -> Iterator[None]:
    """Keep Dask from warning about coordinates of more than 10 MB in a task: they must travel every round."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "10GB"}):
        yield
