"""Pure decisions of the solve: random numbers, rounds, the radius, and when to stop.

Everything here is a function of its arguments, so a run can be replayed from any epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from psmds_dist.core.config import FLOAT32_RADIUS, FLOAT32_SCALE, RADIUS_TOL, SETTLING_RADIUS, SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.core.types import Floats, StopReason

START, ROUNDS, AXES, SAMPLE, NUDGE = range(5)
"""Streams of random numbers, so that drawing more of one never shifts another."""

NUDGE_SHARE = 1e-3
"""How far a start is nudged before guided moves, as a share of the first radius."""


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
    """Sum of squared residuals over ordered pairs, as the points met it during the epoch."""

    moved: int
    """Points that moved."""

    @property
    def mse(self) -> float:
        """The same as a mean over ordered pairs."""
        return float(self.error / self.x.shape[1] ** 2)


def generator(seed: int, stream: int, epoch: int = 0) -> np.random.Generator:
    """Counter-based random numbers of one stream and epoch."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, stream, epoch]))


def starting_points(n: int, config: SolverConfig, scale: float) -> Floats:
    """Uniform coordinates whose root mean square distance is ``scale``, shape ``(L, n)``."""
    half = scale * math.sqrt(3 / (2 * config.n_components))
    return generator(config.seed, START).uniform(-half, half, (config.n_components, n))


def jittered(x: Floats, radius: float, seed: int) -> Floats:
    """Coordinates a little off those given: gradients never lead out of a plane in which all points lie."""
    return x + NUDGE_SHARE * radius * generator(seed, NUDGE).standard_normal(x.shape)


def halves(layout: Layout, seed: int, epoch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two rounds of blocks: of every two neighbours a random one goes first, the other second.

    Pairs keep both rounds equally large on every worker that owns whole pairs.
    """
    pairs = -(-layout.count // 2)
    first = 2 * np.arange(pairs) + generator(seed, ROUNDS, epoch).integers(0, 2, pairs)
    second = first ^ 1
    return tuple(first[first < layout.count].tolist()), tuple(second[second < layout.count].tolist())


def sampled_axes(config: SolverConfig, epoch: int) -> tuple[int, ...]:
    """Axes tried in an epoch: all of them, or a random share drawn for this epoch."""
    dims, count = config.n_components, config.tried_axes
    if count == dims:
        return tuple(range(dims))
    return tuple(sorted(int(a) for a in generator(config.seed, AXES, epoch).permutation(dims)[:count]))


def arithmetic(radius: float, config: SolverConfig, scale: float, dtype: np.dtype[np.generic]) -> str:
    """Type of the kernel's arithmetic.

    Float64 for float64 rows, for radii too small or too large for float32, for data whose squares float32 cannot
    hold, and for the last radius of a monotone solve, whose certificate must not rest on rounding.
    """
    low, high = FLOAT32_SCALE
    fits = dtype == np.float32 and FLOAT32_RADIUS * scale <= radius < high and low < scale < high
    return "float32" if fits and not certifying(radius, config, scale) else "float64"


def certifying(radius: float, config: SolverConfig, scale: float) -> bool:
    """Whether this is the last radius of a monotone solve, at whose end no single move may improve the map."""
    return not config.bad_moves and radius / 2 <= end_radius(config, scale)


def plan_epoch(
    state: State, config: SolverConfig, layout: Layout, scale: float, dtype: np.dtype[np.generic]
) -> EpochPlan:
    """Decide what the next epoch does; the certificate of a monotone solve is for moves along all axes."""
    every = certifying(state.radius, config, scale)
    return EpochPlan(
        radius=state.radius,
        rounds=halves(layout, config.seed, state.epoch),
        axes=tuple(range(config.n_components)) if every else sampled_axes(config, state.epoch),
        dtype=arithmetic(state.radius, config, scale, dtype),
        guided=config.guided and not every,
    )


def end_radius(config: SolverConfig, scale: float, mse: float = 0.0) -> float:
    """Radius at or below which a solve with that mean squared error ends.

    Points that are displaced by up to ``r`` along each axis change a mean squared error by about ``r^2 / 6``. Once
    that is no more than a share ``eps`` of it, smaller radii would only polish noise. A monotone solve goes on all
    the same: its certificate is for a radius that is known from the beginning.
    """
    if config.radius_tol is not None:
        return config.radius_tol
    noise = math.sqrt(6 * config.eps * min(mse, scale * scale)) if config.bad_moves else 0.0
    return max(RADIUS_TOL * scale, noise)


def stall_threshold(radius: float, mse: float, config: SolverConfig) -> float:
    """Share of the error, gained by an epoch, that no longer pays: the radius halves.

    From a random start that is ``eps``: epochs that gain little still lead out of poor maps. A solve that begins with
    a radius small beside the residuals only settles a map that has its shape. There halving is sure to gain what moves
    of twice the needed length cost, about ``(2 r)^2 / 6`` of the mean squared error, and an epoch that gains less
    wastes its pass.
    """
    residual = math.sqrt(mse)
    settling = config.radius is not None and config.radius <= SETTLING_RADIUS * residual
    return max(config.eps, 2 / 3 * (radius / residual) ** 2) if settling and config.bad_moves else config.eps


def advance(state: State, report: EpochReport, config: SolverConfig, scale: float) -> tuple[State, StopReason | None]:
    """Take an epoch's report into the state, halve the radius when progress stalled, and say whether to stop.

    A monotone solve leaves its last radius only when no point moved: that is its certificate.
    """
    little = stall_threshold(state.radius, report.mse, config) * report.error
    stalled = not state.error - report.error > little  # so worded for errors that overflowed
    after = State(report.x, state.radius, state.epoch + 1, report.error)
    if report.error == 0:
        return after, StopReason.PERFECT
    if stalled:
        half = replace(after, radius=state.radius / 2)
        last = half.radius <= end_radius(config, scale, report.mse)
        if last and (config.bad_moves or report.moved == 0):
            return after, StopReason.RADIUS
        after = after if last else half
    if after.epoch >= config.max_epochs:
        return after, StopReason.EPOCHS
    return after, None


def sample_blocks(layout: Layout, seed: int, points: int = 512) -> tuple[int, ...]:
    """Blocks whose rows serve as a small sample of the matrix, at least ``points`` of them where there are."""
    count = min(layout.count, -(-points // layout.rows))
    chosen = generator(seed, SAMPLE).permutation(layout.count)[:count]
    return tuple(sorted(int(b) for b in chosen))


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
