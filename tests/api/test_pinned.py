"""Maps of which some coordinates are given, or bounded, from the user's input to the result."""

import warnings

import numpy as np
import pandas
import pytest
from numpy.testing import assert_array_equal
from scipy.optimize import minimize
from scipy.spatial.distance import pdist, squareform

from psmds_dist import DissimilarityWarning, InputError, PatternSearchMDS, certify, measure, read_result
from psmds_dist.core.rules import PairRule
from tests.pair_costs import Pairs

N, OLD = 60, 40
POINTS = np.random.default_rng(0).normal(size=(N, 2)) * [2, 1] + [1, -1]
T = squareform(pdist(POINTS))
NEW = np.arange(N) >= OLD
PINNED = np.where(NEW[:, None], np.nan, POINTS)
NOISE = np.triu(np.random.default_rng(1).normal(0, 0.2, (N, N)), 1)
NOISY = np.abs(T + NOISE + NOISE.T)


def fit(matrix=T, pinned=None, weights=None, upper=None, init=None, **parameters):
    mds = PatternSearchMDS(**{"random_state": 0, "dtype": "float64", **parameters})
    return mds.fit(matrix, pinned=pinned, weights=weights, upper=upper, init=init)


def objective(matrix, x):
    """Sum of squared residuals over pairs."""
    return ((squareform(matrix, checks=False) - pdist(x)) ** 2).sum()


def best_of_scipy(matrix, starts, low, high):
    """Least objective within bounds that L-BFGS-B finds."""

    def value(z):
        x = z.reshape(-1, 2)
        d = squareform(pdist(x))
        pulls = 2 * (d - matrix) / np.where(d > 0, d, 1)
        return objective(matrix, x), (pulls.sum(axis=1)[:, None] * x - pulls @ x).ravel()

    bounds = list(zip(np.ravel(low), np.ravel(high), strict=True))
    found = (minimize(value, np.clip(x, low, high).ravel(), jac=True, bounds=bounds) for x in starts)
    return min(result.fun for result in found)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"bad_moves": False}, {"polish": False}, {"init": "random"}, {"init": "classical", "direction_share": 0.5}],
)
def test_new_points_find_their_places_on_an_old_map(parameters):
    mds = fit(pinned=PINNED, **parameters)
    assert_array_equal(mds.embedding_[~NEW], POINTS[~NEW])
    np.testing.assert_allclose(mds.embedding_, POINTS, atol=2e-3)
    assert_array_equal(mds.raw_embedding_, mds.embedding_)


def test_noisy_new_points_are_as_good_as_by_another_minimiser():
    mds = fit(NOISY, PINNED)
    places = mds.embedding_[NEW]
    low, high = (np.where(NEW[:, None], end, POINTS) for end in (-np.inf, np.inf))
    best = best_of_scipy(NOISY, [POINTS, mds.embedding_], low, high)
    assert objective(NOISY, mds.embedding_) <= best * (1 + 1e-6)
    assert np.linalg.norm(places - POINTS[NEW], axis=1).max() < 0.3


def test_epochs_alone_come_near_it_although_most_pairs_are_of_pinned_points():
    """The error of the pairs between pinned points, most of it, does not count as what an epoch has to gain."""
    pinned = np.where(np.arange(N)[:, None] >= N - 2, np.nan, POINTS)
    coarse, fine = (objective(NOISY, fit(NOISY, pinned, init="random", polish=how).embedding_) for how in (False, True))
    assert coarse <= fine * (1 + 1e-4)


def test_an_axis_can_be_given():
    along = np.column_stack([np.full(N, np.nan), POINTS[:, 1]])
    mds = fit(pinned=along)
    assert_array_equal(mds.embedding_[:, 1], POINTS[:, 1])
    assert mds.normalized_stress_ < 1e-6


