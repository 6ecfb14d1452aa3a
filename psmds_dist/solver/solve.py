"""The one loop: plan an epoch, run it, take its report, until a reason to stop."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.config import SolverConfig
from psmds_dist.core.events import EpochEvent, OnEpoch
from psmds_dist.core.sources import RowSource
from psmds_dist.core.stress import Stress, canonical
from psmds_dist.core.types import ClusterLost, Executor, Floats, StopReason, WorkerError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver import schedule
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, Arrays, CheckpointStream
from psmds_dist.solver.epoch import Epoch, Objective, bad_moves_epoch, monotone_epoch
from psmds_dist.solver.schedule import EpochReport, State
from psmds_dist.solver.tasks import CachedRows, SelectColumns, gather, points_of

HISTORY = np.dtype([("epoch", "i8"), ("radius", "f8"), ("mse", "f8"), ("seconds", "f8"), ("moved", "f8")])
"""Columns of a solve's history."""


@dataclass(frozen=True)
class Solution:
    """A finished solve.

    Attributes
    ----------
    embedding : (n, L) ndarray
        Coordinates in canonical position (`psmds_dist.core.stress.canonical`).
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
    """

    embedding: Floats
    raw_embedding: Floats
    stress: Stress
    history: NDArray[np.void]
    stop_reason: StopReason
    radius: float
    seed: int
    seconds: float

    def as_arrays(self) -> Arrays:
        """All of it, for a checkpoint."""
        return {
            name: np.asarray(value) for name, value in {**vars(self), **vars(self.stress)}.items() if name != "stress"
        }

    @classmethod
    def from_arrays(cls, kept: Arrays) -> Solution:
        """Inverse of `as_arrays`."""
        whole = {name: values if values.ndim else values.item() for name, values in kept.items()}
        stress = Stress(**{name: whole[name] for name in Stress.__dataclass_fields__})
        own = {name: whole[name] for name in cls.__dataclass_fields__ if name != "stress"}
        return cls(**{**own, "stress": stress, "stop_reason": StopReason(whole["stop_reason"])})


@dataclass
class _Run:
    """What the loop keeps besides the state: history, and the best map met so far."""

    state: State
    began: float
    rows: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    best: tuple[float, Floats] = (np.inf, np.empty(0))
    outcome: StopReason | None = None

    def record(self, report: EpochReport, radius: float, end_radius: float) -> EpochEvent:
        n = report.x.shape[1]
        if report.error < self.best[0]:
            self.best = (report.error, self.state.x)
        row = (
            self.state.epoch + 1,
            radius,
            report.mse,
            time.perf_counter() - self.began,
            report.moved / n,
        )
        self.rows.append(row)
        return EpochEvent(*row, end_radius=end_radius)

    def as_arrays(self) -> Arrays:
        """All that a later process needs to go on from here."""
        return {
            "x": self.state.x,
            "radius": np.float64(self.state.radius),
            "error": np.float64(self.state.error),
            "history": np.array(self.rows[: self.state.epoch], dtype=HISTORY),  # an interrupt may leave one too many
            "best_error": np.float64(self.best[0]),
            "best_x": self.best[1],
            "outcome": np.array(self.outcome or ""),
        }

    def restore(self, kept: Arrays) -> None:
        """Inverse of `as_arrays`."""
        self.rows = kept["history"].tolist()
        self.state = State(kept["x"], float(kept["radius"]), len(self.rows), float(kept["error"]))
        self.best = (float(kept["best_error"]), kept["best_x"])
        self.outcome = StopReason(outcome) if (outcome := str(kept["outcome"])) else None
        self.began -= self.rows[-1][3]


def solve(
    source: RowSource,
    config: SolverConfig,
    executor: Executor,
    *,
    scale: float,
    budget: int,
    start: Floats | None = None,
    on_epoch: OnEpoch | None = None,
    kept: CheckpointStream = NO_CHECKPOINT,
) -> Solution:
    """Embed a dissimilarity matrix by pattern search.

    Parameters
    ----------
    source : RowSource
        Rows of a symmetric matrix with a zero diagonal, checked before.
    config : SolverConfig
        What to do.
    executor : Executor
        Who does it.
    scale : float
        Root mean square dissimilarity.
    budget : int
        Bytes a worker may spend on rows.
    start : (n, L) ndarray, optional
        Where to begin; uniform random coordinates of the same scale by default.
    on_epoch : callable, optional
        Told of every epoch; returning True ends the solve.
    kept : CheckpointStream, optional
        Where its state is kept after epochs; a solve goes on from the last one there, to the same bits.

    Returns
    -------
    Solution
        The last map, or the best one met on the way where that is better. An interrupt (Ctrl-C) or the loss of the
        cluster ends the solve with the best map so far; without a cluster its stress stays unknown.
    """
    task = Objective(CachedRows(source, budget), executor)
    began = time.perf_counter()
    x = schedule.starting_points(source.n, config, scale) if start is None else np.ascontiguousarray(start.T, float)
    run = _Run(State(x, radius=config.radius or scale), began)
    try:
        if (saved := kept.last()) is not None:
            run.restore(saved)
        elif config.max_epochs:
            run.state = _first_state(task, run.state, config, scale, given=start is not None)
        _loop(run, task, config, scale, on_epoch, kept)
    except KeyboardInterrupt:
        _cut_short(run, StopReason.INTERRUPTED, kept)
    except WorkerError as error:
        if not run.rows:
            raise
        _cut_short(run, StopReason.LOST if isinstance(error, ClusterLost) else StopReason.FATAL, kept)
    return _finish(run, task, config)


