"""The machine: its facts, the peak memory of a process, and the page cache."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from psmds_dist.core.layout import format_bytes
from psmds_dist.data.store import chunkfile

CONTROL_GROUPS = Path("/sys/fs/cgroup")

PACKAGES = (
    "psmds-dist",
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "zarr",
    "dask",
    "distributed",
    "scikit-learn",
    "scikit-bio",
    "s_gd2",
    "pymde",
    "torch",
)


def facts() -> dict[str, Any]:
    """Facts that a reader of the figures needs."""
    return {
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "caches": _caches(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
        "blas": _blas(),
        "load_average": os.getloadavg(),
    }


def describe(facts: dict[str, Any]) -> str:
    """Describe the machine in one line, and whether it is idle enough to measure."""
    load = facts["load_average"][0]
    busy = "; others are at work, so believe ratios rather than times" if load > facts["cores"] / 2 else ""
    memory = format_bytes(facts["memory"])
    return f"{facts['cpu']}, {facts['cores']} cores, {memory}, Python {facts['python']}, load {load:.1f}{busy}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    lines = _read("/proc/cpuinfo").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _caches() -> dict[str, str]:
    """Cache sizes of the first core, such as ``{"L1 Data": "32K"}``, if Linux reports them."""
    found = {}
    for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(place / name).strip() for name in ("level", "type", "size"))
        found[f"L{level} {kind}"] = size
    return found


def _blas() -> list[dict[str, Any]]:
    import numpy as np
    import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS)
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    names = ("internal_api", "version", "num_threads", "architecture")
    return [{name: pool.get(name) for name in names} for pool in threadpool_info() if pool["user_api"] == "blas"]


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def peak_memory() -> int:
    """Peak resident bytes of this process; ``ru_maxrss`` would be inherited from the parent."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def files_below(place: Path) -> list[Path]:
    """All files of a directory, sorted."""
    return sorted(path for path in place.rglob("*") if path.is_file())


def sync(paths: Iterable[Path]) -> None:
    """Write files to the disk; only then can the page cache drop them."""
    _each(paths, os.fsync)


def drop_cached(paths: Iterable[Path]) -> None:
    """Drop files from the page cache, without root privileges."""
    _each(paths, lambda handle: os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED))


def fetch(paths: Iterable[Path]) -> None:
    """Ask the system to read files into the page cache, like the solver."""
    _each(paths, lambda handle: chunkfile.fetch(handle, 0, os.fstat(handle).st_size))


def _each(paths: Iterable[Path], act: Callable[[int], None]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            act(handle)
        finally:
            os.close(handle)


@contextmanager
def slow_disk(place: Path, rate: int) -> Iterator[bool]:
    """Let this process read from the disk of a directory at ``rate`` bytes a second; yield whether that can be had.

    It takes a control group, so Linux and the rights of root; what other processes read is not limited.
    """
    group, rule = _throttled(place, rate)
    if group is None:
        yield False
        return
    home = _own_group(group)
    try:
        (group / rule[0]).write_text(rule[1])
        (group / "cgroup.procs").write_text("0")
        yield True
    finally:
        with suppress(OSError):
            (home / "cgroup.procs").write_text("0")
        group.rmdir()


def _throttled(place: Path, rate: int) -> tuple[Path | None, tuple[str, str]]:
    """A new control group, with the file and the line that limit it; None where none can be made."""
    device = os.stat(place).st_dev
    whole = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    numbers = _read((whole.parent if (whole / "partition").exists() else whole) / "dev").strip()
    for root, file, line in (
        (CONTROL_GROUPS / "blkio", "blkio.throttle.read_bps_device", f"{numbers} {rate}"),
        (CONTROL_GROUPS, "io.max", f"{numbers} rbps={rate}"),
    ):
        group = root / f"psmds-benchmark-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            if numbers and (group / file).exists():
                return group, (file, line)
            group.rmdir()
    return None, ("", "")


def _own_group(group: Path) -> Path:
    """Control group that this process is in, in the hierarchy of another one."""
    wanted = "blkio" if group.parent.name == "blkio" else ""
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if wanted in controllers.split(","):
            return group.parent / path.lstrip("/")
    return group.parent


def bytes_from_disk() -> int:
    """Bytes that all processes of this machine have read from its disks since it started."""
    for line in _read("/proc/vmstat").splitlines():
        if line.startswith("pgpgin "):
            return int(line.split()[1]) * 1024
    return 0
