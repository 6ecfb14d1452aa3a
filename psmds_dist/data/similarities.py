"""Similarities as dissimilarities, by a rule that the user names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill
from psmds_dist.core.errors import InputError
from psmds_dist.core.sources import ReadProfile, WrappedSource
from psmds_dist.core.types import Floats, Rows

ROUNDING = 1e-5
"""Similarities that are beyond the largest possible one by no more are taken for it, and so is the self-similarity of a
point that is this close to it."""


@dataclass(frozen=True)
class Rule:
    """How similarities ``s`` become dissimilarities.

    Attributes
    ----------
    convert : callable
        The formula: ``convert(s, top)``.
    lowest, highest : float
        Similarities that it is meant for.
    uses_top : bool
        Whether the largest of all similarities is in the formula.
    hollow : bool
        Whether the diagonal becomes zero by definition, rather than by the formula.
    """

    convert: Callable[[Floats, float], Floats]
    lowest: float = -np.inf
    highest: float = 1.0
    uses_top: bool = False
    hollow: bool = False

    @property
    def range(self) -> str:
        """Values that it is meant for, in words."""
        above = f"of {self.lowest:g} or more" if self.lowest > -np.inf else ""
        below = f"up to {self.highest:g}" if self.highest < np.inf else ""
        return " ".join(filter(None, (above, below)))


RULES = {
    "1-s": Rule(lambda s, top: 1 - s),
    "sqrt(1-s)": Rule(lambda s, top: np.sqrt(1 - s)),
    "sqrt(2(1-s))": Rule(lambda s, top: np.sqrt(2 * (1 - s))),
    "-log s": Rule(lambda s, top: -np.log(s), lowest=0.0),
    "max-s": Rule(lambda s, top: top - s, highest=np.inf, uses_top=True),
    "1/s": Rule(lambda s, top: 1 / s, lowest=0.0, highest=np.inf, hollow=True),
}
"""By the names that ``similarity`` and ``--similarity`` take. No rule is ever guessed."""


@dataclass(frozen=True, eq=False)
class FromSimilarities(WrappedSource):
    """Dissimilarities that are computed from the similarities of a source, in float64.

    Attributes
    ----------
    rule : str
        One of `RULES`.
    top : float
        Largest similarity, where the rule needs it.
    result : dtype
        Type of the rows.
    """

    rule: str
    top: float
    result: np.dtype[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows."""
        return self.result

    @property
    def content_id(self) -> str:
        """Identity of the content, which names the rule."""
        return f"{self.result.name} {self.rule} of {self.source.content_id}"

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: similarities, and in float64 each step of a formula."""
        profile = self.source.read_profile
        return replace(profile, read_copies=profile.read_copies + 1 + 24 // self.result.itemsize)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        rule = RULES[self.rule]
        rows: Rows = np.empty((hi - lo, self.shape[1]), self.source.dtype)
        self.source.read(lo, hi, rows)
        similarities = rows.astype(np.float64)
        self._check(similarities, lo)
        own = np.arange(hi - lo), np.arange(lo, hi)
        with np.errstate(invalid="ignore"):
            similarities[own] = np.where(
                abs(similarities[own] - rule.highest) <= ROUNDING, rule.highest, similarities[own]
            )
        with np.errstate(divide="ignore"):  # no similarity at all is infinitely far, for the check to tell
            converted = rule.convert(np.clip(similarities, rule.lowest, rule.highest), self.top)
        if rule.hollow:
            converted[own] = 0
        fill(out[: hi - lo], converted)

    def _check(self, values: NDArray[np.float64], lo: int) -> None:
        """Refuse similarities that the rule is not meant for."""
        rule = RULES[self.rule]
        wrong = (values < rule.lowest - ROUNDING) | (values > rule.highest + ROUNDING)
        if not wrong.any():
            return
        i, j = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise InputError(
            f"similarity {self.rule!r} (--similarity) is for values {rule.range}, but row {lo + i} has "
            f"{values[i, j]:g} in column {j}; use 'max-s', or scale the matrix first (percentages are divided by 100)."
        )
