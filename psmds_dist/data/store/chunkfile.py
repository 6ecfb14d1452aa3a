"""Chunk files read as they lie on disk, into buffers that exist already.

Large fresh arrays are what is slow here: in a Dask worker, whose allocator returns memory at once, each of
them faults page by page and a read runs at a tenth of the speed.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, cast

import google_crc32c

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import InputError, Rows
from psmds_dist.data.encoding import Encoding
from psmds_dist.utils.locks import require_owner

CHECKSUM_BYTES = 4

METADATA = frozenset({"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"})
_PIECE = 1 << 18

Chunks = Mapping[str, tuple[int, int | str]]
"""Size and time of change, or version, of what chunks lie in."""

HALF = re.compile(r"(zarr|c|\d+)(\.\d+)*\.[0-9a-f]{32}\.partial")
"""Names under which Zarr writes metadata and chunks before it renames them."""

ADVISED = 1 << 17
"""Bytes to ask for with one call; of more the system may fetch no more than it reads ahead of itself."""


@dataclass(frozen=True)
class ChunkFile:
    """One file that holds whole rows, little-endian and uncompressed, perhaps with a crc32c at its end.

    The last chunk of an array is padded to the size of the others.
    """

    path: str
    rows: int
    row_bytes: int
    checksum: bool
    encoding: Encoding

    @property
    def nbytes(self) -> int:
        """Size that the file should have."""
        return self.rows * self.row_bytes + CHECKSUM_BYTES * self.checksum

    def exists(self) -> bool:
        """Whether the file is there, in full."""
        try:
            return os.stat(self.path).st_size == self.nbytes
        except FileNotFoundError:
            return False

    def prefetch(self, first: int, count: int) -> None:
        """Have the system fetch some rows if it has not; a read that follows says what is wrong with the file."""
        if hasattr(os, "RWF_NOWAIT"):  # on Linux
            start, end = first * self.row_bytes, min((first + count) * self.row_bytes, self.nbytes)
            with suppress(OSError), FileIO(self.path) as file:
                if not _is_at_hand(file, random.randrange(start, end)):
                    fetch(file.fileno(), start, end)

    def read(self, first: int, out: Rows, *, verify: bool, skip: int = 0) -> None:
        """Fill ``out`` with the rows of the chunk from ``first`` on.

        Parameters
        ----------
        first : int
            Row inside the chunk.
        out : array
            C-contiguous.
        verify : bool
            Whether to test the checksum; done only for reads that start with the chunk and reach the end of
            its data, padding aside.
        skip : int
            Bytes of the row ``first`` to leave out, for ``out`` to be a part of it.
        """
        try:
            with FileIO(self.path) as file:
                self._require_size(os.fstat(file.fileno()).st_size)
                file.seek(first * self.row_bytes + skip)
                tested = verify and self.checksum and first == 0
                found = self._fill(file, out, tested)
                if tested:
                    self._verify(file, found)
        except FileNotFoundError:
            raise self._damaged("is missing") from None
        except EOFError:
            raise self._damaged("ended while it was read") from None

    def _require_size(self, found: int) -> None:
        if found != self.nbytes:
            raise self._damaged(f"has {found} bytes instead of {self.nbytes}")

    def _fill(self, file: FileIO, out: Rows, tested: bool) -> int:
        """Read and decode rows; return the checksum of their bytes where it is to be tested."""
        found = 0
        for piece in self.encoding.landing(out):
            _read_into(file, memoryview(cast(Any, piece)).cast("B"))
            if tested:
                found = google_crc32c.extend(found, piece)
        return found

    def _verify(self, file: FileIO, found: int) -> None:
        while (left := self.nbytes - CHECKSUM_BYTES - file.tell()) > 0:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise EOFError
            found = google_crc32c.extend(found, piece)
        if file.read(CHECKSUM_BYTES) != found.to_bytes(CHECKSUM_BYTES, "little"):
            raise self._damaged("does not match its checksum")

    def _damaged(self, what: str) -> DamagedDataError:
        return DamagedDataError(
            f"the store is damaged: its chunk file {self.path} {what}; restore the file from a copy, or "
            "build the store anew."
        )


def fetch(handle: int, start: int, end: int) -> None:
    """Ask the system for some bytes of an open file, without waiting for them."""
    for offset in range(start, end, ADVISED):
        os.posix_fadvise(handle, offset, min(ADVISED, end - offset), os.POSIX_FADV_WILLNEED)


def _is_at_hand(file: FileIO, offset: int) -> bool:
    """Whether a byte is in the page cache, for it takes time to ask for what is there.

    Look anywhere: a place that is always the same would stay in the cache when the rest has gone.
    """
    try:
        return os.preadv(file.fileno(), [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError:
        return False


def _read_into(file: FileIO, view: memoryview) -> None:
    while len(view):
        count = file.readinto(view)
        if not count:
            raise EOFError
        view = view[count:]


def list_chunks(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change in nanoseconds of every chunk file under an array, by its key."""
    found: dict[str, tuple[int, int]] = {}
    _list_into(found, directory, "")
    return found


def _list_into(found: dict[str, tuple[int, int]], directory: Path | str, prefix: str) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                _list_into(found, entry.path, f"{prefix}{entry.name}/")
            elif entry.name not in METADATA and not entry.name.endswith(".partial"):
                status = entry.stat()
                found[prefix + entry.name] = status.st_size, status.st_mtime_ns


def fold(chunks: Chunks) -> str:
    """Text that changes when any chunk file does."""
    return "\n".join(f"{key} {size} {changed}" for key, (size, changed) in sorted(chunks.items()))


def remove_partial(directory: Path) -> None:
    """Remove what interrupted writes have left; chunks are renamed into place, so these were never read."""
    left = [path for path in directory.rglob("*.partial") if HALF.fullmatch(path.name)]
    require_owner(directory)  # after listing them: none is of a later owner
    for path in left:
        path.unlink(missing_ok=True)


def rows_of(out: Rows, count: int) -> Rows:
    """Return the part of a buffer to fill, after a test that it can be filled in place."""
    if not out.flags.c_contiguous or out.shape[0] < count:
        raise InputError(
            f"out must be C-contiguous with at least {count} rows, not of shape {out.shape} with strides {out.strides}."
        )
    return out[:count]
