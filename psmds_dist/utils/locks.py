"""Locks on paths: one live process writes to a path at a time."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from psmds_dist.core.errors import StorageError
from psmds_dist.utils import lease
from psmds_dist.utils.lease import PREFIX, Claim, Heartbeat, Owner, fenced
from psmds_dist.utils.remote import is_url
from psmds_dist.utils.remote_locks import remote_claim_on, remote_lock

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """A lock that this process holds.

    Attributes
    ----------
    thread, process : int
        Who holds it; not a child that was forked meanwhile.
    handle : int
        The open lock file.
    certain : bool
        Whether the system has locked it.
    claim : Claim, optional
        Missing where the lock file cannot be written.
    """

    thread: int
    process: int
    handle: int
    certain: bool
    claim: Claim | None


@dataclass(frozen=True)
class _Opened:
    """A lock file that was opened; ``locked`` is false if another process has locked it, None without locks."""

    file: Path
    handle: int
    created: bool
    locked: bool | None
    owner: Owner

    def is_current(self) -> bool:
        """Whether the open file is still the one at its path."""
        return _is_current(self.handle, self.file)


_HELD: dict[Path, Held] = {}
"""Locks of this process by path."""


@contextmanager
def exclusive_lock(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Own ``path``, which need not exist, and yield whether nobody else can own it at the same time.

    The owner is named in a hidden file beside ``path``, which is locked where the file system has locks, so that it is
    released when its process ends for any reason; `psmds_dist.utils.lease` describes what holds between machines.
    Where no such file can be made, the block runs without one. The lock is reentrant within a thread. A URL is owned by
    an object instead (`psmds_dist.utils.remote_locks`).

    Raises
    ------
    StorageError
        If another live process or thread owns the path.
    OwnershipLost
        At the end of the block, whatever else was raised in it, if another process has become the owner.
    """
    if is_url(path):
        with remote_lock(os.fspath(path)) as certain:
            yield certain
        return
    place = Path(os.path.realpath(path))
    if not place.name:  # the root directory; writing to it fails later with its own message
        yield False
        return
    held = _HELD.get(place)
    if held is not None and held.thread == threading.get_ident():
        with fenced(held.claim):
            yield held.certain
        return
    made = _make_folders(place)
    try:
        with _owned(place) as certain:
            yield certain
    finally:
        for folder in made:  # if nothing was written
            with suppress(OSError):
                folder.rmdir()


def claim_on(path: str | os.PathLike[str]) -> Claim | None:
    """Claim of this process on a URL, or on a path or a directory above it; None without one."""
    if is_url(path):
        return remote_claim_on(os.fspath(path))
    place = Path(os.path.realpath(path))
    held = next(filter(None, map(_HELD.get, [place, *place.parents])), None)
    return None if held is None else held.claim


def is_lost(path: str | os.PathLike[str]) -> bool:
    """Whether this process owned a path, or a directory above it, and does not any more."""
    claim = claim_on(path)
    return claim is not None and not claim.holds()


def require_owner(path: str | os.PathLike[str]) -> None:
    """Raise `OwnershipLost` if this process owned a path, or a directory above it, and does not any more."""
    if (claim := claim_on(path)) is not None:
        claim.require()


def _make_folders(place: Path) -> list[Path]:
    """Create the directories above a path, and return those that were missing, deepest first."""
    missing = [folder for folder in place.parents if not folder.exists()]
    with suppress(OSError):  # reported when something is written
        place.parent.mkdir(parents=True, exist_ok=True)
    return missing


@contextmanager
def _owned(place: Path) -> Iterator[bool]:
    file = place.with_name(f".{place.name}.lock")
    held = _take(place, file)
    if held is None:
        yield False
        return
    heartbeat = None if held.claim is None else Heartbeat(held.claim)
    _HELD[place] = held
    try:
        if heartbeat is not None:
            heartbeat.start()
        yield held.certain
    finally:
        if heartbeat is not None:
            heartbeat.end()
        _release(place, file, held)


def _release(place: Path, file: Path, held: Held) -> None:
    """Give up a path, and leave the lock file of a successor alone."""
    del _HELD[place]
    try:
        if held.process != os.getpid():
            return
        if held.claim is not None:
            held.claim.require()
        _remove(file, held.handle)
    finally:
        os.close(held.handle)


