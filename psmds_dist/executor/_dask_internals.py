"""Everything that this package uses of Dask and Dask does not document, in one place.

Each function says why it is needed and what is lost without it. ``tests/executor/test_dask_internals.py`` checks each
of them against the version of Dask that is installed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor as ThreadPool
from concurrent.futures import Future as AsyncioFuture
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from distributed import Client, Worker
    from distributed.protocol.serialize import Serialized

T = TypeVar("T")


def client_status(client: Client) -> str:
    """State of a client: "running", "connecting", "closing" or "closed".

    Why: Dask reports a lost scheduler late, and in many ways. Lost without it: a run that ends in `ClusterLost`.
    """
    return str(client.status)


def scheduler_address(client: Client) -> str:
    """Address of the scheduler.

    Why: for messages. Lost without it: the address in them.
    """
    return str(client.scheduler.address)


async def identify_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Facts about each worker by address, asked for in the event loop.

    Why: `Client.scheduler_info` waits forever when the loop ends. Lost without it: noticing that the scheduler is gone
    between two rounds.
    """
    facts: dict[str, dict[str, Any]] = (await client.scheduler.identity(n_workers=-1))["workers"]
    return facts


def call_in_loop(client: Client, function: Callable[[], Awaitable[None]]) -> None:
    """Call a function in the client's event loop soon; does nothing when the loop has ended.

    Why: messages that are sent in one step of the loop leave together. Lost without it: that, and calls with a time
    limit.
    """
    client.loop.add_callback(function)


def schedule(client: Client, coroutine: Coroutine[Any, Any, T]) -> AsyncioFuture[T]:
    """Start a coroutine in the client's event loop.

    Why: direct calls. Lost without it: direct calls.
    """
    return asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)


async def call_worker(client: Client, address: str, operation: str, **message: Any) -> dict[str, Any]:
    """Answer of a worker's handler, over a direct connection where the client has them, else through the scheduler.

    Why: half of what a round by tasks costs beside the work is planning by Dask. Lost without it: direct calls.
    """
    if client.direct_to_workers:
        reply: dict[str, Any] = await getattr(client.rpc(address), operation)(**message)
        return reply
    broadcast = {"op": operation, **message}
    replies: dict[str, Any] = await client.scheduler.broadcast(msg=broadcast, workers=[address], on_error="ignore")
    found: dict[str, Any] = replies[address]
    return found


