"""Missing pairs, weights, bounds and losses from the user's input to the map."""

import warnings

import numpy as np
import pandas
import pytest
from scipy.optimize import minimize
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone

from psmds_dist import DissimilarityWarning, InputError, PatternSearchMDS, measure, open_pairs, read_result
from psmds_dist.api.inputs import paired_rows
from psmds_dist.executor import InProcessExecutor

N = 40
POINTS = np.random.default_rng(0).random((N, 2))
T = squareform(pdist(POINTS))
OFF = ~np.eye(N, dtype=bool)
IDS = [f"s{k}" for k in range(N)]


def symmetric(values):
    upper = np.triu(values, 1)
    return upper + upper.T


def random_gaps(share=0.3, seed=1):
    return symmetric(np.random.default_rng(seed).random((N, N)) < share).astype(bool)


def with_gaps(matrix=T, share=0.3):
    return np.where(random_gaps(share), np.nan, matrix)


WEIGHTS = symmetric(np.random.default_rng(2).uniform(0.2, 3, (N, N)))
NOISY = np.abs(T + symmetric(np.random.default_rng(3).normal(0, 0.1, (N, N))))


def fit(matrix=T, init=None, weights=None, upper=None, **parameters):
    """Fit without regard to the warning about missing pairs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*are missing", DissimilarityWarning)
        return PatternSearchMDS(**{"random_state": 0, "dtype": "float64", **parameters}).fit(
            matrix, init=init, weights=weights, upper=upper
        )


def disparity(mds):
    return procrustes(POINTS, mds.embedding_)[2]


# --- missing pairs ---


@pytest.mark.parametrize("form", [np.asarray, np.ma.masked_invalid, lambda m: pandas.DataFrame(m, IDS, IDS)])
def test_a_plane_with_gaps_is_recovered_whatever_holds_it(form):
    mds = fit(form(with_gaps()))
    assert disparity(mds) < 1e-8
    assert mds.n_known_pairs_ == N * (N - 1) // 2 - random_gaps().sum() // 2


def test_gaps_are_told_and_leave_the_stress_to_other_pairs():
    matrix = with_gaps(NOISY)
    with pytest.warns(DissimilarityWarning, match=r"of the 780 pairs of the matrix are missing \(\d+\.\d\d%\)"):
        mds = PatternSearchMDS(random_state=0, dtype="float64").fit(matrix)
    residuals = matrix - squareform(pdist(mds.embedding_))
    assert mds.normalized_stress_ == pytest.approx(np.sqrt(np.nansum(residuals**2) / np.nansum(matrix**2)))
    np.testing.assert_allclose(
        mds.point_stress_, np.sqrt(np.nansum(residuals**2, axis=1) / np.nansum(matrix**2, axis=1))
    )
    with pytest.warns(DissimilarityWarning, match="are missing"):
        assert measure(matrix, mds.embedding_, dtype="float64").normalized_stress == mds.normalized_stress_


def test_pairs_are_taken_as_a_list():
    i, j = np.triu_indices(N, 1)
    known = ~random_gaps()[i, j]
    listed = open_pairs((np.array(IDS)[i[known]], np.array(IDS)[j[known]], T[i, j][known]), ids=IDS, dtype="float64")
    mds = fit(listed)
    np.testing.assert_array_equal(mds.embedding_, fit(with_gaps()).embedding_)
    assert mds.ids_ == IDS


def test_the_largest_component_is_embedded_alone():
    matrix = T.copy()
    matrix[:30, 30:] = matrix[30:, :30] = np.nan
    with pytest.raises(InputError, match=r"2 components .*\(of 30, 10 points\)"):
        fit(matrix)
    with pytest.warns(DissimilarityWarning, match="10 of 40 points are left out"):
        mds = PatternSearchMDS(random_state=0, dtype="float64", disconnected="largest").fit(
            pandas.DataFrame(matrix, IDS, IDS)
        )
    assert mds.ids_ == IDS[:30]
    np.testing.assert_array_equal(mds.embedding_, fit(T[:30, :30]).embedding_)


def test_points_with_too_few_pairs_are_named():
    matrix = T.copy()
    matrix[7, 2:] = matrix[2:, 7] = np.nan
    matrix[7, 7] = 0
    few = r"points with fewer known pairs than the 3 that determine a place in 2 dimensions: 1 \('s7'\)"
    with pytest.warns(match="are missing"), pytest.warns(DissimilarityWarning, match=few):
        PatternSearchMDS(random_state=0, init="random").fit(pandas.DataFrame(matrix, IDS, IDS))


# --- weights ---


def test_weights_are_those_of_the_objective():
    mds = fit(NOISY, weights=WEIGHTS)
    d = squareform(pdist(mds.embedding_))
    stress = np.sqrt((WEIGHTS * (NOISY - d) ** 2).sum() / (WEIGHTS * NOISY**2).sum())
    assert mds.normalized_stress_ == pytest.approx(stress)
    weights, t = squareform(WEIGHTS, checks=False), squareform(NOISY, checks=False)

    def objective(x):
        return (weights * (t - pdist(x.reshape(N, 2))) ** 2).sum()

    best = minimize(objective, mds.embedding_.ravel(), options={"gtol": 1e-8})
    assert objective(mds.embedding_) <= best.fun * (1 + 1e-6)
    assert measure(NOISY, mds.embedding_, weights=WEIGHTS, dtype="float64").normalized_stress == mds.normalized_stress_


def test_weight_zero_is_as_good_as_missing():
    gaps = random_gaps()
    zero = fit(NOISY, weights=np.where(gaps, 0.0, 1.0), init=POINTS, polish=False)
    missing = fit(with_gaps(NOISY), weights=np.ones((N, N)), init=POINTS, polish=False)
    np.testing.assert_array_equal(zero.embedding_, missing.embedding_)
    assert zero.n_known_pairs_ == missing.n_known_pairs_


def test_the_power_of_sammon_minimises_his_stress():
    def sammon(x):
        t = squareform(NOISY + np.where(OFF, 1e-3, 0), checks=False)
        return ((t - pdist(x)) ** 2 / t).sum()

    matrix = NOISY + np.where(OFF, 1e-3, 0)
    assert sammon(fit(matrix, weight_power=-1).embedding_) < sammon(fit(matrix).embedding_)
    weighed = fit(matrix, weights=1 / np.where(OFF, matrix, 1))
    assert sammon(fit(matrix, weight_power=-1).embedding_) == pytest.approx(sammon(weighed.embedding_), rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (
            np.where(np.eye(N, k=3) + np.eye(N, k=-3), -1.0, 1.0),
            r"the weights have 74 negative entries, the worst in row",
        ),
        (with_gaps(WEIGHTS), "the weights have NaN entries, the first in row 0"),
        (np.where(random_gaps(), np.inf, 1.0), "the weights have .* infinite entries"),
        (WEIGHTS[:30, :30], "weights is a matrix of 30 points, but belongs to one of 40"),
        (np.ones((N, 3)), "has shape"),
        (WEIGHTS + np.triu(WEIGHTS), "the weights are not symmetric: the worst pair found is"),
        (
            WEIGHTS * (np.arange(N) != 5) * (np.arange(N) != 5)[:, None],
            r"all weights of 1 of the points are zero.*\(5\)",
        ),
        (
            symmetric(np.ones((N, N))) * ((np.arange(N) < 9) == (np.arange(N) < 9)[:, None]),
            "without a known pair of posit",
        ),
    ],
)
def test_bad_weights_get_a_sentence(weights, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(weights=weights)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [(np.ones(60), "^weights: .*1-D"), (np.full((N, N), "x"), "^weights"), ("no/such.npy", "^weights: ")],
)
def test_what_is_no_matrix_of_weights_is_refused_by_name(weights, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(weights=weights)


def test_a_mask_is_weights_of_zero_and_one():
    mask = ~random_gaps()
    with paired_rows(NOISY, mask, None, InProcessExecutor()) as (source, _):
        np.testing.assert_array_equal(source.sources[1].in_memory(), mask.astype("float32"))


def test_weights_in_another_order_are_refused_by_name():
    matrix, weights = pandas.DataFrame(T, IDS, IDS), pandas.DataFrame(WEIGHTS, IDS, IDS)
    with pytest.raises(InputError, match="weights names the points in another order, first 's39' in row 0"):
        fit(matrix, weights=weights.iloc[::-1, ::-1])
    with pytest.raises(InputError, match="weights names the points differently"):
        fit(matrix, weights=weights.rename(index=str.upper, columns=str.upper))
    fit(matrix, weights=weights, max_epochs=0, init="random", polish=False)


# --- bounds and losses ---


def test_distances_between_bounds_cost_nothing():
    mds = fit(0.9 * T, upper=1.1 * T)
    d = squareform(pdist(mds.embedding_))
    assert ((d >= 0.9 * T - 1e-6) & (d <= 1.1 * T + 1e-6)).all()
    assert mds.normalized_stress_ < 1e-6


def test_an_upper_bound_may_be_infinite():
    far = np.quantile(T[OFF], 0.7) < T
    mds = fit(np.where(far, 0.5, T), upper=np.where(far, np.inf, T))
    assert mds.normalized_stress_ < 1e-6


@pytest.mark.parametrize(
    ("upper", "sentence"),
    [
        (
            np.where(random_gaps(0.01), 0.5 * T, T),
            "the wrong way round in .* the upper bound .* is below",
        ),
        (with_gaps(), "entries have one bound and NaN for the other"),
        (T + np.triu(T), "the upper bounds are not symmetric"),
        (np.where(np.triu(random_gaps()), np.inf, T), "the upper bounds of .* are infinite or NaN in one order"),
    ],
)
def test_bad_bounds_get_a_sentence(upper, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(upper=upper)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"loss": "cubic"}, "loss must be one of 'squared', 'absolute'"),
        ({"weight_power": 99}, "weight_power must be a number between"),
        ({"weight_power": "x"}, "weight_power must be a number"),
        ({"disconnected": "bridge"}, "disconnected must be 'refuse' or 'largest', not 'bridge'"),
    ],
)
def test_bad_parameters_get_a_sentence(parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(**parameters)


@pytest.mark.parametrize("parameters", [{"loss": "relative"}, {"loss": "log"}, {"weight_power": -1}])
def test_zeros_that_are_divided_by_are_named(parameters):
    matrix = T.copy()
    matrix[3, 8] = matrix[8, 3] = 0
    with pytest.raises(InputError, match=r"divides by the dissimilarities, but .* 2 zero entries .* first in row 3"):
        fit(matrix, **parameters)


def test_parameters_are_cloned_and_the_objective_is_told():
    mds = clone(PatternSearchMDS(loss="huber", weight_power=0.5, disconnected="largest"))
    assert (mds.loss, mds.weight_power, mds.disconnected) == ("huber", 0.5, "largest")
    found = fit(NOISY)
    assert found.error_ == found.mse_


def test_a_saved_map_knows_its_rule(tmp_path):
    mds = fit(with_gaps(NOISY), weights=WEIGHTS)
    mds.save(tmp_path / "map.zarr")
    result = read_result(tmp_path / "map.zarr")
    assert result.attributes["rule"]["weighted"]
    assert result.attributes["known_pairs"] == mds.n_known_pairs_
    assert result.stress.error == mds.error_
