"""Rows of a square Zarr array: one of our stores, or a user's own array in place."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.core.metadata import ArrayV3Metadata
from zarr.errors import NodeNotFoundError
from zarr.storage import LocalStore

from psmds_dist.partition import Layout
from psmds_dist.store.chunkfile import ChunkFile, fold, list_chunks, native_little, rows_of
from psmds_dist.types import InputError, Rows

KEY = "psmds"
FORMAT = 1
ARRAY = "dissimilarities"
IDS = "ids"

Header = dict[str, Any]


@dataclass(frozen=True, eq=False)
class ZarrRows:
    """Rows of a square Zarr array: one of our stores, or a user's own array in place."""

    array: zarr.Array[Any]
    dtype: np.dtype[Any]
    fingerprint: str
    """Changes whenever a chunk file does."""

    group: zarr.Group | None = None
    """The group that describes the array, when the store is one of ours."""

    verify: bool = False
    """Whether checksums are tested where zarr is bypassed; zarr always does."""

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.array.shape[0])

    @property
    def path(self) -> str:
        """Where the store is."""
        return _location(self.array if self.group is None else self.group)

    @property
    def token(self) -> str:
        """Identity of the content."""
        return f"zarr {_location(self.array)} {self.fingerprint} {self.dtype.name}"

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as delivered."""
        return self.n * self.n * self.dtype.itemsize

    @property
    def band(self) -> int:
        """Rows of a chunk where chunks are taller than blocks and only whole chunks can be read."""
        height = int(self.array.chunks[0])
        return 1 if self.direct or height <= Layout(self.n).rows else min(height, self.n)

    @property
    def band_bytes(self) -> int:
        """Bytes to hold, as delivered, so that a pass reads every stored byte once."""
        return self.band * self.n * self.dtype.itemsize

    @property
    def read_cost(self) -> float:
        """How often a pass in single blocks, no band being held, reads every stored byte."""
        if self.direct:
            return 1.0
        height, layout = int(self.array.chunks[0]), Layout(self.n)
        bounds = [layout.bounds(block) for block in range(layout.count)]
        return sum(-(-hi // height) - lo // height for lo, hi in bounds) / -(-self.n // height)

    @cached_property
    def direct(self) -> bool:
        """Whether chunk files can be read into place without zarr."""
        array = self.array
        if not isinstance(array.store, LocalStore) or not isinstance(array.metadata, ArrayV3Metadata):
            return False
        codecs = list(array.metadata.codecs)
        plain = codecs in ([BytesCodec()], [BytesCodec(), Crc32cCodec()])
        whole_rows = array.chunks[1] == self.n and array.shards is None
        return plain and whole_rows and array.dtype == self.dtype and native_little(self.dtype)

    @cached_property
    def ids(self) -> list[str] | None:
        """Names of the rows, if they have any."""
        if self.group is None or IDS not in self.group:
            return None
        return [str(name) for name in np.asarray(cast("zarr.Array[Any]", self.group[IDS])[:])]

    @property
    def header(self) -> Header:
        """What the store says of itself; empty for an array that is not one of our stores."""
        return {} if self.group is None else read_header(self.group)

    def with_checksums(self) -> ZarrRows:
        """Return the same rows, whose checksums are tested wherever whole chunks are read."""
        return replace(self, verify=True)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        target = rows_of(out, hi - lo)
        if self.direct:
            self._read_files(lo, hi, target)
        else:
            target[:] = self._read_zarr(slice(lo, hi), slice(None))

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        target, layout = rows_of(out, hi - lo), Layout(self.n)
        step = max(self.band, int(self.array.chunks[0]), layout.rows)
        for first in range(0, self.n, step):
            part = slice(first, min(first + step, self.n))
            target[:, part] = self._read_zarr(part, slice(lo, hi)).T

    def _read_files(self, lo: int, hi: int, out: Rows) -> None:
        height = int(self.array.chunks[0])
        for chunk in range(lo // height, -(-hi // height)):
            start = chunk * height
            first, last = max(lo, start), min(hi, start + height)
            complete = last == min(start + height, self.n)
            chunk_file(self.array, chunk).read(
                first - start, out[first - lo : last - lo], verify=self.verify and complete
            )

    def _read_zarr(self, rows: slice, columns: slice) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(self.array[rows, columns])
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"The store {self.path} is damaged or cannot be read in rows {rows.start} to {rows.stop - 1} "
                f"({error}); restore it from a copy, or build it anew."
            ) from error


def chunk_file(array: zarr.Array[Any], chunk: int) -> ChunkFile:
    """Return the file of a chunk of whole rows."""
    path = directory(array) / array.metadata.encode_chunk_key((chunk, 0))
    row_bytes = int(array.shape[1]) * array.dtype.itemsize
    checksum = Crc32cCodec() in getattr(array.metadata, "codecs", ())
    return ChunkFile(str(path), int(array.chunks[0]), row_bytes, checksum)


def open_rows(path: str | os.PathLike[str] | zarr.Array[Any], dtype: str | None = None) -> ZarrRows:
    """Open a store of ours, or any square 2-D Zarr array, of format 2 or 3.

    Parameters
    ----------
    path : path, URL or zarr.Array
        A store, an array, or a group with exactly one square array in it.
    dtype : {"float32", "float64"}, optional
        Type of the rows to deliver; by default float32, except that our stores deliver what they hold.

    Returns
    -------
    ZarrRows
    """
    array, group = _find(path)
    where = _location(array)
    _require_square(array, where)
    chunks = list_chunks(directory(array)) if isinstance(array.store, LocalStore) else {}
    _require_complete(array, chunks, where)
    held = array.dtype.name if group is not None else "float32"
    return ZarrRows(array, _row_type(dtype or held), _fingerprint(array, chunks), group)


def _row_type(dtype: str) -> np.dtype[Any]:
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', not {dtype!r}.")
    return np.dtype(dtype)


def _find(path: str | os.PathLike[str] | zarr.Array[Any]) -> tuple[zarr.Array[Any], zarr.Group | None]:
    node = _reopen(path) if isinstance(path, zarr.Array) else _open(path)
    if isinstance(node, zarr.Array):
        owner = _owner(node)
        return (node, None) if owner is None else (node, _require_usable(owner))
    if read_header(node):
        group = _require_usable(node)
        return cast("zarr.Array[Any]", group[ARRAY]), group
    return _only_square(node), None


def _open(path: str | os.PathLike[str]) -> zarr.Array[Any] | zarr.Group:
    place = os.fspath(path)
    try:
        return zarr.open(place if "://" in place else os.path.abspath(place), mode="r")
    except (NodeNotFoundError, FileNotFoundError, NotADirectoryError):
        there = "is not a Zarr store" if os.path.exists(place) else "does not exist"
        advice = "turn other files into a store with `psmds ingest`"
        raise InputError(f"{place} {there}; give a Zarr array or group, or {advice}.") from None


def _reopen(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Open a local array by its absolute path, for workers that run elsewhere, and to read only."""
    if not isinstance(array.store, LocalStore):
        return array
    return zarr.open_array(str(directory(array).absolute()), mode="r")