def _cut_short(run: _Run, why: StopReason, kept: CheckpointStream) -> None:
    """End a solve, but keep its state as that of one which goes on."""
    if run.state.epoch:
        kept.save(run.state.epoch, run.as_arrays, now=True)
    run.outcome = run.outcome or why


def _loop(
    run: _Run, task: Objective, config: SolverConfig, scale: float, on_epoch: OnEpoch | None, kept: CheckpointStream
) -> None:
    epoch: Epoch = bad_moves_epoch if config.bad_moves else monotone_epoch
    run.outcome = StopReason.EPOCHS if config.max_epochs == 0 else run.outcome
    while run.outcome is None:
        plan = schedule.plan_epoch(run.state, config, task.rows.layout, scale, task.rows.source.dtype)
        report = epoch(task, run.state, plan)
        event = run.record(report, plan.radius, schedule.end_radius(config, scale, report.mse))
        run.state, run.outcome = schedule.advance(run.state, report, config, scale)
        kept.save(run.state.epoch, run.as_arrays)
        answer = on_epoch(event) if on_epoch is not None else None
        if isinstance(answer, bool | np.bool_) and answer:
            run.outcome = run.outcome or StopReason.CALLBACK


def _first_state(task: Objective, state: State, config: SolverConfig, scale: float, *, given: bool) -> State:
    """Where the first epoch begins."""
    if config.radius is None:
        state = replace(state, radius=_starting_radius(task, state.x, replace(config, moves="axes"), scale))
    if config.guided and given:
        state = replace(state, x=schedule.jittered(state.x, state.radius, config.seed))
    return state


def _starting_radius(task: Objective, x: Floats, config: SolverConfig, scale: float) -> float:
    """Search the starting radius on a sample of the matrix, from the sampled part of the same start."""
    blocks = schedule.sample_blocks(task.rows.layout, config.seed)
    columns = points_of(task.rows.layout, blocks)
    (part,) = gather(task.executor, SelectColumns(task.rows, columns), task.rows.layout, blocks)
    matrix = ArrayRows(np.ascontiguousarray(part), str(part.dtype))  # resident, so it pushes no held rows out
    sample = Objective(CachedRows(matrix, budget=part.nbytes), InProcessExecutor())
    state = State(np.ascontiguousarray(x[:, columns]), scale)
    before = sample.measure(state.x)[:, 0].sum()

    def improves(radius: float) -> bool:
        trial = replace(state, radius=radius)
        plan = schedule.plan_epoch(trial, config, sample.rows.layout, scale, part.dtype)
        after = bad_moves_epoch(sample, trial, plan).x
        return bool(sample.measure(after)[:, 0].sum() < before)

    return schedule.search_radius(scale, improves)


def _finish(run: _Run, task: Objective, config: SolverConfig) -> Solution:
    """Measure the last map; take the best one met on the way instead where its exact error is lower."""
    embedding, stress = _measured(run.state.x, task)
    raw = run.state.x
    n = raw.shape[1]
    if run.best[0] < stress.mse * n**2:
        other, other_stress = _measured(run.best[1], task)
        if other_stress.mse < stress.mse:
            embedding, stress, raw = other, other_stress, run.best[1]
    assert run.outcome is not None
    return Solution(
        embedding=embedding,
        raw_embedding=np.ascontiguousarray(raw.T),
        stress=stress,
        history=np.array(run.rows, dtype=HISTORY),
        stop_reason=run.outcome,
        radius=float(run.rows[-1][1]) if run.rows else run.state.radius,
        seed=config.seed,
        seconds=time.perf_counter() - run.began,
    )


def _measured(x: Floats, task: Objective) -> tuple[Floats, Stress]:
    embedding = canonical(x.T)
    try:
        sums = task.measure(np.ascontiguousarray(embedding.T))
    except (KeyboardInterrupt, WorkerError):  # the map matters more than its figures
        return embedding, Stress.unknown(x.shape[1])
    return embedding, Stress.from_row_sums(sums)
