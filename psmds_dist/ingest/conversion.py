"""What has to be known of all entries before they are converted: the largest, for similarities and for units."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psmds_dist.core.errors import InputError
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, InputCheck, Rows
from psmds_dist.data.encoding import HalfSize, Halves, Units
from psmds_dist.data.similarities import RULES, FromSimilarities
from psmds_dist.ingest.check import MatrixChecker
from psmds_dist.ingest.scan import Scan, ScanBlocks, scan_all


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


def largest_of(source: RowSource, executor: Executor, room: int) -> float:
    """Return the largest finite entry, after a pass."""
    return max(scan_all(source, ScanBlocks(source.verified(), LargestFinder, room), executor, room))


def encoding_for(dtype: str, source: RowSource, executor: Executor, room: int) -> HalfSize:
    """Return how to write a source in two bytes a number; for ``uint16`` after a pass that finds the largest."""
    return Halves() if dtype == "float16" else Units.up_to(largest_of(source, executor, room))


@dataclass(frozen=True)
class RoundingChecker(MatrixChecker):
    """The check of a matrix that is written in two bytes a number: also whether it was rounded too far."""

    encoding: HalfSize = field(kw_only=True)

    def evaluate(self, collected: Scan, source: RowSource, executor: Executor, room: int) -> InputCheck:
        """Judge a finished pass."""
        found = super().evaluate(collected, source, executor, room)
        self.encoding.require_fine(math.sqrt(np.median(collected.complete_squares) / (source.n - 1)))
        return found


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
    top = largest_of(source, executor, room) if RULES[rule].uses_top else 1.0
    return FromSimilarities(source, rule, top, dtype)
