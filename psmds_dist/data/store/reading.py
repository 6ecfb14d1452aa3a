"""Rows of a Zarr array, square or a panel: one of our stores, or a user's own array in place."""

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

from psmds_dist.core.arrays import fill
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.layout import Layout
from psmds_dist.core.types import Ints, Rows
from psmds_dist.data.store.chunkfile import ChunkFile, fold, list_chunks, native_little, rows_of
from psmds_dist.data.store.header import ZARR_ERRORS, Header, directory, location, read_header
from psmds_dist.data.store.integrity import listed
from psmds_dist.utils.pickling import PickledOnce

ARRAY = "dissimilarities"
PANEL = "panel"
IDS = "ids"
LANDMARKS = "landmarks"

STRIP_BYTES = 8_000_000
"""Stored bytes that are decoded at a time, or one chunk where that is more."""


def files_of(array: zarr.Array[Any]) -> Mapping[str, tuple[int, int]]:
    """Size and time of change in nanoseconds of the files that chunks lie in, as far as they can be seen."""
    if isinstance(array.store, LocalStore):
        return list_chunks(directory(array))
    if isinstance(array.store, ZipStore) and array.store.read_only:
        status = os.stat(array.store.path)
        return {str(array.store.path): (status.st_size, status.st_mtime_ns)}
    return {}


