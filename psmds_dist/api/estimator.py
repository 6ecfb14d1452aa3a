"""The scikit-learn estimator."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from psmds_dist.api.arguments import executor_for, seed_of
from psmds_dist.api.embed import Embedding, embed
from psmds_dist.api.inputs import paired_rows, path_of, paths_beside
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.errors import DissimilarityWarning
from psmds_dist.core.events import OnEpoch
from psmds_dist.core.region import Region
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import Floats
from psmds_dist.ingest.connected import keep_connected, rows_kept
from psmds_dist.planning.memory import describe_exceeded
from psmds_dist.solver.checkpoint import CheckpointStore, open_checkpoint


class OnCluster(ClassNamePrefixFeaturesOutMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator with a ``cluster``: a name, or an open connection, which can be neither copied nor pickled."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave an open connection out: it is of this process."""
        named = isinstance(self.cluster, str)
        return {**super().__getstate__(), "cluster": self.cluster if named else None}

    def __sklearn_clone__(self) -> Self:
        """Clone as scikit-learn does, but share an open connection, which cannot be copied."""
        twin: Self = BaseEstimator.__sklearn_clone__(copy.copy(self))
        twin.cluster = self.cluster
        return twin


class PatternSearchMDS(OnCluster):
    """Multidimensional scaling by pattern search.

    Finds coordinates whose Euclidean distances ``d_ij`` come close to given dissimilarities ``t_ij``, by
    minimising ``sum_ij (t_ij - d_ij)^2 / n^2``. Every point tries moves of one length, the radius, along each
    axis and takes the best; when an epoch makes no progress the radius halves [1]_. Points move half a matrix
    at a time, so that rows can be spread over threads and workers; results depend on neither.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the map.
    bad_moves : bool, default=True
        Whether a point takes its best move even when that raises the error, which is faster and usually ends
        better. False gives a monotone solve: the error never rises, and at the end no single move of the
        final radius lowers it.
    eps : float, default=1e-4
        Share of the error that does not matter: the radius halves when an epoch lowers the error by at most that. A
        solve that begins near its end (at landmarks, or with a given ``radius`` of at most half the residuals) halves
        it earlier, as soon as an epoch gains less than halving is sure to.
    radius : float, default=None
        Starting radius, in units of the dissimilarities. None searches for one on a sample.
    radius_tol : float, default=None
        The solve ends when the radius comes down to this, in units of the dissimilarities. None means 2e-4 of
        their root mean square or, on noisy data, where moves of that length change the error by less than ``eps``:
        ``sqrt(6 eps mse)``, whichever is more (``bad_moves=False`` looks at the first alone).
    max_epochs : int, default=500
        Most epochs.
    direction_share : float, default=1.0
        Share of the axes tried in an epoch, drawn anew each time.
    moves : {"auto", "axes", "guided"}, default="auto"
        What a point tries. ``"axes"`` is the paper's search, both ways along each axis: ``2 n_components`` moves of
        one radius. ``"guided"`` tries two steps against the gradient of the point's error, evaluated as exactly, at
        most a radius long. ``"auto"`` is guided from 5 components on, where it is much faster. A monotone solve
        tries all axes at its last radius in any case, so what it certifies is the same.
    init : {"auto", "search", "random", "classical", "landmarks", "sample"}, default="auto"
        Where to begin: at the best map of a search over many starts (up to 2,000 points), at random, at the map of
        classical scaling (Torgerson's, or principal coordinates; exact up to 2,048 points, from three passes over the
        matrix beyond), at a landmark map (`landmarks.LandmarkMDS`), which saves most of the epochs, or at a map of a
        sample against which all others are placed, for more than 2,000 points with gaps. ``"auto"`` searches up to
        2,000 points and takes landmarks beyond, a sample where pairs of these are missing, and random coordinates where
        a map fits the sample badly; with a ``radius`` it begins at random.
    n_init : int or "auto", default="auto"
        Number of starts; the best map is kept. A search takes two from classical scaling and random ones. Otherwise
        each start is a whole solve: the first is the one that ``init`` says, the others are random, with seeds in a
        row. ``"auto"`` takes as many as ``effort`` says.
    effort : {"quick", "default", "best"}, default="default"
        How long to look for the best map where ``n_init`` is ``"auto"``. A search of ``"quick"`` is one start from
        classical scaling; by default it has 8 to 192 descents, the more the smaller the matrix (as few as 2 from 5
        components on): starts, which end early once half of them and at least three agree, and hops from the best map
        and from a map of classical scaling with an axis more that is squeezed flat; ``"best"`` has twenty times as
        many, and does not end early. Where each start is a whole solve there is one, with ``"best"`` four.
    polish : bool or "auto", default="auto"
        Whether the solve ends with a quasi-Newton method (L-BFGS) that takes its map to a local minimum, in up to some
        hundred passes over the matrix. ``"auto"`` does up to 2,000 points and with ``effort="best"``. Up to 5,000
        points it takes six steps, or a quarter of the epochs before, if that is more; of transformed dissimilarities up
        to 60, while they gain, whatever the size. ``radius_tol``, ``bad_moves=False`` and ``effort="quick"`` have
        none.
    loss : {"squared", "absolute", "huber", "sstress", "relative", "log"}, default="squared"
        What a pair costs whose dissimilarity is ``t`` and whose distance is ``d``: ``(t - d)^2``; ``|t - d|``; that
        beyond a tenth of the root mean square dissimilarity and the square before; ``(t^2 - d^2)^2``;
        ``((t - d) / t)^2``; ``(log t - log d)^2``. ``"absolute"`` and ``"huber"`` are robust against wrong entries.
    weight_power : float, default=0.0
        Weigh each pair by this power of its dissimilarity: -1 is Sammon's mapping.
    local : float, default=0.0
        Share of the objective, from 0 to below 1, that near pairs have: the solve lowers ``(1 - local) A + local B``,
        where ``A`` is the cost of all pairs and ``B`` that of each point's nearest ones, both as shares of what they
        are with all points in one place. The solve begins at the map of all pairs alike, beyond 2,000 points
        with a polish, unless ``polish`` is False. Near distances are kept better so; which points are near, by rank, is
        kept best by 0.
    local_neighbors : int, default=10
        How many points are near to each, by their dissimilarities, for ``local``.
    transformation : {None, "ratio", "interval", "spline", "ordinal"}, default=None
        What distances in the map are compared with: the dissimilarities (None), or disparities, which are fitted to
        the map and are a function of the dissimilarities: a multiple of them (``"ratio"``), a multiple with a constant
        (``"interval"``), a smooth function that never falls (``"spline"``), or any such function (``"ordinal"``), so
        that only the order of the dissimilarities counts: non-metric scaling, ``metric=False`` of
        `sklearn.manifold.MDS`. Stress is then told against the disparities. It goes with the squared loss of pairs
        that count alike; pairs may be missing.
    ties : {"primary", "secondary"}, default="primary"
        Whether equal dissimilarities may have different disparities with ``transformation="ordinal"``
        (``"primary"``), or have the same (``"secondary"``, which scikit-learn does). Where more than 4,096 values
        differ, near ones share a disparity either way.
    disconnected : {"refuse", "largest"}, default="refuse"
        What to do with a matrix whose known pairs do not join all points, so that components of them have no place
        relative to each other: refuse it, or embed the largest component; `ids_` tells which points that are.
    bounds : (low, high) or a sequence of n_components of these, default=None
        Least and greatest coordinate on every axis, or on each, None where there is no bound: ``(0, None)`` keeps all
        coordinates from being negative. Moves that leave the bounds are not made.
    random_state : int, RandomState instance or None, default=None
        Seed. None draws one, or takes that of the run which ``resume`` goes on with; `seed_` tells which.
    dtype : {"float32", "float64"}, default="float32"
        Type in which rows are held. Coordinates and totals are float64 always.
    sample : int, default=None
        Rows to estimate the stress of the map from at the end, at least 20, which saves a last pass over a matrix that
        does not fit into memory: one of about ten. All by default. They are those of `psmds_dist.quality` with this
        ``sample``; `point_stress_` is NaN for the other points.
    symmetrize : bool, default=False
        Take the mean of both orders of each pair, which leaves the best map unchanged.
    cluster : str, distributed.Client or Dask cluster, default=None
        Who does the work: the name of a cluster, such as ``"local:4"``, ``"tcp://host:8786"`` or
        ``"slurm:file.yaml"`` (see `psmds_dist.open_client`), which is opened by each call and closed at its end; or a
        client or cluster that exists. None works in this process.
    memory_limit : int or str, default=None
        Bytes a worker (or this process) may take, such as ``"4 GiB"``. Rows beyond it are streamed. None
        takes 80 % of the free memory, or half of a Dask worker's limit. Fits in several threads of one process
        take as much each.
    n_jobs : int, default=None
        Kernel threads in this process, or of each worker that is started; None or -1 takes all. Workers that exist use
        their own number of threads.
    scratch : path, default=None
        Directory, shared by all machines, for a temporary store when ``cluster`` is given and X is in memory.
    checkpoint : path or URL, default=None
        Directory in which to keep, after epochs, where the run stands. What is kept goes when `fit` has ended well;
        a second live run is refused.
    resume : bool, default=False
        Go on from what is in ``checkpoint``, to the same bits as if nothing had happened; begin anew where nothing is.
        Without it, `fit` refuses to begin while an unfinished run is there.
    on_epoch : callable, default=None
        Called with a `psmds_dist.core.events.EpochEvent` after each epoch; returning True ends the solve.

    Attributes
    ----------
    embedding_ : (n, n_components) ndarray of float64
        Coordinates: centred, on principal axes in order of falling variance, with fixed signs. With ``pinned`` or
        ``bounds`` they are where these say, as `raw_embedding_` is.
    raw_embedding_ : (n, n_components) ndarray
        The same as the solver left them.
    mse_ : float
        Mean of ``(t_ij - d_ij)^2`` over all ``n^2`` ordered pairs. This and all below are of `embedding_`, with the
        weights of the pairs; see `psmds_dist.Stress` for means where pairs have weights or are missing.
    raw_stress_, stress_ : float
        Sum of ``(t_ij - d_ij)^2`` over pairs ``i < j``; `stress_` is its name in `sklearn.manifold.MDS`.
    stress1_ : float
        Kruskal's Stress-1, ``sqrt(sum (t_ij - d_ij)^2 / sum d_ij^2)``.
    normalized_stress_ : float
        ``sqrt(sum (t_ij - d_ij)^2 / sum t_ij^2)``.
    standard_error_ : float
        Standard error of `normalized_stress_` where it comes from a ``sample``; 0 otherwise.
    point_stress_ : (n,) ndarray
        Normalised stress of each point's row.
    error_ : float
        What the solve lowered, as a mean over pairs: `mse_`, or the mean of another ``loss``.
    disparities_ : (k, 2) or (k, 3) ndarray or None
        With ``transformation``, knots of the fitted function: dissimilarities, and their disparities or (with primary
        ties) the lowest and the highest disparity of each. The function is linear between knots; where only the order
        counts it is a step function of up to 4,096 steps, that begin at the knots.
    n_known_pairs_ : int
        Pairs that count: those that are neither missing nor of weight zero.
    n_epochs_, n_iter_ : int
        Epochs run.
    history_ : structured ndarray
        One row an epoch: ``epoch``, ``radius``, ``mse`` (as collected during it), ``seconds``, ``moved``
        (share of the points).
    stop_reason_ : str
        Why the solve ended: ``"radius_tol"``, ``"zero_stress"``, ``"max_epochs"``, ``"callback"``, ``"interrupted"``,
        ``"cluster_lost"`` or ``"workers_died"`` (see `psmds_dist.core.types.StopReason`).
    radius_ : float
        Radius of the last epoch.
    certificate_ : psmds_dist.core.certificate.Certificate or None
        With ``bad_moves=False``, what no single move along the axes of `raw_embedding_` gains; see
        `psmds_dist.certify`. None where the solve did not converge, and with bad moves.
    seed_ : int
        Seed used, of the best start.
    ids_ : list of str or None
        Row names, from the store, the data frame or the distance matrix.
    start_ : str
        Where the map comes from: ``"random"``, ``"classical"``, ``"landmarks"`` or ``"given"``.
    evidence_ : psmds_dist.solver.search.Evidence
        How many starts there were, their stress, and how many found this map.
    result_ : psmds_dist.api.embed.Embedding
        Everything else: plan, input check, versions, peak memory.
    n_features_in_ : int
        Number of points seen in `fit`.

    References
    ----------
    .. [1] Paraskevopoulos, Tzinis, Vlatakis-Gkaragkounis, Potamianos: Pattern Search Multidimensional
       Scaling, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from psmds_dist import PatternSearchMDS
    >>> points = np.random.default_rng(0).random((50, 2))
    >>> distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    >>> mds = PatternSearchMDS(random_state=0).fit(distances)
    >>> bool(mds.normalized_stress_ < 1e-2)
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        bad_moves: bool = True,
        eps: float = 1e-4,
        radius: float | None = None,
        radius_tol: float | None = None,
        max_epochs: int = 500,
        direction_share: float = 1.0,
        moves: str = "auto",
        init: str = "auto",
        n_init: int | str = "auto",
        effort: str = "default",
        polish: bool | str = "auto",
        loss: str = "squared",
        weight_power: float = 0.0,
        local: float = 0.0,
        local_neighbors: int = 10,
        transformation: str | None = None,
        ties: str = "primary",
        disconnected: str = "refuse",
        bounds: Any = None,
        random_state: int | np.random.RandomState | None = None,
        sample: int | None = None,
        dtype: str = "float32",
        symmetrize: bool = False,
        cluster: Any = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        scratch: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        self.n_components = n_components
        self.bad_moves = bad_moves
        self.eps = eps
        self.radius = radius
        self.radius_tol = radius_tol
        self.max_epochs = max_epochs
        self.direction_share = direction_share
        self.moves = moves
        self.init = init
        self.n_init = n_init
        self.effort = effort
        self.polish = polish
        self.loss = loss
        self.weight_power = weight_power
        self.local = local
        self.local_neighbors = local_neighbors
        self.transformation = transformation
        self.ties = ties
        self.disconnected = disconnected
        self.bounds = bounds
        self.random_state = random_state
        self.sample = sample
        self.dtype = dtype
        self.symmetrize = symmetrize
        self.cluster = cluster
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.scratch = scratch
        self.checkpoint = checkpoint
        self.resume = resume
        self.on_epoch = on_epoch

    def fit(
        self,
        X: Any,
        y: object = None,
        init: Floats | None = None,
        weights: Any = None,
        upper: Any = None,
        pinned: Any = None,
    ) -> PatternSearchMDS:
        """Embed a dissimilarity matrix.

        Parameters
        ----------
        X : ndarray, data frame, zarr.Array, dask.array.Array, or path of a Zarr store or .npy file; (n, n)
            Symmetric dissimilarities with a zero diagonal; a 1-D array is taken as SciPy's condensed form. Also a
            distance matrix of scikit-bio, a data set of h5py, or the path of a Zarr store in a ``.zip`` archive. A pair
            that is NaN (or masked) in both orders is missing: it has no influence on the map or its stress. See
            `psmds_dist.open_pairs` for lists of known pairs.
        y : ignored
            For scikit-learn's sake.
        init : (n, n_components) ndarray, optional
            Coordinates to start from, in units of the dissimilarities.
        weights : like X, optional
            Weight of each pair, zero or more: what it costs is multiplied by this. Zero is as good as missing.
        upper : like X, optional
            Upper bound of each dissimilarity, infinite where there is none; X holds the lower bounds then. A distance
            between the two costs nothing, another one as much as if the nearer bound were the dissimilarity.
        pinned : (n, n_components) array_like, optional
            Coordinates that do not move, in units of the dissimilarities, NaN for those to be found: the places of
            known points on an older map, or a known position along one axis. The start (``init``) is turned and moved
            onto them as a whole. Moves are along axes, whatever the number of components.

        Returns
        -------
        PatternSearchMDS
            Itself.

        Raises
        ------
        InputError
            (a ValueError) When the matrix or a parameter cannot be used.
        BudgetError
            (a MemoryError) When it cannot be done within ``memory_limit``.
        WorkerError
            (a RuntimeError) When the cluster keeps losing workers.

        Warns
        -----
        DissimilarityWarning
            When pairs are missing, or something else in the matrix is worth a look; and when a map with
            ``transformation`` is degenerate: all disparities the same, or many points in few places.
        ConvergenceWarning
            When the solve ended before it converged: at ``max_epochs`` (unless that is 0), or because of the cluster.
        """
        with open_checkpoint(self.checkpoint, self.resume) as checkpoint:
            result = self._embed((X, weights, upper), self.init if init is None else init, pinned, checkpoint)
            if not result.solution.stop_reason.resumable:
                checkpoint.remove()
        return self._learn(result)

    def fit_transform(
        self,
        X: Any,
        y: object = None,
        init: Floats | None = None,
        weights: Any = None,
        upper: Any = None,
        pinned: Any = None,
    ) -> Floats:
        """Embed a dissimilarity matrix and return the coordinates; arguments as in `fit`."""
        return self.fit(X, y, init, weights, upper, pinned).embedding_

    @property
    def _n_features_out(self) -> int:
        """Columns of the map, for scikit-learn's names of them."""
        return int(self.embedding_.shape[1])

    def _embed(
        self, given: tuple[Any, Any, Any], init: str | Floats, pinned: Any, checkpoint: CheckpointStore
    ) -> Embedding:
        X, weights, upper = given
        config = self._config(checkpoint, weighted=weights is not None, bounded=upper is not None)
        how = {"dtype": self.dtype, "symmetrize": self.symmetrize, "scratch": self.scratch}
        with (
            executor_for(self.cluster, self.n_jobs) as executor,
            paired_rows(X, weights, upper, executor, **how) as (source, names),
        ):
            self._matrix = path_of(X, source)
            self._beside = paths_beside(source, upper=upper, weights=weights)
            region = Region.of(source.n, config.n_components, pinned, self.bounds)
            source, names = keep_connected(
                source, executor, self.disconnected, ids=names, weighted=config.rule.weighted
            )
            if region is not None and source.n < region.n:
                region = region.of_points(rows_kept(source))
            return embed(
                source,
                config,
                executor,
                memory_limit=self.memory_limit,
                ids=names,
                init=init,
                region=region,
                on_epoch=self.on_epoch,
                checkpoint=checkpoint,
            )

    def _config(self, checkpoint: CheckpointStore, **sides: bool) -> SolverConfig:
        return SolverConfig(
            n_components=self.n_components,
            bad_moves=self.bad_moves,
            eps=self.eps,
            radius=self.radius,
            radius_tol=self.radius_tol,
            max_epochs=self.max_epochs,
            direction_share=self.direction_share,
            moves=self.moves,
            n_init=self.n_init,
            effort=self.effort,
            polish=self.polish,
            seed=seed_of(self.random_state, checkpoint),
            rule=PairRule(
                self.loss,
                power=self.weight_power,
                transformation=self.transformation,
                ties=self.ties,
                local=self.local,
                local_neighbors=self.local_neighbors,
                **sides,
            ),
            sample=self.sample,
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted map to a Zarr group, as ``psmds fit`` does, for ``psmds info``, ``quality`` and ``export``.

        Parameters
        ----------
        path : path or URL
            Where.
        overwrite : bool
            Whether an earlier result there is replaced.
        """
        from psmds_dist.api.results import write_result

        check_is_fitted(self, "result_", msg="this PatternSearchMDS is not fitted yet: call fit before save.")
        write_result(path, self.result_, matrix=self._matrix, beside=self._beside, overwrite=overwrite)

    def _learn(self, result: Embedding) -> PatternSearchMDS:
        solution, stress = result.solution, result.solution.stress
        self.embedding_ = solution.embedding
        self.raw_embedding_ = solution.raw_embedding
        self.mse_ = stress.mse
        self.raw_stress_ = self.stress_ = stress.raw_stress
        self.stress1_ = stress.stress1
        self.normalized_stress_ = stress.normalized_stress
        self.standard_error_ = stress.standard_error
        self.point_stress_ = stress.point_stress
        self.error_ = stress.error
        self.disparities_ = solution.disparities.T if solution.disparities.size else None
        self.n_known_pairs_ = result.check.known_pairs
        self.n_epochs_ = self.n_iter_ = len(solution.history)
        self.history_ = solution.history
        self.stop_reason_ = str(solution.stop_reason)
        self.radius_ = solution.radius
        self.certificate_ = result.certificate
        self.seed_ = solution.seed
        self.ids_ = result.ids
        self.start_ = result.start
        self.evidence_ = result.evidence
        self.n_features_in_ = len(solution.embedding)
        self.result_ = result
        if result.advice:
            warnings.warn(result.advice, ConvergenceWarning, stacklevel=3)
        if result.degeneracy:
            warnings.warn(result.degeneracy, DissimilarityWarning, stacklevel=3)
        if result.over:
            warnings.warn(describe_exceeded(result.over), RuntimeWarning, stacklevel=3)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.positive_only = True
        return tags
