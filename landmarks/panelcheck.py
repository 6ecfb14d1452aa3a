"""The check of a panel: what one streamed pass over it tells, and the part of it between the landmarks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from landmarks.tables import Panel, picked
from psmds_dist.check import SYMMETRY_TOL, entries, row_name, total_fault
from psmds_dist.partition import Layout
from psmds_dist.scan import Fault, find_fault
from psmds_dist.types import Floats, InputError, Ints, Rows

Ids = Sequence[str] | None

LARGEST = 1e150
"""Largest dissimilarity: sums of squares of larger ones overflow."""

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""What stands for infinity where files hold no such thing, also in float64."""

HUGE, OUTLYING = 1e18, 1e12
"""A dissimilarity above the first, and so many times a small one between landmarks, leaves no digit of the others."""

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
        return cls(**{**values, "known": tuple((count, rows) for count, rows in values["known"])})


@dataclass(frozen=True)
class PanelBlock:
    """What is known of one block of a panel."""

    block: int
    highest: float
    checksum: int
    known: dict[int, int]
    """Rows by the number of landmarks they know."""

    poorest: tuple[int, int]
    """Fewest landmarks known to a row, and the first such row."""

    infinite: Fault | None = None
    negative: Fault | None = None


class PanelScanner:
    """Collects the findings about the blocks of one group."""

    def __init__(self, n: int, width: int) -> None:
        self._layout = Layout(n, width)
        self._blocks: list[PanelBlock] = []

    def add(self, block: int, rows: Rows) -> None:
        """Look at the rows of ``block``."""
        lo, hi = self._layout.bounds(block)
        low, high = float(rows.min()), float(rows.max())
        known = np.full(hi - lo, rows.shape[1])
        if np.isnan(low):
            known -= np.isnan(rows).sum(axis=1)
            low, high = (float(bound.reduce(rows, axis=None)) for bound in (np.fmin, np.fmax))
        counts, numbers = np.unique(known, return_counts=True)
        faults = {}
        if low < 0 or high == np.inf:
            faults["infinite"] = find_fault(np.isinf(rows), rows, lo)
            faults["negative"] = find_fault(rows < 0, rows, lo)
        self._blocks.append(
            PanelBlock(
                block,
                0.0 if np.isnan(high) else high,
                google_crc32c.value(np.ascontiguousarray(rows)),
                dict(zip(counts.tolist(), numbers.tolist(), strict=True)),
                (int(counts[0]), lo + int(known.argmin())),
                **faults,
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
    on_diagonal = (
        "the matrix is not one of dissimilarities, or landmarks does not list the rows of its columns in order"
    )
    on_symmetry = on_diagonal

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
    on_diagonal = "set its diagonal to zero (numpy.fill_diagonal, or psmds ingest --zero-diagonal)"
    on_symmetry = "take the mean of both orders of each pair first (psmds ingest --symmetrize)"

    def place(self, row: int, column: int) -> str:
        """Name an entry by its row and column in the matrix."""
        assert self.landmarks is not None
        return f"row {self.row(int(self.landmarks[column]))}, column {self.row(row)}"


def conclude(panel: Panel, found: Iterable[PanelBlock], names: PanelEntries, symmetry_tol: float) -> PanelCheck:
    """Judge a finished pass; of ``panel`` only the rows of its landmarks are read again."""
    blocks = sorted(found, key=lambda scan: scan.block)
    refuse_faults(blocks, panel.dtype, names)
    known: dict[int, int] = {}
    for scan in blocks:
        for count, rows in scan.known.items():
            known[count] = known.get(count, 0) + rows
    highest = max(scan.highest for scan in blocks)
    between = None if panel.landmarks is None else picked(panel, panel.landmarks).astype(np.float64)
    refuse_huge(highest, panel.dtype, between, names)
    return PanelCheck(
        n=panel.n,
        width=panel.width,
        dtype=panel.dtype.name,
        highest=highest,
        known=tuple(sorted(known.items())),
        poorest=min(scan.poorest for scan in blocks)[1],
        landmarks=landmarks_digest(panel.landmarks),
        asymmetry=None if between is None else check_between(between, names, symmetry_tol),
        digest=_digest(panel, blocks),
    )


def landmarks_digest(landmarks: Ints | None) -> str | None:
    """Identity of a list of landmarks."""
    if landmarks is None:
        return None
    return hashlib.blake2b(landmarks.astype("<i8").tobytes(), digest_size=16).hexdigest()


def _digest(panel: Panel, blocks: Sequence[PanelBlock]) -> str:
    checksums = np.array([scan.checksum for scan in blocks], "<u4")
    head = f"{panel.n} {panel.width} {panel.dtype.name} ".encode()
    return hashlib.blake2b(head + checksums.tobytes(), digest_size=16).hexdigest()


def refuse_faults(blocks: Sequence[PanelBlock], dtype: np.dtype[Any], names: PanelEntries) -> None:
    """Refuse infinite and negative entries."""
    infinite = total_fault([scan.infinite for scan in blocks])
    if infinite is not None:
        raise InputError(
            f"{names.what} has {entries(infinite.count, 'infinite')} as {dtype.name}, the first in "
            f"{names.place(infinite.row, infinite.column)}; write NaN for a dissimilarity that is missing."
        )
    negative = total_fault([scan.negative for scan in blocks])
    if negative is not None:
        raise InputError(
            f"{names.what} has {entries(negative.count, 'negative')}, the first in "
            f"{names.place(negative.row, negative.column)} ({negative.value:g}), but dissimilarities are zero or "
            "more; write NaN for one that is missing."
        )


def is_too_large(values: Rows | float, dtype: np.dtype[Any], other: float) -> NDArray[np.bool_]:
    """Whether dissimilarities cannot be computed with beside some other one.

    Their squares or sums would overflow, they are the largest float32, or the other is lost beside them.
    """
    largest = min(LARGEST, float(np.finfo(dtype).max) / 4, max(HUGE, OUTLYING * other))
    return np.asarray((values > largest) | (values == FLOAT32_MAX))


def refuse_huge(highest: float, dtype: np.dtype[Any], between: Rows | None, names: PanelEntries) -> None:
    """Refuse values that overflow, which seldom are dissimilarities."""
    known = between[between > 0] if between is not None and highest > HUGE else np.empty(0)
    if is_too_large(highest, dtype, float(np.quantile(known, SMALL)) if known.size else math.inf):
        raise InputError(
            f"the largest dissimilarity of {names.what} is {highest:g}, too large to compute with as {dtype.name}: "
            "such values usually stand for 'no connection' or for a missing pair, so write NaN for these, or divide "
            f"{names.what} by a constant if they are dissimilarities."
        )


def check_between(between: Floats, names: PanelEntries, symmetry_tol: float = SYMMETRY_TOL) -> float:
    """Refuse dissimilarities between landmarks that are not zero on the diagonal, or not symmetric.

    Parameters
    ----------
    between : (S, S) float64
        Rows of the panel at the landmarks; NaN where missing.
    names : PanelEntries
        The landmarks, and how messages name entries of the panel.
    symmetry_tol : float
        Largest difference to let pass, as a share of the root mean square between landmarks.

    Returns
    -------
    float
        The worst difference between both orders of a pair, as such a share.
    """
    assert names.landmarks is not None
    rows = names.landmarks.tolist()
    scale = _root_mean_square(between)
    own = np.nan_to_num(between.diagonal())
    worst = int(own.argmax())
    if own[worst] > symmetry_tol * scale:
        raise InputError(
            f"{names.what} has {own[worst]:g} instead of 0 from landmark {names.row(rows[worst])} to itself, in "
            f"{names.place(rows[worst], worst)}; {names.on_diagonal}."
        )
    gap = np.nan_to_num(np.abs(between - between.T))
    r, s = divmod(int(gap.argmax()), len(gap))
    if gap[r, s] > symmetry_tol * scale:
        raise InputError(
            f"{names.what} is not symmetric between landmarks: the worst pair is {names.row(rows[r])} and "
            f"{names.row(rows[s])}, with {between[r, s]:.9g} in {names.place(rows[r], s)} and {between[s, r]:.9g} in "
            f"{names.place(rows[s], r)}, which differ by {gap[r, s] / scale:.2g} of the root mean square "
            f"({scale:.6g}) where {symmetry_tol:g} is tolerated; {names.on_symmetry}."
        )
    return float(gap[r, s] / scale) if scale else 0.0


def _root_mean_square(between: Floats) -> float:
    others = between[~np.eye(len(between), dtype=bool)]
    known = others[~np.isnan(others)]
    return float(np.sqrt(np.square(known).mean())) if known.size else 0.0
