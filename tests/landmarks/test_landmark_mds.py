"""The estimator of landmark mode: what it recovers, what it refuses, and what it keeps."""

import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.base import clone
from sklearn.datasets import make_swiss_roll
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neighbors import kneighbors_graph
from sklearn.utils import get_tags

import landmarks
from landmarks import LandmarkMDS
from landmarks.evaluation import estimate
from landmarks.model import Model
from landmarks.panel.build import build_panel
from landmarks.panel.data import open_data
from landmarks.panel.sources import points_panel
from landmarks.panel.tables import array_panel
from landmarks.selection import LandmarkStream
from landmarks.solver.evaluate import hold_out
from landmarks.solver.types import LandmarkConfig
from landmarks.start import start
from psmds_dist import PatternSearchMDS
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.errors import DissimilarityWarning
from psmds_dist.core.types import BudgetError, InputError, StopReason
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import open_rows
from psmds_dist.data.store.chunkfile import ChunkFile
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.solver.solve import solve
from tests.digits import digit_distances

N = 260


def stress_of(t, x):
    d = squareform(pdist(x))
    return np.sqrt(((t - d) ** 2).sum() / (t.astype(float) ** 2).sum())


@cache
def plane(n=N, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, 2))


@cache
def features(n=N, d=4, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


@cache
def matrix():
    return squareform(pdist(features()))


@cache
def sorted_digits():
    return digit_distances("sorted")


def fitted(X, **settings):
    """A fit without what most tests do not look at: the estimate of its stress takes a third of the time."""
    return LandmarkMDS(**{"n_landmarks": 40, "random_state": 0, "evaluate": False, **settings}).fit(X)


def others(mds):
    return np.setdiff1d(np.arange(len(mds.embedding_)), mds.landmarks_)


# --- what it recovers ---


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", ["distances", "points", "panel"])
@pytest.mark.parametrize("selection", ["random", "maxmin", "kmeans++"])
def test_exact_data_is_recovered(dtype, given, selection):
    x = plane()
    settings = {"dtype": dtype, "selection": selection, "evaluate": True}
    if given == "points":
        mds = fitted(x, metric="euclidean", **settings)
    elif given == "panel":
        mds = fitted(cdist(x, x[:60]), landmarks=list(range(60)), **settings)
    else:
        mds = fitted(squareform(pdist(x)), **settings)
    assert_allclose(pdist(mds.embedding_), pdist(x), rtol=1e-4)
    assert mds.normalized_stress_ < 1e-6
    assert mds.landmark_stress_ < 1e-6
    assert mds.point_stress_.max() < 1e-5


@pytest.mark.parametrize(
    ("closed_form", "refine"), [("least_squares", "panel"), ("classical", "none"), ("least_squares", "full")]
)
@pytest.mark.parametrize("n_components", [1, 3])
def test_exact_data_is_recovered_in_other_dimensions_and_ways(closed_form, refine, n_components):
    x = np.random.default_rng(3).normal(size=(N, n_components))
    mds = fitted(
        squareform(pdist(x)), n_components=n_components, refine=refine, closed_form=closed_form, dtype="float64"
    )
    assert_allclose(pdist(mds.embedding_), pdist(x), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_panel_in_memory_is_fitted_however_its_numbers_lie(order):
    """Rows that are used where they lie need nothing of the memory limit."""
    chosen = list(range(0, N, 10))
    panel = np.array(matrix()[:, chosen], dtype="float32", order=order)
    wanted = fitted(matrix(), landmarks=chosen, n_landmarks=None, evaluate=False)
    found = fitted(panel, landmarks=chosen, n_landmarks=None, evaluate=False)
    assert_array_equal(found.embedding_, wanted.embedding_)


@cache
def swiss_roll():
    """Geodesic distances on 3,000 points, and the median stress of five full solves."""
    points, _ = make_swiss_roll(3000, random_state=0)
    graph = kneighbors_graph(points, 10, mode="distance")
    t = shortest_path(graph, directed=False).astype(np.float32)
    t = (t + t.T) / 2
    assert np.isfinite(t).all()
    solves = [PatternSearchMDS(init="random", max_epochs=150, random_state=s).fit(t) for s in range(5)]
    return t, np.median([mds.normalized_stress_ for mds in solves])


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "refine", "share"),
    [(300, "none", 0.03), (1000, "none", 0.015), (300, "full", 0.005), (1000, "full", 0.005)],
)
def test_swiss_roll_is_nearly_as_good_as_a_full_solve(count, refine, share):
    t, full = swiss_roll()
    maps = [LandmarkMDS(n_landmarks=count, refine=refine, evaluate=False, random_state=s).fit(t) for s in range(5)]
    ratio = np.median([stress_of(t, mds.embedding_) for mds in maps]) / full
    print(f"S = {count}, refine = {refine}: {ratio - 1:+.3%}, epochs {[mds.n_epochs_ for mds in maps]}")
    assert ratio <= 1 + share
    assert max(mds.n_epochs_ for mds in maps) <= (8 if refine == "full" else 0)


@cache
def full_digits():
    return np.median([PatternSearchMDS(random_state=s).fit(sorted_digits()).normalized_stress_ for s in range(3)])


@pytest.mark.slow
@pytest.mark.parametrize(("refine", "share"), [("none", 0.03), ("panel", 0.03), ("full", 0.01)])
def test_digits_are_nearly_as_good_as_a_full_solve(refine, share):
    t, full = sorted_digits(), full_digits()
    maps = [LandmarkMDS(n_landmarks=300, refine=refine, random_state=s).fit(t) for s in range(5)]
    ratios = np.array([stress_of(t, mds.embedding_) for mds in maps]) / full
    print(f"digits, refine = {refine}: {ratios - 1}, epochs {[mds.n_epochs_ for mds in maps]}")
    assert np.median(ratios) <= 1 + share


# --- evaluation ---


def test_the_estimate_is_close_to_the_exact_stress_and_its_interval_covers_it():
    t = sorted_digits()
    hits = 0
    for seed in range(5):
        mds = LandmarkMDS(n_landmarks=200, random_state=seed).fit(t)
        outside = others(mds)
        exact = stress_of(t[np.ix_(outside, outside)], mds.embedding_[outside])
        assert not mds.stress_is_exact_
        assert mds.normalized_stress_ == pytest.approx(exact, rel=0.05)
        low, high = mds.stress_interval_
        assert low < mds.normalized_stress_ < high
        hits += low <= exact <= high
        d = squareform(pdist(mds.embedding_))
        assert mds.mse_ == pytest.approx(((t - d) ** 2).mean(), rel=0.15)
        assert mds.raw_stress_ == pytest.approx(mds.mse_ * len(t) ** 2 / 2)
    assert hits >= 4


def test_the_curve_falls_and_ends_at_the_estimate():
    t = sorted_digits()
    curves = [LandmarkMDS(n_landmarks=320, random_state=s).fit(t) for s in range(3)]
    for mds in curves:
        assert mds.curve_["n_landmarks"].tolist() == [40, 80, 160, 320]
        assert (mds.curve_["low"] < mds.curve_["normalized_stress"]).all()
        assert mds.curve_["normalized_stress"][-1] == pytest.approx(mds.normalized_stress_, rel=0.03)
    mean = np.mean([mds.curve_["normalized_stress"] for mds in curves], axis=0)
    assert mean[0] > mean[-1]
    assert (np.diff(mean) < 0.01 * mean[:-1]).all()


@pytest.mark.parametrize("given", ["matrix", "points", "panel"])
def test_held_out_pairs_never_involve_landmarks(given):
    X = {"matrix": matrix(), "points": features(), "panel": cdist(features(), features()[:50])}[given]
    settings = {"points": {"metric": "euclidean"}, "panel": {"landmarks": list(range(50))}}.get(given, {})
    with open_data(X, InProcessExecutor(), **settings) as data:
        chosen = np.arange(40)
        for stream in (LandmarkStream.HELD_OUT_PAIRS, LandmarkStream.VALIDATION_PAIRS):
            held_out = hold_out(data, chosen, LandmarkConfig(), stream)
            assert not np.intersect1d(held_out.points, chosen).size
            assert not np.intersect1d(held_out.rows, held_out.columns).size
            assert_allclose(held_out.values, matrix()[np.ix_(held_out.rows, held_out.columns)], rtol=1e-6)
            if given == "panel":
                assert held_out.rows.tolist() == list(range(40, 50))
        if given == "panel":
            assert hold_out(data, np.arange(50), LandmarkConfig()) is None


