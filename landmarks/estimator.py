"""The scikit-learn estimator of landmark mode."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from landmarks.model import Model
from landmarks.run import LandmarkRun
from psmds_dist.api.arguments import executor_for
from psmds_dist.api.estimator import OnCluster
from psmds_dist.core.types import Floats
from psmds_dist.data.sparse_points import DISTANCES
from psmds_dist.planning.memory import describe_exceeded
from psmds_dist.solver.checkpoint import open_checkpoint

NOT_MEASURED = (
    "stress was not measured (normalized_stress_ is NaN), as no pairs were held out: take fewer landmarks, or all "
    "points as landmarks"
)
"""Warning of a fit whose landmarks leave too few other pairs."""


class LandmarkMDS(TransformerMixin, OnCluster, LandmarkRun):  # type: ignore[misc]
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
        Starts of the landmarks; the best is kept. One comes from classical scaling with an axis of noise that is
        squeezed flat, or from a search on 300 of them, whichever is better; the others are random. With more than 2,000
        landmarks they are made on 2,000 of them.
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
    checkpoint : path or URL, default=None
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

        Warns
        -----
        ConvergenceWarning
            Where stress was to be measured and could not be.
        """
        with open_checkpoint(self.checkpoint, self.resume) as checkpoint:
            with executor_for(self.cluster, self.n_jobs) as executor:
                self.fit_on(X, executor, checkpoint)
            if not self.result_.stop_reason.resumable:
                checkpoint.remove()
        if self.result_.advice:
            warnings.warn(self.result_.advice, ConvergenceWarning, stacklevel=2)
        if self.evaluate and math.isnan(self.normalized_stress_):
            warnings.warn(NOT_MEASURED, ConvergenceWarning, stacklevel=2)
        if self.result_.over:
            warnings.warn(describe_exceeded(self.result_.over), RuntimeWarning, stacklevel=2)
        return self

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.positive_only = self.metric == "precomputed"
        tags.input_tags.sparse = isinstance(self.metric, str) and self.metric in DISTANCES
        return tags
