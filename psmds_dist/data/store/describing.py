"""What a store or a result says of itself, for people."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import zarr

from psmds_dist.core.layout import format_bytes
from psmds_dist.data.store.chunkfile import list_chunks
from psmds_dist.data.store.header import header_at, open_ours, read_header
from psmds_dist.data.store.opening import (
    arrays_within,
    dissimilarities_within,
    foreign_group_at,
    is_anndata,
    open_panel,
    open_rows,
    shape_at,
    sparse_within,
)
from psmds_dist.data.store.reading import PANEL, ZarrRows
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.data.store.results import KIND, read_result
from psmds_dist.utils.remote import is_url


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts of a store or panel of ours, a foreign Zarr array that could be one, a group of arrays, or a result.

    Raises
    ------
    InputError
        When it is none of these, or an unfinished store.
    """
    group = open_ours(os.fspath(path))
    header = {} if group is None else read_header(group)
    if header.get("kind") == KIND:
        arrays, attributes, ids = read_result(path)
        shapes = {name: list(values.shape) for name, values in arrays.items()}
        return {"kind": KIND, **attributes, "ids": ids is not None, "arrays": shapes}
    if not header and (group := foreign_group_at(path)) is not None:
        return _of_group(group, os.fspath(path))
    is_panel = header["kind"] == PANEL if header else _is_oblong(path)
    rows = open_panel(path) if is_panel else open_rows(path)
    facts = rows.load_check()
    return {
        "kind": header.get("kind", "foreign Zarr array"),
        "points": rows.n,
        **(_of_panel(rows) if is_panel else {}),
        "stored as": f"{rows.array.dtype}, chunks of {rows.array.chunks[0]:,} x {rows.array.chunks[1]:,}",
        **_rounding(rows, facts),
        "size": format_bytes(rows.array.nbytes),
        "blocks": f"{rows.layout.count:,} of {rows.layout.rows:,} rows",
        "direct reads": "yes" if rows.direct else "no, through zarr",
        "reads a pass": _passes(rows.read_profile.read_amplification),
        "ids": rows.ids is not None,
        **{key: value for key, value in header.items() if key in ("metric", "source", "notes", "versions")},
        "checked": "no" if facts is None else facts,
    }


class Unfinished(NamedTuple):
    """How much of an unfinished store is written."""

    blocks: int
    """Blocks that are written."""

    total: int
    """All blocks."""

    first: float
    """Time at which the first was written, in seconds since 1970; the same as ``last`` where there is none."""

    last: float
    """Time at which the last was written, or the store begun."""


def facts_at(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a store, panel or result says of itself in its metadata; empty where nothing of ours is."""
    group = open_ours(os.fspath(path))
    return {} if group is None else {**group.attrs.asdict(), **read_header(group)}


def unfinished_at(path: str | os.PathLike[str]) -> Unfinished | None:
    """How much is written of the unfinished store at a path; None where there is no such store."""
    place = os.fspath(path) if is_url(path) else os.path.realpath(path)
    header = header_at(place)
    if header.get("status") != "building":
        return None
    chunks, begun = _written_in(place, header["kind"])
    times = list(chunks.values()) or [begun]
    return Unfinished(len(chunks), -(-int(header["n"]) // int(header["chunk_rows"])), min(times), max(times))


def _written_in(place: str, kind: str) -> tuple[dict[str, float], float]:
    """Time at which each chunk of a store was written, and at which the store was begun, in seconds since 1970."""
    if is_url(place):
        times = RemoteStore(place).times()
        chunks = {name: time for name, time in times.items() if re.fullmatch(rf"{kind}/c[./].*", name)}
        return chunks, times.get("zarr.json", 0.0)
    found = {name: changed / 1e9 for name, (_, changed) in list_chunks(Path(place, kind)).items()}
    return found, Path(place, "zarr.json").stat().st_mtime


def _rounding(rows: ZarrRows, facts: dict[str, Any] | None) -> dict[str, Any]:
    """How far the numbers of a checked matrix were rounded, where they were."""
    text = "" if facts is None else rows.encoding.describe(facts.get("rms", 0.0), facts.get("highest", 0.0))
    if not text:
        return {}
    units = {"unit": rows.encoding.scale} if "scale" in rows.encoding.facts else {}
    return {**units, "rounded": text}


def _passes(cost: float) -> str:
    if cost < 1.05:
        return "1, when streamed"
    return f"{cost:.1f}, when streamed: chunks of whole rows would need 1, see psmds ingest"


def _is_oblong(path: str | os.PathLike[str]) -> bool:
    shape = shape_at(path)
    return shape is not None and len(shape) == 2 and shape[0] != shape[1]


def _of_panel(panel: ZarrRows) -> dict[str, Any]:
    if not panel.header:
        return {"columns": f"{panel.shape[1]:,}, landmarks of a panel (--landmarks) or features of points (--metric)"}
    where = "" if panel.landmarks is None else ", rows known"
    return {"landmarks": f"{panel.shape[1]:,}{where}"}


def _of_group(group: zarr.Group, path: str) -> dict[str, Any]:
    """What is in a group of somebody else, and which paths stand for something."""
    arrays, square = arrays_within(group), dissimilarities_within(group)
    return {
        "kind": "AnnData group" if is_anndata(group) else "foreign Zarr group",
        "dissimilarities": [f"{path}/{name}" for name in square],
        "points or panels": [f"{path}/{name}" for name in arrays if name not in square],
        "sparse, not read": [f"{path}/{name}" for name in sparse_within(group)],
        "to go on": "psmds fit takes the path of dissimilarities, psmds landmarks fit --metric that of points",
        "arrays": {
            name: f"{' x '.join(f'{k:,}' for k in array.shape)} {array.dtype}" for name, array in arrays.items()
        },
    }
