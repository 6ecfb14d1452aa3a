"""The input check of matrices side by side: dissimilarities with their weights, or between bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, InputCheck, InputError, Rows, warn_user
from psmds_dist.data.paired import PairedRows
from psmds_dist.data.transforms import FiniteEntries, WithoutZeroWeights
from psmds_dist.ingest.check import (
    POOREST,
    Ids,
    Judgement,
    MatrixChecker,
    checked,
    entries,
    refuse,
    require_matrix,
    room_for,
    row_name,
    where_is,
)
from psmds_dist.ingest.diagnose import find_entries
from psmds_dist.ingest.gaps import Mask, names_of
from psmds_dist.ingest.passes import run_check
from psmds_dist.ingest.scan import InvalidEntries, Progress, Scan
from psmds_dist.planning.memory import checking


def check_rows(
    source: RowSource,
    rule: PairRule,
    executor: Executor,
    *,
    ids: Ids = None,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> InputCheck:
    """Check what the rows of a solve hold by its rule: a matrix, or several side by side.

    Parameters
    ----------
    source : RowSource
        A matrix, or `psmds_dist.data.paired.PairedRows` where the rule has weights or bounds.
    rule : PairRule
        What a pair costs.
    executor, ids, memory_limit, on_progress
        As in `psmds_dist.ingest.check.check_source`.

    Returns
    -------
    InputCheck
        That of the dissimilarities (or lower bounds) that count, with an identity of all matrices.

    Raises
    ------
    InputError
        With all that is wrong with one of the matrices.
    """
    check = _Checks(executor, ids, memory_limit, on_progress)
    if not isinstance(source, PairedRows):
        return check.divisible(source, rule, check.first(source))
    matrix, *others = source.sources
    digests = []
    if rule.weighted:
        weights = others.pop()
        digests.append(check.second(weights, WeightChecker(ids)).digest)
        matrix = WithoutZeroWeights(matrix, weights)
        found = check.second(matrix, MatrixChecker(ids, weighted=True))
    else:
        found = check.first(matrix)
    if rule.bounded:
        digests.append(check.second(FiniteEntries(others[0]), BoundChecker(ids)).digest)
        check.bounds(source.sources[0], others[0])
    identity = hashlib.blake2b(" ".join([found.digest, *digests]).encode(), digest_size=16).hexdigest()
    return check.divisible(matrix, rule, replace(found, digest=identity))


@dataclass(frozen=True)
class _Checks:
    """The passes of `check_rows`, with their common arguments."""

    executor: Executor
    ids: Ids
    memory_limit: int | None
    on_progress: Progress | None

    def first(self, matrix: RowSource) -> InputCheck:
        """Check dissimilarities, all of which count."""
        limit = self.memory_limit
        return checked(matrix, self.executor, ids=self.ids, memory_limit=limit, on_progress=self.on_progress)

    def second(self, matrix: RowSource, checker: MatrixChecker) -> InputCheck:
        """Check a matrix in a way whose result is not kept with it."""
        require_matrix(matrix)
        return run_check(matrix, checker, self.executor, memory_limit=self.memory_limit, on_progress=self.on_progress)

    def bounds(self, lower: RowSource, upper: RowSource) -> None:
        """Refuse bounds that are the wrong way round, or of which only one is known."""
        both = PairedRows((lower, upper))
        crossed, alone = self._find(both, _crossed), self._find(both, _alone)
        refuse([_say_crossed(crossed, both, self.ids), _say_alone(alone, self.ids)])

    def divisible(self, matrix: RowSource, rule: PairRule, found: InputCheck) -> InputCheck:
        """Refuse dissimilarities of zero where the rule divides by them; bounds of zero count as tiny."""
        if rule.divides and not rule.bounded and (zero := self._find(matrix, _zero)):
            by = f"loss={rule.loss!r}" if rule.facts.divides else f"weight_power={rule.power:g}"
            raise InputError(
                f"{by} divides by the dissimilarities, but the matrix has {entries(zero.count, 'zero')} off its "
                f"diagonal, the first in {where_is(zero, self.ids)}; merge points that are the same, or replace zeros "
                "by the smallest dissimilarity that can be told from them."
            )
        return found

    def _find(self, matrix: RowSource, test: Callable[[Rows], Mask]) -> InvalidEntries | None:
        room = room_for(checking, matrix, self.executor, self.memory_limit)
        return find_entries(matrix, test, self.executor, room)


def warn_of_few_pairs(check: InputCheck, n_components: int, ids: Ids) -> None:
    """Warn of points that know too few others for their place to be determined.

    Warns
    -----
    DissimilarityWarning
        Where points know fewer than ``n_components + 1`` others.
    """
    few = [k for k, known in check.poorest if known < n_components + 1]
    if few:
        count = "at least " * (len(few) == POOREST) + f"{len(few):,}"
        warn_user(
            f"points with fewer known pairs than the {n_components + 1} that determine a place in {n_components} "
            f"dimensions: {count} ({names_of(few, ids)})"
        )


def _zero(rows: Rows) -> Mask:
    return np.asarray(rows <= 0)


def _crossed(rows: Rows) -> Mask:
    lower, upper = np.split(rows, 2, axis=1)
    return np.asarray(upper < lower)


def _alone(rows: Rows) -> Mask:
    lower, upper = np.split(rows, 2, axis=1)
    return np.asarray(np.isnan(lower) != np.isnan(upper))


def _say_crossed(found: InvalidEntries | None, both: PairedRows, ids: Ids) -> str:
    if found is None:
        return ""
    row = both.take(np.array([found.row]))[0]
    return (
        f"the bounds are the wrong way round in {found.count:,} entries, one of them in {where_is(found, ids)}: "
        f"the upper bound {row[both.n + found.column]:g} is below {row[found.column]:g}; exchange them."
    )


def _say_alone(found: InvalidEntries | None, ids: Ids) -> str:
    if found is None:
        return ""
    return (
        f"{found.count:,} entries have one bound and NaN for the other, one of them in "
        f"{where_is(found, ids)}; write 0 where nothing is known below, inf where nothing is known above, and NaN in "
        "both where the pair is missing."
    )


@dataclass(frozen=True)
class WeightChecker(MatrixChecker):
    """The check of weights: finite, zero or more, and the same in both orders."""

    @property
    def what(self) -> str:
        """What messages call the source."""
        return "the weights"

    def evaluate(self, collected: Scan, source: RowSource, executor: Executor, room: int) -> InputCheck:
        """Judge a finished pass."""
        return _accepted(WeightJudgement(collected, source, executor, self.ids, self.symmetry_tol, room))


@dataclass(frozen=True)
class BoundChecker(MatrixChecker):
    """The check of upper bounds: zero or more, and the same in both orders."""

    @property
    def what(self) -> str:
        """What messages call the source."""
        return "the upper bounds"

    def evaluate(self, collected: Scan, source: RowSource, executor: Executor, room: int) -> InputCheck:
        """Judge a finished pass."""
        return _accepted(BoundJudgement(collected, source, executor, self.ids, self.symmetry_tol, room))


def _accepted(judge: BoundJudgement) -> InputCheck:
    refuse(judge.problems())
    found = judge.result()
    return replace(found, suspicion=type(found.suspicion)())


@dataclass(frozen=True)
class BoundJudgement(Judgement):
    """What a finished pass says about upper bounds."""

    what: str = "the upper bounds"

    def problems(self) -> list[str]:
        """All that is wrong, the worst first."""
        return [self._one_order(), self._not_usable("huge"), self._not_usable("negative"), self._unlike()]

    def _one_order(self) -> str:
        points = self.scan.gaps.one_sided
        if not points.size:
            return ""
        return (
            f"{self.what} of {points.size:,} points are infinite or NaN in one order of a pair only, first of point "
            f"{row_name(int(points[0]), self.ids)}; give both orders the same."
        )

    def _not_usable(self, kind: str) -> str:
        invalid = self.scan.invalid(kind)
        if invalid is None:
            return ""
        return (
            f"{self.what} have {entries(invalid.count, kind)}, the worst in {where_is(invalid, self.ids)} "
            f"({invalid.value:g}); they must be numbers of zero or more that can be squared."
        )

    def _unlike(self) -> str:
        pair = None if self.scan.gaps.one_sided.size else self._unequal
        if pair is None:
            return ""
        i, j = row_name(pair.i, self.ids), row_name(pair.j, self.ids)
        return (
            f"{self.what} are not symmetric: the worst pair found is {i} and {j}, with {pair.value:.9g} and "
            f"{pair.mirrored:.9g}; give both orders of a pair the same."
        )


@dataclass(frozen=True)
class WeightJudgement(BoundJudgement):
    """What a finished pass says about weights."""

    what: str = "the weights"

    def problems(self) -> list[str]:
        """All that is wrong, the worst first."""
        kinds = map(self._not_usable, ("infinite", "huge", "negative"))
        return [self._unknown(), *kinds, self._zero_weights(), self._unlike()]

    def _unknown(self) -> str:
        gaps = self.scan.gaps
        if not gaps.missing and not gaps.one_sided.size:
            return ""
        first = int(np.flatnonzero(gaps.known < self.scan.n - 1)[0])
        return (
            f"the weights have NaN entries, the first in row {row_name(first, self.ids)}; give the weight 0 to a pair "
            "that is not to count."
        )

    def _zero_weights(self) -> str:
        """Sentence about points of which no pair counts."""
        points = np.flatnonzero(self.scan.squares == 0)
        if not points.size:
            return ""
        return (
            f"all weights of {points.size:,} of the points are zero, so that no pair gives them a place "
            f"({names_of(points.tolist(), self.ids)}); leave them out."
        )
