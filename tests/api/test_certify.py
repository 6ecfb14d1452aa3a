"""Certificates against a full recomputation of the cost of every move."""

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist import (
    ArrayRows,
    Certificate,
    DissimilarityWarning,
    InProcessExecutor,
    InputError,
    PatternSearchMDS,
    certify,
    read_result,
)
from psmds_dist.api.certificate import certificate_of
from psmds_dist.cli.app import main
from psmds_dist.core.losses import LOSSES
from psmds_dist.core.rules import PairRule
from tests.pair_costs import SOME_LOSSES, Pairs, random_pairs

DECIDED = 1e-11
"""Change of the error, as a share of it, below which rounding decides whether a move lowers it."""


def problem(loss, seed):
    """A random small problem by some rule, with the arguments that describe it."""
    random = np.random.default_rng(seed)
    n, dims = int(random.integers(5, 11)), int(random.integers(1, 4))
    rule = PairRule(loss, weighted=bool(seed & 1), bounded=bool(seed & 2), gaps=bool(seed & 4))
    pairs = random_pairs(n, seed, gaps=0.15 * rule.gaps, zero=0.1, spread=0.4 * rule.bounded)
    if rule.bounded:
        pairs.high = np.where(np.isnan(pairs.low), np.nan, pairs.high)
    given = {"weights": pairs.weights if rule.weighted else None, "upper": pairs.high if rule.bounded else None}
    return random, dims, rule, pairs, {**given, "dtype": "float64"}


def compare(found: Certificate, rule: PairRule, pairs: Pairs, x: np.ndarray, radius: float, allowed=True):
    """Compare a certificate with all gains recomputed."""
    gains, error = np.where(allowed, pairs.gains(rule, x, radius), np.inf), pairs.error(rule, x) / 2
    assert found.radius == radius
    assert found.points == np.isfinite(gains).any(axis=1).sum()
    assert found.gain == pytest.approx(max(0, -gains.min()), rel=1e-9, abs=DECIDED * error)
    assert found.share == pytest.approx(found.gain / error if error else 0.0, rel=1e-9)
    best = gains.min(axis=1)
    assert (best < -DECIDED * error).sum() <= found.improvable <= (best < DECIDED * error).sum()


def certify_solves(loss, seeds) -> int:
    """Certify random maps and those of monotone solves, and count the problems that the input check accepts."""
    done = 0
    for seed in seeds:
        random, dims, rule, pairs, given = problem(loss, seed)
        low, fixed = pairs.low, {"weights": given["weights"], "upper": given["upper"]}
        mds = PatternSearchMDS(dims, loss=loss, bad_moves=False, radius_tol=0.05, random_state=seed, dtype="float64")
        mds.set_params(max_epochs=3000, init="random", n_jobs=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DissimilarityWarning)
            try:
                mds.fit(low, **fixed)
            except InputError:  # gaps and weights of zero leave several components
                continue
            x = random.normal(size=(len(low), dims))
            pairs.scale = mds.result_.check.rms
            compare(certify(low, x, 0.3, loss=loss, n_jobs=1, **given), rule, pairs, x, 0.3)
            assert (np.diff(mds.history_["mse"]) <= 0).all()
            x = mds.raw_embedding_
            found = certify(low, x, mds.radius_, loss=loss, n_jobs=1, **given)
        assert (found.radius, found.points) == (mds.certificate_.radius, mds.certificate_.points)
        assert mds.certificate_.holds
        assert found.gain <= DECIDED * pairs.error(rule, x)  # sums of other coordinates round otherwise
        compare(found, rule, pairs, x, mds.radius_)
        done += 1
    return done


@pytest.mark.parametrize("loss", SOME_LOSSES)
def test_certificates_are_true_and_the_objective_never_rises(loss):
    assert certify_solves(loss, range(6)) > 3


@pytest.mark.wide
@pytest.mark.parametrize("loss", LOSSES)
def test_many_certificates_agree_with_brute_force(loss):
    assert certify_solves(loss, range(100, 300)) > 167  # 1,000 of six losses


def test_only_moves_count_that_pins_and_bounds_allow():
    pairs = random_pairs(12, 0)
    x = np.random.default_rng(1).uniform(0, 1, (12, 2))
    pinned = np.where(np.arange(12)[:, None] < 5, x, np.nan)
    found = certify(pairs.low, x, 0.4, pinned=pinned, bounds=(0, 1), dtype="float64")
    places = x[:, None] + 0.4 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    allowed = ((places >= 0) & (places <= 1)).all(axis=2) & np.isnan(pinned)[:, :1]
    compare(found, PairRule(), pairs, x, 0.4, allowed)
    with pytest.raises(InputError, match="the map is not where pinned and bounds say"):
        certify(pairs.low, x, 0.4, bounds=(0.5, 1))


def test_the_usual_radius_is_that_of_a_solve_without_noise():
    pairs = random_pairs(12, 2)
    found = certify(pairs.low, np.zeros((12, 1)), dtype="float64")
    assert found.radius == pytest.approx(2e-4 * pairs.scale)


def test_fits_with_bad_moves_have_no_certificate():
    assert PatternSearchMDS(random_state=0).fit(random_pairs(9, 3).low).certificate_ is None


def run(*arguments, code=0):
    ended = CliRunner().invoke(main, list(map(str, arguments)))
    assert ended.exit_code == code, ended.output + repr(ended.exception)
    return ended.output


def test_the_command_certifies_what_a_solve_reached_and_judges_other_maps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    points = np.random.default_rng(4).normal(size=(30, 3))
    matrix = squareform(pdist(points)).astype("float32")
    np.save("t.npy", matrix)
    np.save("pins.npy", np.where(np.arange(30)[:, None] < 4, points[:, :2], np.nan))
    run("fit", "t.npy", "m.zarr", "--monotone", "--pinned", "pins.npy", "--radius-tol", 0.01, "-q")
    stored = read_result("m.zarr")
    assert stored.attributes["certificate"]["points"] == 26
    told = run("quality", "m.zarr", "--certify")
    assert f"No move of {stored.attributes['radius']:.4g} along an axis lowers the error (26 points checked)." in told
    as_json = json.loads(run("quality", "m.zarr", "--certify", "--json"))
    assert as_json["certificate"] == stored.attributes["certificate"]

    np.save("other.npy", points[:, :2])
    told = run("quality", "other.npy", "--matrix", "t.npy", "--certify", "--radius", 0.1)
    found = certify(matrix, points[:, :2], 0.1)
    assert found.describe() in told
    assert f"lower the error at {found.improvable} of 30 points, the best one by" in told
    assert "give both" in run("quality", "m.zarr", "--radius", 1, code=2)


def test_a_map_with_a_transformation_is_not_certified():
    matrix = ArrayRows(random_pairs(9, 5).low)
    with pytest.raises(InputError, match="but this map was made with a transformation"):
        certificate_of(matrix, np.zeros((9, 2)), InProcessExecutor(1), rule=PairRule(transformation="interval"))
