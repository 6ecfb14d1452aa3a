"""Work in this process, on the threads of Numba."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import psutil

from psmds_dist.core.executor import ClusterState, Executor, MemoryUsage
from psmds_dist.core.layout import groups
from psmds_dist.data.cache import CacheSlot, bytes_read, held_in
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.utils.machine import available_memory

R = TypeVar("R")


class InProcessExecutor(Executor):
    """Runs work in this process, on the threads of Numba.

    Parameters
    ----------
    threads : int or None
        Threads of the kernels; None takes all that this process may use.
    """

    n_workers = 1
    in_process = True

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads
        self._rows: CacheSlot = {}
        self._read_before = bytes_read()

    def map(
        self, work: Callable[[Sequence[int]], R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Yield the result of each group, in order."""
        for part in groups(blocks, group):
            with held_in(self._rows), parallel_region(self.threads):
                result = work(part)
            yield part, result

    def memory_limit(self) -> int:
        """Most of the memory that this process may still take."""
        return int(0.8 * available_memory())

    def memory_usage(self) -> dict[str, MemoryUsage]:
        """Memory of this process."""
        return {"in-process": process_memory()}

    def cluster_state(self) -> ClusterState:
        """Bytes that this process has read since the executor was made."""
        return ClusterState(1, bytes_read=bytes_read() - self._read_before)

    def close(self) -> None:
        """Free the rows that this executor has read."""
        self._rows.clear()


def process_memory() -> MemoryUsage:
    """Memory of this process, with a peak of its own where the system does not add that of its parent."""
    now = psutil.Process().memory_info().rss
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return MemoryUsage(now, int(line.split()[1]) * 1024)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return MemoryUsage(now, peak if sys.platform == "darwin" else peak * 1024)
