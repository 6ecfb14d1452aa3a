"""``make fuzz``: run many cases of every entry, print a table, and exit with code 1 on any failure.

A case depends on the seed, its entry and its number only: ``--only ENTRY --case NUMBER`` repeats it.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.fuzz.entries import ENTRIES
from tests.fuzz.running import Batch, batches, prepare, run_batch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="in all entries together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(ENTRIES), default=list(ENTRIES), metavar="ENTRY")
    parser.add_argument("--case", type=int, help="only this case of the entries")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    parts = batches(options.only, options.cases)
    if options.case is not None:
        parts = [(entry, range(options.case, options.case + 1)) for entry in options.only]
    done = {entry: Batch(entry) for entry in options.only}
    prepare()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(options.jobs, len(parts)), context, initializer=prepare) as pool:
        entries, cases = zip(*parts, strict=True)
        for batch in pool.map(run_batch, entries, itertools.repeat(options.seed), cases):
            total = done[batch.entry]
            total.ends += batch.ends
            total.seconds += batch.seconds
            for fault in batch.faults:
                print(fault, flush=True)
    sys.exit(report(list(done.values())))


def report(done: list[Batch]) -> int:
    """Print the table and return the exit code."""
    print(f"\n{'entry':30}{'cases':>8}{'right':>8}{'refused':>9}{'faults':>8}{'seconds':>9}")
    every = Batch("all", sum((b.ends for b in done), Counter()), seconds=sum(b.seconds for b in done))
    for b in [*done, every]:
        columns = b.ends.total(), b.ends["right"], b.ends["refused"], b.ends["fault"], b.seconds
        print("{:30}{:8,}{:8,}{:9,}{:8,}{:9.1f}".format(b.entry, *columns))
    return 1 if every.ends["fault"] else 0


if __name__ == "__main__":
    main()
