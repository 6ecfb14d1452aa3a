"""Keeping what a check has found with the data, for as long as the data stay the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import zarr
from zarr.storage import LocalStore

from psmds_dist.core.types import InputCheck
from psmds_dist.data.store.header import KEY, Header, directory
from psmds_dist.data.store.integrity import digest
from psmds_dist.data.store.reading import ZarrRows


def load_check(rows: ZarrRows) -> InputCheck | None:
    """Return the result of an earlier check, if it was for this type and nothing has changed since."""
    facts = load_facts(rows)
    try:
        return None if facts is None else InputCheck.from_dict(facts)
    except (TypeError, KeyError):  # other fields: another version of this package has kept it
        return None


def load_facts(rows: ZarrRows) -> dict[str, Any] | None:
    """Return what an earlier check found, if it was for this type and nothing has changed since."""
    kept = _attributes(rows).get(KEY, {})
    check = kept.get("check") if isinstance(kept, dict) else None
    if not isinstance(check, dict) or kept.get("checked") != _bond(rows, check):
        return None
    return check if check.get("dtype") == rows.dtype.name else None


def save_check(rows: ZarrRows, check: InputCheck) -> bool:
    """Keep the result of a check in the attributes of the store; see `save_facts`."""
    return save_facts(rows, check.as_dict())


def save_facts(rows: ZarrRows, facts: Mapping[str, Any]) -> bool:
    """Keep what a check found in the attributes of the store.

    Returns
    -------
    bool
        False where they cannot be written, or where a later change of the store would go unnoticed because
        its files cannot be listed.
    """
    if not isinstance(rows.array.store, LocalStore):
        return False
    try:
        node = _writable(rows)
        kept = cast("Header", node.attrs.get(KEY, {}))
        plain = json.loads(json.dumps(dict(facts)))
        node.attrs[KEY] = {**kept, "check": plain, "checked": _bond(rows, plain)}
    except (OSError, ValueError, TypeError):
        return False
    return True


def _bond(rows: ZarrRows, facts: Mapping[str, Any]) -> str:
    """What ties facts to the data: neither can change without it."""
    return digest(rows.fingerprint, facts)


def _attributes(rows: ZarrRows) -> Mapping[str, Any]:
    return dict(rows.array.attrs if rows.group is None else rows.group.attrs)


def _writable(rows: ZarrRows) -> zarr.Array[Any] | zarr.Group:
    if rows.group is not None:
        return zarr.open_group(str(directory(rows.group)), mode="r+")
    return zarr.open_array(str(directory(rows.array)), mode="r+")
