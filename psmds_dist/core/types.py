"""Types that every layer shares: errors, outcomes and results."""

from __future__ import annotations

import enum
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.errors import BudgetError as BudgetError
from psmds_dist.core.errors import ClusterLost as ClusterLost
from psmds_dist.core.errors import DissimilarityWarning as DissimilarityWarning
from psmds_dist.core.errors import InputError as InputError
from psmds_dist.core.errors import PsmdsError as PsmdsError
from psmds_dist.core.errors import StorageError as StorageError
from psmds_dist.core.errors import WorkerError as WorkerError
from psmds_dist.core.executor import Executor as Executor
from psmds_dist.core.executor import MemoryUsage as MemoryUsage

Rows = NDArray[Any]
"""Numbers of a matrix or panel, float32 or float64."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


EntryKind = Literal["dissimilarities", "similarities", "unclear"]
"""What the entries of a matrix behave like."""


@dataclass(frozen=True)
class Suspicion:
    """What is suspicious about dissimilarities that are used all the same.

    Attributes
    ----------
    rounded_negative, rounded_diagonal : int
        Entries that were taken for rounded zeros: negative ones, and ones on the diagonal.
    largest_rounded : float
        How far from zero the farthest of them is.
    rms : float
        Root mean square dissimilarity, for comparison.
    entries : {"dissimilarities", "similarities", "unclear"}
        What the entries behave like, see `psmds_dist.ingest.similarity`.
    missing, pairs : int
        Pairs of a matrix without a known dissimilarity, and pairs in all.
    outlier, typical : float
        An entry that is more than a million times a typical one, and that; zero without one.
    outlier_at : str
        Where it is.
    """

    rounded_negative: int = 0
    rounded_diagonal: int = 0
    largest_rounded: float = 0.0
    rms: float = 0.0
    entries: EntryKind = "dissimilarities"
    missing: int = 0
    pairs: int = 0
    outlier: float = 0.0
    typical: float = 0.0
    outlier_at: str = ""

    def warn(self, what: str = "the matrix") -> None:
        """Warn of all of it; ``what`` was looked at.

        Warns
        -----
        DissimilarityWarning
            A sentence each.
        """
        if self.rounded_negative or self.rounded_diagonal:
            share = self.largest_rounded / self.rms if self.rms else 0.0
            warn_user(
                f"{self.rounded_negative} negative entries and {self.rounded_diagonal} diagonal entries of {what} "
                f"were taken for rounded zeros; the largest is {self.largest_rounded:.3g} from zero, "
                f"{share:.2g} of the root mean square"
            )
        if self.outlier:
            warn_user(
                f"{what} has an entry of {self.outlier:.3g} in {self.outlier_at}, where a typical one is "
                f"{self.typical:.3g}: such entries usually are a code for missing pairs, so make them NaN; otherwise "
                "they alone make the map, and all other points are drawn at one place"
            )
        if self.missing:
            share, verb = self.missing / self.pairs, "is" if self.missing == 1 else "are"
            warn_user(
                f"{self.missing:,} of the {self.pairs:,} pairs of {what} {verb} missing ({share:.2%}); maps and their "
                "stress are of the others"
            )
        if self.entries == "unclear":
            warn_user(
                f"the entries of {what} show no structure beyond chance, so nothing tells whether they are "
                "dissimilarities (0 means identical) or similarities (large means alike); turn similarities s into "
                "dissimilarities first, for example by max(s) - s (psmds ingest --similarity 'max-s' "
                "--zero-diagonal); a map of dissimilarities without structure shows little but noise"
            )
        if self.entries == "similarities":
            warn_user(
                f"{what} has a zero diagonal, but its other entries behave like similarities: large ones stand "
                "where small ones are expected; if they are similarities s, turn them into dissimilarities first, for "
                "example by max(s) - s with a diagonal of zeros (psmds ingest --similarity 'max-s' --zero-diagonal)"
            )


def warn_user(note: str) -> None:
    """Warn of something suspicious about the input, at the line of the user's code that led here."""
    depth, ours, frame = 0, 0, sys._getframe().f_back
    while frame is not None:
        depth += 1
        if frame.f_globals["__name__"].split(".")[0] in ("psmds_dist", "landmarks"):
            ours = depth
        frame = frame.f_back
    warnings.warn(note, DissimilarityWarning, stacklevel=ours + 2)