def test_without_evaluation_nothing_is_claimed():
    mds = fitted(matrix(), evaluate=False)
    assert np.isnan([mds.normalized_stress_, mds.stress1_, mds.mse_, mds.raw_stress_, *mds.stress_interval_]).all()
    assert len(mds.curve_) == 0
    assert np.isfinite(mds.point_stress_).all()
    assert_array_equal(mds.embedding_, fitted(matrix(), evaluate=True).embedding_)


def test_point_stress_is_that_of_the_map():
    for refine in ("none", "panel"):
        mds = fitted(matrix(), refine=refine)
        t = matrix()[:, mds.landmarks_]
        d = cdist(mds.embedding_, mds.embedding_[mds.landmarks_])
        assert_allclose(mds.point_stress_, np.sqrt(((t - d) ** 2).sum(axis=1) / (t**2).sum(axis=1)), rtol=1e-4)
    mds = fitted(matrix(), refine="full")
    d = squareform(pdist(mds.embedding_))
    exact = np.sqrt(((matrix() - d) ** 2).sum(axis=1) / (matrix() ** 2).sum(axis=1))
    assert_allclose(mds.point_stress_, exact, rtol=1e-5)
    assert_array_equal(mds.model_.residual, mds.point_stress_)
    assert mds.stress_is_exact_
    assert mds.normalized_stress_ == pytest.approx(stress_of(matrix(), mds.embedding_), rel=1e-6)


def test_attributes():
    mds = fitted(matrix(), refine="full", evaluate=True)
    assert mds.n_epochs_ == len(mds.history_) > 0
    assert mds.stop_reason_ == "radius_tol"
    assert mds.agreement_.shape == (1,)
    assert (mds.agreement_ >= 0).all()
    assert mds.seed_ == 0
    assert set(mds.seconds_) == {"check", "panel", "landmarks", "placement", "refinement", "evaluation"}
    assert mds.n_features_in_ == N
    placed = fitted(matrix(), n_init=1, evaluate=True)
    assert placed.agreement_.shape == (0,)
    assert (placed.n_epochs_, placed.history_, placed.stop_reason_) == (0, None, "placed")
    between = matrix()[np.ix_(placed.landmarks_, placed.landmarks_)]
    raw = stress_of(between, placed.embedding_[placed.landmarks_])
    assert placed.landmark_stress_ == pytest.approx(raw, rel=1e-5)
    for map_ in (mds, placed):
        x = map_.embedding_
        assert_allclose(x.mean(axis=0), 0, atol=1e-9)
        assert abs((x[:, 0] * x[:, 1]).sum()) < 1e-9 * (x**2).sum()
        assert (x[np.abs(x).argmax(axis=0), [0, 1]] > 0).all()


def test_stages_are_told():
    told = []
    fitted(matrix(), on_stage=told.append, evaluate=True)
    assert told[0].startswith("260 points by 40 landmarks, panel 40.6 KiB, 1 process with ")
    assert told[0].endswith("each: taken out of the matrix once, then read, in one pass")
    assert [line.split(":")[0] for line in told[1:]] == ["panel", "landmarks", "placement", "evaluation"]


# --- transform ---


def test_each_new_point_is_placed_by_itself_from_distances():
    mds = fitted(matrix())
    new = cdist(features(70, seed=9), features()[mds.landmarks_]).astype(np.float32)
    new[::3, ::4] = np.nan
    whole = mds.transform(new)
    assert whole.shape == (70, 2)
    for size in (1, 2, 7, 33):
        parts = [mds.transform(new[k : k + size]) for k in range(0, 70, size)]
        assert_array_equal(np.concatenate(parts), whole)
    assert_array_equal(mds.transform(new[::-1]), whole[::-1])
    assert_array_equal(mds.transform(np.asfortranarray(new)), whole)
    assert_array_equal(mds.transform(new.tolist()), whole)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "cityblock", "seuclidean", "mahalanobis"])
def test_each_new_point_is_placed_by_itself_from_features(metric):
    mds = fitted(features(), metric=metric)
    new = features(70, seed=9)
    whole = mds.transform(new)
    for size in (1, 2, 33):
        parts = [mds.transform(new[k : k + size]) for k in range(0, 70, size)]
        assert_array_equal(np.concatenate(parts), whole)
    assert_array_equal(mds.transform(features())[others(mds)], mds.embedding_[others(mds)])


