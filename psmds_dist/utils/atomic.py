"""Atomic creation and removal of directories and files."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psmds_dist.core.errors import OwnershipLost, StorageError
from psmds_dist.utils.lease import owner_of
from psmds_dist.utils.locks import exclusive_lock, require_owner
from psmds_dist.utils.remote_paths import AnyPath, RemotePath

SIBLING = re.compile(r"(new|old)-[0-9a-f]{12}")
"""Suffix of directories that are not complete yet, or are being removed."""


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory beside ``path``, which is synced and renamed to ``path`` when the block succeeds.

    An existing ``path`` is moved aside first and removed last, together with the leftovers of killed processes that
    wrote to the same path. Other processes are locked out meanwhile.
    """
    with exclusive_lock(path) as alone:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh, written = sibling(path, "new"), False
        try:
            yield fresh
            _sync_tree(fresh)
            with moved_aside(path):
                _commit(fresh, path)
                written = True
            _sync(path.parent)
            if alone:
                _sweep(path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            if alone and written:  # interrupted before or while it swept, and nobody else will
                _sweep(path)
            raise


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a new file, which is synced and renamed to ``path`` when the block succeeds.

    A ``path`` that is not a regular file, such as ``/dev/stdout``, is yielded itself; to a `RemotePath` the file is
    uploaded.
    """
    if isinstance(path, RemotePath):
        with _uploaded(path) as fresh:
            yield fresh
        return
    place = Path(os.path.realpath(path))
    plain = place.is_file() or not place.exists()
    if not place.parent.is_dir():
        raise StorageError(f"{os.fspath(path)} cannot be written; create its directory first or choose another path.")
    beside = place.with_name(f".{uuid.uuid4().hex[:12]}-{place.name}")  # keeps the suffix, which selects the format
    try:
        yield beside if plain else place
        if plain:
            _sync(beside)
            require_owner(place)
            os.replace(beside, place)
            require_owner(place)
            _sync(place.parent)
    except OSError as error:
        raise StorageError(f"{os.fspath(path)} cannot be written: {error.strerror or error}.") from None
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _uploaded(path: RemotePath) -> Iterator[Path]:
    """Yield the path of a temporary file, which becomes an object when the block succeeds."""
    with tempfile.TemporaryDirectory(prefix="psmds-") as folder:
        fresh = Path(folder, path.name)
        yield fresh
        require_owner(path)
        path.upload(fresh)
        require_owner(path)


def replace_unsynced(path: AnyPath, text: str) -> None:
    """Replace a file, for readers at once; what a crash of the machine leaves does not matter."""
    if isinstance(path, RemotePath):
        path.write_bytes(text.encode())
        return
    fresh = path.with_name(f".{uuid.uuid4().hex[:12]}-{path.name}")
    try:
        fresh.write_text(text)
        os.replace(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


@contextmanager
def moved_aside(path: Path) -> Iterator[None]:
    """Remove what is at ``path`` when the block succeeds, and restore it otherwise."""
    require_owner(path)
    if not path.exists():
        yield
        return
    old = sibling(path, "old")
    try:
        os.rename(path, old)
        yield
    except BaseException:
        if path.exists():  # the replacement, if the interrupt came after it
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a directory atomically: it is never seen half removed under its name."""
    with moved_aside(path):
        require_owner(path)  # otherwise it comes back


def is_free(path: Path) -> bool:
    """Whether ``path`` does not exist or is an empty directory."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def folder_above(path: Path) -> Path:
    """Return the nearest existing directory above a path."""
    return next(folder for folder in [*path.parents, path] if folder.exists())


def sibling(path: Path, role: str) -> Path:
    """Return a new name beside ``path`` for what will replace it (``"new"``) or was replaced (``"old"``)."""
    return path.with_name(f".{path.name}.{role}-{uuid.uuid4().hex[:12]}")


def _commit(fresh: Path, path: Path) -> None:
    """Rename a directory, and back again if another process has become the owner of ``path`` and will write it, too."""
    own = os.stat(fresh)
    require_owner(path)
    os.rename(fresh, path)
    try:
        require_owner(path)
    except OwnershipLost:
        if owner_of(path) is not None and os.path.samestat(own, os.stat(path)):
            os.rename(path, fresh)
            if not os.path.samestat(own, os.stat(fresh)):  # the other one has written its own since
                os.rename(fresh, path)
        raise


def _sweep(path: Path) -> None:
    """Remove leftover siblings of ``path``, which are no longer needed once it is written."""
    named = path.parent.glob(f".{glob.escape(path.name)}.*-*")
    siblings = [left for left in named if SIBLING.fullmatch(left.name.removeprefix(f".{path.name}."))]
    require_owner(path)  # after listing them: none is of a later owner
    for left in siblings:
        with suppress(FileNotFoundError):  # its owner, which has lost ``path``, may remove it, too
            if _is_group(left):
                shutil.rmtree(left, ignore_errors=True)


def _is_group(folder: Path) -> bool:
    """Whether a directory holds a Zarr group, or the beginning of one, like all that `atomic_directory` creates."""
    begun = all(file.name.endswith(".partial") for file in folder.iterdir()) if folder.is_dir() else False
    return begun or (folder / "zarr.json").exists()


def _sync_tree(root: Path) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            _sync(Path(directory, name))
        _sync(Path(directory))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
