"""``make chaos``: runs that are disturbed as a seed has it, and must end with the bits of undisturbed ones.

``--run K`` repeats one of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from psmds_dist.report import table
from tests.chaos.disk import can_mount
from tests.chaos.kinds import KINDS, prepare
from tests.chaos.plans import plan_run
from tests.chaos.study import Record, Study


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="what happens in them")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--kinds", default="", help="only kinds whose names contain this")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.kinds in kind.name]
    records = []
    with tempfile.TemporaryDirectory(prefix="psmds-chaos-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        prepare(folder / "data")
        tmpfs = can_mount(folder)
        study = Study(folder, folder / "data")
        began = time.monotonic()
        try:
            for number in range(options.first, options.first + options.runs):
                records.append(study.run(plan_run(options.seed, number, kinds, tmpfs)))
                tell(records[-1])
        finally:
            study.close()
    print("\n" + summary(records))
    print(f"\n{len(records)} runs in {time.monotonic() - began:.0f} s.")
    sys.exit(any(record.faults for record in records))


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