@pytest.mark.parametrize("refine", ["none", "panel"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("closed_form", ["least_squares", "classical"])
@pytest.mark.parametrize("missing", [0, 0.2])
def test_the_points_of_the_fit_are_found_again(refine, dtype, closed_form, missing):
    panel = cdist(features(), features()[:60])
    gone = np.random.default_rng(0).random(panel.shape) < missing
    gone[:60] = False
    panel[gone] = np.nan
    settings = {"refine": refine, "dtype": dtype, "closed_form": closed_form}
    mds = LandmarkMDS(n_landmarks=50, landmarks=range(60), random_state=0, **settings).fit(panel)
    again = mds.transform(panel[:, mds.landmarks_])
    assert_array_equal(again[others(mds)], mds.embedding_[others(mds)])
    assert_allclose(mds.model_.frame.coordinates, mds.embedding_[mds.landmarks_], atol=1e-12)


def test_a_point_at_a_landmark_of_a_polished_map_goes_near_it():
    x = plane()
    mds = fitted(squareform(pdist(x)), refine="full")
    again = mds.transform(squareform(pdist(x))[:, mds.landmarks_])
    assert_allclose(again, mds.embedding_, atol=1e-3)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            np.zeros((3, 39)),
            "a column for each of the 40 landmarks, in the order of landmarks_, or all 260 as in fit, not 39",
        ),
        (np.zeros(40), r"X must be a two-dimensional array of numbers, not float64 of shape \(40,\)"),
        ([["a"] * 40], "X must be a two-dimensional array of numbers"),
        (
            np.full((2, 40), -1.0),
            r"-1 as float32 in row 0, column 0 \(landmark \d+\): .* zero or more",
        ),
        (np.full((2, 40), np.inf), "X has the dissimilarity inf as float32 in row 0"),
        (
            np.where(np.arange(40) < 2, 1.0, np.nan)[None],
            "row 0 of X has known dissimilarities to 2 landmarks, but 3 are",
        ),
    ],
)
def test_wrong_dissimilarities_to_transform(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        fitted(matrix()).transform(wrong)


def test_wrong_features_to_transform():
    mds = fitted(features(), metric="euclidean")
    with pytest.raises(InputError, match="X has 3 features, but LandmarkMDS is expecting 4 features as input"):
        mds.transform(np.zeros((5, 3)))
    with pytest.raises(InputError, match="point 2 has NaN or infinite features"):
        mds.transform(np.where(np.arange(5)[:, None] == 2, np.nan, np.zeros((5, 4))))


def test_boolean_points_are_points():
    given = np.random.default_rng(0).random((N, 30)) < 0.4
    given[:, 0] = True
    mds = fitted(given, metric="jaccard")
    assert_array_equal(mds.transform(given)[others(mds)], mds.embedding_[others(mds)])


# --- save and load ---


@pytest.mark.parametrize("refine", ["none", "panel", "full"])
@pytest.mark.parametrize("evaluate", [True, False])
def test_saved_maps_come_back_to_the_bit(tmp_path, refine, evaluate):
    mds = fitted(matrix(), refine=refine, evaluate=evaluate)
    mds.save(tmp_path / "map.zarr")
    back = LandmarkMDS.load(tmp_path / "map.zarr")
    left_out = {"result_", "model_", "history_", "n_epochs_", "n_iter_", "seconds_", "ids_"}
    learnt = {name for name in vars(mds) if name.endswith("_")} - left_out
    assert len(learnt) > 12
    for name in learnt:
        assert_array_equal(getattr(back, name), getattr(mds, name))
    new = cdist(features(30, seed=9), features()[mds.landmarks_])
    assert_array_equal(back.transform(new), mds.transform(new))
    assert back.n_components == 2
    facts = back.model_.facts
    assert facts["seed"] == 0
    assert facts["refine"] == refine
    assert facts["normalized_stress"] == pytest.approx(mds.normalized_stress_, nan_ok=True)
    again = tmp_path / "again.zarr"
    back.save(again)
    assert_array_equal(LandmarkMDS.load(again).transform(new), mds.transform(new))
    with pytest.raises(InputError, match="already holds a result"):
        back.save(again)
    back.save(again, overwrite=True)


@pytest.mark.parametrize(
    ("metric", "options"),
    [("euclidean", None), ("minkowski", {"p": 3.1}), ("seuclidean", None), ("mahalanobis", None), ("cosine", None),
     ("minkowski", {"p": 1.5, "w": np.array([0.1, 2, 3, 4])})],
)  # fmt: skip
def test_saved_metrics_come_back_to_the_bit(tmp_path, metric, options):
    mds = fitted(features(), metric=metric, metric_params=options)
    mds.save(tmp_path / "map.zarr")
    back = LandmarkMDS.load(tmp_path / "map.zarr")
    assert back.metric == metric
    new = features(30, seed=9)
    assert_array_equal(back.transform(new), mds.transform(new))


def test_a_saved_map_holds_numbers_and_text_only(tmp_path):
    mds = fitted(features(), metric="seuclidean")
    mds.save(tmp_path / "map.zarr")
    group = zarr.open_group(str(tmp_path / "map.zarr"), mode="r")
    arrays = {name: node for name, node in group.members(max_depth=None) if isinstance(node, zarr.Array)}
    assert {"embedding", "landmarks", "frame/y", "features", "point_stress"} <= set(arrays)
    assert {array.dtype.kind for array in arrays.values()} == {"f", "i"}
    for file in (tmp_path / "map.zarr").rglob("*"):
        if file.is_file() and file.name != "zarr.json":
            assert not file.read_bytes().startswith(b"\x80\x04")


@pytest.mark.parametrize("size", [30, None])
def test_a_saved_map_of_a_matrix_without_columns_still_transforms(tmp_path, size):
    rows = matrix()[:60, :60]
    mds = LandmarkMDS(n_landmarks=size, evaluate=False, random_state=0).fit(rows)
    replace(mds.model_, columns=None).save(tmp_path / "map.zarr")
    back = LandmarkMDS.load(tmp_path / "map.zarr")
    assert_array_equal(back.transform(rows), mds.transform(rows))
    assert_array_equal(back.transform(rows[:, back.landmarks_]), mds.transform(rows))


def test_what_is_no_landmark_map_is_not_loaded(tmp_path):
    PatternSearchMDS(random_state=0).fit(matrix()[:40, :40]).save(tmp_path / "map.zarr")
    with pytest.raises(InputError, match="is the result of 'psmds fit', no landmark map: it has no landmarks"):
        LandmarkMDS.load(tmp_path / "map.zarr")
    group = zarr.open_group(str(tmp_path / "map.zarr"), mode="r+")
    key = next(k for k, v in group.attrs.items() if isinstance(v, dict) and v.get("kind") == "result")
    header = dict(group.attrs[key])
    group.attrs[key] = {**header, "kind": "dissimilarities"}
    with pytest.raises(InputError, match="holds dissimilarities; give the result of a fit"):
        LandmarkMDS.load(tmp_path / "map.zarr")
    with pytest.raises(InputError, match="does not exist; give the result of a fit"):
        LandmarkMDS.load(tmp_path / "nothing")


# --- degenerate input ---


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_duplicated_points_fall_together(dtype):
    x = np.repeat(plane(60), 5, axis=0)
    mds = fitted(squareform(pdist(x)), dtype=dtype)
    assert_allclose(squareform(pdist(mds.embedding_)), squareform(pdist(x)), atol=1e-5)
    groups = mds.embedding_.reshape(60, 5, 2)
    assert np.abs(groups - groups[:, :1]).max() < 1e-5


def test_duplicated_landmarks_are_no_harm_unless_all_are_one():
    x = plane(100).copy()
    x[:20] = x[0]
    mds = LandmarkMDS(landmarks=list(range(30)), random_state=0).fit(squareform(pdist(x)))
    assert_allclose(squareform(pdist(mds.embedding_)), squareform(pdist(x)), atol=1e-5)
    with pytest.raises(InputError, match=r"all dissimilarities between landmarks are zero: choose other .*maxmin"):
        LandmarkMDS(landmarks=list(range(20))).fit(squareform(pdist(x)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turn", [0.0, 0.6])
def test_landmarks_on_a_line_place_a_line_and_refuse_what_is_off_it(dtype, turn):
    x = np.random.default_rng(0).normal(size=(N, 2))
    line = np.array([np.cos(turn), np.sin(turn)])
    on = x[:, :1] * line
    mds = LandmarkMDS(landmarks=list(range(40)), random_state=0, dtype=dtype).fit(squareform(pdist(on)))
    assert mds.model_.frame.rank == 1
    assert_allclose(squareform(pdist(mds.embedding_)), squareform(pdist(on)), atol=5e-4 if dtype == "float32" else 1e-5)
    x[:40] = on[:40]
    names = [f"sample {k}" for k in range(N)]
    with pytest.raises(
        InputError, match=r"landmarks span only 1 of 2 dimensions.* point \d+ the farthest: choose more"
    ):
        LandmarkMDS(landmarks=list(range(40)), random_state=0, dtype=dtype).fit(squareform(pdist(x)))
    assert len(names) == N
    mds = LandmarkMDS(n_landmarks=40, selection="maxmin", random_state=0, dtype=dtype).fit(squareform(pdist(x)))
    assert_allclose(squareform(pdist(mds.embedding_)), squareform(pdist(x)), atol=1e-4)


def test_a_thin_strip_is_not_a_line():
    x = plane() * [1, 0.02]
    mds = fitted(squareform(pdist(x)), dtype="float64")
    assert mds.model_.frame.rank == 2
    assert mds.embedding_[:, 1].std() > 0.5 * x[:, 1].std()
    assert stress_of(squareform(pdist(x)), mds.embedding_) < 5e-3


def test_more_dimensions_than_the_data_has():
    x = plane()
    mds = fitted(squareform(pdist(x)), n_components=3)
    assert mds.model_.frame.rank == 2
    assert_allclose(pdist(mds.embedding_), pdist(x), atol=5e-4)


def test_as_few_landmarks_as_will_do():
    x = plane()
    mds = LandmarkMDS(landmarks=[3, 77, 150], random_state=0, dtype="float64").fit(squareform(pdist(x)))
    assert_allclose(pdist(mds.embedding_), pdist(x), atol=1e-6)
    with pytest.raises(
        InputError, match=r"2 landmarks cannot place points in 2 dimensions: at least n_components \+ 1 = 3"
    ):
        LandmarkMDS(landmarks=[3, 77]).fit(squareform(pdist(x)))
    with pytest.raises(InputError, match="1 landmarks cannot place"):
        LandmarkMDS(n_landmarks=1).fit(squareform(pdist(x)))


def test_every_point_a_landmark():
    mds = LandmarkMDS(n_landmarks=N, random_state=0).fit(matrix())
    assert sorted(mds.landmarks_.tolist()) == list(range(N))
    exact = stress_of(matrix(), mds.embedding_)
    assert mds.landmark_stress_ == pytest.approx(exact, rel=1e-5)
    best = min(PatternSearchMDS(random_state=s).fit(matrix()).normalized_stress_ for s in range(3))
    assert exact == pytest.approx(best, rel=0.03)
    assert mds.stress_is_exact_  # nobody is held out, and nobody needs to be
    assert mds.normalized_stress_ == pytest.approx(exact, rel=1e-5)
    given, found = squareform(pdist(mds.embedding_)), matrix()
    rows = np.sqrt(np.square(given - found).sum(axis=1) / np.square(found).sum(axis=1))
    assert_allclose(mds.point_stress_, rows, rtol=1e-4)
    assert fitted(matrix(), n_landmarks=None).landmarks_.size == N


def test_landmarks_listed_twice():
    with pytest.raises(InputError, match="landmarks lists 5 more than once: list each landmark once"):
        LandmarkMDS(landmarks=[1, 5, 9, 5]).fit(matrix())


def test_points_with_too_few_known_landmarks_are_named():
    panel = cdist(features(), features()[:30])
    panel[200, 2:] = np.nan
    panel[220, 1:] = np.nan
    with pytest.raises(InputError, match=r"point 200 has known .* to 2 landmarks, but 3 .*\(2 points in all know"):
        LandmarkMDS(landmarks=range(30), evaluate=False).fit(panel)
    panel[[200, 220], 5:8] = 1.0
    mds = LandmarkMDS(landmarks=range(30), evaluate=False, random_state=0).fit(panel)
    assert np.isfinite(mds.embedding_).all()


def test_landmarks_must_know_each_other():
    panel = cdist(features(), features()[:30])
    panel[4, 9] = panel[9, 4] = np.nan
    with pytest.raises(InputError, match="dissimilarity between landmarks 4 and 9 is missing"):
        LandmarkMDS(landmarks=range(30), evaluate=False).fit(panel)
    panel = cdist(features(), features()[:30])
    wanted = LandmarkMDS(landmarks=range(30), evaluate=False, random_state=0).fit(panel).embedding_
    panel[np.arange(30), np.arange(30)] = np.nan  # to themselves they need not
    got = LandmarkMDS(landmarks=range(30), evaluate=False, random_state=0).fit(panel).embedding_
    assert_allclose(got, wanted, atol=1e-12)


@pytest.mark.filterwarnings("ignore:stress was not measured")
def test_an_evaluation_needs_pairs():
    panel = cdist(features(), features()[:30])
    one_left = LandmarkMDS(landmarks=range(30), n_landmarks=29, random_state=0).fit(panel)
    assert one_left.result_.aside.size == 6  # and the one that is not used
    assert np.isfinite(one_left.stress_interval_).all()
    gone, with_gaps = panel.copy(), LandmarkMDS(landmarks=range(30), random_state=0)
    gone[np.ix_(range(30, N), with_gaps.fit(panel).result_.aside)] = np.nan
    for mds in (with_gaps.fit(gone), LandmarkMDS(landmarks=range(5), random_state=0).fit(panel[:, :5])):
        assert np.isnan([mds.normalized_stress_, *mds.stress_interval_]).all()
        assert len(mds.curve_) == 0


@pytest.mark.parametrize("selection", ["random", "maxmin", "kmeans++"])
@pytest.mark.parametrize("form", ["panel", "matrix"])
def test_landmarks_are_chosen_that_know_each_other(selection, form):
    gone = np.random.default_rng(1).random((N, N)) < 0.1
    t = np.where(gone | gone.T, np.nan, matrix())
    np.fill_diagonal(t, 0)
    X, more = (t[:, :80], {"landmarks": range(80)}) if form == "panel" else (t, {})
    if (form, selection) == ("matrix", "random"):  # drawn without a look at the matrix
        with pytest.raises(InputError, match=r"landmarks must know each other: .* selection='kmeans\+\+'"):
            LandmarkMDS(n_landmarks=12, selection=selection, random_state=0).fit(X)
        return
    mds = LandmarkMDS(n_landmarks=12, selection=selection, random_state=0, **more).fit(X)
    assert not np.isnan(t[np.ix_(mds.landmarks_, mds.landmarks_)]).any()
    with pytest.raises(InputError, match="know each other"):
        LandmarkMDS(n_landmarks=60, selection=selection, random_state=0, **more).fit(X)


@pytest.mark.filterwarnings("ignore:1 of the 33,670 pairs")
def test_missing_pairs_and_a_full_refinement_do_not_go_together():
    t = matrix().copy()
    t[200, 201] = t[201, 200] = np.nan
    with pytest.raises(InputError, match="embed through landmarks without a full refinement"):
        fitted(t, refine="full")
    assert np.isfinite(fitted(t, selection="kmeans++").embedding_).all()


# --- forms of input ---


def test_forms_of_a_matrix_give_the_same_bits(tmp_path):
    exact = np.rint(matrix() * 100)
    wanted = fitted(exact).embedding_
    np.save(tmp_path / "square.npy", exact)
    np.save(tmp_path / "condensed.npy", squareform(exact))
    zarr.create_array(tmp_path / "foreign", data=exact, chunks=(37, 90))
    build(ArrayRows(exact), tmp_path / "store", InProcessExecutor())
    forms = {
        "float32": exact.astype(np.float32), "integers": exact.astype(np.int64), "list": exact.tolist(),
        "condensed": squareform(exact), "Fortran": np.asfortranarray(exact), "square.npy": tmp_path / "square.npy",
        "text": str(tmp_path / "square.npy"), "condensed.npy": tmp_path / "condensed.npy",
        "foreign": tmp_path / "foreign",
        "array": zarr.open_array(tmp_path / "foreign", mode="r"), "store": tmp_path / "store",
    }  # fmt: skip
    for name, form in forms.items():
        assert np.array_equal(fitted(form).embedding_, wanted), name
        assert np.array_equal(fitted(form, memory_limit="1.2 MB").embedding_, wanted), name


def test_forms_of_points_give_the_same_bits(tmp_path):
    given = features()
    wanted = fitted(given, metric="cityblock").embedding_
    np.save(tmp_path / "points.npy", given)
    zarr.create_array(tmp_path / "points.zarr", data=given, chunks=(50, 3))
    forms = [given.tolist(), np.asfortranarray(given), tmp_path / "points.npy", tmp_path / "points.zarr",
             zarr.open_array(tmp_path / "points.zarr", mode="r")]  # fmt: skip
    for form in forms:
        assert_array_equal(fitted(form, metric="cityblock", evaluate=False).embedding_, wanted)
    assert fitted(given, metric="cityblock").n_features_in_ == 4


@pytest.mark.wide
def test_forms_of_a_panel_give_the_same_bits(tmp_path):
    sites = np.random.default_rng(5).permutation(N)[:60]
    panel = cdist(features(), features()[sites]).astype(np.float32)
    wanted = fitted(panel, landmarks=sites, evaluate=True)
    assert_array_equal(wanted.landmarks_, sites[np.isin(sites, wanted.landmarks_)])
    assert wanted.landmarks_.size < sites.size
    np.save(tmp_path / "panel.npy", panel)
    zarr.create_array(tmp_path / "foreign", data=panel, chunks=(31, 17))
    ours = tmp_path / "panel.zarr"
    build_panel(points_panel(array_panel(features(), "float64"), sites), ours, InProcessExecutor())
    for form in (panel.tolist(), tmp_path / "panel.npy", tmp_path / "foreign", ours):
        for limit in (None, "150 kB"):
            got = fitted(form, landmarks=sites, memory_limit=limit, evaluate=True)
            assert_array_equal(got.embedding_, wanted.embedding_)
            assert_array_equal(got.landmarks_, wanted.landmarks_)
            assert got.normalized_stress_ == wanted.normalized_stress_
    assert_array_equal(fitted(ours).embedding_, wanted.embedding_)  # it knows its landmarks
    assert wanted.n_features_in_ == 60


def test_a_panel_a_matrix_and_points_agree(tmp_path):
    sites = fitted(matrix()).landmarks_
    from_matrix = fitted(matrix(), n_landmarks=None, landmarks=sites.tolist(), evaluate=False)
    from_points = fitted(features(), n_landmarks=None, landmarks=sites.tolist(), metric="euclidean", evaluate=False)
    from_panel = fitted(matrix()[:, sites], n_landmarks=None, landmarks=sites, evaluate=False)
    assert_array_equal(from_points.embedding_, from_matrix.embedding_)
    assert_array_equal(from_panel.embedding_, from_matrix.embedding_)
    assert_array_equal(from_panel.landmarks_, sites)


@pytest.mark.parametrize("refine", ["none", "panel"])
@pytest.mark.parametrize("size", [12, 60])
def test_columns_of_a_panel_are_landmarks_in_their_order(refine, size, tmp_path):
    sites = np.random.default_rng(3).permutation(N)[:size]
    panel = cdist(features(), features()[sites])
    told = []
    mds = LandmarkMDS(landmarks=sites, refine=refine, random_state=0, on_stage=told.append).fit(panel)
    few = {12: 3, 60: 10}[size]
    assert told[0].startswith(f"{few} of the {size} landmarks of the panel are left out of")
    assert mds.landmarks_.size == (size if refine == "none" else size - few)
    assert_array_equal(mds.landmarks_, sites[np.isin(sites, mds.landmarks_)])
    mds.save(tmp_path / "map.zarr")
    for placing in (mds.transform, LandmarkMDS.load(tmp_path / "map.zarr").transform):
        found = placing(panel)
        assert_array_equal(found[others(mds)], mds.embedding_[others(mds)])
        assert_array_equal(found[7:9], placing(panel[7:9]))
        assert_array_equal(found, placing(panel[:, np.isin(sites, mds.landmarks_)]))
    with pytest.raises(InputError, match=f"a column for each of the {mds.landmarks_.size} landmarks.*, not 5"):
        mds.transform(panel[:, :5])
    low, high = mds.stress_interval_
    assert low < mds.normalized_stress_ < high
    assert mds.curve_["n_landmarks"][-1] == size - few
    same = LandmarkMDS(landmarks=sites, n_landmarks=size, refine=refine, random_state=0).fit(panel)
    assert_array_equal(same.embedding_, mds.embedding_)
    if refine == "none":
        bare = LandmarkMDS(landmarks=sites, evaluate=False, random_state=0).fit(panel)
        assert_array_equal(bare.embedding_, mds.embedding_)


def test_the_evaluation_of_a_panel_owes_nothing_to_what_it_is_measured_by():
    panel = cdist(features(), features()[:60])
    mds = LandmarkMDS(landmarks=range(60), random_state=0).fit(panel)
    aside = mds.result_.aside
    rest = np.setdiff1d(np.arange(60), aside)
    without = LandmarkMDS(landmarks=rest, evaluate=False, random_state=0).fit(panel[:, rest])
    with open_data(panel, InProcessExecutor(), landmarks=range(60)) as data:
        held_out = hold_out(data, rest, LandmarkConfig())
    assert_array_equal(held_out.rows, aside)
    x = without.embedding_
    measured = estimate(held_out, x[held_out.rows], x[held_out.columns])
    assert mds.normalized_stress_ == pytest.approx(measured.normalized_stress, rel=1e-9)
    assert mds.normalized_stress_ == pytest.approx(stress_of(matrix(), mds.embedding_), rel=0.15)


def test_the_curve_of_a_panel_does_not_hang_on_the_order_of_its_columns():
    """Columns that come class by class, as files often do: their first half is no choice of half as many."""
    ends = []
    for order in (np.arange(400), np.random.default_rng(0).permutation(400)):
        sites = np.linspace(0, len(sorted_digits()) - 1, 400).astype(int)[order]
        mds = LandmarkMDS(landmarks=sites, random_state=0).fit(sorted_digits()[:, sites])
        ends.append(mds.curve_["normalized_stress"])
    assert_allclose(*ends, rtol=0.1)


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, values, index, columns):
        self.values, self.index, self.columns = np.asarray(values), index, columns
        self.shape = self.values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


@pytest.mark.filterwarnings("ignore:stress was not measured")
def test_data_frames_name_their_points(tmp_path):
    names = [f"sample {k}" for k in range(N)]
    mds = fitted(Frame(matrix(), names, names))
    assert mds.ids_ == names
    mds.save(tmp_path / "map.zarr")
    assert LandmarkMDS.load(tmp_path / "map.zarr").ids_ == names
    panel = cdist(features(), features()[:60])
    panel[77, 1:] = np.nan
    with pytest.raises(InputError, match=r"point 77 \(id 'sample 77'\)"):
        LandmarkMDS(landmarks=range(60)).fit(Frame(panel, names, names[:60]))
    few = features()[:4]
    how = {"metric": "euclidean", "n_landmarks": 3, "evaluate": True}
    assert fitted(Frame(few, list("abcd"), list("wxyz")), **how).ids_ == list("abcd")


# --- what it refuses ---


NAMES = [f"cell{k}" for k in range(N)]
CHOSEN = [57, 120, 3, *range(130, 160)]
"""Landmarks in an order of their own, so that no column is its landmark."""


def with_entries(place, value, symmetric=True):
    """The matrix with another value in one place, or in both orders of its pair."""
    changed = matrix().copy()
    changed[place] = value
    if symmetric:
        changed[place[::-1]] = value
    return changed


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (-1.0, r"the matrix has 1 negative entry, the lowest in row 57{}, column 40{} \(-1\), but"),
        (np.inf, r"the matrix has 1 infinite entry as float32, the first in row 57{}, column 40{}; write NaN"),
    ],
)
def test_a_fault_of_the_matrix_is_named_where_it_is(tmp_path, value, sentence, named):
    """By row and column of the matrix, not of the panel that was taken out of it, in memory and in a file."""
    X = with_entries((57, 40), value)
    (tmp_path / "ids.txt").write_text("\n".join(NAMES))
    np.save(tmp_path / "m.npy", X)
    wanted = sentence.format(*((r" \(id 'cell57'\)", r" \(id 'cell40'\)") if named else ("", "")))
    ids = tmp_path / "ids.txt" if named else None
    mds = LandmarkMDS(landmarks=CHOSEN, random_state=0)
    with pytest.raises(InputError, match=wanted):
        mds.fit_on(tmp_path / "m.npy", InProcessExecutor(), names=ids)
    with pytest.raises(InputError, match=wanted):
        mds.fit(Frame(X, NAMES, NAMES) if named else X)


