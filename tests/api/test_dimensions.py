"""How many dimensions dissimilarities support, on data where that is known."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import smacof

from psmds_dist import (
    ArrayRows,
    BudgetError,
    DissimilarityWarning,
    InProcessExecutor,
    InputError,
    RowSource,
    StopReason,
    build,
    dimensions,
)
from psmds_dist.api.dimensions import EXCELLENT, Dimensions, _curve, _shuffle, write_curve
from psmds_dist.core.config import SolverConfig

rng = np.random.default_rng(8)


def noisy(points, share):
    """Distances, each with an error of its own."""
    distances = pdist(points)
    return squareform(np.abs(distances + share * distances.std() * rng.normal(size=distances.size)))


@pytest.fixture
def shallow(monkeypatch):
    """Let curves begin in as many dimensions as are asked for, which takes fewer maps."""
    monkeypatch.setattr("psmds_dist.api.dimensions.FIRST_DIMS", 1)


PLANE = squareform(pdist(rng.normal(size=(30, 2))))


@pytest.mark.parametrize(
    ("matrix", "truth", "sentence"),
    [
        (noisy(rng.normal(size=(40, 3)), 0.1), 3, "up to L = 3; further dimensions gain no more than noise would"),
        (noisy(rng.uniform(size=(30, 1)), 0.1), 1, "up to L = 1; further dimensions gain no more"),
        (squareform(rng.uniform(1, 2, 30 * 29 // 2)), 0, "no faster than that of shuffled dissimilarities"),
        (PLANE, 2, "hardly anything is left"),
    ],
    ids=["space", "line", "noise", "exact plane"],
)
def test_the_truth_is_found(matrix, truth, sentence):
    found = dimensions(matrix, 4, n_init=3, random_state=0)
    assert found.n_components == truth
    assert sentence in found.description
    assert found.stress.shape == found.shuffled.shape == (3, 4)
    assert (np.diff(found.stress, axis=1) <= 0).all()


def test_maps_are_as_good_as_those_of_smacof():
    matrix = squareform(pdist(rng.normal(size=(30, 6)) * [3, 2, 1, 1, 1, 1]))
    ours = dimensions(matrix, 3, n_init=3, random_state=0, dtype="float64").stress.min(axis=0)
    for dims, stress in enumerate(ours, 1):
        _, raw = smacof(matrix, n_components=dims, n_init=8, random_state=0, eps=1e-7, normalized_stress=False)
        assert stress <= 1.01 * np.sqrt(2 * raw / (matrix**2).sum())


def of_curves(stress, shuffled):
    return Dimensions(np.array(stress), np.array(shuffled), np.arange(9), 9, 0)


SHUFFLED = np.array([[0.6, 0.5, 0.45], [0.601, 0.5, 0.451], [0.6, 0.501, 0.45]])


def test_noise_gains_at_most_the_bound_of_a_prediction_interval():
    found = of_curves(SHUFFLED, SHUFFLED)
    gains = 1 - SHUFFLED / np.column_stack((np.ones(3), SHUFFLED[:, :-1]))
    high = stats.t.interval(0.99, 2, gains.mean(axis=0), gains.std(axis=0, ddof=1) * np.sqrt(4 / 3))[1]
    assert_allclose(found.noise_gains, high, rtol=1e-12)
    assert_allclose(found.gains, np.median(gains, axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("curve", "supported", "sentence"),
    [
        ([0.6, 0.5, 0.45], 0, "even in 1 dimension"),
        ([0.6, 0.2, 0.1], 0, "even in 1 dimension"),  # dimensions count from the first
        ([0.3, 0.1, 0.095], 2, "up to L = 2; further dimensions gain no more than noise would"),
        ([0.3, 0.1, 0.05], 3, "up to L = 3, the most that were tried"),
        ([0.3, EXCELLENT, 0.0], 2, "up to L = 2, where it is 0.0250: hardly anything is left"),
        ([0.0, 0.0, 0.0], 1, "up to L = 1, where it is 0.0000"),
    ],
)
def test_every_outcome_has_its_sentence(curve, supported, sentence):
    found = of_curves([curve] * 3, SHUFFLED)
    assert found.n_components == supported
    assert sentence in found.description


def test_shuffling_keeps_the_entries_and_nothing_else():
    matrix = squareform(rng.uniform(size=45)).astype(np.float32)
    shuffled = _shuffle(matrix, np.random.default_rng(0))
    assert shuffled.dtype == np.float32
    assert_array_equal(shuffled, shuffled.T)
    assert_array_equal(np.diag(shuffled), 0)
    assert_array_equal(np.sort(squareform(shuffled)), np.sort(squareform(matrix)))
    assert (shuffled != matrix).mean() > 0.8


def test_a_map_begins_at_the_principal_axes_of_the_one_before():
    begun = []

    def run(source, config, init):
        begun.append(init)
        embedding = np.full((5, config.n_components), config.n_components) + np.arange(config.n_components)
        stress = SimpleNamespace(normalized_stress=1 / config.n_components)
        return SimpleNamespace(
            solution=SimpleNamespace(stress=stress, embedding=embedding, stop_reason=StopReason.RADIUS)
        )

    assert list(_curve(None, SolverConfig(n_components=3), run)) == [1 / 3, 1 / 2, 1]
    assert begun[0] == "random"
    assert_array_equal(begun[1], np.tile([3, 4], (5, 1)))
    assert_array_equal(begun[2], np.full((5, 1), 2))


def test_an_interrupt_ends_it_all():
    cut_short = SimpleNamespace(solution=SimpleNamespace(stop_reason=StopReason.INTERRUPTED))
    with pytest.raises(KeyboardInterrupt):
        list(_curve(None, SolverConfig(), lambda *args, **kwargs: cut_short))


class Recorder(RowSource):
    """A matrix that remembers which of its rows were read."""

    def __init__(self, values):
        self.values, self.shape, self.seen = values, values.shape, set()

    def read(self, lo, hi, out):
        self.seen |= set(range(lo, hi))
        out[: hi - lo] = self.values[lo:hi]


def test_a_sample_is_read_and_embedded_as_a_matrix_of_its_own(shallow):
    matrix = squareform(pdist(rng.normal(size=(90, 3))))
    source = Recorder(matrix)
    found = dimensions(source, 2, n_init=3, sample=20, random_state=3)
    assert source.seen == set(found.points.tolist())
    assert len(source.seen) == 20
    assert "20 of 90 points, drawn at random (seed 3)" in found.coverage
    alone = dimensions(matrix[np.ix_(found.points, found.points)], 2, n_init=3, random_state=3)
    assert "all 20 points" in alone.coverage
    assert_array_equal(alone.stress, found.stress)
    assert_array_equal(alone.shuffled, found.shuffled)
    other = dimensions(matrix, 1, n_init=3, sample=20, random_state=4)
    assert set(other.points.tolist()) != source.seen


def test_bits_depend_neither_on_threads_nor_on_memory_nor_on_where_the_matrix_is(shallow, tmp_path):
    build(ArrayRows(PLANE), tmp_path / "d.zarr", InProcessExecutor())
    settings = {"max_components": 2, "n_init": 3, "sample": 25, "random_state": 1}
    one = dimensions(PLANE, **settings, n_jobs=1)
    for other in (
        dimensions(PLANE, **settings, n_jobs=2, memory_limit="1 MiB"),
        dimensions(tmp_path / "d.zarr", **settings),
        dimensions(squareform(PLANE), **settings),
    ):
        assert_array_equal(other.stress, one.stress)
        assert_array_equal(other.shuffled, one.shuffled)


def test_few_points_need_few_dimensions():
    done = []
    found = dimensions(1 - np.eye(4), n_init=3, random_state=0, on_map=lambda *progress: done.append(progress))
    assert found.stress.shape == (3, 3)
    assert_allclose(found.stress[:, 2], 0, atol=1e-3)  # a tetrahedron
    assert done == [(k, 18) for k in range(1, 19)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_components": 0}, "max_components must be a whole number of at least 1, not 0"),
        ({"n_init": 1}, "n_init must be a whole number of at least 3, not 1"),
        ({"sample": 2.5}, "sample must be a whole number of at least 3, not 2.5"),
        ({"random_state": "x"}, "random_state must be"),
        ({"X": np.zeros((2, 2))}, "2 points, but a map needs at least 3"),
        ({"X": np.zeros((4, 3))}, "square"),
        ({"X": 3 * np.eye(9)}, "diagonal"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words):
    with pytest.raises(InputError, match=words):
        dimensions(**{"X": PLANE, **arguments})


def test_bad_entries_are_named_by_their_row_in_the_matrix():
    spoilt = PLANE.copy()
    spoilt[:, 11] = spoilt[11] = np.nan
    with pytest.raises(InputError, match="row 11 of the matrix"):
        dimensions(spoilt, sample=29, random_state=np.random.RandomState(0))


def test_a_limit_that_is_too_small_is_refused_with_one_that_works():
    with pytest.raises(BudgetError, match=r"to [0-9.]+ KiB, or give a smaller sample \(--sample\)"):
        dimensions(PLANE, memory_limit=10_000)


def test_what_is_suspicious_is_said_once(shallow):
    rounded = PLANE.copy()
    rounded[0, 1] = rounded[1, 0] = -1e-9
    with pytest.warns(DissimilarityWarning) as noted:
        dimensions(rounded, 1, n_init=3, random_state=0)
    assert len(noted) == 1


def test_curves_are_written_as_a_table(tmp_path):
    found = of_curves(SHUFFLED / 2, SHUFFLED)
    for name, separator in (("c.csv", ","), ("c.TSV", "\t")):
        write_curve(tmp_path / name, found)
        table = np.genfromtxt(tmp_path / name, delimiter=separator, names=True)
        assert_array_equal(table["n_components"], [1, 2, 3])
        assert_array_equal(table["stress"], np.median(SHUFFLED, axis=0) / 2)
        assert_array_equal(table["shuffled_high"], SHUFFLED.max(axis=0))
        assert_array_equal(table["noise_gain"], found.noise_gains)
    with pytest.raises(InputError, match=r"'.*c.txt': the name must end in .csv or .tsv"):
        write_curve(tmp_path / "c.txt", found)
