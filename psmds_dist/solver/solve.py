"""The loop of a solve: plan an epoch, run it, advance by its report, until there is a reason to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.config import SolverConfig
from psmds_dist.core.events import EpochEvent, OnEpoch, OnEvent, StageEvent, ignore
from psmds_dist.core.nearness import NOWHERE, Nearness
from psmds_dist.core.region import Region
from psmds_dist.core.rng import RandomStream, generator, measured_rows
from psmds_dist.core.sources import RowSource
from psmds_dist.core.stress import Stress, canonical, counted_pairs
from psmds_dist.core.types import ClusterLost, Executor, Floats, StopReason, WorkerError
from psmds_dist.data.paired import ArrayTable
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStream
from psmds_dist.solver.epoch import Epoch, Objective, bad_moves_epoch, monotone_epoch
from psmds_dist.solver.optimal import ScaledObjective, Scaling, objective_of
from psmds_dist.solver.polish import MANY_STEPS, polished, shortly_polished
from psmds_dist.solver.schedule import EpochReport, Schedule, State, search_radius
from psmds_dist.solver.state_file import Arrays
from psmds_dist.solver.tasks import CachedRows, SelectColumns, gather, points_of

INWARD = 0.1
"""Farthest that points at the ends of their intervals are moved inward before a polish, as a share of the scale: those
that were cut to the same corner would never part."""

POLISH_EVERY = 10
"""Epochs at the last radius of a monotone solve in a region between one polish and the next."""

SETTLED, LEAST = 0.05, 1e-3
"""First radius after a polish, as a share of the largest residual of a point (or of all, where points have no places),
and of the scale at least."""

HISTORY = np.dtype([("epoch", "i8"), ("radius", "f8"), ("mse", "f8"), ("seconds", "f8"), ("moved", "f8")])
"""Columns of a solve's history."""


@dataclass(frozen=True)
class Solution:
    """A finished solve.

    Attributes
    ----------
    embedding : (n, L) ndarray
        Coordinates in canonical position (`psmds_dist.core.stress.canonical`); as they are where they have a region.
    raw_embedding : (n, L) ndarray
        The same as the solver left them.
    stress : Stress
        Stress of ``embedding``.
    history : structured ndarray
        One row an epoch, columns as `HISTORY`.
    stop_reason : StopReason
        Why the solve ended.
    radius : float
        Radius of the last epoch.
    seed : int
        Seed of every random number.
    seconds : float
        Wall time of the solve with its final measurement.
    disparities : (2 or 3, knots) ndarray
        Where dissimilarities are transformed: knots, and disparities at them, or their lower and upper bounds. Else
        empty.
    """

    embedding: Floats
    raw_embedding: Floats
    stress: Stress
    history: NDArray[np.void]
    stop_reason: StopReason
    radius: float
    seed: int
    seconds: float
    disparities: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def merit(self) -> float:
        """What the best of several solves has least of: Stress-1 where there are disparities, else the error."""
        return self.stress.stress1 if self.disparities.size else self.stress.error

    def as_arrays(self) -> Arrays:
        """All of it, for a checkpoint."""
        return {
            name: np.asarray(value) for name, value in {**vars(self), **vars(self.stress)}.items() if name != "stress"
        }

    @classmethod
    def from_arrays(cls, saved: Arrays) -> Solution:
        """Inverse of `as_arrays`."""
        values = {name: array if array.ndim else array.item() for name, array in saved.items()}
        stress = Stress(**{name: values[name] for name in Stress.__dataclass_fields__})
        own = {name: values[name] for name in cls.__dataclass_fields__ if name != "stress"}
        return cls(**{**own, "stress": stress, "stop_reason": StopReason(values["stop_reason"])})