def test_a_fault_of_a_matrix_is_named_where_a_scratch_store_holds_its_panel(tmp_path):
    executor = InProcessExecutor()
    with (
        open_data(with_entries((57, 40), -1.0), executor, ids=NAMES, scratch=tmp_path) as data,
        pytest.raises(InputError, match=r"row 57 \(id 'cell57'\), column 40 \(id 'cell40'\) \(-1\)"),
        data.panel(np.array(CHOSEN), executor, 10**9, keep=0),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ((57, 120), r"57 and 120, with [\d.]+ in row 120, column 57 and 9 in row 57, column 120, .* --symmetrize"),
        ((57, 57), r"the matrix has 9 instead of 0 from landmark 57 to itself, in row 57, column 57; set its diagonal"),
    ],
)
def test_what_is_wrong_between_landmarks_of_a_matrix_is_named_where_it_is(place, sentence):
    with pytest.raises(InputError, match=sentence):
        LandmarkMDS(landmarks=CHOSEN).fit(with_entries(place, 9.0, symmetric=False))


def test_a_fault_of_a_panel_names_its_column_and_its_landmark(tmp_path):
    panel = with_entries((40, 120), -2.0)[:, CHOSEN]
    sentence = r"the panel has 1 negative entry, the lowest in row 40{}, column 1 \(landmark 120{}\) \(-2\)"
    with pytest.raises(InputError, match=sentence.format("", "")):
        LandmarkMDS(landmarks=CHOSEN).fit(panel)
    with pytest.raises(InputError, match=sentence.format(r" \(id 'cell40'\)", ", id 'cell120'")):
        LandmarkMDS(landmarks=CHOSEN).fit(Frame(panel, NAMES, CHOSEN))


