"""The landmark fit: choose, embed, place, refine, and gather the evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from landmarks.building import check_panel
from landmarks.evidence import COLUMNS, ROWS, HeldOut, StressEstimate, estimate
from landmarks.levels import Among, among_landmarks, map_landmarks
from landmarks.panelcheck import landmarks_digest
from landmarks.place import (
    EXACT,
    ROUGH,
    SHARE,
    Frame,
    Place,
    Placement,
    place,
    place_all,
    point_name,
    require_known,
    seat,
)
from landmarks.plan import FitPlan, plan_fit
from landmarks.refine import polish_config, refine_panel
from landmarks.selection import choose, require_method
from landmarks.tables import ArrayPanel, Panel, picked
from landmarks.warm import warm_up_landmarks
from psmds_dist.block import Held
from psmds_dist.checkpoint import NOWHERE, Identity, Keeper
from psmds_dist.config import SolverConfig, whole
from psmds_dist.executor import AnyExecutor, InProcessExecutor
from psmds_dist.indices import check_landmarks
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.partition import parse_bytes
from psmds_dist.plan import Needs, Stored, exceeded
from psmds_dist.quality import Stress, principal, turned
from psmds_dist.rows import stored
from psmds_dist.run import checked, identity_of, require_unchanged, warm_up
from psmds_dist.schedule import generator
from psmds_dist.solve import Solution, solve
from psmds_dist.types import Floats, InputCheck, InputError, Ints, Rows, RowSource

HOLD_OUT, JUDGE, FEWER = 17, 18, 20
"""Streams of random numbers that pick the held-out pairs, for the evidence and for a refinement to judge by, and some
of a panel's landmarks, which may come in any order."""

REFINEMENTS = ("none", "panel", "full")
Tell = Callable[[str], object]
Judge = Callable[[Floats], float]


