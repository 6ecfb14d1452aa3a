"""The workers of a cluster: which of them can be given work, called directly or told something."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from psmds_dist.core.types import ClusterLost
from psmds_dist.executor import _dask_internals as internals
from psmds_dist.executor.errors import ATTEMPTS
from psmds_dist.executor.rpc import BYTES_READ, register_handler
from psmds_dist.executor.stragglers import HEARTBEATS, silent_workers
from psmds_dist.executor.tasks import keep_alive, probe

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")

log = logging.getLogger(__name__)

WORKER_TIMEOUT = 60
"""Seconds to wait for a first free worker before a run begins."""

RETRY_DELAY = 0.5
"""Seconds until a broadcast in which a worker died is repeated."""

REFRESH_INTERVAL = 1.0
"""Seconds for which the list of workers counts as current: a worker that is lost meanwhile is noticed anyway."""

TASK_INTERVAL = 5.0
"""Seconds of direct calls after a call by tasks, until the scheduler must see tasks again."""

LOG_DELAY = 2
"""Seconds of waiting for workers until the wait is logged."""


class Worker(NamedTuple):
    """A worker process as the scheduler knows it; a restart keeps its name and changes its address."""

    name: str
    address: str
    threads: int
    memory_limit: int
    status: str
    last_seen: float
    bytes_read: int | None = None


class WorkerPool:
    """The workers of a client's cluster, and what is known about each of them.

    A worker is silent once its last heartbeat is `deadline` seconds older than that of another worker: it hangs, or its
    machine is gone. A worker is suspect from missing a deadline until it runs a probe, which queues behind the
    work that it has. Neither gets blocks, and nothing waits for it.

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    deadline : float
        Seconds.
    """

    def __init__(self, client: Client, deadline: float) -> None:
        self.client = client
        self.deadline = deadline
        self.connected: dict[str, Worker] = {}
        """Workers that the scheduler has, by address."""

        self.last_results: dict[str, Future] = {}
        """Last result of each worker, released with the next call: a message would delay the next one by 10 ms."""

        self.last_task_call = -math.inf
        """Time of the last call by tasks."""

        self.direct_calls = True
        """Whether workers may be called directly."""

        self.with_handler: set[str] = set()
        """Addresses of workers that can be called directly; after a loss another worker may have one of them."""

        self.without_handler: set[str] = set()
        """Addresses of workers whose version of Dask takes no handler."""

        self.keep_alive_tasks: dict[str, Future] = {}
        """Tasks by which the scheduler sees that workers are needed, by address."""

        self._refreshed_at = -math.inf
        self._kept_alive_at = -math.inf
        self.lost = 0
        """Workers that have left the cluster."""

        self._read: dict[str, tuple[int, int]] = {}
        """Bytes that each worker had read when it took the handler, and when last heard of."""

        self._silent: set[str] = set()
        self._suspects: dict[str, Future] = {}

    def refresh(self) -> dict[str, Worker]:
        """Ask the scheduler for its workers and return those `available`."""
        self.require_scheduler()
        if self.is_connected():
            with suppress(OSError):  # the client is about to notice that its scheduler is gone
                found = self._in_loop(self._identify)
                self._update({address: _worker(address, facts) for address, facts in found.items()})
        self._suspects = {a: f for a, f in self._suspects.items() if a in self.connected and not f.done()}
        self._update_silent()
        self._refreshed_at = time.monotonic()
        return self.available

    def _update(self, found: dict[str, Worker]) -> None:
        """Take in the workers that the scheduler has now, and count those that it has no more."""
        for address in self.connected.keys() - found.keys():
            self.lost += 1
            log.debug("worker %s has left the cluster", address, extra=_event("worker_lost", address))
        self.connected = found
        for address, (first, last) in self._read.items():
            if address in found:
                self._read[address] = first, max(last, found[address].bytes_read or 0)  # a heartbeat may be old

    def bytes_read(self) -> int | None:
        """Bytes that all workers have read since they took the handler; None while none has."""
        return sum(last - first for first, last in list(self._read.values())) if self._read else None

    async def _identify(self) -> dict[str, dict[str, Any]]:
        return await internals.identify_workers(self.client)

    def current(self) -> dict[str, Worker]:
        """Available workers by name, where the list of workers is current; else none."""
        return self.available if time.monotonic() - self._refreshed_at < REFRESH_INTERVAL else {}

    def holders(self, future: Future) -> set[str]:
        """Addresses of the workers that hold a result; none when the scheduler does not answer."""
        try:
            [found] = self.client.who_has([future]).values()
        except internals.comm_closed_error():
            return set()
        return set(found)

    def _update_silent(self) -> None:
        """Compare heartbeats with each other, all by the scheduler's clock."""
        longest = max(self.deadline, HEARTBEATS * internals.heartbeat_interval(len(self.connected)))
        silent = silent_workers({a: worker.last_seen for a, worker in self.connected.items()}, longest)
        for address in silent - self._silent:
            event = _event("worker_silent", address)
            log.info("no heartbeat from worker %s for %.0f s; reassigning its blocks", address, longest, extra=event)
        self._silent = silent

    @property
    def responsive(self) -> dict[str, Worker]:
        """Workers that are neither silent nor suspect, by address; suspects only where there is no other worker."""
        beating = {address: worker for address, worker in self.connected.items() if address not in self._silent}
        return {a: worker for a, worker in beating.items() if a not in self._suspects} or beating

    @property
    def available(self) -> dict[str, Worker]:
        """Workers that can be given blocks, by name."""
        return {worker.name: worker for worker in self.responsive.values() if worker.status == "running"}

    def can_call_directly(self) -> bool:
        """Whether all available workers can be called directly now; installs the handler on new ones."""
        if not self.direct_calls or time.monotonic() - self.last_task_call > TASK_INTERVAL:
            return False
        addresses = {worker.address for worker in self.available.values()}
        if not addresses <= self.with_handler | self.without_handler:
            self._install_handlers()
        return addresses <= self.with_handler

    def _install_handlers(self) -> None:
        replies = self.run_on_all(register_handler)
        read = {address: reply for address, reply in replies.items() if isinstance(reply, int)}
        self.with_handler = set(read)
        self._read = {address: (number, number) for address, number in read.items()} | self._read
        failed = {a: e for a, e in replies.items() if isinstance(e, Exception) and not isinstance(e, OSError)}
        self.without_handler = set(failed)
        for address, error in failed.items():
            log.info("worker %s cannot be called directly (%r); its rounds go by tasks", address, error)

    def forget_handlers(self) -> None:
        """Install handlers again before the next direct call: another worker may have the address of a lost one."""
        self.with_handler.clear()
        self.without_handler.clear()

    def keep_alive(self) -> None:
        """Keep a task on workers that are called directly, so that the scheduler closes none of them as idle."""
        addresses = {worker.address for worker in self.available.values()}
        if time.monotonic() - self._kept_alive_at > TASK_INTERVAL or addresses != self.keep_alive_tasks.keys():
            self._kept_alive_at = time.monotonic()
            self.keep_alive_tasks = {a: self.submit(keep_alive, 2 * TASK_INTERVAL, workers=[a]) for a in addresses}

    def suspect(self, address: str) -> None:
        """Give a worker no more blocks until it runs a probe."""
        if address in self._suspects or address in self._silent:
            return
        event = _event("worker_late", address)
        log.info("worker %s missed its deadline; reassigning its blocks until it answers", address, extra=event)
        key = f"psmds-probe-{uuid.uuid4().hex}"
        self._suspects[address] = self.submit(probe, key=key, workers=[address])

    def is_suspect(self, address: str) -> bool:
        """Whether a worker has missed a deadline and not run a probe since."""
        return address in self._suspects

    def submit(self, function: Callable[..., Any], *args: Any, **how: Any) -> Future:
        """Submit a task."""
        with self.scheduler_required():
            return self.client.submit(function, *args, pure=False, **how)

    @contextmanager
    def scheduler_required(self) -> Iterator[None]:
        """Raise `ClusterLost` for any error of a client that has lost its scheduler, or was closed."""
        try:
            yield
        except Exception:  # Dask raises late, and nothing for an event loop that has ended
            self.require_scheduler()
            raise

    def require_scheduler(self) -> None:
        """Raise when the client has given up on its scheduler, which it tries to reach for half a minute."""
        if internals.client_status(self.client) in ("closing", "closed"):
            raise ClusterLost(
                "the Dask scheduler is gone, or the client was closed: start the cluster again, then rerun the same "
                "command."
            )

    def is_connected(self) -> bool:
        """Whether the client has its scheduler, as far as it knows."""
        return internals.client_status(self.client) == "running"

    def wait_for_available(self, timeout: float = math.inf) -> dict[str, Worker]:
        """Wait for an available worker; a task makes an adaptive cluster start one.

        Raises
        ------
        ClusterLost
            When there is none after ``timeout`` seconds, or Dask's own distributed.scheduler.no-workers-timeout.
        """
        began = time.monotonic()
        task: Future | None = None
        logged = False
        while not self.refresh():
            waited = time.monotonic() - began
            if waited > timeout or (task is not None and task.status == "error"):
                raise self._no_free_worker(waited)
            if waited > LOG_DELAY and not logged:
                log.info("no worker is connected to %s; waiting for one", self._address())
                logged = True
            if task is None or task.done():
                task = self.submit(int)
            time.sleep(0.1)
        return self.available

    def wait_for_free(self, timeout: float) -> None:
        """Wait until an available worker runs a task.

        Raises
        ------
        ClusterLost
            When none does in ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        submitted_to: list[str] = []
        logged = False
        while (left := end - time.monotonic()) > 0:
            addresses = sorted(worker.address for worker in self.wait_for_available(left).values())
            if addresses != submitted_to:  # a task for workers that are gone would wait forever
                task, submitted_to = self.submit(int, workers=addresses), addresses
            try:
                task.result(timeout=min(LOG_DELAY, left))
            except (TimeoutError, CancelledError):
                if not logged:
                    log.info("all workers of %s are busy; waiting for one", self._address())
                logged = True
            else:
                return
        raise self._no_free_worker(timeout)

    def _no_free_worker(self, seconds: float) -> ClusterLost:
        return ClusterLost(
            f"the Dask scheduler at {self._address()} has had no free worker for {seconds:.0f} seconds: start some "
            f"with 'dask worker {self._address()}', or wait for those that are starting."
        )

    def no_worker_answers(self) -> ClusterLost:
        """Error for a cluster whose workers all hang."""
        return ClusterLost(
            f"none of the {len(self.connected)} workers of the Dask scheduler at {self._address()} has answered in "
            f"{self.deadline:g} seconds: check whether they hang, and restart them."
        )

    def _address(self) -> str:
        return internals.scheduler_address(self.client)

    def run_in_loop(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop, so that all messages it sends leave together."""

        async def call() -> None:
            function()

        self._in_loop(call)

    def _in_loop(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Wait for a coroutine in the event loop, which may end first: Dask's ``sync`` would then wait forever.

        And `asyncio.run_coroutine_threadsafe` would leave a coroutine that is never awaited in a loop that has ended.
        """

        async def run() -> None:
            try:
                reply.set_result(await function(*args))
            except asyncio.CancelledError:  # a loop that ends cancels its coroutines; this process goes on
                reply.set_exception(CancelledError())
            except Exception as error:
                reply.set_exception(error)

        reply: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self.scheduler_required():
            internals.call_in_loop(self.client, run)
            while not wait([reply], timeout=LOG_DELAY).done:
                self.require_scheduler()
            return reply.result()

    def run_on_all(self, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> dict[str, Any]:
        """Results of a function in each available worker, by address, errors among them.

        Workers that do not reply within ``timeout`` seconds, by default the deadline, are suspect.
        """
        addresses = [worker.address for worker in self.available.values()]
        found: dict[str, Any] = {}
        for address, reply in zip(
            addresses, self._in_loop(self._replies, addresses, timeout, function, *args), strict=True
        ):
            if isinstance(reply, TimeoutError):
                self.suspect(address)
            elif isinstance(reply, dict):
                found |= reply
        return found

    async def _replies(
        self, addresses: list[str], timeout: float | None, function: Callable[..., Any], *args: Any
    ) -> list[Any]:
        """Replies from the event loops of workers, which are free while they compute."""

        async def one(address: str) -> Any:
            reply = self.client.run(function, *args, workers=[address], on_error="return")
            return await asyncio.wait_for(reply, self.deadline if timeout is None else timeout)

        return await asyncio.gather(*map(one, addresses), return_exceptions=True)

    def run_later(self, function: Callable[[], object], addresses: Iterable[str]) -> None:
        """Run a function on workers once they are back; another worker takes the task of one that never is."""
        from distributed import fire_and_forget

        for address in addresses:
            fire_and_forget(self.submit(function, workers=[address], allow_other_workers=True))

    def broadcast(self, order: Callable[[], Awaitable[object]]) -> None:
        """Await an order to all workers, and wait for those that are responsive.

        When a worker dies meanwhile the scheduler closes the connection, so the order, which must be idempotent, is
        repeated.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                self._broadcast_once(order)
                break
            except internals.comm_closed_error():
                if not left:
                    raise
                time.sleep(RETRY_DELAY)
                self.refresh()

    def _broadcast_once(self, order: Callable[[], Awaitable[object]]) -> None:
        addresses = [worker.address for worker in self.available.values()]

        async def run() -> list[Any]:
            done = asyncio.ensure_future(order())
            done.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio logs it
            replies = await self._replies(addresses, None, bool)
            all_reply = len(addresses) == len(self.connected) and not any(isinstance(r, TimeoutError) for r in replies)
            await asyncio.wait({done}, timeout=None if all_reply else 0)
            if done.done():
                done.result()
            return replies

        for address, reply in zip(addresses, self._in_loop(run), strict=True):
            if isinstance(reply, TimeoutError):
                self.suspect(address)


def _event(name: str, address: str) -> dict[str, Any]:
    """Name and fields of a log record about a worker, for `psmds_dist.utils.json_log`."""
    return {"event": name, "fields": {"worker": address}}


def _worker(address: str, facts: dict[str, Any]) -> Worker:
    limit = int(facts.get("memory_limit") or 0)
    read = facts.get("metrics", {}).get(BYTES_READ)
    return Worker(str(facts["name"]), address, int(facts["nthreads"]), limit, facts["status"], facts["last_seen"], read)
