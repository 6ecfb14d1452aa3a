"""Building a store chunk by chunk, and keeping the result of the input check with a matrix."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec
from zarr.storage import LocalStore

from psmds_dist.partition import Layout
from psmds_dist.store.chunkfile import remove_partial, rows_of
from psmds_dist.store.files import built_beside, is_free, remove
from psmds_dist.store.opening import open_rows
from psmds_dist.store.reading import (
    ARRAY,
    FORMAT,
    IDS,
    KEY,
    Header,
    ZarrRows,
    chunk_file,
    directory,
    read_header,
)
from psmds_dist.types import InputCheck, InputError, Rows


@dataclass(frozen=True, eq=False)
class Target:
    """A store that is being built; tasks write its chunks and may read them back."""

    path: str
    array: zarr.Array[Any]
    source: str
    verify: bool = False
    """Whether checksums are tested in reads of whole blocks."""

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.array.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.array.dtype

    @property
    def band(self) -> int:
        """Any row range is as good as another: chunks are read in place."""
        return 1

    @property
    def token(self) -> str:
        """Identity of the content, once it is written."""
        return f"building {self.path} {self.dtype.name} {self.source}"

    def has(self, block: int) -> bool:
        """Whether a block is written."""
        return chunk_file(self.array, block).exists()

    def write(self, block: int, rows: Rows) -> None:
        """Write a block: one whole chunk, which appears at once or not at all."""
        lo, hi = Layout(self.n).bounds(block)
        if rows.shape != (hi - lo, self.n):
            raise InputError(f"rows of block {block} must have shape {(hi - lo, self.n)}, not {rows.shape}.")
        self.array[lo:hi] = rows

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``, all of which must be written."""
        ZarrRows(self.array, self.dtype, "", verify=self.verify).read(lo, hi, rows_of(out, hi - lo))

    def with_checksums(self) -> Target:
        """Return the same store, whose checksums are tested wherever whole blocks are read."""
        return replace(self, verify=True)

    def finish(self, check: InputCheck) -> None:
        """Declare the store complete and keep the result of its check."""
        group = zarr.open_group(self.path, mode="r+")
        group.attrs[KEY] = {**read_header(group), "status": "complete", "symmetric": True}
        save_check(open_rows(self.path), check)

    def discard(self) -> None:
        """Remove the unfinished store."""
        remove(Path(self.path))


def create(
    path: str | os.PathLike[str],
    n: int,
    dtype: str = "float32",
    *,
    ids: Sequence[str] | None = None,
    metric: str | None = None,
    source_fingerprint: str = "",
    overwrite: bool = False,
) -> Target:
    """Begin a store, or go on with one that an interrupted run has left.

    Parameters
    ----------
    path : path
        A directory.
    n : int
        Number of points.
    dtype : {"float32", "float64"}
        Type to hold.
    ids : sequence of str, optional
        Names of the rows.
    metric : str, optional
        Name of the metric the dissimilarities come from.
    source_fingerprint : str
        Identity of what the store is built from: only the same source continues an unfinished store.
    overwrite : bool
        Whether a store that is there already, finished or of another source, is removed first. Nothing but a
        store or an unfinished store is ever removed.

    Returns
    -------
    Target
    """
    place = Path(os.path.abspath(path))
    wanted = {
        "n": n,
        "dtype": dtype,
        "chunk_rows": Layout(n).rows,
        "metric": metric,
        "source": source_fingerprint,
        "ids": None if ids is None else _digest(ids),
    }
    if not is_free(place) and not _continues(place, wanted, overwrite):
        remove(place)
    if is_free(place):
        with built_beside(place) as fresh:
            _lay_out(fresh, wanted, ids)
    array = zarr.open_array(str(place / ARRAY), mode="r+").with_config({"write_empty_chunks": True})
    remove_partial(directory(array))
    return Target(str(place), array, source_fingerprint)


def _continues(place: Path, wanted: Mapping[str, Any], overwrite: bool) -> bool:
    """Tell whether the store at ``place`` is to be continued (true) or removed (false), or refuse."""
    header = header_at(place)
    if header.get("kind") != ARRAY:
        raise InputError(
            f"{place} exists and is not a dissimilarity store, so it stays; give another path or remove it."
        )
    if header["status"] == "building" and all(header.get(key) == value for key, value in wanted.items()):
        return True
    if overwrite:
        return False
    state = "a finished store" if header["status"] == "complete" else "an unfinished store of another source"
    raise InputError(f"{place} already holds {state}; give another path, or overwrite=True (--overwrite).")


def _digest(ids: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(ids).encode(), digest_size=16).hexdigest()


def header_at(place: Path) -> Header:
    """Return what the group at ``place`` says of itself; empty when it is not one of ours."""
    try:
        return read_header(zarr.open_group(str(place), mode="r"))
    except (OSError, ValueError):
        return {}


def _lay_out(place: Path, wanted: Mapping[str, Any], ids: Sequence[str] | None) -> None:
    n = wanted["n"]
    header = {"format": FORMAT, "kind": ARRAY, **wanted, "status": "building", "versions": versions()}
    group = zarr.create_group(str(place), zarr_format=3, attributes={KEY: header})
    group.create_array(
        ARRAY,
        shape=(n, n),
        chunks=(Layout(n).rows, n),
        dtype=wanted["dtype"],
        fill_value=np.nan,
        filters=None,
        compressors=[Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=("point", "other"),
    )
    if ids is not None:
        write_ids(group, ids)


def write_ids(group: zarr.Group, ids: Sequence[str]) -> None:
    """Write names of rows as one chunk."""
    array = group.create_array(IDS, shape=(len(ids),), chunks=(max(1, len(ids)),), dtype="string")
    array[:] = np.array(ids, dtype=object)


def versions() -> dict[str, str]:
    """Versions of the libraries that decide what is written."""
    found = {"numpy": np.__version__, "zarr": zarr.__version__}
    try:
        found["psmds-dist"] = version("psmds-dist")
    except PackageNotFoundError:
        found["psmds-dist"] = "unknown"
    return found


def load_check(rows: ZarrRows) -> InputCheck | None:
    """Return the result of an earlier check, if it was for this type and nothing has changed since."""
    kept = _attributes(rows).get(KEY, {})
    check = kept.get("check") if isinstance(kept, dict) else None
    if check is None or kept.get("checked") != rows.fingerprint or check["dtype"] != rows.dtype.name:
        return None
    return InputCheck.from_dict(check)


def save_check(rows: ZarrRows, check: InputCheck) -> bool:
    """Keep the result of a check in the attributes of the store.

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
        node.attrs[KEY] = {**kept, "check": check.as_dict(), "checked": rows.fingerprint}
    except (OSError, ValueError, TypeError):
        return False
    return True


def _attributes(rows: ZarrRows) -> Mapping[str, Any]:
    return dict(rows.array.attrs if rows.group is None else rows.group.attrs)


def _writable(rows: ZarrRows) -> zarr.Array[Any] | zarr.Group:
    if rows.group is not None:
        return zarr.open_group(str(directory(rows.group)), mode="r+")
    return zarr.open_array(str(directory(rows.array)), mode="r+")
