"""Results of input checks, kept in the attributes of a store for as long as its rows stay the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import zarr
from zarr.storage import LocalStore

from psmds_dist.data.store.header import KEY, Header, location, store_at
from psmds_dist.data.store.integrity import digest
from psmds_dist.data.store.remote import RemoteStore

Node = zarr.Array[Any] | zarr.Group


def load_check(node: Node, fingerprint: str, dtype: str) -> dict[str, Any] | None:
    """Return the check kept with a group or array, if it was for rows of this type and nothing has changed since."""
    kept: Any = dict(node.attrs).get(KEY)
    check = kept.get("check") if isinstance(kept, dict) else None
    if not isinstance(check, dict) or kept.get("checked") != digest(fingerprint, check):
        return None
    return check if check.get("dtype") == dtype else None


def save_check(node: Node, fingerprint: str, check: Mapping[str, Any]) -> bool:
    """Keep a check with a group or array, bound to its chunk files: neither can change without the other.

    Returns
    -------
    bool
        False where attributes cannot be written, or where a later change of the store would go unnoticed because
        its files cannot be listed.
    """
    if not isinstance(node.store, LocalStore | RemoteStore):
        return False
    try:
        writable = zarr.open(store_at(location(node), writable=True), mode="r+")
        kept = cast("Header", writable.attrs.get(KEY, {}))
        plain = json.loads(json.dumps(dict(check)))
        writable.attrs[KEY] = {**kept, "check": plain, "checked": digest(fingerprint, plain)}
    except (OSError, ValueError, TypeError):
        return False
    return True
