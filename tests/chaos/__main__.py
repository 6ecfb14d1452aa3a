"""``make chaos``: disturb runs as a seed determines, and compare their results with undisturbed ones.

``--first K --runs 1`` repeats run K.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from psmds_dist.api.report import table
from psmds_dist.utils.signals import sigterm_as_interrupt
from tests.chaos.disk import can_mount
from tests.chaos.kinds import KINDS
from tests.chaos.plans import plan_run
from tests.chaos.studies import Studies
from tests.chaos.study import Record


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
    began, records = time.monotonic(), []
    with sigterm_as_interrupt(), _folder(options.keep) as folder:
        kinds = [kind for kind in KINDS if options.kinds in kind.name]
        tmpfs = can_mount(folder)
        numbers = range(options.first, options.first + options.runs)
        plans = [plan_run(options.seed, number, kinds, tmpfs) for number in numbers]
        with closing(Studies(folder, options.jobs)) as studies:
            for record in studies.records(plans, began + 60 * options.minutes):
                tell(record)
                records.append(record)
    print("\n" + summary(records))
    print(f"\n{len(records)} runs in {time.monotonic() - began:.0f} s.")
    sys.exit(any(record.faults for record in records))


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="psmds-chaos-") as name:
        yield Path(name)


def tell(record: Record) -> None:
    """Print one line per run, and its failures."""
    verdict = "same bits" if record.identical else "NOT THE SAME"
    what = ", ".join(record.events) or "nothing happened"
    plan = record.plan
    print(f"{plan.number:4d}  {verdict}  {record.seconds:5.1f} s  {plan.kind.name}: {what}", flush=True)
    for fault in record.faults:
        print(f"      FAULT {fault}\n      {plan}", flush=True)


def summary(records: list[Record]) -> str:
    """Print tables by kind and by event."""
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
        f"{max((record.orphans for record in records), default=0.0):.1f}",
    ]


if __name__ == "__main__":
    main()
