"""The interface of executors: who runs the work of a solve, a check or a build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from psmds_dist.core.sources import RowSource

R = TypeVar("R")


class MemoryUsage(NamedTuple):
    """Resident bytes of a process, now and at their peak."""

    resident: int
    peak: int


class Topology(NamedTuple):
    """Where work is done."""

    hosts: int
    workers: int
    threads: int


class ClusterState(NamedTuple):
    """What an executor knows of its workers without asking them."""

    workers: int
    """Workers that are connected."""

    lost: int = 0
    """Workers that were connected and are not any more."""

    bytes_read: int | None = None
    """Bytes of rows that they have read; None where that is unknown."""

    dashboard: str = ""
    """Address of a page about the workers; empty where there is none."""


class Executor(ABC):
    """Runs work over blocks of rows, in this process or on workers elsewhere.

    A subclass must define `n_workers`, `map` and `memory_limit`. The other methods have defaults that suit workers in
    this process, or processes on this machine that need no preparation. ``tests/conformance/test_executors.py`` tests
    any executor. Results do not depend on the executor, to the last bit: whoever calls `map` puts them in order.

    Work is a picklable callable that takes the numbers of blocks. It starts parallel kernels, so an executor calls it
    by `psmds_dist.executor.run_work`. It caches rows in the process it runs in until `close` calls
    `psmds_dist.executor.clear_row_cache` there.
    """

    in_process: bool = False
    """Whether all work is done in this process, so that arrays in memory need not be stored for it."""

    @property
    @abstractmethod
    def n_workers(self) -> int:
        """Workers that share the work now; each may take the bytes of a memory limit."""

    @abstractmethod
    def map(
        self, work: Callable[[Sequence[int]], R], blocks: Sequence[int], *, group: int | None = None
    ) -> Iterator[tuple[Sequence[int], R]]:
        """Call ``work`` on groups of ``blocks`` and yield ``(group, result)`` as they finish, in any order.

        Every block is in exactly one yielded group. An error of the work is raised as it is. Whoever closes the
        iterator early needs no further results.

        Parameters
        ----------
        work : callable
            What to do with a sequence of blocks.
        blocks : sequence of int
            All blocks of this call.
        group : int, optional
            Most blocks in a group; by default each worker gets one group.
        """

    @abstractmethod
    def memory_limit(self) -> int:
        """Bytes that each worker may take where the user sets no limit."""

    def broadcast(self, function: Callable[[], object]) -> None:  # noqa: B027 - a default
        """Call a function once in every other process that works, present or to come. Default: there is none."""

    def warm_up(self, function: Callable[[], object]) -> None:
        """Call a function that compiles kernels here, which fills their cache on disk, then on all workers."""
        function()
        self.broadcast(function)

    def memory_usage(self) -> dict[str, MemoryUsage]:
        """Memory of each process that works, by name. Default: unknown."""
        return {}

    def peak_memory(self) -> dict[str, int]:
        """Peak resident bytes of each process that works, by name."""
        return {name: usage.peak for name, usage in self.memory_usage().items()}

    def topology(self) -> Topology | None:
        """Machines and threads that do the work. Default: this process alone, of which there is nothing to say."""
        return None

    def cluster_state(self) -> ClusterState | None:
        """State of the workers; any thread may ask, and nothing is sent. Default: None, for unknown."""
        return None

    def check_readable(self, source: RowSource) -> None:  # noqa: B027 - a default
        """Refuse a source from which a worker cannot read a row. Default: all of them read what this process reads.

        Raises
        ------
        InputError
            Names a worker that cannot, with its host and the reason.
        """

    def check_writable(  # noqa: B027 - a default
        self, folder: str, advice: str = "choose one that all machines share"
    ) -> None:
        """Refuse a directory in which a worker cannot write a file. Default: all of them write where this process does.

        Raises
        ------
        InputError
            Names a worker that cannot, with its host and the reason, and ends with ``advice``.
        """

    def compute(self, collection: Any) -> Any:
        """Compute a Dask collection. Default: wherever Dask computes it."""
        return collection.compute()

    def close(self) -> None:  # noqa: B027 - a default
        """Free what a run keeps on the workers. The executor can be used, and closed, again."""
