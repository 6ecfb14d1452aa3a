"""Seals: how a store or result notices that what it says of itself is not what was written.

Chunks have checksums. The small files beside them have none, so the header in the group's attributes carries digests:
of names and landmarks, and, as its seal, of itself, of the attributes named in it, and of the metadata of the arrays
named in it, as far as their numbers depend on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import zarr

from psmds_dist.data.store.header import Header, damage_told, location, metadata_file, read_header

SEAL = "seal"

_NOT_SEALED = frozenset({SEAL, "check", "checked"})
"""What is written later, and bound to the data in its own way (`psmds_dist.data.store.check_cache`)."""


_FREE = frozenset({"attributes", "dimension_names"})
"""Metadata of an array that say nothing about its numbers: anyone may change them."""


def digest(*values: Any) -> str:
    """Identity of values that JSON can hold."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def digest_of_list(values: Sequence[str] | np.ndarray[Any, Any] | None) -> str | None:
    """Identity of a list of names or numbers, as text."""
    return None if values is None else digest([str(value) for value in values])


def sealed(group: zarr.Group, header: Header, *, arrays: Sequence[str], facts: Sequence[str] = ()) -> Header:
    """Return the header of a group with a seal on it, on some attributes, and on the metadata of some arrays."""
    bound = {**header, "arrays": sorted(arrays), "facts": sorted(facts)}
    return {**bound, SEAL: _seal_of(group, bound, _decisive)}


def require_seal(group: zarr.Group) -> None:
    """Refuse a group whose small files have changed since they were written.

    The first seals covered the metadata files of arrays to the byte; they count still.

    Raises
    ------
    DamagedDataError
        When the seal is broken, or gone.
    """
    header = read_header(group)
    with damage_told(location(group)):
        if header.get(SEAL) not in (_seal_of(group, header, _decisive), _seal_of(group, header, bytes.hex)):
            raise ValueError("its attributes or metadata are not as they were written")


def listed(group: zarr.Group, name: str) -> np.ndarray[Any, Any] | None:
    """Read an array of one dimension, such as names, of which the header has a digest; None where there is none."""
    expected = read_header(group).get(name)
    if expected is None:
        return None
    with damage_told(f"{location(group)}/{name}"):
        values = np.asarray(cast("zarr.Array[Any]", group[name])[:])
        if digest_of_list(values) != expected:
            raise ValueError("it is not as it was written")
        return values


def _seal_of(group: zarr.Group, header: Header, part: Callable[[bytes], Any]) -> str:
    """Digest of a header, of the attributes and of a part of the metadata files that it names."""
    own = {name: value for name, value in header.items() if name not in _NOT_SEALED}
    facts = {name: group.attrs[name] for name in header["facts"]}
    return digest(own, facts, [part(metadata_file(group, name)) for name in header["arrays"]])


def _decisive(file: bytes) -> dict[str, Any]:
    """Metadata of an array on which its numbers depend."""
    return {key: value for key, value in json.loads(file).items() if key not in _FREE}
