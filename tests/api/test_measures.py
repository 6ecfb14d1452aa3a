"""Measures of maps beside those of scikit-learn and SciPy."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, spearmanr
from sklearn.manifold import ClassicalMDS, trustworthiness
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from psmds_dist import InProcessExecutor, InputError, build, measure, open_rows, quality
from psmds_dist.core.quality import OF_ALL_PAIRS
from psmds_dist.core.sources import RowSource
from psmds_dist.solver.quality import nearest

N, K = 240, 7
rng = np.random.default_rng(8)
POINTS = rng.normal(size=(N, 5)) * (3, 2, 1, 1, 1)
GIVEN = pdist(POINTS, "cityblock")
X = POINTS[:, :2] + 0.3 * rng.normal(size=(N, 2))
EMBEDDED = pdist(X)
LABELS = rng.choice(["b", "a", "c"], N)
TRUTH = POINTS[:, :3]


@pytest.fixture(scope="module")
def found():
    return quality(GIVEN, X, labels=LABELS, truth=TRUTH, n_neighbors=K, dtype="float64")


def test_stress_is_that_of_measure(found):
    stress = measure(GIVEN, X, dtype="float64")
    for name in ("mse", "raw_stress", "stress1", "normalized_stress"):
        assert getattr(found, name) == pytest.approx(getattr(stress, name), rel=1e-12)
    assert_allclose(found.point_stress, stress.point_stress, rtol=1e-12)
    assert_array_equal(found.rows, np.arange(N))
    assert not found.intervals


def test_neighborhoods_are_those_of_scikit_learn(found):
    wide, theirs = squareform(GIVEN), {"n_neighbors": K, "metric": "precomputed"}
    assert found.trustworthiness == pytest.approx(trustworthiness(wide, X, **theirs), rel=1e-12)
    ours = trustworthiness(squareform(EMBEDDED), wide, n_neighbors=K, metric="precomputed")  # for the shape alone
    assert 0 < ours < 1
    nearest = KNeighborsClassifier(K).fit(X, LABELS)
    predicted = cross_val_predict(nearest, X, LABELS, cv=LeaveOneOut())
    assert found.knn_score == pytest.approx((predicted == LABELS).mean(), rel=1e-12)
    around = nearest.kneighbors(return_distance=False)
    assert found.neighborhood_hit == pytest.approx((LABELS[around] == LABELS[:, None]).mean(), rel=1e-12)


def test_continuity_is_trustworthiness_of_the_exchanged_maps():
    flat = rng.normal(size=(N, 3))
    expected = trustworthiness(squareform(EMBEDDED), flat, n_neighbors=K, metric="precomputed")
    assert quality(pdist(flat), X, n_neighbors=K, dtype="float64").continuity == pytest.approx(expected, rel=1e-12)


def test_correlations_and_procrustes_are_those_of_scipy(found):
    assert found.pearson == pytest.approx(pearsonr(GIVEN, EMBEDDED)[0], rel=1e-10)
    assert found.spearman == pytest.approx(spearmanr(GIVEN, EMBEDDED)[0], rel=1e-10)
    assert found.procrustes == pytest.approx(procrustes(TRUTH, np.column_stack((X, np.zeros(N))))[2], rel=1e-10)


def test_equal_dissimilarities_share_their_rank():
    rounded = np.round(GIVEN)
    assert quality(rounded, X).spearman == pytest.approx(spearmanr(rounded, EMBEDDED)[0], rel=1e-6)


def test_strain_is_its_formula(found):
    centring = np.eye(N) - 1 / N
    b = centring @ (-(squareform(GIVEN) ** 2) / 2) @ centring
    x = X - X.mean(axis=0)
    assert found.strain == pytest.approx(np.linalg.norm(b - x @ x.T) / np.linalg.norm(b), rel=1e-10)
    best = ClassicalMDS(2, metric="precomputed").fit_transform(squareform(GIVEN))
    assert quality(GIVEN, best).strain < found.strain


def test_scaled_stress_forgives_the_scale(found):
    factors = np.linspace(0.5, 3, 501)
    least = min(np.sqrt(((GIVEN - a * EMBEDDED) ** 2).sum() / (GIVEN**2).sum()) for a in factors)
    assert found.scaled_stress == pytest.approx(least, rel=1e-4)
    assert found.scaled_stress <= least
    assert quality(GIVEN, 1000 * X, dtype="float64").scaled_stress == pytest.approx(found.scaled_stress, rel=1e-9)


def test_an_exact_map_is_perfect():
    found = quality(pdist(X), X, dtype="float64")
    assert_allclose((found.normalized_stress, found.strain, found.scaled_stress), 0, atol=1e-7)
    assert_allclose((found.pearson, found.spearman, found.trustworthiness, found.continuity), 1, rtol=1e-9)


@pytest.mark.parametrize("exponent", [-240, 240])
def test_lengths_of_any_size_give_the_same_measures(exponent, found):
    other = quality(GIVEN * 2.0**exponent, X * 2.0**exponent, labels=LABELS, n_neighbors=K, dtype="float64")
    assert other.mse == pytest.approx(found.mse * 4.0**exponent, rel=1e-12)
    for name in ("strain", "pearson", "trustworthiness", "continuity", "knn_score"):
        assert getattr(other, name) == pytest.approx(getattr(found, name), rel=1e-9)


def test_equal_numbers_have_no_correlation():
    found = quality(1 - np.eye(30), np.zeros((30, 2)))
    assert np.isnan(found.pearson)
    assert np.isnan(found.spearman)
    assert found.as_dict()["pearson"] is None
    assert found.trustworthiness == 1  # the first points are the nearest on both sides


class Computed(RowSource):
    """Distances of points, in blocks as those of a large matrix."""

    shape = (N, N)

    def read(self, lo, hi, out):
        out[: hi - lo] = squareform(GIVEN)[lo:hi]


def test_a_store_gives_the_same_bits_as_memory(tmp_path):
    build(Computed(), tmp_path / "d.zarr", InProcessExecutor())
    settings = {"labels": LABELS, "truth": TRUTH}
    for sample in (None, 60):
        here = quality(GIVEN, X, sample=sample, **settings)
        for source in (tmp_path / "d.zarr", open_rows(tmp_path / "d.zarr"), Computed()):
            there = quality(source, X, sample=sample, memory_limit="20 MiB", **settings)
            assert here.as_dict() == there.as_dict()
            assert_array_equal(here.rows, there.rows)
            assert_array_equal(here.point_stress, there.point_stress)


@pytest.mark.slow
def test_workers_give_the_same_bits_as_this_process(client):
    for sample in (None, 60):
        here = quality(GIVEN, X, labels=LABELS, sample=sample)
        there = quality(GIVEN, X, labels=LABELS, sample=sample, cluster=client)
        assert here.as_dict() == there.as_dict()


def test_a_sample_of_all_rows_is_exact(found):
    assert quality(GIVEN, X, n_neighbors=K, sample=10 * N, dtype="float64").as_dict() == (
        dataclasses.replace(found, neighborhood_hit=None, knn_score=None, procrustes=None).as_dict()
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_neighbors": N // 2}, "defined for fewer than half of them: give at most 119"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1, not 0"),
        ({"sample": 5}, "sample must be a whole number of at least 20, not 5"),
        ({"labels": LABELS[1:]}, r"labels must hold one label for each of 240 points, not an array of shape \(239,\)"),
        ({"labels": ["one"] * N}, "labels are all one"),
        ({"labels": [f"p{k}" for k in range(N)]}, f"labels name {N} classes for {N} points"),
        ({"labels": np.r_[np.linspace(0, 1, N - 1), 0]}, f"labels name {N - 1} classes for {N} points"),
        ({"labels": [None, *LABELS[1:]]}, "labels has no label for 1 points, first for point 0"),
        ({"labels": np.ma.masked_equal(np.arange(N), 3)}, "labels has masked entries"),
        ({"labels": "nowhere.txt"}, "file of labels nowhere.txt does not exist"),
        ({"truth": TRUTH[1:]}, r"truth must be finite coordinates of shape \(240, 3\)"),
        ({"memory_limit": "100 kB"}, "measuring a map of 240 points needs"),
    ],
)
def test_what_cannot_be_measured_gets_a_sentence(settings, words):
    with pytest.raises((InputError, MemoryError), match=words):
        quality(GIVEN, X, **settings)


def with_a_gap():
    given = squareform(GIVEN)
    given[3, 5] = given[5, 3] = np.nan
    return given


WEIGHTS = squareform(rng.integers(1, 5, GIVEN.size).astype(float))


@pytest.mark.parametrize(
    ("matrix", "rule"),
    [
        (with_a_gap(), {}),
        (squareform(GIVEN), {"weights": WEIGHTS}),
        (squareform(GIVEN), {"loss": "absolute"}),
        (squareform(GIVEN), {"upper": 1.1 * squareform(GIVEN)}),
    ],
    ids=["gap", "weights", "loss", "bounds"],
)
@pytest.mark.filterwarnings("ignore:1 of the 28,680 pairs")
def test_what_the_map_alone_tells_needs_no_pairs(found, matrix, rule):
    told = quality(matrix, X, labels=LABELS, truth=TRUTH, n_neighbors=K, dtype="float64", **rule)
    assert (told.procrustes, told.n_neighbors) == (found.procrustes, K)
    assert told.neighborhood_hit == pytest.approx(found.neighborhood_hit, rel=1e-12)
    assert told.knn_score == pytest.approx(found.knn_score, rel=1e-12)
    stress = measure(matrix, X, dtype="float64", **rule)
    assert told.normalized_stress == stress.normalized_stress
    assert_array_equal(told.point_stress, stress.point_stress)
    assert told.left_out
    assert not found.left_out
    assert np.isnan([getattr(told, name) for name in OF_ALL_PAIRS]).all()
    with pytest.raises(InputError, match="leave the sample out"):
        quality(matrix, X, sample=30, **rule)


def test_equal_points_are_neighbors_of_each_other_but_not_of_themselves():
    x = np.repeat([[0.0, 0.0], [9.0, 9.0]], [6, 4], axis=0)
    near = nearest(x, 3)
    assert near.shape == (10, 3)
    assert all(k not in row and ((row < 6) == (k < 6)).all() for k, row in enumerate(near))


@pytest.mark.wide
def test_intervals_hold_the_exact_values_of_95_in_100_samples():
    n, draws = 600, 200
    points = np.random.default_rng(0).normal(size=(n, 5))
    given, labels = pdist(points), points[:, 2] > 0.5
    settings = {"labels": labels, "n_neighbors": 5}
    exact = quality(given, points[:, :2], **settings).as_dict()
    held = {}
    for seed in range(draws):
        found = quality(given, points[:, :2], sample=100, random_state=seed, **settings)
        for name, (low, high) in found.intervals.items():
            held[name] = held.get(name, 0) + (low <= exact[name] <= high)
    assert len(held) == 12
    assert min(held.values()) >= 0.9 * draws, held  # 3 standard errors below 95 %
    assert sum(held.values()) >= 0.94 * draws * len(held), held


def test_intervals_are_shorter_than_what_they_estimate_and_never_a_single_number():
    found = quality(GIVEN, X, labels=np.arange(N) < 2, sample=60)
    assert all(low < getattr(found, name) <= high for name, (low, high) in found.intervals.items())
    low, high = found.intervals["normalized_stress"]
    assert high - low < 0.3 * found.normalized_stress
    assert found.as_dict()["rows"] == len(found.point_stress) == 60
