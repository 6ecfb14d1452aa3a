"""The landmark fit: choose, embed, place, refine, and evaluate."""

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
from landmarks.solver.memory import FitPlan, plan_fit
from landmarks.solver.multilevel import (
    LandmarkDissimilarities,
    LandmarkEmbedding,
    among_landmarks,
    map_landmarks,
)
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
from landmarks.solver.types import Clock, Data, FitInputs, LandmarkConfig, LandmarkFit, Tell
from landmarks.solver.warm import warm_up_landmarks
from psmds_dist.api.embed import warm_up
from psmds_dist.api.run import RunContext
from psmds_dist.core.events import OnEvent, StageEvent, ignore
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import KeepsChecks, RowSource
from psmds_dist.core.stress import Stress, principal, turned
from psmds_dist.core.types import Floats, InputCheck, InputError, Ints, StopReason
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.cache import stored
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.check import checked, require_complete
from psmds_dist.kernels.warm import warm_up_scan
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore
from psmds_dist.solver.solve import Solution, solve
from psmds_dist.solver.state_file import Identity
from psmds_dist.utils.signals import reraise_swallowed_interrupt

UNCHANGED = "the refinement left the map as it was: no pass lowered its stress on pairs that it is judged by"


def fit(
    data: Data,
    config: LandmarkConfig,
    executor: Executor,
    *,
    memory_limit: Any = None,
    tell: Tell = lambda text: None,
    on_event: OnEvent = ignore,
    checkpoint: CheckpointStore = NO_CHECKPOINT,
) -> LandmarkFit:
    """Embed landmarks, place all other points, and refine.

    A run whose checkpoint holds states of the same run continues from there, to the same bits.

    Raises
    ------
    InputError, BudgetError, WorkerError
        In a sentence each.
    """
    ids = None if data.ids is None else list(data.ids)

    def announce(plan: FitPlan) -> None:
        tell(plan.describe(executor.topology()))

    context = RunContext.of(executor, memory_limit, ids=ids, checkpoint=checkpoint, on_plan=announce, on_event=on_event)
    landmarks = choose_landmarks(data, config)
    if config.refine == "full":
        _whole(data)
    aside = set_aside(data, landmarks, config)
    if aside.size:
        tell(said_of(aside, landmarks, config))
    if config.refine == "panel":  # its judge must know pairs that landmarks do not move by
        landmarks, aside = without(landmarks, aside), aside[:0]
    plan = plan_fit(data, landmarks, config.n_components, config.refine, executor, context.limit)
    with reraise_swallowed_interrupt(), context.running(plan, data.input) as memory_used:
        found = _fit(data, landmarks, aside, config, context, plan, tell)
        memory = memory_used()
    return replace(found, peak_memory=memory.peak, over=memory.over)


def _fit(
    data: Data,
    landmarks: Ints,
    aside: Ints,
    config: LandmarkConfig,
    context: RunContext,
    plan: FitPlan,
    tell: Tell,
) -> LandmarkFit:
    """Check the matrix where all of it will be read, make the panel, and fit."""
    judge = judge_of(data, landmarks, config) if config.refine == "panel" else None
    clock = Clock(tell)
    check = identity = None
    if config.refine == "full":
        check = _checked(data, landmarks, context, clock)
        data = data.trusted()
    context.tell(StageEvent("panel"))
    with data.panel(landmarks, context.executor, context.limit, plan.keep) as panel:
        if context.checkpoint is not NO_CHECKPOINT:
            identity = _attach(panel, data.entries(landmarks), config, context)
        clock.end("panel")
        inputs = FitInputs(data, panel, landmarks, aside, config, context, plan, clock)
        return replace(_fit_panel(inputs, judge, check), identity=identity)


def _checked(data: Data, landmarks: Ints, context: RunContext, clock: Clock) -> InputCheck:
    """Input check of the whole matrix."""
    matrix = _whole(data)
    context.executor.warm_up(partial(warm_up_scan, matrix.dtype.name))
    clock.leave_out()
    told = partial(context.tell_part, "check")
    check = checked(matrix, context.executor, ids=context.ids, memory_limit=context.limit, on_progress=told)
    require_complete(check, "a full refinement (--refine full)", "embed through landmarks without a full refinement")
    refuse_huge(check.highest, matrix.dtype, None, data.trusted().entries(landmarks))
    clock.end("check")
    return check


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


def _attach(panel: RowSource, names: PanelEntries, config: LandmarkConfig, context: RunContext) -> Identity:
    """Attach the run to its checkpoint.

    A panel that is taken out of a matrix may lie in memory or on disk, as there is room: its content counts.
    """
    lies = isinstance(panel, KeepsChecks | ArrayTable)
    content = check_panel(panel, context.executor, names=names).digest if lies else panel.content_id
    settings = {**asdict(config), "landmarks": landmarks_digest(names.landmarks)}
    return context.attach(panel.n, panel.dtype.name, content, settings)


