"""The landmark fit: choose, embed, place, refine, and gather the evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from landmarks.evidence import COLUMNS, ROWS, HeldOut, StressEstimate, agreement, estimate
from landmarks.place import Frame, Place, Placement, place, point_name, require_known, seat
from landmarks.refine import polish_config, refine_panel
from landmarks.selection import choose, require_method
from landmarks.tables import Panel, picked
from landmarks.warm import warm_up_landmarks
from psmds_dist.block import Held, gather
from psmds_dist.check import refuse_tiny
from psmds_dist.config import SolverConfig, whole
from psmds_dist.executor import AnyExecutor, InProcessExecutor
from psmds_dist.indices import check_landmarks
from psmds_dist.ingest import ArrayRows
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.partition import parse_bytes, row_budget
from psmds_dist.quality import Stress, principal, turned
from psmds_dist.rows import memory_for
from psmds_dist.run import checked, warm_up
from psmds_dist.schedule import generator
from psmds_dist.solve import Solution, solve
from psmds_dist.types import BudgetError, Floats, InputError, Ints, Rows, RowSource, StopReason

HOLD_OUT, JUDGE = 17, 18
"""Streams of random numbers that pick the held-out pairs: for the evidence, and for a refinement to judge by."""

REFINEMENTS = ("none", "panel", "full")
EXACT = 1e-3
"""Normalised stress of the landmarks below which the data may be exact, so that their map is worth more digits."""

THIN = 0.1
"""Spread of such landmarks along an axis, as a share of the scale, below which they may not need it."""

Tell = Callable[[str], object]
Judge = Callable[[Floats], float]


class Data(Protocol):
    """What a landmark fit needs to know of the data."""

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

    def panel(self, landmarks: Ints, executor: AnyExecutor, limit: int) -> AbstractContextManager[Panel]:
        """Dissimilarities of all points to some landmarks."""

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Dissimilarities between two lists of points, NaN where unknown."""

    def hold_out(self, landmarks: Ints, rows: Ints, columns: Ints) -> HeldOut | None:
        """Pairs for the evidence, given candidates that are no landmarks; None when nothing is known of them."""


