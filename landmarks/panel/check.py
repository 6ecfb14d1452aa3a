"""The check of a panel: what one streamed pass over it tells, and the part of it between the landmarks."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from landmarks.panel.memory import panel_pass
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import EntryKind, Floats, InputError, Ints, Rows, Suspicion
from psmds_dist.data.cache import stored
from psmds_dist.ingest.check import (
    ROUNDING_TOL,
    entries,
    like_similarities,
    refuse,
    rounded_zero,
    row_name,
    suspicion_of,
)
from psmds_dist.ingest.passes import Checker
from psmds_dist.ingest.scan import (
    HUGE,
    InvalidEntries,
    checksums_of,
    digest_of,
    find_invalid,
    largest_usable,
    total_invalid,
)
from psmds_dist.ingest.similarity import SimilarityCheck, sample_points
from psmds_dist.ingest.triangles import count_sides
from psmds_dist.planning.memory import PANEL_BYTES

Ids = Sequence[str] | None

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""What stands for infinity where files hold no such thing, also in float64."""

STRIP = 32
"""Landmarks whose rows are compared with their columns at a time."""

SMALL = 0.1
"""Quantile that is a small one: what stands for 'no connection' may be in most pairs, where there are many groups."""


@dataclass(frozen=True)
class PanelCheck:
    """What the pass over a panel found, once it is known to be usable.

    Attributes
    ----------
    n, width : int
        Points and landmarks.
    dtype : str
        Type of the rows that were looked at.
    highest : float
        Largest dissimilarity.
    known : tuple of (int, int)
        How many rows (second) know how many landmarks (first), ascending.
    poorest : int
        First row among those that know the fewest landmarks.
    landmarks : str or None
        Identity of the list of landmarks; None when they are not among the points.
    asymmetry : float or None
        Worst ``|t_rs - t_sr|`` between landmarks as a share of the root mean square there.
    digest : str
        Identity of the content: equal rows of equal type give equal digests.
    suspicion : Suspicion
        What a user should know before trusting a map.
    """

    n: int
    width: int
    dtype: str
    highest: float
    known: tuple[tuple[int, int], ...]
    poorest: int
    landmarks: str | None
    asymmetry: float | None
    digest: str
    suspicion: Suspicion

    @property
    def missing(self) -> int:
        """Number of missing dissimilarities."""
        return sum((self.width - count) * rows for count, rows in self.known)

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for attributes."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PanelCheck:
        """Inverse of `as_dict`, from JSON as well."""
        known = tuple((count, rows) for count, rows in values["known"])
        return cls(**{**values, "known": known, "suspicion": Suspicion(**values["suspicion"])})


@dataclass(frozen=True)
class PanelBlock:
    """What is known of a block of a panel, or of several neighbouring ones."""

    block: int
    highest: float
    checksums: tuple[int, ...]
    known: dict[int, int]
    """Rows by the number of landmarks they know."""

    poorest: tuple[int, int]
    """Fewest landmarks known to a row, and the first such row."""

    infinite: InvalidEntries | None = None
    negative: InvalidEntries | None = None


class PanelScanner:
    """Collects the findings about the blocks of one group."""

    def __init__(self, n: int, width: int) -> None:
        self._layout = Layout(n, width)
        self._blocks: list[PanelBlock] = []

    def add(self, block: int, rows: Rows) -> None:
        """Look at the rows of ``block``."""
        lo, _ = self._layout.bounds(block)
        low, high = float(rows.min()), float(rows.max())
        known = np.full(len(rows), rows.shape[1])
        if np.isnan(low):
            known -= np.isnan(rows).sum(axis=1)
            low, high = (float(bound.reduce(rows, axis=None)) for bound in (np.fmin, np.fmax))
        counts, numbers = np.unique(known, return_counts=True)
        invalid_entries = {}
        if low < 0 or high == np.inf:
            invalid_entries["infinite"] = find_invalid(np.isinf(rows), rows, lo)
            invalid_entries["negative"] = find_invalid(rows < 0, rows, lo)
        self._blocks.append(
            PanelBlock(
                block,
                0.0 if np.isnan(high) else high,
                checksums_of(np.ascontiguousarray(rows), self._layout),
                dict(zip(counts.tolist(), numbers.tolist(), strict=True)),
                (int(counts[0]), lo + int(known.argmin())),
                **invalid_entries,
            )
        )

    def result(self) -> list[PanelBlock]:
        """Return what was collected."""
        return self._blocks


