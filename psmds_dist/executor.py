"""Where work runs: in this process, or on the workers of a Dask cluster.

The only module that imports Dask, and it does so late: small input never waits for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import psutil

from psmds_dist import rows
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.partition import groups, owners
from psmds_dist.types import InputError, Ints, WorkerError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

R = TypeVar("R")
Work = Callable[[Sequence[int]], R]

ATTEMPTS = 3
"""How often blocks are issued before the run gives up; Dask gives up an issue after four dead workers."""

PATIENCE = 60
"""Seconds that a cluster without any worker is given to get one."""


class InProcessExecutor:
    """Runs work here, on the threads of Numba.

    Parameters
    ----------
    threads : int or None
        Threads of the kernels; None takes all this process may use.
    """

    n_workers = 1
    in_process = True

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def run(
        self, work: Work[R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the result of each group, in order."""
        for part in groups(blocks, group):
            with parallel_region(self._threads):
                result = work(part)
            yield part, result

    def memory_limit(self) -> int:
        """Bytes a run may take when nobody said: most of what this machine has free."""
        return int(0.8 * psutil.virtual_memory().available)

    def memory(self) -> dict[str, tuple[int, int]]:
        """Resident bytes of each process that works, and their peak."""
        return {"in-process": _resident()}

    def peak_memory(self) -> dict[str, int]:
        """Peak resident bytes of each process that works."""
        return {name: peak for name, (_, peak) in self.memory().items()}

    def prepare(self, function: Callable[[], object]) -> None:
        """Call a function that compiles what is needed, before any clock runs."""
        function()

    def require(self, path: str, advice: str = "") -> None:
        """Whoever opened the path is the one who reads it."""

    def compute(self, collection: Any) -> None:
        """Compute a Dask collection wherever Dask computes it."""
        collection.compute()

    def close(self) -> None:
        """Let go of the rows this run has read."""
        rows.release()