def test_a_point_that_knows_too_few_landmarks_is_named_with_its_id():
    panel = matrix()[:, CHOSEN].copy()
    panel[40, 1:] = np.nan
    with pytest.raises(InputError, match=r"point 40 \(id 'cell40'\) has known .* to 1 landmarks, .*\(1 point in all"):
        LandmarkMDS(landmarks=CHOSEN).fit(Frame(panel, NAMES, CHOSEN))


def test_a_new_point_with_a_fault_is_named_with_its_landmark():
    mds = LandmarkMDS(landmarks=CHOSEN, random_state=0).fit(Frame(matrix(), NAMES, NAMES))
    X = matrix()[:3, CHOSEN].copy()
    X[2, 1] = -1
    with pytest.raises(InputError, match=r"-1 as float32 in row 2, column 1 \(landmark 120, id 'cell120'\)"):
        mds.transform(X)
    wide = LandmarkMDS(landmarks=CHOSEN, n_landmarks=10, random_state=0).fit(matrix()[:, CHOSEN])
    X[2, 1] = 1.0
    column = CHOSEN.index(wide.landmarks_[3])
    X[1, column] = np.inf
    with pytest.raises(InputError, match=rf"inf as float32 in row 1, column {column} \(landmark {CHOSEN[column]}\)"):
        wide.transform(X)


