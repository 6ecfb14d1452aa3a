"""Several studies at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from tests.chaos.kinds import Kind, prepare
from tests.chaos.plans import Plan
from tests.chaos.study import Record, Study, Undisturbed


class Studies:
    """Studies that share data and run concurrently; the next free one takes the next run."""

    def __init__(self, folder: Path, jobs: int) -> None:
        data = folder / "data"
        data.mkdir()
        prepare(data)
        known: dict[str, Undisturbed] = {}
        self._free: Queue[Study] = Queue()
        for job in range(jobs):
            self._free.put(Study(folder / f"study-{job}", data, known))
        self._jobs = jobs

    def records(self, plans: list[Plan], end: float) -> Iterator[Record]:
        """Yield the records of the plans as they finish; none starts after ``end``."""
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                list(pool.map(self._learn, {plan.kind: 0 for plan in plans}))
                for done in as_completed([pool.submit(self._run, plan, end) for plan in plans]):
                    if (record := done.result()) is not None:
                        yield record
            finally:
                pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Stop their clusters."""
        while not self._free.empty():
            self._free.get().close()

    def _learn(self, kind: Kind) -> None:
        with self._one() as study:
            study.learn(kind)

    def _run(self, plan: Plan, end: float) -> Record | None:
        with self._one() as study:
            return study.run(plan) if time.monotonic() < end else None

    @contextmanager
    def _one(self) -> Iterator[Study]:
        study = self._free.get()
        try:
            yield study
        finally:
            self._free.put(study)
