"""Data sets and best known maps of the benchmark of maps, against closed forms and other libraries."""

import json

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import smacof
from sklearn.metrics.pairwise import haversine_distances

from tests.benchmarks import best_known, maps
from tests.benchmarks.best_known import BestKnown, attempts, digest_of, polished, stress
from tests.benchmarks.harness import Settings
from tests.benchmarks.map_sets import CITIES, SETS, MapSet, cities, counts, edits, morisita_horn, noisy_line, simplex

SMALL = [one for one in SETS if one.n <= 300]


@pytest.mark.parametrize("one", SMALL, ids=lambda one: one.name)
def test_a_set_is_a_matrix_of_dissimilarities_and_always_the_same(one):
    matrix = one.matrix()
    assert matrix.shape == (one.n, one.n)
    assert matrix.dtype == np.float64
    assert np.isfinite(matrix).all()
    assert matrix.min() == 0 == np.abs(matrix.diagonal()).max()
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(matrix, one.matrix())


def test_sets_are_many_of_all_sizes_and_dimensions():
    assert len({one.name for one in SETS}) == len(SETS) >= 24
    assert {one.dims for one in SETS} == {1, 2, 3, 10}
    assert min(one.n for one in SETS) <= 20
    assert max(one.n for one in SETS) == 10_000


@pytest.mark.parametrize(
    ("a", "b", "least"), [("kitten", "sitting", 3), ("", "ACG", 3), ("ACGT", "ACGT", 0), ("ACGT", "CGTA", 2)]
)
def test_edit_distances(a, b, least):
    assert edits(a, b) == edits(b, a) == least


def test_cities_are_as_far_apart_as_by_the_haversine_formula():
    expected = 6.371 * haversine_distances(np.radians(CITIES))
    np.testing.assert_allclose(cities(40), expected, rtol=1e-6, atol=1e-6)
    assert len(CITIES) == 40


def test_morisita_horn_is_its_formula():
    x, y = counts(6)[[1, 4]]
    same = 2 * sum(x * y) / ((sum(x**2) / sum(x) ** 2 + sum(y**2) / sum(y) ** 2) * sum(x) * sum(y))
    assert morisita_horn(6)[1, 4] == pytest.approx(1 - same)


def test_stress_is_over_all_pairs(monkeypatch):
    monkeypatch.setattr(best_known, "STRIP", 7)
    random = np.random.default_rng(0)
    x, t = random.random((20, 3)), random.random(190)
    expected = np.sqrt(((t - pdist(x)) ** 2).sum() / (t**2).sum())
    assert stress(squareform(t), x) == pytest.approx(expected, rel=1e-12)


def test_the_gradient_of_the_polish_is_that_of_the_error():
    matrix = squareform(np.random.default_rng(0).random(66))
    x = np.random.default_rng(1).random(24)

    def part(which):
        return lambda flat: np.ravel(best_known._error(matrix, flat.reshape(12, 2))[which])

    assert check_grad(lambda flat: part(0)(flat).item(), part(1), x) < 1e-4


def test_equal_dissimilarities_end_equally_spaced_on_a_line():
    n, matrix = 9, simplex(9)
    spaced = (2 * np.arange(n)[:, None] - (n - 1)) / n
    found = polished(matrix, spaced + np.random.default_rng(0).normal(scale=0.02, size=(n, 1)))
    np.testing.assert_allclose(found - found.mean(), spaced, atol=1e-6)
    assert stress(matrix, found) == pytest.approx(stress(matrix, spaced), rel=1e-9)


def test_exact_distances_are_shown_exactly():
    positions, matrix = noisy_line(30, 0.0)
    shaken = positions + np.random.default_rng(0).normal(scale=1e-5, size=positions.shape)
    assert stress(matrix, positions) < 1e-15
    assert stress(matrix, polished(matrix, shaken)) < 1e-7


