"""Ratio, interval, spline and ordinal scaling from the user's input to the map."""

import warnings

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.isotonic import isotonic_regression
from sklearn.manifold import MDS

from psmds_dist import DissimilarityWarning, InputError, PatternSearchMDS, measure, quality

POINTS = np.random.default_rng(0).random((60, 2))
T = pdist(POINTS)


def fit(t, **parameters):
    """Fit with few starts, without regard to notes on the matrix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)
        return PatternSearchMDS(**{"random_state": 0, "n_init": 1, **parameters}).fit(squareform(t))


def best_stress(t, x, ties):
    """Kruskal's Stress-1 of a map, by monotone regression over all pairs."""
    d = pdist(x)
    if ties == "primary":
        order = np.lexsort((d, t))
        return np.sqrt(np.sum((d[order] - isotonic_regression(d[order])) ** 2) / np.sum(d**2))
    _, bins, counts = np.unique(t, return_inverse=True, return_counts=True)
    means = np.bincount(bins, d) / counts
    return np.sqrt(np.sum((d - isotonic_regression(means, sample_weight=counts)[bins]) ** 2) / np.sum(d**2))


def test_what_was_done_with_ties_is_told_where_there_are_many_dissimilarities():
    many = pdist(np.random.default_rng(1).random((100, 2)))  # 4,950 different ones
    short = {"transformation": "ordinal", "max_epochs": 3, "polish": False, "dtype": "float64"}
    assert [fit(t, **short).result_.config.rule.ties for t in (T, many)] == ["primary", "secondary"]


@pytest.mark.parametrize("change", [lambda t: t**3, lambda t: np.exp(3 * t), rankdata], ids=["cube", "exp", "ranks"])
def test_a_plane_is_recovered_from_the_order_of_its_distances(change):
    mds = fit(change(T), transformation="ordinal")
    assert procrustes(POINTS, mds.embedding_)[2] < 1e-3
    assert best_stress(T, mds.embedding_, "primary") < 1e-2


@pytest.mark.parametrize(
    ("transformation", "change"), [("ratio", lambda t: 7 * t), ("interval", lambda t: 3 * t + 0.4)]
)
def test_a_plane_is_recovered_up_to_a_factor_and_a_constant(transformation, change):
    mds = fit(change(T), transformation=transformation, dtype="float64")
    assert mds.stress1_ < 1e-4
    assert procrustes(POINTS, mds.embedding_)[2] < 1e-7
    t, disparities = mds.disparities_.T
    wanted = np.interp(t, np.sort(change(T)), np.sort(T))
    np.testing.assert_allclose(disparities / disparities[-1], wanted / wanted[-1], atol=1e-3)


def test_a_smooth_function_is_fitted():
    ours, straight = (fit(T**1.5, transformation=name).stress1_ for name in ("spline", "interval"))
    assert ours < straight / 3


NOISY = np.abs(T + np.random.default_rng(1).normal(0, 0.2, T.size))
RATED = np.digitize(NOISY, np.quantile(NOISY, np.arange(1, 7) / 7)) + 1.0


@pytest.mark.parametrize("ties", ["primary", "secondary"])
@pytest.mark.parametrize("t", [NOISY, RATED], ids=["noisy", "rated"])
def test_stress_is_that_of_monotone_regression_and_a_local_minimum(t, ties):
    mds = fit(t, transformation="ordinal", ties=ties, dtype="float64")
    stress = best_stress(t, mds.embedding_, ties)
    assert mds.stress1_ == pytest.approx(stress, rel=2e-3)
    random = np.random.default_rng(2)
    for length in (0.003, 0.03):
        moved = (mds.embedding_ + length * random.standard_normal(POINTS.shape) for _ in range(10))
        assert stress < min(best_stress(t, x, ties) for x in moved)
    told = measure(squareform(t), mds.embedding_, transformation="ordinal", ties=ties, dtype="float64")
    assert told.stress1 == pytest.approx(mds.stress1_, rel=1e-9)


def test_only_the_order_counts():
    one, other = (fit(change(NOISY), transformation="ordinal", dtype="float64") for change in (rankdata, np.exp))
    np.testing.assert_array_equal(one.disparities_[:, 1:] > 0, other.disparities_[:, 1:] > 0)
    assert procrustes(one.embedding_, other.embedding_)[2] < 1e-12


