"""Functions that run on workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from psmds_dist.core.types import Ints
from psmds_dist.executor._dask_internals import is_cancelled, worker_threads
from psmds_dist.kernels.jit import parallel_region

if TYPE_CHECKING:
    from distributed import Client

R = TypeVar("R")
Work = Callable[[Sequence[int]], R]


KEEP_ALIVE_STEP = 0.1
"""Seconds between two checks whether a keep-alive task was cancelled."""


def identity(work: Work[R]) -> Work[R]:
    """Put work on the cluster as a result, which Dask can recompute, unlike scattered data."""
    return work


def run_work(work: Work[R], blocks: Sequence[int], threads: int | None = None) -> R:
    """Call work with its kernels on so many threads, one caller of a process at a time.

    Parameters
    ----------
    work : callable
        Work on blocks, as `psmds_dist.Executor.map` takes it.
    blocks : sequence of int
        Numbers of blocks.
    threads : int, optional
        Threads of Numba; by default all that this process may use.
    """
    with parallel_region(threads):
        return work(blocks)


def run_task(work: Work[R], blocks: Ints) -> R:
    """Run work in a task, with kernels on as many threads as the worker was given."""
    from distributed import get_worker

    return run_work(work, blocks.tolist(), worker_threads(get_worker()))


def probe() -> None:
    """Return once no other work of this package runs in the worker."""
    with parallel_region():
        pass


def keep_alive(seconds: float) -> None:
    """Keep the worker busy in the eyes of the scheduler, without taking one of its threads, until cancelled."""
    from distributed import get_worker, secede

    worker, end = get_worker(), time.monotonic() + seconds
    key = worker.get_current_task()
    secede()
    while not is_cancelled(worker, key) and time.monotonic() < end:
        time.sleep(KEEP_ALIVE_STEP)


def register_setup(client: Client, name: str, function: Callable[[], object]) -> Any:
    """Have a function called once in every worker process, present or to come."""
    from distributed import WorkerPlugin

    class Setup(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: object) -> None:
            function()

    return client.register_plugin(Setup(), name=name)
