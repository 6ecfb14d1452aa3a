"""Refinement: landmarks move too, against all points through the panel; or everyone against the whole matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landmarks import kernels
from landmarks.solver.placement import FLOOR, PLACED, Place, Placement, PlacementModel, fix_landmarks, place
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.core.types import Executor, Floats, Ints, Rows
from psmds_dist.data.cache import Batch
from psmds_dist.kernels import moves
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStream
from psmds_dist.solver.state_file import Arrays
from psmds_dist.solver.tasks import CachedRows, gather, points_of, scatter_into

FIRST_RADIUS = 0.125
"""First radius of a refinement, as a share of the root mean square residual; placed points are not farther off, and
at twice that the first pass makes the map worse."""

SETTLED = 1 / 30
"""Radius at which a polish ends, as a share of the same: moves of that length hardly change the error."""

END = 1 / 16
"""Radius at which a refinement through the panel ends, as a share of the first."""

MAX_FIRST_RADIUS = 0.05
"""Largest first radius, as a share of the scale: a poor fit does not mean misplaced points."""

EPS = 1e-2
"""In a refinement through the panel the radius halves when a pass lowers the error by at most this share."""

MOST_PASSES = 40

PASSES_WITHOUT_GAIN = 3
"""Passes without a better map after which a refinement through the panel ends."""


def polish_radius(residual: float, scale: float) -> float:
    """First radius of a refinement of a map with that root mean square residual."""
    return max(min(FIRST_RADIUS * residual, MAX_FIRST_RADIUS * scale), FLOOR * scale)


def polish_config(n_components: int, seed: int, residual: float, scale: float) -> SolverConfig:
    """Configuration of a solve that polishes a good start: a few passes over the matrix."""
    last = max(SETTLED * residual, FLOOR * scale)
    return SolverConfig(n_components, radius=polish_radius(residual, scale), radius_tol=last, seed=seed)


@dataclass(frozen=True)
class Pull:
    """Place points, and sum up block by block what they say about moves of the landmarks."""

    place: Place
    own: NDArray[np.int64]
    """For each point the landmark it is, or -1."""

    radius: float

    def __call__(self, blocks: Sequence[int]) -> tuple[Placement, list[tuple[int, Floats]]]:
        """Return the placement of all points, and the kernel's sums of each block."""
        sums: list[tuple[int, Floats]] = []

        def one(batch: Batch) -> Placement:
            found = self._place(batch)
            sums.extend(self._sums(batch, found[0]))
            return found

        return self.place.panel.collect(blocks, one), sums

    def _place(self, batch: Batch) -> Placement:
        frame, start = self.place.frame, self.place.start
        x, errors, squares, known = place(
            batch.rows, batch.slots, frame, None if start is None else start[batch.points], self.place.radius
        )
        landmark = self.own[batch.points]
        x[landmark >= 0] = frame.y.T[landmark[landmark >= 0]]
        return x, errors, squares, known

    def _sums(self, batch: Batch, x: Floats) -> list[tuple[int, Floats]]:
        """Sums of each block apart: they are added in the order of blocks, however blocks come."""
        dtype = self.place.frame.arithmetic(batch.rows.dtype, self.radius)
        y = self.place.frame.y.astype(dtype)
        layout = self.place.panel.layout
        number = batch.points // layout.rows
        cuts = [np.flatnonzero(number == block) for block in np.unique(number)]
        return [
            (
                int(number[cut[0]]),
                kernels.pull_landmarks(batch.rows, batch.slots[cut], x[cut].astype(dtype), y, self.radius),
            )
            for cut in cuts
        ]


@dataclass(frozen=True)
class PanelPass:
    """What one pass over the panel found."""

    placement: Placement
    errors: Floats
    gains: Floats
    """(S, 2 L)"""


def panel_pass(executor: Executor, work: Pull) -> PanelPass:
    """Run a pass over all blocks of the panel."""
    layout: Layout = work.place.panel.layout
    everyone = np.arange(layout.n)
    placement: Placement | None = None
    sums: dict[int, Floats] = {}
    for group, (found, part) in executor.map(work, range(layout.count)):
        placement = scatter_into(placement, everyone, points_of(layout, group), found)
        sums.update(part)
    assert placement is not None
    total = np.sum([sums[block] for block in sorted(sums)], axis=0)
    return PanelPass(placement, total[1], _gains(total, work.radius, int((work.own >= 0).any())))