def allow_connections(client: Client, number: int) -> None:
    """Let a client have so many connections at a time, as far as it may open files; called in its event loop.

    Why: a direct call keeps its connection while the worker computes, and Dask's limit is 512. Lost without it: larger
    clusters compute a round in turns.
    """
    from distributed.utils import get_fileno_limit

    pool = client.rpc
    for _ in range(pool.limit, min(number, get_fileno_limit() // 2)):
        pool.limit += 1
        pool.semaphore.release()


def add_handler(dask_worker: Worker, operation: str, handler: Callable[..., Awaitable[dict[str, Any]]]) -> None:
    """Install an operation on a worker.

    Why: direct calls. Lost without it: direct calls; rounds go by tasks.
    """
    dask_worker.handlers[operation] = handler


def add_metric(dask_worker: Worker, name: str, metric: Callable[[Worker], int]) -> None:
    """Have a worker send a number with its heartbeats.

    Why: it comes with what the scheduler tells of its workers. Lost without it: the bytes that workers have read.
    """
    dask_worker.metrics[name] = metric


def when_told_to_end(nanny: Any, function: Callable[[], None]) -> None:
    """Call a function when a signal ends a nanny, before it closes.

    Why: one that still looks for its scheduler then shows an error of its start. Lost without it: a silent end.
    """
    close = nanny.close

    async def told(timeout: float = 5, reason: str = "") -> Any:
        if reason.startswith("signal"):
            function()
        return await close(timeout=timeout, reason=reason)

    nanny.close = told


def worker_thread_pool(dask_worker: Worker) -> ThreadPool:
    """Threads in which a worker runs tasks.

    Why: work that is called directly waits for tasks, and tasks for it. Lost without it: direct calls.
    """
    pool: ThreadPool = dask_worker.executor
    return pool


def worker_threads(dask_worker: Worker) -> int:
    """Number of threads that a worker was given.

    Why: kernels run on as many. Lost without it: the threads of a worker, since its environment does not tell.
    """
    return int(dask_worker.state.nthreads)


def is_cancelled(dask_worker: Worker, key: str) -> bool:
    """Whether nobody wants a running task any more.

    Why: a worker that is closed in the middle of a task complains. Lost without it: silence at the end of a run.
    """
    task = dask_worker.state.tasks.get(key)
    return task is None or task.state == "cancelled"


def error_reply(error: Exception) -> dict[str, Any]:
    """Serialize an error of the work with its traceback.

    Why: as tasks do it. Lost without it: direct calls.
    """
    from distributed.core import error_message

    return dict(error_message(error))


def error_from(reply: dict[str, Any]) -> BaseException:
    """Inverse of `error_reply`.

    Why: as tasks do it. Lost without it: direct calls.
    """
    from distributed.core import clean_exception

    _, error, traceback = clean_exception(**reply)
    found: BaseException = error.with_traceback(traceback)
    return found


def serialize(value: Any) -> Serialized:
    """Serialize once what goes to several workers; the receiver gets the value.

    Why: Dask serializes coordinates anew for every worker. Lost without it: direct calls.
    """
    from distributed.protocol import serialize
    from distributed.protocol.serialize import Serialized

    return Serialized(*serialize(value))


def serialized_bytes(message: Serialized) -> int:
    """Size of a message on the network.

    Why: large work is sent once and fetched by the other workers. Lost without it: that choice.
    """
    return sum(memoryview(frame).nbytes for frame in message.frames)


def reply_with(result: Any) -> Any:
    """Mark a result as something that Dask serializes on sending.

    Why: a handler replies with plain messages. Lost without it: direct calls.
    """
    from distributed.protocol import to_serialize

    return to_serialize(result)


def comm_closed_error() -> type[OSError]:
    """Class of the error for a connection that broke.

    Why: a lost worker is no error of the work. Lost without it: blocks of lost workers are not reassigned.
    """
    from distributed.comm import CommClosedError

    error: type[OSError] = CommClosedError
    return error


def heartbeat_interval(workers: int) -> float:
    """Seconds between heartbeats of a worker in a cluster of so many.

    Why: with many workers heartbeats are rare. Lost without it: large clusters would look silent with short deadlines.
    """
    from distributed.scheduler import heartbeat_interval

    return float(heartbeat_interval(workers))


def check_address(address: str) -> None:
    """Raise a ValueError for what is no address of a scheduler.

    Why: a client that fails on its address never lets the process end. Lost without it: the end of that process.
    """
    from distributed.comm import get_address_host_port

    get_address_host_port(address)


def host_of(address: str) -> str:
    """Host in the address of a scheduler.

    Why: a worker listens on the network by which it reaches its scheduler. Lost without it: that default of workers.
    """
    from distributed.comm import get_address_host

    return str(get_address_host(address))


def silence_logging() -> AbstractContextManager[None]:
    """Hide what Dask logs to streams, for the length of a with block.

    Why: one sentence explains a fault better than Dask's log. Lost without it: clean output of commands that fail.
    """
    from distributed.utils import silence_logging_cmgr

    silenced: AbstractContextManager[None] = silence_logging_cmgr(logging.CRITICAL)
    return silenced


def open_jobs(cluster: Any, jobs: int, interval: float) -> None:
    """Submit jobs of a dask-jobqueue cluster, and every ``interval`` seconds those that it has lost meanwhile.

    Why: `scale` neither raises the error of a job that is refused nor replaces one that has ended. Lost without it: the
    reason why there are no workers, and workers whose job was cancelled or reached its time limit.
    """
    from distributed.core import Status
    from tornado.ioloop import PeriodicCallback

    async def start() -> None:
        cluster.scale(jobs=jobs)
        try:
            await cluster._correct_state()
        except Exception:
            for job in cluster._created:  # else the cluster does not close
                job.status = Status.failed
            raise
        again = PeriodicCallback(lambda: cluster.scale(jobs=jobs), 1000 * interval)
        cluster.periodic_callbacks["psmds-jobs"] = again
        again.start()

    cluster.sync(start)
