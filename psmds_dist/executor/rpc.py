"""Direct calls of workers: half of what a round by tasks costs beside the work is planning by Dask.

The scheduler passes messages on, unless the client can reach workers (``direct_to_workers``), but neither plans nor
counts direct calls. So the caller must handle lost workers, and keep a task on each worker (`WorkerPool.keep_alive`):
adaptive clusters and idle timeouts count tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from psmds_dist.data.cache import bytes_read
from psmds_dist.executor import _dask_internals as internals
from psmds_dist.executor.tasks import Work, run_work

if TYPE_CHECKING:
    from distributed import Client, Worker
    from distributed.protocol.serialize import Serialized

R = TypeVar("R")

OPERATION = "psmds-work"
"""Name of the handler."""

BYTES_READ = "psmds-bytes-read"
"""Name of the number that workers send with their heartbeats."""


def register_handler(dask_worker: Worker) -> int:
    """Install the handler of direct calls on a worker, and return the bytes of rows that its process has read so far.

    The handler replies with the result or the error of the work.
    """
    pool = internals.worker_thread_pool

    async def handle(work: Work[Any], blocks: list[int]) -> dict[str, Any]:
        loop, threads = asyncio.get_running_loop(), internals.worker_threads(dask_worker)
        # an error here, and not in the work, is a loss: a worker that closes takes no more work
        return await loop.run_in_executor(pool(dask_worker), _reply, work, blocks, threads)

    pool(dask_worker)
    internals.add_handler(dask_worker, OPERATION, handle)
    internals.add_metric(dask_worker, BYTES_READ, _bytes_read)
    return bytes_read()


def _bytes_read(dask_worker: Worker) -> int:
    return bytes_read()


def _reply(work: Work[Any], blocks: list[int], threads: int) -> dict[str, Any]:
    try:
        return {"status": "OK", "result": internals.reply_with(run_work(work, blocks, threads))}
    except Exception as error:
        return internals.error_reply(error)


class RpcFuture(Generic[R]):
    """Result of a direct call, with the methods of a Dask future.

    Parameters
    ----------
    client : distributed.Client
        The caller.
    address : str
        The worker.
    work : distributed.protocol.serialize.Serialized
        Work on blocks, serialized.
    blocks : sequence of int
        The blocks.
    """

    def __init__(self, client: Client, address: str, work: Serialized, blocks: Sequence[int]) -> None:
        self.status = "pending"
        """"error" once `result` has raised an error of the work; other errors are losses on the way."""

        call = internals.call_worker(client, address, OPERATION, work=work, blocks=list(blocks))
        self._reply = internals.schedule(client, call)

    def add_done_callback(self, function: Callable[[RpcFuture[R]], object]) -> None:
        """Call a function with this future once the reply is there, or lost."""
        self._reply.add_done_callback(lambda _: function(self))

    def result(self, timeout: float | None = None) -> R:
        """Return what the work returned, or raise what it raised, or the error that lost the reply."""
        reply = self._reply.result(timeout)
        if reply["status"] == "error":
            self.status = "error"
            raise internals.error_from(reply)
        found: R = reply["result"]
        return found

    def release(self) -> None:
        """Drop the reply, which refers to this future: the cycle would keep it until garbage is collected."""
        del self._reply

    def cancel(self) -> None:
        """Stop waiting; the worker finishes what it has begun."""
        self._reply.cancel()
        self.release()
