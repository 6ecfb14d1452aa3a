"""Pure planning: how rows are cut into blocks, and who owns which; bytes in words."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import InputError, Ints

BLOCK_BYTES = 8_000_000
"""Row data of a block, counted in float32."""

MIN_BLOCKS = 32
"""Blocks of a small matrix: enough for random halves to mix and for workers to share."""


@dataclass(frozen=True)
class Layout:
    """Rows of an ``n x n`` matrix, or an ``n x width`` panel, cut into equal blocks (the last may be shorter).

    The cut depends on the shape only, never on workers, memory or chunks, so that results do not either.
    """

    n: int
    width: int | None = None

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return self.n if self.width is None else self.width

    @cached_property
    def rows(self) -> int:
        """Rows a block."""
        return max(1, min(BLOCK_BYTES // (4 * max(1, self.columns)), self.n // MIN_BLOCKS))

    @cached_property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.n // self.rows)

    def bounds(self, block: int) -> tuple[int, int]:
        """First row of a block and the row after its last."""
        lo = block * self.rows
        return lo, min(lo + self.rows, self.n)

    def points(self, blocks: Iterable[int]) -> Ints:
        """Points of some blocks, block by block; not to be written to."""
        return _points(self, tuple(blocks))

    def spread(self, starts: Ints) -> Ints:
        """For blocks that begin at ``starts``, the places of all their rows, as if every block were full."""
        return (starts[:, None] + np.arange(self.rows)).ravel()


@lru_cache(maxsize=2)  # a round asks several times for the points of the same blocks
def _points(layout: Layout, blocks: tuple[int, ...]) -> Ints:
    points = layout.spread(np.array(blocks, dtype=np.int64) * layout.rows)
    return points[points < layout.n]


def owners(blocks: Iterable[int], workers: Mapping[str, int]) -> dict[str, list[int]]:
    """Assign every block to a worker, in pairs of neighbours (0 and 1, 2 and 3, ...).

    Rendezvous hashing on worker names with a cap in proportion to each worker's threads: equal shares, and when
    a worker comes or goes most blocks stay where their rows are cached. Whole pairs keep both rounds of an epoch
    (`psmds_dist.solver.schedule.halves`) equal on every worker, and with the same owners.

    Parameters
    ----------
    blocks : iterable of int
        Blocks of a call: all of them, or those of one round.
    workers : mapping of str to int
        Threads of each worker by its name.
    """
    numbers = np.unique(np.fromiter(blocks, np.int64))
    pairs, pair_of = np.unique(numbers // 2, return_inverse=True)
    owner = _owners(pairs.tobytes(), tuple(workers.items()))[pair_of]
    order = np.argsort(owner, kind="stable")
    shares = np.split(numbers[order], np.searchsorted(owner[order], np.arange(1, len(workers))))
    return {name: share.tolist() for name, share in zip(workers, shares, strict=True)}


@lru_cache(maxsize=4)  # every round of a run asks the same
def _owners(numbers: bytes, workers: tuple[tuple[str, int], ...]) -> Ints:
    """Index of the worker that each pair of blocks belongs to."""
    pairs = np.frombuffer(numbers, np.int64)
    names, threads = zip(*workers, strict=True)
    liking = np.array([_affinity(name, pairs) for name in names])
    room = np.array([-(-pairs.size * count // sum(threads)) for count in threads])
    owner = np.full(pairs.size, -1)
    while (left := np.flatnonzero(owner < 0)).size:
        open_ = np.flatnonzero(room > 0)
        first = open_[liking[np.ix_(open_, left)].argmax(axis=0)]
        for worker in open_:
            taken = left[first == worker][: room[worker]]
            owner[taken] = worker
            room[worker] -= taken.size
    return owner


def _affinity(worker: str, pairs: Ints) -> NDArray[np.uint64]:
    """How much a worker likes each pair: random numbers (splitmix64) with the worker's name as their seed."""
    seed = np.uint64(int.from_bytes(hashlib.blake2b(worker.encode(), digest_size=8).digest(), "big"))
    z = pairs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def groups(blocks: Sequence[int], size: int | None) -> list[list[int]]:
    """Cut blocks into runs of at most ``size``; one run when there is no size."""
    ordered = sorted(blocks)
    if not ordered:
        return []
    step = size or len(ordered)
    return [ordered[k : k + step] for k in range(0, len(ordered), step)]


def format_bytes(count: float) -> str:
    """Bytes as a person writes them, in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB" if abs(count) < 1024 else f"{count / 1024:.2f} TiB"


def round_up(count: int) -> str:
    """Bytes as `format_bytes` writes them, but never less: a limit of so much is enough."""
    unit = next((k for k in range(4) if count < 1024 ** (k + 1)), 4)
    digits = (0, 1, 1, 2, 2)[unit]
    step = 1024**unit / 10**digits
    return f"{math.ceil(count / step) / 10**digits:.{digits}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def parse_bytes(text: str | int | float, name: str = "memory_limit") -> int:
    """Bytes from a number or from text such as ``"400 MiB"`` or ``"4GB"``.

    Raises
    ------
    InputError
        When it is neither, or not positive.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?\d+)?)\s*([kmgt]?)(i?)b?\s*", str(text).lower())
    try:
        if match is None or isinstance(text, bool):
            raise ValueError
        base = 1024 if match[3] else 1000
        count = int(float(match[1]) * base ** " kmgt".index(match[2] or " "))
        if count <= 0:
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(
            f"{name} must be a positive number of bytes, or text such as '400 MiB' or '4GB', not {text!r}."
        ) from None
    return count
