"""Work on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import psutil

from psmds_dist.core.types import InputError, WorkerError
from psmds_dist.data import cache
from psmds_dist.executor.dispatch import MapCall
from psmds_dist.executor.errors import translate_error
from psmds_dist.executor.local import resident
from psmds_dist.executor.stragglers import StragglerDetector
from psmds_dist.executor.tasks import at_start
from psmds_dist.executor.workers import PATIENCE, WorkerPool

if TYPE_CHECKING:
    from distributed import Client

R = TypeVar("R")

DEADLINE = 30.0
"""Seconds that a worker may hang before its blocks go to others."""


class DaskExecutor:
    """Runs work on Dask workers, one task a worker and call.

    Blocks belong to workers (`psmds_dist.core.layout.owners`) so that their rows stay cached. When a worker is lost,
    hangs or lags behind, its blocks of the call go to others; which of them answers makes no difference to the
    result. The work itself, with the coordinates in it, is computed on the cluster rather than scattered, since
    Dask recomputes what it has computed and cannot restore what was scattered.

    Parameters
    ----------
    client : distributed.Client
        A connected client; it stays open.
    deadline : float
        Seconds a worker may go without a sign of life, or be late, before its blocks go to others. Late is who takes
        longer than that and also four times longer than the same work took others. A single worker has no others:
        Dask's own setting distributed.scheduler.worker-ttl decides when it is given up.
    """

    in_process = False

    def __init__(self, client: Client, deadline: float = DEADLINE) -> None:
        if not hasattr(client, "scheduler_info"):
            raise InputError(f"client must be a connected distributed.Client, not {type(client).__name__}.")
        if client.asynchronous or client.status != "running":
            kind = "asynchronous" if client.asynchronous else client.status
            raise InputError(f"client must be connected and synchronous, but this one is {kind}.")
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < np.inf:
            raise InputError(f"deadline must be a positive number of seconds, not {deadline!r}.")
        self._client = client
        self._pool = WorkerPool(client, deadline)
        self._stragglers = StragglerDetector(deadline)
        self._prepared: list[str] = []
        self._pool.await_able(PATIENCE)
        self._require_package()
        self._pool.await_free(PATIENCE)

    def _require_package(self) -> None:
        """Refuse workers without this package: they would leave the cluster over their first task."""

        def installed() -> str:
            import psmds_dist

            return str(psmds_dist.__version__)

        here = installed()
        answers = self._pool.ask(installed)
        for address, found in answers.items():
            if isinstance(found, ImportError):
                translate_error(found)
            if isinstance(found, str) and found != here:
                raise WorkerError(
                    f"worker {address} has psmds-dist {found}, but this process {here}: install the same "
                    "version on both sides."
                )
        if not answers:
            raise self._pool.nobody_answers()

    @property
    def n_workers(self) -> int:
        """Workers that take part now; a cluster that is between workers is given time to get one."""
        return len(self._pool.await_able(PATIENCE))

    def run(
        self, work: Callable[[Sequence[int]], R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the result of each task as it comes; blocks that do not come back are issued again."""
        call = MapCall(self._pool, self._stragglers, work)
        with self._pool.scheduler_required():
            try:
                yield from call.results(blocks, group)
            finally:
                call.end()

    def memory_limit(self) -> int:
        """Bytes a worker may take when nobody said: half the smallest worker's limit, or of its machine."""
        limits = [worker.memory_limit for worker in self._pool.await_able(PATIENCE).values()]
        known = [limit for limit in limits if limit > 0]
        return (min(known) if known else psutil.virtual_memory().available // len(limits)) // 2

    def memory(self) -> dict[str, tuple[int, int]]:
        """Resident bytes of each worker process that answers, and their peak."""
        if self._client.status != "running":
            return {}
        self._pool.look()
        found = self._pool.ask(resident)
        return {self._pool.present[a].name: pair for a, pair in found.items() if isinstance(pair, tuple)}

    def peak_memory(self) -> dict[str, int]:
        """Peak resident bytes of each worker process that answers."""
        return {name: peak for name, (_, peak) in self.memory().items()}

    def prepare(self, function: Callable[[], object]) -> None:
        """Call a function here, which fills Numba's cache on disk, then on workers, present or to come."""
        function()
        self._prepared.append(f"psmds-prepare-{uuid.uuid4().hex}")
        self._pool.await_able()
        try:
            self._pool.tell(partial(at_start, self._client, self._prepared[-1], function))
        except Exception as error:
            translate_error(error)

    def require(self, path: str, advice: str = "put it where all machines can read it") -> None:
        """Make sure that every worker sees a path.

        Raises
        ------
        InputError
            When one does not, named.
        """
        if "://" in path and not path.startswith("memory:"):
            return  # a remote store: who can reach it shows when it is read
        self._pool.await_able()
        seen = self._pool.ask(os.path.exists, path)
        blind = sorted(worker for worker, sees in seen.items() if sees is False)
        if blind:
            raise InputError(f"{len(blind)} of {len(seen)} workers (first {blind[0]}) cannot see {path}: {advice}.")

    def compute(self, collection: Any) -> Any:
        """Compute a Dask collection on the cluster, where Dask alone looks after it."""
        try:
            return self._client.compute(collection).result()
        except Exception as error:
            translate_error(error)

    def close(self) -> None:
        """Let go of the rows that the workers hold; a cluster that is gone holds none.

        What `prepare` left with the scheduler goes too, lest workers without this package fail to join later.
        """
        self._pool.lingering.clear()
        self._pool.stays.clear()
        if self._client.status != "running":
            return
        with contextlib.suppress(OSError, RuntimeError, TimeoutError, ValueError):  # a new scheduler knows no plugin
            self._pool.look()
            released = self._pool.ask(cache.clear_row_cache)
            self._pool.leave(cache.clear_row_cache, self._pool.present.keys() - released.keys())
            while self._prepared:
                self._pool.tell(partial(self._client.unregister_worker_plugin, self._prepared.pop()))
