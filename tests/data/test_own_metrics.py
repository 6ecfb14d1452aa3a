"""Great circles and Tanimoto distances, compared with scikit-learn and SciPy."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import haversine_distances

from landmarks import LandmarkMDS
from psmds_dist import InputError, open_points


def places(n=200, seed=0):
    random = np.random.default_rng(seed)
    found = np.column_stack([random.uniform(-90, 90, n), random.uniform(-180, 180, n)])
    found[1] = found[0] + (1e-6, 0)  # eleven centimetres away
    found[2], found[3] = (90, 10), (90, -170)  # the pole, twice
    return found


def bits(n=150, seed=0):
    found = np.random.default_rng(seed).random((n, 300)) < 0.1
    found[:2] = False
    return found


def rows_of(folder, points, metric, **options):
    np.save(folder / "points.npy", points)
    source = open_points(folder / "points.npy", metric, options, dtype="float64")
    found = source.take(np.arange(source.n))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(found[7:8], source.take(np.array([7])))
    assert not found.diagonal().any()
    return found


def test_great_circles_are_in_kilometres(tmp_path):
    expected = haversine_distances(np.radians(places())) * 6371.0088
    found = rows_of(tmp_path, places(), "haversine")
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found[0, 1], 1e-6 * np.pi / 180 * 6371.0088, rtol=1e-5)
    np.testing.assert_allclose(rows_of(tmp_path, places(), "haversine", radius=1.0), found / 6371.0088, rtol=1e-12)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_tanimoto_distances_are_those_of_jaccard(tmp_path, dtype):
    found = rows_of(tmp_path, bits().astype(dtype), "tanimoto")
    np.testing.assert_allclose(found, cdist(bits(), bits(), "jaccard"), rtol=1e-14)


@pytest.mark.parametrize(("metric", "points"), [("haversine", places), ("tanimoto", bits)])
def test_landmark_mode_knows_them(metric, points):
    how = {"n_landmarks": 30, "random_state": 0}
    x = points().astype(float)
    square = cdist(x, x, "jaccard") if metric == "tanimoto" else haversine_distances(np.radians(x)) * 6371.0088
    mds = LandmarkMDS(metric=metric, **how).fit(x)
    expected = LandmarkMDS(**how).fit(square)
    np.testing.assert_allclose(mds.landmark_stress_, expected.landmark_stress_, rtol=1e-3)
    np.testing.assert_array_equal(mds.transform(x[:3]), mds.transform(x)[:3])


WRONG = {
    "three numbers": (np.ones((5, 3)), "haversine", {}, "needs points of 2 numbers, latitude and longitude"),
    "swapped": (np.array([[10, 20], [120, 10], [3, 4]]), "haversine", {}, "point 1 is 120, 10, .* are they swapped"),
    "counts": (np.array([[0, 1], [2, 0], [1, 1]]), "tanimoto", {}, "point 1 holds other numbers than 0 and 1"),
    "parameter": (np.ones((5, 2)), "haversine", {"r": 1}, "takes no parameter 'r'; its parameters are: radius"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_points_that_do_not_suit_are_named(tmp_path, kind):
    points, metric, options, sentence = WRONG[kind]
    np.save(tmp_path / "points.npy", points)
    with pytest.raises(InputError, match=sentence):
        open_points(tmp_path / "points.npy", metric, options)
