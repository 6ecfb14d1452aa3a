"""The landmark fit: choose, embed, place, refine, and gather the evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from landmarks.panel.build import check_panel
from landmarks.panel.check import PanelEntries, landmarks_digest, refuse_huge
from landmarks.panel.tables import ArrayTable
from landmarks.selection import choose
from landmarks.solver.evaluate import ValidationStress, estimate_stress, judge_of, said_of, set_aside, without
from landmarks.solver.memory import plan_fit
from landmarks.solver.multilevel import LandmarkDissimilarities, LandmarkEmbedding, among_landmarks, map_landmarks
from landmarks.solver.placement import (
    EXACT,
    Place,
    Placement,
    PlacementModel,
    fix_landmarks,
    place_all,
    point_name,
    require_finite,
    require_known,
)
from landmarks.solver.refine import polish_config, refine_panel
from landmarks.solver.types import Clock, Data, LandmarkConfig, LandmarkFit, Run, Tell
from landmarks.solver.warm import warm_up_landmarks
from psmds_dist.api.embed import identity_of, require_unchanged, warm_up
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import parse_bytes
from psmds_dist.core.sources import KeepsChecks, RowSource
from psmds_dist.core.stress import Stress, principal, turned
from psmds_dist.core.types import Floats, InputCheck, InputError, Ints
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.cache import stored
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.check import checked
from psmds_dist.kernels.warm import warm_up_scan
from psmds_dist.planning.memory import exceeded
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore, Identity
from psmds_dist.solver.solve import Solution, solve
from psmds_dist.utils.signals import reraise_swallowed_interrupt

UNCHANGED = "the refinement left the map as it was: no pass lowered its stress on pairs that it is judged by"


@reraise_swallowed_interrupt()
def fit(
    data: Data,
    config: LandmarkConfig,
    executor: Executor,
    *,
    memory_limit: Any = None,
    tell: Tell = lambda text: None,
    checkpoint: CheckpointStore = NO_CHECKPOINT,
) -> LandmarkFit:
    """Embed landmarks, place everybody else, and refine.

    A run with a checkpoint that holds states of the same run goes on from there, to the same bits.

    Raises
    ------
    InputError, BudgetError, WorkerError
        In a sentence each.
    """
    limit = executor.memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    landmarks = choose_landmarks(data, config)
    matrix = _whole(data) if config.refine == "full" else None
    aside = set_aside(data, landmarks, config)
    if aside.size:
        tell(said_of(aside, landmarks, config))
    if config.refine == "panel":  # its judge must know pairs that landmarks do not move by
        landmarks, aside = without(landmarks, aside), aside[:0]
    plan = plan_fit(data, landmarks, config.n_components, config.refine, executor, limit)
    tell(plan.describe())
    judge = judge_of(data, landmarks, config) if config.refine == "panel" else None
    before = executor.memory_usage()
    clock = Clock(tell)
    check = identity = None
    try:
        if matrix is not None:
            executor.warm_up(partial(warm_up_scan, matrix.dtype.name))
            clock.leave_out()
            names = None if data.ids is None else list(data.ids)
            check, data = checked(matrix, executor, ids=names, memory_limit=limit), data.trusted()
            refuse_huge(check.highest, matrix.dtype, None, data.entries(landmarks))
            clock.end("check")
        with data.panel(landmarks, executor, limit, plan.keep) as panel:
            if checkpoint is not NO_CHECKPOINT:
                identity = _identity(panel, data.entries(landmarks), config, executor)
                checkpoint.attach(identity)
            clock.end("panel")
            run = Run(data, panel, landmarks, aside, config, executor, plan, clock, checkpoint)
            found = _fit_panel(run, judge, check)
        require_unchanged(data.input, checkpoint)
        peak = executor.peak_memory()
        return replace(found, peak_memory=peak, over=exceeded(limit, before, peak), identity=identity)
    finally:
        executor.close()


def choose_landmarks(data: Data, config: LandmarkConfig) -> Ints:
    """Landmarks of a fit: the user's own, or chosen."""
    if config.landmarks is not None:
        landmarks = check_landmarks(config.landmarks, data.n)
        outside = np.setdiff1d(landmarks, data.candidates) if data.candidates is not None else landmarks[:0]
        if outside.size:
            raise InputError(f"landmarks lists {int(outside[0])}, which has no column in the panel: leave it out.")
        if config.n_landmarks not in (None, landmarks.size):
            raise InputError(
                f"n_landmarks is {config.n_landmarks}, but landmarks lists {landmarks.size}: give one of them."
            )
    else:
        count = data.default_n_landmarks if config.n_landmarks is None else int(config.n_landmarks)
        if data.candidates is not None and count == data.candidates.size:
            return data.candidates
        landmarks = choose(data.n, count, config.selection, config.seed, partial(_distances, data), data.candidates)
        if data.candidates is not None:
            landmarks = data.candidates[np.isin(data.candidates, landmarks)]  # in the order of their columns
    if landmarks.size < config.n_components + 1:
        raise InputError(
            f"{landmarks.size} landmarks cannot place points in {config.n_components} dimensions: at least "
            f"n_components + 1 = {config.n_components + 1} are needed, and many more are better."
        )
    return landmarks