def _owner(array: zarr.Array[Any]) -> zarr.Group | None:
    """Return our group around an array that was opened by itself."""
    if not isinstance(array.store, LocalStore) or directory(array).name != ARRAY:
        return None
    with contextlib.suppress(NodeNotFoundError, FileNotFoundError):
        group = zarr.open_group(str(directory(array).parent), mode="r")
        return group if read_header(group) else None
    return None


def read_header(group: zarr.Group) -> Header:
    """Return what a group says of itself; empty when it is not one of ours."""
    header = group.attrs.get(KEY, {})
    return header if isinstance(header, dict) and "kind" in header else {}


def _require_usable(group: zarr.Group) -> zarr.Group:
    header, where = read_header(group), _location(group)
    if header["kind"] != ARRAY:
        raise InputError(
            f"{where} holds a {header['kind']}, not dissimilarities; give the store it was made from."
        )
    if header["format"] > FORMAT:
        raise InputError(
            f"{where} has store format {header['format']}, but this psmds-dist reads up to {FORMAT}; "
            "upgrade psmds-dist."
        )
    if header["status"] != "complete":
        raise InputError(
            f"{where} is unfinished: the command that was building it was interrupted; run it again with the "
            "same arguments to finish it."
        )
    return group


def _only_square(group: zarr.Group) -> zarr.Array[Any]:
    square = [array for _, array in group.arrays() if array.ndim == 2 and array.shape[0] == array.shape[1]]
    if len(square) != 1:
        raise InputError(
            f"{_location(group)} is a Zarr group with {len(square)} square 2-D arrays instead of one; give "
            "the path of the array itself."
        )
    return square[0]


def _require_square(array: zarr.Array[Any], where: str) -> None:
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise InputError(f"{where} has shape {array.shape}, but a dissimilarity matrix is square and 2-D.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{where} holds {array.dtype}, but needs floats or integers; convert it.")


def _require_complete(array: zarr.Array[Any], chunks: Mapping[str, object], where: str) -> None:
    unit = array.shards or array.chunks
    grid = -(-int(array.shape[0]) // int(unit[0])), -(-int(array.shape[1]) // int(unit[1]))
    missing = math.prod(grid) - _count_written(array, chunks, grid)
    # a corner of one diagonal cell is zero, and zarr leaves out chunks that hold nothing but their fill value
    corner = array.fill_value == 0 and all(int(array.shape[k]) % int(unit[k]) == 1 for k in range(2))
    if missing > corner:
        raise InputError(
            f"{where} lacks {missing} of its {math.prod(grid)} chunks, which would read as "
            f"{array.fill_value}; finish writing it (with write_empty_chunks=True where chunks are all zero)."
        )


def _count_written(array: zarr.Array[Any], chunks: Mapping[str, object], grid: tuple[int, int]) -> int:
    if isinstance(array.store, LocalStore):
        key = array.metadata.encode_chunk_key
        return sum(key((int(i), int(j))) in chunks for i, j in np.ndindex(*grid))
    in_a_shard = math.prod(s // c for s, c in zip(array.shards or array.chunks, array.chunks, strict=True))
    return array.nchunks_initialized // in_a_shard


def directory(node: zarr.Array[Any] | zarr.Group) -> Path:
    """Return the directory of an array or group in a local store."""
    return Path(cast("LocalStore", node.store).root, node.path)


def _location(node: zarr.Array[Any] | zarr.Group) -> str:
    return str(directory(node)) if isinstance(node.store, LocalStore) else str(node.store_path)


def _fingerprint(array: zarr.Array[Any], chunks: Mapping[str, tuple[int, int]]) -> str:
    described = {key: value for key, value in array.metadata.to_dict().items() if key != "attributes"}
    text = json.dumps(described, sort_keys=True, default=str) + fold(chunks)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
