"""``make fuzz``: many cases of every entry, made from a seed; a table, and exit code 1 on any fault.

Each case is made from the seed, the name of its entry and its number alone: ``--only ENTRY --case NUMBER`` repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import time
from collections import Counter
from types import FrameType

from tests.fuzz.choosing import Seeded
from tests.fuzz.entries import ENTRIES
from tests.fuzz.judging import Fault, own_folder

HANG = 20
"""Seconds after which a case counts as hanging."""


class Hang(BaseException):
    """A case that takes too long."""


def _hang(signum: int, frame: FrameType | None) -> None:
    raise Hang


def run(entry: str, seed: int, case: int) -> str:
    """Run one case and return how it ended; raises `Fault`."""
    faulthandler.dump_traceback_later(3 * HANG, exit=True)  # for what no signal handler can interrupt
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        with own_folder() as folder:
            return ENTRIES[entry](Seeded(seed, entry, case), folder)
    except Hang:
        raise Fault(f"no end after {HANG} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="in all entries together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(ENTRIES), default=list(ENTRIES), metavar="ENTRY")
    parser.add_argument("--case", type=int, help="only this case of the entries")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _hang)
    ends: dict[str, Counter[str]] = {entry: Counter() for entry in options.only}
    seconds: Counter[str] = Counter()
    for k in range(options.cases if options.case is None else len(options.only)):
        entry = options.only[k % len(options.only)]
        case = k // len(options.only) if options.case is None else options.case
        began = time.perf_counter()
        try:
            ends[entry][run(entry, options.seed, case)] += 1
        except Exception as fault:
            ends[entry]["fault"] += 1
            kind = "" if isinstance(fault, Fault) else f"{type(fault).__name__}: "
            print(f"--seed {options.seed} --only '{entry}' --case {case}\n    {kind}{fault}", flush=True)
        seconds[entry] += time.perf_counter() - began
    print(f"\n{'entry':30}{'cases':>8}{'right':>8}{'refused':>9}{'faults':>8}{'seconds':>9}")
    for entry, count in ends.items():
        columns = count.total(), count["right"], count["refused"], count["fault"], seconds[entry]
        print("{:30}{:8,}{:8,}{:9,}{:8,}{:9.1f}".format(entry, *columns))
    every = sum(ends.values(), Counter())
    print("{:30}{:8,}{:8,}{:9,}{:8,}{:9.1f}".format(
        "all", every.total(), every["right"], every["refused"], every["fault"], sum(seconds.values())
    ))  # fmt: skip
    sys.exit(1 if every["fault"] else 0)


if __name__ == "__main__":
    main()
