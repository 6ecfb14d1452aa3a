"""What a solve is asked to do, checked once."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass
from typing import Any

from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.types import InputError


def check_int(name: str, value: Any, minimum: int, others: str = "") -> int:
    """Return a whole number of at least ``minimum``, or refuse."""
    if not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= minimum:
        return int(value)
    raise InputError(f"{name} must be {others}a whole number of at least {minimum}, not {value!r}.")


def _real(name: str, value: Any, *, above: float, equal: bool) -> float:
    if not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value):
        number = float(value)
        if number > above or (equal and number == above):
            return number
    bound = f"at least {above:g}" if equal else f"greater than {above:g}"
    raise InputError(f"{name} must be a finite number {bound}, not {value!r}.")


@dataclass(frozen=True)
class SolverConfig:
    """Parameters of a solve; the defaults are those of `PatternSearchMDS`.

    Parameters
    ----------
    n_components : int
        Dimensions of the map, ``L``.
    bad_moves : bool
        Whether a point takes its best move even when it raises the error (faster), or stays (monotone).
    eps : float
        Share of the error that does not matter: the radius halves when an epoch lowers the error by at most that (see
        `psmds_dist.solver.schedule.Schedule.stall_threshold`).
    radius : float or None
        Starting radius in units of the dissimilarities, at most `MAX_COORDINATE` of their root mean squares; None
        searches for one.
    radius_tol : float or None
        The solve ends once the radius is at or below this, in units of the dissimilarities; None means
        `RADIUS_TOL` of their root mean square, or where moves of that length change the error by less than ``eps``
        (see `psmds_dist.solver.schedule.Schedule.end_radius`).
    max_epochs : int
        Most epochs to run; 0 returns the start.
    direction_share : float
        Share of the axes tried in an epoch, drawn for each; 1 tries all.
    moves : {"auto", "axes", "guided"}
        What a point tries: both ways along every axis, or two steps against the gradient of its error; ``"auto"``
        is guided from `GUIDED_FROM` dimensions on. The last radius of a monotone solve tries all axes in any case.
    n_init : int or "auto"
        Starts, of which the best is kept; ``"auto"`` takes as many as ``effort`` says.
    effort : {"quick", "default", "best"}
        How long to search for the best map where ``n_init`` is ``"auto"``.
    polish : bool or "auto"
        Whether the solve ends at a local minimum to many digits; ``"auto"`` does where that is cheap, see `polishes`.
    seed : int
        Key of every random number.
    rule : PairRule
        What a pair of points costs, and which numbers a row holds about it.
    sample : int or None
        Rows that the stress of the map is estimated from at the end, at least `MIN_SAMPLE`; all by default.
    """

    n_components: int = 2
    bad_moves: bool = True
    eps: float = 1e-4
    radius: float | None = None
    radius_tol: float | None = None
    max_epochs: int = 500
    direction_share: float = 1.0
    moves: str = "auto"
    n_init: int | str = "auto"
    effort: str = "default"
    polish: bool | str = "auto"
    seed: int = 0
    rule: PairRule = PLAIN
    sample: int | None = None

    def __post_init__(self) -> None:
        plain: dict[str, int | float] = {
            "n_components": check_int("n_components", self.n_components, 1),
            "max_epochs": check_int("max_epochs", self.max_epochs, 0),
            "seed": check_int("random_state", self.seed, 0),
            "eps": _real("eps", self.eps, above=0, equal=True),
            "direction_share": _real("direction_share", self.direction_share, above=0, equal=False),
        }
        if not isinstance(self.n_init, str) or self.n_init != "auto":
            plain["n_init"] = check_int("n_init", self.n_init, 1, "'auto' or ")
        if self.sample is not None:
            plain["sample"] = check_int("sample", self.sample, MIN_SAMPLE, "None or ")
            if self.rule.transformation is not None:
                raise InputError(
                    "sample (--sample) does not go with a transformation, which is fitted to all rows: leave one "
                    "of them out."
                )
        for name in ("radius", "radius_tol"):
            if getattr(self, name) is not None:
                plain[name] = _real(name, getattr(self, name), above=0, equal=False)
        for name, number in plain.items():
            object.__setattr__(self, name, number)  # a plain one: NumPy's small types would overflow
        if self.seed >= SEEDS:
            raise InputError(f"random_state must be below 2**128, not {self.seed}.")
        if self.direction_share > 1:
            raise InputError(f"direction_share is a share of the axes, at most 1, not {self.direction_share!r}.")
        if not isinstance(self.bad_moves, bool):
            raise InputError(f"bad_moves must be True or False, not {self.bad_moves!r}.")
        for name, choices in ("moves", MOVES), ("effort", EFFORTS), ("polish", ("auto", True, False)):
            value = getattr(self, name)
            if not isinstance(value, bool | str) or value not in choices:
                raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")

    @property
    def tried_axes(self) -> int:
        """Axes tried in an epoch."""
        return max(1, math.ceil(self.direction_share * self.n_components))

    @property
    def guided(self) -> bool:
        """Whether points follow their gradients."""
        return self.moves == "guided" or (self.moves == "auto" and self.n_components >= GUIDED_FROM)

    def polishes(self, n: int) -> bool:
        """Whether a solve of ``n`` points ends with a polish: by default for few points, unless its end was given.

        So do those that transform dissimilarities, however many. Losses without a continuous derivative have none.
        """
        if not self.rule.facts.smooth:
            return False
        if isinstance(self.polish, bool):
            return self.polish
        usual = self.bad_moves and self.radius_tol is None and self.effort != "quick"
        fitted = self.rule.transformation is not None
        return usual and (n <= POLISHED_POINTS or self.polishes_fully(n) or fitted)

    def settles_first(self, n: int) -> bool:
        """Whether a monotone solve of ``n`` points that have a region begins with a polish.

        No search has settled its start, and from afar single moves along axes take more epochs than there are.
        """
        return not self.bad_moves and self.rule.facts.smooth and self.polish is not False and n <= SMALL_POINTS

    def eases(self, n: int) -> bool:
        """Whether a solve of ``n`` points that has a start begins with a polish, as near pairs weigh more than in that.

        Their weights make the error stiff: moves along axes take hundreds of epochs where the polish takes 60 steps.
        Those of small matrices cost little, and end in maps that are a little better.
        """
        return self.rule.local > 0 and self.rule.facts.smooth and self.polish is not False and n > SMALL_POINTS

    def polishes_fully(self, n: int) -> bool:
        """Whether a polish goes on to many digits, rather than for a few steps."""
        return self.polish is True or n <= SMALL_POINTS or self.effort == "best"

    def polishes_shortly(self, n: int) -> bool:
        """Whether a solve of ``n`` points ends with a polish of some steps."""
        return self.polishes(n) and not self.polishes_fully(n)

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary, for attributes and logs; without what is as it usually is and came later."""
        usual = {"rule": self.rule.plain, "sample": self.sample is None}
        return {name: value for name, value in asdict(self).items() if not usual.get(name, False)}