@dataclass(frozen=True)
class PanelEntries:
    """Names of the entries of a panel that was handed over as one, for messages.

    Attributes
    ----------
    landmarks : (S,) int64 or None
        Row of each column's landmark.
    ids : sequence of str or None
        Names of the points.
    """

    landmarks: Ints | None
    ids: Ids = None

    what = "the panel"
    transposed = False
    on_diagonal = (
        "the matrix is not one of dissimilarities, or landmarks does not list the rows of its columns in order"
    )
    on_symmetry = on_diagonal
    on_similarities = "; if they are dissimilarities, landmarks does not list the rows of its columns in order"
    on_triangle = "fill it in on both sides of the diagonal between landmarks"

    def row(self, point: int) -> str:
        """Name a row."""
        return row_name(point, self.ids)

    def place(self, row: int, column: int) -> str:
        """Name an entry by its row and column, as they lie before the user."""
        landmark = "" if self.landmarks is None else f" ({self.landmark(column)})"
        return f"row {self.row(row)}, column {column}{landmark}"

    def landmark(self, column: int) -> str:
        """Name the landmark of a column."""
        assert self.landmarks is not None
        point = int(self.landmarks[column])
        return f"landmark {point}" + (f", id {self.ids[point]!r}" if self.ids else "")


@dataclass(frozen=True)
class MatrixEntries(PanelEntries):
    """The same for a panel taken out of a matrix: column ``s`` is the row of landmark ``s`` there."""

    what = "the matrix"
    transposed = True
    on_diagonal = "set its diagonal to zero (numpy.fill_diagonal, or psmds ingest --zero-diagonal)"
    on_symmetry = "take the mean of both orders of each pair first (psmds ingest --symmetrize)"
    on_similarities = ""
    on_triangle = "use psmds ingest --triangle {side}"

    def place(self, row: int, column: int) -> str:
        """Name an entry by its row and column in the matrix."""
        assert self.landmarks is not None
        return f"row {self.row(int(self.landmarks[column]))}, column {self.row(row)}"


@dataclass(frozen=True)
class PanelChecker(Checker[list[PanelBlock], list[PanelBlock], PanelCheck]):
    """The check of a panel, in which entries may be missing."""

    names: PanelEntries
    symmetry_tol: float

    result = PanelCheck

    @property
    def what(self) -> str:
        """What messages call the panel."""
        return self.names.what

    def covers(self, found: PanelCheck, source: RowSource) -> bool:
        """Whether an earlier check was for the same landmarks."""
        return found.landmarks == landmarks_digest(source.landmarks)

    def width(self, source: RowSource) -> int:
        """Number of landmarks."""
        return source.shape[1]

    def room(self, source: RowSource, executor: Executor, memory_limit: int | None, *, writing: bool) -> int:
        """Bytes of rows that a pass may read together."""
        return PANEL_BYTES if memory_limit is None else panel_pass(stored(source)).room(memory_limit)

    def scanner(self, source: RowSource) -> Callable[[], PanelScanner]:
        """Return what makes a scanner for a group of blocks."""
        return partial(PanelScanner, *source.shape)

    def collect(self, source: RowSource, found: Iterable[list[PanelBlock]]) -> list[PanelBlock]:
        """Put the blocks in order."""
        return sorted((block for group in found for block in group), key=lambda scan: scan.block)

    def evaluate(self, collected: list[PanelBlock], source: RowSource, executor: Executor, room: int) -> PanelCheck:
        """Judge a finished pass; only the rows of landmarks are read again."""
        between = None if source.landmarks is None else source.take(source.landmarks)
        judge = Judgement(collected, source.dtype, between, self.names, self.symmetry_tol)
        refuse(judge.problems())
        known: Counter[int] = Counter()
        for scan in collected:
            known.update(scan.known)
        return PanelCheck(
            n=source.n,
            width=source.shape[1],
            dtype=source.dtype.name,
            highest=judge.highest,
            known=tuple(sorted(known.items())),
            poorest=min(scan.poorest for scan in collected)[1],
            landmarks=landmarks_digest(source.landmarks),
            asymmetry=judge.asymmetry,
            digest=_digest(source, collected),
            suspicion=judge.suspicion(),
        )


def landmarks_digest(landmarks: Ints | None) -> str | None:
    """Identity of a list of landmarks."""
    if landmarks is None:
        return None
    return hashlib.blake2b(landmarks.astype("<i8").tobytes(), digest_size=16).hexdigest()