@dataclass
class _Progress:
    """State of the loop with its history and the best map met so far."""

    state: State
    began: float
    objective: Objective
    rows: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    best: tuple[float, Floats] = (np.inf, np.empty(0))
    outcome: StopReason | None = None
    unpolished: bool = False

    def record(self, report: EpochReport, radius: float, schedule: Schedule) -> EpochEvent:
        mse = schedule.mse(report)
        if report.error < self.best[0]:
            self.best = (report.error, self.state.x)
        seconds = time.perf_counter() - self.began
        row = (self.state.epoch + 1, radius, mse, seconds, report.moved / report.x.shape[1])
        self.rows.append(row)
        return EpochEvent(*row, end_radius=schedule.end_radius(mse), stress=schedule.stress(mse))

    def as_arrays(self) -> Arrays:
        """All that a later process needs to continue from here."""
        return {
            "x": self.state.x,
            "radius": np.float64(self.state.radius),
            "error": np.float64(self.state.error),
            "history": np.array(self.rows[: self.state.epoch], dtype=HISTORY),  # an interrupt may leave one too many
            "best_error": np.float64(self.best[0]),
            "best_x": self.best[1],
            "outcome": np.array(self.outcome or ""),
            **({"table": self.objective.kernels.table} if isinstance(self.objective, ScaledObjective) else {}),
        }

    def restore(self, saved: Arrays) -> None:
        """Inverse of `as_arrays`."""
        self.rows = saved["history"].tolist()
        self.state = State(saved["x"], float(saved["radius"]), len(self.rows), float(saved["error"]))
        self.best = (float(saved["best_error"]), saved["best_x"])
        self.outcome = StopReason(outcome) if (outcome := str(saved["outcome"])) else None
        self.began -= self.rows[-1][3]
        if isinstance(self.objective, ScaledObjective):
            self.objective = self.objective.with_table(saved["table"])

    def cut_short(self, reason: StopReason, stream: CheckpointStream) -> None:
        """End the solve, but save its state as that of one which continues."""
        if self.state.epoch:
            stream.save(self.state.epoch, self.as_arrays, now=True)
        self.outcome = reason if self.unpolished else self.outcome or reason

    def polish(self, schedule: Schedule, *, fully: bool) -> None:
        """Improve the last map; while that is unfinished, so is the solve."""
        self.unpolished = True
        state, objective, rule = self.state, self.objective, schedule.config.rule
        if fully:
            x = polished(objective, state.x, scale=schedule.scale)
        else:
            dtype, epochs = schedule.arithmetic(state.radius), state.epoch
            x = shortly_polished(objective, state.x, rule, radius=state.radius, epochs=epochs, dtype=dtype)
        self.state = replace(state, x=x)
        self.unpolished = False

    def refit(self, *, monotone: bool) -> None:
        """Fit to the last map what it is compared with, where anything is fitted; its error is another one then."""
        before = self.objective
        self.objective, error = before.refitted(self.state.x)
        if self.objective is not before:  # a monotone solve measures where it stands, to the last digit
            self.state = replace(self.state, error=np.inf if monotone else error)


def solve(
    source: RowSource,
    config: SolverConfig,
    executor: Executor,
    *,
    scale: float,
    budget: int,
    start: Floats | None = None,
    region: Region | None = None,
    on_epoch: OnEpoch | None = None,
    on_event: OnEvent = ignore,
    stream: CheckpointStream = NO_CHECKPOINT,
    scaling: Scaling | None = None,
    nearness: Nearness = NOWHERE,
) -> Solution:
    """Embed a dissimilarity matrix by pattern search.

    Parameters
    ----------
    source : RowSource
        Rows of a symmetric matrix with a zero diagonal, checked before.
    config : SolverConfig
        What to do.
    executor : Executor
        Where the work runs.
    scale : float
        Root mean square dissimilarity.
    budget : int
        Bytes a worker may spend on rows.
    start : (n, L) ndarray, optional
        Where to begin; uniform random coordinates of the same scale by default.
    region : Region, optional
        Where points may be; the start is placed there first.
    on_epoch : callable, optional
        Called after every epoch; returning True ends the solve.
    on_event : callable, optional
        Called after every epoch, and when the epochs, the polish and the measurement begin.
    stream : CheckpointStream, optional
        Where the state is saved after epochs; a solve continues from the last one there, to the same bits.
    scaling : Scaling, optional
        How dissimilarities are transformed, where the rule says that they are.
    nearness : Nearness, optional
        Which pairs are near, where the rule says that they weigh more.

    Returns
    -------
    Solution
        The last map, or the best one met on the way where that is better. An interrupt (Ctrl-C) or the loss of the
        cluster ends the solve with the best map so far; without a cluster its stress stays unknown.
    """
    began = time.perf_counter()
    objective = objective_of(source, config.rule, executor, scale, budget, scaling, nearness)
    objective = replace(objective, region=region)
    schedule = Schedule(config, scale, objective.rows.layout, source.dtype, share=region.share if region else 1.0)
    x = schedule.starting_points() if start is None else np.ascontiguousarray(start.T, float)
    x = region.placed(x) if region else x
    progress = _Progress(State(x, radius=config.radius or scale), began, objective)
    try:
        if (saved := stream.last()) is None and start is not None:
            progress.objective, _ = objective.refitted(x)
        if not config.rule.alike:
            schedule = schedule.counting(objective.measure(x))
        if saved is not None:
            progress.restore(saved)
        elif config.max_epochs:
            progress.state = _first_state(progress.objective, progress.state, schedule, given=start is not None)
            if region is not None and config.settles_first(source.n):
                progress.state = _settled_state(objective, progress.state, schedule)
            elif config.eases(source.n) and start is not None:
                on_event(StageEvent("polish"))
                progress.state = _eased_state(objective, progress.state, schedule)
        on_event(StageEvent("epochs", last=not config.polishes(source.n)))
        _loop(progress, schedule, partial(_told, on_epoch, on_event), stream)
        if progress.outcome is StopReason.RADIUS and config.polishes(source.n):
            on_event(StageEvent("polish"))
            progress.polish(schedule, fully=config.polishes_fully(source.n))
    except KeyboardInterrupt:
        progress.cut_short(StopReason.INTERRUPTED, stream)
    except WorkerError as error:
        if not progress.rows:
            raise
        progress.cut_short(StopReason.LOST if isinstance(error, ClusterLost) else StopReason.FATAL, stream)
    on_event(StageEvent("stress", last=True))
    return _finish(progress, schedule)


