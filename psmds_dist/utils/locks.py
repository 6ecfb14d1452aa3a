"""Locks on paths: one live process writes to a path at a time."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psmds_dist.core.errors import StorageError

OWNER = b"process "
"""Beginning of the content of a lock file."""

_HELD: dict[Path, int] = {}
"""Paths that this process has locked, with the thread that holds each lock."""


@contextmanager
def exclusive_lock(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold an exclusive lock on ``path``, which need not exist, and yield whether it could be taken.

    It is a lock of the operating system on a hidden file beside ``path``, so it is released when its process ends for
    any reason, on any machine. On a file system without locks the block runs without one. The lock is reentrant within
    a thread.

    Raises
    ------
    StorageError
        If another live process or thread holds the lock.
    """
    place = Path(os.path.realpath(path))
    if not place.name:  # the root directory; writing to it fails later with its own message
        yield False
        return
    if _HELD.get(place) == threading.get_ident():
        yield True
        return
    made = _make_folders(place)
    try:
        with _locked(place) as certain:
            yield certain
    finally:
        for folder in made:  # if nothing was written
            with suppress(OSError):
                folder.rmdir()


def _make_folders(place: Path) -> list[Path]:
    """Create the directories above a path, and return those that were missing, deepest first."""
    missing = [folder for folder in place.parents if not folder.exists()]
    with suppress(OSError):  # reported when something is written
        place.parent.mkdir(parents=True, exist_ok=True)
    return missing


@contextmanager
def _locked(place: Path) -> Iterator[bool]:
    file = place.with_name(f".{place.name}.lock")
    handle = _lock(place, file)
    if handle is None:
        yield False
        return
    _HELD[place] = threading.get_ident()
    try:
        yield True
    finally:
        del _HELD[place]
        with suppress(OSError):
            file.unlink()  # before releasing the lock, so that no process locks an unlinked file
        os.close(handle)


def _lock(place: Path, file: Path) -> int | None:
    """Take the lock, or fail and name its owner; None on a file system without locks."""
    handle = _open(file)
    if handle is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        current = _is_current(handle, file)
    except BlockingIOError:
        owner = os.read(handle, 300).decode(errors="replace") or "another process"
        os.close(handle)
        raise StorageError(f"{place} is being written by {owner}; wait until it ends or choose another path.") from None
    except OSError:  # no locks here; remove the file that was created for one
        with suppress(OSError):
            if not os.fstat(handle).st_size:
                file.unlink()
        os.close(handle)
        return None
    if not current:  # released between opening and locking
        os.close(handle)
        return _lock(place, file)
    with suppress(OSError):
        os.truncate(handle, 0)
        os.pwrite(handle, OWNER + f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
    return handle


def _open(file: Path) -> int | None:
    """Open or create a lock file; None if that fails, or if a foreign file has its name."""
    for mode in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # a file of another user can be locked, too
        with suppress(OSError):
            handle = os.open(file, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            if _is_lock_file(handle):
                return handle
            os.close(handle)
    return None


def _is_lock_file(handle: int) -> bool:
    status = os.fstat(handle)
    return stat.S_ISREG(status.st_mode) and os.pread(handle, len(OWNER), 0) in (b"", OWNER)


def _is_current(handle: int, file: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False
