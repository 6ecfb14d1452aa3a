"""Stores that are being built: tasks write their chunks, and the last step declares them complete."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import zarr

from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import InputError, Ints, Rows, StorageError
from psmds_dist.data.encoding import Encoding
from psmds_dist.data.store.chunkfile import CHECKSUM_BYTES, remove_partial, rows_of
from psmds_dist.data.store.header import KEY, directory, read_header, store_at
from psmds_dist.data.store.integrity import listed, sealed
from psmds_dist.data.store.opening import open_panel, open_rows
from psmds_dist.data.store.reading import ARRAY, IDS, LANDMARKS, ZarrRows, chunk_file
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.utils.atomic import remove
from psmds_dist.utils.lease import Claim, fenced


@dataclass(frozen=True, eq=False)
class Target(RowSource):
    """A store or panel that is being built; tasks write its chunks and may read them back."""

    path: str
    array: zarr.Array[Any]
    built_from: str
    """Content id of the source that it is built from."""

    encoding: Encoding

    claim: Claim | None = None
    """Ownership of the directory, which tasks in other processes require, too."""

    verify: bool = False
    """Whether checksums are verified in reads of whole blocks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, and numbers in a row."""
        n, width = self.array.shape
        return int(n), int(width)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.encoding.row_dtype

    @property
    def content_id(self) -> str:
        """Identity of the content, once it is written."""
        return f"building {self.path} {self.array.dtype.name} {self.built_from}"

    @property
    def location(self) -> str:
        """Directory of the store."""
        return self.path

    @cached_property
    def landmarks(self) -> Ints | None:
        """Rows of the landmarks of a panel, when they are among the points."""
        rows = listed(zarr.open_group(store_at(self.path), mode="r"), LANDMARKS)
        return None if rows is None else rows.astype(np.int64)

    def written(self, blocks: Sequence[int]) -> set[int]:
        """Return those of some blocks that are written."""
        return {block for block in blocks if chunk_file(self.array, block, self.encoding).exists()}

    def has(self, block: int) -> bool:
        """Whether a block is written."""
        return block in self.written([block])

    def write(self, block: int, rows: Rows) -> None:
        """Write a block: one whole chunk, which appears at once or not at all."""
        lo, hi = self.layout.bounds(block)
        wanted = hi - lo, self.shape[1]
        if rows.shape != wanted:
            raise InputError(f"rows of block {block} must have shape {wanted}, not {rows.shape}.")
        with fenced(self.claim):
            try:
                self.array[lo:hi] = self.encoding.encode(rows)
            except StorageError:
                raise
            except OSError as error:
                reason = error.strerror or error
                raise StorageError(
                    f"{self.path} cannot be written ({reason}); free some space and rerun, or choose another path."
                ) from None

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``, all of which must be written."""
        self._written.read(lo, hi, rows_of(out, hi - lo))

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        self._written.read_rows(rows, columns, out)

    def read_columns(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with columns ``lo`` to ``hi``, each as a row."""
        self._written.read_columns(lo, hi, rows_of(out, hi - lo))

    @property
    def _written(self) -> ZarrRows:
        return ZarrRows(self.array, "", self.encoding, self.dtype, verify=self.verify)

    def verified(self) -> Self:
        """Return the same store, whose checksums are verified wherever whole blocks are read."""
        return replace(self, verify=True)

    def discard(self) -> None:
        """Remove the unfinished store."""
        remove(Path(self.path))

    def _tidy(self) -> None:
        """Remove what workers that were killed have left."""
        remove_partial(directory(self.array))

    def finish(self, check: Mapping[str, Any]) -> None:
        """Declare the store complete and keep the result of its check."""
        with fenced(self.claim):
            (open_rows if self._complete() == ARRAY else open_panel)(self.path).save_check(check)

    def _complete(self) -> str:
        """Declare the store complete, and return its kind."""
        self._tidy()
        group = zarr.open_group(store_at(self.path, writable=True), mode="r+")
        header = {**read_header(group), "status": "complete"}
        kind = str(header["kind"])
        if kind == ARRAY:
            header["symmetric"] = True
        others = [name for name in (IDS, LANDMARKS) if header.get(name) is not None]
        group.attrs[KEY] = sealed(group, header, arrays=[kind, *others])
        return kind


class RemoteTarget(Target):
    """A store or panel that is being built at a URL, each chunk as one object."""

    @property
    def _store(self) -> RemoteStore:
        return cast("RemoteStore", self.array.store)

    def written(self, blocks: Sequence[int]) -> set[int]:
        """Return those of some blocks that are written, in full."""
        whole = math.prod(self.array.chunks) * self.array.dtype.itemsize + CHECKSUM_BYTES
        keys = {f"{self.array.path}/{self.array.metadata.encode_chunk_key((block, 0))}": block for block in blocks}
        return {keys[key] for key, (size, _) in self._store.look_at(keys).items() if size == whole}

    def discard(self) -> None:
        """Remove the unfinished store."""
        with fenced(self.claim):
            self._store.remove_all()

    def _tidy(self) -> None:
        """Nothing is left: objects appear at once or not at all."""