def _fit_panel(inputs: FitInputs, judge: ValidationStress | None, check: InputCheck | None) -> LandmarkFit:
    inputs.context.executor.warm_up(partial(warm_up_landmarks, inputs.config.n_components, inputs.panel.dtype.name))
    inputs.clock.leave_out()
    among, mapped = _mapped(inputs)
    frame, found = _placed(inputs, among, mapped)
    passes, solution, placed = 0, None, found[0]
    if judge is not None:
        frame, found, passes = _refined(inputs, among, frame, found, judge)
    refined = check is not None or not np.array_equal(found[0], placed)
    if judge is not None and not refined:
        inputs.clock.tell(UNCHANGED)
    if check is not None:
        solution = _polish(inputs, found, frame, check)
    inputs.context.executor.close()  # frees the rows: the evaluation needs their memory
    embedding, frame = _in_position(found, frame, inputs.landmarks, solution)
    inputs.context.tell(StageEvent("evaluation", last=True))
    estimate, curve = estimate_stress(inputs, among, embedding) if inputs.config.evaluate else (None, [])
    inputs.clock.end("evaluation")
    inputs.context.recorder.end(StopReason.PLACED if solution is None else solution.stop_reason)
    return LandmarkFit(
        embedding=embedding,
        landmarks=inputs.landmarks,
        frame=frame,
        landmark_stress=mapped.solution.stress.normalized_stress,
        agreement=mapped.agreement,
        aside=inputs.aside,
        residual=np.sqrt(found[1] / np.where(found[2] > 0, found[2], 1.0)),
        estimate=estimate,
        curve=curve,
        exact=_exact(mapped.solution, inputs.landmarks, inputs.panel.n) if solution is None else solution.stress,
        solution=solution,
        passes=passes,
        refined=refined,
        residual_rms=_residual_rms(found),
        config=inputs.config,
        seconds=inputs.clock.seconds,
    )


def _mapped(inputs: FitInputs) -> tuple[LandmarkDissimilarities, LandmarkEmbedding]:
    """The landmarks among themselves, embedded where the run was started."""
    among, config = (
        among_landmarks(inputs.panel, inputs.landmarks, inputs.data.entries(inputs.landmarks)),
        inputs.config,
    )
    inputs.context.tell(StageEvent("landmarks"))
    near = inputs.context.executor if isinstance(inputs.context.executor, InProcessExecutor) else InProcessExecutor()
    mapped = map_landmarks(among, config.n_components, config.seed, config.n_init, near)
    inputs.clock.end("landmarks")
    return among, mapped


def _placed(
    inputs: FitInputs, among: LandmarkDissimilarities, mapped: LandmarkEmbedding
) -> tuple[PlacementModel, Placement]:
    """All points placed against the landmarks."""
    frame = among.frame(mapped.solution.embedding, inputs.config.closed_form)
    work = Place(inputs.rows, frame, share=inputs.config.share, seated=inputs.landmarks)
    told, stream = partial(inputs.context.tell_part, "placement"), inputs.context.checkpoint.stream("placement")
    found = place_all(inputs.context.executor, work, stream, told)
    require_known(found[3], inputs.config.n_components, inputs.data.ids)
    require_finite(found, frame.scale, inputs.data.ids)
    _require_span(frame, found[0], inputs.data.ids)
    fix_landmarks(found, inputs.landmarks, frame, among.values)
    inputs.clock.end("placement")
    return frame, found


def _refined(
    inputs: FitInputs, among: LandmarkDissimilarities, frame: PlacementModel, found: Placement, judge: ValidationStress
) -> tuple[PlacementModel, Placement, int]:
    """Landmarks and all other points moved by the whole panel, and its passes."""
    inputs.context.tell(StageEvent("refinement"))
    stream = inputs.context.checkpoint.stream("refinement")
    refined = refine_panel(
        inputs.context.executor, inputs.rows, frame, among.values, inputs.landmarks, found, judge, stream
    )
    inputs.clock.end("refinement")
    return refined


def _exact(start: Solution, landmarks: Ints, n: int) -> Stress | None:
    """Stress over all pairs when every point is a landmark."""
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


def _polish(inputs: FitInputs, found: Placement, frame: PlacementModel, check: InputCheck) -> Solution:
    """Solve on the whole matrix from the placed points, with a small radius."""
    matrix, config = _whole(inputs.data), inputs.config
    assert inputs.plan.polish is not None
    held = stored(inputs.panel).nbytes if stored(inputs.panel).resident else 0
    settings = polish_config(config.n_components, config.seed, _residual_rms(found), frame.scale)
    warm_up(matrix, settings, inputs.context.executor)
    budget = inputs.plan.polish.budget - held
    solution = solve(
        matrix,
        settings,
        inputs.context.executor,
        scale=check.rms,
        budget=budget,
        start=found[0],
        stream=inputs.context.checkpoint.stream(f"polish-{check.digest}"),
        on_event=inputs.context.tell,
    )
    inputs.clock.end("refinement")
    return solution
