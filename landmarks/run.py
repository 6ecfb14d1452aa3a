"""A landmark fit with the parameters and attributes of the estimator, without scikit-learn.

Commands use it: the import of scikit-learn takes 100 MiB where pandas is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from landmarks.model import Model
from landmarks.panel.data import open_data
from landmarks.solver.fit import fit
from landmarks.solver.types import LandmarkConfig, LandmarkFit
from psmds_dist.api.arguments import seed_of
from psmds_dist.api.inputs import labels_of, path_of
from psmds_dist.core.arrays import is_frame
from psmds_dist.core.events import OnEvent, ignore
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import parse_bytes
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore
from psmds_dist.utils.text import note_unsafe

CURVE = np.dtype([("n_landmarks", "i8"), ("normalized_stress", "f8"), ("low", "f8"), ("high", "f8")])
"""Columns of ``curve_``."""

FACTS = (
    "normalized_stress",
    "stress1",
    "mse",
    "raw_stress",
    "stress_is_exact",
    "landmark_stress",
    "stop_reason",
    "seed",
)
"""What a stored map knows under the names of attributes."""


def _row_names(points: Any) -> list[str] | None:
    """Row names of a data frame, whose columns are features."""
    return [str(name) for name in points.index] if is_frame(points) else None


class LandmarkRun:
    """Parameters of `landmarks.LandmarkMDS`, which documents them, and what a fit found."""

    normalized_stress_: float
    raw_stress_: float
    landmark_stress_: float
    stress_is_exact_: bool

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_landmarks: int | None = None,
        landmarks: Sequence[int] | None = None,
        selection: str = "random",
        metric: str | Callable[[Any, Any], float] = "precomputed",
        metric_params: dict[str, Any] | None = None,
        refine: str = "none",
        n_init: int = 2,
        closed_form: str = "least_squares",
        evaluate: bool = True,
        random_state: int | np.random.RandomState | None = None,
        dtype: str = "float32",
        cluster: Any = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        scratch: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        on_stage: Callable[[str], object] | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.selection = selection
        self.metric = metric
        self.metric_params = metric_params
        self.refine = refine
        self.n_init = n_init
        self.closed_form = closed_form
        self.evaluate = evaluate
        self.random_state = random_state
        self.dtype = dtype
        self.cluster = cluster
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.scratch = scratch
        self.checkpoint = checkpoint
        self.resume = resume
        self.on_stage = on_stage

    def fit_on(
        self,
        X: Any,
        executor: Executor,
        checkpoint: CheckpointStore = NO_CHECKPOINT,
        names: str | os.PathLike[str] | None = None,
        on_event: OnEvent = ignore,
    ) -> Self:
        """Fit with an executor, a checkpoint and a file of row names that are there already; otherwise as `fit`.

        ``on_event`` is called with every event of the run.
        """
        config = self._config(checkpoint)
        ids = names or (labels_of(X) if self.metric == "precomputed" else _row_names(X))
        with open_data(
            X,
            executor,
            metric=self.metric,
            metric_params=self.metric_params,
            landmarks=self.landmarks,
            ids=ids,
            dtype=self.dtype,
            memory_limit=None if self.memory_limit is None else parse_bytes(self.memory_limit),
            scratch=self.scratch,
        ) as data:
            note_unsafe(data.ids)
            if data.candidates is not None:  # landmarks has told what the columns of the panel are
                config = replace(config, landmarks=None)
            tell = self.on_stage or (lambda text: None)
            result = fit(
                data,
                config,
                executor,
                memory_limit=self.memory_limit,
                tell=tell,
                on_event=on_event,
                checkpoint=checkpoint,
            )
            matrix = path_of(X, data.matrix) if data.matrix is not None and self.metric == "precomputed" else None
            model = Model.of(result, data, matrix)
        return self._know(model)._learn(result)

    def _config(self, checkpoint: CheckpointStore) -> LandmarkConfig:
        return LandmarkConfig(
            n_components=self.n_components,
            n_landmarks=self.n_landmarks,
            landmarks=self.landmarks,
            selection=self.selection,
            n_init=self.n_init,
            closed_form=self.closed_form,
            refine=self.refine,
            evaluate=self.evaluate,
            seed=seed_of(self.random_state, checkpoint),
        )

    def _know(self, model: Model) -> Self:
        """Take over a map and what it says of itself."""
        self.model_ = model
        self.embedding_ = model.embedding
        self.landmarks_ = model.order
        self.ids_ = model.ids
        self.point_stress_ = model.residual
        self.n_features_in_ = model.width
        facts = model.facts
        for name in FACTS:
            setattr(self, f"{name}_", facts[name])
        self.stress_ = self.raw_stress_
        self.agreement_ = np.array(facts["agreement"])
        held_out = facts["held_out"]
        self.stress_interval_ = (np.nan, np.nan) if held_out is None else (held_out["low"], held_out["high"])
        self.curve_ = np.array([tuple(point[name] for name in CURVE.names or ()) for point in facts["curve"]], CURVE)
        return self

    def _learn(self, result: LandmarkFit) -> Self:
        """Take over what only the fit itself knows."""
        self.history_ = None if result.solution is None else result.solution.history
        self.n_epochs_ = self.n_iter_ = 0 if result.solution is None else len(result.solution.history)
        self.seconds_ = result.seconds
        self.result_ = result
        return self
