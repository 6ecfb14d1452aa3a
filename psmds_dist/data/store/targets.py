"""Stores that are being built: tasks write their chunks, and the last step declares them complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr

from psmds_dist.core.layout import Layout
from psmds_dist.core.types import InputCheck, InputError, Ints, Rows, StorageError
from psmds_dist.data.store.check_cache import save_check, save_facts
from psmds_dist.data.store.chunkfile import remove_partial, rows_of
from psmds_dist.data.store.header import KEY, directory, read_header
from psmds_dist.data.store.integrity import sealed
from psmds_dist.data.store.opening import open_panel, open_rows
from psmds_dist.data.store.reading import IDS, LANDMARKS, PanelRows, ZarrRows, chunk_file
from psmds_dist.utils.atomic import remove


@dataclass(frozen=True, eq=False)
class _Unfinished:
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
    def width(self) -> int | None:
        """Numbers in a row, where it is not one for each point."""
        return None

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
        layout = Layout(self.n, self.width)
        lo, hi = layout.bounds(block)
        if rows.shape != (hi - lo, layout.columns):
            wanted = hi - lo, layout.columns
            raise InputError(f"rows of block {block} must have shape {wanted}, not {rows.shape}.")
        try:
            self.array[lo:hi] = rows
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(
                f"{self.path} cannot be written ({reason}); free some space and rerun, or choose another path."
            ) from None

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``, all of which must be written."""
        self._written.read(lo, hi, rows_of(out, hi - lo))

    def read_picked(self, rows: Ints, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: rows.size]``, of width ``hi - lo``, with entries ``lo`` to ``hi`` of some rows."""
        self._written.read_picked(rows, lo, hi, out)

    @property
    def _written(self) -> ZarrRows:
        kind = ZarrRows if self.width is None else PanelRows
        return kind(self.array, self.dtype, "", verify=self.verify)

    def with_checksums(self) -> Self:
        """Return the same store, whose checksums are tested wherever whole blocks are read."""
        return replace(self, verify=True)

    def discard(self) -> None:
        """Remove the unfinished store."""
        remove(Path(self.path))

    def _complete(self, **more: Any) -> None:
        remove_partial(directory(self.array))  # left by workers that were killed
        group = zarr.open_group(self.path, mode="r+")
        header = {**read_header(group), "status": "complete", **more}
        others = [name for name in (IDS, LANDMARKS) if header.get(name) is not None]
        group.attrs[KEY] = sealed(group, header, arrays=[header["kind"], *others])


class Target(_Unfinished):
    """A store of dissimilarities that is being built; tasks write its chunks and may read them back."""

    def finish(self, check: InputCheck) -> None:
        """Declare the store complete and keep the result of its check."""
        self._complete(symmetric=True)
        save_check(open_rows(self.path), check)


class PanelTarget(_Unfinished):
    """A panel that is being built; tasks write its chunks and may read them back."""

    @property
    def width(self) -> int:
        """Number of landmarks."""
        return int(self.array.shape[1])

    @property
    def landmarks(self) -> Ints | None:
        """Rows of the landmarks, when they are among the points."""
        return PanelRows(self.array, self.dtype, "", zarr.open_group(self.path, mode="r")).landmarks

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Declare the panel complete and keep what its check has found."""
        self._complete()
        save_facts(open_panel(self.path), facts)
