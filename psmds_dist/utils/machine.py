"""What this process may use of its machine: the least that affinity, control groups and the batch system allow."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path("/")

MEBIBYTE = 2**20
"""Unit in which Slurm gives memory."""


def usable_cpus(environ: Mapping[str, str] = os.environ, root: Path = ROOT, affinity: int | None = None) -> int:
    """CPUs that this process may use, at least one.

    Parameters
    ----------
    environ : mapping of str to str
        Environment, of which ``SLURM_CPUS_PER_TASK`` counts.
    root : Path
        Where ``/proc`` and ``/sys`` are.
    affinity : int, optional
        CPUs that the scheduler of the system gives; by default it is asked.
    """
    given = len(_affinity()) if affinity is None else affinity
    return max(1, math.floor(min([given, *_cpu_quotas(root), *_positive(environ.get("SLURM_CPUS_PER_TASK"))])))


def numa_nodes(root: Path = ROOT, affinity: Set[int] | None = None) -> list[set[int]]:
    """CPUs of this process by the memory that is near them; one set where that is unknown.

    Parameters
    ----------
    root : Path
        Where ``/sys`` is.
    affinity : set of int, optional
        CPUs that the scheduler of the system gives; by default it is asked.
    """
    given = _affinity() if affinity is None else affinity
    lists = (_read(folder / "cpulist") for folder in sorted(root.glob("sys/devices/system/node/node[0-9]*")))
    return [near for cpus in lists if (near := _numbers(cpus) & given)] or [set(given)]


def _numbers(text: str) -> set[int]:
    """Numbers in a list of the kernel, such as ``0-3,8``."""
    ranges = (part.split("-") for part in text.split(",") if part)
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


def available_memory(environ: Mapping[str, str] = os.environ, root: Path = ROOT, free: int | None = None) -> int:
    """Bytes that this process may still take.

    Parameters
    ----------
    environ : mapping of str to str
        Environment, of which ``SLURM_MEM_PER_NODE`` counts, or ``SLURM_MEM_PER_CPU`` with ``SLURM_CPUS_ON_NODE``.
    root : Path
        Where ``/proc`` and ``/sys`` are.
    free : int, optional
        Bytes that the machine has free; by default the system is asked.
    """
    machine = psutil.virtual_memory().available if free is None else free
    own = psutil.Process().memory_info()
    allocated = [total - own.rss for total in _slurm_memory(environ)]
    addresses = [limit - own.vms for limit in _address_space()]
    return int(max(0, min([machine, *_group_memory(root), *allocated, *addresses])))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _positive(text: str | None) -> list[int]:
    """Number in a variable, if it holds one; Slurm's zero means all."""
    return [int(text)] if text is not None and text.isascii() and text.isdigit() and int(text) else []


def _slurm_memory(environ: Mapping[str, str]) -> Iterator[int]:
    """Bytes of the allocation on this node."""
    for per_node in _positive(environ.get("SLURM_MEM_PER_NODE")):
        yield per_node * MEBIBYTE
    for per_cpu in _positive(environ.get("SLURM_MEM_PER_CPU")):
        for cpus in _positive(environ.get("SLURM_CPUS_ON_NODE")):
            yield per_cpu * cpus * MEBIBYTE


def _address_space() -> Iterator[int]:
    """Bytes of addresses that this process may have (``ulimit -v``), as Grid Engine sets them by ``h_vmem``."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield limit


def _cpu_quotas(root: Path) -> Iterator[float]:
    """CPUs that control groups allow."""
    for folder in _groups("cpu", root):
        words = _read(folder / "cpu.max").split() or [
            _read(folder / "cpu.cfs_quota_us"),
            _read(folder / "cpu.cfs_period_us"),
        ]
        with suppress(ValueError, ZeroDivisionError):  # "max", or no limit at all
            if (quota := int(words[0])) > 0:
                yield quota / int(words[1])


def _group_memory(root: Path) -> Iterator[int]:
    """Bytes that control groups leave; what they cache of files can be taken back."""
    for folder in _groups("memory", root):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            with suppress(ValueError):
                yield int(_read(folder / limit)) - int(_read(folder / used)) + _file_cache(folder)


def _file_cache(folder: Path) -> int:
    words = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    return int(words.get("total_inactive_file", words.get("inactive_file", "0")))


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Directories of the control groups of this process, from its own up to that of the whole system or container."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        own = mount / path.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(mount) and folder.is_dir())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
