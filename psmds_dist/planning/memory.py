"""What a process holds in each kind of run, and whether that fits: the one home of memory planning. Pure.

A run takes at most ``memory_limit`` bytes in a process for whatever grows with the data: coordinates, answers, rows
cached and rows in transit. What an interpreter takes in any case is not in the limit, see `RESERVED_BYTES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from psmds_dist.core.executor import Topology
from psmds_dist.core.layout import Layout, format_bytes, round_up
from psmds_dist.core.types import BudgetError
from psmds_dist.kernels.scan import SKETCHES

RESERVED_BYTES = 240 * 2**20
"""What an interpreter takes with this package, its libraries, the compiled kernels, and memory that the C library keeps
after a start from landmarks (225 MiB in all; ``test_budget.py``), most with Python 3.13: a worker
peaks at the limit and this at the most."""

KERNELS = 80 * 2**20
"""The same for a session that is there already: what a first run adds to it, by loading libraries and kernels."""

SLACK_BYTES = 16 * 2**20
"""What the allocator may keep back. A sixteenth of a limit, and this at the most, is left unspent for it; and a peak
that is higher than expected by no more is not worth a warning."""

BATCH = 2**15
"""Most points, in whole blocks, that a kernel call has when their rows are kept: its scratch grows with them."""

PANEL_BYTES = 128_000_000
"""Most row data that a pass holds at a time in a process, where rows are stored many together."""

FLOAT64_BYTES = 8
"""Bytes of a coordinate, an answer, an index."""

SNAPSHOT_COPIES = 3
"""Copies of all coordinates in a worker: received, unpacked, and the next ones arriving while these are in use."""


GAP_FIELDS = 3
"""What the check notes of a point with missing pairs: how many, a hash of them, and its component."""


AFTERWARDS = "what is done while no rows are cached"
"""Name of bytes that are needed when no rows are held."""


@dataclass(frozen=True)
class RowStorage:
    """How rows are stored, as far as memory goes.

    Attributes
    ----------
    layout : Layout
        The blocks that they are used in.
    itemsize : int
        Bytes of a number.
    band : int
        Rows stored together, so best read together.
    scratch : int
        Bytes that a read takes beside its target, whatever it reads.
    copies : int
        How many times over a read holds the rows it brings, its target included.
    resident : bool
        Whether they lie in the memory of this process, and are used there.
    stored_share : float
        Bytes that are stored for each byte of a row.
    """

    layout: Layout
    itemsize: int
    band: int = 1
    scratch: int = 0
    copies: int = 1
    resident: bool = False
    stored_share: float = 1.0

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.layout.rows * self.layout.columns * self.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.layout.n * self.layout.columns * self.itemsize

    @property
    def run_blocks(self) -> int:
        """Blocks of a band."""
        return max(1, -(-self.band // self.layout.rows))

    @property
    def min_limit(self) -> int:
        """Fewest bytes with which all rows can be gone through: two blocks, to read one ahead."""
        return 0 if self.resident else self.scratch + (1 + self.copies) * self.block_bytes

    @property
    def once(self) -> int:
        """Bytes enough to go through all rows once, each band being read once."""
        return 0 if self.resident else self.scratch + (3 + self.copies) * self.run_blocks * self.block_bytes


@dataclass(frozen=True)
class RowBuffers:
    """How a process spends its budget for rows."""

    cached_blocks: int
    """Blocks kept in memory."""

    run_blocks: int
    """Most blocks that one read brings."""

    buffer_bytes: int
    """Bytes of the two read-ahead buffers, and of what a read holds besides; none when every block can be kept."""

    block_bytes: int

    @property
    def nbytes(self) -> int:
        """Most bytes it takes."""
        return self.cached_blocks * self.block_bytes + self.buffer_bytes

    @classmethod
    def plan(cls, rows: RowStorage, budget: int) -> RowBuffers:
        """Split ``budget`` bytes, less what reads take, into kept blocks and two read-ahead buffers.

        A band is read at once where the buffers may be that large.

        Raises
        ------
        BudgetError
            When not even two blocks fit.
        """
        block, count, tall = rows.block_bytes, rows.layout.count, rows.run_blocks
        if rows.resident:  # used where they lie: they take nothing of the budget, be it zero
            return cls(count, tall, 0, block)
        room = budget - rows.scratch
        if (count + (rows.copies - 1) * tall) * block <= room:
            return cls(count, tall, 0, block)
        run = tall if (3 + rows.copies) * tall * block <= room else 1
        buffers = (1 + rows.copies) * run * block
        if buffers > room:
            raise BudgetError(
                f"{format_bytes(max(budget, 0))} are left for rows, but reading ahead needs "
                f"{format_bytes(rows.min_limit)} (two blocks of {rows.layout.rows} rows of {rows.layout.n:,} "
                f"points{_with_scratch(rows)}); raise memory_limit."
            )
        return cls((room - buffers) // block, run, buffers, block)


def _with_scratch(rows: RowStorage) -> str:
    return f", and {format_bytes(rows.scratch)} to decode large chunks" if rows.scratch else ""


@dataclass(frozen=True)
class MemoryRequirement:
    """What a process needs for a kind of run."""

    what: str
    """The run, for messages."""

    parts: Mapping[str, int]
    """Bytes beside the rows, by what they are for."""

    rows: RowStorage
    """The rows that the run goes through."""

    apart: int = 0
    """Bytes needed at some other time, when no rows are held."""

    remedies: tuple[str, ...] = ()
    """What else could be done where the limit is too small."""

    @property
    def total(self) -> int:
        """Bytes beside the rows."""
        return sum(self.parts.values())

    @property
    def min_limit(self) -> int:
        """Smallest limit that works."""
        return max(self.total + self.rows.min_limit, self.apart)

    def budget(self, limit: int) -> int:
        """Bytes of ``limit`` that are left for rows.

        Raises
        ------
        BudgetError
            When those are too few, with the smallest limit that works.
        """
        if limit < self.min_limit:
            raise BudgetError(self._refusal(limit))
        return limit - self.total - min(SLACK_BYTES, (limit - self.min_limit) // 16)

    def room(self, limit: int) -> int:
        """Bytes of rows that a pass may read together."""
        return min(PANEL_BYTES, (self.budget(limit) - self.rows.scratch) // self.rows.copies)

    def with_part(self, name: str, count: int) -> MemoryRequirement:
        """Return the same with bytes for one more thing."""
        return replace(self, parts={**self.parts, name: count})

    def _refusal(self, limit: int) -> str:
        ahead = self.rows.min_limit - self.rows.scratch if self.rows.min_limit else 0
        spent = {**self.parts, "rows to read ahead": ahead, "reading": self.rows.min_limit - ahead}
        spent[AFTERWARDS] = max(0, self.apart - sum(spent.values()))
        shares = ", ".join(f"{format_bytes(count)} for {name}" for name, count in spent.items() if count)
        options = [f"raise memory_limit (--memory-limit) to {round_up(self.min_limit)}", *self.remedies]
        return (
            f"memory_limit is {format_bytes(limit)} per process, but {self.what} needs {round_up(self.min_limit)} "
            f"({shares}): {', or '.join(options)}."
        )


def require(limit: int, *stages: MemoryRequirement) -> None:
    """Refuse a limit that is too small for any stage of a run, naming the smallest that works for all.

    Raises
    ------
    BudgetError
        For the stage that needs most.
    """
    max(stages, key=lambda needs: needs.min_limit).budget(limit)


def worker_share(n: int, workers: int) -> int:
    """Points that a worker may have to process: twice its share, as other workers may be lost."""
    return min(n, -(-2 * n // workers))


def checking(rows: RowStorage, workers: int = 1, *, here: bool = True) -> MemoryRequirement:
    """What the input check of a matrix needs: rows of a pass, sketches of rows and columns, findings of each row.

    Parameters
    ----------
    rows : RowStorage
        The matrix.
    workers : int
        Processes that share the work.
    here : bool
        Whether this process does the work itself, so that it holds what is gathered as well.
    """
    rows = replace(rows, resident=False)  # a pass copies them, wherever they lie
    n, of_row = rows.layout.n, FLOAT64_BYTES * (2 + SKETCHES + GAP_FIELDS)
    found = of_row * worker_share(n, workers)
    gathered = 2 * of_row * n + FLOAT64_BYTES * SKETCHES * n if here else found
    parts = {
        "the sketch of the check": 2 * FLOAT64_BYTES * SKETCHES * n,
        "missing pairs": 2 * FLOAT64_BYTES * GAP_FIELDS * n,
        "what it finds": found + gathered,
    }
    remedies = (*float32_remedy(rows), *ingest_remedy(rows))
    return MemoryRequirement(f"the check of {n:,} points", parts, rows, remedies=remedies)


def building(rows: RowStorage, workers: int = 1, *, here: bool = True) -> MemoryRequirement:
    """What writing a store with its check needs; two blocks are being written to disk."""
    needs = checking(rows, workers, here=here)
    parts = {**needs.parts, "rows being written": 2 * rows.block_bytes}
    what = f"building a store of {rows.layout.n:,} points"
    return MemoryRequirement(what, parts, needs.rows, remedies=float32_remedy(rows))


def exact(
    rows: RowStorage, dims: int, axes: int | None = None, workers: int = 1, *, here: bool = True, guided: bool = False
) -> MemoryRequirement:
    """What a solve on the whole matrix needs.

    Parameters
    ----------
    rows : RowStorage
        The matrix.
    dims : int
        Dimensions of the map.
    axes : int, optional
        Axes that an epoch tries; all by default.
    workers, here
        As in `checking`.
    guided : bool
        Whether each point answers with a step of its own instead of the number of one.
    """
    n = rows.layout.n
    steps = (axes or dims) * guided
    parts = {
        "coordinates": FLOAT64_BYTES * n * dims * (_MAPS if here else SNAPSHOT_COPIES),
        "answers": FLOAT64_BYTES
        * ((_ANSWERS_HERE + steps) * n if here else (_ANSWERS + 2 * steps) * worker_share(n, workers)),
        "scratch of the kernel": FLOAT64_BYTES * batch_points(rows) * (2 * (axes or dims) + POINT_SCRATCH),
    }
    remedies = (
        *float32_remedy(rows),
        *ingest_remedy(rows),
        "embed landmarks instead of the whole matrix (psmds landmarks fit)",
    )
    return MemoryRequirement(f"a map of {n:,} points in {dims} dimensions", parts, rows, remedies=remedies)


def with_multiplication(
    solve: MemoryRequirement, vectors: int, passes: int, workers: int, *, here: bool
) -> MemoryRequirement:
    """What a solve needs whose start multiplies the matrix with a block of so many vectors, in so many passes.

    The start is over before the solve begins, so that only what it needs more is added.
    """
    n = solve.rows.layout.n
    held = (passes + _BLOCKS) * n if here else SNAPSHOT_COPIES * n + 2 * worker_share(n, workers)
    more = max(0, FLOAT64_BYTES * vectors * held - solve.total)
    remedies = (*solve.remedies, "begin at random (--init random)")
    return replace(solve.with_part("the vectors of the start", more), remedies=remedies if more else solve.remedies)


def with_search(solve: MemoryRequirement, dims: int) -> MemoryRequirement:
    """What a solve needs that begins with a search on all rows, before any are cached."""
    n, rows = solve.rows.layout.n, solve.rows
    pair = _FLOAT32_BYTES if rows.itemsize == _FLOAT32_BYTES else rows.itemsize + _FLOAT32_BYTES
    held = rows.min_limit + pair * n * rows.layout.columns + FLOAT64_BYTES * n * (_VECTORS + dims * _DESCENTS)
    return replace(solve, apart=max(solve.apart, held), remedies=(*solve.remedies, "begin at random (--init random)"))


def with_polish(solve: MemoryRequirement, dims: int, workers: int, *, here: bool) -> MemoryRequirement:
    """What a solve needs that ends with a polish."""
    n = solve.rows.layout.n
    held = _POLISH * n * dims if here else 2 * worker_share(n, workers) * dims
    return solve.with_part("the polish", FLOAT64_BYTES * held)


def with_region(solve: MemoryRequirement, dims: int, *, here: bool) -> MemoryRequirement:
    """What a solve needs whose points have a region: its ends here, and what moves they allow everywhere."""
    n, allowed = solve.rows.layout.n, 2 * dims
    held = 4 * FLOAT64_BYTES * n * dims if here else SNAPSHOT_COPIES * n * allowed
    return solve.with_part("pinned coordinates and bounds", held)


def with_nearness(solve: MemoryRequirement, workers: int, *, here: bool) -> MemoryRequirement:
    """What a solve needs that weighs near pairs more: how far each point reaches, in every type that is computed in."""
    n = solve.rows.layout.n
    held = 2 * _REACHES * n if here else SNAPSHOT_COPIES * n + 2 * _REACHES * worker_share(n, workers)
    return solve.with_part("the reach of near pairs", FLOAT64_BYTES * held)


_REACHES = 3
"""Numbers a point of the pass that finds how far it reaches."""

_POLISH = 38
"""Numbers a coordinate of the quasi-Newton method: steps and changes of gradients, ten each, work, and the best map."""

_FLOAT32_BYTES = 4
"""Bytes of a dissimilarity in a search, which converts those of other types."""

_VECTORS = 150
"""Numbers a point of classical scaling, with all its passes."""

_DESCENTS = 120
"""Maps that a search holds, counted in float64."""

_BLOCKS = 7
"""Blocks beside one for each pass: products as they are gathered and as lines, and copies that make them orthogonal."""


def sampled(rows: RowStorage, points: int, dims: int, *, guided: bool = False) -> tuple[MemoryRequirement, ...]:
    """What maps of a sample of the points need: to read the sample, to check it, and to embed it.

    Parameters
    ----------
    rows : RowStorage
        The matrix.
    points : int
        Points of the sample.
    dims : int
        Most dimensions of a map.
    guided : bool
        As in `exact`.
    """
    sample = RowStorage(Layout(points), rows.itemsize, resident=True)
    held = sample_bytes(points, rows.itemsize)
    stages = (
        MemoryRequirement(
            f"reading a sample of {points:,} points",
            {"a chunk being read": rows.block_bytes},
            replace(rows, resident=False),
        ),
        checking(sample),
        exact(sample, dims, guided=guided),
    )
    remedies = ("give a smaller sample (--sample)",)
    return tuple(replace(stage.with_part("the sample", held), remedies=remedies) for stage in stages)


def sample_bytes(points: int, itemsize: int) -> int:
    """Bytes of a sample of the points and of two shuffled copies, of which the next is made from one triangle."""
    return 7 * points**2 * itemsize // 2


def rated(rows: RowStorage, points: int, dims: int, n_neighbors: int, between: int, threads: int) -> MemoryRequirement:
    """What measures of a map need in one pass over some of the rows.

    Parameters
    ----------
    rows : RowStorage
        The matrix.
    points : int
        Rows that are read.
    dims : int
        Dimensions of the map.
    n_neighbors : int
        Nearest points of each row.
    between : int
        Points between which the ranks of all dissimilarities are compared.
    threads : int
        Threads of the kernel.
    """
    n = rows.layout.n
    parts = {
        "coordinates": FLOAT64_BYTES * n * dims * (SNAPSHOT_COPIES + 1),
        "totals of the rows": FLOAT64_BYTES * points * _TOTALS,
        "scratch of the kernel": FLOAT64_BYTES * (2 * n * threads + 3 * n_neighbors * batch_points(rows)),
        "ranks of the dissimilarities": FLOAT64_BYTES * _RANKINGS * between**2 // 2,
    }
    remedies = (*(("measure a sample of the rows (--sample)",) * (points == n)), *ingest_remedy(rows))
    return MemoryRequirement(f"measuring a map of {n:,} points", parts, rows, remedies=remedies)


_TOTALS = 70
"""Numbers a point when the totals of the rows are gathered, ordered, and left out in turn."""

_RANKINGS = 14
"""Numbers a pair of a rank correlation: both dissimilarities, their ranks, order, influence, and copies of rows."""

_MAPS = 9
"""Coordinates of all points that a solve holds at once, at its end: as it started, the last, the best and the final
map, and those on the way from one to another."""

_ANSWERS_HERE = 10
"""Numbers a point when moves, sums and stresses are gathered where they are made."""

_ANSWERS = 7
"""Numbers a point in a worker's answer, and in the copy being sent."""

