"""Rows held in this process: a cache inside a byte budget, and read-ahead streaming beyond it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from psmds_dist.core.layout import Layout, groups
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Ints, Rows
from psmds_dist.planning.memory import BATCH, RowBuffers, RowStorage
from psmds_dist.utils.pickling import forget


def stored(source: RowSource) -> RowStorage:
    """How the rows of a source are stored, for planning."""
    profile = source.read_profile
    return RowStorage(
        source.layout,
        source.dtype.itemsize,
        profile.rows_per_chunk,
        profile.scratch_bytes,
        profile.read_copies,
        source.in_memory() is not None,
        profile.stored_share,
    )


AHEAD = 4
"""Reads that a source is asked to prefetch: one at a time, with pauses, leave a device idle."""


def prefetch_ahead(source: RowSource, spans: Sequence[tuple[int, int]], turn: int) -> None:
    """Prefetch the read that comes `AHEAD` after the read number ``turn``, which begins now; at first, those before."""
    for lo, hi in spans[turn + AHEAD if turn else 1 : turn + AHEAD + 1]:
        source.prefetch(lo, hi)


@dataclass(frozen=True)
class Batch:
    """Rows at hand: row ``slots[k]`` of ``rows`` belongs to point ``points[k]``."""

    rows: Rows
    slots: Ints
    points: Ints


@dataclass(frozen=True)
class _Run:
    """Neighbouring blocks that are read with one call, ``wanted`` among them."""

    first: int
    last: int
    wanted: tuple[int, ...]
    keep: bool


def batches_of(blocks: Sequence[int], layout: Layout) -> list[list[int]]:
    """Cut kept blocks into batches, so that the scratch of a kernel does not grow with all of them."""
    return groups(blocks, max(1, BATCH // layout.rows))


_READ = [0]
"""Bytes of rows that this process has read."""


def count_read(source: RowSource, rows: Rows) -> None:
    """Count rows that were read from a source, as they are stored."""
    _READ[0] += round(rows.nbytes * source.read_profile.stored_share)


def bytes_read() -> int:
    """Bytes of rows that this process has read; where threads count at the same time, about so many."""
    return _READ[0]


class RowCache:
    """Blocks of a source, kept as they come until the budget is full; later ones stream through buffers.

    Nothing is evicted: every epoch asks for every block of this process once, and for such a cycle keeping the
    first that fit is the best policy there is. Checksums are tested when a block comes for the first time: what was
    damaged on disk is never used, and later reads keep their speed.
    """

    def __init__(self, source: RowSource, budget: int) -> None:
        self.source = source
        self.layout = source.layout
        self._memory = RowBuffers.plan(stored(source), budget)
        self._height = source.read_profile.rows_per_chunk
        self._data: Rows = np.empty((self._memory.cached_blocks * self.layout.rows, self.layout.columns), source.dtype)
        self._slot: dict[int, int] = {}
        self._tested: set[int] = set()
        self._buffers: list[Rows] = []
        self._lock = threading.Lock()

    def batches(self, blocks: Sequence[int]) -> Generator[Batch, None, None]:
        """Yield all rows of ``blocks``, each once; a batch is valid until the next one is asked for.

        One run is read ahead of the consumer, in a thread that does both the reading and the bookkeeping, in
        order; the first read starts at once, so it overlaps what the consumer does with the kept rows. Close the
        generator when leaving it early: it then waits for the read that is under way.
        """
        with self._lock, ThreadPoolExecutor(1, thread_name_prefix="psmds-read") as reader:
            kept = [b for b in sorted(blocks) if b in self._slot]
            runs = self._runs([b for b in sorted(blocks) if b not in self._slot])
            spans = [self._span(run) for run in runs]
            pending = [reader.submit(self._load, run, 0) for run in runs[:1]]
            prefetch_ahead(self.source, spans, 0)
            for part in batches_of(kept, self.layout):
                yield self._kept(part)
            for turn in range(1, len(runs) + 1):
                batch = pending.pop().result()
                prefetch_ahead(self.source, spans, turn)
                pending += [reader.submit(self._load, run, turn) for run in runs[turn : turn + 1]]
                yield batch

    def _kept(self, blocks: Sequence[int]) -> Batch:
        return Batch(self._data, *self._places(blocks, self._slot))

    def _places(self, blocks: Sequence[int], start: dict[int, int]) -> tuple[Ints, Ints]:
        """Where the rows of some blocks are, and whose they are."""
        points = self.layout.spread(np.array(blocks) * self.layout.rows)
        slots = self.layout.spread(np.array([start[b] for b in blocks]))
        there = points < self.layout.n
        return slots[there], points[there]

    def _runs(self, blocks: Sequence[int]) -> list[_Run]:
        """Group blocks that share a band of storage; a run spans what lies between them as well."""
        groups: dict[int, list[int]] = {}
        for b in blocks:
            shared = b if self._memory.run_blocks == 1 else self.layout.bounds(b)[0] // self._height
            groups.setdefault(shared, []).append(b)
        runs: list[_Run] = []
        room = self._memory.cached_blocks - len(self._slot)
        for wanted in groups.values():
            runs.append(self._run(wanted, room))
            room -= (runs[-1].last - runs[-1].first + 1) * runs[-1].keep
        return runs

    def _run(self, wanted: list[int], room: int) -> _Run:
        """Take the other blocks of the band as well when there is room to keep them: their turn will come."""
        spans = [(wanted[0], wanted[-1])]
        if self._memory.run_blocks > 1:
            spans.insert(0, self._band_of(wanted[0]))
        for first, last in spans:
            if last - first < room and not any(b in self._slot for b in range(first, last + 1)):
                return _Run(first, last, tuple(wanted), keep=True)
        return _Run(*spans[-1], tuple(wanted), keep=False)

    def _band_of(self, block: int) -> tuple[int, int]:
        """First and last of the blocks that begin in the same band."""
        rows, height = self.layout.rows, self._height
        band = self.layout.bounds(block)[0] // height
        return -(-band * height // rows), min(self.layout.count, -(-(band + 1) * height // rows)) - 1

    def _span(self, run: _Run) -> tuple[int, int]:
        """Rows of a run."""
        return self.layout.bounds(run.first)[0], self.layout.bounds(run.last)[1]

    def _load(self, run: _Run, turn: int) -> Batch:
        lo, hi = self._span(run)
        base = len(self._slot) * self.layout.rows if run.keep else 0
        rows = self._data if run.keep else self._buffer(turn)
        self._read(run, lo, hi, rows[base : base + hi - lo])
        start = {b: base + (b - run.first) * self.layout.rows for b in range(run.first, run.last + 1)}
        if run.keep:
            self._slot.update(start)
        return Batch(rows, *self._places(run.wanted, start))

    def _read(self, run: _Run, lo: int, hi: int, out: Rows) -> None:
        blocks = range(run.first, run.last + 1)
        known = self._tested.issuperset(blocks)
        (self.source if known else self.source.verified()).read(lo, hi, out)
        count_read(self.source, out)
        self._tested.update(blocks)

    def _buffer(self, turn: int) -> Rows:
        while len(self._buffers) < 2:
            shape = (self._memory.run_blocks * self.layout.rows, self.layout.columns)
            self._buffers.append(np.empty(shape, self.source.dtype))
        return self._buffers[turn % 2]


class ResidentRows:
    """A whole matrix that is in memory already; nothing is copied."""

    def __init__(self, matrix: Rows, layout: Layout) -> None:
        self._matrix = matrix
        self.layout = layout

    def batches(self, blocks: Sequence[int]) -> Generator[Batch, None, None]:
        """Yield the rows of ``blocks``."""
        for part in batches_of(sorted(blocks), self.layout):
            points = self.layout.points(part)
            yield Batch(self._matrix, points, points)


HeldRows = RowCache | ResidentRows
CacheSlot = dict[str, RowCache]
"""Room for the rows of one source."""

_HELD: CacheSlot = {}
"""Rows held for the tasks of a cluster: one slot, since the memory limit of a worker is that of its process."""

_SLOT: ContextVar[CacheSlot] = ContextVar("psmds-row-cache", default=_HELD)
_HELD_LOCK = threading.Lock()


@contextmanager
def held_in(slot: CacheSlot) -> Iterator[None]:
    """Hold rows in a slot of the caller's own: runs in several threads would evict each other's rows every round."""
    token = _SLOT.set(slot)
    try:
        yield
    finally:
        _SLOT.reset(token)


def get_row_cache(source: RowSource, budget: int) -> HeldRows:
    """Rows of ``source``, held in the current slot; those of another source are evicted from it first.

    A matrix that is in memory anyway is used where it is, and evicts nothing.
    """
    matrix = source.in_memory()
    if matrix is not None:
        return ResidentRows(matrix, source.layout)
    key = f"{source.content_id}:{budget}"
    slot = _SLOT.get()
    with _HELD_LOCK:
        if key not in slot:
            slot.clear()
            slot[key] = RowCache(source, budget)
        return slot[key]


def clear_row_cache() -> None:
    """Free all rows that this process holds for tasks of a cluster, and the sources they came from."""
    forget()
    with _HELD_LOCK:
        _HELD.clear()
