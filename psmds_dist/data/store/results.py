"""Results: Zarr groups that are written atomically."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import InputError, StorageError
from psmds_dist.data.store.header import FORMAT, KEY, damage_told, open_ours, read_header
from psmds_dist.data.store.integrity import digest_of_list, listed, require_seal, sealed
from psmds_dist.data.store.paths import (
    PathLike,
    place_of,
    require_apart,
    require_ours,
    require_ours_at,
    require_writable,
)
from psmds_dist.data.store.reading import IDS
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.data.store.writing import new_directory, versions, write_ids
from psmds_dist.utils.atomic import is_free
from psmds_dist.utils.locks import exclusive_lock, require_owner
from psmds_dist.utils.remote import absolute, is_url

KIND = "result"

ATTEMPTS = 5
"""Attempts to read a result that is replaced each time."""

Arrays = dict[str, np.ndarray[Any, Any]]


def write_result(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    attributes: Mapping[str, Any],
    ids: Sequence[str] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a result atomically.

    Parameters
    ----------
    path : path or URL
        A directory, or where its objects are.
    arrays : mapping of str to array
        Numeric arrays by name; a name such as ``history/epoch`` makes a subgroup.
    attributes : mapping
        JSON values.
    ids : sequence of str, optional
        Names of the rows.
    overwrite : bool
        Whether to replace an existing result once the new one is written. Nothing but a result is replaced.
    """
    require_owner(path)  # otherwise what another process has written would be a reason to write elsewhere
    place = require_result_place(path, overwrite=overwrite)
    write = partial(_write, arrays=arrays, attributes=attributes, ids=ids)
    try:
        write(place) if isinstance(place, Path) else _upload(place, write)
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
        raise StorageError(f"{place} cannot be written ({reason}); {save_to_fallback(write)}.") from None


def save_to_fallback(write: Callable[[Path], object]) -> str:
    """Write a result to the first fallback directory that accepts it, and describe the outcome."""
    folders = _fallback_directories()
    for folder in folders:
        other = folder / f"psmds-{uuid.uuid4().hex[:12]}"
        with suppress(OSError):
            write(other)
            return f"the result was saved in {other} instead; move it to where there is space"
    tried = ", ".join(map(str, folders))
    return f"no directory in {tried} could be written either, so the result is lost; free some space and rerun"


def _fallback_directories() -> list[Path]:
    """Directories for a result whose target cannot be written, best first."""
    folders = ["/tmp", "/var/tmp", os.path.expanduser("~")]
    with suppress(OSError):  # raised by `tempfile` if it finds no writable directory
        folders.insert(0, tempfile.gettempdir())
    return [Path(folder) for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


def _write(
    place: Path, arrays: Mapping[str, np.ndarray[Any, Any]], attributes: Mapping[str, Any], ids: Sequence[str] | None
) -> None:
    with new_directory(place) as fresh:
        group = zarr.create_group(str(fresh), zarr_format=3, attributes=dict(attributes))
        for name, values in arrays.items():
            group.create_array(
                name,
                data=values,
                chunks=tuple(max(1, length) for length in values.shape),
                compressors=[Crc32cCodec()],
                config={"write_empty_chunks": True},  # so that a missing chunk means damage
            )
        if ids is not None:
            write_ids(group, ids)
        header = {"format": FORMAT, "kind": KIND, "versions": versions(), IDS: digest_of_list(ids)}
        names = [*arrays, *([] if ids is None else [IDS])]
        group.attrs[KEY] = sealed(zarr.open_group(str(fresh), mode="r"), header, arrays=names, facts=list(attributes))


def _upload(url: str, write: Callable[[Path], object]) -> None:
    """Write a result at a URL; nothing is renamed there, so what makes it a result is removed first, written last."""
    store = RemoteStore(url, read_only=False)
    with tempfile.TemporaryDirectory(prefix="psmds-") as folder, exclusive_lock(url):
        write(Path(folder, "result"))
        require_owner(url)
        store.remove_all()
        store.upload(Path(folder, "result"), last="zarr.json")


def require_result_place(
    path: PathLike, *, overwrite: bool, nbytes: int = 0, apart: Sequence[PathLike | None] = ()
) -> Path | str:
    """Return the path or URL where a result is to be written, or reject it before the run starts.

    Parameters
    ----------
    path : path
        Target of a command.
    overwrite : bool
        Whether an existing result may be replaced.
    nbytes : int
        Size of the result.
    apart : sequence of path or None
        Other inputs and outputs of the command.
    """
    place = absolute(path) if is_url(path) else place_of(path)
    require_apart(path, *apart)
    if _is_taken(place, nbytes) and not overwrite:
        raise InputError(f"{place} already holds a result; choose another path or use overwrite=True (--overwrite).")
    return place


def _is_taken(place: Path | str, nbytes: int) -> bool:
    """Whether a result is at a path or URL; one that holds something else, or cannot be written, is refused."""
    if isinstance(place, str):
        return bool(require_ours_at(place, KIND, RemoteStore(place).objects()))
    require_writable(place, nbytes)
    return not is_free(place) and bool(require_ours(place, KIND))


def read_result(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any], list[str] | None]:
    """Read the arrays, attributes and ids that `write_result` wrote.

    A result that is replaced meanwhile is read again, so that its parts are consistent.
    """
    place = absolute(path)
    for left in reversed(range(ATTEMPTS)):
        seen = _identity(place)
        try:
            found = _read(place)
        except InputError:
            if not left or _identity(place) == seen:
                raise
        else:
            if _identity(place) == seen:
                return found
    raise InputError(
        f"{place} was replaced {ATTEMPTS} times while it was read; wait until no other process writes to it."
    )


def _identity(place: str) -> tuple[int, int] | tuple[int, str] | None:
    """Inode and change time, which differ after a directory is replaced, or the state of an object; None of nothing."""
    if is_url(place):
        return RemoteStore(place).look_at(["zarr.json"]).get("zarr.json")
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _read(place: str) -> tuple[Arrays, dict[str, Any], list[str] | None]:
    group = open_ours(place)
    header = {} if group is None else read_header(group)
    if group is None or header["kind"] != KIND:
        there = (
            f"holds {header['kind']}" if header else "is not a result" if os.path.exists(place) else "does not exist"
        )
        raise InputError(f"{place} {there}; give the result of a fit.")
    require_seal(group)
    arrays = _Parts(place, {name: _values(group, name, place) for name in header["arrays"] if name != IDS})
    attributes = _Parts(place, {key: value for key, value in group.attrs.items() if key != KEY})
    ids = listed(group, IDS)
    return arrays, attributes, None if ids is None else [str(name) for name in ids]


class _Parts(dict[str, Any]):
    """Parts of a result by name; a missing one is an error."""

    def __init__(self, place: str, parts: Mapping[str, Any]) -> None:
        super().__init__(parts)
        self._place = place

    def __missing__(self, name: str) -> Any:
        raise _damaged(self._place, f"{name} is missing")


def _values(group: zarr.Group, name: str, place: str) -> np.ndarray[Any, Any]:
    with damage_told(f"{place}/{name}"):
        array = cast("zarr.Array[Any]", group[name])
        if array.nchunks_initialized < array.nchunks:
            raise ValueError("it is not complete")
        return np.asarray(array[()])


def _damaged(place: str, what: str) -> DamagedDataError:
    return DamagedDataError(f"the result {place} is damaged: {what}; restore it from a copy or rerun the fit.")
