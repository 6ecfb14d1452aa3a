"""The scikit-learn estimator of landmark mode."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from landmarks.model import Model
from landmarks.panel.data import open_data
from landmarks.solver.fit import fit
from landmarks.solver.types import LandmarkConfig, LandmarkFit
from psmds_dist.api.estimator import OnCluster, executor_for, seed_of
from psmds_dist.api.inputs import labels_of, path_of
from psmds_dist.core.arrays import is_frame
from psmds_dist.core.events import OnEvent, ignore
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import parse_bytes
from psmds_dist.core.types import Floats
from psmds_dist.data.sparse_points import DISTANCES
from psmds_dist.planning.memory import describe_exceeded
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore, open_checkpoint
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


class LandmarkMDS(TransformerMixin, OnCluster):  # type: ignore[misc]
    """Multidimensional scaling of very many points through landmarks.

    A subset, the landmarks, is embedded by pattern search from several starts. Every other point is then placed
    against the landmarks alone: in closed form first (least squares on squared dissimilarities), then by a pattern
    search of its own. That needs ``n x S`` dissimilarities instead of ``n x n``, treats every point by itself, and
    places new points in the same way (`transform`).

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the map.
    n_landmarks : int, default=None
        Number of landmarks, ``S``. None means 1,000, or as many as there are points.
    landmarks : list of int, default=None
        The user's own landmarks, as row indices. When X is a panel: the row of the landmark of each column, needed
        where the panel does not say so itself. The map then uses all columns, or ``n_landmarks`` of them.
    selection : {"random", "maxmin", "kmeans++"}, default="random"
        How landmarks are chosen: uniformly; each as far as possible from those before; or with a chance in
        proportion to the squared dissimilarity to the nearest before. Random landmarks stand for dense regions
        as they are and gave the lowest stress on noisy data; the others cover the outskirts.
    metric : str or callable, default="precomputed"
        ``"precomputed"`` for dissimilarities, else a metric of `scipy.spatial.distance.cdist`, or ``"geodesic"``: X
        then holds points. A function of two objects, or its name (``"rapidfuzz.distance.Levenshtein.distance"``), is
        called for pairs with landmarks only: X then holds what it compares, as `psmds_dist.open_objects` takes it. New
        points of these and of geodesic maps are given by their dissimilarities to the landmarks.
    metric_params : dict, default=None
        Parameters of the metric; those of ``"geodesic"`` are ``n_neighbors``, ``radius`` and ``disconnected``, as in
        `psmds_dist.open_geodesics`.
    refine : {"none", "panel", "full"}, default="none"
        What to do after placing: nothing; let landmarks move too, against all points through the panel; or polish
        against the whole matrix, in a handful of passes. Landmarks that move need pairs to be judged by that they do
        not move by: of a panel, a few columns stay out of the map for that.
    n_init : int, default=2
        Starts of the landmarks; the best is kept. One comes from classical scaling, the others are random. With more
        than 600 landmarks they are made on half of them.
    closed_form : {"least_squares", "classical"}, default="least_squares"
        Where points begin: least squares, or classical landmark MDS.
    evaluate : bool, default=True
        Whether to measure stress on held-out pairs, and its curve against the number of landmarks. A panel that is
        used whole holds no other pairs than those of the fit. So the stress is that of a second map, of some hundred
        points, made in the same way without one column in twenty (ten at least, but no more than a quarter), and
        measured between these landmarks and other points: on average it is slightly above that of the map itself.
    random_state : int, RandomState instance or None, default=None
        Seed. None draws one, or takes that of the run which ``resume`` goes on with; `seed_` tells which.
    dtype : {"float32", "float64"}, default="float32"
        Type of the dissimilarities.
    cluster : str, distributed.Client or Dask cluster, default=None
        Who does the work, as in `psmds_dist.PatternSearchMDS`. None works in this process.
    memory_limit : int or str, default=None
        Bytes a worker (or this process) may take, such as ``"4 GiB"``.
    n_jobs : int, default=None
        Kernel threads in this process; None or -1 takes all.
    scratch : path, default=None
        Directory for temporary files, shared by all machines that work.
    checkpoint : path, default=None
        Directory in which to keep where the run stands. It is removed when `fit` has ended well.
    resume : bool, default=False
        Go on from what is in ``checkpoint``, as in `psmds_dist.PatternSearchMDS`.
    on_stage : callable, default=None
        Told a line of text as each stage ends.

    Attributes
    ----------
    embedding_ : (n, n_components) ndarray of float64
        Coordinates: centred, on principal axes in order of falling variance, with fixed signs.
    landmarks_ : (S,) ndarray of int
        Row indices of the landmarks, in the order in which `transform` takes dissimilarities to them: for a panel, the
        order of its columns; where all points are landmarks, that of the rows.
    normalized_stress_, stress1_, mse_, raw_stress_, stress_ : float
        As in `psmds_dist.PatternSearchMDS`: exact after ``refine="full"`` (`stress_is_exact_`), otherwise estimated
        on held-out pairs, and NaN where there are none.
    stress_interval_ : tuple of float
        95 % confidence interval of the estimated normalized stress on held-out pairs.
    stress_is_exact_ : bool
        Whether the stress was measured over all pairs.
    point_stress_ : (n,) ndarray
        ``sqrt(sum (t - d)^2 / sum t^2)`` of each point, against the landmarks, or all points when exact.
    landmark_stress_ : float
        Normalised stress of the landmarks among themselves.
    agreement_ : (n_init - 1,) ndarray
        Procrustes disparity of the other starts of the landmarks to the best, 0 for the same map; on noisy data
        random starts end elsewhere.
    curve_ : structured ndarray
        Stress on held-out pairs against the number of landmarks (``n_landmarks``, ``normalized_stress``, ``low``,
        ``high``): flat at its end when there are enough.
    n_epochs_, n_iter_ : int
        Passes over the whole matrix by a full refinement.
    history_ : structured ndarray or None
        Its history.
    stop_reason_ : str
        Why it stopped; ``"placed"`` without one.
    seconds_ : dict
        Time of each stage.
    seed_ : int
        Seed used.
    ids_ : list of str or None
        Row names.
    model_ : landmarks.model.Model
        What `transform` needs, and `save` writes.
    result_ : landmarks.solver.types.LandmarkFit
        Everything else, such as peak memory.
    n_features_in_ : int
        Columns of X.
    """

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

    def fit(self, X: Any, y: object = None) -> LandmarkMDS:
        """Fit a map.

        Parameters
        ----------
        X : ndarray, data frame, zarr.Array, dask.array.Array, or path
            With ``metric="precomputed"``: (n, n) dissimilarities, or an (n, S) panel of dissimilarities to the
            landmarks, with NaN where one is missing. With another metric: (n, d) points.
        y : ignored
            For scikit-learn's sake.

        Returns
        -------
        LandmarkMDS
            Itself.

        Raises
        ------
        InputError, BudgetError, WorkerError
            As `psmds_dist.PatternSearchMDS.fit`.
        """
        with open_checkpoint(self.checkpoint, self.resume) as checkpoint:
            with executor_for(self.cluster, self.n_jobs) as executor:
                self.fit_on(X, executor, checkpoint)
            if not self.result_.stop_reason.resumable:
                checkpoint.remove()
        if self.result_.advice:
            warnings.warn(self.result_.advice, ConvergenceWarning, stacklevel=2)
        if self.result_.over:
            warnings.warn(describe_exceeded(self.result_.over), RuntimeWarning, stacklevel=2)
        return self

    def fit_on(
        self,
        X: Any,
        executor: Executor,
        checkpoint: CheckpointStore = NO_CHECKPOINT,
        names: str | os.PathLike[str] | None = None,
        on_event: OnEvent = ignore,
    ) -> LandmarkMDS:
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

    def fit_transform(self, X: Any, y: object = None) -> Floats:
        """Fit a map and return the coordinates; arguments as in `fit`."""
        return self.fit(X, y).embedding_

    def transform(self, X: Any) -> Floats:
        """Place new points; each by itself, so that ``transform(X)[i]`` equals ``transform(X[i:i+1])`` to the bit.

        Parameters
        ----------
        X : (m, S) or (m, d) array_like
            Dissimilarities to the landmarks in the order of `landmarks_`, NaN where missing; or to all columns of the
            matrix or panel that was fitted, of which those of the landmarks are used. When the model was fitted on
            points, the new points.

        Returns
        -------
        (m, n_components) ndarray
            Coordinates.

        Raises
        ------
        InputError
            When a point cannot be placed, named by its row.
        NotFittedError
            Before `fit` or `load`.
        """
        check_is_fitted(self, "model_", msg="this LandmarkMDS is not fitted yet: call fit, or LandmarkMDS.load, first.")
        return self.model_.transform(X)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one Zarr group, which `load` reads; nothing is pickled."""
        check_is_fitted(self, "model_", msg="this LandmarkMDS is not fitted yet: call fit before save.")
        self.model_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LandmarkMDS:
        """Read a model that `save` wrote.

        It can `transform`, and knows the map with its names, landmarks, stress and seed.
        """
        model = Model.load(path)
        estimator = cls(
            n_components=model.frame.y.shape[0],
            landmarks=model.landmarks.tolist(),
            metric=model.metric,
            metric_params=dict(model.metric_params) or None,
        )
        return estimator._know(model)

    @property
    def _n_features_out(self) -> int:
        """Columns of the map, for scikit-learn's names of them."""
        return int(self.embedding_.shape[1])

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

    def _know(self, model: Model) -> LandmarkMDS:
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

    def _learn(self, result: LandmarkFit) -> LandmarkMDS:
        """Take over what only the fit itself knows."""
        self.history_ = None if result.solution is None else result.solution.history
        self.n_epochs_ = self.n_iter_ = 0 if result.solution is None else len(result.solution.history)
        self.seconds_ = result.seconds
        self.result_ = result
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.positive_only = self.metric == "precomputed"
        tags.input_tags.sparse = isinstance(self.metric, str) and self.metric in DISTANCES
        return tags
