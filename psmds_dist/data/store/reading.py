"""Row source of Zarr arrays: stores and panels of ours, or a user's own arrays in place."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import LocalStore, ZipStore

from psmds_dist.core.errors import DamagedDataError, StorageError
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Ints, Rows
from psmds_dist.data.encoding import Encoding
from psmds_dist.data.store.check_cache import load_check, save_check
from psmds_dist.data.store.chunkfile import METADATA, ChunkFile, Chunks, fold, list_chunks, rows_of
from psmds_dist.data.store.header import ZARR_ERRORS, Header, directory, location, read_header
from psmds_dist.data.store.integrity import listed
from psmds_dist.data.store.remote import AHEAD_BYTES, RemoteStore
from psmds_dist.utils.pickling import PickledOnce

ARRAY = "dissimilarities"
PANEL = "panel"
IDS = "ids"
LANDMARKS = "landmarks"

STRIP_BYTES = 8_000_000
"""Stored bytes that are decoded at a time, or one chunk where that is more."""


def files_of(array: zarr.Array[Any]) -> Chunks:
    """Size and time of change in nanoseconds, or version, of what chunks lie in, as far as it can be seen."""
    if isinstance(array.store, LocalStore):
        return list_chunks(directory(array))
    if isinstance(array.store, RemoteStore):
        return objects_of(array, array.store)
    if isinstance(array.store, ZipStore) and array.store.read_only:
        status = os.stat(array.store.path)
        return {str(array.store.path): (status.st_size, status.st_mtime_ns)}
    return {}


def objects_of(array: zarr.Array[Any], store: RemoteStore) -> Chunks:
    """Size and version of the objects that hold chunks, by their names in the array."""
    start = f"{array.path}/".lstrip("/")
    if store.supports_listing:
        found = store.objects(array.path)
    else:
        names = (start + array.metadata.encode_chunk_key((int(i), int(j))) for i, j in np.ndindex(*grid_of(array)))
        found = store.look_at(names)
    return {key.removeprefix(start): state for key, state in found.items() if os.path.basename(key) not in METADATA}


def grid_of(array: zarr.Array[Any]) -> tuple[int, int]:
    """Chunks, or shards, down and across."""
    unit = array.shards or array.chunks
    return -(-int(array.shape[0]) // int(unit[0])), -(-int(array.shape[1]) // int(unit[1]))


def fingerprint(array: zarr.Array[Any], chunks: Chunks) -> str:
    """Identity of an array that has these chunk files, of sizes and times."""
    described = {key: value for key, value in array.metadata.to_dict().items() if key != "attributes"}
    text = json.dumps(described, sort_keys=True, default=str) + fold(chunks)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class ZarrRows(PickledOnce, RowSource):
    """Rows of a 2-D Zarr array: a store or panel of ours, or a user's own array in place."""

    array: zarr.Array[Any]
    fingerprint: str
    """Changes whenever a chunk file does."""

    encoding: Encoding
    dtype: np.dtype[Any]
    group: zarr.Group | None = None
    """The group that describes the array, when the store is one of ours."""

    verify: bool = False
    """Whether checksums are verified where zarr is bypassed; zarr always does."""

    given: Ints | None = None
    """Landmarks as the caller knows them."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, and numbers in a row."""
        n, width = self.array.shape
        return int(n), int(width)

    @property
    def node(self) -> zarr.Array[Any] | zarr.Group:
        """What is opened and described: the group of a store of ours, or the array."""
        return self.array if self.group is None else self.group

    @property
    def location(self) -> str:
        """Where the store is: a directory, a URL, or the file of an archive."""
        return str(self.array.store.path) if isinstance(self.array.store, ZipStore) else location(self.node)

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"zarr {location(self.array)} {self.fingerprint} {self.dtype.name}"

    def is_stale(self) -> bool:
        """Whether chunk files have been written since it was opened, as far as that can be seen."""
        return fingerprint(self.array, files_of(self.array)) != self.fingerprint

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as delivered."""
        return self.n * self.shape[1] * self.dtype.itemsize

    @cached_property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: whole chunks, but for files that are read in place."""
        share = self.array.dtype.itemsize / self.dtype.itemsize
        if self.direct:
            return ReadProfile(stored_share=share)
        height, layout = int(self.array.chunks[0]), self.layout
        bounds = [layout.bounds(block) for block in range(layout.count)]
        chunks = sum(-(-hi // height) - lo // height for lo, hi in bounds)
        return ReadProfile(
            rows_per_chunk=1 if height <= layout.rows else min(height, self.n),
            scratch_bytes=self._scratch(),
            read_amplification=chunks / -(-self.n // height),
            stored_share=share,
        )

    def _scratch(self) -> int:
        """Bytes of chunks as stored and decoded, of the strip they make up, and of what waits to be collected."""
        height, width = self.array.chunks
        chunk = height * width * self.array.dtype.itemsize
        across = -(-self.shape[1] // width)
        decoded = 3 * min(across * chunk, max(chunk, STRIP_BYTES)) + 2 * min(across * chunk, STRIP_BYTES)
        ahead = min(self.array.nbytes, max(chunk, AHEAD_BYTES)) if isinstance(self.array.store, RemoteStore) else 0
        return int(decoded + ahead)

    @cached_property
    def direct(self) -> bool:
        """Whether chunk files can be read into place without zarr."""
        array = self.array
        if not isinstance(array.store, LocalStore) or not isinstance(array.metadata, ArrayV3Metadata):
            return False
        codecs = list(array.metadata.codecs)
        whole_blocks = self.layout.rows % int(array.chunks[0]) == 0  # else no read would reach a chunk's checksum
        plain = codecs == [BytesCodec()] or (codecs == [BytesCodec(), Crc32cCodec()] and whole_blocks)
        whole_rows = array.chunks[1] == self.shape[1] and array.shards is None
        return plain and whole_rows and self.encoding.suits(self.dtype)

    @cached_property
    def ids(self) -> list[str] | None:
        """Names of the points, if they have any."""
        names = None if self.group is None else listed(self.group, IDS)
        return None if names is None else [str(name) for name in names]

    @cached_property
    def landmarks(self) -> Ints | None:
        """Rows of the landmarks; None when they are not among the points, or not known."""
        rows = None if self.given is not None or self.group is None else listed(self.group, LANDMARKS)
        return self.given if rows is None else rows.astype(np.int64)

    @property
    def header(self) -> Header:
        """What the store says of itself; empty for an array that is not one of our stores."""
        return {} if self.group is None else read_header(self.group)

    def load_check(self) -> dict[str, Any] | None:
        """Return the result of an earlier check, if it was for this type and nothing has changed since."""
        return load_check(self.node, self.fingerprint, self.dtype.name)

    def save_check(self, check: Mapping[str, Any]) -> bool:
        """Keep the result of a check in the attributes of the store; return whether that was possible."""
        return save_check(self.node, self.fingerprint, check)

    def verified(self) -> Self:
        """Return the same rows, whose checksums are verified wherever whole chunks are read."""
        return replace(self, verify=True)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        target = rows_of(out, hi - lo)
        if self.direct:
            self._read_files(lo, hi, target)
        else:
            self._read_strips(lo, hi, target)

    def prefetch(self, lo: int, hi: int) -> None:
        """Have the system fetch rows ``lo`` to ``hi``, which will be read soon."""
        if self.direct:
            height = int(self.array.chunks[0])
            for chunk in range(lo // height, -(-hi // height)):
                start = chunk * height
                first, last = max(lo, start), min(hi, start + height)
                chunk_file(self.array, chunk, self.encoding).prefetch(first - start, last - first)
        elif isinstance(self.array.store, RemoteStore) and self.array.shards is None:
            self._fetch_ahead(lo, hi, self.array.store)

    def _fetch_ahead(self, lo: int, hi: int, store: RemoteStore) -> None:
        """Begin to fetch the chunks of rows ``lo`` to ``hi``."""
        array, height = self.array, int(self.array.chunks[0])
        nbytes = int(np.prod(array.chunks)) * array.dtype.itemsize
        for down in range(lo // height, -(-hi // height)):
            for across in range(grid_of(array)[1]):
                key = array.metadata.encode_chunk_key((down, across))
                store.prefetch(f"{array.path}/{key}".lstrip("/"), nbytes)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        target = rows_of(out, hi - lo)
        step = max(int(self.array.chunks[0]), self.layout.rows)
        for first in range(0, self.n, step):
            part = slice(first, min(first + step, self.n))
            self.encoding.decode(self._read_zarr(part, slice(lo, hi)).T, target[:, part])

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns.

        Chunks without any of these rows are left alone, and others are read once where the rows ascend.
        """
        target, height = rows_of(out, rows.size), int(self.array.chunks[0])
        if self.direct and self.verify:
            self._read_whole_chunks(rows, columns, target)
        elif self.direct:
            for row, line in zip(rows.tolist(), target, strict=True):
                file = chunk_file(self.array, row // height, self.encoding)
                file.read(row % height, line, verify=False, skip=columns.start * self.array.dtype.itemsize)
        elif rows.size:
            where = f"rows {rows.min()} to {rows.max()}"
            self.encoding.decode(self._explained(lambda: self.array.oindex[rows, columns], where), target)

    def _read_whole_chunks(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Read the chunks of some rows whole, which is what verifies their checksums."""
        height, width = (int(length) for length in self.array.chunks)
        buffer: Rows = np.empty((min(height, self.n), width), self.dtype)
        for chunk in np.unique(rows // height).tolist():
            start = chunk * height
            self._read_files(start, min(start + height, self.n), buffer)
            here = np.flatnonzero(rows // height == chunk)
            out[here] = buffer[rows[here] - start, columns]

    def _read_files(self, lo: int, hi: int, out: Rows) -> None:
        height = int(self.array.chunks[0])
        for chunk in range(lo // height, -(-hi // height)):
            start = chunk * height
            first, last = max(lo, start), min(hi, start + height)
            complete = last == min(start + height, self.n)
            chunk_file(self.array, chunk, self.encoding).read(
                first - start, out[first - lo : last - lo], verify=self.verify and complete
            )

    def _read_strips(self, lo: int, hi: int, out: Rows) -> None:
        """Read through zarr a few columns of chunks at a time: zarr decodes all that is asked for at once."""
        height, width = self.array.chunks
        step = max(1, STRIP_BYTES // (height * width * self.array.dtype.itemsize)) * int(width)
        for first in range(0, int(self.array.shape[1]), step):
            columns = slice(first, min(first + step, int(self.array.shape[1])))
            self.encoding.decode(self._read_zarr(slice(lo, hi), columns), out[:, columns])

    def _read_zarr(self, rows: slice, columns: slice) -> np.ndarray[Any, Any]:
        return self._explained(lambda: self.array[rows, columns], f"rows {rows.start} to {rows.stop - 1}")

    def _explained(self, read: Callable[[], Any], where: str) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(read())
        except StorageError:
            raise
        except ZARR_ERRORS as error:
            raise DamagedDataError(
                f"the store {self.location} is damaged or cannot be read in {where} ({error}); restore it from a "
                "copy, or build it anew."
            ) from error


def chunk_file(array: zarr.Array[Any], chunk: int, encoding: Encoding | None = None) -> ChunkFile:
    """Return the file of a chunk of whole rows."""
    path = directory(array) / array.metadata.encode_chunk_key((chunk, 0))
    row_bytes = int(array.shape[1]) * array.dtype.itemsize
    checksum = isinstance(array.metadata, ArrayV3Metadata) and Crc32cCodec() in array.metadata.codecs
    return ChunkFile(str(path), int(array.chunks[0]), row_bytes, checksum, encoding or Encoding(array.dtype))