class Data(Protocol):
    """What a landmark fit needs to know of the data."""

    @property
    def input(self) -> object:
        """What is read."""

    @property
    def n(self) -> int:
        """Number of points."""

    @property
    def columns(self) -> int:
        """Columns of what was handed over."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the dissimilarities."""

    @property
    def ids(self) -> list[str] | None:
        """Row names that came with the data."""

    @property
    def metric(self) -> str:
        """How dissimilarities of new points come about."""

    @property
    def metric_params(self) -> Mapping[str, Any]:
        """Parameters of the metric."""

    def features(self, points: Ints) -> Floats | None:
        """Coordinates of some points in the space that the metric measures; None when precomputed."""

    @property
    def matrix(self) -> RowSource | None:
        """The whole matrix, where there is one: a full refinement polishes against it."""

    @property
    def pool(self) -> Ints | None:
        """Points that can be landmarks; None for all."""

    @property
    def usual(self) -> int:
        """Number of landmarks when nobody said."""

    @property
    def origin(self) -> str:
        """How a pass over the panel comes by rows that are not kept."""

    def stored(self, landmarks: Ints) -> Stored:
        """How the panel will lie, for planning."""

    def making(self, landmarks: Ints) -> Needs | None:
        """What it takes to make the panel, where that is done once."""

    def trusted(self) -> Data:
        """The same once the whole matrix has passed its check, so that what is taken out of it needs none."""

    def columns_with(self, landmarks: Ints) -> Ints | None:
        """Columns of a panel that hold the landmarks; None for what is no panel."""

    def panel(self, landmarks: Ints, executor: AnyExecutor, limit: int, keep: int) -> AbstractContextManager[Panel]:
        """Dissimilarities of all points to some landmarks; ``keep`` bytes may hold what is made only once."""

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Dissimilarities between two lists of points, NaN where unknown."""

    def hold_out(self, landmarks: Ints, rows: Ints, columns: Ints, share: slice) -> HeldOut | None:
        """Pairs for the evidence, given candidates that are no landmarks; None when nothing is known of them.

        Where only few points can be in such pairs, ``share`` tells which of these.
        """

    def set_aside(self, landmarks: Ints, seed: int) -> Ints:
        """Landmarks that evidence can be gathered without, where no pairs of other points are known."""


@dataclass(frozen=True)
class LandmarkConfig:
    """What a landmark fit is asked to do; see `landmarks.LandmarkMDS` for the meaning of each."""

    n_components: int = 2
    n_landmarks: int | None = None
    landmarks: Sequence[int] | None = None
    selection: str = "random"
    n_init: int = 2
    closed_form: str = "least_squares"
    refine: str = "none"
    evidence: bool = True
    seed: int = 0
    rough: bool = False
    """Whether the map only serves as a start, so that points need not be placed to the last digit."""

    def __post_init__(self) -> None:
        plain = SolverConfig(n_components=self.n_components, seed=self.seed)
        object.__setattr__(self, "n_components", plain.n_components)  # NumPy's small integers would overflow
        if self.refine not in REFINEMENTS:
            raise InputError(f"refine must be one of {', '.join(map(repr, REFINEMENTS))}, not {self.refine!r}.")
        if self.closed_form not in ("least_squares", "classical"):
            raise InputError(f"closed_form must be 'least_squares' or 'classical', not {self.closed_form!r}.")
        require_method(self.selection)
        whole("n_init", self.n_init, 1)
        if self.n_landmarks is not None:
            whole("n_landmarks", self.n_landmarks, 1)

    @property
    def passing(self) -> bool:
        """Whether all points move again on the whole matrix, so that their places need not be fine."""
        return self.rough or self.refine == "full"

    @property
    def share(self) -> float:
        """Radius at which a point is placed, as a share of its residual."""
        return ROUGH if self.passing else SHARE


@dataclass(frozen=True)
class CurvePoint:
    """Stress with fewer landmarks."""

    n_landmarks: int
    stress: StressEstimate


@dataclass(frozen=True)
class LandmarkFit:
    """A finished landmark fit.

    Attributes
    ----------
    embedding : (n, L) ndarray
        Coordinates of all points in canonical position.
    landmarks : (S,) int64
        Row indices of the landmarks.
    frame : Frame
        Landmark coordinates in the same position, to place new points.
    landmark_stress : float
        Normalised stress of the landmarks among themselves.
    agreement : (n_init - 1,) ndarray
        Procrustes disparity of the other starts to the best.
    aside : (k,) int64
        Of the landmarks, those that the evidence was gathered without.
    residual : (n,) ndarray
        ``sqrt(sum_s (t - d)^2 / sum_s t^2)`` of each point against the landmarks.
    estimate : StressEstimate or None
        Stress on held-out pairs.
    curve : list of CurvePoint
        Stress against the number of landmarks.
    exact : Stress or None
        Stress over all pairs, after a full refinement.
    solution : Solution or None
        The polish on the whole matrix.
    passes : int
        Passes over the panel by the refinement.
    residual_rms : float
        Root mean square residual of all points against the landmarks.
    seconds : dict
        Time of each stage.
    peak_memory : dict
        Peak resident bytes of each process that worked.
    over : dict
        Bytes by which some of them took more than planned, see `psmds_dist.plan.exceeded`.
    identity : mapping or None
        What must be the same for a run to be this one, where a checkpoint asked for it.
    """

    embedding: Floats
    landmarks: Ints
    frame: Frame
    landmark_stress: float
    agreement: Floats
    aside: Ints
    residual: Floats
    estimate: StressEstimate | None
    curve: list[CurvePoint]
    exact: Stress | None
    solution: Solution | None
    passes: int
    residual_rms: float
    config: LandmarkConfig
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    identity: Identity | None = None

    @property
    def stop_reason(self) -> str:
        """Why the full refinement ended; ``"placed"`` without one."""
        return "placed" if self.solution is None else str(self.solution.stop_reason)

    @property
    def stress(self) -> Stress:
        """Stress over all pairs after a full refinement, else estimated on held-out pairs, else NaN."""
        n = len(self.embedding)
        if self.exact is not None:
            return self.exact
        if self.estimate is None:
            return replace(Stress.unknown(n), point_stress=self.residual)
        pairs = n * (n - 1) / 2
        return Stress(
            mse=self.estimate.mse * 2 * pairs / n**2,
            raw_stress=self.estimate.mse * pairs,
            stress1=self.estimate.stress1,
            normalized_stress=self.estimate.normalized_stress,
            point_stress=self.residual,
        )


class Clock:
    """Seconds of each stage, told as they end."""

    def __init__(self, tell: Tell) -> None:
        self.seconds: dict[str, float] = {}
        self._tell = tell
        self._last = time.perf_counter()

    def end(self, stage: str) -> None:
        """A stage has ended."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._tell(f"{stage}: {now - self._last:.2f} s")
        self._last = now


