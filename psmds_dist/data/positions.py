"""Positions of dissimilarities among knots, which is all that a transformation needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from psmds_dist.core.arrays import digest_of_arrays
from psmds_dist.core.sources import ReadProfile, WrappedSource
from psmds_dist.core.types import Floats, Rows

if TYPE_CHECKING:
    from psmds_dist.kernels.bins import Guide


@dataclass(frozen=True, eq=False)
class Positions(WrappedSource):
    """Rows of positions among knots: the number of the last knot below, and the fraction of the way to the next."""

    knots: Floats
    stepwise: bool
    """Whether the number is enough, in two bytes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return np.dtype(np.uint16) if self.stepwise else self.source.dtype

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"{super().content_id} {digest_of_arrays(self.knots)} {self.stepwise:d}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: dissimilarities beside the numbers of knots that they become."""
        profile = self.source.read_profile
        if not self.stepwise:
            return profile
        sizes = self.source.dtype.itemsize // self.dtype.itemsize
        return replace(profile, read_copies=1 + sizes * profile.read_copies, stored_share=sizes * profile.stored_share)

    @cached_property
    def _guide(self) -> Guide:
        from psmds_dist.kernels.bins import Guide  # late: few runs need it

        return Guide.of(self.knots.astype(self.source.dtype))

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        from psmds_dist.kernels.bins import locate, number

        rows = np.empty((hi - lo, self.n), self.source.dtype) if self.stepwise else out[: hi - lo]
        self.source.read(lo, hi, rows)
        if self.stepwise:
            number(rows, self._guide, out)
        else:
            locate(rows, self._guide)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields only."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Disparities(WrappedSource):
    """A value for each number in the rows of a source, and zeros on the diagonal."""

    values: Floats

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows: that of the values."""
        return self.values.dtype

    @property
    def content_id(self) -> str:
        """Identity of the content."""
        return f"{super().content_id} {digest_of_arrays(self.values)}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: numbers beside the values that they stand for."""
        profile, sizes = self.source.read_profile, self.dtype.itemsize // self.source.dtype.itemsize
        copies = 1 + -(-profile.read_copies // sizes)
        return replace(profile, read_copies=copies, stored_share=profile.stored_share / sizes)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        numbers = np.empty((hi - lo, self.n), self.source.dtype)
        self.source.read(lo, hi, numbers)
        known = np.append(self.values, self.dtype.type(np.nan))
        np.take(known, numbers, mode="clip", out=out[: hi - lo])
        out[np.arange(hi - lo), np.arange(lo, hi)] = 0
