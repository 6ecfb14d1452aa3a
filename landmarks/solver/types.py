"""A landmark fit: what it is asked, what it is made from, what its stages work with, and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from landmarks.evaluation import HeldOut, StressEstimate
from landmarks.panel.check import PanelEntries
from landmarks.selection import require_method
from landmarks.solver.memory import FitPlan, Planned
from landmarks.solver.placement import END_SHARE, ROUGH, PlacementModel
from psmds_dist.api.run import RunContext
from psmds_dist.core.config import SolverConfig, check_int
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import RowSource
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import Floats, InputError, Ints, StopReason
from psmds_dist.solver.solve import Solution
from psmds_dist.solver.state_file import Identity
from psmds_dist.solver.tasks import CachedRows

REFINEMENTS = ("none", "panel", "full")
Tell = Callable[[str], object]

UNFINISHED = (
    "the full refinement ran out of epochs before it converged: continue from the map with "
    "PatternSearchMDS(max_epochs=...).fit(X, init=embedding_)"
)


class Data(Planned, Protocol):
    """What a landmark fit needs to know of the data, beside what planning does."""

    @property
    def input(self) -> RowSource:
        """What is read."""

    @property
    def columns(self) -> int:
        """Columns of what was handed over."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the dissimilarities."""

    @property
    def metric(self) -> str:
        """How dissimilarities of new points come about."""

    @property
    def metric_params(self) -> Mapping[str, Any]:
        """Parameters of the metric."""

    def features(self, points: Ints) -> Floats | None:
        """Coordinates of some points in the space that the metric measures; None when precomputed."""

    @property
    def candidates(self) -> Ints | None:
        """Points that can be landmarks; None for all."""

    @property
    def default_n_landmarks(self) -> int:
        """Default number of landmarks."""

    def trusted(self) -> Data:
        """The same once the whole matrix has passed its check: what is taken out needs none, nor tests of checksums."""

    def columns_with(self, landmarks: Ints) -> Ints | None:
        """Columns of a panel that hold the landmarks; None for what is no panel."""

    def entries(self, landmarks: Ints) -> PanelEntries:
        """How messages name the entries of a panel of some landmarks."""

    def panel(self, landmarks: Ints, executor: Executor, limit: int, keep: int) -> AbstractContextManager[RowSource]:
        """Dissimilarities of all points to some landmarks; ``keep`` bytes may hold what is made only once."""

    def between(self, rows: Ints, columns: Ints) -> Floats:
        """Dissimilarities between two lists of points, NaN where unknown."""

    def hold_out(self, landmarks: Ints, rows: Ints, columns: Ints, share: slice) -> HeldOut | None:
        """Pairs for the evaluation, given candidates that are no landmarks; None when nothing is known of them.

        Where only few points can be in such pairs, ``share`` tells which of these.
        """

    def set_aside(self, landmarks: Ints, seed: int) -> Ints:
        """Landmarks that the evaluation can do without, where no pairs of other points are known."""


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
    evaluate: bool = True
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
        check_int("n_init", self.n_init, 1)
        if self.n_landmarks is not None:
            check_int("n_landmarks", self.n_landmarks, 1)

    @property
    def passing(self) -> bool:
        """Whether all points move again on the whole matrix, so that their places need not be fine."""
        return self.rough or self.refine == "full"

    @property
    def share(self) -> float:
        """Radius at which a point is placed, as a share of its residual."""
        return ROUGH if self.passing else END_SHARE


@dataclass(frozen=True)
class CurvePoint:
    """Stress with fewer landmarks."""

    n_landmarks: int
    stress: StressEstimate

    def as_dict(self) -> dict[str, float]:
        """Normalised stress and its interval."""
        stress = self.stress
        return {
            "n_landmarks": self.n_landmarks,
            "normalized_stress": stress.normalized_stress,
            "low": stress.low,
            "high": stress.high,
        }


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
        Of the landmarks, those that the evaluation did not use.
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
    refined : bool
        Whether a refinement changed the map.
    residual_rms : float
        Root mean square residual of all points against the landmarks.
    seconds : dict
        Time of each stage.
    peak_memory : dict
        Peak resident bytes of each process that worked.
    over : dict
        Bytes by which some of them took more than planned, see `psmds_dist.planning.memory.exceeded`.
    identity : mapping or None
        What must be the same for a run to be this one, where a checkpoint asked for it.
    """

    embedding: Floats
    landmarks: Ints
    frame: PlacementModel
    landmark_stress: float
    agreement: Floats
    aside: Ints
    residual: Floats
    estimate: StressEstimate | None
    curve: list[CurvePoint]
    exact: Stress | None
    solution: Solution | None
    passes: int
    refined: bool
    residual_rms: float
    config: LandmarkConfig
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    identity: Identity | None = None

    @property
    def stop_reason(self) -> StopReason:
        """Why the full refinement ended; `StopReason.PLACED` without one."""
        return StopReason.PLACED if self.solution is None else self.solution.stop_reason

    @property
    def advice(self) -> str:
        """What to do where the full refinement did not end as it should; empty where it did."""
        return UNFINISHED if self.stop_reason is StopReason.EPOCHS else self.stop_reason.advice

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
        self.tell = tell
        self._last = time.perf_counter()

    def end(self, stage: str) -> None:
        """A stage has ended."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self.tell(f"{stage}: {now - self._last:.2f} s")
        self._last = now

    def leave_out(self) -> None:
        """Count what has passed since the last stage, such as compiling, in no stage."""
        self._last = time.perf_counter()


@dataclass(frozen=True)
class FitInputs:
    """What the stages of a fit work with."""

    data: Data
    panel: RowSource
    landmarks: Ints
    aside: Ints
    config: LandmarkConfig
    context: RunContext
    plan: FitPlan
    clock: Clock

    @cached_property
    def rows(self) -> CachedRows:
        """The panel, of which workers cache what the plan allows."""
        return CachedRows(self.panel, self.plan.panel.budget)
