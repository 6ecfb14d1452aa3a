"""What a process that works is, and what may surprise where several work together."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from psmds_dist.utils.machine import available_memory

PACKAGES = ("numpy", "numba", "llvmlite")
"""Packages whose versions may change the last bits of a result."""

CLOCK_TOLERANCE = 5.0
"""Seconds between two clocks that matter to nothing; the times of files on network file systems differ by as much."""

WIDE = ("avx", "fma", "sse4", "neon", "sve")
"""Beginnings of the names of those features that change how kernels are compiled."""


class Processor(NamedTuple):
    """What kernels are compiled for."""

    name: str
    features: frozenset[str]


class WorkerFacts(NamedTuple):
    """A process that works, as it describes itself."""

    host: str
    processor: Processor
    versions: dict[str, str]
    clock: float
    available_memory: int


def facts_of_process() -> WorkerFacts:
    """Facts about this process."""
    return WorkerFacts(socket.gethostname(), compiled_for(), _versions(), time.time(), available_memory())


def compiled_for(environ: Mapping[str, str] = os.environ) -> Processor:
    """Processor that Numba compiles for: that of the machine, unless the environment names another."""
    import llvmlite.binding as llvm

    name = environ.get("NUMBA_CPU_NAME")
    if name is not None:
        features = environ.get("NUMBA_CPU_FEATURES", "").split(",")
        return Processor(f"{platform.machine()} {name}", frozenset(f[1:] for f in features if f.startswith("+")))
    features = llvm.get_host_cpu_features()
    return Processor(llvm.get_host_cpu_name(), frozenset(f for f, on in features.items() if on and f.startswith(WIDE)))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def differences(facts: Iterable[WorkerFacts], here: WorkerFacts, elapsed: float) -> list[str]:
    """What may surprise about the processes of a run, a sentence each without its full stop.

    Parameters
    ----------
    facts : iterable of WorkerFacts
        The workers.
    here : WorkerFacts
        This process, asked after them.
    elapsed : float
        Seconds since they were asked.
    """
    workers = list(facts)
    return [
        *_different_versions([*workers, here]),
        *_different_processors([*workers, here]),
        *_different_clocks(workers, here, elapsed),
    ]


def _different_versions(processes: list[WorkerFacts]) -> Iterable[str]:
    for package in ("python", *PACKAGES):
        hosts = {one.versions.get(package, "none"): one.host for one in processes}
        if len(hosts) > 1:
            found = ", ".join(f"{number} on {host}" for number, host in sorted(hosts.items()))
            yield f"the versions of {package} differ ({found}), and with them perhaps the last bits of a map"


def _different_processors(processes: list[WorkerFacts]) -> Iterable[str]:
    kinds = Counter(one.processor for one in processes)
    if len(kinds) < 2:
        return
    hosts = {one.processor: one.host for one in processes}
    common = frozenset.intersection(*(kind.features for kind in kinds))
    found = "; ".join(_describe(kind, common, hosts[kind]) for kind in sorted(kinds, key=lambda kind: kind.name))
    yield (
        f"kernels are compiled for different processors ({found}), so the last bits of a map depend on who does what: "
        "set DASK_PSMDS__PORTABLE=true where workers start and where this command runs, for the same bits on all"
    )


def _describe(kind: Processor, common: frozenset[str], host: str) -> str:
    more = ", ".join(sorted(kind.features - common))
    return f"{kind.name} on {host}" + (f" with {more}" if more else "")


def _different_clocks(workers: list[WorkerFacts], here: WorkerFacts, elapsed: float) -> Iterable[str]:
    off = {one.host: _outside(one.clock, here.clock - elapsed, here.clock) for one in workers}
    if off and (most := max(off, key=lambda host: abs(off[host]))) and abs(off[most]) > CLOCK_TOLERANCE:
        yield (
            f"the clock of {most} is {abs(off[most]):.0f} s {'ahead of' if off[most] > 0 else 'behind'} that of this "
            "machine: synchronize them, since the times of files decide what is new"
        )


def _outside(value: float, low: float, high: float) -> float:
    """Distance of a value to an interval, with its sign."""
    return max(0.0, value - high) + min(0.0, value - low)
