"""Streamed passes over the rows of a source: reading in panels, and what is noted of each block."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.config import MAX_SQUARABLE
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, Floats, Ints, Rows
from psmds_dist.data.cache import count_read, prefetch_ahead
from psmds_dist.ingest.gaps import Gaps, GapScan, GapScanner
from psmds_dist.ingest.similarity import sample_points
from psmds_dist.kernels.jit import threads_for
from psmds_dist.kernels.scan import SKETCHES, scan_rows
from psmds_dist.planning.memory import PANEL_BYTES

_KEY = 0x70736D6473

HUGE, OUTLYING = 1e18, 1e12
"""An entry above the first, and so many times a typical one, leaves no digit of the others."""

PIECE_BYTES = 2**20
"""Rows that are looked at together where blocks are small: a matrix of a few hundred points in one piece."""

FILL_BYTES = 500_000
"""Rows with missing entries that are filled at a time."""

INVALID = ("infinite", "huge", "negative")
"""Kinds of entries that are wrong."""

F = TypeVar("F", covariant=True)
Progress = Callable[[int, int], None]
"""Called with the number of blocks done and the number of all."""


class BlockScanner(Protocol[F]):
    """What collects findings about the blocks of one group, as `Scanner` does."""

    def add(self, block: int, rows: Rows) -> None:
        """Look at the rows of ``block``, and of as many blocks after it as there are rows of."""

    def result(self) -> F:
        """Return what was found."""


@dataclass(frozen=True)
class InvalidEntries:
    """How many entries of a block are wrong in one way, and where the worst of them is, or the first of equals."""

    count: int
    row: int
    column: int
    value: float


@dataclass(frozen=True)
class BlockScan:
    """What is known of a block of rows, or of several neighbouring ones."""

    block: int
    """The first of them."""

    squares: Floats
    """Sums of squares of the rows; of their usable entries where some are missing, infinite or huge."""

    diagonal: Floats
    sketch: Floats
    sample: Rows
    """Rows of these blocks among those of `psmds_dist.ingest.similarity.sample_points`, at the columns of those."""

    highest: float
    """Largest of the usable entries."""

    checksums: tuple[int, ...]
    """That of each block."""

    infinite: InvalidEntries | None = None
    huge: InvalidEntries | None = None
    """Finite entries beyond `largest_usable`."""

    negative: InvalidEntries | None = None


@dataclass(frozen=True)
class GroupScan:
    """Scans of some blocks, and their weighted column sums.

    The sums depend in their last bits on how blocks are grouped, so they are compared and never reported.
    """

    blocks: tuple[BlockScan, ...]
    columns: Floats
    gaps: GapScan | None = None


@lru_cache(maxsize=1)
def sketch_weights(n: int) -> Floats:
    """Weights of the symmetry sketch: random signs times random sizes, so that equal faults do not cancel."""
    random = np.random.Generator(np.random.Philox(key=[_KEY, n]))
    sizes = random.uniform(1.0, 2.0, (SKETCHES, n))
    weights: Floats = sizes * random.choice([-1.0, 1.0], (SKETCHES, n))
    return weights


def largest_usable(dtype: np.dtype[Any], typical: float = math.inf) -> float:
    """Largest entry that solvers can compute with: moves, squares and their sums must not overflow.

    Nor may a ``typical`` dissimilarity beside it lose its digits, where one is given.
    """
    return min(1e37 if dtype.itemsize == 4 else MAX_SQUARABLE, max(HUGE, OUTLYING * typical))


class Scanner:
    """Collects the scans of the blocks of one group."""

    def __init__(self, n: int, dtype: np.dtype[Any]) -> None:
        self._layout = Layout(n)
        self._largest = largest_usable(dtype)
        self._points = sample_points(n)
        self._weights = sketch_weights(n)
        self._columns = np.zeros((SKETCHES, n))
        self._blocks: list[BlockScan] = []
        self._gaps = GapScanner(n)

    def add(self, block: int, rows: Rows) -> None:
        """Scan the rows of ``block`` and those that follow; what is missing counts as zero."""
        lo, _ = self._layout.bounds(block)
        parts = [self._look(start, part) for start, part in self._without_gaps(lo, rows)]
        self._blocks.append(
            BlockScan(
                block,
                squares=np.concatenate([part.squares for part in parts]),
                diagonal=np.concatenate([part.diagonal for part in parts]),
                sketch=np.concatenate([part.sketch for part in parts]),
                sample=rows.take(self._sampled(lo, lo + len(rows)), axis=0).take(self._points, axis=1),
                highest=max(part.highest for part in parts),
                checksums=checksums_of(rows, self._layout),
                **{kind: total_invalid([part.invalid.get(kind) for part in parts]) for kind in INVALID},
            )
        )

    def _look(self, lo: int, rows: Rows) -> _Part:
        """Look at rows from ``lo`` on, none of which has missing entries."""
        squares, sketch, low, high = scan_rows(rows, lo, self._weights, self._columns)
        invalid: dict[str, InvalidEntries | None] = {}
        if low < 0 or high > self._largest or not math.isfinite(squares.sum()):
            invalid = _invalid_entries(rows, lo)
            usable = np.where(np.abs(rows) <= self._largest, rows, 0)
            # by the same kernel: a sum must not depend on what other rows were looked at with it
            squares, _, _, high = scan_rows(usable, lo, self._weights, np.zeros_like(self._columns))
        return _Part(squares, np.diagonal(rows, lo).astype(np.float64), sketch, high, invalid)

    def _without_gaps(self, lo: int, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Yield rows from ``lo`` on as they are, or in parts with zeros for missing entries, which are noted."""
        if not np.isnan(rows.min()):
            yield lo, rows
            return
        step = max(1, FILL_BYTES // rows[0].nbytes)
        for first in range(0, len(rows), step):
            part, start = rows[first : first + step], lo + first
            missing = np.isnan(part)
            filled: Rows = np.where(missing, part.dtype.type(0), part)
            missing[np.arange(len(part)), np.arange(start, start + len(part))] = False
            if missing.any():
                self._gaps.add(start, missing)
            yield start, filled

    def _sampled(self, lo: int, hi: int) -> Ints:
        """Which of the rows ``lo`` to ``hi`` are in the sample, counted from ``lo``."""
        first, last = (bisect_left(self._points, row) for row in (lo, hi))
        return self._points[first:last] - lo

    def result(self) -> GroupScan:
        """Return what was collected."""
        return GroupScan(tuple(self._blocks), self._columns, self._gaps.result())


def checksums_of(rows: Rows, layout: Layout) -> tuple[int, ...]:
    """Checksum of each block of neighbouring ones."""
    return tuple(google_crc32c.value(rows[lo : lo + layout.rows]) for lo in range(0, len(rows), layout.rows))


def digest_of(head: str, checksums: Iterable[tuple[int, ...]]) -> str:
    """Identity of rows: a digest of their form and of the checksums of all blocks."""
    numbers = np.array([number for some in checksums for number in some], "<u4")
    return hashlib.blake2b(head.encode() + numbers.tobytes(), digest_size=16).hexdigest()


class _Part(NamedTuple):
    """What is known of some rows; see `BlockScan`."""

    squares: Floats
    diagonal: Floats
    sketch: Floats
    highest: float
    invalid: Mapping[str, InvalidEntries | None]


def _invalid_entries(rows: Rows, lo: int) -> dict[str, InvalidEntries | None]:
    infinite = np.isinf(rows)
    wrong = {
        "infinite": infinite,
        "huge": (rows > largest_usable(rows.dtype)) & ~infinite,
        "negative": (rows < 0) & ~infinite,
    }
    return {kind: find_invalid(mask, rows, lo) for kind, mask in wrong.items()}


def find_invalid(wrong: NDArray[np.bool_], rows: Rows, lo: int) -> InvalidEntries | None:
    """Return the entry farthest from zero among those that are wrong, and their count; ``rows`` begin at ``lo``."""
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    i, j = divmod(int(np.where(wrong, np.abs(rows), -1).argmax()), rows.shape[1])
    return InvalidEntries(count, lo + i, j, float(rows[i, j]))


def total_invalid(some: Sequence[InvalidEntries | None]) -> InvalidEntries | None:
    """Return the worst of some invalid entries, the first of equals, with the count of all."""
    found = [invalid for invalid in some if invalid is not None]
    if not found:
        return None
    worst = min(
        found, key=lambda invalid: (-math.inf if math.isnan(invalid.value) else -abs(invalid.value), invalid.row)
    )
    return replace(worst, count=sum(invalid.count for invalid in found))


class Scan:
    """What a pass has found so far; groups may come in any order."""

    def __init__(self, n: int, dtype: np.dtype[Any]) -> None:
        self.n = n
        self.dtype = dtype
        self.gaps = Gaps(n)
        self._blocks: dict[int, BlockScan] = {}
        self._columns = np.zeros((SKETCHES, n))

    def add(self, group: GroupScan) -> None:
        """Take in the scans of a group of blocks."""
        self._blocks.update((scan.block, scan) for scan in group.blocks)
        for name in ("blocks", "diagonal", "squares"):
            self.__dict__.pop(name, None)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are told of where they stand
            self._columns += group.columns
        self.gaps.add(group.gaps)

    @cached_property
    def blocks(self) -> list[BlockScan]:
        """Scans in the order of their blocks, so that sums over them always have the same bits."""
        return [self._blocks[k] for k in sorted(self._blocks)]

    @cached_property
    def diagonal(self) -> Floats:
        """All diagonal entries."""
        return np.concatenate([scan.diagonal for scan in self.blocks])

    @cached_property
    def squares(self) -> Floats:
        """Sum of squares of each row off the diagonal, over usable entries."""
        diagonal = self.diagonal
        own = np.where(np.abs(diagonal) <= largest_usable(self.dtype), diagonal, 0) ** 2
        squares: Floats = np.maximum(0, np.concatenate([scan.squares for scan in self.blocks]) - own)
        return squares

    @property
    def complete_squares(self) -> Floats:
        """The same, scaled up to rows in which nothing is missing."""
        scaled: Floats = self.squares * ((self.n - 1) / np.maximum(1, self.gaps.known))
        return scaled

    @property
    def sample(self) -> Rows:
        """Entries between the points of `psmds_dist.ingest.similarity.sample_points`."""
        return np.concatenate([scan.sample for scan in self.blocks])

    def invalid(self, kind: str) -> InvalidEntries | None:
        """The worst entry of a kind (one of `INVALID`), and the count of all."""
        return total_invalid([getattr(scan, kind) for scan in self.blocks])

    @property
    def rms(self) -> float:
        """Root mean square of the known entries off the diagonal."""
        return math.sqrt(float(self.squares.sum()) / max(1, self.gaps.entries))

    @property
    def imbalance(self) -> Floats:
        """Largest difference between the sketches of each row and of the column of the same index."""
        sketch = np.concatenate([scan.sketch for scan in self.blocks])
        worst: Floats = np.abs(sketch - self._columns.T).max(axis=1)
        return worst

    @property
    def digest(self) -> str:
        """Identity of the rows seen."""
        return digest_of(f"{self.n} {self.dtype.name} ", (scan.checksums for scan in self.blocks))


def contiguous_runs(blocks: Iterable[int], most: int) -> Iterator[range]:
    """Cut ``blocks`` into runs of at most ``most`` consecutive ones."""
    first: int | None = None
    last = -1
    for block in sorted(blocks):
        if first is not None and (block != last + 1 or block - first >= most):
            yield range(first, last + 1)
            first = None
        first, last = (block if first is None else first), block
    if first is not None:
        yield range(first, last + 1)


def read_strips(source: RowSource, blocks: Sequence[int], most: int) -> Iterator[tuple[range, Rows]]:
    """Read ``blocks`` of a source, up to ``most`` consecutive ones with one call, into one buffer.

    Rows that are in memory anyway are used where they are.
    """
    layout = source.layout
    matrix = source.in_memory()
    if matrix is not None:
        yield from (
            (run, matrix[layout.bounds(run[0])[0] : layout.bounds(run[-1])[1]]) for run in contiguous_runs(blocks, most)
        )
        return
    buffer: Rows = np.empty((min(most, len(blocks)) * layout.rows, layout.columns), source.dtype)
    parts = list(contiguous_runs(blocks, most))
    spans = [(layout.bounds(run[0])[0], layout.bounds(run[-1])[1]) for run in parts]
    for turn, (run, (lo, hi)) in enumerate(zip(parts, spans, strict=True)):
        prefetch_ahead(source, spans, turn)
        source.read(lo, hi, buffer)
        count_read(source, buffer[: hi - lo])
        yield run, buffer[: hi - lo]


def split(layout: Layout, run: range, panel: Rows, together: int = 1) -> Iterator[tuple[int, Rows]]:
    """Cut the rows of a run into those of its blocks, or of so many neighbours each."""
    for lo in range(0, len(panel), together * layout.rows):
        yield run[lo // layout.rows], panel[lo : lo + together * layout.rows]


def small_blocks(source: RowSource) -> int:
    """Blocks that are looked at together; one where blocks are large."""
    layout = source.layout
    return max(1, PIECE_BYTES // (layout.rows * layout.columns * source.dtype.itemsize))


def panel_blocks(source: RowSource, limit: int = PANEL_BYTES) -> int:
    """Blocks to read together, so that rows stored together are read once, as far as memory allows.

    Small blocks that are in memory anyway are taken together as well.
    """
    layout = source.layout
    most = limit // (layout.rows * layout.columns * source.dtype.itemsize)
    stored = -(-source.read_profile.rows_per_chunk // layout.rows)
    return max(1, min(stored if source.in_memory() is None else max(stored, small_blocks(source)), most))


@dataclass(frozen=True)
class ScanBlocks(Generic[F]):
    """Work of the pass over rows that exist already."""

    source: RowSource
    scanner: Callable[[], BlockScanner[F]]
    limit: int = PANEL_BYTES
    """Bytes of rows to read together at the most."""

    def __call__(self, blocks: Sequence[int]) -> F:
        """Scan ``blocks``."""
        scanner, layout, together = self.scanner(), self.source.layout, small_blocks(self.source)
        with threads_for(layout.rows * layout.columns):  # once for all blocks: small ones take no longer
            for run, panel in read_strips(self.source, blocks, panel_blocks(self.source, self.limit)):
                for block, rows in split(layout, run, panel, together):
                    scanner.add(block, rows)
        return scanner.result()


@dataclass(frozen=True)
class GatherColumns:
    """Work of the second look: entries of a few columns."""

    source: RowSource
    columns: Ints
    limit: int = PANEL_BYTES
    """Bytes of rows to read together at the most."""

    def __call__(self, blocks: Sequence[int]) -> list[tuple[int, Floats]]:
        """Return, for each of ``blocks``, its first row and its entries in the columns."""
        found = []
        for run, panel in read_strips(self.source, blocks, panel_blocks(self.source, self.limit)):
            lo, _ = self.source.layout.bounds(run[0])
            found.append((lo, panel[:, self.columns].astype(np.float64)))
        return found


@dataclass(frozen=True)
class Strips(Generic[F]):
    """Work over strips of neighbouring blocks: a worker's own blocks are scattered, those of a strip are not."""

    func: Callable[[Sequence[int]], F]
    """Work over blocks; under this name Dask finds what to call its tasks."""

    height: int
    count: int
    """Number of blocks."""

    def blocks(self, strips: Sequence[int]) -> list[int]:
        """Blocks of some strips."""
        bounds = [(s * self.height, min((s + 1) * self.height, self.count)) for s in strips]
        return [block for first, last in bounds for block in range(first, last)]

    def __call__(self, strips: Sequence[int]) -> F:
        """Work on the blocks of ``strips``."""
        return self.func(self.blocks(strips))


def scan_all(
    source: RowSource,
    work: Callable[[Sequence[int]], F],
    executor: Executor,
    room: int = PANEL_BYTES,
    on_progress: Progress | None = None,
) -> Iterator[F]:
    """Call ``work`` on all blocks of a source, in several tasks a worker, and yield what it returns, in any order.

    A strip is what is best read with one call: blocks that are stored together, as far as ``room`` bytes of rows allow
    it and there is something for every worker.
    """
    count, workers = source.layout.count, executor.n_workers
    height = min(panel_blocks(source, room), -(-count // workers))
    strips, done = Strips(work, height, count), 0
    total = -(-count // height)
    for part, found in executor.map(strips, range(total), group=max(1, total // (8 * workers))):
        done += len(strips.blocks(part))
        if on_progress is not None:
            on_progress(done, count)
        yield found