class DaskExecutor:
    """Runs work on Dask workers, one task a worker and call.

    Blocks belong to workers (`psmds_dist.partition.owners`) so that their rows stay cached, but only as a
    wish: when a worker is lost its tasks run elsewhere. The work itself, with the coordinates in it, is
    computed on the cluster rather than scattered, since Dask recomputes what it has computed and cannot
    restore what was scattered.

    Parameters
    ----------
    client : distributed.Client
        A connected client; it stays open.
    """

    in_process = False

    def __init__(self, client: Client) -> None:
        if not hasattr(client, "scheduler_info"):
            raise InputError(f"client must be a connected distributed.Client, not {type(client).__name__}.")
        if client.asynchronous or client.status != "running":
            kind = "asynchronous" if client.asynchronous else client.status
            raise InputError(f"client must be connected and synchronous, but this one is {kind}.")
        self._client = client
        self._prepared: list[str] = []
        self._await_worker()
        self._require_package()

    def _await_worker(self) -> None:
        """Wait until someone can work; a task that asks for it makes an adaptive cluster start a worker."""
        try:
            self._client.submit(int, pure=False).result(timeout=PATIENCE)
        except TimeoutError:
            address = self._client.scheduler.address
            raise WorkerError(
                f"the Dask scheduler at {address} has had no free worker for {PATIENCE} seconds: start some "
                f"with 'dask worker {address}', or wait for those that are starting."
            ) from None

    def _require_package(self) -> None:
        """Refuse workers without this package: they would leave the cluster over their first task."""

        def installed() -> str:
            import psmds_dist

            return str(psmds_dist.__version__)

        here = installed()
        for address, found in self._client.run(installed, on_error="return").items():
            if isinstance(found, ImportError):
                _raise_explained(found)
            if isinstance(found, str) and found != here:
                raise WorkerError(
                    f"worker {address} has psmds-dist {found}, but this process {here}: install the same "
                    "version on both sides."
                )

    @property
    def n_workers(self) -> int:
        """Workers connected now."""
        return len(self._workers())

    def _workers(self) -> dict[str, dict[str, Any]]:
        info = self._client.scheduler_info(n_workers=-1)["workers"]
        return {str(worker["name"]): {**worker, "address": address} for address, worker in info.items()}

    def _share_out(self, blocks: Sequence[int]) -> list[tuple[str | None, list[int]]]:
        """Give each connected worker the blocks it owns; addresses change when a nanny restarts one."""
        workers = self._workers()
        if not workers:  # none at the moment: whichever comes next may take them all
            return [(None, sorted(blocks))]
        owned = owners(blocks, {name: int(worker["nthreads"]) for name, worker in workers.items()})
        return [(workers[name]["address"], own) for name, own in owned.items() if own]

    def run(
        self, work: Work[R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the result of each task as it comes; blocks of a failed task are issued again."""
        self._require_scheduler()
        held = self._send(work)
        issued = {
            self._submit(held, part, address): (part, 1)
            for address, own in self._share_out(blocks)
            for part in groups(own, group)
        }
        done: Queue[Any] = Queue()
        for future in issued:
            future.add_done_callback(done.put)
        try:
            while issued:
                future = self._next(done)
                part, attempt = issued.pop(future)
                try:
                    result = future.result()
                except Exception as error:
                    future.release()  # the client would keep it, and with the error's traceback this whole run
                    self._require_scheduler()
                    if not _is_loss(error) or attempt == ATTEMPTS:
                        _raise_explained(error)
                    again = self._submit(self._send(work), part)
                    issued[again] = part, attempt + 1
                    again.add_done_callback(done.put)
                else:
                    yield part, result
        finally:
            if issued and self._client.status == "running":
                self._client.cancel(list(issued), force=True)

    def _next(self, done: Queue[Any]) -> Any:
        """Next future that is done; a scheduler that went away would be waited for without end."""
        while True:
            try:
                return done.get(timeout=1)
            except Empty:
                self._require_scheduler()

    def _require_scheduler(self) -> None:
        """Raise when the client has given up on its scheduler, which Dask lets it try for half a minute."""
        if self._client.status in ("closing", "closed"):
            raise WorkerError(
                "the Dask scheduler is gone, or the client was closed: start the cluster again, and then this run."
            )

    def _send(self, work: Work[R]) -> Any:
        with _large_messages():
            return self._client.submit(_identity, work, key=f"psmds-work-{uuid.uuid4().hex}", pure=False)

    def _submit(self, held: Any, part: list[int], address: str | None = None) -> Any:
        where: dict[str, Any] = {"workers": [address], "allow_other_workers": True} if address else {}
        blocks = np.array(part, dtype=np.int64)  # not a list, in which Dask would look for futures
        return self._client.submit(_call, held, blocks, key=f"psmds-{uuid.uuid4().hex}", pure=False, **where)

    def memory_limit(self) -> int:
        """Bytes a worker may take when nobody said: half the smallest worker's limit, or of its machine."""
        limits = [int(worker.get("memory_limit") or 0) for worker in self._workers().values()]
        known = [limit for limit in limits if limit > 0]
        return (min(known) if known else psutil.virtual_memory().available // max(1, len(limits))) // 2

    def memory(self) -> dict[str, tuple[int, int]]:
        """Resident bytes of each worker process, and their peak."""
        if self._client.status != "running":
            return {}
        found = self._client.run(_resident, on_error="ignore")
        return {name: found[w["address"]] for name, w in self._workers().items() if w["address"] in found}

    def peak_memory(self) -> dict[str, int]:
        """Peak resident bytes of each worker process."""
        return {name: peak for name, (_, peak) in self.memory().items()}

    def prepare(self, function: Callable[[], object]) -> None:
        """Call a function here, which fills Numba's cache on disk, then on workers, present or to come."""
        function()
        self._prepared.append(f"psmds-prepare-{uuid.uuid4().hex}")
        try:
            _at_start(self._client, self._prepared[-1], function)
        except Exception as error:
            _raise_explained(error)

    def require(self, path: str, advice: str = "put it where all machines can read it") -> None:
        """Make sure that every worker sees a path.

        Raises
        ------
        InputError
            When one does not, named.
        """
        if "://" in path and not path.startswith("memory:"):
            return  # a remote store: who can reach it shows when it is read
        seen = self._client.run(os.path.exists, path, on_error="ignore")
        blind = sorted(worker for worker, sees in seen.items() if not sees)
        if blind:
            raise InputError(f"{len(blind)} of {len(seen)} workers (first {blind[0]}) cannot see {path}: {advice}.")

    def compute(self, collection: Any) -> None:
        """Compute a Dask collection on the cluster."""
        try:
            self._client.compute(collection).result()
        except Exception as error:
            _raise_explained(error)

    def close(self) -> None:
        """Let go of the rows that the workers hold; a cluster that is gone holds none.

        What `prepare` left with the scheduler goes too, lest workers without this package fail to join later.
        """
        if self._client.status != "running":
            return
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._client.run(rows.release, on_error="ignore")
            while self._prepared:
                self._client.unregister_worker_plugin(self._prepared.pop())


AnyExecutor = InProcessExecutor | DaskExecutor


def write_dask_array(array: Any, write: Callable[[int, Any], object], rows: int, executor: AnyExecutor) -> None:
    """Compute a Dask array in blocks of whole rows and hand each to ``write(block, rows)``, where it is.

    Every Dask chunk is exactly one block, so no two tasks ever write to the same chunk of a store.
    """
    from dask.array import map_blocks

    def one(part: Any, block_id: tuple[int, int]) -> Any:
        write(block_id[0], part)
        return np.zeros((1, 1), bool)

    whole = array.rechunk((rows, array.shape[1]))
    chunks = ((1,) * whole.numblocks[0], (1,))
    executor.compute(map_blocks(one, whole, dtype=bool, chunks=chunks, meta=np.zeros((0, 0), bool)))


def _identity(work: Work[R]) -> Work[R]:
    return work


def _call(work: Work[R], blocks: Ints) -> R:
    """Run work in a worker, with kernels on as many threads as the worker was given."""
    from distributed import get_worker

    with parallel_region(get_worker().state.nthreads):
        return work(blocks.tolist())


def _is_loss(error: Exception) -> bool:
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return isinstance(error, KilledWorker | CancelledError | CommClosedError)


def _raise_explained(error: Exception) -> NoReturn:
    """Raise faults of the cluster in words of this package, and a work's own as they are."""
    if _is_loss(error):
        raise WorkerError(
            f"the cluster lost its workers {ATTEMPTS} times over the same blocks ({type(error).__name__}); "
            "most often the machine is out of memory: lower memory_limit, or start fewer workers on it."
        ) from error
    if isinstance(error, ModuleNotFoundError):
        raise WorkerError(
            f"a worker cannot import {error.name!r}: install psmds-dist, in the same versions, where the workers run."
        ) from error
    raise error


def _at_start(client: Client, name: str, function: Callable[[], object]) -> None:
    """Call a function once in every worker process, present or to come."""
    from distributed import WorkerPlugin

    class AtStart(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: object) -> None:
            function()

    client.register_plugin(AtStart(), name=name)


@contextlib.contextmanager
def _large_messages() -> Iterator[None]:
    """Keep Dask from warning about coordinates of more than 10 MB in a task: they must travel every round."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "10GB"}):
        yield


def _resident() -> tuple[int, int]:
    """Resident bytes of this process and their peak, where the system tells it apart from that of its parent."""
    import resource
    import sys

    now = psutil.Process().memory_info().rss
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return now, int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return now, peak if sys.platform == "darwin" else peak * 1024


def connect(address: str | None = None, scheduler_file: str | None = None) -> Client:
    """Connect to a running scheduler.

    Raises
    ------
    InputError
        When nobody answers, or the file is not there.
    """
    from distributed import Client
    from distributed.comm import get_address_host_port

    if scheduler_file is not None and not os.path.exists(scheduler_file):
        raise InputError(
            f"scheduler file {scheduler_file!r} does not exist: start 'dask scheduler --scheduler-file "
            f"{scheduler_file}' first, on a file system that this machine shares with it."
        )
    try:
        if scheduler_file is not None:
            with open(scheduler_file, encoding="utf-8") as file:
                address = json.load(file)["address"]
        get_address_host_port(address)  # a client that stumbled over its address would never let the process end
        # waits as long as Dask's setting distributed.comm.timeouts.connect says; as the default client it
        # would change Dask's settings, and leave them changed when nobody answers
        return Client(address, set_as_default=False)
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        place = scheduler_file or address
        raise InputError(f"no Dask scheduler answers at {place}: {type(error).__name__} {error}.") from None


WORKER_ENVIRONMENT = {
    # a spinning OpenMP thread takes the core from the thread that reads ahead
    "OMP_WAIT_POLICY": "passive",
    # Dask's own value makes glibc map and unmap every large buffer: reads fall to a third
    "MALLOC_TRIM_THRESHOLD_": str(2**28),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}


@contextlib.contextmanager
def local_client(workers: int, threads: int) -> Iterator[Client]:
    """Start a cluster on this machine for the length of a with block, listening on loopback only.

    Parameters
    ----------
    workers : int
        Worker processes.
    threads : int
        Kernel threads of each.
    """
    import dask
    from distributed import Client, LocalCluster

    settings = {
        **{f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
        "distributed.scheduler.worker-ttl": "60s",
        "distributed.scheduler.no-workers-timeout": f"{PATIENCE}s",
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    with dask.config.set(settings), _interrupts_ignored():
        cluster: LocalCluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=logging.CRITICAL,  # what matters is raised; the rest is noise when the cluster ends
        )
    with cluster, Client(cluster, set_as_default=False) as client:
        _at_start(client, "psmds-interrupts", partial(signal.signal, signal.SIGINT, signal.SIG_IGN))
        yield client


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that a Ctrl-C at the terminal does not reach: the run ends them, in order.

    Workers that a nanny starts later are told by a plugin.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
