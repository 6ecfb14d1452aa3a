"""Similarities as dissimilarities: the rule is checked, and the largest similarity found if it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from psmds_dist.core.errors import InputError
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, Rows
from psmds_dist.data.similarities import RULES, FromSimilarities
from psmds_dist.ingest.scan import ScanBlocks, scan_all


class LargestFinder:
    """Finds the largest finite entry in some blocks."""

    def __init__(self) -> None:
        self._largest = -np.inf

    def add(self, block: int, rows: Rows) -> None:
        """Look at the rows of ``block``."""
        self._largest = max(self._largest, float(rows.max(where=np.isfinite(rows), initial=-np.inf)))

    def result(self) -> float:
        """Return what was found."""
        return self._largest


def from_similarities(
    source: RowSource, rule: str, executor: Executor, room: int, dtype: np.dtype[Any]
) -> FromSimilarities:
    """Return a source of dissimilarities; where the rule needs the largest similarity, after a pass that finds it.

    Raises
    ------
    InputError
        For a rule that is not known.
    """
    if rule not in RULES:
        raise InputError(f"similarity must be one of {', '.join(map(repr, RULES))}, not {rule!r}.")
    top = 1.0
    if RULES[rule].uses_top:
        top = max(scan_all(source, ScanBlocks(source.verified(), LargestFinder, room), executor, room))
    return FromSimilarities(source, rule, top, dtype)