def _distances(data: Data, i: int, candidates: Ints) -> Floats:
    found: Floats = data.between(np.array([i]), candidates)[0]
    return found


def _identity(panel: RowSource, names: PanelEntries, config: LandmarkConfig, executor: Executor) -> Identity:
    """What must be the same for a run to go on where another stopped.

    A panel that is taken out of a matrix may lie in memory or on disk, as there is room: its content counts.
    """
    lies = isinstance(panel, KeepsChecks | ArrayTable)
    content = check_panel(panel, executor, names=names).digest if lies else panel.content_id
    settings = {**asdict(config), "landmarks": landmarks_digest(names.landmarks)}
    return identity_of(panel.n, panel.dtype.name, content, settings)


def _fit_panel(run: Run, judge: ValidationStress | None, check: InputCheck | None) -> LandmarkFit:
    run.executor.warm_up(partial(warm_up_landmarks, run.config.n_components, run.panel.dtype.name))
    run.clock.leave_out()
    among, mapped = _mapped(run)
    frame, found = _placed(run, among, mapped)
    passes, solution, placed = 0, None, found[0]
    if judge is not None:
        frame, found, passes = _refined(run, among, frame, found, judge)
    refined = check is not None or not np.array_equal(found[0], placed)
    if judge is not None and not refined:
        run.clock.tell(UNCHANGED)
    if check is not None:
        solution = _polish(run, found, frame, check)
    run.executor.close()  # the rows go: what follows needs their place
    embedding, frame = _in_position(found, frame, run.landmarks, solution)
    estimate, curve = estimate_stress(run, among, embedding) if run.config.evaluate else (None, [])
    run.clock.end("evaluation")
    return LandmarkFit(
        embedding=embedding,
        landmarks=run.landmarks,
        frame=frame,
        landmark_stress=mapped.solution.stress.normalized_stress,
        agreement=mapped.agreement,
        aside=run.aside,
        residual=np.sqrt(found[1] / np.where(found[2] > 0, found[2], 1.0)),
        estimate=estimate,
        curve=curve,
        exact=_exact(mapped.solution, run.landmarks, run.panel.n) if solution is None else solution.stress,
        solution=solution,
        passes=passes,
        refined=refined,
        residual_rms=_residual_rms(found),
        config=run.config,
        seconds=run.clock.seconds,
    )


def _mapped(run: Run) -> tuple[LandmarkDissimilarities, LandmarkEmbedding]:
    """The landmarks among themselves, embedded where the run was started."""
    among, config = among_landmarks(run.panel, run.landmarks, run.data.entries(run.landmarks)), run.config
    near = run.executor if isinstance(run.executor, InProcessExecutor) else InProcessExecutor()
    mapped = map_landmarks(among, config.n_components, config.seed, config.n_init, near, rough=config.passing)
    run.clock.end("landmarks")
    return among, mapped