def test_methods_run_once_and_the_best_counts(tmp_path, monkeypatch, capsys):
    one, settings = MapSet("simplex", 6, 1, simplex), Settings("quick", output=tmp_path)
    known, matrix = BestKnown.open(tmp_path / "maps.json"), one.matrix()
    known.run(one.name, matrix, one.dims, settings)
    assert capsys.readouterr().out.count("simplex: ") == len(attempts(6, settings)) == 4
    spaced = (2 * np.arange(6)[:, None] - 5) / 6
    digest = digest_of(matrix, 1)
    assert known.best(digest)[0] == pytest.approx(stress(matrix, spaced), rel=1e-7)
    known.note(digest, "default", "psmds-dist", [0.4, 0.3])
    known.note(digest, "default", "psmds-dist", [0.5])
    again = BestKnown.open(tmp_path / "maps.json")
    assert again.best(digest) == (0.3, "default")
    again.run(one.name, matrix, one.dims, settings)
    assert capsys.readouterr().out == ""


def test_fewer_starts_for_many_points_unless_all_are_asked_for():
    def names(n, profile):
        return [attempt.name for attempt in attempts(n, Settings(profile))]

    assert names(300, "standard")[1:] == ["100 random starts", "SMACOF, classical", "SMACOF, 20 random"]
    assert names(1000, "standard")[1::2] == ["20 random starts", "SMACOF, 3 random"]
    assert names(2000, "standard")[1::2] == ["5 random starts", "SMACOF, 2 random"]
    assert names(2000, "full")[1::2] == ["100 random starts", "SMACOF, 20 random"]
    assert names(10_000, "full")[1::2] == ["2 random starts", "SMACOF, 1 random"]


def test_seeds_are_compared_with_the_best_and_an_exact_map_is_exact():
    assert maps.compared([0.2, 0.3, 0.4], 0.2) == pytest.approx(
        {"default": 0.3, "times_best": 1.5, "worst": 2, "spread_%": 100 * 2 / 3}
    )
    assert maps.compared([1e-9, 3e-8], 0.0) == {"default": 1e-6, "times_best": 1, "worst": 1, "spread_%": 0}


def test_a_line_settles_where_smacof_of_scikit_learn_does():
    positions, matrix = noisy_line(40, 0.3)
    expected = smacof(matrix, init=positions, n_init=1, max_iter=500, eps=0, normalized_stress=False)[0]
    np.testing.assert_allclose(maps.settled(matrix, positions), expected, atol=1e-12)


def test_the_order_of_exact_positions_is_found():
    found = maps._ordered(30, 0.0, 2)
    assert found["correlation"] == found["of_allowed"] == 1


def test_sets_are_chosen_by_name_or_size():
    def names(**how):
        return [one.name for one in maps.sets_of(Settings(**how))]

    assert names(profile="quick") == ["simplex-12", "linnerud", "cities"]
    assert names(sets=("large-images", "iris")) == ["iris", "large-images"]
    assert names(sets=("large-images", "iris"), largest=150) == ["iris"]
    assert len(names(profile="full")) == len(SETS) > len(names())


def test_a_stress_that_is_not_the_measured_one_is_wrong(monkeypatch, tmp_path):
    one = MapSet("simplex", 5, 2, simplex)
    fit, how = maps.PatternSearchMDS.fit, Settings("quick", output=tmp_path, cached=True)
    known = BestKnown.open(tmp_path / "maps.json")
    assert maps._record(one, known, how)["wrong"] is None

    def boasting(self, matrix):
        fit(self, matrix).normalized_stress_ *= 0.9
        return self

    monkeypatch.setattr(maps.PatternSearchMDS, "fit", boasting)
    assert "the reported stress is off by 0.0" in maps._record(one, known, how)["wrong"]
    kept = json.loads((tmp_path / "maps.json").read_text())
    assert [entry["method"] for entry in kept.values()] == ["default"]