def fingerprint(array: zarr.Array[Any], chunks: Mapping[str, tuple[int, int]]) -> str:
    """Identity of an array that has these chunk files, of sizes and times."""
    described = {key: value for key, value in array.metadata.to_dict().items() if key != "attributes"}
    text = json.dumps(described, sort_keys=True, default=str) + fold(chunks)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class ZarrRows(PickledOnce):
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
    def width(self) -> int | None:
        """Numbers in a row, where it is not one for each point."""
        return None

    @property
    def layout(self) -> Layout:
        """How the rows are cut into blocks."""
        return Layout(self.n, self.width)

    @property
    def path(self) -> str:
        """Where the store is: a directory, a URL, or the file of an archive."""
        if isinstance(self.array.store, ZipStore):
            return str(self.array.store.path)
        return location(self.array if self.group is None else self.group)

    @property
    def token(self) -> str:
        """Identity of the content."""
        return f"zarr {location(self.array)} {self.fingerprint} {self.dtype.name}"

    def changed(self) -> bool:
        """Whether chunk files have been written since it was opened, as far as that can be seen."""
        return fingerprint(self.array, files_of(self.array)) != self.fingerprint

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as delivered."""
        return self.n * self.layout.columns * self.dtype.itemsize

    @property
    def band(self) -> int:
        """Rows of a chunk where chunks are taller than blocks and only whole chunks can be read."""
        height = int(self.array.chunks[0])
        return 1 if self.direct or height <= self.layout.rows else min(height, self.n)

    @property
    def read_cost(self) -> float:
        """How often a pass in single blocks, no band being held, reads every stored byte."""
        if self.direct:
            return 1.0
        height, layout = int(self.array.chunks[0]), self.layout
        bounds = [layout.bounds(block) for block in range(layout.count)]
        return sum(-(-hi // height) - lo // height for lo, hi in bounds) / -(-self.n // height)

    @cached_property
    def direct(self) -> bool:
        """Whether chunk files can be read into place without zarr."""
        array = self.array
        if not isinstance(array.store, LocalStore) or not isinstance(array.metadata, ArrayV3Metadata):
            return False
        codecs = list(array.metadata.codecs)
        whole_blocks = self.layout.rows % int(array.chunks[0]) == 0  # else no read would reach a chunk's checksum
        plain = codecs == [BytesCodec()] or (codecs == [BytesCodec(), Crc32cCodec()] and whole_blocks)
        whole_rows = array.chunks[1] == self.layout.columns and array.shards is None
        return plain and whole_rows and array.dtype == self.dtype and native_little(self.dtype)

    @cached_property
    def ids(self) -> list[str] | None:
        """Names of the rows, if they have any."""
        names = None if self.group is None else listed(self.group, IDS)
        return None if names is None else [str(name) for name in names]

    @property
    def header(self) -> Header:
        """What the store says of itself; empty for an array that is not one of our stores."""
        return {} if self.group is None else read_header(self.group)

    def with_checksums(self) -> Self:
        """Return the same rows, whose checksums are tested wherever whole chunks are read."""
        return replace(self, verify=True)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        target = rows_of(out, hi - lo)
        if self.direct:
            self._read_files(lo, hi, target)
        else:
            self._read_strips(lo, hi, target)

    def expect(self, lo: int, hi: int) -> None:
        """Have the system fetch rows ``lo`` to ``hi``, which are to be read soon."""
        if self.direct:
            height = int(self.array.chunks[0])
            for chunk in range(lo // height, -(-hi // height)):
                start = chunk * height
                first, last = max(lo, start), min(hi, start + height)
                chunk_file(self.array, chunk).expect(first - start, last - first)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        target = rows_of(out, hi - lo)
        step = max(self.band, int(self.array.chunks[0]), self.layout.rows)
        for first in range(0, self.n, step):
            part = slice(first, min(first + step, self.n))
            fill(target[:, part], self._read_zarr(part, slice(lo, hi)).T)

    def read_picked(self, rows: Ints, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: rows.size]``, of width ``hi - lo``, with entries ``lo`` to ``hi`` of some rows.

        Chunks without any of these rows are left alone, and others are read once where the rows ascend.
        """
        target, height = rows_of(out, rows.size), int(self.array.chunks[0])
        if self.direct and self.verify:
            self._read_picked_whole(rows, slice(lo, hi), target)
        elif self.direct:
            for row, line in zip(rows.tolist(), target, strict=True):
                file = chunk_file(self.array, row // height)
                file.read(row % height, line, verify=False, skip=lo * self.dtype.itemsize)
        elif rows.size:
            where = f"rows {rows.min()} to {rows.max()}"
            fill(target, self._told(lambda: self.array.oindex[rows, slice(lo, hi)], where))

    def _read_picked_whole(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Read the chunks of some rows whole, which is what tests their checksums."""
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
            chunk_file(self.array, chunk).read(
                first - start, out[first - lo : last - lo], verify=self.verify and complete
            )

    @property
    def scratch(self) -> int:
        """Bytes that a read takes besides its target.

        That is chunks as stored and decoded, the strip they make up, and what waits for the garbage collector.
        """
        if self.direct:
            return 0
        height, width = self.array.chunks
        chunk = height * width * self.array.dtype.itemsize
        across = -(-int(self.array.shape[1]) // width)
        return 3 * min(across * chunk, max(chunk, STRIP_BYTES)) + 2 * min(across * chunk, STRIP_BYTES)

    def _read_strips(self, lo: int, hi: int, out: Rows) -> None:
        """Read through zarr a few columns of chunks at a time, lest it decode whole rows of chunks at once."""
        height, width = self.array.chunks
        step = max(1, STRIP_BYTES // (height * width * self.array.dtype.itemsize)) * int(width)
        for first in range(0, int(self.array.shape[1]), step):
            columns = slice(first, min(first + step, int(self.array.shape[1])))
            fill(out[:, columns], self._read_zarr(slice(lo, hi), columns))

    def _read_zarr(self, rows: slice, columns: slice) -> np.ndarray[Any, Any]:
        return self._told(lambda: self.array[rows, columns], f"rows {rows.start} to {rows.stop - 1}")

    def _told(self, read: Callable[[], Any], where: str) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(read())
        except ZARR_ERRORS as error:
            raise DamagedDataError(
                f"the store {self.path} is damaged or cannot be read in {where} ({error}); restore it from a "
                "copy, or build it anew."
            ) from error


@dataclass(frozen=True, eq=False)
class PanelRows(ZarrRows):
    """Rows of an ``n x S`` Zarr array: dissimilarities to ``S`` landmarks, NaN where missing."""

    given: Ints | None = None
    """Landmarks as the caller knows them."""

    @property
    def width(self) -> int:
        """Number of landmarks."""
        return int(self.array.shape[1])

    @cached_property
    def landmarks(self) -> Ints | None:
        """Rows of the landmarks; None when they are not among the points, or nobody said which they are."""
        if self.given is not None or self.group is None:
            return self.given
        rows = listed(self.group, LANDMARKS)
        return None if rows is None else rows.astype(np.int64)


def chunk_file(array: zarr.Array[Any], chunk: int) -> ChunkFile:
    """Return the file of a chunk of whole rows."""
    path = directory(array) / array.metadata.encode_chunk_key((chunk, 0))
    row_bytes = int(array.shape[1]) * array.dtype.itemsize
    checksum = Crc32cCodec() in getattr(array.metadata, "codecs", ())
    return ChunkFile(str(path), int(array.chunks[0]), row_bytes, checksum)