@pytest.mark.wide  # kernels of their own, which take a minute to compile
def test_missing_pairs_do_not_count():
    known = np.random.default_rng(3).random(T.size) < 0.7
    mds = fit(np.where(known, T**2, np.nan), transformation="ordinal")
    assert procrustes(POINTS, mds.embedding_)[2] < 1e-3
    assert mds.n_known_pairs_ == known.sum()


@pytest.mark.parametrize(
    ("transformation", "ties"), [("ordinal", "primary"), ("ordinal", "secondary"), ("spline", "primary")]
)
def test_threads_and_resumed_runs_give_the_same_bits(tmp_path, transformation, ties):
    whole = {"transformation": transformation, "ties": ties, "init": "classical", "max_epochs": 25}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = fit(RATED, **whole)
        np.testing.assert_array_equal(fit(RATED, n_jobs=1, **whole).embedding_, wanted.embedding_)
        stopped = fit(RATED, checkpoint=tmp_path / "kept", on_epoch=lambda event: event.epoch == 7, **whole)
        assert stopped.stop_reason_ == "callback"
        found = fit(RATED, checkpoint=tmp_path / "kept", resume=True, **whole)
    np.testing.assert_array_equal(found.embedding_, wanted.embedding_)
    np.testing.assert_array_equal(found.disparities_, wanted.disparities_)


def test_bad_parameters_are_refused():
    with pytest.raises(
        InputError, match="transformation must be one of None, 'ratio', 'interval', 'spline', 'ordinal'"
    ):
        fit(T, transformation="monotone")
    with pytest.raises(InputError, match="ties='secondary' .* is about transformation='ordinal'"):
        fit(T, ties="secondary")
    with pytest.raises(InputError, match="is for the squared error of pairs that count alike"):
        fit(T, transformation="ordinal", loss="absolute")
    with pytest.raises(InputError, match="there is nothing to transform"):
        fit(np.ones(T.size), transformation="ordinal")


def test_the_estimator_is_one_of_scikit_learn():
    mds = clone(PatternSearchMDS(transformation="ordinal", ties="secondary"))
    assert (mds.transformation, mds.ties) == ("ordinal", "secondary")
    assert fit(T).disparities_ is None


def test_quality_is_told_against_disparities():
    mds = fit(T**3, transformation="ordinal")
    found = quality(squareform(T**3), mds.embedding_, transformation="ordinal", truth=POINTS)
    assert found.stress1 == pytest.approx(mds.stress1_, rel=1e-6)
    assert found.procrustes < 1e-3


def small_sets():
    """Ratings with ties, correlations of measurements, and distances on a sphere."""
    random = np.random.default_rng(1)
    near = pdist(random.random((40, 3)))
    near += 0.15 * random.standard_normal(near.size)
    yield "ratings", np.digitize(near, np.quantile(near, np.arange(1, 7) / 7)) + 1.0
    yield "correlations", squareform(1 - np.corrcoef(load_breast_cancer().data.T), checks=False)
    x = random.standard_normal((60, 3))
    yield "sphere", np.arccos(np.clip(1 - pdist(x, "cosine"), -1, 1))


@pytest.mark.wide
@pytest.mark.parametrize("ties", ["primary", "secondary"])
def test_stress_is_no_worse_than_that_of_the_best_of_ten_starts_of_smacof(ties):
    for name, t in small_sets():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            how = {"metric": False, "normalized_stress": True, "n_init": 10, "dissimilarity": "precomputed"}
            theirs = MDS(2, **how, max_iter=1000, eps=1e-6, random_state=0).fit_transform(squareform(t))
        ours = fit(t, transformation="ordinal", ties=ties, n_init="auto").embedding_
        assert best_stress(t, ours, ties) <= 1.005 * best_stress(t, theirs, ties), name


def test_outliers_that_no_sample_holds_count_as_they_are():
    random = np.random.default_rng(0)
    x = random.standard_normal((2300, 2)).astype(np.float32)
    x[1], x[2:4] = 1000, 0
    y = x + random.normal(0, 0.1, x.shape)
    t, d = pdist(x), pdist(y)
    wanted = np.sqrt(1 - np.dot(t, d) ** 2 / np.dot(t, t) / np.dot(d, d))
    assert measure(squareform(t), y, transformation="ratio").stress1 == pytest.approx(wanted, rel=1e-3)