def fit(
    data: Data,
    config: LandmarkConfig,
    executor: AnyExecutor,
    *,
    memory_limit: Any = None,
    ids: Sequence[str] | None = None,
    tell: Tell = lambda text: None,
    checkpoint: Keeper = NOWHERE,
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
    aside = _set_aside(data, landmarks, config)
    if aside.size:
        tell(_said_of(aside, landmarks, config))
    if config.refine == "panel":  # its judge must know pairs that landmarks do not move by
        landmarks, aside = without(landmarks, aside), aside[:0]
    plan = plan_fit(data, landmarks, config.n_components, config.refine, executor, limit)
    tell(plan.describe())
    judge = _judge(data, landmarks, config) if config.refine == "panel" else None
    before = executor.memory()
    clock = Clock(tell)
    check = identity = None
    try:
        if matrix is not None:
            check, data = checked(matrix, executor, None if ids is None else list(ids), limit), data.trusted()
            clock.end("check")
        with data.panel(landmarks, executor, limit, plan.keep) as panel:
            if checkpoint is not NOWHERE:
                identity = _identity(panel, landmarks, config, executor)
                checkpoint.bind(identity)
            clock.end("panel")
            run = Run(data, panel, landmarks, aside, config, executor, plan, ids, clock, checkpoint)
            found = _fit_panel(run, judge, check)
        require_unchanged(data.input, checkpoint)
        peak = executor.peak_memory()
        return replace(found, peak_memory=peak, over=exceeded(limit, before, peak), identity=identity)
    finally:
        executor.close()


@dataclass(frozen=True)
class Run:
    """What the stages of a fit work with."""

    data: Data
    panel: Panel
    landmarks: Ints
    aside: Ints
    config: LandmarkConfig
    executor: AnyExecutor
    plan: FitPlan
    ids: Sequence[str] | None
    clock: Clock
    checkpoint: Keeper


def without(landmarks: Ints, some: Ints) -> Ints:
    """Landmarks that are not among some, in their order."""
    return landmarks[~np.isin(landmarks, some)]


def _said_of(aside: Ints, landmarks: Ints, config: LandmarkConfig) -> str:
    some = f"{aside.size} of the {landmarks.size} landmarks of the panel"
    if config.refine == "panel":
        return f"{some} are left out of the map: refinement and evidence are judged by them"
    return f"{some} are left out of a map of some points that serves as evidence; the map itself uses all"


def _set_aside(data: Data, landmarks: Ints, config: LandmarkConfig) -> Ints:
    """Landmarks that the evidence, or the judge of a refinement, does without."""
    aside = data.set_aside(landmarks, config.seed) if config.evidence or config.refine == "panel" else landmarks[:0]
    return aside if landmarks.size - aside.size > 2 * config.n_components else landmarks[:0]


def choose_landmarks(data: Data, config: LandmarkConfig) -> Ints:
    """Landmarks of a fit: the user's own, or chosen."""
    if config.landmarks is not None:
        landmarks = check_landmarks(config.landmarks, data.n)
        outside = np.setdiff1d(landmarks, data.pool) if data.pool is not None else landmarks[:0]
        if outside.size:
            raise InputError(f"landmarks lists {int(outside[0])}, which has no column in the panel: leave it out.")
        if config.n_landmarks not in (None, landmarks.size):
            raise InputError(
                f"n_landmarks is {config.n_landmarks}, but landmarks lists {landmarks.size}: give one of them."
            )
    else:
        count = data.usual if config.n_landmarks is None else int(config.n_landmarks)
        if data.pool is not None and count == data.pool.size:
            return data.pool
        landmarks = choose(data.n, count, config.selection, config.seed, partial(_distances, data), data.pool)
        if data.pool is not None:
            landmarks = data.pool[np.isin(data.pool, landmarks)]  # in the order of their columns
    if landmarks.size < config.n_components + 1:
        raise InputError(
            f"{landmarks.size} landmarks cannot place points in {config.n_components} dimensions: at least "
            f"n_components + 1 = {config.n_components + 1} are needed, and many more are better."
        )
    return landmarks


def _distances(data: Data, i: int, candidates: Ints) -> Floats:
    found: Floats = data.between(np.array([i]), candidates)[0]
    return found


def _identity(panel: Panel, landmarks: Ints, config: LandmarkConfig, executor: AnyExecutor) -> Identity:
    """What must be the same for a run to go on where another stopped.

    A panel that is taken out of a matrix may lie in memory or on disk, as there is room: its content counts.
    """
    lies = hasattr(panel, "fingerprint") or isinstance(panel, ArrayPanel)
    content = check_panel(panel, executor).digest if lies else panel.token
    settings = {**asdict(config), "landmarks": landmarks_digest(landmarks)}
    return identity_of(panel.n, panel.dtype.name, content, settings)


def _fit_panel(run: Run, judge: Judge | None, check: InputCheck | None) -> LandmarkFit:
    run.executor.prepare(partial(warm_up_landmarks, run.config.n_components, run.panel.dtype.name))
    config, executor, landmarks, clock, ids = run.config, run.executor, run.landmarks, run.clock, run.ids
    among = among_landmarks(run.panel, landmarks, ids)
    near = executor if isinstance(executor, InProcessExecutor) else InProcessExecutor()
    mapped = map_landmarks(among, config.n_components, config.seed, config.n_init, near, rough=config.passing)
    clock.end("landmarks")
    frame = _framed(mapped.solution.embedding, among, config)
    held = Held(run.panel, run.plan.panel.budget)
    work = Place(held, frame, share=config.share, seated=landmarks)
    found = place_all(executor, work, run.checkpoint.strand("placement"))
    require_known(found[3], config.n_components, ids)
    _require_span(frame, found[0], ids)
    seat(found, landmarks, frame, among.values)
    clock.end("placement")
    passes = 0
    if judge is not None:
        kept = run.checkpoint.strand("refinement")
        frame, found, passes = refine_panel(executor, held, frame, among.values, landmarks, found, judge, kept)
        clock.end("refinement")
    solution = None
    if check is not None:
        solution = _polish(run, found, frame, check)
        clock.end("refinement")
    executor.close()  # the rows go: what follows needs their place
    embedding, frame = _in_position(found, frame, landmarks, solution)
    estimate, curve = _evidence(run, among, embedding) if config.evidence else (None, [])
    result = LandmarkFit(
        embedding=embedding,
        landmarks=landmarks,
        frame=frame,
        landmark_stress=mapped.solution.stress.normalized_stress,
        agreement=mapped.agreement,
        aside=run.aside,
        residual=np.sqrt(found[1] / np.where(found[2] > 0, found[2], 1.0)),
        estimate=estimate,
        curve=curve,
        exact=_exact(mapped.solution, landmarks, run.panel.n) if solution is None else solution.stress,
        solution=solution,
        passes=passes,
        residual_rms=_residual_rms(found),
        config=config,
        seconds=clock.seconds,
    )
    clock.end("evidence")
    return result


def _framed(coordinates: Floats, among: Among, config: LandmarkConfig) -> Frame:
    return Frame.of(coordinates, among.scale, among.mean_squares if config.closed_form == "classical" else None)


def _exact(start: Solution, landmarks: Ints, n: int) -> Stress | None:
    """Stress over all pairs when everybody is a landmark."""
    if landmarks.size < n:
        return None
    return replace(start.stress, point_stress=start.stress.point_stress[np.argsort(landmarks)])


def _residual_rms(found: Placement) -> float:
    return math.sqrt(float(found[1].sum()) / int(found[3].sum()))


def _in_position(found: Placement, frame: Frame, landmarks: Ints, solution: Solution | None) -> tuple[Floats, Frame]:
    """The map in canonical position, and a frame that places new points into it.

    Unless everyone was polished, the frame is the one that placed the points, turned: it finds them again.
    """
    if solution is not None:
        return solution.embedding, Frame.of(solution.embedding[landmarks], frame.scale)
    centre, axes = principal(found[0])
    return turned(found[0], centre, axes), replace(frame, centre=centre, axes=axes)


def _require_span(frame: Frame, x: Floats, ids: Sequence[str] | None) -> None:
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


def _polish(run: Run, found: Placement, frame: Frame, check: InputCheck) -> Solution:
    """Solve on the whole matrix from the placed points, with a small radius."""
    matrix, config = _whole(run.data), run.config
    assert run.plan.polish is not None
    held = stored(run.panel).nbytes if stored(run.panel).resident else 0
    settings = polish_config(config.n_components, config.seed, _residual_rms(found), frame.scale)
    warm_up(matrix, settings, run.executor)
    kept = run.checkpoint.strand(f"polish-{check.digest}")
    budget = run.plan.polish.budget - held
    return solve(matrix, settings, run.executor, scale=check.rms, budget=budget, start=found[0], kept=kept)


def _judge(data: Data, landmarks: Ints, config: LandmarkConfig) -> Judge:
    """Stress on pairs outside the panel, other ones than those of the evidence."""
    pairs = _hold_out(data, landmarks, config, JUDGE)
    if pairs is None:
        raise InputError(
            "refine='panel' needs dissimilarities that the fit does not use, to judge by, and too few are left when "
            "landmarks of this panel are set aside: add landmarks, or use refine='none'."
        )
    return lambda x: _estimated(pairs, x).normalized_stress


def _hold_out(data: Data, landmarks: Ints, config: LandmarkConfig, stream: int = HOLD_OUT) -> HeldOut | None:
    """Random pairs of points that are no landmarks."""
    random = generator(config.seed, stream)
    free = np.ones(data.n, dtype=bool)
    free[landmarks] = False
    others = np.flatnonzero(free)
    chosen = random.permutation(others)[: ROWS + COLUMNS]
    rows = chosen[: max(2, ROWS * chosen.size // (ROWS + COLUMNS))]
    if chosen.size < 4:
        return None
    share = slice(int(stream == JUDGE), None, 2) if config.refine == "panel" else slice(None)  # not the judge's own
    found = data.hold_out(landmarks, np.sort(rows), np.sort(np.setdiff1d(chosen, rows)), share)
    return found if found is not None and np.nansum(found.values) > 0 else None  # none may be known


def _estimated(held_out: HeldOut, embedding: Floats) -> StressEstimate:
    return estimate(held_out, embedding[held_out.rows], embedding[held_out.columns])


def _evidence(run: Run, among: Among, x: Floats) -> tuple[StressEstimate | None, list[CurvePoint]]:
    """Stress of a map on held-out pairs, and against the number of landmarks.

    Where landmarks are set aside, it is that of a map made in the same way without them, for the held-out points alone.
    """
    held_out = _hold_out(run.data, without(run.landmarks, run.aside), run.config)
    used = np.flatnonzero(~np.isin(run.landmarks, run.aside))
    if held_out is None or not among.part(used).values.any():
        return None, []
    fewer = partial(_with_fewer, picked(run.panel, held_out.points), among, held_out, run.config)
    order = used if run.data.pool is None else generator(run.config.seed, FEWER).permutation(used)
    counts = [used.size // k for k in (8, 4, 2, 1) if used.size // k > 2 * run.config.n_components]
    curve = [
        CurvePoint(count, fewer(order[:count], 1))
        for count in counts
        if among.part(order[:count]).values.any()  # the first may all be one point
    ]
    return fewer(used, run.config.n_init) if run.aside.size else _estimated(held_out, x), curve


def _with_fewer(
    rows: Rows, among: Among, held_out: HeldOut, config: LandmarkConfig, columns: Ints, n_init: int
) -> StressEstimate:
    """Stress of the held-out pairs when some of the landmarks are used; ``rows`` are those of the held-out points."""
    part, points = among.part(columns), held_out.points
    found = map_landmarks(part, config.n_components, config.seed, n_init, InProcessExecutor())
    frame = _framed(found.solution.embedding, part, config)
    with parallel_region():
        x = place(np.ascontiguousarray(rows[:, columns]), np.arange(points.size), frame)[0]
    return estimate(held_out, x[np.searchsorted(points, held_out.rows)], x[np.searchsorted(points, held_out.columns)])
