"""Runner of cases: one after the other in a process, with a time limit."""

from __future__ import annotations

import faulthandler
import itertools
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from tests.fuzz.aside import spare_time
from tests.fuzz.choosing import Seeded
from tests.fuzz.entries import ENTRIES, SHARE
from tests.fuzz.judging import FuzzFailure, own_folder
from tests.fuzz.library import small_matrix
from tests.fuzz.rules import compile_rules

HANG = 20
"""Seconds of a processor after which a case counts as hanging, also on a busy machine."""

STUCK = 600
"""Seconds after which a case that waits, or that no signal reaches, ends the run."""

BATCH = 25
"""Cases of an entry that a process runs between reports."""


class Hang(BaseException):
    """A case that exceeds the time limit."""


@dataclass
class Batch:
    """Outcomes of some cases of one entry."""

    entry: str
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


def run_case(entry: str, seed: int, case: int) -> str:
    """Run one case and return how it ended; raises `FuzzFailure`."""
    faulthandler.dump_traceback_later(STUCK, exit=True)
    signal.setitimer(signal.ITIMER_PROF, HANG)
    try:
        with own_folder() as folder:
            return ENTRIES[entry](Seeded(seed, entry, case), folder)
    except Hang:
        raise FuzzFailure(f"no end after {HANG} s") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def run_batch(entry: str, seed: int, cases: range) -> Batch:
    """Run some cases of one entry."""
    batch, began = Batch(entry), time.perf_counter()
    for case in cases:
        try:
            batch.ends[run_case(entry, seed, case)] += 1
        except Exception as fault:
            batch.ends["fault"] += 1
            kind = "" if isinstance(fault, FuzzFailure) else f"{type(fault).__name__}: "
            batch.faults.append(f"--seed {seed} --only '{entry}' --case {case}\n    {kind}{fault}")
    batch.seconds = time.perf_counter() - began
    return batch


def prepare() -> None:
    """Prepare a process: install the alarm, compile kernels, and leave out what takes time for nothing."""
    signal.signal(signal.SIGPROF, _hang)
    compile_kernels()
    spare_time()


def compile_kernels() -> None:
    """Compile all kernels or load them from disk, outside the time of any case."""
    t = small_matrix(30)
    for dtype, dims in itertools.product(("float32", "float64"), (1, 2, 3, 4)):
        PatternSearchMDS(dims, dtype=dtype, radius_tol=1.0, random_state=0).fit(t)
        for refine in ("panel", "full"):
            LandmarkMDS(dims, dtype=dtype, n_landmarks=12, refine=refine, n_init=1, random_state=0).fit(t)
    compile_rules()


def _hang(signum: int, frame: FrameType | None) -> None:
    raise Hang


def batches(entries: list[str], count: int) -> list[tuple[str, range]]:
    """Split the cases into batches, taking the entries in turn."""
    weights = {entry: SHARE.get(entry, 1.0) for entry in entries}
    shares = {entry: -(-count * w // sum(weights.values())) for entry, w in weights.items()}
    cut = [[(e, range(k, min(k + BATCH, int(n)))) for k in range(0, int(n), BATCH)] for e, n in shares.items()]
    return [part for turn in itertools.zip_longest(*cut) for part in turn if part is not None]