def _digest(panel: RowSource, blocks: Sequence[PanelBlock]) -> str:
    head = f"{panel.shape[0]} {panel.shape[1]} {panel.dtype.name} "
    return digest_of(head, (scan.checksums for scan in blocks))


def huge(highest: float, dtype: np.dtype[Any], between: Rows | None, names: PanelEntries) -> str:
    """Say that some values overflow, which seldom are dissimilarities; empty where none does."""
    known = between[between > 0].astype(np.float64) if between is not None and highest > HUGE else np.empty(0)
    typical = float(np.quantile(known, SMALL)) if known.size else math.inf
    if highest <= largest_usable(dtype, typical) and highest != FLOAT32_MAX:
        return ""
    return (
        f"the largest dissimilarity of {names.what} is {highest:g}, too large to compute with as {dtype.name}: such "
        "values usually stand for 'no connection' or for a missing pair, so write NaN for these, or divide "
        f"{names.what} by a constant if they are dissimilarities."
    )


def refuse_huge(highest: float, dtype: np.dtype[Any], between: Rows | None, names: PanelEntries) -> None:
    """Refuse what `huge` describes.

    Raises
    ------
    InputError
        With its sentence.
    """
    if problem := huge(highest, dtype, between, names):
        raise InputError(problem)


@dataclass(frozen=True)
class Judgement:
    """What a finished pass says about a panel; each kind of trouble is a sentence, or empty."""

    blocks: Sequence[PanelBlock]
    dtype: np.dtype[Any]
    between: Rows | None
    """Rows of the panel at the landmarks (S, S), NaN where missing; None when they are not among the points."""

    names: PanelEntries
    symmetry_tol: float

    def problems(self) -> list[str]:
        """All that is wrong, the worst first."""
        similarities = self._similarities()
        if lone := self._lone_triangle():
            return [lone, similarities or self._diagonal()]
        rest = [] if similarities else [self._negative(), self._diagonal(), self._asymmetric()]
        return [self._infinite(), self._huge(), similarities, *rest]

    def suspicion(self) -> Suspicion:
        """What is suspicious about a panel without problems."""
        own = np.zeros(0) if self.between is None else np.nan_to_num(self.between.diagonal().astype(np.float64))
        kind: EntryKind = "dissimilarities" if self._similarity_check is None else self._similarity_check.entries
        return suspicion_of(self._worst_negative, own, self._scale or self.highest, kind)

    @property
    def highest(self) -> float:
        """Largest dissimilarity."""
        return max(scan.highest for scan in self.blocks)

    @cached_property
    def asymmetry(self) -> float | None:
        """Worst difference between both orders of a pair of landmarks, as a share of their root mean square."""
        if self.between is None:
            return None
        return self._worst_pair[2] / self._scale if self._scale else 0.0

    @cached_property
    def _squares(self) -> Floats:
        """Sum of squares of each landmark's known dissimilarities to the others."""
        assert self.between is not None
        squares, usable = np.empty(len(self.between)), largest_usable(np.dtype(np.float64))
        for strip, rows, _ in self._strips():
            others = np.where(np.abs(rows) <= usable, rows, 0)
            others[np.arange(len(others)), np.arange(strip.start, strip.stop)] = 0
            squares[strip] = np.square(others).sum(axis=1)
        return squares

    def _strips(self) -> Iterator[tuple[slice, Floats, Floats]]:
        """Some landmarks, their rows, and their columns as rows: arithmetic with all at once takes much memory."""
        assert self.between is not None
        size = len(self.between)
        for lo in range(0, size, STRIP):
            strip = slice(lo, min(lo + STRIP, size))
            yield strip, self.between[strip].astype(np.float64), self.between[:, strip].T.astype(np.float64)

    @cached_property
    def _scale(self) -> float:
        """Root mean square of known dissimilarities between landmarks; 0 without any."""
        if self.between is None:
            return 0.0
        known = np.isfinite(self.between)
        pairs = int(known.sum()) - int(known.diagonal().sum())
        return math.sqrt(float(self._squares.sum()) / max(1, pairs))

    @cached_property
    def _zero(self) -> float:
        """What passes as a rounded zero."""
        return ROUNDING_TOL * self.highest if not self._scale else rounded_zero(self._squares)

    @cached_property
    def _worst_negative(self) -> InvalidEntries | None:
        return total_invalid([scan.negative for scan in self.blocks])

    @property
    def _told(self) -> Floats:
        """Dissimilarities of landmarks to themselves; zeros where missing, or infinite, told with the others."""
        assert self.between is not None
        return np.nan_to_num(self.between.diagonal().astype(np.float64), posinf=0, neginf=0)

    @cached_property
    def _own(self) -> Floats:
        """The same, where rounded ones are zeros as well."""
        own = self._told
        return np.where(np.abs(own) > self._zero, own, 0)

    @cached_property
    def _similarity_check(self) -> SimilarityCheck | None:
        if self.between is None or len(self.between) < 2:
            return None
        own = self._own
        few = sample_points(len(own))
        return SimilarityCheck.of(self.between[np.ix_(few, few)].astype(np.float64), own, self._squares, len(own))

    @cached_property
    def _worst_pair(self) -> tuple[int, int, float]:
        """Two landmarks, and how far apart their two entries are."""
        worst = 0, 0, 0.0
        for strip, rows, columns in self._strips():
            rows[np.isinf(rows) | np.isinf(columns)] = np.nan
            gap = np.nan_to_num(np.abs(rows - columns))
            r, s = np.unravel_index(gap.argmax(), gap.shape)
            if gap[r, s] > worst[2]:
                worst = strip.start + int(r), int(s), float(gap[r, s])
        return worst

    def _lone_triangle(self) -> str:
        """Say that landmarks know each other in one order only; a value that stands for the other is no other fault."""
        if self.between is None:
            return ""
        if all(np.array_equal(rows, columns, equal_nan=True) for _, rows, columns in self._strips()):
            return ""
        assert self.names.landmarks is not None
        order = np.argsort(self.names.landmarks)
        table = self.between.T if self.names.transposed else self.between
        side = count_sides(table[np.ix_(order, order)], 0).only
        if side is None:
            return ""
        return (
            f"only the {side} triangle of {self.names.what} is filled between landmarks; "
            f"{self.names.on_triangle.format(side=side)}."
        )

    def _infinite(self) -> str:
        invalid = total_invalid([scan.infinite for scan in self.blocks])
        if invalid is None:
            return ""
        return (
            f"{self.names.what} has {entries(invalid.count, 'infinite')} as {self.dtype.name}, the first in "
            f"{self.names.place(invalid.row, invalid.column)}; write NaN for a dissimilarity that is missing."
        )

    def _huge(self) -> str:
        return "" if math.isinf(self.highest) else huge(self.highest, self.dtype, self.between, self.names)

    def _similarities(self) -> str:
        if self._similarity_check is None or not self._similarity_check.of_similarities:
            return ""
        assert self.between is not None
        assert self.names.landmarks is not None
        signed = self._worst_negative is not None
        told = like_similarities(self.names.what, self.names.landmarks, self._own, self._scale, signed, self.names.ids)
        return told.removesuffix(".") + self.names.on_similarities + "."

    def _negative(self) -> str:
        invalid = self._worst_negative
        if invalid is None or -invalid.value <= self._zero:
            return ""
        return (
            f"{self.names.what} has {entries(invalid.count, 'negative')}, the lowest in "
            f"{self.names.place(invalid.row, invalid.column)} ({invalid.value:g}), but dissimilarities are zero or "
            "more; write NaN for one that is missing."
        )

    def _diagonal(self) -> str:
        if self.between is None or self.names.landmarks is None:
            return ""
        rows = self.names.landmarks.tolist()
        own = self._told
        worst = int(own.argmax())
        if own[worst] <= self.symmetry_tol * self._scale:
            return ""
        return (
            f"{self.names.what} has {own[worst]:g} instead of 0 from landmark {self.names.row(rows[worst])} to itself, "
            f"in {self.names.place(rows[worst], worst)}; {self.names.on_diagonal}."
        )

    def _asymmetric(self) -> str:
        if self.asymmetry is None or self.asymmetry <= self.symmetry_tol:
            return ""
        assert self.between is not None
        assert self.names.landmarks is not None
        rows = self.names.landmarks.tolist()
        r, s, _ = self._worst_pair
        return (
            f"{self.names.what} is not symmetric between landmarks: the worst pair is {self.names.row(rows[r])} and "
            f"{self.names.row(rows[s])}, with {self.between[r, s]:.9g} in {self.names.place(rows[r], s)} and "
            f"{self.between[s, r]:.9g} in {self.names.place(rows[s], r)}, which differ by {self.asymmetry:.2g} of the "
            f"root mean square ({self._scale:.6g}) where {self.symmetry_tol:g} is tolerated; {self.names.on_symmetry}."
        )