def _remove(file: Path, handle: int) -> None:
    """Remove a lock file before its lock is released, so that no process locks an unlinked file."""
    aside = _beside(file)
    with suppress(OSError):
        os.rename(file, aside)
        if _is_current(handle, aside):
            aside.unlink()
        else:  # that of a successor
            os.rename(aside, file)


def _take(place: Path, file: Path) -> Held | None:
    """Become the owner, or fail and name the one that is; None where there can be no lock file."""
    while (opened := _open(file)) is not None:
        with ExitStack() as stack:
            stack.callback(os.close, opened.handle)
            if _is_free(place, opened):
                held = _become_owner(place, opened)
                if held.handle == opened.handle:
                    stack.pop_all()
                return held
    return None


def _is_free(place: Path, opened: _Opened) -> bool:
    """Whether a lock file can be taken; false if it was removed or replaced since it was opened."""
    may_take = (opened.created and opened.locked is not False) or _may_take(place, opened)
    current = opened.is_current()
    if current and not may_take:
        raise _refusal(place, opened)
    return current


def _may_take(place: Path, opened: _Opened) -> bool:
    """Whether the owner has ended, or is replaced by this process; may wait for a sign of life."""
    owner, successor = opened.owner, Owner.current(opened.owner)
    if successor.replaces(owner):
        log.warning("%s is taken over from %s: this is a later restart of its job", place, owner)
        return True
    if opened.locked is not None and owner.kernel in ("", successor.kernel):
        return opened.locked
    log.warning("%s may be in use by %s; waiting up to %.0f s for a sign of life", place, owner, lease.LEASE)
    if lease.shows_life(opened.file):
        return False
    log.warning("%s showed no sign of life; %s is taken over", owner, place)
    return True


def _become_owner(place: Path, opened: _Opened) -> Held:
    """Write this process into a lock file that it has created, or else replace the file."""
    owner = Owner.current(opened.owner)
    handle, certain, claim = opened.handle, bool(opened.locked), None
    with suppress(OSError):  # the disk is full, or the directory belongs to another user: a lock must do
        if opened.created:
            lease.write_owner(handle, owner)
        else:
            handle, certain = _replace(opened, owner)
        claim = Claim(str(place), str(opened.file), owner)
    if claim is None and opened.locked is False:
        raise _refusal(place, opened)
    return Held(threading.get_ident(), os.getpid(), handle, certain, claim)


def _replace(opened: _Opened, owner: Owner) -> tuple[int, bool]:
    """Replace a lock file by one of another owner, and return its handle and whether it is locked."""
    fresh = _beside(opened.file)
    handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        locked = _flock(handle)
        lease.write_owner(handle, owner)
        os.replace(fresh, opened.file)
    except BaseException:
        os.close(handle)
        fresh.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # for an owner whose directory cache still has the old file
        os.truncate(opened.handle, 0)
    return handle, bool(locked)


def _beside(file: Path) -> Path:
    """Return a new name beside a lock file, also where its own is as long as names may be."""
    return file.with_name(f".{uuid.uuid4().hex[:12]}.lock")


def _refusal(place: Path, opened: _Opened) -> StorageError:
    return StorageError(f"{place} is being written by {opened.owner}; wait until it ends or choose another path.")


def _open(file: Path) -> _Opened | None:
    """Open, or create, and lock a lock file; None if that fails, or if a foreign file has its name."""
    for mode in (os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):  # a read-only file can be locked, too
        created = bool(mode & os.O_CREAT)
        try:
            handle = os.open(file, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except FileNotFoundError:
            return None if created else _open(file)  # removed meanwhile
        except OSError:
            continue
        if _is_lock_file(handle):
            return _Opened(file, handle, created, _flock(handle), lease.owner_in(handle))
        os.close(handle)
    return None


def _flock(handle: int) -> bool | None:
    """Lock a file: false if another process has locked it, None if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_lock_file(handle: int) -> bool:
    status = os.fstat(handle)
    return stat.S_ISREG(status.st_mode) and os.pread(handle, len(PREFIX), 0) in (b"", PREFIX)


def _is_current(handle: int, file: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False
