"""The envelope of a run: its resources, and the steps that every run has before and after its own work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import Any, NamedTuple, Self

from psmds_dist.core.events import Event, OnEpoch, OnEvent, StageEvent, ignore
from psmds_dist.core.executor import Executor, MemoryUsage
from psmds_dist.core.layout import parse_bytes
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import InputError
from psmds_dist.planning.memory import exceeded
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore
from psmds_dist.solver.progress import NO_RECORDER, NullRecorder, recorder_of
from psmds_dist.solver.state_file import Identity

PACKAGES = ("psmds-dist", "numpy", "numba", "zarr", "dask", "scikit-learn")
"""Packages whose versions a result names."""


class MemoryUse(NamedTuple):
    """Memory of the processes that worked, by name."""

    peak: dict[str, int]
    """Peak resident bytes."""

    over: dict[str, int]
    """Bytes by which some took more than planned, see `psmds_dist.planning.memory.exceeded`."""


@dataclass(frozen=True)
class RunContext:
    """Resources of a run.

    Attributes
    ----------
    executor : Executor
        Where the work runs.
    limit : int
        Bytes that a process may take.
    ids : list of str, optional
        Names of the points.
    checkpoint : CheckpointStore
        Where states are saved.
    on_plan : callable, optional
        Called with the plan of memory before the work begins.
    on_epoch : callable, optional
        Called after every epoch; returning True ends the solve.
    on_event : callable, optional
        Called with every event.
    recorder : NullRecorder
        Keeps the progress of the run in a file.
    """

    executor: Executor
    limit: int
    ids: list[str] | None = None
    checkpoint: CheckpointStore = NO_CHECKPOINT
    on_plan: Callable[[Any], object] | None = None
    on_epoch: OnEpoch | None = None
    on_event: OnEvent = ignore
    recorder: NullRecorder = NO_RECORDER

    @classmethod
    def of(
        cls, executor: Executor, memory_limit: Any = None, *, checkpoint: CheckpointStore = NO_CHECKPOINT, **more: Any
    ) -> Self:
        """Context with the limit that the user gave, or else that of the executor."""
        limit = executor.memory_limit() if memory_limit is None else parse_bytes(memory_limit)
        recorder = recorder_of(checkpoint, executor.cluster_state)
        return cls(executor, limit, checkpoint=checkpoint, recorder=recorder, **more)

    def tell(self, event: Event) -> None:
        """Record an event and pass it on."""
        self.recorder(event)
        self.on_event(event)

    def tell_part(self, stage: str, done: int, total: int) -> None:
        """Tell how many parts of a stage are done."""
        self.tell(StageEvent(stage, done, total))

    def attach(self, n: int, dtype: str, content: str, configuration: Mapping[str, Any]) -> Identity:
        """Begin, or continue, the run that these describe, and return its identity."""
        identity = {
            "psmds-dist": installed()["psmds-dist"],
            "input": {"points": n, "dtype": dtype, "content": content},
            "configuration": dict(configuration),
        }
        self.checkpoint.attach(identity)
        return identity

    @contextmanager
    def running(self, plan: object, source: RowSource) -> Iterator[Callable[[], MemoryUse]]:
        """Announce the plan, and require afterwards that the source did not change; free the workers in any case.

        Yields a function that tells the memory used so far.
        """
        if self.on_plan is not None:
            self.on_plan(plan)
        before = self.executor.memory_usage()
        try:
            with self.recorder.recording():
                yield partial(self._memory_used, before)
                self._require_unchanged(source)
        finally:
            self.executor.close()

    def _memory_used(self, before: Mapping[str, MemoryUsage]) -> MemoryUse:
        peak = self.executor.peak_memory()
        return MemoryUse(peak, exceeded(self.limit, before, peak))

    def _require_unchanged(self, source: RowSource) -> None:
        """Refuse the result of rows that were written to while they were read, and save nothing of it."""
        if source.is_stale():
            self.checkpoint.remove()
            raise InputError(
                f"{source.location or 'the matrix'} was written to while it was read, so that the map belongs "
                "to no matrix and is not saved: wait until it is complete, and start a new run."
            )


@cache
def installed() -> dict[str, str]:
    """Versions of the packages that a result depends on."""
    return {name: version(name) for name in PACKAGES}
