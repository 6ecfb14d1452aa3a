"""Matrices whose entries are expensive: the half above the diagonal is computed, and then mirrored."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from psmds_dist.core.sources import ComputesPairs, RowSource
from psmds_dist.core.types import Executor, Rows
from psmds_dist.data.transforms import OneTriangle
from psmds_dist.ingest.scan import Progress, scan_all
from psmds_dist.utils.locks import exclusive_lock

if TYPE_CHECKING:
    from psmds_dist.data.store import Target


@dataclass(frozen=True, eq=False)
class Mirrored(OneTriangle):
    """The entries above the diagonal, which were computed, on both sides of it."""

    origin: RowSource
    """What they were computed from."""

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return self.origin.content_id

    @property
    def location(self) -> str | None:
        """Where that which they were computed from is stored."""
        return self.origin.location

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        return self.origin.ids

    def is_stale(self) -> bool:
        """Whether what they were computed from has changed since it was opened."""
        return self.origin.is_stale()


@dataclass(frozen=True)
class ComputeHalf:
    """Work of the pass that computes the half above the diagonal, as far as it is not written."""

    source: RowSource
    half: Target

    def __call__(self, blocks: Sequence[int]) -> None:
        """Compute the rows of ``blocks`` from the diagonal on; nothing is written left of it but NaN."""
        missing = [block for block in blocks if not self.half.has(block)]
        for block in missing:
            self.half.write(block, self._rows(*self.source.layout.bounds(block)))

    def _rows(self, lo: int, hi: int) -> Rows:
        assert isinstance(self.source, ComputesPairs)
        own, others = np.arange(lo, hi), np.arange(hi, self.source.n)
        rows: Rows = np.full((hi - lo, self.source.n), np.nan, self.source.dtype)
        self.source.read_pairs(own, own, rows[:, lo:hi])
        if others.size:
            self.source.read_pairs(own, others, rows[:, hi:])
        return rows


@contextmanager
def half_computed(
    source: RowSource, target: Target, executor: Executor, room: int, on_progress: Progress | None = None
) -> Iterator[RowSource]:
    """Yield rows of which each pair is computed once, where it is expensive; other sources as they are.

    The half is kept beside the target, so that an interrupted or failed run goes on with it, until the target is
    written.

    Parameters
    ----------
    source : RowSource
        What is written.
    target : Target
        Where to.
    executor : Executor
        Where to run.
    room : int
        Bytes of rows that a task may hold.
    on_progress : callable, optional
        Called with the number of blocks computed and the number of all.
    """
    written = all(map(target.has, range(target.layout.count)))  # nothing is to be computed, only checked
    if written or not isinstance(source, ComputesPairs):
        yield source
        return
    place = half_of(target.path)
    with exclusive_lock(place):
        half = _begun(source, place)
        for _ in scan_all(source, ComputeHalf(source, half), executor, room, on_progress):
            pass
        yield Mirrored(half, "upper", source)
        half.discard()


def half_of(path: str | os.PathLike[str]) -> str:
    """Where the computed half of a store is while that is written."""
    return f"{os.path.realpath(path)}.half"


def _begun(source: RowSource, place: str) -> Target:
    """Begin a half, or go on with one of the same source; one of another source was left by a run that ended."""
    from psmds_dist.data.store import create, is_begun  # late: needs Zarr

    kept = is_begun(place)
    return create(place, source.n, source.dtype.name, source_fingerprint=source.content_id, overwrite=kept)
