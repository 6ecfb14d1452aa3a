"""The input check: one streamed pass tells whether a matrix can be used, and what is wrong with it if not.

A pair that differs from its mirror image by more than the tolerance is always noticed when the rest of its
row is symmetric to rounding, and otherwise once it stands out of the row's other differences. All that is wrong with a
matrix is said in one message, the worst first. What is suspicious but usable is a `DissimilarityWarning`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from psmds_dist.core.sources import RowSource, require_square, require_valid
from psmds_dist.core.types import EntryKind, Executor, Floats, InputCheck, InputError, Ints, Rows, Suspicion
from psmds_dist.core.validation import require_size
from psmds_dist.data.cache import stored
from psmds_dist.ingest.diagnose import (
    Pair,
    count_triangles,
    group_sizes,
    look_at_triangles,
    one_sided_pair,
    worst_pair,
)
from psmds_dist.ingest.gaps import component_sizes, largest_component, names_of
from psmds_dist.ingest.passes import Checker, check_once, run_check
from psmds_dist.ingest.scan import (
    GroupScan,
    InvalidEntries,
    Progress,
    Scan,
    Scanner,
    contiguous_runs,
    largest_usable,
)
from psmds_dist.ingest.similarity import SimilarityCheck, sample_points
from psmds_dist.ingest.triangles import Triangles
from psmds_dist.kernels.warm import warm_up_scan
from psmds_dist.planning.memory import PANEL_BYTES, MemoryRequirement, building, checking

SYMMETRY_TOL = 1e-4
"""Largest ``|t_ij - t_ji|`` that passes as rounding, as a share of the root mean square."""

ROUNDING_TOL = 1e-5
"""Largest distance from zero of a negative entry, or of one on the diagonal, that passes as a rounded zero, as a share
of the root mean square of a typical row (the median, so that a few huge entries do not make others look small)."""

OUTLIER = 1e6
"""An entry so many times a typical one is suspicious: hardly a digit of the others counts beside its square."""

POOREST = 100
"""Points that know the fewest others which a check remembers."""

Ids = Sequence[str] | None


@dataclass(frozen=True)
class MatrixChecker(Checker[GroupScan, Scan, InputCheck]):
    """The check of a square matrix of dissimilarities, for all uses of its pairs."""

    ids: Ids = None
    symmetry_tol: float = SYMMETRY_TOL
    weighted: bool = False
    """Whether pairs are missing that have the weight zero."""

    result = InputCheck

    def warm_up(self, source: RowSource, executor: Executor) -> None:
        """Compile the scan."""
        executor.warm_up(partial(warm_up_scan, source.dtype.name))

    def room(self, source: RowSource, executor: Executor, memory_limit: int | None, *, writing: bool) -> int:
        """Bytes of rows that a pass may read together, within what its kind of pass needs besides."""
        return room_for(building if writing else checking, source, executor, memory_limit)

    def scanner(self, source: RowSource) -> Callable[[], Scanner]:
        """Return what makes a scanner for a group of blocks."""
        return partial(Scanner, source.n, source.dtype)

    def collect(self, source: RowSource, found: Iterable[GroupScan]) -> Scan:
        """Put together what scanners found."""
        scan = Scan(source.n, source.dtype)
        for group in found:
            scan.add(group)
        return scan

    def evaluate(self, collected: Scan, source: RowSource, executor: Executor, room: int) -> InputCheck:
        """Judge a finished pass."""
        judge = Judgement(collected, source, executor, self.ids, self.symmetry_tol, room, self.weighted)
        refuse(judge.problems())
        return judge.result()


def require_complete(check: InputCheck, what: str, advice: str = "leave out points") -> None:
    """Refuse a matrix with missing pairs for what needs all of them.

    Raises
    ------
    InputError
        Where pairs are missing.
    """
    if check.missing:
        raise InputError(
            f"the matrix misses {check.missing:,} of its {check.suspicion.pairs:,} pairs (NaN), but {what} needs all "
            f"of them: fill them in, or {advice}."
        )


def require_matrix(source: RowSource) -> None:
    """Refuse a source that is no square matrix of enough points."""
    require_valid(source)
    require_square(source)
    require_size(source.n)


def checked(
    source: RowSource,
    executor: Executor,
    *,
    ids: Ids = None,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> InputCheck:
    """Return the result of the input check: the one kept with a store where it still holds, or a new one."""
    require_matrix(source)
    return check_once(source, MatrixChecker(ids), executor, memory_limit=memory_limit, on_progress=on_progress)


def check_source(
    source: RowSource,
    executor: Executor,
    *,
    ids: Ids = None,
    symmetry_tol: float = SYMMETRY_TOL,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> InputCheck:
    """Read a whole matrix once and tell whether it can be used.

    Parameters
    ----------
    source : RowSource
        The matrix.
    executor : Executor
        Where to run.
    ids : sequence of str, optional
        Names of the rows, for messages.
    symmetry_tol : float
        Largest ``|t_ij - t_ji|`` to let pass, as a share of the root mean square dissimilarity.
    memory_limit : int, optional
        Bytes that a worker may take.
    on_progress : callable, optional
        Called with the number of blocks done and the number of all.

    Returns
    -------
    InputCheck
        Scale and identity of the data.

    Warns
    -----
    DissimilarityWarning
        When entries were taken for rounded zeros, or behave like similarities.

    Raises
    ------
    InputError
        With all that is wrong, the worst first, and where it is.
    """
    require_matrix(source)
    checker = MatrixChecker(ids, symmetry_tol)
    return run_check(source, checker, executor, memory_limit=memory_limit, on_progress=on_progress)


def room_for(
    kind: Callable[..., MemoryRequirement], source: RowSource, executor: Executor, memory_limit: int | None
) -> int:
    """Bytes of rows that a pass may read together, within what its kind of pass needs besides."""
    if memory_limit is None:
        return PANEL_BYTES
    return kind(stored(source), executor.n_workers, here=executor.in_process).room(memory_limit)


def refuse(problems: Sequence[str]) -> None:
    """Refuse what has problems, with the sentences of all.

    Raises
    ------
    InputError
        Unless all are empty.
    """
    if told := " Also, ".join(filter(None, problems)):
        raise InputError(told)


def suspicion_of(negative: InvalidEntries | None, diagonal: Floats, rms: float, entries: EntryKind) -> Suspicion:
    """What is suspicious about dissimilarities without problems: their negative and diagonal entries are rounded."""
    farthest = float(np.abs(diagonal).max(initial=0.0))
    return Suspicion(
        rounded_negative=0 if negative is None else negative.count,
        rounded_diagonal=int(np.count_nonzero(diagonal)),
        largest_rounded=max(farthest, 0.0 if negative is None else -negative.value),
        rms=rms,
        entries=entries,
    )


@dataclass(frozen=True)
class Judgement:
    """What a finished pass says about a matrix; each kind of trouble is a sentence, or empty."""

    scan: Scan
    source: RowSource
    executor: Executor
    ids: Ids
    symmetry_tol: float
    room: int
    weighted: bool = False

    def problems(self) -> list[str]:
        """All that is wrong, the worst first."""
        similarities = self._similarities()
        entries_wrong = [] if similarities else [self._negative(), self._diagonal()]
        problems = [
            self._lone_triangle,
            self._one_sided(),
            self._unconnected(),
            self._infinite(),
            self._huge(),
            similarities,
            *entries_wrong,
            self._asymmetric(),
        ]
        return problems if any(problems) else [tiny(self.scan.dtype, self.scan.rms, self._highest)]

    def result(self) -> InputCheck:
        """What is known of a matrix without problems."""
        scan, pair = self.scan, self._pair
        outlier = self._outlier()  # it, and all else beside it, behaves like similarities as well
        entries: EntryKind = "dissimilarities" if outlier else self._similarity_check.entries
        return InputCheck(
            n=scan.n,
            dtype=scan.dtype.name,
            highest=self._highest,
            rms=scan.rms,
            symmetry_tol=self.symmetry_tol,
            asymmetry=None if pair is None else pair.difference / scan.rms,
            digest=scan.digest,
            suspicion=replace(
                suspicion_of(scan.invalid("negative"), scan.diagonal, scan.rms, entries),
                missing=scan.gaps.missing,
                pairs=scan.n * (scan.n - 1) // 2,
                **outlier,
            ),
            poorest=tuple(scan.gaps.poorest(POOREST)),
        )

    def _outlier(self) -> dict[str, Any]:
        """Facts of a `Suspicion` about the largest entry, where it is far from a typical one."""
        usual = typical(self.scan.complete_squares)
        if self._highest <= OUTLIER * usual:
            return {}
        row = int(self.scan.squares.argmax())
        entries_there: Rows = np.empty((1, self.scan.n), self.source.dtype)
        self.source.read(row, row + 1, entries_there)
        column = int(np.nanargmax(entries_there))
        there = f"row {row_name(row, self.ids)}, column {row_name(column, self.ids)}"
        return {"outlier": float(entries_there[0, column]), "typical": usual, "outlier_at": there}

    @property
    def _highest(self) -> float:
        return max(block.highest for block in self.scan.blocks)

    @cached_property
    def _zero(self) -> float:
        """What passes as a rounded zero."""
        return rounded_zero(self.scan.complete_squares)

    @cached_property
    def _diagonal_entries(self) -> Floats:
        """The diagonal, with rounded zeros as zeros."""
        return np.where(np.abs(self.scan.diagonal) > self._zero, self.scan.diagonal, 0)

    @cached_property
    def _similarity_check(self) -> SimilarityCheck:
        return SimilarityCheck.of(self.scan.sample, self._diagonal_entries, self.scan.complete_squares, self.scan.n)

    @cached_property
    def _finite(self) -> bool:
        return not any(self.scan.invalid(kind) for kind in ("infinite", "huge"))

    @cached_property
    def _lone_triangle(self) -> str:
        """Sentence about a matrix of which one side of the diagonal is empty, or holds a value that stands for that."""
        half = self.scan.n * (self.scan.n - 1) // 2
        invalid_entries = [self.scan.invalid(kind) for kind in ("infinite", "huge", "negative")]
        unequal = self.scan.gaps.one_sided.size or self._unequal is not None
        if not unequal and not any(invalid and invalid.count >= half for invalid in invalid_entries):
            return ""
        found = count_triangles(self.source, self.executor, self.room)
        return one_triangle(found) if found.only else ""

    def _invalid(self, kind: str) -> InvalidEntries | None:
        """Entries that are wrong in one way, unless they fill the empty side of a lone triangle."""
        invalid, n = self.scan.invalid(kind), self.scan.n
        fills_a_side = invalid is not None and 0 <= invalid.count - n * (n - 1) // 2 <= n
        return None if fills_a_side and self._lone_triangle else invalid

    @cached_property
    def _pair(self) -> Pair | None:
        """The worst pair, if any row is suspect.

        One entry that differs by ``d`` moves both sketches of its row by ``d`` to ``2 d``, so nothing above the
        bound escapes; noise in all entries together may raise a false suspicion, which this look then settles.
        """
        imbalance = self.scan.imbalance
        if not (imbalance > self.symmetry_tol * self.scan.rms).any():
            return None
        return worst_pair(self.source, imbalance, self.executor, self.room)

    @property
    def _unequal(self) -> Pair | None:
        """The worst pair, if it differs by more than the tolerance."""
        pair = self._pair if self._finite else None
        return None if pair is None or pair.difference <= self.symmetry_tol * self.scan.rms else pair

    def _one_sided(self) -> str:
        """Sentence about pairs that are known in one order only."""
        points = self.scan.gaps.one_sided
        if not points.size or self._lone_triangle:
            return ""
        pair = one_sided_pair(self.source, int(points[0]), self.executor, self.room)
        i, j = row_name(pair.i, self.ids), row_name(pair.j, self.ids)
        there, value = (pair.j, pair.mirrored) if math.isnan(pair.value) else (pair.i, pair.value)
        return (
            f"some pairs of {points.size:,} points are known in one order only, the first {i} and {j}, with {value:g} "
            f"in row {there} and NaN in the other; use symmetrize=True (psmds ingest --symmetrize) to take the value "
            "that is known (and the mean where both are), or write NaN in both orders where a pair is to be missing."
        )

    def _unconnected(self) -> str:
        """Sentence about points that no chain of known pairs joins."""
        gaps, ids = self.scan.gaps, self.ids
        if not gaps.entries:
            return "all entries of the matrix off its diagonal are NaN, so no pair is known; check how it was read."
        labels = gaps.labels
        sizes = component_sizes(labels)
        if len(sizes) == 1 or gaps.one_sided.size:
            return ""
        outside = np.flatnonzero(labels != largest_component(labels))
        lonely = np.flatnonzero(gaps.known == 0)
        shown = ", ".join(f"{size:,}" for size in sizes[:5]) + ", ..." * (len(sizes) > 5)
        pair = "known pair of positive weight" if self.weighted else "known pair"
        alone = f" (without any {pair}: {names_of(lonely, ids)})" if lonely.size else ""
        return (
            f"the points fall into {len(sizes):,} components without a {pair} between them (of {shown} points), "
            f"which have no place relative to each other; outside the largest are {names_of(outside, ids)}{alone}: "
            "embed each component by itself, or the largest alone by disconnected='largest' (--disconnected largest)."
        )

    def _infinite(self) -> str:
        invalid = self._invalid("infinite")
        if invalid is None:
            return ""
        return (
            f"the matrix has {entries(invalid.count, 'infinite')} as {self.scan.dtype.name}, the first in "
            f"{where_is(invalid, self.ids)}; {self._groups}replace them by finite dissimilarities or leave out their "
            "points."
        )

    def _huge(self) -> str:
        invalid = self._invalid("huge")
        if invalid is None:
            return ""
        return (
            f"the squares of the dissimilarities overflow in computations with {self.scan.dtype.name}: "
            f"{entries(invalid.count, 'huge')}, the largest {invalid.value:g} in {where_is(invalid, self.ids)}, above "
            f"{largest_usable(self.scan.dtype):g}; {self._groups}where such values stand for pairs without a "
            "dissimilarity replace them or leave out their points, otherwise divide the matrix by a constant first."
        )

    @cached_property
    def _groups(self) -> str:
        """Say into which groups the points fall, when they do."""
        sizes = group_sizes(self.source, self.executor, largest_usable(self.scan.dtype), self.room)
        if len(sizes) == 1:
            return ""
        shown = ", ".join(f"{size:,}" for size in sizes[:5]) + ", ..." * (len(sizes) > 5)
        return (
            f"the points fall into {len(sizes):,} groups without a finite dissimilarity between them (of {shown} "
            "points), which have no place relative to each other, so embed each group by itself, or "
        )

    def _similarities(self) -> str:
        diagonal = np.where(np.isfinite(self._diagonal_entries), self._diagonal_entries, 0)  # others are told by others
        if not self._similarity_check.of_similarities or not diagonal.any():
            return ""
        signed = self.scan.invalid("negative") is not None
        return like_similarities("the matrix", np.arange(self.scan.n), diagonal, self.scan.rms, signed, self.ids)

    def _negative(self) -> str:
        invalid = self._invalid("negative")
        if invalid is None or -invalid.value <= self._zero:
            return ""
        return (
            f"the matrix has {entries(invalid.count, 'negative')}, the lowest in {where_is(invalid, self.ids)} "
            f"({invalid.value:g}), but dissimilarities are zero or more; correct them at their origin, fill in missing "
            "pairs that they stand for, and if these are correlations r, use sqrt(2 (1 - r))."
        )

    def _diagonal(self) -> str:
        diagonal = self._diagonal_entries
        wrong = np.count_nonzero(diagonal)
        if not wrong:
            return ""
        worst = int(np.abs(diagonal).argmax())
        return (
            f"the diagonal is not zero in {wrong} of {diagonal.size} rows, the largest "
            f"{diagonal[worst]:g} in row {row_name(worst, self.ids)}; set it to zero (numpy.fill_diagonal, or "
            "psmds ingest --zero-diagonal)."
        )

    def _asymmetric(self) -> str:
        pair, rms = self._unequal, self.scan.rms
        if pair is None or not rms or self._lone_triangle or self.scan.gaps.one_sided.size:
            return ""  # without a root mean square, all are too small
        missing = 0 in (pair.value, pair.mirrored) or min(pair.value, pair.mirrored) < -self._zero
        i, j = row_name(pair.i, self.ids), row_name(pair.j, self.ids)
        return (
            f"the matrix is not symmetric: the worst pair found is {i} and {j}, with {pair.value:.9g} in row "
            f"{pair.i} and {pair.mirrored:.9g} in row {pair.j}, which differ by {pair.difference / rms:.2g} of "
            f"the root mean square ({rms:.6g}) where {self.symmetry_tol:g} is tolerated; use symmetrize=True "
            "(psmds ingest --symmetrize) to take the mean of both orders, which has the same best map"
            + ", but where one of the two is missing fill it in first." * missing
            + "." * (not missing)
        )


def refuse_one_triangle(source: RowSource) -> None:
    """Look at some rows of a matrix before the mean of both orders is taken, which would halve a lone triangle.

    Raises
    ------
    InputError
        When one side of the diagonal is empty there.
    """
    require_two(look_at_triangles(source))


def require_two(found: Triangles) -> None:
    """Refuse a lone triangle.

    Raises
    ------
    InputError
        When one side of the diagonal is empty.
    """
    if found.only:
        raise InputError(one_triangle(found))


def one_triangle(found: Triangles) -> str:
    """Say that only one side of the diagonal is filled."""
    filled = found.only
    above = filled == "upper"
    there, empty = (found.upper, found.lower) if above else (found.lower, found.upper)
    return (
        f"only the {filled} triangle of the matrix is filled: of the entries looked at, {there.filled:,} "
        f"{'above' if above else 'below'} the diagonal are neither zero nor missing, and those "
        f"{'below' if above else 'above'} are all {empty}; use psmds ingest --triangle {filled} (build with "
        f"triangle={filled!r}), or in NumPy t = numpy.{'triu' if above else 'tril'}(t); t + t.T. "
        "The mean of both orders (symmetrize) would "
        + (f"mix all dissimilarities with {empty.low:g}." if empty.filled else "halve all that stand beside a zero.")
    )


def typical(squares: Floats) -> float:
    """Root mean square of a typical row, from each row's sum of squares off the diagonal."""
    middle, mean = float(np.partition(squares, squares.size // 2)[squares.size // 2]), float(squares.mean())
    return math.sqrt((min(middle, mean) or mean) / max(1, squares.size - 1))


def rounded_zero(squares: Floats) -> float:
    """Distance from zero that passes as rounding, from each row's sum of squares off the diagonal."""
    return ROUNDING_TOL * typical(squares)


def refuse_similarities(source: RowSource, ids: Ids = None) -> None:
    """Look at some rows of a matrix before its diagonal is set to zero, which would hide what it holds.

    Raises
    ------
    InputError
        When it looks like similarities.
    """
    n, points = source.n, sample_points(source.n)
    rows: Rows = np.empty((points.size, n), source.dtype)
    for run in contiguous_runs(points.tolist(), points.size):
        first = int(np.searchsorted(points, run.start))
        source.read(run.start, run.stop, rows[first : first + len(run)])
    usable = np.where(np.abs(rows) <= largest_usable(rows.dtype), rows, 0)
    diagonal = usable[np.arange(points.size), points].astype(np.float64)
    squares = np.square(usable, dtype=np.float64).sum(axis=1) - diagonal**2
    diagonal[np.abs(diagonal) <= rounded_zero(squares)] = 0
    sample = rows[:, points].astype(np.float64)
    if SimilarityCheck.of(sample, diagonal, squares, n).of_similarities:
        rms = math.sqrt(float(squares.sum()) / (points.size * (n - 1)))
        raise InputError(like_similarities("the matrix", points, diagonal, rms, bool((sample < 0).any()), ids))


def like_similarities(what: str, points: Ints, diagonal: Floats, rms: float, signed: bool, ids: Ids) -> str:
    """Say that a matrix or panel holds similarities, as what some points have on the diagonal tells.

    Parameters
    ----------
    what : str
        What it is called.
    points : (k,) array
        Points that were looked at.
    diagonal : (k,) array
        Their diagonal entries, rounded zeros as zeros.
    rms : float
        Root mean square of other entries.
    signed : bool
        Whether some entries are negative.
    ids : sequence of str or None
        Names of all points.
    """
    there = diagonal != 0
    own = diagonal[there]
    top, constant = float(own.mean()), bool(np.ptp(own) <= 1e-6 * own.max())
    lacking = ""
    if not there.all():
        first = row_name(int(points[there.argmin()]), ids)
        count = points.size - own.size
        lacking = f"; {count} row{'s have' if count > 1 else ' has'} zero there, the first is {first}: repair or remove"
    remedy = f"turn them into dissimilarities first, {_remedy(top, constant, signed)}"
    return (
        f"{what} looks like similarities: its largest values are on the diagonal (mean {top:g} in "
        f"{own.size} rows, against a root mean square of {rms:g} elsewhere), so {remedy}{lacking}."
    )


def _remedy(top: float, constant: bool, signed: bool) -> str:
    """Say how similarities with ``top`` on the diagonal become dissimilarities."""
    if signed and constant:
        return "correlations by sqrt(2 (1 - r)) (psmds ingest --similarity 'sqrt(2(1-s))')"
    if constant:
        rule = "1-s" if top == 1 else "max-s"
        return f"for example by {top:g} - s, with a diagonal of zeros (psmds ingest --similarity '{rule}')"
    return "for example by sqrt(s_ii + s_jj - 2 s_ij)"


def tiny(dtype: np.dtype[Any], rms: float, highest: float) -> str:
    """Say that dissimilarities have lost their digits, or would in float64 squares of differences."""
    name, limits = dtype.name, np.finfo(dtype)
    if highest <= 0:
        return f"all dissimilarities are zero as {name}, so there is nothing to map; check how they were computed."
    minimum = float(limits.tiny / limits.eps)
    if rms < (math.sqrt(minimum) if name == "float64" else minimum):
        return (
            f"the dissimilarities, at most {highest:g}, are too small for the digits of {name}; multiply the matrix "
            "by a constant first."
        )
    return ""


def refuse_tiny(dtype: np.dtype[Any], rms: float, highest: float) -> None:
    """Refuse what `tiny` describes.

    Raises
    ------
    InputError
        With its sentence.
    """
    if problem := tiny(dtype, rms, highest):
        raise InputError(problem)


def row_name(row: int, ids: Ids) -> str:
    """Return a row as people know it."""
    return f"{row}" if ids is None else f"{row} (id {ids[row]!r})"


def where_is(invalid: InvalidEntries, ids: Ids) -> str:
    """Return the place of an entry as people know it."""
    return f"row {row_name(invalid.row, ids)}, column {row_name(invalid.column, ids)}"


def entries(count: int, kind: str) -> str:
    """Count entries in words."""
    return f"{count} {kind} entr{'y' if count == 1 else 'ies'}"