def test_coordinates_stay_within_bounds():
    mds = fit(bounds=(0, None))
    assert mds.embedding_.min() >= 0
    assert mds.normalized_stress_ < 1e-6
    box = [(-1, 1), (None, None)]
    mds = fit(bounds=box)
    assert np.abs(mds.embedding_[:, 0]).max() <= 1
    low, high = np.array([[-1, -np.inf]] * N), np.array([[1, np.inf]] * N)
    random = np.random.default_rng(2)
    starts = [POINTS - POINTS.mean(axis=0), *random.normal(size=(4, N, 2))]
    assert objective(T, mds.embedding_) <= best_of_scipy(T, starts, low, high) * (1 + 1e-3)


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_with_gaps_weights_and_bounds_no_allowed_move_helps(loss):
    """A monotone solve certifies the moves that pins and bounds allow: checked by recomputing every cost."""
    some = np.arange(OLD - 12, OLD + 8)
    random = np.random.default_rng(3)
    weights, lost = random.uniform(0.5, 2, (20, 20)), np.triu(random.random((20, 20)) < 0.2, 1)
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    gaps = np.where(lost | lost.T, np.nan, NOISY[np.ix_(some, some)])
    box = tuple(np.quantile(POINTS[some[:12]], [0, 1]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*are missing", DissimilarityWarning)
        how = {"loss": loss, "bad_moves": False, "radius_tol": 0.05, "bounds": box, "effort": "quick"}
        mds = fit(gaps, PINNED[some], weights, 1.1 * gaps, **how)
    assert mds.stop_reason_ == "radius_tol"
    assert (np.diff(mds.history_["mse"]) <= 0).all()
    x, rule = mds.raw_embedding_, PairRule(loss, weighted=True, bounded=True, gaps=True)
    pairs = Pairs(gaps, 1.1 * gaps, weights, mds.result_.check.rms)
    gains = pairs.gains(rule, x, mds.radius_)
    places = x[:, None] + mds.radius_ * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    allowed = ((places >= box[0]) & (places <= box[1])).all(axis=2) & NEW[some, None]
    assert gains[allowed].min() >= -1e-10
    assert gains.min() < -1e-3  # of a pinned point


def test_points_that_are_left_out_take_their_pins_along():
    matrix = T.copy()
    matrix[:10, 10:] = matrix[10:, :10] = np.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DissimilarityWarning)
        mds = fit(matrix, PINNED, disconnected="largest")
    assert_array_equal(mds.embedding_[:30], POINTS[10:OLD])
    np.testing.assert_allclose(mds.embedding_, POINTS[10:], atol=1e-6)


def test_a_given_start_is_put_onto_the_pinned_points():
    turned = (POINTS - 5) @ [[0, 1], [1, 0]]
    mds = fit(pinned=PINNED, init=turned, max_epochs=0, polish=False)
    np.testing.assert_allclose(mds.embedding_, POINTS, atol=1e-12)
    assert_array_equal(mds.embedding_[~NEW], POINTS[~NEW])


@pytest.mark.parametrize(
    ("matrix", "pinned", "parameters", "sentence"),
    [
        (T, PINNED, {"moves": "guided"}, "pinned and bounds work with moves along axes"),
        (T, PINNED, {"transformation": "interval"}, "a transformation changes: leave transformation"),
        (T, PINNED * 1e7, {}, r"demand coordinates of \d.*more than 10000 times"),
        (T, None, {"bounds": (1e9, None)}, "demand coordinates of 1e[+]09"),
        (T, PINNED[:9], {}, r"pinned must be coordinates of shape \(60, 2\)"),
    ],
)
def test_what_cannot_be_done_is_refused(matrix, pinned, parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(matrix, pinned, **parameters)


def test_a_resumed_fit_has_the_same_bits_and_belongs_to_its_pins(tmp_path):
    how = {"init": "random", "polish": False, "bounds": (-9, 9)}
    whole = fit(NOISY, PINNED, **how)

    def stop(event):
        if event.epoch == 4:
            raise KeyboardInterrupt

    cut = fit(NOISY, PINNED, checkpoint=tmp_path / "kept", on_epoch=stop, **how)
    assert cut.stop_reason_ == "interrupted"
    with pytest.raises(InputError, match=r"is the checkpoint of another run .*region"):
        fit(NOISY, PINNED + 0.1, checkpoint=tmp_path / "kept", resume=True, **how)
    found = fit(NOISY, PINNED, checkpoint=tmp_path / "kept", resume=True, **how)
    assert_array_equal(found.embedding_, whole.embedding_)
    assert_array_equal(found.history_["mse"], whole.history_["mse"])


@pytest.mark.slow
def test_workers_find_the_same_bits(client):
    how = {"dtype": "float32", "bounds": (-9, 9), "effort": "quick"}
    here, there = (fit(NOISY, PINNED, cluster=cluster, **how) for cluster in (None, client))
    assert_array_equal(here.embedding_, there.embedding_)
    assert_array_equal(here.history_["mse"], there.history_["mse"])


def test_a_streamed_fit_has_the_same_bits(tmp_path):
    np.save(tmp_path / "t.npy", NOISY)
    how = {"init": "random", "polish": False, "n_jobs": 1}
    assert_array_equal(fit(tmp_path / "t.npy", PINNED, **how).embedding_, fit(NOISY, PINNED, **how).embedding_)


def test_the_saved_map_tells_what_was_pinned(tmp_path):
    mds = fit(pandas.DataFrame(NOISY), PINNED)
    mds.save(tmp_path / "map.zarr")
    found = read_result(tmp_path / "map.zarr")
    assert found.attributes["pinned_coordinates"] == 2 * OLD
    assert_array_equal(found.embedding, mds.embedding_)
    assert measure(NOISY, mds.embedding_, dtype="float64").normalized_stress == mds.normalized_stress_


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.wide)])
def test_a_monotone_solve_in_a_box_that_is_too_small_is_certified(seed):
    t = squareform(pdist(1.5 * np.random.default_rng(seed).random((200, 3))))
    mds = fit(t, bounds=(0, 1), bad_moves=False, n_init=1)
    assert (mds.embedding_.min(), mds.embedding_.max()) == (0, 1)
    assert (np.diff(mds.history_["mse"]) <= 0).all()
    assert mds.certificate_.holds
    found = certify(t, mds.raw_embedding_, mds.radius_, bounds=(0, 1), dtype="float64")
    assert found.gain <= 1e-11 * objective(t, mds.embedding_)
    x = best_of_scipy(t, [mds.embedding_], np.zeros((200, 2)), np.ones((200, 2)))
    assert objective(t, mds.embedding_) <= x * (1 + 1e-4)
