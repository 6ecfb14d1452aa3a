"""Geodesic distances, compared with scikit-learn's graphs, SciPy's paths and scikit-learn's Isomap."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from scipy.stats import spearmanr
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import Isomap
from sklearn.neighbors import kneighbors_graph, radius_neighbors_graph

from landmarks import LandmarkMDS
from psmds_dist import InProcessExecutor, InputError, build, open_geodesics, open_rows


def roll(n=300, seed=0):
    return make_swiss_roll(n, random_state=seed)[0]


def rows_of(source):
    return source.take(np.arange(source.n))


def dense(graph):
    return shortest_path(graph, method="FW", directed=False)


@pytest.mark.parametrize("k", [5, 12])
def test_nearest_neighbors_agree_with_scikit_learn_and_scipy(k):
    expected = dense(kneighbors_graph(roll(), k, mode="distance"))
    np.testing.assert_allclose(rows_of(open_geodesics(roll(), k, dtype="float64")), expected, rtol=1e-11, atol=1e-11)


def test_a_radius_graph_agrees_with_scikit_learn_and_scipy():
    expected = dense(radius_neighbors_graph(roll(), 5.0, mode="distance"))
    found = rows_of(open_geodesics(roll(), radius=5.0, dtype="float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_edges_of_another_metric():
    expected = dense(kneighbors_graph(roll(), 12, mode="distance", metric="cityblock"))
    found = rows_of(open_geodesics(roll(), metric="cityblock", dtype="float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_matrix_is_symmetric_to_the_last_bit(scale):
    found = rows_of(open_geodesics(scale * roll(), 6, dtype="float64"))
    np.testing.assert_array_equal(found, found.T)
    assert not found.diagonal().any()


def test_some_rows_and_columns_are_those_of_the_matrix(monkeypatch):
    whole = rows_of(open_geodesics(roll()))
    monkeypatch.setattr("psmds_dist.data.geodesics.SCRATCH_BYTES", 8 * 300 * 7)
    rows, out = np.array([299, 4, 4, 17, 0, 9, 8, 7, 6]), np.empty((9, 50), np.float32)
    open_geodesics(roll()).read_rows(rows, slice(100, 150), out)
    np.testing.assert_array_equal(out, whole[rows, 100:150])


def test_equal_points_have_equal_rows():
    x = np.r_[roll(), roll()[:40]]
    found = rows_of(open_geodesics(x, 8))
    np.testing.assert_array_equal(found[300:], found[:40])
    assert not found[np.arange(40), np.arange(300, 340)].any()


def apart():
    """Three groups of points, far from each other."""
    random = np.random.default_rng(0)
    return np.r_[random.random((60, 3)), random.random((25, 3)) + 9, random.random((30, 3)) - [20, 0, 0]]


def test_a_graph_in_parts_is_refused_with_their_sizes():
    with pytest.raises(InputError, match=r"3 parts without a path between them \(of 60, 30, 25 points\); raise"):
        open_geodesics(apart(), 6)


def test_parts_are_bridged_as_isomap_does():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it bridges
        expected = Isomap(n_neighbors=6).fit(apart()).dist_matrix_
    found = rows_of(open_geodesics(apart(), 6, disconnected="bridge", dtype="float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_too_many_parts_are_not_bridged(monkeypatch):
    monkeypatch.setattr("psmds_dist.data.geodesics.MAX_BRIDGED", 2)
    with pytest.raises(InputError, match="3 parts .* but at most 2 are bridged; raise n_neighbors"):
        open_geodesics(apart(), 6, disconnected="bridge")


def test_the_largest_part_keeps_its_rows_and_names():
    x = np.roll(apart(), 55, axis=0)  # the largest part is rows 55 to 114
    found = open_geodesics(x, 6, disconnected="largest")
    np.testing.assert_array_equal(rows_of(found), rows_of(open_geodesics(x[55:], 6)))
    assert found.ids == [str(row) for row in range(55, 115)]
    named = open_geodesics(x, 6, disconnected="largest", ids=[f"p{row}" for row in range(115)])
    assert named.ids == [f"p{row}" for row in range(55, 115)]


@pytest.mark.parametrize(
    ("x", "parameters", "sentence"),
    [
        (roll(9), {"n_neighbors": 9}, "n_neighbors .* must be a whole number from 1 to 8, .* not 9"),
        (roll(9), {}, "from 1 to 8, .* not 12"),
        (roll(9), {"n_neighbors": 0}, "from 1 to 8, .* not 0"),
        (roll(9), {"n_neighbors": 2.5}, "from 1 to 8, .* not 2.5"),
        (roll(99), {"n_neighbors": 1}, "falls into .* parts .*; raise n_neighbors"),
        (np.r_[np.zeros((5, 2)), np.ones((5, 2))], {"n_neighbors": 4}, r"2 parts .* \(of 5, 5 points\)"),
        (roll(9), {"radius": -1.0}, "radius .* must be a positive number, not -1.0"),
        (roll(9), {"radius": np.nan}, "radius .* must be a positive number, not nan"),
        (roll(9), {"radius": 1.0, "n_neighbors": 3}, "both choose the edges of the graph; give one"),
        (roll(99), {"radius": 1e-6}, "falls into 99 parts"),
        (roll(99), {"disconnected": "no"}, "disconnected must be 'refuse', 'bridge', 'largest', not 'no'"),
        (roll(99), {"metric": "nonsense"}, "metric 'nonsense' cannot be used"),
        (roll(99) * [1, np.nan, 1], {}, "NaN or infinite coordinates, first in row 0"),
        (roll(2), {"n_neighbors": 1}, "a map needs at least 3"),
        (roll(99)[:, 0], {}, "points are an array of shape"),
        (roll(99) * 1e200, {}, "scale the points"),
        (roll(99), {"ids": ["a"]}, "has 1 ids for 99 points"),
    ],
)
def test_unusable_points_and_parameters_are_told(x, parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        open_geodesics(x, **parameters)


def test_the_content_id_is_that_of_the_distances():
    assert open_geodesics(roll()).content_id == open_geodesics(roll(), radius=None, n_neighbors=12).content_id
    others = open_geodesics(roll(), 11), open_geodesics(roll(seed=1)), open_geodesics(roll(), dtype="float64")
    assert len({source.content_id for source in (open_geodesics(roll()), *others)}) == 4


def test_a_store_is_built_and_resumed(tmp_path):
    source = open_geodesics(roll())
    check = build(source, tmp_path / "d.zarr", InProcessExecutor(), metric="geodesic")
    assert check.asymmetry is None  # no pair differs at all
    np.testing.assert_array_equal(rows_of(open_rows(tmp_path / "d.zarr")), rows_of(source))


@pytest.mark.parametrize("matrix", [roll, open_geodesics])
def test_landmark_mode_computes_paths_from_landmarks_only(matrix, monkeypatch):
    asked = []
    read_rows = type(open_geodesics(roll())).read_rows
    monkeypatch.setattr(
        "psmds_dist.data.geodesics.Geodesics.read_rows",
        lambda source, rows, columns, out: asked.extend(rows) or read_rows(source, rows, columns, out),
    )
    x, t = make_swiss_roll(1500, random_state=0)
    way = {"metric": "geodesic", "metric_params": {"n_neighbors": 10}} if matrix is roll else {}
    given = x if matrix is roll else open_geodesics(x, 10)
    fit = LandmarkMDS(n_landmarks=100, random_state=0, **way).fit(given)
    assert len(set(asked)) < 1000
    assert abs(spearmanr(fit.embedding_[:, 0], t).statistic) > 0.99
    placed = fit.transform(rows_of(open_geodesics(x, 10))[:5, fit.landmarks_])
    np.testing.assert_allclose(placed, fit.embedding_[:5], atol=0.05)


def test_unknown_parameters_of_the_metric_are_told():
    with pytest.raises(InputError, match="metric_params of metric='geodesic' are n_neighbors, .* not 'neighbours'"):
        LandmarkMDS(metric="geodesic", metric_params={"neighbours": 3}).fit(roll())


def test_a_read_takes_no_more_memory_than_its_profile_says():
    source, out = open_geodesics(roll(800)), np.empty((800, 800), np.float32)
    source.read(0, 2, out)  # imports SciPy
    tracemalloc.start()
    source.read(0, 800, out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 4_000_000 < peak < source.read_profile.scratch_bytes
