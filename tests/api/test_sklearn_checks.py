"""The checks that scikit-learn has for everybody's estimators, and its conventions in pipelines.

Where an estimator is pairwise the checks hand over kernels, that is similarities, which a map cannot be made from; here
they hand over Euclidean distances instead.
"""

import pickle
from contextlib import nullcontext, suppress
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.manifold import MDS
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from landmarks import LandmarkMDS
from psmds_dist import InputError, PatternSearchMDS

SHAPE = "the message names the shape that came and the shapes that are expected"
TOO_FEW = "the message counts points or landmarks, of which a map needs more than dimensions"
NEGATIVE = "the message names the negative entries one by one"
OBJECTS = "Python objects are refused: a None among them would be read as NaN without a word"
PLACED = "fit embeds landmarks among themselves; transform places each point against the landmarks alone"
ONE_DIMENSIONAL = "the message names the shape that came; a single point is a row of a matrix"
WIDTH = "the message asks for a column for each landmark"

EXPECTED = {
    "PatternSearchMDS": {
        "check_dtype_object": OBJECTS,
        "check_estimators_empty_data_messages": SHAPE,
        "check_estimators_nan_inf": f"hands over 10 x 3 entries: {SHAPE}",
        "check_fit2d_1sample": TOO_FEW,
        "check_positive_only_tag_during_fit": NEGATIVE,
    },
    "euclidean": {
        "check_dtype_object": OBJECTS,
        "check_estimators_empty_data_messages": SHAPE,
        "check_fit2d_1sample": TOO_FEW,
        "check_fit2d_predict1d": ONE_DIMENSIONAL,
        "check_transformer_data_not_an_array": PLACED,
        "check_transformer_general": PLACED,
    },
    "precomputed": {
        "check_dtype_object": OBJECTS,
        "check_estimators_empty_data_messages": SHAPE,
        "check_estimators_nan_inf": f"hands over 10 x 3 entries: {SHAPE}",
        "check_fit2d_1sample": TOO_FEW,
        "check_fit2d_predict1d": ONE_DIMENSIONAL,
        "check_n_features_in_after_fitting": WIDTH,
        "check_positive_only_tag_during_fit": NEGATIVE,
        "check_transformer_data_not_an_array": PLACED,
        "check_transformer_general": PLACED,
    },
}
"""Checks that fail, and why, by the estimator or its metric."""


def expected(estimator):
    return EXPECTED[getattr(estimator, "metric", "PatternSearchMDS")]


ESTIMATORS = [
    PatternSearchMDS(max_epochs=20, random_state=0),
    LandmarkMDS(metric="euclidean", random_state=0),
    LandmarkMDS(random_state=0),
]


@pytest.fixture
def distances_for_kernels(monkeypatch):
    original = estimator_checks._enforce_estimator_tags_X

    def with_distances(estimator, X, X_test=None, kernel=None):
        return original(estimator, X, X_test, euclidean_distances)

    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", with_distances)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("distances_for_kernels")
@parametrize_with_checks(ESTIMATORS)
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    reason = expected(estimator).get(check.func.__name__)  # not by xfail: pytest parses scikit-learn for each traceback
    fails = suppress(AssertionError) if reason is PLACED else pytest.raises((AssertionError, InputError))
    with fails if reason else nullcontext():  # points that are placed may well be where fit has them
        check(estimator)


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(60, 4))


@pytest.fixture(params=ESTIMATORS, ids=["exact", "points", "matrix"])
def case(request, points):
    """An estimator and the input that it takes."""
    takes_points = getattr(request.param, "metric", None) == "euclidean"
    return clone(request.param), points if takes_points else euclidean_distances(points)


def test_a_clone_and_a_pickle_give_the_same_map(case):
    estimator, X = case
    wanted = estimator.fit(X).embedding_
    assert_array_equal(clone(estimator).fit_transform(X), wanted)
    assert_array_equal(pickle.loads(pickle.dumps(estimator)).embedding_, wanted)


def test_columns_of_a_map_have_names(case):
    estimator, X = case
    prefix = type(estimator).__name__.lower()
    assert estimator.fit(X).get_feature_names_out().tolist() == [f"{prefix}0", f"{prefix}1"]


def test_transform_gives_a_data_frame_where_that_is_asked_for(points):
    pandas = pytest.importorskip("pandas")
    mds = LandmarkMDS(metric="euclidean", random_state=0).set_output(transform="pandas")
    frame = mds.fit_transform(pandas.DataFrame(points, index=[f"point {i}" for i in range(60)]))
    assert list(frame.columns) == ["landmarkmds0", "landmarkmds1"]
    assert list(frame.index) == [f"point {i}" for i in range(60)]
    assert_array_equal(frame.to_numpy(), mds.embedding_)


def test_an_exact_map_ends_a_pipeline(points):
    mds = PatternSearchMDS(random_state=0)
    pipeline = make_pipeline(StandardScaler(), FunctionTransformer(euclidean_distances), mds)
    scaled = StandardScaler().fit_transform(points)
    assert_array_equal(pipeline.fit_transform(points), clone(mds).fit_transform(euclidean_distances(scaled)))


def test_a_landmark_map_transforms_in_a_pipeline(points):
    mds = LandmarkMDS(metric="euclidean", n_landmarks=40, random_state=0)
    pipeline = make_pipeline(StandardScaler(), mds).fit(points)
    scaler = StandardScaler().fit(points)
    alone = clone(mds).fit(scaler.transform(points))
    assert_array_equal(pipeline.transform(points[:5] + 0.1), alone.transform(scaler.transform(points[:5] + 0.1)))


@pytest.mark.parametrize("n_landmarks", [None, 40])
def test_new_rows_may_be_as_wide_as_the_matrix_was(points, n_landmarks):
    mds = LandmarkMDS(n_landmarks=n_landmarks, random_state=0).fit(euclidean_distances(points))
    new = euclidean_distances(points[:7] + 0.1, points)
    x = mds.transform(new)
    assert_array_equal(mds.transform(new[:, mds.landmarks_]), x)
    assert np.abs(x - mds.embedding_[:7]).mean() < 0.3


@pytest.mark.parametrize(
    "use", [partial(LandmarkMDS.transform, X=np.eye(3)), partial(LandmarkMDS.save, path="map.zarr")]
)
def test_a_landmark_map_that_is_not_fitted_says_so(use):
    with pytest.raises(NotFittedError, match="this LandmarkMDS is not fitted yet: call fit"):
        use(LandmarkMDS())


def test_a_map_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError, match="this PatternSearchMDS is not fitted yet: call fit before save"):
        PatternSearchMDS().save("map.zarr")


def test_attributes_have_the_names_of_scikit_learn(points):
    distances = euclidean_distances(points)
    mds = PatternSearchMDS(random_state=0).fit(distances)
    theirs = MDS(metric="precomputed", n_init=1, init="random", random_state=0).fit(distances)
    learned = {name for name in vars(theirs) if name.endswith("_") and not name.startswith("_")}
    assert learned - set(vars(mds)) == {"dissimilarity_matrix_"}
    assert mds.n_iter_ == mds.n_epochs_ == len(mds.history_)
    assert_allclose(mds.stress_, ((distances - euclidean_distances(mds.embedding_)) ** 2).sum() / 2, rtol=1e-5)
    assert LandmarkMDS(random_state=0).fit(distances).n_iter_ == 0