@pytest.mark.parametrize("value", [np.nan, 1e200])
def test_a_landmark_with_unusable_features_is_named_by_its_row(value):
    points = features().copy()
    points[120, 1] = value
    with pytest.raises(InputError, match=r"landmark (120|57) "):
        LandmarkMDS(landmarks=CHOSEN, metric="euclidean").fit(points)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [float(np.finfo(np.float32).max), 1e37, 1e149, 1e300])
@pytest.mark.parametrize("refine", ["none", "panel"])
def test_values_that_stand_for_no_connection_are_refused_in_a_sentence(dtype, value, refine):
    """Without a warning of an overflow, in a matrix, in a panel, and for a new point."""
    sentence = "infinite entr.* as float32" if value > 1e39 and dtype == "float32" else "stand for 'no connection'"
    settings = {"dtype": dtype, "refine": refine, "landmarks": CHOSEN, "random_state": 0}
    far = with_entries((40, 120), value)
    for X in (far, far[:, CHOSEN], with_entries((57, 120), value)):
        with pytest.raises(InputError, match=sentence):
            LandmarkMDS(**settings).fit(X)
    mds = LandmarkMDS(**settings).fit(matrix())
    with pytest.raises(InputError, match=r"as float\d\d in row 0, column 1 \(landmark 120\): .* write NaN"):
        mds.transform(far[[40]][:, CHOSEN])


@pytest.mark.parametrize("refine", ["none", "panel", "full"])
@pytest.mark.parametrize("value", [1e15, 1e30, float(np.finfo(np.float32).max)])
@pytest.mark.filterwarnings("ignore:the matrix has an entry of")
def test_a_point_that_overflows_beside_the_landmarks_is_refused_in_a_sentence(refine, value):
    """Also where the check of the whole matrix, and not of a panel, has let it pass; and never 'radius is nan'."""
    mds = LandmarkMDS(landmarks=CHOSEN, refine=refine, random_state=0)
    sentence = r"no connection' or for a missing pair, so write NaN for these|stand for pairs without a dissimilarity"
    with pytest.raises(InputError, match=sentence):
        mds.fit(with_entries((40, 120), value))
    with pytest.raises(InputError, match="write NaN"):
        mds.fit(matrix()).transform(with_entries((40, 120), value)[[40]][:, CHOSEN])


def test_a_start_at_landmarks_refuses_in_a_sentence_what_overflows():
    """Between two groups lies float32's maximum, which the check of the matrix tells with the groups."""
    apart = matrix().astype("float32")
    apart[:130, 130:] = apart[130:, :130] = np.finfo("float32").max
    with pytest.raises(InputError, match=r"33800 huge entries, the largest 3.40282e.38 .* fall into 2 groups"):
        PatternSearchMDS(init="landmarks").fit(apart)


