"""Who may write to a place: one live process at a time."""

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
"""How what a lock file says begins."""

_OWNED: dict[Path, int] = {}
"""Places that this process owns, and which of its threads does."""


@contextmanager
def exclusive_lock(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Own what is, or will be, at ``path`` for the length of a block; yield whether that is certain.

    The lock is the system's, on a hidden file beside ``path``: it goes when its process ends, however that happens, on
    whichever machine that was. Where the file system has no locks the block runs without one. A thread that owns a
    place may ask for it again.

    Raises
    ------
    StorageError
        When somebody else who lives owns it.
    """
    place = Path(os.path.realpath(path))
    if not place.name:  # the root, where nothing can be written, as is told later
        yield False
        return
    if _OWNED.get(place) == threading.get_ident():
        yield True
        return
    made = _make_folders(place)
    try:
        with _locked(place) as certain:
            yield certain
    finally:
        for folder in made:  # where nothing came of it
            with suppress(OSError):
                folder.rmdir()


def _make_folders(place: Path) -> list[Path]:
    """Make the directories above a place, and return those that were not there, from below."""
    missing = [folder for folder in place.parents if not folder.exists()]
    with suppress(OSError):  # told where something is written
        place.parent.mkdir(parents=True, exist_ok=True)
    return missing


@contextmanager
def _locked(place: Path) -> Iterator[bool]:
    file = place.with_name(f".{place.name}.lock")
    handle = _lock(place, file)
    if handle is None:
        yield False
        return
    _OWNED[place] = threading.get_ident()
    try:
        yield True
    finally:
        del _OWNED[place]
        with suppress(OSError):
            file.unlink()  # before the lock goes, so that nobody takes it on a file without a name
        os.close(handle)


def _lock(place: Path, file: Path) -> int | None:
    """Take the lock, or tell who has it; None where there are no locks."""
    handle = _open(file)
    if handle is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        current = _same(handle, file)
    except BlockingIOError:
        owner = os.read(handle, 300).decode(errors="replace") or "another process"
        os.close(handle)
        raise StorageError(
            f"{place} is being written by {owner}: wait until that has ended, or give another path."
        ) from None
    except OSError:  # there are no locks here, but now there is a file
        with suppress(OSError):
            if not os.fstat(handle).st_size:
                file.unlink()
        os.close(handle)
        return None
    if not current:  # it was given back between our two steps
        os.close(handle)
        return _lock(place, file)
    with suppress(OSError):
        os.truncate(handle, 0)
        os.pwrite(handle, OWNER + f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
    return handle


def _open(file: Path) -> int | None:
    """Open a lock file, or make it; None where that cannot be, or where a file of somebody else has its name."""
    for mode in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):  # what another user has made can be locked all the same
        with suppress(OSError):
            handle = os.open(file, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            if _is_ours(handle):
                return handle
            os.close(handle)
    return None


def _is_ours(handle: int) -> bool:
    status = os.fstat(handle)
    return stat.S_ISREG(status.st_mode) and os.pread(handle, len(OWNER), 0) in (b"", OWNER)


def _same(handle: int, file: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False
