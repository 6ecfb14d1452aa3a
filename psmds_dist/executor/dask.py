"""Work on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from psmds_dist.core.executor import ClusterState, Executor, MemoryUsage, Topology
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import InputError, WorkerError
from psmds_dist.data import cache
from psmds_dist.executor._dask_internals import client_status
from psmds_dist.executor.checks import PATIENCE, in_thread, missing, reading_fault, writing_fault
from psmds_dist.executor.dispatch import MapCall
from psmds_dist.executor.errors import translate_error
from psmds_dist.executor.local import process_memory
from psmds_dist.executor.stragglers import StragglerDetector
from psmds_dist.executor.tasks import register_setup
from psmds_dist.executor.workers import WORKER_TIMEOUT, WorkerPool
from psmds_dist.utils.facts import WorkerFacts, differences, facts_of_process
from psmds_dist.utils.machine import available_memory

if TYPE_CHECKING:
    from distributed import Client

R = TypeVar("R")

log = logging.getLogger(__name__)

DEADLINE = 30.0
"""Seconds that a worker may hang before its blocks are reassigned."""


class DaskExecutor(Executor):
    """Runs work on Dask workers, one task per worker and call.

    Blocks belong to workers (`psmds_dist.core.layout.owners`) so that their rows stay cached. When a worker is lost,
    hangs or lags behind, its blocks of the call are reassigned; results are the same from any worker. The work
    itself, with the coordinates in it, is the result of a task and not scattered, since Dask recomputes results and
    cannot restore scattered data.

    Parameters
    ----------
    client : distributed.Client
        A connected client; it stays open.
    deadline : float
        Seconds without a heartbeat, or of being late, after which the blocks of a worker are reassigned. A worker is
        late when it takes longer than that and four times longer than the same work took others. A single
        worker has no others: Dask's own setting distributed.scheduler.worker-ttl decides when it is given up.
    """

    def __init__(self, client: Client, deadline: float = DEADLINE) -> None:
        _require_connected(client)
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < np.inf:
            raise InputError(f"deadline must be a positive number of seconds, not {deadline!r}.")
        self._client = client
        self._dashboard = _dashboard_of(client)
        self._pool = WorkerPool(client, deadline)
        self._stragglers = StragglerDetector(deadline)
        self._plugins: list[str] = []
        self._pool.wait_for_available(WORKER_TIMEOUT)
        self._facts = self._ask_workers()
        self._pool.wait_for_free(WORKER_TIMEOUT)

    def _ask_workers(self) -> dict[str, WorkerFacts]:
        """Ask the workers what they are; refuse those without this package, which would leave with their first task."""

        def describe() -> str | WorkerFacts:  # local, so that it is pickled by value and can run without the package
            import psmds_dist

            if psmds_dist.__version__ != here:
                return str(psmds_dist.__version__)
            from psmds_dist.utils.facts import facts_of_process

            return facts_of_process()

        here = _own_version()
        began = time.monotonic()
        replies = self._pool.run_on_all(describe)
        elapsed = time.monotonic() - began
        for address, found in replies.items():
            if isinstance(found, ImportError):
                raise translate_error(found)
            if isinstance(found, str):
                raise WorkerError(
                    f"worker {address} has psmds-dist {found}, but this process {here}: install the same "
                    "version on both sides."
                )
        if not replies:
            raise self._pool.no_worker_answers()
        facts = {address: found for address, found in replies.items() if isinstance(found, WorkerFacts)}
        for difference in differences(facts.values(), facts_of_process(), elapsed):
            log.warning("%s", difference)
        return facts

    @contextlib.contextmanager
    def by_tasks(self) -> Iterator[None]:
        """Call by tasks only, which Dask can record, for the length of a with block; its client is the current one.

        Raises
        ------
        InputError
            When the scheduler lacks Bokeh, with which it draws what it records.
        """
        if not self._client.run_on_scheduler(_has_bokeh):
            raise InputError("a performance report needs Bokeh where the scheduler runs: pip install bokeh there.")
        self._pool.direct_calls = False
        try:
            with self._client.as_current():
                yield
        finally:
            self._pool.direct_calls = True

    @property
    def is_connected(self) -> bool:
        """Whether the client has its scheduler, as far as it knows."""
        return self._pool.is_connected()

    @property
    def n_workers(self) -> int:
        """Available workers; waits for a first one."""
        return len(self._pool.wait_for_available(WORKER_TIMEOUT))

    def map(
        self, work: Callable[[Sequence[int]], R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the result of each task as it comes; blocks that are lost or late are reassigned."""
        call = MapCall(self._pool, self._stragglers, work)
        with self._pool.scheduler_required():
            try:
                yield from call.results(blocks, group)
            finally:
                call.cancel()

    def memory_limit(self) -> int:
        """Half the smallest memory limit of a worker; half of what its machine has free for it where none has one."""
        limits = [worker.memory_limit for worker in self._pool.wait_for_available(WORKER_TIMEOUT).values()]
        known = [limit for limit in limits if limit > 0]
        return (min(known) if known else self._share_of_memory()) // 2

    def _share_of_memory(self) -> int:
        """Smallest share of a worker in the free memory of its host."""
        workers = Counter(one.host for one in self._facts.values())
        shares = [one.available_memory // workers[one.host] for one in self._facts.values()]
        return min(shares, default=available_memory())

    def memory_usage(self) -> dict[str, MemoryUsage]:
        """Memory of each worker process that replies."""
        if not self._pool.is_connected():
            return {}
        self._pool.refresh()
        replies = self._pool.run_on_all(process_memory)
        return {self._pool.connected[a].name: used for a, used in replies.items() if isinstance(used, MemoryUsage)}

    def broadcast(self, function: Callable[[], object]) -> None:
        """Call a function once in every worker process, present or to come, until the executor is closed."""
        self._plugins.append(f"psmds-setup-{uuid.uuid4().hex}")
        self._pool.wait_for_available()
        try:
            self._pool.broadcast(partial(register_setup, self._client, self._plugins[-1], function))
        except Exception as error:
            raise translate_error(error)  # noqa: B904 - it has its cause

    def topology(self) -> Topology:
        """Hosts and threads of the available workers."""
        workers = self._pool.wait_for_available(WORKER_TIMEOUT).values()
        hosts = {self._host(worker.address) for worker in workers}
        return Topology(len(hosts), len(workers), sum(worker.threads for worker in workers))

    def cluster_state(self) -> ClusterState:
        """Workers as the scheduler had them when it was asked last."""
        pool = self._pool
        return ClusterState(len(pool.connected), pool.lost, pool.bytes_read(), self._dashboard)

    def _host(self, address: str) -> str:
        """Host of a worker, or its address where it has joined later."""
        return self._facts[address].host if address in self._facts else address

    def check_readable(self, source: RowSource) -> None:
        """Have every worker read a row; a source without a location travels with the work."""
        if (place := source.location) is not None:
            only_here = place.startswith("memory:")
            fault = partial(missing, place) if only_here else partial(reading_fault, source)
            self._check(fault, f"read {place}", "put it where all machines can read it")

    def check_writable(self, folder: str, advice: str = "choose one that all machines share") -> None:
        """Have every worker write a file and remove it."""
        if "://" not in folder:
            self._check(partial(writing_fault, folder), f"write to {folder}", advice)

    def _check(self, fault: Callable[[], str | None], what: str, advice: str) -> None:
        """Refuse when a worker has a fault."""
        self._pool.wait_for_available()
        replies = self._pool.run_on_all(in_thread, fault, timeout=max(PATIENCE, self._pool.deadline))
        faults = {address: reason for address, reason in sorted(replies.items()) if isinstance(reason, str)}
        for address, reason in faults.items():
            raise InputError(
                f"{len(faults)} of {len(replies)} workers (first {address} on {self._host(address)}) cannot {what} "
                f"({reason}): {advice}."
            )

    def compute(self, collection: Any) -> Any:
        """Compute a Dask collection on the cluster, scheduled by Dask alone."""
        try:
            return self._client.compute(collection).result()
        except Exception as error:
            raise translate_error(error)  # noqa: B904 - it has its cause

    def close(self) -> None:
        """Free the rows that the workers cache, and remove setup functions: workers without this package may join."""
        self._pool.last_results.clear()
        self._pool.keep_alive_tasks.clear()
        if not self._pool.is_connected():
            return
        with contextlib.suppress(OSError, RuntimeError, TimeoutError, ValueError):  # a new scheduler knows no plugin
            self._pool.refresh()
            freed = self._pool.run_on_all(cache.clear_row_cache)
            self._pool.run_later(cache.clear_row_cache, self._pool.connected.keys() - freed.keys())
            while self._plugins:
                self._pool.broadcast(partial(self._client.unregister_worker_plugin, self._plugins.pop()))


def _own_version() -> str:
    import psmds_dist

    return str(psmds_dist.__version__)


def _dashboard_of(client: Client) -> str:
    """Address of the scheduler's dashboard; empty where it has none."""
    with contextlib.suppress(KeyError, OSError):
        return str(client.dashboard_link or "")
    return ""


def _has_bokeh() -> bool:
    return importlib.util.find_spec("bokeh") is not None


def _require_connected(client: Client) -> None:
    if not hasattr(client, "scheduler_info"):
        raise InputError(f"client must be a connected distributed.Client, not {type(client).__name__}.")
    state = "asynchronous" if client.asynchronous else client_status(client)
    if state != "running":
        raise InputError(f"client must be connected and synchronous, but this one is {state}.")
