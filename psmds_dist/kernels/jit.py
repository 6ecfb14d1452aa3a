"""How kernels are compiled and run: options, threads, and the lock around parallel regions."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, NullCache
from numba.extending import overload

from psmds_dist.core.errors import ForkError
from psmds_dist.core.types import Rows
from psmds_dist.utils.machine import usable_cpus
from psmds_dist.utils.turns import Turn

# OpenMP reads it when the first kernel runs. A thread that spins while it waits takes the core from the one that reads
# ahead, or from a neighbour: streaming on two busy cores took twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

Function = Callable[..., Any]

FAST_MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}
"""Flags that let sums and roots vectorise; without ``nnan`` and ``ninf``, which would erase tests for NaN."""

COMPILED: dict[str, Any] = {"nogil": True, "fastmath": FAST_MATH, "error_model": "numpy"}
"""How functions are compiled that kernels call."""

_OPTIONS = {**COMPILED, "no_cfunc_wrapper": True}

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


log = logging.getLogger(__name__)


def _is_named(kind: Any) -> bool:
    """Whether a type of Numba is that of named tuples of some class."""
    return isinstance(kind, numba.types.BaseNamedTuple)


@cache
def _source_of(owner: type) -> str:
    """Source of a class; empty where there is none to be found."""
    try:
        return inspect.getsource(owner)
    except (OSError, TypeError):
        return ""


class _DiskCache(FunctionCache):  # type: ignore[misc]
    """Compiled kernels on disk; one that cannot be loaded or saved is compiled in memory.

    Processes that want the same kernel at the same time do not all compile it: one does, and the others load it then.
    """

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self._turn = Turn()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel; None where there is none, or a damaged one, which is then written anew."""
        found = self._load(sig, target_context)
        if found is None and self._enabled:
            self._turn.take(self._lock_file(sig, target_context.codegen()))
            found = self._load(sig, target_context)
        if found is not None:
            self._turn.end()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # pickle and LLVM end in anything when files are damaged
            log.info("a compiled kernel in %s cannot be loaded (%s): compiling it again", self.cache_path, error)
            self._forget_index()
            return None

    def _lock_file(self, sig: Any, codegen: Any) -> Path:
        kernel = repr((self._py_func.__qualname__, self._index_key(sig, codegen)))
        return Path(self.cache_path, f"{hashlib.blake2b(kernel.encode(), digest_size=8).hexdigest()}.compiling")

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a kernel, where there is room for it."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _tell_not_kept(f"{self.cache_path}: {error.strerror or error}")
        finally:
            self._turn.end()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Key of a kernel: Numba's, with the source of a loss that is compiled in, wherever that is defined."""
        return super()._index_key(sig, codegen), *(_source_of(kind.instance_class) for kind in sig if _is_named(kind))

    def _forget_index(self) -> None:
        try:
            self.flush()
        except OSError:  # a shared cache that only its owner can mend
            self.disable()


class _NoCache(NullCache):  # type: ignore[misc]
    """No place on disk for compiled kernels."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Say that each process compiles anew."""
        _tell_not_kept("neither the package's directory nor ~/.cache is writable")


@cache
def _tell_not_kept(why: str) -> None:
    """Say, once for each reason, that the next process has to compile again."""
    log.info(
        "compiled kernels cannot be saved (%s), so every run compiles them again, which takes up to a minute: set "
        "NUMBA_CACHE_DIR to a writable directory",
        why,
    )


def tile(function: Function, **options: bool) -> Function:
    """Compile an inner loop; it is inlined into the kernels of its module."""
    compiled: Function = numba.njit(**_OPTIONS, no_cpython_wrapper=True, **options)(function)
    return compiled


def borrowing_tile(function: Function) -> Function:
    """Compile an inner loop that neither allocates nor returns an array, so that references are not counted in it.

    Each view would cost two atomic additions; a sweep of a descent over 300 points took a fifth longer by them.
    """
    return tile(function, forceinline=True, _nrt=False)


def compiled_method(stub: Function) -> Function:
    """Have kernels that call a function compile the method of that name of its first argument, a named tuple."""

    def method(self, *arguments):  # type: ignore[no-untyped-def]
        return getattr(self.instance_class, stub.__name__)

    overload(stub, jit_options=COMPILED, strict=False)(method)
    return stub


def optional_method(default: Function) -> Function:
    """The same for methods that named tuples may have; a function does what is right for those that have none."""

    def of(kind: type) -> Function:
        found: Function = getattr(kind, default.__name__, default)
        return found

    @wraps(default)
    def method(self: Any, *arguments: Any) -> Any:
        return of(type(self))(self, *arguments)

    overload(method, jit_options=COMPILED, strict=False)(lambda self, *arguments: of(self.instance_class))
    return method


def kernel(function: Function) -> Function:
    """Compile a parallel loop over rows, with the binary kept on disk where that is possible."""
    return _kept(function, parallel=True)


def serial_kernel(function: Function) -> Function:
    """Compile a loop that threads which read rows may run beside a parallel one."""
    return _kept(function, parallel=False)


def read_only(array: Rows) -> Rows:
    """View of an array for reading, so that one compiled kernel serves arrays that are read-only and that are not."""
    view = array.view()
    view.flags.writeable = False
    return view


def _kept(function: Function, *, parallel: bool) -> Function:
    compiled: Function = numba.njit(**_OPTIONS, parallel=parallel)(function)
    if not numba.config.DISABLE_JIT:  # else it is the function itself
        compiled._cache = _cache_of(function)  # type: ignore[attr-defined]
    return compiled


def serial(function: Function) -> Function:
    """Compile a loop for one thread, which other threads may run meanwhile; kept on disk as kernels are."""
    compiled: Function = numba.njit(nogil=True, error_model="numpy")(function)
    if not numba.config.DISABLE_JIT:
        compiled._cache = _cache_of(function)  # type: ignore[attr-defined]
    return compiled


def _cache_of(function: Function) -> FunctionCache | NullCache:
    """Where the binary of a kernel is kept between processes."""
    try:
        return _DiskCache(function)
    except (RuntimeError, OSError):  # no writable place for it
        return _NoCache()


def available_threads() -> int:
    """Threads that kernels may use in this process: Numba knows its affinity, but neither control groups nor Slurm."""
    limit = int(numba.config.NUMBA_NUM_THREADS)
    return limit if "NUMBA_NUM_THREADS" in os.environ else min(limit, _usable_cpus())


def current_threads() -> int:
    """Threads that kernels run on here and now."""
    return int(numba.get_num_threads())


@cache
def _usable_cpus() -> int:
    return usable_cpus()


def threads_for(pairs: int) -> AbstractContextManager[None]:
    """Leave threads asleep that would find too little to do; with other processes about they cost milliseconds."""
    _require_threads()
    return _threads(min(current_threads(), pairs // PAIRS_A_THREAD))


def _threads(count: int) -> AbstractContextManager[None]:
    """Run kernels on so many threads, at least one."""
    before, count = current_threads(), max(1, count)
    return nullcontext() if count == before else _set_threads(count, before)  # small epochs notice what setting takes


@contextmanager
def _set_threads(count: int, before: int) -> Iterator[None]:
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
    most = available_threads()
    with _PARALLEL_REGION, _threads(min(threads or most, most)):
        yield
