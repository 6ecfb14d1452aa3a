"""Seals: how a store or result notices that what it says of itself is not what was written.

Chunks have checksums. The small files beside them have none, so the header in the group's attributes carries digests:
of names and landmarks, and, as its seal, of itself, of the attributes named in it, and of the metadata files of the
arrays named in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import zarr
from zarr.storage import LocalStore

from psmds_dist.store.nodes import Header, damage_told, directory, location, read_header

SEAL = "seal"

_NOT_SEALED = frozenset({SEAL, "check", "checked"})
"""What is written later, and bound to the data in its own way (`psmds_dist.store.facts`)."""


def digest(*values: Any) -> str:
    """Identity of values that JSON can hold."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def digest_of_list(values: Sequence[str] | np.ndarray[Any, Any] | None) -> str | None:
    """Identity of a list of names or numbers, as text."""
    return None if values is None else digest([str(value) for value in values])


def sealed(group: zarr.Group, header: Header, *, arrays: Sequence[str], facts: Sequence[str] = ()) -> Header:
    """Return the header of a group with a seal on it, on some attributes, and on the metadata of some arrays."""
    bound = {**header, "arrays": sorted(arrays), "facts": sorted(facts)}
    return {**bound, SEAL: _seal_of(group, bound)}


def require_seal(group: zarr.Group) -> None:
    """Refuse a group whose small files have changed since they were written.

    Raises
    ------
    InputError
        When the seal is broken, or gone.
    """
    header = read_header(group)
    with damage_told(location(group)):
        if isinstance(group.store, LocalStore) and header.get(SEAL) != _seal_of(group, header):
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


def _seal_of(group: zarr.Group, header: Header) -> str:
    own = {name: value for name, value in header.items() if name not in _NOT_SEALED}
    facts = {name: group.attrs[name] for name in header["facts"]}
    metadata = [(directory(group) / name / "zarr.json").read_bytes().hex() for name in header["arrays"]]
    return digest(own, facts, metadata)