MIN_SAMPLE = 20
"""Fewest rows of a sample: a spread over fewer says little."""

MOVES = ("auto", "axes", "guided")
"""What the points of a solve may try."""

EFFORTS = ("quick", "default", "best")
"""How long a search for the best map may take."""

SMALL_POINTS = 2000
"""Most points of a matrix that is searched and polished by default: 16 MB, most of which processor caches hold."""

POLISHED_POINTS = 5000
"""Most points of a matrix whose solve ends with a few steps of the polish by default: 100 MB, which are in memory as a
rule. The stress of 5,000 points in clusters in space falls from 0.16 to 0.06 % above the best that is known."""

GUIDED_FROM = 5
"""Fewest dimensions in which moves are guided by default."""

SEEDS = 2**128
"""Seeds that there are: keys of Philox."""

RADIUS_TOL = 2e-4
"""Default end radius, as a share of the root mean square dissimilarity; noisy data end earlier."""

SETTLING_RADIUS = 0.5
"""First radius, as a share of the root mean square residual, up to which a solve settles a map that has its shape."""

MAX_COORDINATE = 1e4
"""Largest radius and coordinates to begin with, as multiples of the same scale."""

MAX_SQUARABLE = 1e150
"""Largest coordinate or dissimilarity: sums of squares of larger ones overflow in float64."""

FLOAT32_RADIUS = 1e-4
"""Smallest radius, as a share of the same scale, at which float32 roots still tell a move's gain."""

FLOAT32_SCALE = (1e-12, 1e12)
"""Scales whose squares, and those of much smaller and larger dissimilarities, float32 holds in full."""
