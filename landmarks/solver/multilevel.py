"""Maps of the landmarks from coarse to fine: several starts on a part of them, the best one taken to all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from landmarks.evaluation import agreement
from landmarks.panel.check import PanelEntries, refuse_huge
from landmarks.selection import LandmarkStream
from landmarks.solver.placement import EXACT, FLOOR, ROUGH, PlacementModel, mutual_errors, place
from landmarks.solver.refine import polish_config
from psmds_dist.api.search import classical_of
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows, StopReason
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.check import refuse_tiny
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.pairs import PLAIN_KERNELS
from psmds_dist.solver.lifting import flattened, lifted
from psmds_dist.solver.search import ROUND, search
from psmds_dist.solver.solve import Solution, solve

CHEAP = 1e-2
"""The radius of a random start halves when an epoch lowers the error by at most this share: it is an insurance."""

SWEEPS = 100
"""Sweeps that squeeze a map flat."""

MOST_SQUEEZED = 2000
"""Most landmarks whose map is squeezed; others are placed against them, and all settle."""

MOST_SEARCHED = 300
"""Most landmarks that are searched, in 20 ms: answers on a scale have maps up to 0.7 % better than the squeezed one."""

NEAR = 0.1
"""First radius of the solve that settles a map, as a share of its root mean square residual."""

THIN = 0.1
"""Spread of nearly exact landmarks along an axis, as a share of the scale, below which they may not need it."""

SolveFunction = Callable[..., Solution]
"""Solves with a configuration, from a start if one is given."""


@dataclass(frozen=True)
class LandmarkDissimilarities:
    """Dissimilarities between landmarks."""

    values: Rows

    @cached_property
    def scale(self) -> float:
        """Root mean square off the diagonal."""
        size = len(self.values)
        squares = float(np.einsum("rs,rs->", self.values, self.values, dtype=np.float64))  # no array of them is made
        return math.sqrt(squares / (size * (size - 1)))

    @property
    def units(self) -> Rows:
        """Dissimilarities as multiples of the scale, in float32."""
        return np.divide(self.values, self.scale, out=np.empty_like(self.values, np.float32), casting="same_kind")

    @property
    def mean_squares(self) -> Floats:
        """Mean squared dissimilarity of each landmark to all."""
        squares: Floats = np.square(self.values, dtype=np.float64).mean(axis=1)
        return squares

    def frame(self, coordinates: Floats, closed_form: str) -> PlacementModel:
        """What points are placed by once the landmarks are at ``(S, L)`` coordinates."""
        return PlacementModel.of(coordinates, self.scale, self.mean_squares if closed_form == "classical" else None)

    def part(self, which: Ints) -> LandmarkDissimilarities:
        """The same for some of them."""
        return LandmarkDissimilarities(np.ascontiguousarray(self.values[np.ix_(which, which)]))


@dataclass(frozen=True)
class LandmarkEmbedding:
    """A map of the landmarks, and how well the starts agree."""

    solution: Solution
    agreement: Floats
    """Procrustes disparity of each other start to the best, on the landmarks that the starts were made for."""


def among_landmarks(panel: RowSource, landmarks: Ints, names: PanelEntries) -> LandmarkDissimilarities:
    """Dissimilarities between the landmarks, from their own rows of the panel; the mean of both orders.

    Raises
    ------
    InputError
        When one is missing, all are zero, or one is too large to compute with.
    """
    rows, ids = panel.take(landmarks), names.ids
    rows /= 2  # before they are added, for sums of the largest numbers overflow
    values: Rows = rows + rows.T
    np.fill_diagonal(values, 0)
    if np.isnan(values.min()):
        i, j = (int(landmarks[k]) for k in np.argwhere(np.isnan(values))[0])
        called = f" (ids {ids[i]!r} and {ids[j]!r})" if ids else ""
        raise InputError(
            f"the dissimilarity between landmarks {i} and {j}{called} is missing, but landmarks must know each other: "
            f"fill it in, leave one of the two out, or give n_landmarks (-S) below {len(rows)} and "
            "selection='kmeans++' (--selection kmeans++), which chooses such as do."
        )
    highest = float(values.max())
    if not highest:
        raise InputError("all dissimilarities between landmarks are zero: choose other landmarks (selection='maxmin').")
    refuse_huge(highest, values.dtype, values, names)
    among = LandmarkDissimilarities(np.ascontiguousarray(values))
    refuse_tiny(among.values.dtype, among.scale, highest)
    return among


def map_landmarks(
    among: LandmarkDissimilarities,
    n_components: int,
    seed: int,
    n_init: int,
    executor: InProcessExecutor,
) -> LandmarkEmbedding:
    """Embed landmarks: starts on a part of them, the best one taken to all; nearly exact data to more digits."""
    size = len(among.values)
    if size <= n_components:
        raise InputError(f"{size} landmarks are too few for {n_components} dimensions.")
    which = _some(among, seed, MOST_SQUEEZED)
    part = among if which.size == size else among.part(which)
    starts = _starts(part, SolverConfig(n_components, seed=seed), n_init, executor)
    found = starts[0] if part is among else _extended(among, which, starts[0], executor)
    if found.stress.normalized_stress < EXACT:
        found = _exactly(partial(_run, among, executor), found, among, n_components, seed)
    return LandmarkEmbedding(found, agreement([start.embedding for start in starts]))


def _some(among: LandmarkDissimilarities, seed: int, most: int) -> Ints:
    """Landmarks that stand for all, at most so many of them."""
    size = len(among.values)
    which = np.sort(generator(seed, LandmarkStream.COARSE_LANDMARKS).permutation(size)[:most])
    return which if among.values[np.ix_(which, which)].any() else np.arange(size)


def _starts(
    part: LandmarkDissimilarities, config: SolverConfig, n_init: int, executor: InProcessExecutor
) -> list[Solution]:
    """Maps from several starts, the best first: the better of a squeezed and a searched one, the others random."""
    begins = (begin(part, config, executor) for begin in (_squeezed, _searched))
    found = [_run(part, executor, _near(part, begin, config), start=begin) for begin in begins]
    far = replace(config, radius=part.scale, eps=CHEAP)
    random = [_run(part, executor, replace(far, seed=config.seed + k)) for k in range(1, n_init)]
    return sorted([min(found, key=_mse), *random], key=_mse)


def _mse(found: Solution) -> float:
    return found.stress.mse


def _near(part: LandmarkDissimilarities, begin: Floats, config: SolverConfig) -> SolverConfig:
    residual = math.sqrt(float(mutual_errors(part.values, begin).sum())) / len(begin)
    return replace(config, radius=max(NEAR * residual, FLOOR * part.scale))


def _squeezed(part: LandmarkDissimilarities, config: SolverConfig, executor: InProcessExecutor) -> Floats:
    """Map by classical scaling, with an axis of noise that is squeezed flat."""
    rows, dims = part.units, config.n_components
    classical = classical_of(rows, dims, config, executor)
    x = lifted(classical.T, generator(config.seed, RandomStream.LIFT))
    with parallel_region(executor.threads):
        flat = flattened(PLAIN_KERNELS, rows, x, dims, SWEEPS)
    return np.ascontiguousarray(flat.T) * part.scale


def _searched(part: LandmarkDissimilarities, config: SolverConfig, executor: InProcessExecutor) -> Floats:
    """The best map of several starts on a few, and the others placed against them."""
    which = _some(part, config.seed, MOST_SEARCHED)
    few, dims = part.part(which), config.n_components
    classical = classical_of(few.units, dims + 1, config, executor)
    with parallel_region(executor.threads):
        found = search(few.units, classical, config.seed, descents=ROUND, starts=ROUND)
    return _spread(part, which, found.x * few.scale)[0]


def _spread(among: LandmarkDissimilarities, which: Ints, x: Floats) -> tuple[Floats, float]:
    """Coordinates of all where some are at ``x`` and the others are placed against them, and their residual."""
    frame = PlacementModel.of(x, among.scale)
    others = np.setdiff1d(np.arange(len(among.values)), which)
    whole, residual = np.empty((len(among.values), x.shape[1])), 0.0
    whole[which] = frame.y.T
    if others.size:
        panel = np.ascontiguousarray(among.values[np.ix_(others, which)])
        with parallel_region():
            whole[others], errors, _, known = place(panel, np.arange(others.size), frame, share=ROUGH)
        residual = math.sqrt(float(errors.sum()) / int(known.sum()))
    return whole, residual


def _extended(among: LandmarkDissimilarities, which: Ints, found: Solution, executor: InProcessExecutor) -> Solution:
    """Place the other landmarks against those that are mapped, and settle all."""
    x, residual = _spread(among, which, found.embedding)
    settings = polish_config(x.shape[1], found.seed, residual, among.scale)
    return _run(among, executor, settings, start=x)


def _run(
    among: LandmarkDissimilarities, executor: InProcessExecutor, config: SolverConfig, start: Floats | None = None
) -> Solution:
    """Solve; an interrupt ends the whole fit, for a map of the landmarks alone is no result."""
    config = replace(config, polish=False)  # all points are placed afterwards, to no more digits
    source: RowSource = ArrayRows(among.values, dtype=among.values.dtype.name)
    found = solve(source, config, executor, scale=among.scale, budget=4 * among.values.nbytes, start=start)
    if found.stop_reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return found


def _exactly(
    run: SolveFunction, found: Solution, among: LandmarkDissimilarities, n_components: int, seed: int
) -> Solution:
    """Take a map that fits nearly exactly to more digits, and to no more axes than it needs.

    Landmarks on a line are seldom embedded quite straight, for being off it hardly changes their distances; yet the
    little they are off would tell other points on which side to go. So a thin axis goes if they fit without it.
    """
    exact = SolverConfig(
        n_components=n_components,
        seed=seed,
        radius=max(found.radius, 1e-6 * among.scale),
        radius_tol=1e-9 * among.scale,
    )
    found = run(exact, start=found.raw_embedding)
    rounding = (float(np.finfo(among.values.dtype).eps) * among.scale) ** 2
    for axes in range(n_components - 1, 0, -1):
        thickness = float(found.embedding[:, axes].std())
        if thickness > THIN * among.scale:
            break
        first = max(thickness, 1e-6 * among.scale)
        fewer = run(replace(exact, n_components=axes, radius=first), start=found.embedding[:, :axes])
        if fewer.stress.mse > max(rounding, found.stress.mse):
            break
        flat = np.pad(fewer.embedding, ((0, 0), (0, n_components - axes)))
        found = replace(fewer, embedding=flat, raw_embedding=flat)
    return found