@dataclass(frozen=True)
class LandmarkConfig:
    """What a landmark fit is asked to do; see `landmarks.LandmarkMDS` for the meaning of each."""

    n_components: int = 2
    n_landmarks: int | None = None
    landmarks: Sequence[int] | None = None
    selection: str = "random"
    n_init: int = 3
    closed_form: str = "least_squares"
    refine: str = "none"
    evidence: bool = True
    seed: int = 0

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
    """

    embedding: Floats
    landmarks: Ints
    frame: Frame
    landmark_stress: float
    agreement: Floats
    residual: Floats
    estimate: StressEstimate | None
    curve: list[CurvePoint]
    exact: Stress | None
    solution: Solution | None
    passes: int
    residual_rms: float
    config: LandmarkConfig
    seconds: dict[str, float] = field(default_factory=dict)

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
) -> LandmarkFit:
    """Embed landmarks, place everybody else, and refine.

    Raises
    ------
    InputError, BudgetError, WorkerError
        In a sentence each.
    """
    limit = executor.memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    budget = row_budget(limit, data.n, config.n_components)
    if budget <= 0:
        raise BudgetError(f"memory_limit leaves nothing beside the coordinates of {data.n:,} points; raise it.")
    landmarks = choose_landmarks(data, config)
    judge = _judge(data, landmarks, config) if config.refine == "panel" else None
    if config.refine == "full":
        matrix = _whole(data)
        memory_for(matrix, budget)
    clock = Clock(tell)
    try:
        with data.panel(landmarks, executor, limit) as panel:
            memory_for(panel, budget)
            clock.end("panel")
            return _fit_panel(data, panel, landmarks, config, executor, budget, judge, ids, clock)
    finally:
        executor.close()


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
        count = _usual(data, config) if config.n_landmarks is None else int(config.n_landmarks)
        if data.pool is not None and count == data.pool.size:
            return data.pool
        landmarks = choose(data.n, count, config.selection, config.seed, partial(_distances, data), data.pool)
    if landmarks.size < config.n_components + 1:
        raise InputError(
            f"{landmarks.size} landmarks cannot place points in {config.n_components} dimensions: at least "
            f"n_components + 1 = {config.n_components + 1} are needed, and many more are better."
        )
    return landmarks


def _usual(data: Data, config: LandmarkConfig) -> int:
    return data.usual if config.evidence or data.pool is None else data.pool.size


def _distances(data: Data, i: int, candidates: Ints) -> Floats:
    found: Floats = data.between(np.array([i]), candidates)[0]
    return found


def _fit_panel(
    data: Data,
    panel: Panel,
    landmarks: Ints,
    config: LandmarkConfig,
    executor: AnyExecutor,
    budget: int,
    judge: Judge | None,
    ids: Sequence[str] | None,
    clock: Clock,
) -> LandmarkFit:
    executor.prepare(partial(warm_up_landmarks, config.n_components, panel.dtype.name))
    among = among_landmarks(panel, landmarks, ids)
    near = executor if isinstance(executor, InProcessExecutor) else InProcessExecutor()
    starts = embed_landmarks(among, config, near)
    clock.end("landmarks")
    frame = Frame.of(
        starts[0].embedding, among.scale, among.mean_squares if config.closed_form == "classical" else None
    )
    held = Held(panel, budget)
    found: Placement = gather(executor, Place(held, frame), held.layout, range(held.layout.count))
    require_known(found[3], config.n_components, ids)
    _require_span(frame, found[0], ids)
    seat(found, landmarks, frame, among.values)
    clock.end("placement")
    passes = 0
    if judge is not None:
        frame, found, passes = refine_panel(executor, held, frame, among.values, landmarks, found, judge)
        clock.end("refinement")
    solution = None
    if config.refine == "full":
        solution = _polish(data, found, frame, config, executor, budget, ids)
        clock.end("refinement")
    embedding, frame = _in_position(found, frame, landmarks, solution)
    held_out = _hold_out(data, landmarks, config) if config.evidence else None
    result = LandmarkFit(
        embedding=embedding,
        landmarks=landmarks,
        frame=frame,
        landmark_stress=starts[0].stress.normalized_stress,
        agreement=agreement([start.embedding for start in starts]),
        residual=np.sqrt(found[1] / np.where(found[2] > 0, found[2], 1.0)),
        estimate=None if held_out is None else _estimated(held_out, embedding),
        curve=[] if held_out is None else _curve(panel, among, landmarks, held_out, config),
        exact=_exact(starts[0], landmarks, held.source.n) if solution is None else solution.stress,
        solution=solution,
        passes=passes,
        residual_rms=_residual_rms(found),
        config=config,
        seconds=clock.seconds,
    )
    clock.end("evidence")
    return result


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


@dataclass(frozen=True)
class Among:
    """Dissimilarities between landmarks."""

    values: Rows

    @property
    def scale(self) -> float:
        """Root mean square off the diagonal."""
        size = len(self.values)
        return math.sqrt(float(np.square(self.values, dtype=np.float64).sum()) / (size * (size - 1)))

    @property
    def mean_squares(self) -> Floats:
        """Mean squared dissimilarity of each landmark to all."""
        squares: Floats = np.square(self.values, dtype=np.float64).mean(axis=1)
        return squares

    def first(self, count: int) -> Among:
        """The same for the landmarks that were chosen first."""
        return Among(np.ascontiguousarray(self.values[:count, :count]))


def among_landmarks(panel: Panel, landmarks: Ints, ids: Sequence[str] | None) -> Among:
    """Dissimilarities between the landmarks, from their own rows of the panel; the mean of both orders.

    Raises
    ------
    InputError
        When one is missing, or all are zero.
    """
    values = picked(panel, landmarks)
    values = (values + values.T) / 2
    np.fill_diagonal(values, 0)
    missing = np.argwhere(np.isnan(values))
    if missing.size:
        i, j = (int(landmarks[k]) for k in missing[0])
        names = f" (ids {ids[i]!r} and {ids[j]!r})" if ids else ""
        raise InputError(
            f"the dissimilarity between landmarks {i} and {j}{names} is missing: landmarks must be known to each other."
        )
    if not values.any():
        raise InputError("all dissimilarities between landmarks are zero: choose other landmarks (selection='maxmin').")
    among = Among(np.ascontiguousarray(values))
    refuse_tiny(among.values.dtype, among.scale, float(among.values.max()))
    return among


def embed_landmarks(
    among: Among, config: LandmarkConfig, executor: InProcessExecutor, n_init: int | None = None
) -> list[Solution]:
    """Embed landmarks from several starts, the best first; one that fits nearly exactly is taken to more digits."""
    size = len(among.values)
    if size <= config.n_components:
        raise InputError(f"{size} landmarks are too few for {config.n_components} dimensions.")
    source = ArrayRows(among.values, dtype=among.values.dtype.name)
    run = partial(_uninterrupted, source, executor=executor, scale=among.scale, budget=4 * among.values.nbytes)
    seeds = [config.seed + k for k in range(n_init or config.n_init)]
    starts = [run(SolverConfig(n_components=config.n_components, seed=seed)) for seed in seeds]
    starts.sort(key=lambda start: start.stress.mse)
    if starts[0].stress.normalized_stress < EXACT:
        starts[0] = _exactly(run, starts[0], among, config)
    return starts


def _uninterrupted(source: RowSource, config: SolverConfig, **how: Any) -> Solution:
    """Solve; an interrupt ends the whole fit, for a map of the landmarks alone is nobody's map."""
    found = solve(source, config, **how)
    if found.stop_reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    return found


