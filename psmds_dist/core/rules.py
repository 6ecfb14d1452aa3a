"""The rule of a solve: what a pair of points costs, and which numbers a row holds about it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

from psmds_dist.core.errors import InputError
from psmds_dist.core.losses import LOSSES, Loss
from psmds_dist.core.transformations import TIES, TRANSFORMS


@dataclass(frozen=True)
class PairRule:
    """What a pair costs: ``w loss(t, d)`` of its dissimilarity ``t``, distance ``d`` in the map, and weight ``w``.

    The default is the squared error of every pair, which kernels of its own compute.

    Parameters
    ----------
    loss : str
        Name of a loss, see `psmds_dist.core.losses.LOSSES`.
    unit : float or None
        Threshold or floor of the loss, as a share of the root mean square dissimilarity; None means that of the loss.
    power : float
        Exponent of the dissimilarity, as a multiple of its root mean square, in a factor of the weight: -1 is Sammon's
        mapping, -2 the relative error.
    weighted : bool
        Whether rows hold a weight for each pair, at least 0; a pair of weight 0 counts as missing.
    bounded : bool
        Whether rows hold a lower and an upper bound of each dissimilarity instead of its value. A distance between them
        costs nothing, one outside as much as if the nearer bound were the dissimilarity.
    gaps : bool
        Whether dissimilarities may be missing (NaN).
    transformation : {"ratio", "interval", "spline", "ordinal"} or None
        What dissimilarities are known up to: a factor, a factor and a constant, a smooth monotone function, or any.
    ties : {"primary", "secondary"}
        Whether equal dissimilarities may have different disparities, where ``transformation`` is ``"ordinal"``.
    local : float
        Share of the objective that the pairs of near points have, at least 0 and below 1; the whole has the rest, see
        `psmds_dist.core.nearness.Nearness`.
    local_neighbors : int
        How many points are near to each.
    """

    loss: str = "squared"
    unit: float | None = None
    power: float = 0.0
    weighted: bool = False
    bounded: bool = False
    gaps: bool = False
    transformation: str | None = None
    ties: str = "primary"
    local: float = 0.0
    local_neighbors: int = 10

    @classmethod
    def of(cls, loss: str, weight_power: float, *, weights: Any = None, upper: Any = None, **others: Any) -> Self:
        """Rule by the arguments of public functions: with weights and bounds where these are given."""
        return cls(loss, power=weight_power, weighted=weights is not None, bounded=upper is not None, **others)

    def __post_init__(self) -> None:
        if not isinstance(self.loss, str) or self.loss not in LOSSES:
            raise InputError(f"loss must be one of {', '.join(map(repr, LOSSES))}, not {self.loss!r}.")
        if self.unit is not None and not (_is_number(self.unit) and self.unit > 0):
            raise InputError(f"the threshold of a loss must be a positive number, not {self.unit!r}.")
        if not _is_number(self.power) or abs(self.power) > MAX_POWER:
            raise InputError(f"weight_power must be a number between -{MAX_POWER} and {MAX_POWER}, not {self.power!r}.")
        if self.power and self.bounded:
            raise InputError(
                "weight_power is for dissimilarities that are known: with bounds, give the weights themselves."
            )
        self._check_local()
        self._check_transform()

    def _check_local(self) -> None:
        if not _is_number(self.local) or not 0 <= self.local < 1:
            raise InputError(
                f"local must be a number of at least 0 and below 1, not {self.local!r}: with 1, nothing would tell how "
                "far groups are apart."
            )
        if isinstance(self.local_neighbors, bool) or not isinstance(self.local_neighbors, int):
            raise InputError(f"local_neighbors must be a whole number, not {self.local_neighbors!r}.")
        if self.local_neighbors < 1:
            raise InputError(f"local_neighbors must be at least 1, not {self.local_neighbors}.")
        if self.local and self.bounded:
            raise InputError("local is for dissimilarities that are known: leave it, or upper, out.")

    def _check_transform(self) -> None:
        for name, value, choices in (
            ("transformation", self.transformation, (None, *TRANSFORMS)),
            ("ties", self.ties, TIES),
        ):
            if value not in choices:
                raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
        if self.ties != "primary" and self.transformation != "ordinal":
            raise InputError(
                f"ties={self.ties!r} (--ties) is about transformation='ordinal': give that (--transformation ordinal), "
                "or leave ties out."
            )
        if self.transformation is not None and (self.loss != "squared" or self._weighs or self.bounded):
            raise InputError(
                f"transformation={self.transformation!r} is for the squared error of pairs that count alike: leave out "
                "loss, weight_power, weights, local and upper. Missing pairs (NaN) may be."
            )

    @property
    def _weighs(self) -> bool:
        """Whether some pairs count more than others."""
        return bool(self.power or self.weighted or self.local)

    @property
    def plain(self) -> bool:
        """Whether every pair counts by its squared error."""
        return self.loss == "squared" and self.alike and not self.transformation

    @property
    def alike(self) -> bool:
        """Whether every pair counts, and as much as any other."""
        return not (self._weighs or self.bounded or self.gaps)

    @property
    def parts(self) -> int:
        """Numbers that rows hold about each pair."""
        return 1 + self.bounded + self.weighted

    @property
    def least_squares(self) -> bool:
        """Whether the objective is a weighted sum of squared errors."""
        return self.loss == "squared"

    @property
    def facts(self) -> Loss:
        """The loss."""
        return LOSSES[self.loss]

    @property
    def divides(self) -> bool:
        """Whether dissimilarities have to be positive."""
        return self.facts.divides or self.power < 0

    @property
    def share(self) -> float:
        """Threshold or floor of the loss, as a share of the root mean square dissimilarity."""
        return self.facts.share if self.unit is None else float(self.unit)

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for attributes."""
        return asdict(self)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


MAX_POWER = 4
"""Largest exponent of a power law, either way."""

FLOOR = 1e-6
"""Smaller dissimilarities, as a share of their root mean square, weigh as much as this one by a power law."""

PLAIN = PairRule()
"""The squared error of every pair."""