@pytest.mark.parametrize("refine", ["none", "panel", "full"])
def test_large_dissimilarities_are_mapped_as_small_ones(refine):
    """In float64 up to where their squares overflow."""
    settings = {"dtype": "float64", "refine": refine, "landmarks": CHOSEN, "random_state": 0}
    factor = 2.0**480
    found, wanted = (LandmarkMDS(**settings).fit(matrix() * by) for by in (factor, 1.0))
    assert_allclose(found.embedding_, wanted.embedding_ * factor, rtol=1e-6, atol=1e-6 * factor)
    assert found.normalized_stress_ == pytest.approx(wanted.normalized_stress_)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_components": 0}, "n_components must be a whole number of at least 1, not 0"),
        ({"n_landmarks": 0}, "n_landmarks must be a whole number of at least 1, not 0"),
        ({"n_landmarks": 2.5}, "n_landmarks must be a whole number"),
        ({"n_landmarks": N + 1}, f"n_landmarks must be at most the number of points, {N}, not {N + 1}"),
        ({"n_init": 0}, "n_init must be a whole number of at least 1"),
        ({"selection": "best"}, "selection must be one of 'random', 'maxmin'"),
        ({"refine": "some"}, "refine must be one of 'none', 'panel', 'full', not 'some'"),
        ({"closed_form": "open"}, "closed_form must be 'least_squares' or 'classical', not 'open'"),
        ({"landmarks": [0, 1, N], "n_landmarks": None}, f"row indices from 0 to {N - 1}, but {N} is among them"),
        ({"landmarks": [0, 1, -1], "n_landmarks": None}, "but -1 is among them"),
        ({"landmarks": [0, 1, 2, 3]}, "n_landmarks is 40, but landmarks lists 4: give one of them"),
        ({"landmarks": "first", "n_landmarks": None}, "landmarks must be a list of row indices"),
        ({"metric": "nearness"}, "metric 'nearness' cannot be used on these points"),
        ({"metric_params": {"p": 3}}, "metric_params belong to a metric with a name, but metric is 'precomputed'"),
        ({"random_state": "x"}, "random_state must be"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', not 'float16'"),
        ({"cluster": 3}, r"cluster must be the name of a cluster such as .* or a Dask cluster, not int"),
        ({"cluster": "nonsense"}, "cluster .nonsense. is not known: use one of local, local:4"),
        ({"memory_limit": "lots"}, "memory_limit must be a positive number of bytes"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_wrong_parameters_are_a_sentence(wrong, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        fitted(matrix(), **wrong)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "nonsense"])
@pytest.mark.parametrize("given", ["points", "panel"])
def test_wrong_types_are_a_sentence_whatever_is_given(dtype, given):
    X = features() if given == "points" else cdist(features(), features()[:60])
    more = {"metric": "euclidean"} if given == "points" else {"landmarks": range(60)}
    with pytest.raises(InputError, match=f"dtype must be 'float32' or 'float64', not '{dtype}'"):
        fitted(X, dtype=dtype, **more)


def test_wrong_data_is_a_sentence(tmp_path):
    panel = cdist(features(), features()[:60])
    spoiled = features().copy()
    spoiled[100, 2] = np.nan
    negative = matrix() - 3
    np.fill_diagonal(negative, 0)
    cases = [
        (panel, {}, "landmarks must list the row of each column's landmark"),
        (panel, {"landmarks": range(59)}, "landmarks lists 59 rows for the 60 columns"),
        (panel, {"landmarks": [*range(59), N]}, f"but {N} is among them"),
        (panel, {"landmarks": range(60), "n_landmarks": 61}, "n_landmarks must be at most .*60, not 61"),
        (panel, {"landmarks": range(60), "refine": "full"}, "refine='full' needs the whole matrix"),
        (
            panel[:, :6],
            {"landmarks": range(6), "refine": "panel", "n_landmarks": 6},
            "too few are left when",
        ),
        (panel, {"landmarks": range(1, 61)}, "instead of 0 from landmark"),
        (features(), {"metric": "euclidean", "refine": "full"}, "refine='full' needs the whole matrix"),
        (spoiled, {"metric": "euclidean"}, "point 100 has NaN or infinite features"),
        (negative, {}, "negative"),
        (tmp_path / "nothing.npy", {}, "nothing.npy"),
        (tmp_path / "nothing.zarr", {}, "nothing.zarr does not exist"),
    ]
    for X, more, sentence in cases:
        told = []
        with pytest.raises((InputError, FileNotFoundError), match=sentence):
            fitted(X, on_stage=told.append, evaluate=True, **more)
        assert "placement" not in " ".join(told), sentence  # before much work


@pytest.mark.parametrize("form", ["matrix", "points", "panel"])
@pytest.mark.parametrize("refine", ["none", "panel", "full"])
def test_too_small_a_budget_is_refused_with_one_that_works(form, refine, tmp_path):
    if (form, refine) in (("points", "full"), ("panel", "full")):
        return
    more = {"points": {"metric": "euclidean"}, "panel": {"landmarks": range(60)}}.get(form, {})
    X = {"matrix": matrix, "points": features, "panel": lambda: cdist(features(), features()[:60])}[form]()
    with pytest.raises(BudgetError, match=r"memory_limit is 9\.8 KiB per process, but .* needs .* KiB \(") as refusal:
        fitted(X, memory_limit=10_000, refine=refine, evaluate=True, **more)
    named = re.search(r"raise memory_limit \(--memory-limit\) to ([0-9.]+ [KM]iB)", str(refusal.value))
    told = []
    how = {"memory_limit": named[1], "scratch": tmp_path, "on_stage": told.append, "evaluate": True}
    small = fitted(X, refine=refine, **how, **more)
    assert named[1] in told[0]
    assert_array_equal(small.embedding_, fitted(X, refine=refine, **more).embedding_)


def test_not_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet: call fit, or LandmarkMDS.load, first"):
        LandmarkMDS().transform(np.zeros((1, 3)))
    with pytest.raises(NotFittedError, match="not fitted yet: call fit before save"):
        LandmarkMDS().save(tmp_path / "map.zarr")


# --- scikit-learn and the package ---


class Connection:
    """Like a client: it can be neither copied nor pickled."""

    def __reduce__(self):
        raise TypeError("cannot pickle a connection")


def test_names_of_the_columns_of_a_map():
    wanted = ["landmarkmds0", "landmarkmds1", "landmarkmds2"]
    assert fitted(matrix(), n_components=3).get_feature_names_out().tolist() == wanted


def test_scikit_learn_conventions():
    mds = LandmarkMDS(3, n_landmarks=50, selection="maxmin", cluster=(client := Connection()))
    twin = clone(mds)
    assert twin.cluster is client
    assert twin.get_params() == mds.get_params()
    assert LandmarkMDS(**mds.get_params()).get_params() == mds.get_params()
    assert not hasattr(clone(fitted(matrix())), "embedding_")
    assert get_tags(LandmarkMDS()).input_tags.pairwise
    assert not get_tags(LandmarkMDS(metric="euclidean")).input_tags.pairwise
    with pytest.raises(TypeError):
        LandmarkMDS(2, 100)
    settings = {"n_landmarks": 40, "random_state": 0}
    assert_array_equal(LandmarkMDS(**settings).fit_transform(matrix()), fitted(matrix()).embedding_)
    assert repr(LandmarkMDS(3)) == "LandmarkMDS(n_components=3)"


def test_pickling_keeps_the_map_and_leaves_the_client():
    mds = fitted(matrix())
    mds.cluster = Connection()
    again = pickle.loads(pickle.dumps(mds))
    assert again.cluster is None
    new = cdist(features(5, seed=9), features()[mds.landmarks_])
    assert_array_equal(again.transform(new), mds.transform(new))


def test_seeds():
    one, same, other = (fitted(matrix(), random_state=s) for s in (3, 3, 4))
    assert_array_equal(one.embedding_, same.embedding_)
    assert not np.array_equal(one.landmarks_, other.landmarks_)
    drawn = fitted(matrix(), random_state=None)
    assert_array_equal(fitted(matrix(), random_state=drawn.seed_).embedding_, drawn.embedding_)


@pytest.mark.parametrize("refine", ["none", "panel", "full"])
def test_threads_change_no_bit(refine):
    one, two = (fitted(sorted_digits(), n_jobs=jobs, refine=refine, evaluate=True) for jobs in (1, 2))
    assert_array_equal(one.embedding_, two.embedding_)
    assert one.normalized_stress_ == two.normalized_stress_


def test_refinement_through_the_panel_never_raises_what_it_is_judged_by():
    for seed in range(3):
        settings = {"n_landmarks": 100, "random_state": seed}
        placed, refined = (LandmarkMDS(refine=r, **settings).fit(sorted_digits()) for r in ("none", "panel"))
        with open_data(sorted_digits(), InProcessExecutor()) as data:
            pairs = hold_out(data, placed.landmarks_, LandmarkConfig(seed=seed), LandmarkStream.VALIDATION_PAIRS)
        stress = []
        for mds in (placed, refined):
            d = cdist(mds.embedding_[pairs.rows], mds.embedding_[pairs.columns])
            stress.append(np.sqrt(((pairs.values - d) ** 2).sum() / (pairs.values**2).sum()))
        assert stress[1] <= stress[0] * (1 + 1e-12)
        assert refined.result_.passes > 0


@pytest.mark.slow
@pytest.mark.wide
def test_landmarks_stand_on_the_core_and_the_core_does_not_know_them():
    code = (
        "import sys, numpy as np\n"
        "from psmds_dist import PatternSearchMDS\n"
        "import psmds_dist.cli.app\n"
        "PatternSearchMDS(max_epochs=1).fit(np.ones((9, 9)) - np.eye(9))\n"
        "sys.exit('landmarks' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert sorted(dir(landmarks)) == ["LandmarkMDS", "choose"]
    with pytest.raises(AttributeError, match="module 'landmarks' has no attribute 'nothing'"):
        landmarks.nothing  # noqa: B018


def test_models_say_what_they_are():
    model = fitted(matrix()).model_
    assert isinstance(model, Model)
    assert (model.metric, model.features, model.dtype) == ("precomputed", None, "float32")
    assert fitted(features(), metric="euclidean").model_.features.shape == (40, 4)


def test_an_interrupt_while_landmarks_are_embedded_ends_the_fit(monkeypatch):
    from landmarks.solver import multilevel as module

    def interrupted(*args, **how):
        return replace(solve(*args, **how), stop_reason=StopReason.INTERRUPTED)

    monkeypatch.setattr(module, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LandmarkMDS(n_landmarks=20, random_state=0).fit(matrix())


def test_a_flipped_bit_is_noticed_where_no_pass_has_looked(tmp_path):
    build(ArrayRows(matrix()), tmp_path / "m.zarr", InProcessExecutor())
    LandmarkMDS(n_landmarks=20, random_state=0).fit(tmp_path / "m.zarr")
    for chunk in (tmp_path / "m.zarr" / "dissimilarities").glob("c*"):
        damaged = bytearray(chunk.read_bytes())
        damaged[len(damaged) // 2] ^= 4
        chunk.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        LandmarkMDS(n_landmarks=20, random_state=0).fit(tmp_path / "m.zarr")


def test_masked_entries_are_missing_ones():
    panel = cdist(features(), features()[:30])
    hidden = np.ma.masked_array(panel, mask=np.zeros(panel.shape, bool))
    hidden[100:110, 3] = np.ma.masked
    gaps = panel.copy()
    gaps[100:110, 3] = np.nan
    settings = {"landmarks": range(30), "evaluate": False, "random_state": 0}
    one, two = (LandmarkMDS(**settings).fit(given) for given in (hidden, gaps))
    assert_array_equal(one.embedding_, two.embedding_)
    assert_array_equal(one.transform(hidden[100:104]), two.transform(gaps[100:104]))


def test_a_start_at_landmarks_is_a_default_that_gives_way_and_an_order_that_does_not(monkeypatch):
    def impossible(*args, **how):
        raise InputError("landmarks do not do here.")

    monkeypatch.setattr("psmds_dist.api.init.SMALL_POINTS", 100)
    assert PatternSearchMDS(random_state=0, max_epochs=2).fit(matrix()).start_ == "landmarks"
    monkeypatch.setattr("landmarks.start.fit", impossible)
    assert PatternSearchMDS(random_state=0, max_epochs=2).fit(matrix()).start_ == "random"
    with pytest.raises(InputError, match="landmarks do not do here"):
        PatternSearchMDS(init="landmarks", random_state=0).fit(matrix())


def test_a_start_reads_the_rows_of_landmarks_alone(tmp_path, monkeypatch):
    points = np.random.default_rng(0).random((2500, 3))
    build(ArrayRows(squareform(pdist(points))), tmp_path / "m.zarr", InProcessExecutor())
    read, whole = [], ChunkFile.read

    def counted(file, first, out, **how):
        read.append(out.nbytes)
        whole(file, first, out, **how)

    monkeypatch.setattr(ChunkFile, "read", counted)
    found = start(open_rows(tmp_path / "m.zarr"), SolverConfig(seed=0), InProcessExecutor(), 2**30)
    assert found.x.shape == (2500, 2)
    assert sum(read) == 2000 * 2500 * 4


@pytest.mark.parametrize("bit", [1, 64])  # one in the fraction, one that makes the exponent that of NaN or huge
def test_a_flipped_bit_in_the_row_of_a_landmark_is_told_and_leaves_nothing(tmp_path, bit):
    points = np.random.default_rng(0).random((1200, 3))
    build(ArrayRows(squareform(pdist(points))), tmp_path / "m.zarr", InProcessExecutor())
    wanted = PatternSearchMDS(random_state=0).fit(tmp_path / "m.zarr").embedding_
    place = tmp_path / "m.zarr" / "dissimilarities" / "c.0.0"
    sound = place.read_bytes()
    data = bytearray(sound)
    for row in range(open_rows(tmp_path / "m.zarr").layout.rows):  # most points are landmarks
        data[4 * (1200 * row + (row + 600)) + 3] ^= bit
    place.write_bytes(data)
    how = {"random_state": 0, "checkpoint": tmp_path / "kept"}
    for mds in (PatternSearchMDS(**how, init="landmarks"), LandmarkMDS(n_landmarks=300, random_state=0, refine="full")):
        with warnings.catch_warnings(action="ignore"), pytest.raises(InputError, match="does not match its checksum"):
            mds.fit(tmp_path / "m.zarr")
    place.write_bytes(sound)
    assert_array_equal(PatternSearchMDS(**how, resume=True).fit(tmp_path / "m.zarr").embedding_, wanted)


@pytest.mark.parametrize("opened", [str, lambda place: np.load(place, mmap_mode="r")])
@pytest.mark.parametrize("metric", ["precomputed", "euclidean"])
def test_input_that_is_written_to_during_a_fit_is_told(tmp_path, metric, opened):
    points = np.random.default_rng(0).random((200, 3))
    values = cdist(points, points[:20]) if metric == "precomputed" else points
    place = tmp_path / "given.npy"
    np.save(place, values)
    own = {"landmarks": range(20)} if metric == "precomputed" else {"n_landmarks": 20}
    mds = LandmarkMDS(metric=metric, random_state=0, **own)
    assert np.isfinite(mds.fit(opened(place)).embedding_).all()
    mds.set_params(on_stage=lambda stage: np.save(place, 2 * values))
    with pytest.raises(InputError, match="was written to while it was read"):
        mds.fit(opened(place))


def test_a_polish_that_runs_out_of_epochs_warns_in_python(monkeypatch):
    """Placed points have no epochs to run out of, and a polish that converges warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for refine in ("none", "panel", "full"):
            fitted(matrix(), refine=refine)
    short = landmarks.solver.refine.polish_config
    monkeypatch.setattr("landmarks.solver.fit.polish_config", lambda *how: replace(short(*how), max_epochs=1))
    with pytest.warns(ConvergenceWarning, match=r"ran out of epochs before it converged: continue .* init=embedding_"):
        mds = fitted(matrix(), refine="full")
    assert mds.stop_reason_ == "max_epochs"


# --- what a panel is, and is not ---


def similar(n=120):
    s = np.exp(-squareform(pdist(np.random.default_rng(4).normal(size=(n, 3)))))
    np.fill_diagonal(s, 1)
    return s


@pytest.mark.parametrize("zeroed", [0, 5, 60])
def test_similarities_are_refused_whatever_their_diagonal_lacks(zeroed):
    s = similar()
    s[:zeroed] = s[:, :zeroed] = 0
    with pytest.raises(InputError, match=r"the matrix looks like similarities: .* 1 - s, with a diagonal of zeros"):
        LandmarkMDS(n_landmarks=60, random_state=0).fit(s)
    with pytest.raises(
        InputError, match="the panel looks like similarities.*landmarks does not list the rows of its columns in order"
    ):
        LandmarkMDS(landmarks=range(30, 90)).fit(s[:, 30:90])


def test_hollow_similarities_and_rounded_zeros_are_told():
    s = similar()
    np.fill_diagonal(s, 0)
    with pytest.warns(DissimilarityWarning, match="the matrix has a zero diagonal, but .* behave like similarities"):
        LandmarkMDS(n_landmarks=60, random_state=0, evaluate=False).fit(s)
    t = squareform(pdist(np.random.default_rng(4).normal(size=(120, 3))))
    panel = t[:, :40].copy()
    panel[70, 3] = -1e-7
    with pytest.warns(DissimilarityWarning, match="1 negative entries and 0 diagonal entries of the panel were taken"):
        mds = LandmarkMDS(landmarks=range(40), random_state=0, evaluate=False).fit(panel)
    new = np.maximum(panel[70:71], 0)
    np.testing.assert_allclose(mds.transform(panel[70:71]), mds.transform(new), atol=1e-5)


@pytest.mark.parametrize("empty", [0, np.nan, np.inf, -1, 999, 3.4e38])
def test_a_lone_triangle_is_told_whatever_the_other_half_holds(empty):
    t = squareform(pdist(np.random.default_rng(4).normal(size=(120, 3))))
    t[np.tril_indices(120, -1)] = empty
    with pytest.raises(InputError, match=r"^only the upper triangle of the matrix is filled .*--triangle upper\.$"):
        LandmarkMDS(n_landmarks=60, random_state=0).fit(t)


def test_an_infinite_diagonal_is_told_once_and_without_a_warning_of_numpy():
    t = squareform(pdist(np.random.default_rng(4).normal(size=(120, 3))))
    np.fill_diagonal(t, np.inf)
    with pytest.raises(InputError, match=r"60 infinite entries .* missing\.$"):
        LandmarkMDS(n_landmarks=60, random_state=0).fit(t)


def test_all_that_is_wrong_with_a_panel_is_told_at_once():
    panel = squareform(pdist(np.random.default_rng(4).normal(size=(120, 3))))[:, :40]
    panel[100, 3], panel[101, 4], panel[5, 6] = np.inf, -2, 9
    with pytest.raises(InputError, match="1 infinite entry .* Also, .* 1 negative .* Also, .* not symmetric"):
        LandmarkMDS(landmarks=range(40)).fit(panel)


def test_a_fit_without_pairs_to_measure_stress_on_warns():
    points = plane(20)
    with pytest.warns(ConvergenceWarning, match="not measured .* take fewer landmarks"):
        few = LandmarkMDS(n_landmarks=19, metric="euclidean", random_state=0).fit(points)
    assert np.isnan(few.normalized_stress_)
    for settings in ({"evaluate": False}, {"n_landmarks": 20}):  # told so, or measured
        LandmarkMDS(**{"n_landmarks": 19, "metric": "euclidean", "random_state": 0, **settings}).fit(points)
