"""What can be done to the rows of a matrix as they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from psmds_dist.core.arrays import digest_of_arrays
from psmds_dist.core.sources import ReadProfile, RowSource, SupportsColumns, WrappedSource
from psmds_dist.core.types import InputError, Ints, Rows


def mean_of_orders(rows: Rows, columns: Rows) -> None:
    """Turn entries into the mean of them and their mirror images, which are overwritten.

    Where one of the two is missing the other is taken, and where one is negative it stays, for the check to tell: a
    mean with the other would hide it.
    """
    kept = None
    if not (rows.min(initial=0) >= 0 and columns.min(initial=0) >= 0):
        lowest, highest = np.fmin(rows, columns), np.fmax(rows, columns)
        alone = np.isnan(rows) != np.isnan(columns)
        kept = np.where(alone | (lowest < -1e-5 * highest), lowest, np.nan)  # others are rounded zeros
    rows *= 0.5  # before the sum, which might overflow
    columns *= 0.5
    rows += columns
    if kept is not None:
        np.copyto(rows, kept, where=~np.isnan(kept))


@dataclass(frozen=True, eq=False)
class _WithColumns(WrappedSource):
    """Rows made of those of a source and the columns of the same index."""

    def __post_init__(self) -> None:
        """Refuse a source that cannot be read along columns.

        Raises
        ------
        InputError
            With what to do instead.
        """
        if not isinstance(self.source, SupportsColumns):
            raise InputError(
                "symmetrize=True (--symmetrize) and triangle (--triangle) are for matrices in arrays, files and "
                f"stores, not for {type(self.source).__name__}: computed distances are symmetric, so leave them out."
            )

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: rows, their columns, and these as stored; all rows at once take the fewest passes."""
        return replace(self.source.read_profile, rows_per_chunk=self.n, read_copies=3)

    def read_both(self, lo: int, hi: int, out: Rows) -> tuple[Rows, Rows]:
        """Fill ``out`` with rows ``lo`` to ``hi``, and return them with the columns of the same index as rows."""
        rows = out[: hi - lo]
        columns = np.empty_like(rows)
        self.source.read(lo, hi, rows)
        cast("SupportsColumns", self.source).read_columns(lo, hi, columns)
        return rows, columns


class Symmetrized(_WithColumns):
    """The mean of both orders of every pair; a map fits it best where it fits both orders best."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        mean_of_orders(*self.read_both(lo, hi, out))


TRIANGLES = ("upper", "lower", "auto")
"""What `build` takes for its argument ``triangle``."""


@dataclass(frozen=True, eq=False)
class OneTriangle(_WithColumns):
    """The entries of one triangle on both sides of the diagonal."""

    side: str
    """``"upper"`` or ``"lower"``."""

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"{self.side} {super().content_id}"

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        rows, columns = self.read_both(lo, hi, out)
        for i, row, column in zip(range(lo, hi), rows, columns, strict=True):
            empty = slice(0, i) if self.side == "upper" else slice(i + 1, None)
            row[empty] = column[empty]


class ZeroDiagonal(WrappedSource):
    """Rows with the diagonal set to zero."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.source.read(lo, hi, out)
        out[np.arange(hi - lo), np.arange(lo, hi)] = 0


@dataclass(frozen=True, eq=False)
class Subset(WrappedSource):
    """The matrix of some of the points."""

    rows: Ints
    """Rows of these points, ascending."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of these points, twice."""
        return self.rows.size, self.rows.size

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"{super().content_id} {digest_of_arrays(self.rows)}"

    @property
    def ids(self) -> list[str]:
        """Names of these points; their rows in the whole matrix where it has no names."""
        names, rows = self.source.ids, self.rows.tolist()
        return [str(k) for k in rows] if names is None else [names[k] for k in rows]

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: whole rows of the wrapped source, beside those that are delivered."""
        profile = self.source.read_profile
        whole = self.layout.rows * self.source.shape[1] * self.dtype.itemsize
        return replace(profile, scratch_bytes=profile.scratch_bytes + 2 * whole)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        step = self.layout.rows
        for first in range(lo, hi, step):
            last = min(first + step, hi)
            out[first - lo : last - lo] = self.source.take(self.rows[first:last])[:, self.rows]

    def prefetch(self, lo: int, hi: int) -> None:
        """Announce a read to the wrapped source, where its rows lie side by side."""
        first, last = int(self.rows[lo]), int(self.rows[hi - 1]) + 1
        if last - first == hi - lo:
            self.source.prefetch(first, last)


@dataclass(frozen=True, eq=False)
class WithoutZeroWeights(WrappedSource):
    """A matrix in which pairs of weight zero are missing."""

    weights: RowSource

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"{super().content_id} {self.weights.content_id}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: of both, and the weights of a block."""
        own, other = self.source.read_profile, self.weights.read_profile
        block = self.layout.rows * self.n * self.weights.dtype.itemsize
        return replace(own, scratch_bytes=max(own.scratch_bytes, other.scratch_bytes + other.read_copies * block))

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.source.read(lo, hi, out)
        step = self.layout.rows
        for first in range(lo, hi, step):
            last = min(first + step, hi)
            weights: Rows = np.empty((last - first, self.n), self.weights.dtype)
            self.weights.read(first, last, weights)
            weights[np.arange(last - first), np.arange(first, last)] = 1  # a diagonal is judged by what is on it
            out[first - lo : last - lo][weights == 0] = np.nan

    def prefetch(self, lo: int, hi: int) -> None:
        """Announce a read to both."""
        self.source.prefetch(lo, hi)
        self.weights.prefetch(lo, hi)

    def verified(self) -> WithoutZeroWeights:
        """Return the same rows, made of verified sources."""
        return replace(self, source=self.source.verified(), weights=self.weights.verified())

    def is_stale(self) -> bool:
        """Whether one of the two has changed since it was opened."""
        return self.source.is_stale() or self.weights.is_stale()


class FiniteEntries(WrappedSource):
    """A matrix in which infinite entries are missing."""

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.source.read(lo, hi, out)
        rows = out[: hi - lo]
        rows[np.isposinf(rows)] = np.nan