POINT_SCRATCH = 10
"""Numbers a point of a kernel call beside the gains."""


def batch_points(rows: RowStorage) -> int:
    """Points of the largest kernel call."""
    return min(rows.layout.n, max(BATCH, rows.run_blocks * rows.layout.rows))


def float32_remedy(rows: RowStorage) -> tuple[str, ...]:
    """Advice for a run that needs fewer bytes for rows."""
    return ("use float32 (--dtype float32)",) if rows.itemsize > 4 and not rows.resident else ()


def ingest_remedy(rows: RowStorage) -> tuple[str, ...]:
    """Advice for a run that needs fewer bytes for chunks."""
    return ("turn it into chunks of whole rows once (psmds ingest)",) if rows.scratch > rows.block_bytes else ()


@dataclass(frozen=True)
class Plan:
    """What a run will take, known before it starts.

    Attributes
    ----------
    limit : int
        Bytes a process may take.
    needs : MemoryRequirement
        What it needs beside rows.
    budget : int
        Bytes for rows.
    memory : RowBuffers
        How a process spends them.
    workers : int
        Processes that share the rows.
    read_cost : float
        How often a pass reads a stored byte that is not cached.
    again : bool
        Whether rows are gone through more than once, so that it pays to keep them.
    """

    limit: int
    needs: MemoryRequirement
    budget: int
    memory: RowBuffers
    workers: int
    read_cost: float = 1.0
    again: bool = True

    @classmethod
    def of(
        cls, limit: int, needs: MemoryRequirement, workers: int, read_cost: float = 1.0, *, again: bool = True
    ) -> Plan:
        """Spend what the needs leave of the limit on rows: all of it where they are gone through again.

        Raises
        ------
        BudgetError
            When that is too little.
        """
        budget = needs.budget(limit) if again else min(needs.budget(limit), needs.rows.once)
        memory = RowBuffers.plan(needs.rows, budget)
        return cls(limit, needs, budget, memory, workers, 2.0 if memory.run_blocks > 1 else read_cost, again)

    @property
    def layout(self) -> Layout:
        """Blocks of the rows."""
        return self.needs.rows.layout

    @property
    def cached_share(self) -> float:
        """Share of the rows that the processes together keep in memory."""
        if self.needs.rows.resident:
            return 1.0
        return min(1.0, self.memory.cached_blocks * self.workers / self.layout.count)

    @property
    def who(self) -> str:
        """Who works, and with what."""
        who = "1 process" if self.workers == 1 else f"{self.workers} workers"
        return f"{who} with {format_bytes(self.limit)} each"

    @property
    def keeping(self) -> str:
        """What becomes of rows that were read."""
        if self.cached_share == 1:
            return "kept in memory"
        return f"{self.cached_share:.0%} kept in memory, rest streamed" if self.again else "streamed once"

    def describe(self, topology: Topology | None = None) -> str:
        """Say in one line how the matrix will be read, after one that says where, for workers elsewhere."""
        again = ""
        if self.read_cost > 1.05 and self.cached_share < 1:
            again = f"; an epoch reads its chunks {self.read_cost:.1f} times, so ingest it once"
        rows = format_bytes(self.needs.rows.nbytes)
        return f"{self.where(topology)}{self.layout.n:,} points, rows {rows}, {self.who}: {self.keeping}{again}"

    def where(self, topology: Topology | None) -> str:
        """Line on the workers and their room for rows; nothing for this process alone."""
        if topology is None:
            return ""
        room, rows = format_bytes(self.budget * topology.workers), format_bytes(self.needs.rows.nbytes)
        fits = self.cached_share == 1
        often = "fits, read once" if fits else "read in every pass" if self.again else "read once"
        nodes, threads = counted(topology.hosts, "node"), counted(topology.threads, "thread")
        what = "matrix" if self.layout.n == self.layout.columns else "panel"
        return f"{nodes}, {threads}, {room} for rows; {what} {rows}: {often}\n"


