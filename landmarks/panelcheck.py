"""The check of a panel: what one streamed pass over it tells, and the part of it between the landmarks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import google_crc32c
import numpy as np

from landmarks.tables import Panel, picked
from psmds_dist.check import SYMMETRY_TOL, entries, row_name
from psmds_dist.partition import Layout
from psmds_dist.scan import Fault, find_fault, total_fault
from psmds_dist.types import Floats, InputError, Ints, Rows

Ids = Sequence[str] | None

LARGEST = 1e150
"""Largest dissimilarity: sums of squares of larger ones overflow."""


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


def conclude(panel: Panel, found: Iterable[PanelBlock], ids: Ids, symmetry_tol: float) -> PanelCheck:
    """Judge a finished pass; of ``panel`` only the rows of its landmarks are read again."""
    blocks = sorted(found, key=lambda scan: scan.block)
    refuse_faults(blocks, ids)
    known: dict[int, int] = {}
    for scan in blocks:
        for count, rows in scan.known.items():
            known[count] = known.get(count, 0) + rows
    asymmetry = None
    if panel.landmarks is not None:
        between = picked(panel, panel.landmarks).astype(np.float64)
        asymmetry = check_between(between, panel.landmarks, ids, symmetry_tol)
    return PanelCheck(
        n=panel.n,
        width=panel.width,
        dtype=panel.dtype.name,
        highest=max(scan.highest for scan in blocks),
        known=tuple(sorted(known.items())),
        poorest=min(scan.poorest for scan in blocks)[1],
        landmarks=landmarks_digest(panel.landmarks),
        asymmetry=asymmetry,
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


def refuse_faults(blocks: Sequence[PanelBlock], ids: Ids) -> None:
    """Refuse infinite and negative entries."""
    infinite = total_fault([scan.infinite for scan in blocks])
    if infinite is not None:
        raise InputError(
            f"the panel has {entries(infinite.count, 'infinite')}, {_where(infinite, ids)}; write NaN for a "
            "dissimilarity that is missing."
        )
    negative = total_fault([scan.negative for scan in blocks])
    if negative is not None:
        raise InputError(
            f"the panel has {entries(negative.count, 'negative')}, {_where(negative, ids)} "
            f"({negative.value:g}), but dissimilarities are zero or more; write NaN for one that is missing."
        )
    highest = max(scan.highest for scan in blocks)
    if highest > LARGEST:
        raise InputError(
            f"the panel's largest dissimilarity is {highest:g}, and its square overflows; divide the panel by a "
            "constant first."
        )


def _where(fault: Fault, ids: Ids) -> str:
    return f"the first in row {row_name(fault.row, ids)}, column {fault.column}"


def check_between(between: Floats, landmarks: Ints, ids: Ids = None, symmetry_tol: float = SYMMETRY_TOL) -> float:
    """Refuse dissimilarities between landmarks that are not zero on the diagonal, or not symmetric.

    Parameters
    ----------
    between : (S, S) float64
        Rows of the panel at the landmarks; NaN where missing.
    landmarks : (S,) int64
        Their rows.
    ids : sequence of str, optional
        Names of the points, for messages.
    symmetry_tol : float
        Largest difference to let pass, as a share of the root mean square between landmarks.

    Returns
    -------
    float
        The worst difference between both orders of a pair, as such a share.
    """
    scale = _root_mean_square(between)
    own = np.nan_to_num(between.diagonal())
    worst = int(own.argmax())
    if own[worst] > symmetry_tol * scale:
        raise InputError(
            f"the panel has {own[worst]:g} instead of 0 from landmark {row_name(int(landmarks[worst]), ids)} "
            f"to itself, in column {worst}; the matrix is not one of dissimilarities, "
            "or landmarks does not list the rows of its columns in order."
        )
    gap = np.nan_to_num(np.abs(between - between.T))
    r, s = divmod(int(gap.argmax()), len(gap))
    if gap[r, s] > symmetry_tol * scale:
        first, second = (row_name(int(landmarks[k]), ids) for k in (r, s))
        raise InputError(
            f"the panel is not symmetric between landmarks: the worst pair is {first} and {second}, with "
            f"{between[r, s]:.9g} in row {landmarks[r]} and {between[s, r]:.9g} in row {landmarks[s]}, which "
            f"differ by {gap[r, s] / scale:.2g} of the root mean square ({scale:.6g}) where {symmetry_tol:g} "
            "is tolerated; the matrix is not one of dissimilarities, "
            "or landmarks does not list the rows of its columns in order."
        )
    return float(gap[r, s] / scale) if scale else 0.0


def _root_mean_square(between: Floats) -> float:
    others = between[~np.eye(len(between), dtype=bool)]
    known = others[~np.isnan(others)]
    return float(np.sqrt(np.square(known).mean())) if known.size else 0.0
