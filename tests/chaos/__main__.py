"""``make chaos``: runs that are disturbed as a seed has it, and must end with the bits of undisturbed ones.

``--first K --runs 1`` repeats one of them.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import TypeVar

from psmds_dist.report import table
from tests.chaos.disk import can_mount
from tests.chaos.kinds import KINDS, prepare
from tests.chaos.plans import Plan, plan_run
from tests.chaos.study import Record, Study, Undisturbed

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="what happens in them")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after that time")
    parser.add_argument("--keep", type=Path, help="a new directory to work in, which stays, with what was said")
    parser.add_argument("--kinds", default="", help="only kinds whose names contain this")
    options = parser.parse_args()
    began = time.monotonic()
    with _folder(options.keep) as folder:
        kinds = [kind for kind in KINDS if options.kinds in kind.name]
        tmpfs = can_mount(folder)
        numbers = range(options.first, options.first + options.runs)
        plans = [plan_run(options.seed, number, kinds, tmpfs) for number in numbers]
        records = list(study(folder, plans, options.jobs, began + 60 * options.minutes))
    print("\n" + summary(records))
    print(f"\n{len(records)} runs in {time.monotonic() - began:.0f} s.")
    sys.exit(any(record.faults for record in records))


def study(folder: Path, plans: list[Plan], jobs: int, end: float) -> Iterator[Record]:
    """Yield what came of the plans, some at a time, each among the first in a study of its own."""
    (folder / "data").mkdir()
    prepare(folder / "data")
    known: dict[str, Undisturbed] = {}
    studies: Queue[Study] = Queue()
    for job in range(jobs):
        studies.put(Study(folder / f"study-{job}", folder / "data", known))

    def in_any(work: Callable[[Study], T]) -> T:
        free = studies.get()
        try:
            return work(free)
        finally:
            studies.put(free)

    def run(plan: Plan) -> Record | None:
        return in_any(lambda place: place.run(plan)) if time.monotonic() < end else None

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for _ in pool.map(lambda kind: in_any(lambda place: place.learn(kind)), {p.kind: 0 for p in plans}):
                pass
            for done in as_completed([pool.submit(run, plan) for plan in plans]):
                if (record := done.result()) is not None:
                    tell(record)
                    yield record
        finally:
            pool.shutdown(cancel_futures=True)
            while not studies.empty():
                studies.get().close()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="psmds-chaos-") as name:
        yield Path(name)


def tell(record: Record) -> None:
    """One line a run, and its faults."""
    verdict = "same bits" if record.identical else "NOT THE SAME"
    what = ", ".join(record.events) or "nothing happened"
    plan = record.plan
    print(f"{plan.number:4d}  {verdict}  {record.seconds:5.1f} s  {plan.kind.name}: {what}", flush=True)
    for fault in record.faults:
        print(f"      FAULT {fault}\n      {plan}", flush=True)


def summary(records: list[Record]) -> str:
    """Tables of kinds and of events."""
    kinds = {record.plan.kind.name: [r for r in records if r.plan.kind == record.plan.kind] for record in records}
    rows = [[name, *_counts(group)] for name, group in sorted(kinds.items())]
    events = Counter(event for record in records for event in record.events)
    counted = [[name, f"{count:,}"] for name, count in sorted(events.items())]
    heads = ["kind", "runs", "disturbed", "events", "resumed", "identical", "faults", "orphans, s"]
    return table(heads, [*rows, ["all", *_counts(records)]]) + "\n\n" + table(["event", "times"], counted)


def _counts(records: list[Record]) -> list[str]:
    return [
        f"{len(records)}",
        f"{sum(bool(record.events) for record in records)}",
        f"{sum(len(record.events) for record in records)}",
        f"{sum(record.resumed for record in records)}",
        f"{sum(record.identical for record in records)}",
        f"{sum(len(record.faults) for record in records)}",
        f"{max(record.orphans for record in records):.1f}",
    ]


if __name__ == "__main__":
    main()
