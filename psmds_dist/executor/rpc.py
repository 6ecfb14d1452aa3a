"""Work that a worker is asked for directly: half of what a round by tasks costs beside the work is Dask's planning.

The scheduler passes question and answer on, unless the client can reach workers (``direct_to_workers``), and neither
plans nor counts them. So whoever asks must look after lost workers, and must leave a task with each
(`WorkerPool.keep`): by tasks adaptive clusters and idle timeouts tell who is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from psmds_dist.executor.tasks import Work, compute

if TYPE_CHECKING:
    from distributed import Client, Worker
    from distributed.protocol.serialize import Serialized

R = TypeVar("R")

OPERATION = "psmds-work"
"""What a worker is asked for."""


def register_handler(dask_worker: Worker) -> bool:
    """Teach a worker to answer; an error of the work is an answer too."""
    from distributed.core import error_message
    from distributed.protocol import to_serialize

    async def answer(work: Work[Any], blocks: list[int]) -> dict[str, Any]:
        loop, threads = asyncio.get_running_loop(), dask_worker.state.nthreads
        # what is raised here, and not by the work, is a loss: a worker that closes takes no more work
        return await loop.run_in_executor(dask_worker.executor, outcome, work, blocks, threads)

    def outcome(work: Work[Any], blocks: list[int], threads: int) -> dict[str, Any]:
        try:
            return {"status": "OK", "result": to_serialize(compute(work, blocks, threads))}
        except Exception as error:
            return dict(error_message(error))

    dask_worker.handlers[OPERATION] = answer
    return True


class RpcFuture(Generic[R]):
    """The answer of one worker, to be had in the manner of a Dask future.

    Parameters
    ----------
    client : distributed.Client
        Who asks.
    address : str
        Who is asked.
    work : distributed.protocol.serialize.Serialized
        What to do with blocks, packed.
    blocks : sequence of int
        The blocks.
    """

    def __init__(self, client: Client, address: str, work: Serialized, blocks: Sequence[int]) -> None:
        self.status = "pending"
        """"error" once `result` has raised an error of the work; other errors are losses on the way."""

        question = _ask(client, address, work, list(blocks))
        self._answer = asyncio.run_coroutine_threadsafe(question, client.loop.asyncio_loop)

    def add_done_callback(self, function: Callable[[RpcFuture[R]], object]) -> None:
        """Call a function with this answer once it is there, or lost."""
        self._answer.add_done_callback(lambda _: function(self))

    def result(self, timeout: float | None = None) -> R:
        """Return what the work returned, or raise what it raised, or whatever kept the answer from coming."""
        from distributed.core import clean_exception

        answer = self._answer.result(timeout)
        if answer["status"] == "error":
            self.status = "error"
            _, error, traceback = clean_exception(**answer)
            raise error.with_traceback(traceback)
        found: R = answer["result"]
        return found

    def release(self) -> None:
        """Let go of the answer, which knows this: else it, or an error with the whole call, waits for the collector."""
        del self._answer

    def cancel(self) -> None:
        """Wait no longer; the worker finishes what it has begun."""
        self._answer.cancel()
        self.release()


async def _ask(client: Client, address: str, work: Serialized, blocks: list[int]) -> dict[str, Any]:
    question = {"work": work, "blocks": blocks}
    if client.direct_to_workers:  # whoever made the client says that it can reach them
        reached: dict[str, Any] = await getattr(client.rpc(address), OPERATION)(**question)
        return reached
    message = {"op": OPERATION, **question}
    answers = await client.scheduler.broadcast(msg=message, workers=[address], on_error="ignore")
    answer: dict[str, Any] = answers[address]
    return answer
