"""Matrices side by side: dissimilarities with their weights, or lower with upper bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import ReadProfile, RowSource, WrappedSource, require_square
from psmds_dist.core.types import InputError, Rows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.transforms import WithoutZeroWeights


@dataclass(frozen=True, eq=False)
class PairedRows(RowSource):
    """Rows of several matrices of the same points, side by side: shape ``(n, k n)`` for ``k`` of them.

    Parameters
    ----------
    sources : tuple of RowSource
        Dissimilarities, or lower and upper bounds of them; then weights, where there are any.

    Raises
    ------
    InputError
        When their shapes differ or are not square.
    """

    sources: tuple[RowSource, ...]

    def __post_init__(self) -> None:
        for source in self.sources:
            require_square(source)
            if source.n != self.first.n:
                raise InputError(
                    f"{source.location or 'a matrix'} has shape {source.shape}, but belongs to one of shape "
                    f"{self.first.shape}: weights and bounds need a number for each pair of the same points."
                )

    @property
    def first(self) -> RowSource:
        """Dissimilarities, or their lower bounds."""
        return self.sources[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, and numbers in a row."""
        return self.first.n, len(self.sources) * self.first.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows: that of the dissimilarities."""
        return self.first.dtype

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return " + ".join(source.content_id for source in self.sources)

    @property
    def location(self) -> str | None:
        """Where the dissimilarities are stored."""
        return self.first.location

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""
        return self.first.ids

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: what comes from one source, beside the rows that it is copied to."""
        profiles = [source.read_profile for source in self.sources]
        return ReadProfile(
            max(profile.rows_per_chunk for profile in profiles),
            max(profile.scratch_bytes for profile in profiles),
            1 + max(profile.read_copies for profile in profiles),
            max(profile.read_amplification for profile in profiles),
        )

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        for k, source in enumerate(self.sources):
            rows = np.empty((hi - lo, self.n), source.dtype)
            source.read(lo, hi, rows)
            out[: hi - lo, k * self.n : (k + 1) * self.n] = rows

    def prefetch(self, lo: int, hi: int) -> None:
        """Announce a read to every source."""
        for source in self.sources:
            source.prefetch(lo, hi)

    def verified(self) -> Self:
        """Return the same rows, made of verified sources."""
        return replace(self, sources=tuple(source.verified() for source in self.sources))

    def is_stale(self) -> bool:
        """Whether any source has changed since it was opened."""
        return any(source.is_stale() for source in self.sources)


def middle_of(rows: Rows, n: int, rule: PairRule) -> Rows:
    """One dissimilarity for each pair of rows that hold what a rule says: the middle of bounds, or the finite one."""
    if not rule.bounded:
        return rows[:, :n]
    lower, upper = rows[:, :n], rows[:, n : 2 * n]
    return np.where(np.isinf(upper), lower, 0.5 * lower + 0.5 * upper)


@dataclass(frozen=True, eq=False)
class MiddleRows(WrappedSource):
    """The middle of the bounds in the rows of a source, as a square matrix."""

    rule: PairRule

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a square matrix."""
        return self.source.n, self.source.n

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        rows = np.empty((hi - lo, self.source.shape[1]), self.dtype)
        self.source.read(lo, hi, rows)
        out[: hi - lo] = middle_of(rows, self.n, self.rule)


def as_matrix(source: RowSource, rule: PairRule) -> RowSource:
    """Dissimilarities alone, those of weight zero missing, and the middle of bounds for what needs one number."""
    found = source
    if rule.bounded:
        found = MiddleRows(source, rule)
    elif isinstance(source, PairedRows):
        found = source.first
    if rule.weighted and rule.gaps and isinstance(source, PairedRows):
        return WithoutZeroWeights(found, source.sources[-1])
    return found


class ArrayTable(ArrayRows):
    """Rows of a table of any width in this process, such as those of matrices side by side."""

    def _find_shape(self) -> tuple[int, int]:
        rows, columns = self.values.shape
        return int(rows), int(columns)
