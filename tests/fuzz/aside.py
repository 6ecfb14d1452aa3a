"""Calls in another process, for libraries in C that might loop or crash; one process serves until a call fails."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tests.fuzz.judging import FuzzFailure

LIMIT = 10
"""Seconds for a call."""

_pool: ProcessPoolExecutor | None = None


def aside(story: str, call: Callable[..., str], *given: Any) -> str:
    """Return what a call returns in another process; a loop or a crash is a failure."""
    global _pool
    if _pool is None:
        _pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        _pool.submit(os.getpid).result()  # its start does not count
    try:
        return _pool.submit(call, *given).result(LIMIT)
    except (TimeoutError, BrokenProcessPool) as error:
        _end(_pool)
        _pool = None
        what = f"no end after {LIMIT} s" if isinstance(error, TimeoutError) else "the process crashed"
        raise FuzzFailure(f"{story}: {what}") from None


def _end(pool: ProcessPoolExecutor) -> None:
    """End a process that may hear nothing more."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown()
