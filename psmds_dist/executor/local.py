"""Work in this process, on the threads of Numba."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psutil

from psmds_dist.core.layout import groups
from psmds_dist.data.cache import CacheSlot, held_in
from psmds_dist.kernels.jit import parallel_region

R = TypeVar("R")


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
        self._rows: CacheSlot = {}

    def run(
        self, work: Callable[[Sequence[int]], R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the result of each group, in order."""
        for part in groups(blocks, group):
            with parallel_region(self._threads), held_in(self._rows):
                result = work(part)
            yield part, result

    def memory_limit(self) -> int:
        """Bytes a run may take when nobody said: most of what this machine has free."""
        return int(0.8 * psutil.virtual_memory().available)

    def memory(self) -> dict[str, tuple[int, int]]:
        """Resident bytes of each process that works, and their peak."""
        return {"in-process": resident()}

    def peak_memory(self) -> dict[str, int]:
        """Peak resident bytes of each process that works."""
        return {name: peak for name, (_, peak) in self.memory().items()}

    def prepare(self, function: Callable[[], object]) -> None:
        """Call a function that compiles what is needed, before any clock runs."""
        function()

    def require(self, path: str, advice: str = "") -> None:
        """Whoever opened the path is the one who reads it."""

    def compute(self, collection: Any) -> Any:
        """Compute a Dask collection wherever Dask computes it."""
        return collection.compute()

    def close(self) -> None:
        """Free the rows this run has read."""
        self._rows.clear()


def resident() -> tuple[int, int]:
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