def _placed(run: Run, among: LandmarkDissimilarities, mapped: LandmarkEmbedding) -> tuple[PlacementModel, Placement]:
    """Everybody placed against the landmarks."""
    frame = among.frame(mapped.solution.embedding, run.config.closed_form)
    work = Place(run.held, frame, share=run.config.share, seated=run.landmarks)
    found = place_all(run.executor, work, run.checkpoint.stream("placement"))
    require_known(found[3], run.config.n_components, run.data.ids)
    require_finite(found, frame.scale, run.data.ids)
    _require_span(frame, found[0], run.data.ids)
    fix_landmarks(found, run.landmarks, frame, among.values)
    run.clock.end("placement")
    return frame, found


def _refined(
    run: Run, among: LandmarkDissimilarities, frame: PlacementModel, found: Placement, judge: ValidationStress
) -> tuple[PlacementModel, Placement, int]:
    """Landmarks and everybody else moved by the whole panel, and its passes."""
    kept = run.checkpoint.stream("refinement")
    refined = refine_panel(run.executor, run.held, frame, among.values, run.landmarks, found, judge, kept)
    run.clock.end("refinement")
    return refined


def _exact(start: Solution, landmarks: Ints, n: int) -> Stress | None:
    """Stress over all pairs when everybody is a landmark."""
    if landmarks.size < n:
        return None
    return replace(start.stress, point_stress=start.stress.point_stress[np.argsort(landmarks)])


def _residual_rms(found: Placement) -> float:
    return math.sqrt(float(found[1].sum()) / int(found[3].sum()))


def _in_position(
    found: Placement, frame: PlacementModel, landmarks: Ints, solution: Solution | None
) -> tuple[Floats, PlacementModel]:
    """The map in canonical position, and a frame that places new points into it.

    Unless everyone was polished, the frame is the one that placed the points, turned: it finds them again.
    """
    if solution is not None:
        return solution.embedding, PlacementModel.of(solution.embedding[landmarks], frame.scale)
    centre, axes = principal(found[0])
    return turned(found[0], centre, axes), replace(frame, centre=centre, axes=axes)


def _require_span(frame: PlacementModel, x: Floats, ids: Sequence[str] | None) -> None:
    """Refuse landmarks on a line (or plane) when points are off it: they cannot tell one side from the other."""
    off = np.abs(x[:, frame.rank :]).max(axis=1, initial=0)  # landmarks lie on their principal axes
    if off.max() > EXACT * frame.scale:
        point = int(off.argmax())
        raise InputError(
            f"the landmarks span only {frame.rank} of {frame.y.shape[0]} dimensions, but other points lie off that "
            f"span, on either side for all they tell, {point_name(point, ids)} the farthest: choose more or other "
            "landmarks (selection='maxmin'), or fewer n_components."
        )


def _whole(data: Data) -> RowSource:
    if data.matrix is None:
        raise InputError("refine='full' needs the whole matrix of dissimilarities: use refine='panel' or 'none'.")
    return data.matrix


def _polish(run: Run, found: Placement, frame: PlacementModel, check: InputCheck) -> Solution:
    """Solve on the whole matrix from the placed points, with a small radius."""
    matrix, config = _whole(run.data), run.config
    assert run.plan.polish is not None
    held = stored(run.panel).nbytes if stored(run.panel).resident else 0
    settings = polish_config(config.n_components, config.seed, _residual_rms(found), frame.scale)
    warm_up(matrix, settings, run.executor)
    kept = run.checkpoint.stream(f"polish-{check.digest}")
    budget = run.plan.polish.budget - held
    solution = solve(matrix, settings, run.executor, scale=check.rms, budget=budget, start=found[0], kept=kept)
    run.clock.end("refinement")
    return solution
