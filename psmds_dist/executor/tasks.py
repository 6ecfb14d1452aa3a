"""What runs in the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from psmds_dist.core.types import Ints
from psmds_dist.kernels.jit import parallel_region

if TYPE_CHECKING:
    from distributed import Client
    from distributed.protocol.serialize import Serialized

R = TypeVar("R")
Work = Callable[[Sequence[int]], R]


STAY_STEP = 0.1
"""Seconds between two looks at whether a task that stays is still asked for."""


def identity(work: Work[R]) -> Work[R]:
    """Put work on the cluster in a way that Dask can do again, unlike scattering."""
    return work


def packed(work: Work[R]) -> Serialized:
    """Make work ready to travel, once for however many workers."""
    from distributed.protocol import serialize
    from distributed.protocol.serialize import Serialized

    return Serialized(*serialize(work))


def weight(parcel: Serialized) -> int:
    """Bytes that packed work takes on its way."""
    from distributed.utils import nbytes

    return sum(map(nbytes, parcel.frames))


def compute(work: Work[R], blocks: list[int], threads: int) -> R:
    """Run work with kernels on so many threads."""
    with parallel_region(threads):
        return work(blocks)


def call(work: Work[R], blocks: Ints) -> R:
    """Run work in a worker's task, with kernels on as many threads as the worker was given."""
    from distributed import get_worker

    return compute(work, blocks.tolist(), get_worker().state.nthreads)


def probe() -> None:
    """Come back once nothing else of ours runs in this worker."""
    with parallel_region():
        pass


def stay(seconds: float) -> None:
    """Make the scheduler see this worker at work for some seconds, without taking one of its threads.

    It ends when nobody asks for it any more: a worker that is closed in the middle of a task complains.
    """
    from distributed import get_worker, secede

    worker, end = get_worker(), time.monotonic() + seconds
    task = worker.state.tasks[worker.get_current_task()]
    secede()
    while task.state != "cancelled" and time.monotonic() < end:
        time.sleep(STAY_STEP)


def at_start(client: Client, name: str, function: Callable[[], object]) -> Any:
    """Call a function once in every worker process, present or to come."""
    from distributed import WorkerPlugin

    class AtStart(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: object) -> None:
            function()

    return client.register_plugin(AtStart(), name=name)