def _told(on_epoch: OnEpoch | None, on_event: OnEvent, event: EpochEvent) -> bool:
    """Tell of an epoch, and return whether the user ends the solve."""
    on_event(event)
    answer = on_epoch(event) if on_epoch is not None else None
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _loop(
    progress: _Progress,
    schedule: Schedule,
    ends: Callable[[EpochEvent], bool],
    stream: CheckpointStream,
) -> None:
    config = schedule.config
    run_epoch: Epoch = bad_moves_epoch if config.bad_moves else monotone_epoch
    progress.outcome = StopReason.EPOCHS if config.max_epochs == 0 else progress.outcome
    while progress.outcome is None:
        if _settles_again(progress, schedule):  # first, so that a resumed solve does so as well
            progress.polish(schedule, fully=True)
            progress.state = replace(progress.state, error=np.inf)  # measured anew, to the last digit
        plan = schedule.plan(progress.state)
        report = run_epoch(progress.objective, progress.state, plan)
        event = progress.record(report, plan.radius, schedule)
        progress.state, progress.outcome = schedule.advance(progress.state, report)
        if progress.outcome is StopReason.RADIUS or progress.state.radius < plan.radius:
            progress.refit(monotone=not config.bad_moves)
        stream.save(progress.state.epoch, progress.as_arrays)
        if ends(event):
            progress.outcome = progress.outcome or StopReason.CALLBACK


def _settles_again(progress: _Progress, schedule: Schedule) -> bool:
    """Whether a monotone solve is polished: where it comes to its last radius, and after some epochs there.

    Points that were cut to one place are parted by moves along axes, which are short for the rest of the way.
    """
    objective, radius = progress.objective, progress.state.radius
    if objective.region is None or progress.outcome is not None or not schedule.config.settles_first(schedule.layout.n):
        return False
    there = sum(row[1] == radius for row in progress.rows)
    return schedule.certifies(radius) and there % POLISH_EVERY == 0


def _first_state(objective: Objective, state: State, schedule: Schedule, *, given: bool) -> State:
    """State before the first epoch."""
    if schedule.config.radius is None:
        state = replace(state, radius=_starting_radius(objective, state.x, schedule))
    return schedule.jittered(state) if schedule.config.guided and given else state


def _settled_state(objective: Objective, state: State, schedule: Schedule) -> State:
    """State at a local minimum, and a radius, unless one is given, that does not leave its basin."""
    assert objective.region is not None
    draw = generator(schedule.config.seed, RandomStream.JITTER).random(state.x.shape)
    inside = objective.region.inside(state.x, 0.25 * draw, INWARD * schedule.scale)
    state = replace(state, x=polished(objective, inside, scale=schedule.scale))
    if schedule.config.radius is not None:
        return state
    near = max(SETTLED * _misplacement(objective, state.x, schedule.scale), LEAST * schedule.scale)
    return replace(state, radius=min(state.radius, near))


