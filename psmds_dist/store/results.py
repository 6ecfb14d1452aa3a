"""Results: Zarr groups that are written beside their place and renamed into it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from psmds_dist.files import built_beside, is_free
from psmds_dist.store.reading import FORMAT, IDS, KEY
from psmds_dist.store.writing import header_at, versions, write_ids
from psmds_dist.types import InputError

KIND = "result"

Arrays = dict[str, np.ndarray[Any, Any]]


def write_result(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    attributes: Mapping[str, Any],
    ids: Sequence[str] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a result so that it is found whole or not at all.

    Parameters
    ----------
    path : path
        A directory.
    arrays : mapping of str to array
        Numeric arrays by name; a name such as ``history/epoch`` makes a subgroup.
    attributes : mapping
        What JSON can hold.
    ids : sequence of str, optional
        Names of the rows.
    overwrite : bool
        Whether an earlier result gives way, once the new one is written. Nothing but a result ever does.
    """
    place = Path(os.path.abspath(path))
    require_result_place(place, overwrite=overwrite)
    with built_beside(place) as fresh:
        header = {"format": FORMAT, "kind": KIND, "versions": versions()}
        group = zarr.create_group(str(fresh), zarr_format=3, attributes={**attributes, KEY: header})
        for name, values in arrays.items():
            group.create_array(
                name,
                data=values,
                chunks=tuple(max(1, length) for length in values.shape),
                compressors=[Crc32cCodec()],
                config={"write_empty_chunks": True},  # a chunk that is not there has been lost
            )
        if ids is not None:
            write_ids(group, ids)


def require_result_place(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse a place where a result cannot be written, before hours are spent on it."""
    place = Path(os.path.abspath(path))
    above = next(folder for folder in place.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{place} cannot be written, as {above} is no directory to write in; give another path.")
    if is_free(place):
        return
    if header_at(place).get("kind") != KIND:
        raise InputError(f"{place} exists and is not a result, so it stays; give another path or remove it.")
    if not overwrite:
        raise InputError(f"{place} already holds a result; give another path, or overwrite=True (--overwrite).")


def read_result(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any], list[str] | None]:
    """Read back what `write_result` wrote: arrays, attributes and ids."""
    place = Path(os.path.abspath(path))
    header = header_at(place)
    if header.get("kind") != KIND:
        there = f"holds {header['kind']}" if header else "is not a result" if place.exists() else "does not exist"
        raise InputError(f"{place} {there}; give the result of a fit.")
    group = zarr.open_group(str(place), mode="r")
    members = dict(group.members(max_depth=None))
    arrays = _Parts(
        place, {name: _values(node, place) for name, node in members.items() if isinstance(node, zarr.Array)}
    )
    attributes = _Parts(place, {key: value for key, value in group.attrs.items() if key != KEY})
    ids = arrays.pop(IDS, None)
    return arrays, attributes, None if ids is None else [str(name) for name in ids]


class _Parts(dict[str, Any]):
    """Parts of a result by their names; one that is asked for and not there is told."""

    def __init__(self, place: Path, parts: Mapping[str, Any]) -> None:
        super().__init__(parts)
        self._place = place

    def __missing__(self, name: str) -> Any:
        raise _damaged(self._place, f"{name} is missing")


def _values(array: zarr.Array[Any], place: Path) -> np.ndarray[Any, Any]:
    if array.nchunks_initialized < array.nchunks:
        raise _damaged(place, f"{array.path} is not complete")
    try:
        return np.asarray(array[()])
    except (ValueError, RuntimeError, OSError) as error:
        raise _damaged(place, f"{array.path} cannot be read ({error})") from error


def _damaged(place: Path, what: str) -> InputError:
    return InputError(f"the result {place} is damaged: {what}; restore it from a copy, or run the fit again.")