def counted(number: int, what: str) -> str:
    """Number of things, with their plural."""
    return f"{number:,} {what}" + "s" * (number != 1)


def most_expected(limit: int, before: int) -> int:
    """Most resident bytes that a process should reach, given the resident ones before the run."""
    return limit + max(RESERVED_BYTES, before + KERNELS)


def exceeded(limit: int, before: Mapping[str, tuple[int, int]], peak: Mapping[str, int]) -> dict[str, int]:
    """Bytes by which processes took more than planned, by name; empty when none did.

    Parameters
    ----------
    limit : int
        Bytes that each might take.
    before : mapping of str to (int, int)
        Resident bytes, and their peak so far, of each process before the run.
    peak : mapping of str to int
        Their peak after it. A peak that the run did not raise says nothing against it.
    """
    over = {}
    for name, reached in peak.items():
        resident, earlier = before.get(name, (0, 0))
        most = most_expected(limit, resident)
        if reached > max(earlier, most + SLACK_BYTES):
            over[name] = reached - most
    return over


def describe_exceeded(over: Mapping[str, int]) -> str:
    """Say who took more memory than planned."""
    worst = max(over, key=lambda name: over[name])
    return (
        f"{'1 process' if len(over) == 1 else f'{len(over)} processes'} took more memory than memory_limit and the "
        f"{format_bytes(RESERVED_BYTES)} of an interpreter, the most {worst} by {format_bytes(over[worst])}: lower "
        "memory_limit (--memory-limit) where memory is short, and please report it"
    )