def _eased_state(objective: Objective, state: State, schedule: Schedule) -> State:
    """State on the way from a start of pairs that count alike, and a radius, unless one is given, to go on with."""
    x = polished(objective, state.x, scale=schedule.scale, max_steps=MANY_STEPS)
    if schedule.config.radius is not None:
        return replace(state, x=x)
    squares, weights = objective.measure(x)[:, 3:].sum(axis=0)
    return replace(state, x=x, radius=max(SETTLED * float(np.sqrt(squares / weights)), LEAST * schedule.scale))


def _starting_radius(objective: Objective, x: Floats, schedule: Schedule) -> float:
    """Search the starting radius on a sample of the matrix, from the sampled part of the same start."""
    if objective.region is not None:
        return _misplacement(objective, x, schedule.scale)
    rows = objective.rows
    blocks = schedule.sample_blocks()
    columns = points_of(rows.layout, blocks)
    (part,) = gather(objective.executor, SelectColumns(rows, columns), rows.layout, blocks)
    matrix = ArrayTable(np.ascontiguousarray(part), str(part.dtype))  # in memory, so it evicts no cached rows
    sample = Objective(
        CachedRows(matrix, budget=part.nbytes), InProcessExecutor(), objective.kernels.of_points(columns)
    )
    along_axes = replace(schedule.config, moves="axes")
    schedule = replace(schedule, config=along_axes, layout=sample.rows.layout)
    state = State(np.ascontiguousarray(x[:, columns]), schedule.scale)
    sums = sample.measure(state.x)
    if not counted_pairs(sums):
        return schedule.scale
    before = sums[:, 0].sum()

    def improves(radius: float) -> bool:
        trial = replace(state, radius=radius)
        after = bad_moves_epoch(sample, trial, schedule.plan(trial)).x
        return bool(sample.measure(after)[:, 0].sum() < before)

    return search_radius(schedule.scale, improves)


def _misplacement(objective: Objective, x: Floats, scale: float) -> float:
    """How far points may be from their places: the largest root mean square residual, a sample might have none of them.

    It is at most the scale, and the scale where there are no residuals.
    """
    assert objective.region is not None
    sums = objective.measure(x)
    plain = sums.shape[1] == 3
    squares, weights = (sums[:, 0], np.full(len(sums), len(sums) - 1.0)) if plain else (sums[:, 3], sums[:, 4])
    of_points = np.divide(squares, weights, out=np.zeros(len(sums)), where=weights > 0)
    return min(float(np.sqrt(of_points[objective.region.movable].max())), scale) or scale


def _finish(progress: _Progress, schedule: Schedule) -> Solution:
    """Measure the last map; take the best one met on the way instead where its error is lower, measured alike."""
    finish = partial(_solution, progress, schedule)
    found, (error, best) = finish(progress.state.x), progress.best
    if error < found.stress.error * (schedule.pairs or progress.state.x.shape[1] ** 2):
        other = finish(best)
        found = other if other.merit < found.merit else found
    return replace(found, seconds=time.perf_counter() - progress.began)


def _solution(progress: _Progress, schedule: Schedule, x: Floats) -> Solution:
    assert progress.outcome is not None
    embedding, stress, disparities = _measured(x, progress.objective, schedule.config.sample)
    return Solution(
        embedding=embedding,
        raw_embedding=np.ascontiguousarray(x.T),
        stress=stress,
        history=np.array(progress.rows, dtype=HISTORY),
        stop_reason=progress.outcome,
        radius=float(progress.rows[-1][1]) if progress.rows else progress.state.radius,
        seed=schedule.config.seed,
        seconds=0.0,
        disparities=disparities,
    )


def _measured(x: Floats, objective: Objective, sample: int | None) -> tuple[Floats, Stress, Floats]:
    """The map, in canonical position unless points have places, its stress, and the disparities that tell it."""
    embedding = canonical(x.T) if objective.region is None else np.ascontiguousarray(x.T)
    lines = np.ascontiguousarray(embedding.T)
    try:
        objective = objective.fitted(lines)
        stress = _stress(objective, lines, sample)
    except (KeyboardInterrupt, WorkerError):  # the map matters more than its figures
        return embedding, Stress.unknown(x.shape[1]), objective.curve
    return embedding, stress, objective.curve


def _stress(objective: Objective, x: Floats, sample: int | None) -> Stress:
    """Stress over all rows, or from a sample that is the same for every start, so that they can be compared."""
    n = x.shape[1]
    if sample is None or sample >= n:
        return Stress.from_row_sums(objective.measure(x))
    points = np.sort(measured_rows(n, sample))
    return Stress.from_sample(objective.measure_some(x, points), points, n)