def _exactly(run: Callable[..., Solution], found: Solution, among: Among, config: LandmarkConfig) -> Solution:
    """Take a map that fits nearly exactly to more digits, and to no more axes than it needs.

    Landmarks on a line are seldom embedded quite straight, for being off it hardly changes their distances; yet the
    little they are off would tell other points on which side to go. So a thin axis goes if they fit without it.
    """
    exact = SolverConfig(
        n_components=config.n_components,
        seed=config.seed,
        radius=max(found.radius, 1e-6 * among.scale),
        radius_tol=1e-9 * among.scale,
    )
    found = run(exact, start=found.raw_embedding)
    rounding = (float(np.finfo(among.values.dtype).eps) * among.scale) ** 2
    for axes in range(config.n_components - 1, 0, -1):
        thickness = float(found.embedding[:, axes].std())
        if thickness > THIN * among.scale:
            break
        first = max(thickness, 1e-6 * among.scale)
        fewer = run(replace(exact, n_components=axes, radius=first), start=found.embedding[:, :axes])
        if fewer.stress.mse > max(rounding, found.stress.mse):
            break
        flat = np.pad(fewer.embedding, ((0, 0), (0, config.n_components - axes)))
        found = replace(fewer, embedding=flat, raw_embedding=flat)
    return found


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


def _polish(
    data: Data,
    found: Placement,
    frame: Frame,
    config: LandmarkConfig,
    executor: AnyExecutor,
    budget: int,
    ids: Sequence[str] | None,
) -> Solution:
    """Solve on the whole matrix from the placed points, with a small radius."""
    matrix = _whole(data)
    check = checked(matrix, executor, None if ids is None else list(ids))
    warm_up(matrix, config.n_components, executor)
    settings = polish_config(config.n_components, config.seed, _residual_rms(found), frame.scale)
    return solve(matrix, settings, executor, scale=check.rms, budget=budget, start=found[0])


def _judge(data: Data, landmarks: Ints, config: LandmarkConfig) -> Judge:
    """Stress on pairs outside the panel, other ones than those of the evidence."""
    pairs = _hold_out(data, landmarks, config, JUDGE)
    if pairs is None:
        raise InputError(
            "refine='panel' needs dissimilarities that the fit does not use, to judge by: leave columns of the panel "
            "unused (n_landmarks below their number), or fit on the whole matrix or on points."
        )
    return lambda x: _estimated(pairs, x).normalized_stress


def _hold_out(data: Data, landmarks: Ints, config: LandmarkConfig, stream: int = HOLD_OUT) -> HeldOut | None:
    """Random pairs of points that are no landmarks."""
    random = generator(config.seed, stream)
    others = np.setdiff1d(np.arange(data.n), landmarks)
    chosen = random.permutation(others)[: ROWS + COLUMNS]
    rows = chosen[: max(2, ROWS * chosen.size // (ROWS + COLUMNS))]
    return data.hold_out(landmarks, np.sort(rows), np.sort(np.setdiff1d(chosen, rows))) if chosen.size >= 4 else None


def _estimated(held_out: HeldOut, embedding: Floats) -> StressEstimate:
    return estimate(held_out, embedding[held_out.rows], embedding[held_out.columns])


def _curve(panel: Panel, among: Among, landmarks: Ints, held_out: HeldOut, config: LandmarkConfig) -> list[CurvePoint]:
    """Stress of the held-out pairs when only the first landmarks of the choice are used."""
    points = held_out.points
    rows = picked(panel, points)
    counts = [landmarks.size // k for k in (8, 4, 2, 1) if landmarks.size // k > 2 * config.n_components]
    return [
        CurvePoint(count, _with_fewer(rows, points, among, held_out, config, count))
        for count in counts
        if among.first(count).values.any()  # the first may all be one point
    ]


def _with_fewer(
    rows: Rows, points: Ints, among: Among, held_out: HeldOut, config: LandmarkConfig, count: int
) -> StressEstimate:
    part = among.first(count)
    frame = Frame.of(embed_landmarks(part, config, InProcessExecutor(), n_init=1)[0].embedding, part.scale)
    with parallel_region():
        x = place(np.ascontiguousarray(rows[:, :count]), np.arange(points.size), frame)[0]
    return estimate(held_out, x[np.searchsorted(points, held_out.rows)], x[np.searchsorted(points, held_out.columns)])
