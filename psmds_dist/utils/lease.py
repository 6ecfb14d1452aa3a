"""Ownership of paths, also across machines: who may write, who takes over, and how the loser is kept from writing.

A lock file beside a path names its owner: process, host, job, a token that only grows, and a heartbeat. It is written
in full before it gets its name, or by the process that created it, and it is replaced, never rewritten, by a successor.
So an owner finds out that it lost by reading the file again.

Who may take a path that has an owner already:

* A later restart of the same job, at once: the batch system has declared the old process dead. The job is
  ``SLURM_JOB_ID`` with ``SLURM_RESTART_COUNT``, or ``PSMDS_JOB`` with ``PSMDS_RESTART`` where another system restarts.
* On the same kernel (boot id) the lock decides (`psmds_dist.utils.locks`): a process that ends for
  any reason gives it up.
* On another kernel, or without locks, the heartbeat decides, since locks may not reach so far (NFS without lockd,
  ``local_lock``): the owner is alive if it changes within `LEASE` seconds of the clock of the observer. No times of two
  machines are compared.

What keeps the loser from doing harm: it reads the lock file just before and after each rename (`fenced`), raises
`OwnershipLost`, and then writes, renames and removes nothing. It may still be stopped for any time between reading and
renaming. Therefore directories are renamed from unique names, and back if ownership was lost meanwhile; states of a
checkpoint have the token in their names, and no owner removes those of a higher token; chunks of a store depend on its
source only.

What remains needs a loser that is stopped within these microseconds, and one of the following: it is killed before it
can rename back; its chunk of another source lands in a store that was begun anew at the same path; it replaces a file
other than a state, where the last rename counts.

URLs are owned by objects with the same content (`psmds_dist.utils.remote_locks`).
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psutil

from psmds_dist.core.errors import InputError, OwnershipLost

PREFIX = b"process "
"""Beginning of the content of a lock file."""

INTERVAL = 5.0
"""Seconds between two heartbeats."""

LEASE = 60.0
"""Seconds without a heartbeat after which an owner counts as dead; a busy file server may delay a few."""

ATTEMPTS, PAUSE = 5, 0.1
"""Attempts to read a lock file that is missing, perhaps for a moment, and the seconds after each."""

LARGEST = 4096
"""Bytes of a lock file that are read."""


@dataclass(frozen=True)
class Owner:
    """What a lock file tells about its owner.

    Attributes
    ----------
    name : str
        Process and host, for people.
    token : int
        Greater than that of every earlier owner: the time in seconds, or more where clocks differ.
    kernel : str
        Boot id of the system: locks reach all its processes. Empty for owners that earlier versions wrote.
    job, restart : str, int
        Job of the batch system and how many times it was restarted; empty outside of one.
    since : str
        When the path was taken.
    key : str
        Unique.
    """

    name: str = ""
    token: int = 0
    kernel: str = ""
    job: str = ""
    restart: int = 0
    since: str = ""
    key: str = ""

    @classmethod
    def current(cls, previous: Owner | None = None) -> Owner:
        """Describe this process, as the successor of another owner."""
        job, restart = job_of(os.environ)
        return cls(
            name=f"{PREFIX.decode()}{os.getpid()} on {socket.gethostname()}",
            token=max(int(time.time()), 1 + (previous.token if previous else 0)),
            kernel=_kernel(),
            job=job,
            restart=restart,
            since=_now(),
            key=uuid.uuid4().hex,
        )

    @classmethod
    def parse(cls, content: bytes) -> Owner:
        """Read the content of a lock file; of one that is not complete or that an earlier version wrote, the name."""
        name, _, rest = content.decode(errors="replace").partition("\n")
        with suppress(ValueError, TypeError):
            return cls(name=name, **json.loads(rest.partition("\n")[0]))
        return cls(name=name)

    def header(self) -> bytes:
        """Content of a lock file up to the heartbeat."""
        facts = asdict(self)
        return f"{facts.pop('name')}\n{json.dumps(facts)}\n".encode()

    def replaces(self, other: Owner) -> bool:
        """Whether this is a later restart of the same job."""
        return bool(self.job) and self.job == other.job and self.restart > other.restart

    def has_ended(self) -> bool:
        """Whether the process was one of this system and is not there any more: only its lock file is left."""
        named = re.fullmatch(rf"{PREFIX.decode()}(\d+) on {re.escape(socket.gethostname())}", self.name)
        if named is None or self.kernel != _kernel():
            return False
        with suppress(ValueError, TypeError):
            return has_ended(int(named[1]), datetime.fromisoformat(self.since).timestamp())
        return False

    def __str__(self) -> str:
        """Process, host and job."""
        job = f" (job {self.job}, restart {self.restart})" if self.job else ""
        return (self.name or "another process") + job


@dataclass(frozen=True)
class Claim:
    """Ownership of a path by this process, or by the one that has sent the claim here."""

    place: str
    file: str
    owner: Owner

    def holds(self) -> bool:
        """Whether the path is still owned; also true while its directory cannot be reached: nothing can be written."""
        return self._found() == self.owner

    def require(self) -> None:
        """Raise `OwnershipLost` if another process has become the owner."""
        if (found := self._found()) != self.owner:
            by = "another process, which has ended since" if found is None else str(found)
            raise OwnershipLost(
                f"{self.place} was taken over by {by}, because {self.owner} was replaced or showed no sign of life; "
                "this process ends and writes nothing more there."
            )

    def beat(self, count: int) -> None:
        """Write a heartbeat, if this is the lock file of the claim."""
        with suppress(OSError), _opened(self.file, os.O_RDWR) as handle:
            if owner_in(handle) == self.owner:
                os.pwrite(handle, stamp(count), len(self.owner.header()))

    def _found(self) -> Owner | None:
        """Owner in the lock file; None if there is no file in its directory."""
        for _ in range(ATTEMPTS):
            try:
                return read_owner(self.file)
            except FileNotFoundError:
                time.sleep(PAUSE)
            except OSError:
                return self.owner
        return None if os.path.isdir(os.path.dirname(self.file)) else self.owner


class Heartbeat(threading.Thread):
    """A thread that shows other machines that the owner of a path is alive."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(name="psmds-heartbeat", daemon=True)
        self._claim = claim
        self._ended = threading.Event()

    def run(self) -> None:
        """Write a heartbeat from time to time, until the path is given up or lost."""
        count = 0
        while not self._ended.wait(INTERVAL) and self._claim.holds():
            self._claim.beat(count := count + 1)

    def end(self) -> None:
        """End soon, without waiting for a file server."""
        self._ended.set()


