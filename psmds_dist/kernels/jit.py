"""How kernels are compiled and run: options, threads, and the lock around parallel regions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numba

from psmds_dist.errors import ForkError

# OpenMP reads it when the first kernel runs. A thread that spins while it waits takes the core from the one that reads
# ahead, or from a neighbour: streaming on two busy cores took twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

Function = Callable[..., Any]

FAST_MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
"""Flags that let sums and roots vectorise; without ``nnan`` and ``ninf``, which would erase tests for NaN."""

PAIRS_A_THREAD = 250_000
"""Fewest pairs of points, about a quarter of a millisecond, for which another thread pays its start."""

_PARALLEL_REGION = threading.Lock()

_FORKED = False
"""Whether this process was forked from one in which GNU OpenMP had started its threads."""


def _note_fork() -> None:
    """Make a forked child ready: nobody in it holds the lock, and the threads of GNU OpenMP have stayed behind."""
    global _PARALLEL_REGION, _FORKED
    _PARALLEL_REGION = threading.Lock()
    _FORKED = _FORKED or _gnu_openmp()


def _gnu_openmp() -> bool:
    """Whether Numba has started its threads in this process, and they are those of GNU OpenMP."""
    try:
        if numba.threading_layer() != "omp":
            return False
    except ValueError:  # not started
        return False
    return getattr(import_module("numba.np.ufunc.omppool"), "openmp_vendor", "GNU") == "GNU"


os.register_at_fork(after_in_child=_note_fork)


def _require_threads() -> None:
    """Refuse to start a kernel where its threads are gone; Numba would end the process, for which a pool waits."""
    if _FORKED:
        raise ForkError(
            "this process was forked from one that had run kernels on GNU OpenMP, whose threads do not survive a fork: "
            "start processes with multiprocessing.get_context('spawn') or 'forkserver', or set the environment "
            "variable NUMBA_THREADING_LAYER=workqueue before the first fit."
        )


def tile(function: Function) -> Function:
    """Compile an inner loop; it is inlined into the kernels of its module."""
    compiled: Function = numba.njit(nogil=True, fastmath=FAST_MATH, error_model="numpy")(function)
    return compiled


def kernel(function: Function) -> Function:
    """Compile a parallel loop over rows, with the binary kept on disk where that is possible."""
    options = {"parallel": True, "nogil": True, "fastmath": FAST_MATH, "error_model": "numpy"}
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache: compile anew in each process
        compiled = numba.njit(**options)(function)
    return compiled


def available_threads() -> int:
    """Threads that kernels may use in this process."""
    return int(numba.config.NUMBA_NUM_THREADS)


@contextmanager
def threads_for(pairs: int) -> Iterator[None]:
    """Leave threads asleep that would find too little to do; with other processes about they cost milliseconds."""
    _require_threads()
    with _threads(min(numba.get_num_threads(), pairs // PAIRS_A_THREAD)):
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before, count = numba.get_num_threads(), max(1, count)
    if count == before:  # small epochs notice what setting them takes
        yield
        return
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


@contextmanager
def parallel_region(threads: int | None = None) -> Iterator[None]:
    """Run kernels on ``threads`` threads, one caller at a time.

    The lock is needed where Numba falls back to its workqueue layer, which aborts the process when two
    threads enter it, and costs nothing elsewhere: a kernel uses all the threads it was given.
    """
    with _PARALLEL_REGION, _threads(min(threads or available_threads(), available_threads())):
        yield
