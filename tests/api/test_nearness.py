"""Near pairs against the whole, from the user's parameter to the map."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist, squareform

from psmds_dist import InputError, PatternSearchMDS, certify, measure, quality, read_result
from psmds_dist.core.config import SolverConfig

N = 60
NOISY = np.hypot(squareform(pdist(np.random.default_rng(0).random((N, 2)))), 0.2)
np.fill_diagonal(NOISY, 0)
NEAR = {"local": 0.6, "local_neighbors": 4}


def parts(t, x, neighbors):
    """Squared normalized stress of all pairs, and of each point's nearest ones."""
    order = np.argsort(t + np.diag(np.full(len(t), np.inf)), axis=1)[:, :neighbors]
    some = np.arange(len(t))[:, None], order
    d = cdist(x, x)
    return tuple(((a - b) ** 2).sum() / (a**2).sum() for a, b in ((t, d), (t[some], d[some])))


def fit(t=NOISY, **parameters):
    return PatternSearchMDS(**{"random_state": 0, "dtype": "float64", **NEAR, **parameters}).fit(t)


def test_the_objective_is_the_whole_and_the_near_pairs_by_their_shares():
    mds = fit()

    def objective(x):
        whole, near = parts(NOISY, x.reshape(N, 2), 4)
        return 0.4 * whole + 0.6 * near

    assert mds.normalized_stress_**2 == pytest.approx(objective(mds.embedding_), rel=1e-9)
    assert minimize(objective, mds.embedding_.ravel(), options={"maxiter": 2}).fun > objective(mds.embedding_) * (
        1 - 1e-6
    )


def test_near_distances_come_closer_along_the_dial_and_the_whole_goes():
    maps = [fit(local=share).embedding_ for share in (0, 0.3, 0.9)]
    whole, near = zip(*(parts(NOISY, x, 4) for x in maps), strict=True)
    assert whole[0] < whole[1] < whole[2]
    assert near[0] > near[1] > near[2]


def as_if_large(monkeypatch):
    """Begin solves as those of many points."""
    eases = SolverConfig.eases
    monkeypatch.setattr(SolverConfig, "eases", lambda config, n: eases(config, 10_000))


def test_a_large_solve_begins_with_a_polish_of_the_start(monkeypatch):
    as_if_large(monkeypatch)
    how = {"local": 0.9, "init": "classical", "max_epochs": 1}
    with pytest.warns(match="ended at max_epochs"):
        polished, moved = (fit(polish=polish, **how) for polish in ("auto", False))
    assert polished.normalized_stress_ < 0.8 * moved.normalized_stress_
    assert polished.history_["radius"][0] < 0.1 * moved.history_["radius"][0]
    with pytest.warns(match="ended at max_epochs"):
        assert fit(radius=0.125, **how).history_["radius"][0] == 0.125


def test_no_share_is_the_map_of_pairs_that_count_alike():
    np.testing.assert_array_equal(
        fit(local=0.0, local_neighbors=7).embedding_,
        PatternSearchMDS(random_state=0, dtype="float64").fit(NOISY).embedding_,
    )


def test_stress_neighborhoods_and_certificates_are_by_the_same_weights():
    mds = fit(bad_moves=False)
    assert measure(NOISY, mds.embedding_, dtype="float64", **NEAR).normalized_stress == mds.normalized_stress_
    found = quality(NOISY, mds.embedding_, dtype="float64", n_neighbors=5, **NEAR)
    assert found.normalized_stress == mds.normalized_stress_
    plain = quality(NOISY, mds.embedding_, dtype="float64", n_neighbors=5)
    assert plain.normalized_stress == pytest.approx(np.sqrt(parts(NOISY, mds.embedding_, 4)[0]))
    assert (found.trustworthiness, found.continuity) == (plain.trustworthiness, plain.continuity)
    with pytest.raises(InputError, match="sample of rows"):
        quality(NOISY, mds.embedding_, sample=30, **NEAR)
    how = {"radius": mds.radius_, "dtype": "float64"}
    assert certify(NOISY, mds.raw_embedding_, **how, **NEAR).holds
    assert not certify(NOISY, mds.raw_embedding_, **how).holds


def test_missing_and_weighted_pairs_may_be():
    gone = np.triu(np.random.default_rng(1).random((N, N)) < 0.3, 1)
    weights = np.where(gone | gone.T, 0.0, 2.0)
    holes = np.where(gone | gone.T, np.nan, NOISY)
    with pytest.warns(match="are missing"):
        missing = fit(holes, init="classical")
    with pytest.warns(match="are missing"):
        zero = PatternSearchMDS(random_state=0, dtype="float64", init="classical", **NEAR).fit(NOISY, weights=weights)
    assert missing.normalized_stress_ == pytest.approx(zero.normalized_stress_, rel=1e-6)


def test_a_saved_map_knows_its_share(tmp_path):
    fit().save(tmp_path / "map.zarr")
    rule = read_result(tmp_path / "map.zarr").attributes["rule"]
    assert (rule["local"], rule["local_neighbors"]) == (0.6, 4)


def test_too_many_neighbors_are_refused():
    with pytest.raises(
        InputError, match=r"is 59, but each of 60 points has 59 others and some must be far: .* most 58"
    ):
        fit(local_neighbors=59)
    with pytest.raises(InputError, match="give at most 58"):
        measure(NOISY, np.zeros((N, 2)), local=0.5, local_neighbors=60)
    fit(local_neighbors=58, max_epochs=0, init="random", polish=False)


def large(n=2100):
    """Distances of more points than a search takes."""
    return squareform(pdist(np.random.default_rng(3).random((n, 3)))).astype("float32")


@pytest.mark.slow
def test_same_bits_streamed_on_one_thread_and_resumed(tmp_path):
    t, how = large(), {"random_state": 0, "max_epochs": 6, "init": "random", "polish": False, **NEAR}
    np.save(tmp_path / "t.npy", t)
    with pytest.warns(match="ended at max_epochs"):
        wanted = PatternSearchMDS(**how).fit(t).embedding_
    assert wanted.std() > 0

    def third(event):
        if event.epoch == 3:
            raise KeyboardInterrupt

    how["checkpoint"] = tmp_path / "run"
    cut = PatternSearchMDS(**how, on_epoch=third).fit(tmp_path / "t.npy")
    assert cut.stop_reason_ == "interrupted"
    with pytest.warns(match="ended at max_epochs"):
        found = PatternSearchMDS(**how, resume=True, memory_limit="6 MiB", n_jobs=1).fit(tmp_path / "t.npy")
    np.testing.assert_array_equal(found.embedding_, wanted)
    cut = PatternSearchMDS(**how, on_epoch=third).fit(tmp_path / "t.npy")
    with pytest.raises(InputError, match="local"):
        PatternSearchMDS(**{**how, "local": 0.5}, resume=True).fit(tmp_path / "t.npy")


@pytest.mark.slow
def test_same_bits_on_two_workers(client, monkeypatch):
    as_if_large(monkeypatch)
    t, how = large(900), {"random_state": 0, "max_epochs": 4, "init": "classical", **NEAR}
    with pytest.warns(match="ended at max_epochs"):
        here = PatternSearchMDS(**how).fit(t)
    with pytest.warns(match="ended at max_epochs"):
        there = PatternSearchMDS(**how, cluster=client).fit(t)
    np.testing.assert_array_equal(here.embedding_, there.embedding_)
    assert here.normalized_stress_ == there.normalized_stress_
