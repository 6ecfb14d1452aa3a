"""Calls in another process, for libraries in C that might loop or crash; one process serves until a call fails."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.util import Finalize
from typing import Any

import psutil

from tests.fuzz.judging import FuzzFailure

LIMIT = 10
"""Seconds of a processor for a call."""

QUEUES_CLOSE = 10
"""When multiprocessing closes queues at the end of a child, which then waits for its own children: they must know."""

_pool: ProcessPoolExecutor | None = None


def aside(story: str, call: Callable[..., str], *given: Any) -> str:
    """Return what a call returns in another process; a loop or a crash is a failure."""
    global _pool
    if _pool is None:
        _pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), spare_time)
        Finalize(None, _pool.shutdown, exitpriority=QUEUES_CLOSE + 1)
    try:
        process = psutil.Process(_pool.submit(os.getpid).result())
        return _result(process, _pool.submit(call, *given), story)
    except BaseException as error:
        if not isinstance(error, FuzzFailure) or str(error).endswith(ENDLESS):
            _end(_pool)
            _pool = None
        if isinstance(error, BrokenProcessPool):
            raise FuzzFailure(f"{story}: the process crashed") from None
        raise


def spare_time() -> None:
    """Skip fsync, since no power loss is simulated, and look for no garbage among modules, which stay."""
    import tests.fuzz.entries  # noqa: F401 - all that stays

    os.fsync = lambda handle: None
    gc.collect()
    gc.freeze()


ENDLESS = f"no end after {LIMIT} s"


def _result(process: psutil.Process, future: Future[str], story: str) -> str:
    """Wait for a call, as long as it does not take too much time of a processor."""
    began = process.cpu_times().user
    while not wait([future], 1).done:
        if process.cpu_times().user - began > LIMIT:
            raise FuzzFailure(f"{story}: {ENDLESS}")
    return future.result()


def _end(pool: ProcessPoolExecutor) -> None:
    """End a process that may hear nothing more."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown()
