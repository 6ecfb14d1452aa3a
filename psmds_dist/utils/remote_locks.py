"""Ownership of URLs: a lock object beside what is written, made and replaced by conditional writes.

It names its owner as lock files do (`psmds_dist.utils.lease`). No system gives it up for a process that was killed, so
it is taken over after `lease.LEASE` seconds without a heartbeat, or at once by a later restart of the same job.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psmds_dist.core.errors import InputError, StorageError
from psmds_dist.utils import lease
from psmds_dist.utils.extras import extra
from psmds_dist.utils.lease import Claim, Heartbeat, Owner, fenced
from psmds_dist.utils.remote import is_read_only, open_objects, parent_of, patiently

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""Attempts to take a lock object that others take or give up at the same time."""


FRESH = 1.0
"""Seconds for which ownership that was seen counts: asking takes about as long as writing."""

_SEEN: dict[str, float] = {}
"""When this process last saw its ownership, by the key of the owner."""


class RemoteClaim(Claim):
    """Ownership of a URL."""

    def require(self) -> None:
        """Raise `OwnershipLost` if another process has become the owner, as far as was seen in the last second."""
        if time.monotonic() - _SEEN.get(self.owner.key, -FRESH) >= FRESH:
            super().require()
            _SEEN[self.owner.key] = time.monotonic()

    def beat(self, count: int) -> None:
        """Write a heartbeat, if this is the lock object of the claim."""
        with suppress(*_lost_races(), OSError):
            found, version = _read(self.file)
            if found == self.owner:
                _put(self.file, self.owner, count, version)

    def _found(self) -> Owner | None:
        """Owner in the lock object; None if there is none. Where it cannot be read nothing can be written either."""
        try:
            return _read(self.file)[0]
        except FileNotFoundError:
            return None
        except OSError:
            return self.owner


_HELD: dict[str, tuple[int, RemoteClaim]] = {}
"""Thread and claim of each URL that this process owns."""


def remote_claim_on(url: str) -> RemoteClaim | None:
    """Claim of this process on a URL, or on one above it; None without one."""
    place = url.rstrip("/")
    while not place.endswith("/"):  # what is left in the end is the scheme
        if place in _HELD:
            return _HELD[place][1]
        place = parent_of(place)
    return None


@contextmanager
def remote_lock(url: str) -> Iterator[bool]:
    """Own a URL; reentrant within a thread, as `psmds_dist.utils.locks.exclusive_lock`.

    Raises
    ------
    InputError
        If nothing can be written there.
    StorageError
        If another live process or thread owns it.
    OwnershipLost
        At the end of the block, if another process has become the owner.
    """
    place = url.rstrip("/")
    held = _HELD.get(place)
    if held is not None and held[0] == threading.get_ident():
        with fenced(held[1]):
            yield True
        return
    claim = _take(place, _lock_of(place))
    heartbeat = Heartbeat(claim)
    _HELD[place] = threading.get_ident(), claim
    try:
        heartbeat.start()
        yield True
    finally:
        heartbeat.end()
        del _HELD[place]
        claim.require()
        _delete(claim.file)


def _lock_of(place: str) -> str:
    """URL of the lock object."""
    if is_read_only(place):
        raise InputError(f"{place} cannot be written by HTTP; give a local path, or a URL of S3, GCS or Azure.")
    above, name = parent_of(place), place.rpartition("/")[2]
    if above.endswith("/"):
        raise InputError(f"{place} is a whole bucket; give a path inside, such as {place}/matrix.zarr.")
    return f"{above}/.{name}.lock"


def _take(place: str, file: str) -> RemoteClaim:
    """Become the owner, or fail and name the one that is."""
    owner = Owner.current()
    version: Any = None
    for _ in range(ATTEMPTS):
        with suppress(*_lost_races()):
            _put(file, owner, 0, version or "create")
            return RemoteClaim(place, file, owner)
        with suppress(FileNotFoundError):  # given up meanwhile
            version = None
            found, version = _read(file)
            if found.key == owner.key:  # written by an attempt whose answer was lost
                return RemoteClaim(place, file, owner)
            _require_free(place, file, found)
            owner = Owner.current(found)
    raise StorageError(f"{place} is being taken by several processes; run one of them at a time.")


def _require_free(place: str, file: str, found: Owner) -> None:
    """Refuse a place whose owner is alive; may wait for a sign of life."""
    if Owner.current(found).replaces(found):
        log.warning("%s is taken over from %s: this is a later restart of its job", place, found)
        return
    log.warning("%s may be in use by %s; waiting up to %.0f s for a sign of life", place, found, lease.LEASE)
    if _shows_life(file):
        raise StorageError(f"{place} is being written by {found}; wait until it ends or choose another path.")
    log.warning("%s showed no sign of life; %s is taken over", found, place)


def _shows_life(file: str) -> bool:
    """Watch a lock object for `lease.LEASE` seconds and return whether it was written anew."""
    seen, end = _version(file), time.monotonic() + lease.LEASE
    while time.monotonic() < end:
        time.sleep(min(lease.INTERVAL, lease.LEASE) / 5)
        found = _version(file)
        if found != seen:
            return found is not None
    return False


def _version(file: str) -> Any:
    with suppress(FileNotFoundError):
        return _read(file)[1]
    return None


def _read(file: str) -> tuple[Owner, dict[str, Any]]:
    """Owner in a lock object, and the version of the object: S3 and Azure compare its tag, GCS its generation."""
    obstore = extra("obstore", "remote", file)
    objects, name = _object(file)
    answer = patiently(file, lambda: obstore.get(objects, name))
    version = {name: answer.meta[name] for name in ("e_tag", "version") if answer.meta[name] is not None}
    return Owner.parse(bytes(answer.bytes())), version


def _put(file: str, owner: Owner, count: int, mode: Any) -> None:
    obstore = extra("obstore", "remote", file)
    objects, name = _object(file)
    content = owner.header() + lease.stamp(count)
    patiently(file, lambda: obstore.put(objects, name, content, mode=mode, use_multipart=False))


def _delete(file: str) -> None:
    obstore = extra("obstore", "remote", file)
    objects, name = _object(file)
    with suppress(OSError):
        patiently(file, lambda: obstore.delete(objects, name))


def _object(file: str) -> tuple[Any, str]:
    return open_objects(parent_of(file)), os.path.basename(file)


def _lost_races() -> tuple[type[Exception], ...]:
    """Errors of conditional writes that came too late."""
    errors = extra("obstore.exceptions", "remote", "a URL")
    return errors.AlreadyExistsError, errors.PreconditionError