@dataclass(frozen=True)
class InputCheck:
    """What the streamed pass over a matrix found, once it is known to be usable.

    Attributes
    ----------
    n : int
        Number of points.
    dtype : str
        Type of the rows that were looked at.
    highest : float
        Largest dissimilarity.
    rms : float
        Root mean square of the known off-diagonal dissimilarities: the scale of the data.
    symmetry_tol : float
        Largest ``|t_ij - t_ji|`` that was let pass, as a share of `rms`.
    asymmetry : float or None
        Worst ``|t_ij - t_ji| / rms`` among the rows that had to be compared entry by entry; None when the
        sketch raised no suspicion.
    digest : str
        Identity of the content: equal rows of equal type give equal digests.
    suspicion : Suspicion
        What a user should know before trusting a map.
    poorest : tuple of (int, int)
        Points that know the fewest others (first) and how many (second), ascending, of those with missing pairs.
    """

    n: int
    dtype: str
    highest: float
    rms: float
    symmetry_tol: float
    asymmetry: float | None
    digest: str
    suspicion: Suspicion
    poorest: tuple[tuple[int, int], ...] = ()

    @property
    def missing(self) -> int:
        """Number of missing pairs."""
        return self.suspicion.missing

    @property
    def known_pairs(self) -> int:
        """Number of pairs that count."""
        return self.n * (self.n - 1) // 2 - self.missing

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for attributes."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InputCheck:
        """Inverse of `as_dict`, from JSON as well."""
        poorest = tuple((row, known) for row, known in values.get("poorest", ()))
        return cls(**{**values, "suspicion": Suspicion(**values["suspicion"]), "poorest": poorest})


class StopReason(enum.StrEnum):
    """Why a solve ended: a string, as results hold it, with all that is said and done because of it.

    Attributes
    ----------
    description : str
        The outcome, as it follows the number of epochs.
    resumable : bool
        Whether the run can continue from its checkpoint.
    advice : str
        What Python users are warned of; empty where the map is what was asked for.
    """

    description: str
    resumable: bool
    advice: str

    def __new__(cls, value: str, description: str = "", resumable: bool = False, advice: str = "") -> StopReason:
        """Make a member of its value and attributes."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.description, member.resumable, member.advice = description, resumable, advice
        return member

    RADIUS = "radius_tol", "converged"
    PERFECT = "zero_stress", "fits exactly"
    PLACED = "placed", "placed against the landmarks"
    CALLBACK = "callback", "ended by a callback"
    EPOCHS = (
        "max_epochs",
        "not converged when --max-epochs ran out",
        False,
        "the solve ended at max_epochs before it converged, so that a better map is near: raise max_epochs, or "
        "radius_tol or eps to converge earlier",
    )
    INTERRUPTED = "interrupted", "interrupted, this is the best map so far", True
    LOST = (
        "cluster_lost",
        "cut short, this is the best map so far",
        True,
        "the cluster was lost in the middle of the run, so that the map is the best one until then, its stress unknown",
    )
    FATAL = (
        "workers_died",
        "cut short, this is the best map so far",
        True,
        "one worker after the other died over the same blocks, most often for want of memory: the map is the best one "
        "until then; lower memory_limit, or start fewer workers on a machine",
    )

    @property
    def ends_all_starts(self) -> bool:
        """Whether no further start of the same run is tried."""
        return self.resumable or self is StopReason.CALLBACK
