"""Groups and arrays of Zarr: where they are, and what ours say of themselves."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, ZipStore

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import InputError, StorageError
from psmds_dist.data.store.archives import archive_of, open_archive
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.utils.remote import is_url

KEY = "psmds"
FORMAT = 1

PART_OF_STORE = "part of a psmds store"
"""Attribute of the array in a store, by which it is known when its group is damaged."""

Header = dict[str, Any]

ZARR_ERRORS = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RuntimeError, OSError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What Zarr ends in when files are not what it expects."""


def read_header(group: zarr.Group) -> Header:
    """Return what a group says of itself; empty when it is not one of ours."""
    if group.metadata.zarr_format != 3:  # ours never is another one, in which text may be hidden pickles
        return {}
    header = group.attrs.get(KEY, {})
    return header if isinstance(header, dict) and isinstance(header.get("kind"), str) else {}


def open_node(place: str) -> zarr.Array[Any] | zarr.Group:
    """Open an array or group to read: at a URL, in a directory, or in a ``.zip`` archive."""
    if is_url(place):
        return zarr.open(RemoteStore(place), mode="r")
    archive = None if "://" in place else archive_of(os.path.abspath(place))
    if archive is not None:
        store, path = open_archive(*archive)
        return zarr.open(store, path=path, mode="r")
    return zarr.open(place if "://" in place else os.path.abspath(place), mode="r")


def open_ours(place: str) -> zarr.Group | None:
    """Open a group of ours to read; None where there is none."""
    try:
        node = open_node(place)
        return node if isinstance(node, zarr.Group) and read_header(node) else None
    except StorageError:
        raise
    except (InputError, *ZARR_ERRORS):
        return None


def header_at(place: str | Path) -> Header:
    """Return what the group in a directory, or at a URL, says of itself; empty when it is not one of ours."""
    try:
        return read_header(zarr.open_group(store_at(place), mode="r"))
    except StorageError:
        raise
    except ZARR_ERRORS:
        return {}


def store_at(place: str | Path, *, writable: bool = False) -> str | Store:
    """Return what Zarr opens for a directory or URL."""
    return RemoteStore(str(place), read_only=not writable) if is_url(place) else str(place)


def metadata_file(group: zarr.Group, name: str) -> bytes:
    """Return the metadata file of an array in a group, from any kind of store."""
    key = f"{group.path}/{name}/zarr.json".lstrip("/")
    found = sync(group.store.get(key, default_buffer_prototype()))
    if found is None:
        raise KeyError(key)
    return found.to_bytes()


def directory(node: zarr.Array[Any] | zarr.Group) -> Path:
    """Return the directory of an array or group in a local store."""
    return Path(cast("LocalStore", node.store).root, node.path)


def location(node: zarr.Array[Any] | zarr.Group) -> str:
    """Return where an array or group is, for people."""
    if isinstance(node.store, ZipStore):
        return str(node.store.path / node.path)
    if isinstance(node.store, RemoteStore):
        return f"{node.store}/{node.path}".rstrip("/")
    return str(directory(node)) if isinstance(node.store, LocalStore) else str(node.store_path)


@contextmanager
def damage_told(where: str) -> Iterator[None]:
    """Turn what damaged files end in into a sentence."""
    try:
        yield
    except (InputError, StorageError):
        raise
    except ZARR_ERRORS as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise DamagedDataError(f"{where} is damaged ({reason}); restore it from a copy, or make it anew.") from None