def _gains(total: Floats, radius: float, itself: int) -> Floats:
    """Gains of each landmark's moves: the closed part needs the sum of ``u``, and leaves out the point itself."""
    pairs = total[0] - itself
    gains = np.empty((total.shape[1], 2 * ((total.shape[0] - 2) // 3)))
    for axis in range(gains.shape[1] // 2):
        u, plus, minus = total[2 + 3 * axis : 5 + 3 * axis]
        gains[:, 2 * axis] = pairs * radius**2 + 2 * radius * u - 2 * plus
        gains[:, 2 * axis + 1] = pairs * radius**2 - 2 * radius * u - 2 * minus
    return gains


@dataclass(frozen=True)
class Candidate:
    """Landmarks and points, and what the judge says of them."""

    stress: float
    frame: PlacementModel
    placement: Placement

    def as_arrays(self, name: str) -> dict[str, Any]:
        """Arrays that begin with a name, for a checkpoint."""
        parts = {"stress": self.stress, "y": self.frame.y, **dict(zip(PLACED, self.placement, strict=True))}
        return {f"{name}_{part}": values for part, values in parts.items()}

    @classmethod
    def of(cls, arrays: Arrays, name: str, frame: PlacementModel) -> Candidate:
        """Inverse of `as_arrays`."""
        x, errors, squares, known = (arrays[f"{name}_{part}"] for part in PLACED)
        y = replace(frame, y=arrays[f"{name}_y"])
        return cls(float(arrays[f"{name}_stress"]), y, (x, errors, squares, known))


@dataclass
class Refining:
    """Where a refinement through the panel stands between two passes."""

    frame: PlacementModel
    placement: Placement
    radius: float
    best: Candidate
    before: float = np.inf
    passes: int = 0
    since: int = 0

    def as_arrays(self) -> Arrays:
        """All that a later process needs to continue from here."""
        counts = {"radius": self.radius, "before": self.before, "passes": self.passes, "since": self.since}
        now = Candidate(np.nan, self.frame, self.placement)
        return {**counts, **now.as_arrays("now"), **self.best.as_arrays("best")}

    def restore(self, kept: Arrays) -> None:
        """Inverse of `as_arrays`."""
        now, self.best = (Candidate.of(kept, name, self.frame) for name in ("now", "best"))
        self.frame, self.placement = now.frame, now.placement
        self.radius, self.before = float(kept["radius"]), float(kept["before"])
        self.passes, self.since = int(kept["passes"]), int(kept["since"])


def refine_panel(
    executor: Executor,
    panel: CachedRows,
    frame: PlacementModel,
    among: Rows,
    landmarks: Ints,
    placement: Placement,
    judge: Callable[[Floats], float],
    stream: CheckpointStream = NO_CHECKPOINT,
) -> tuple[PlacementModel, Placement, int]:
    """Let landmarks and points move in turn, all through the panel.

    In each pass points look for their place near the one they had, against the landmarks as they stand; then every
    landmark takes the best move against all points, if one lowers its error. The radius halves when a pass gained
    little.

    Pairs of landmarks count ``n / S`` times: they stand for the pairs of points that the panel does not hold. Even
    so the error on the panel can fall while the map gets worse, for points and landmarks may fit each other's noise
    (as in unfolding, where points end on a circle around a heap of landmarks). So a judge measures each pass on
    pairs that the panel does not hold, and the best is kept: refinement never ends with a worse map than it began.
    Finally all points are placed again, as new points will be, against the landmarks where they came to rest.

    Returns
    -------
    Frame, Placement, int
        The refined landmarks and points, and the number of passes.
    """
    own = np.full(panel.source.n, -1, dtype=np.int64)
    own[landmarks] = np.arange(landmarks.size)
    first = polish_radius(_residual(placement), frame.scale)
    began = Candidate(judge(placement[0]), frame, placement)
    run = Refining(frame, placement, first, began)
    if (saved := stream.last()) is not None:
        run.restore(saved)
    while run.radius > END * first and run.passes < MOST_PASSES and run.since < PASSES_WITHOUT_GAIN:
        _refine_once(run, executor, panel, among, own, judge)
        stream.save(run.passes, run.as_arrays)
    if run.best.stress < began.stress:
        settled = PlacementModel.of(run.best.frame.y.T, frame.scale)
        again: Placement = gather(executor, Place(panel, settled), panel.layout, range(panel.layout.count))
        fix_landmarks(again, landmarks, settled, among)
        run.best = min(began, Candidate(judge(again[0]), settled, again), key=attrgetter("stress"))
        run.passes += 1
    return run.best.frame, run.best.placement, run.passes


def _refine_once(
    run: Refining, executor: Executor, panel: CachedRows, among: Rows, own: Ints, judge: Callable[[Floats], float]
) -> None:
    """One pass: points move, then landmarks."""
    frame, radius, weight = run.frame, run.radius, panel.source.n / len(among)
    found = panel_pass(executor, Pull(Place(panel, frame, best_x(run.placement, own, frame), radius), own, radius))
    mutual, gains = _mutual(among, frame, radius)
    error = float(found.errors.sum()) + weight * mutual
    run.passes, run.since, run.placement = run.passes + 1, run.since + 1, found.placement
    if (stress := judge(found.placement[0])) < run.best.stress:
        run.best, run.since = Candidate(stress, frame, found.placement), 0
    if run.before - error <= EPS * error:
        run.radius /= 2
    run.before, run.frame = error, apply_moves(frame, found.gains + weight * gains, radius)


def _mutual(among: Rows, frame: PlacementModel, radius: float) -> tuple[float, Floats]:
    """Error of the landmarks among themselves, and the gains of their moves."""
    everyone = np.arange(len(among))
    axes = np.arange(frame.y.shape[0])
    y = frame.y.astype(frame.arithmetic(among.dtype, radius))
    with parallel_region():
        errors, gains = moves.propose(among, everyone, everyone, y, radius, axes)
    return float(errors.sum()), gains


def best_x(placement: Placement, own: NDArray[np.int64], frame: PlacementModel) -> Floats:
    """Coordinates of all points, landmarks where they stand now."""
    x = placement[0].copy()
    x[own >= 0] = frame.y.T[own[own >= 0]]
    return x


def apply_moves(frame: PlacementModel, gains: Floats, radius: float) -> PlacementModel:
    """Landmarks after each has taken its best move, if that lowers its error."""
    best = gains.argmin(axis=1)
    step = np.where(best % 2 == 0, radius, -radius)
    step[gains[np.arange(best.size), best] >= 0] = 0
    y = frame.y.copy()
    y[best // 2, np.arange(best.size)] += step
    return replace(frame, y=y)


def _residual(placement: Placement) -> float:
    _, errors, _, known = placement
    return float(np.sqrt(np.nansum(errors) / max(1, known.sum())))
