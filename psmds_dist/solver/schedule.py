"""Pure decisions of the solve: rounds, axes, the radius, and when to stop.

Everything here is a function of its arguments, so a run can be replayed from any epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from psmds_dist.core.config import FLOAT32_RADIUS, FLOAT32_SCALE, RADIUS_TOL, SETTLING_RADIUS, SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.stress import counted_pairs
from psmds_dist.core.types import Floats, StopReason

JITTER_SHARE = 1e-3
"""Displacement of a given start before guided moves, as a share of the first radius."""

POLISHED_END = 4.0
"""Last radius of a solve that settles a start and ends with a short polish, as a multiple of the usual one. Passes of
the polish gain as much as those of shorter moves, or more (eight kinds of points)."""


@dataclass(frozen=True)
class State:
    """Where a solve stands between two epochs."""

    x: Floats
    """Coordinates, ``(L, n)``: one axis a line."""

    radius: float
    epoch: int = 0
    error: float = math.inf


@dataclass(frozen=True)
class EpochPlan:
    """What one epoch does, the same for every worker."""

    radius: float
    rounds: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...]
    dtype: str
    guided: bool = False


@dataclass(frozen=True)
class EpochReport:
    """What one epoch did."""

    x: Floats
    error: float
    """Sum of squared residuals, or what else pairs cost, over ordered pairs, as the points met it in the epoch."""

    moved: int
    """Points that moved."""


@dataclass(frozen=True)
class Schedule:
    """The rules of a solve: what each epoch does, how the radius falls, and when to stop.

    Attributes
    ----------
    config : SolverConfig
        What the solve is asked to do.
    scale : float
        Root mean square dissimilarity.
    layout : Layout
        Blocks of the matrix.
    dtype : dtype
        Type of its rows.
    pairs : float, optional
        Ordered pairs that means are over; all ``n^2`` by default.
    rms : float, optional
        Root mean square of the dissimilarities that count, with their weights; ``scale`` by default.
    share : float
        Share of the pairs of which a point may move; the others are no part of what an epoch has to gain.
    """

    config: SolverConfig
    scale: float
    layout: Layout
    dtype: np.dtype[Any]
    pairs: float | None = None
    rms: float | None = None
    share: float = 1.0

    def counting(self, sums: Floats) -> Schedule:
        """The same rules, for the pairs that row sums tell of."""
        weight, given = sums[:, 4].sum(), sums[:, 2].sum()
        return replace(self, pairs=counted_pairs(sums), rms=math.sqrt(given / weight) if given > 0 else None)

    def mse(self, report: EpochReport) -> float:
        """Error of an epoch as a mean over ordered pairs."""
        return float(report.error / (self.pairs or self.layout.n**2))

    def plan(self, state: State) -> EpochPlan:
        """Decide what the next epoch does; the certificate of a monotone solve is for moves along all axes."""
        certifies = self.certifies(state.radius)
        return EpochPlan(
            radius=state.radius,
            rounds=halves(self.layout, self.config.seed, state.epoch),
            axes=tuple(range(self.config.n_components)) if certifies else self.sampled_axes(state.epoch),
            dtype=self.arithmetic(state.radius),
            guided=self.config.guided and not certifies,
        )

    def advance(self, state: State, report: EpochReport) -> tuple[State, StopReason | None]:
        """Take an epoch's report into the state, halve the radius when progress stalled, and say whether to stop.

        A monotone solve leaves its last radius only when no point moved: that is its certificate.
        """
        config = self.config
        mse = self.mse(report)
        threshold = self.stall_threshold(state.radius, mse) * report.error
        stalled = not state.error - report.error > threshold  # also true for NaN, from errors that overflowed
        after = State(report.x, state.radius, state.epoch + 1, report.error)
        if report.error == 0:
            return after, StopReason.PERFECT
        if stalled:
            half = replace(after, radius=state.radius / 2)
            last = half.radius <= self.end_radius(mse)
            if last and (config.bad_moves or report.moved == 0):
                return after, StopReason.RADIUS
            after = after if last else half
        if after.epoch >= config.max_epochs:
            return after, StopReason.EPOCHS
        return after, None

    def end_radius(self, mse: float = 0.0) -> float:
        """Radius at or below which a solve with that mean squared error ends.

        Points that are displaced by up to ``r`` along each axis change a mean squared error by about ``r^2 / 6``. Once
        that is no more than a share ``eps`` of it, smaller radii would only polish noise. A monotone solve continues
        all the same: its certificate is for a radius that is known from the beginning. So does one with another loss.
        """
        config, scale = self.config, self.scale
        if config.radius_tol is not None:
            return config.radius_tol
        noisy = config.bad_moves and config.rule.least_squares
        noise = math.sqrt(6 * config.eps * min(mse, scale * scale)) if noisy else 0.0
        short = config.polishes_shortly(self.layout.n) and self.settles(mse) and config.rule.transformation is None
        return max(RADIUS_TOL * scale, POLISHED_END * noise if short else noise)

    def settles(self, mse: float) -> bool:
        """Whether a map with that mean squared error has the shape of its start, as its first radius was small."""
        config, residual = self.config, math.sqrt(mse) if self.config.rule.least_squares else 0.0
        return config.bad_moves and config.radius is not None and config.radius <= SETTLING_RADIUS * residual

    def stress(self, mse: float) -> float:
        """Normalized stress of a map with that mean squared error over all ordered pairs; NaN for other losses."""
        n = self.layout.n
        return math.sqrt(mse * n / (n - 1)) / (self.rms or self.scale) if self.config.rule.least_squares else math.nan

    def stall_threshold(self, radius: float, mse: float) -> float:
        """Share of the error that an epoch must gain; where it gains less, the radius halves.

        From a random start that is ``eps``: epochs that gain little still lead out of poor maps. A solve that begins
        with a radius small beside the residuals only settles a map that has its shape. There halving is sure to gain
        what moves of twice the needed length cost, about ``(2 r)^2 / 6`` of the mean squared error, and an epoch that
        gains less wastes its pass.
        """
        least = 2 / 3 * radius**2 / mse if self.settles(mse) else 0.0
        return self.share * max(self.config.eps, least)

    def certifies(self, radius: float) -> bool:
        """Whether this is the last radius of a monotone solve, at whose end no single move may improve the map."""
        return not self.config.bad_moves and radius / 2 <= self.end_radius()

    def arithmetic(self, radius: float) -> str:
        """Type of the kernel's arithmetic.

        Float64 for float64 rows, losses that are steep, radii too small or too large for float32, data whose squares
        float32 cannot hold, and the last radius of a monotone solve, whose certificate must not rest on rounding.
        """
        low, high = (bound ** (2 / max(2, self.config.rule.facts.degree)) for bound in FLOAT32_SCALE)
        single = self.dtype == np.float32 and not self.config.rule.facts.steep
        scale_fits = single and low < self.scale < high
        fits = scale_fits and FLOAT32_RADIUS * self.scale <= radius < high
        return "float32" if fits and not self.certifies(radius) else "float64"

    def sampled_axes(self, epoch: int) -> tuple[int, ...]:
        """Axes tried in an epoch: all of them, or a random share drawn for this epoch."""
        dims, count = self.config.n_components, self.config.tried_axes
        if count == dims:
            return tuple(range(dims))
        drawn = generator(self.config.seed, RandomStream.AXES, epoch).permutation(dims)[:count]
        return tuple(sorted(int(axis) for axis in drawn))

    def starting_points(self) -> Floats:
        """Uniform coordinates whose root mean square distance is that of the data, shape ``(L, n)``."""
        dims = self.config.n_components
        half = self.scale * uniform_half(dims)
        return generator(self.config.seed, RandomStream.START).uniform(-half, half, (dims, self.layout.n))

    def jittered(self, state: State) -> State:
        """State with slightly displaced points: gradients never lead out of a plane in which all points lie."""
        noise = generator(self.config.seed, RandomStream.JITTER).standard_normal(state.x.shape)
        return replace(state, x=state.x + JITTER_SHARE * state.radius * noise)

    def sample_blocks(self, points: int = 512) -> tuple[int, ...]:
        """Blocks whose rows serve as a small sample of the matrix, at least ``points`` of them where there are."""
        count = min(self.layout.count, -(-points // self.layout.rows))
        chosen = generator(self.config.seed, RandomStream.SAMPLE).permutation(self.layout.count)[:count]
        return tuple(sorted(int(b) for b in chosen))


def uniform_half(dims: int) -> float:
    """Largest uniform coordinate, either way, with which the root mean square distance of points is 1."""
    return math.sqrt(3 / (2 * dims))


def halves(layout: Layout, seed: int, epoch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two rounds of blocks: of every two neighbours a random one goes first, the other second.

    Pairs keep both rounds equally large on every worker that owns whole pairs.
    """
    pairs = -(-layout.count // 2)
    first = 2 * np.arange(pairs) + generator(seed, RandomStream.ROUNDS, epoch).integers(0, 2, pairs)
    second = first ^ 1
    return tuple(first[first < layout.count].tolist()), tuple(second[second < layout.count].tolist())


def search_radius(first: float, improves: Callable[[float], bool], tries: int = 8) -> float:
    """Largest radius, within factors of two of ``first``, at which a dry epoch lowers the error.

    The paper's search: from one start, halve the radius when the epoch raised the error, else double it.
    """
    radius = first
    good = improves(radius)
    for _ in range(tries):
        candidate = radius * 2 if good else radius / 2
        better = improves(candidate)
        if good and not better:
            return radius
        radius = candidate
        if better and not good:
            return radius
    return radius
