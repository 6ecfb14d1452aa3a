"""Where the points of a map may be: pinned coordinates, and bounds on each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import as_array, digest_of_arrays, numbers_of
from psmds_dist.core.stress import canonical
from psmds_dist.core.types import Floats, InputError, Ints

ALIGNMENTS = 100
"""Most times that a start is turned onto pinned coordinates; once does where the pinned points have all of theirs."""

SETTLED = 1e-9
"""Change of the misfit, as a share of it, at which turning ends."""


@dataclass(frozen=True, eq=False)
class Region:
    """An interval for each coordinate of a map; that of a pinned coordinate is a single number.

    Attributes
    ----------
    low, high : (L, n) ndarray
        Ends of the intervals, infinite where there are none.
    """

    low: Floats
    high: Floats

    @classmethod
    def of(cls, n: int, n_components: int, pinned: Any = None, bounds: Any = None) -> Self | None:
        """Region that a user describes, or None where every coordinate is free.

        Parameters
        ----------
        n, n_components : int
            Points and dimensions of the map.
        pinned : (n, L) array_like or data frame, optional
            Coordinates to keep, NaN for the free ones.
        bounds : (low, high) or a sequence of L of these, optional
            Least and greatest coordinate on every axis, or on each; None and infinities are no bounds.

        Raises
        ------
        InputError
            When they are not of this shape, contradict each other, or leave nothing free.
        """
        given = np.full((n, n_components), np.nan) if pinned is None else _usable_pins(pinned, n, n_components)
        ends = _usable_bounds((None, None) if bounds is None else bounds, n_components)
        fixed = ~np.isnan(given)
        if not (fixed.any() or np.isfinite(ends).any()):
            return None
        _require_within(given, ends)
        if fixed.all():
            raise InputError(
                "pinned leaves no coordinate free: put NaN for those to be found; psmds_dist.measure (psmds quality) "
                "measures a map as it is."
            )
        low, high = (np.where(fixed, given, end).T for end in ends.T)
        return cls(np.ascontiguousarray(low), np.ascontiguousarray(high))

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.low.shape[1])

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """Coordinates that are pinned, ``(L, n)``."""
        return np.asarray(self.low == self.high)

    @property
    def movable(self) -> NDArray[np.bool_]:
        """Points that have a free coordinate, ``(n,)``."""
        return np.asarray(~self.fixed.all(axis=0))

    @property
    def share(self) -> float:
        """Share of the pairs of which a point may move."""
        return 1.0 - float(1.0 - self.movable.mean()) ** 2

    @property
    def reach(self) -> float:
        """Largest coordinate, either way, that a map must have."""
        return float(np.abs(np.clip(0.0, self.low, self.high)).max())

    @property
    def digest(self) -> str:
        """Identity of the region."""
        return digest_of_arrays(self.low, self.high)

    def of_points(self, points: Ints) -> Region:
        """Region of some of the points."""
        return Region(np.ascontiguousarray(self.low[:, points]), np.ascontiguousarray(self.high[:, points]))

    def allows(self, x: Floats, radius: float, axes: Sequence[int]) -> NDArray[np.bool_]:
        """Whether each point of ``x``, ``(L, n)``, may move along some axes: ``(n, 2 a)``, in the order + - + - ..."""
        along = np.asarray(axes)
        here, low, high = x[along], self.low[along], self.high[along]
        forth, back = here + radius <= high, here - radius >= low
        return np.ascontiguousarray(np.stack((forth, back), axis=1).reshape(2 * along.size, -1).T)

    def clipped(self, x: Floats) -> Floats:
        """Coordinates ``(L, n)`` moved to the nearest ones of the region."""
        return np.clip(x, self.low, self.high)

    def inside(self, x: Floats, shares: Floats, most: float) -> Floats:
        """Coordinates ``(L, n)`` some shares of their intervals, and ``most`` at the most, away from the ends."""
        width = np.where(self.fixed, 0.0, self.high - self.low)
        off = np.minimum(np.where(np.isinf(width), most, shares * width), most)
        return np.clip(x, self.low + off, self.high - off)

    def placed(self, x: Floats) -> Floats:
        """A map, ``(L, n)``, turned and moved onto the pinned coordinates as a whole, then put into the region.

        Along axes without pinned coordinates it moves as little as the bounds demand, into their middle if it does not
        fit. Distances change only where single points have to move into the region. A map that is there stays.
        """
        if np.array_equal(x, self.clipped(x)):
            return x
        x = self._aligned(x) if self.fixed.any() else self._oriented(x)
        low, high = (self.low - x).max(axis=1), (self.high - x).min(axis=1)
        with np.errstate(invalid="ignore"):  # one of the two is infinite: then the other decides
            shift = np.where(low <= high, np.clip(0.0, low, high), (low + high) / 2)
        return self.clipped(x + np.where(self.fixed.any(axis=1), 0.0, shift)[:, None])

    def _oriented(self, x: Floats) -> Floats:
        """The map with its principal axes along those of the region, the longest along the widest."""
        widest = np.argsort(-(self.high - self.low).min(axis=1), kind="stable")
        oriented = np.empty_like(x)
        oriented[widest] = canonical(x.T).T
        return oriented

    def _aligned(self, x: Floats) -> Floats:
        """The map where a rotation, reflection and translation bring it nearest to the pinned coordinates.

        A point of which only some coordinates are pinned keeps the others as the last turn left them.
        """
        some, before = self.fixed.any(axis=0), np.inf
        known, wanted = self.fixed[:, some], self.low[:, some]
        for _ in range(ALIGNMENTS):
            x = moved_onto(x, x[:, some], np.where(known, wanted, x[:, some]))
            misfit = float(np.square(np.where(known, x[:, some] - wanted, 0.0)).sum())
            if known.all() or misfit >= (1 - SETTLED) * before:
                break
            before = misfit
        return x


def moved_onto(x: Floats, source: Floats, target: Floats) -> Floats:
    """Apply the rotation, reflection and translation that brings ``source`` nearest to ``target``; lines are axes."""
    centre, place = source.mean(axis=1), target.mean(axis=1)
    # einsum, not matmul: the order of BLAS sums may depend on its threads
    u, _, v = np.linalg.svd(np.einsum("ik,jk->ij", target - place[:, None], source - centre[:, None]))
    return np.asarray(np.einsum("ij,jk->ik", np.einsum("ij,jk->ik", u, v), x - centre[:, None]) + place[:, None])


def _usable_pins(pinned: Any, n: int, n_components: int) -> Floats:
    """Coordinates to keep, NaN where there are none."""
    given = numbers_of(pinned, "pinned")
    wanted = f"pinned must be coordinates of shape ({n}, {n_components}), NaN for free ones"
    if given.shape != (n, n_components) or given.dtype.kind not in "fiu":
        raise InputError(f"{wanted}, not {given.dtype} of shape {given.shape}.")
    values = np.ma.filled(np.ma.asarray(pinned, float), np.nan) if np.ma.isMaskedArray(pinned) else given.astype(float)
    infinite = np.isinf(values).any(axis=1)
    if infinite.any():
        raise InputError(f"{wanted}, but has infinite values, the first in row {infinite.argmax()}.")
    return np.asarray(values)


def _usable_bounds(bounds: Any, n_components: int) -> Floats:
    """Least and greatest coordinate on each axis, ``(L, 2)``."""
    wanted = (
        "bounds must be a pair (low, high) for all axes, or one for each of the "
        f"{n_components}, with None where there is no bound"
    )
    given = as_array(np.array(bounds, dtype=object), "bounds") if not _is_ragged(bounds) else np.empty(0)
    if given.shape not in ((2,), (n_components, 2)):
        raise InputError(f"{wanted}, not {bounds!r}.")
    unbounded = np.broadcast_to(np.array([-np.inf, np.inf]), given.shape)
    try:
        ends = np.where(given == None, unbounded, given).astype(float)  # noqa: E711 (elementwise)
    except (TypeError, ValueError):
        raise InputError(f"{wanted}, not {bounds!r}.") from None
    for low, high in ends.reshape(-1, 2):
        if not (low < high and low < np.inf and high > -np.inf):
            raise InputError(
                f"bounds must have the lower one first, not ({low:g}, {high:g}); to fix an axis, pin its coordinates."
            )
    return np.array(np.broadcast_to(ends, (n_components, 2)))


def _is_ragged(bounds: Any) -> bool:
    try:
        np.array(bounds, dtype=object)
    except ValueError:
        return True
    return False


def _require_within(pinned: Floats, ends: Floats) -> None:
    """Refuse pinned coordinates outside of the bounds."""
    outside = (pinned < ends[:, 0]) | (pinned > ends[:, 1])
    if outside.any():
        point, axis = np.argwhere(outside)[0]
        low, high = ends[axis]
        raise InputError(
            f"point {point} is pinned to {pinned[point, axis]:g} on axis {axis}, outside of the bounds there, {low:g} "
            f"to {high:g}: widen the bounds, or leave that coordinate free (NaN)."
        )