@contextmanager
def fenced(claim: Claim | None) -> Iterator[None]:
    """Require ownership before and after a block, also when the block fails: the loss may be the reason."""
    if claim is not None:
        claim.require()
    try:
        yield
    finally:
        if claim is not None:
            claim.require()


def owner_of(path: str | os.PathLike[str]) -> Owner | None:
    """Owner of a path, perhaps one that was killed; None without one. For reports: it takes nothing."""
    place = Path(os.path.realpath(path))
    try:
        return read_owner(place.with_name(f".{place.name}.lock"))
    except (OSError, ValueError):
        return None


def has_ended(pid: int, seen: float) -> bool:
    """Whether a process of this system, which was there at a time in seconds since 1970, is not there any more."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() == psutil.STATUS_ZOMBIE or process.create_time() > seen + 1)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def read_owner(file: str | os.PathLike[str]) -> Owner:
    """Owner in a lock file; raises OSError if it cannot be read."""
    with _opened(file, os.O_RDONLY) as handle:  # opened each time: NFS asks the server then
        return owner_in(handle)


def owner_in(handle: int) -> Owner:
    """Owner in an open lock file."""
    return Owner.parse(os.pread(handle, LARGEST, 0))


def job_of(environment: os._Environ[str] | dict[str, str]) -> tuple[str, int]:
    """Job that this process belongs to, and how often it was restarted; an empty name outside of one."""
    if job := environment.get("PSMDS_JOB"):
        return job, _count(environment, "PSMDS_RESTART")
    if job := environment.get("SLURM_JOB_ID"):
        cluster = environment.get("SLURM_CLUSTER_NAME")
        return f"{job} of {cluster}" if cluster else job, _count(environment, "SLURM_RESTART_COUNT")
    return "", 0


def _count(environment: os._Environ[str] | dict[str, str], name: str) -> int:
    text = environment.get(name, "0")
    if not (text.isascii() and text.isdigit()):
        raise InputError(
            f"the environment variable {name} must be a whole number of restarts, not {text!r}; change it."
        )
    return int(text)


def shows_life(file: str | os.PathLike[str]) -> bool:
    """Watch a lock file for `LEASE` seconds and return whether it changed; one that is removed did."""
    seen, end = _content(file), time.monotonic() + LEASE
    while time.monotonic() < end:
        time.sleep(min(INTERVAL, LEASE) / 10)
        if _content(file) != seen:
            return True
    return False


def write_owner(handle: int, owner: Owner) -> None:
    """Write the lock file of an owner, of which this process alone knows the name or has created it."""
    content = owner.header() + stamp(0)
    if os.pwrite(handle, content, 0) != len(content):
        raise OSError("the disk is full")


@contextmanager
def _opened(file: str | os.PathLike[str], flags: int) -> Iterator[int]:
    handle = os.open(file, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield handle
    finally:
        os.close(handle)


def _content(file: str | os.PathLike[str]) -> bytes | None:
    with suppress(OSError), _opened(file, os.O_RDONLY) as handle:
        return os.pread(handle, LARGEST, 0)
    return None


def stamp(count: int) -> bytes:
    """A heartbeat: its number and time, always of the same length."""
    return f"heartbeat {count:012d} {_now()}\n".encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def _kernel() -> str:
    """Identity of the running kernel; the name of the host where the system has no better one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
