"""Rows held in this process: a cache inside a byte budget, and read-ahead streaming beyond it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from psmds_dist.partition import Layout, RowMemory
from psmds_dist.types import Ints, Rows, RowSource


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


class RowCache:
    """Blocks of a source, kept as they come until the budget is full; later ones stream through buffers.

    Nothing is evicted: every epoch asks for every block of this process once, and for such a cycle keeping the
    first that fit is the best policy there is.
    """

    def __init__(self, source: RowSource, budget: int) -> None:
        self.source = source
        self.layout = Layout(source.n)
        self._memory = RowMemory.plan(self.layout, source.dtype.itemsize, source.band, budget)
        self._data: Rows = np.empty((self._memory.cached_blocks * self.layout.rows, source.n), source.dtype)
        self._slot: dict[int, int] = {}
        self._buffers: list[Rows] = []
        self._lock = threading.Lock()

    def batches(self, blocks: Sequence[int]) -> Iterator[Batch]:
        """Yield all rows of ``blocks``, each once; a batch is valid until the next one is asked for."""
        with self._lock:
            kept = [b for b in sorted(blocks) if b in self._slot]
            missing = [b for b in sorted(blocks) if b not in self._slot]
            loaded = self._load_ahead(self._runs(missing))
            if kept:
                yield self._kept(kept)
            yield from loaded

    def _kept(self, blocks: Sequence[int]) -> Batch:
        return Batch(self._data, *self._places(blocks, {b: self._slot[b] for b in blocks}))

    def _places(self, blocks: Sequence[int], start: dict[int, int]) -> tuple[Ints, Ints]:
        bounds = [(b, *self.layout.bounds(b)) for b in blocks]
        slots = np.concatenate([np.arange(start[b], start[b] + hi - lo) for b, lo, hi in bounds])
        return slots, np.concatenate([np.arange(lo, hi) for _, lo, hi in bounds])

    def _runs(self, blocks: Sequence[int]) -> list[_Run]:
        """Group blocks that share a band of storage; a run spans what lies between them as well."""
        if self._memory.run_blocks == 1:
            return [_Run(b, b, (b,)) for b in blocks]
        groups: dict[int, list[int]] = {}
        for b in blocks:
            groups.setdefault(self.layout.bounds(b)[0] // self.source.band, []).append(b)
        return [self._whole_band(band, wanted) for band, wanted in groups.items()]

    def _whole_band(self, band: int, wanted: list[int]) -> _Run:
        """Take the other blocks of the band as well when there is room to keep them: their turn will come."""
        rows, count = self.layout.rows, self.layout.count
        first = -(-band * self.source.band // rows)
        last = min(count, -(-(band + 1) * self.source.band // rows)) - 1
        if self._fits(last - first + 1) and not any(b in self._slot for b in range(first, last + 1)):
            return _Run(first, last, tuple(wanted))
        return _Run(wanted[0], wanted[-1], tuple(wanted))

    def _fits(self, blocks: int) -> bool:
        return len(self._slot) + blocks <= self._memory.cached_blocks

    def _load_ahead(self, runs: list[_Run]) -> Iterator[Batch]:
        """Read one run ahead of the consumer, in a thread of its own.

        Both the reading and the bookkeeping happen in that one thread, in order; the first read starts at once,
        so it overlaps whatever the consumer does before it asks.
        """
        if not runs:
            return iter(())
        reader = ThreadPoolExecutor(1, thread_name_prefix="psmds-read")
        pending = [reader.submit(self._load, run, k) for k, run in enumerate(runs[:1])]

        def consume() -> Iterator[Batch]:
            try:
                for k in range(len(runs)):
                    batch = pending.pop().result()
                    if k + 1 < len(runs):
                        pending.append(reader.submit(self._load, runs[k + 1], k + 1))
                    yield batch
            finally:
                reader.shutdown(wait=True, cancel_futures=True)

        return consume()

    def _load(self, run: _Run, turn: int) -> Batch:
        lo, hi = self.layout.bounds(run.first)[0], self.layout.bounds(run.last)[1]
        keep = self._fits(run.last - run.first + 1) and not any(
            b in self._slot for b in range(run.first, run.last + 1)
        )
        base = len(self._slot) * self.layout.rows if keep else 0
        target = self._data[base : base + hi - lo] if keep else self._buffer(turn)[: hi - lo]
        self.source.read(lo, hi, target)
        start = {b: base + (b - run.first) * self.layout.rows for b in range(run.first, run.last + 1)}
        if keep:
            self._slot.update(start)
        return Batch(self._data if keep else self._buffer(turn), *self._places(run.wanted, start))

    def _buffer(self, turn: int) -> Rows:
        while len(self._buffers) < 2:
            shape = (self._memory.run_blocks * self.layout.rows, self.source.n)
            self._buffers.append(np.empty(shape, self.source.dtype))
        return self._buffers[turn % 2]


class ResidentRows:
    """A whole matrix that is in memory already; nothing is copied."""

    def __init__(self, matrix: Rows) -> None:
        self._matrix = matrix
        self._layout = Layout(matrix.shape[0])

    def batches(self, blocks: Sequence[int]) -> Iterator[Batch]:
        """Yield the rows of ``blocks`` as one batch."""
        points = np.concatenate([np.arange(*self._layout.bounds(b)) for b in sorted(blocks)])
        yield Batch(self._matrix, points, points)


HeldRows = RowCache | ResidentRows
_HELD: dict[str, HeldRows] = {}
_HELD_LOCK = threading.Lock()


def hold(source: RowSource, budget: int) -> HeldRows:
    """Rows of ``source`` held by this process; those of another source are let go first."""
    key = f"{source.token}:{budget}"
    with _HELD_LOCK:
        if key not in _HELD:
            _HELD.clear()
            matrix = getattr(source, "resident", None)
            _HELD[key] = ResidentRows(matrix) if matrix is not None else RowCache(source, budget)
        return _HELD[key]


def release() -> None:
    """Let go of all rows that this process holds."""
    with _HELD_LOCK:
        _HELD.clear()
