"""Fits whose stress is estimated from a sample of the rows at the end."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, PatternSearchMDS, quality, read_result
from psmds_dist.core.stress import Stress
from tests.cli.commands import run

N, M = 300, 60
T = np.hypot(squareform(pdist(np.random.default_rng(0).random((N, 2)))), 0.3)
np.fill_diagonal(T, 0)
HOW = {"random_state": 3, "dtype": "float64", "effort": "quick"}


@pytest.fixture(scope="module")
def whole():
    return PatternSearchMDS(**HOW).fit(T)


@pytest.fixture(scope="module")
def sampled():
    return PatternSearchMDS(**HOW, sample=M).fit(T)


def test_the_map_is_the_same_and_its_stress_an_estimate(whole, sampled):
    np.testing.assert_array_equal(sampled.embedding_, whole.embedding_)
    assert whole.standard_error_ == 0
    assert 0 < sampled.standard_error_ < 0.1 * whole.normalized_stress_
    assert abs(sampled.normalized_stress_ - whole.normalized_stress_) < 3 * sampled.standard_error_
    rows = np.flatnonzero(~np.isnan(sampled.point_stress_))
    assert rows.size == M
    np.testing.assert_allclose(sampled.point_stress_[rows], whole.point_stress_[rows], rtol=1e-12)


def test_figures_are_those_of_quality_with_the_same_sample(sampled):
    found = quality(T, sampled.embedding_, sample=M, dtype="float64")
    for name in ("normalized_stress", "stress1", "mse", "raw_stress"):
        assert getattr(sampled, f"{name}_") == pytest.approx(getattr(found, name), rel=1e-9)
    low, high = found.intervals["normalized_stress"]
    from scipy.stats import t as student

    assert sampled.standard_error_ == pytest.approx((high - low) / 2 / student.ppf(0.975, M - 1), rel=1e-9)


def test_standard_errors_are_about_the_spread_of_samples(whole):
    t, d = T, squareform(pdist(whole.embedding_))
    sums = np.column_stack([((t - d) ** 2).sum(axis=1), (d**2).sum(axis=1), (t**2).sum(axis=1)])
    draw, found = np.random.default_rng(1), []
    for _ in range(400):
        points = np.sort(draw.permutation(N)[:M])
        found.append(Stress.from_sample(sums[points], points, N))
    spread = np.std([stress.normalized_stress for stress in found])
    assert np.mean([stress.standard_error for stress in found]) == pytest.approx(spread, rel=0.1)
    assert np.mean([stress.raw_stress for stress in found]) == pytest.approx(whole.raw_stress_, rel=0.01)
    assert found[0].measured_rows == M
    assert Stress.from_row_sums(sums).measured_rows == N


def test_weights_and_gaps_may_be():
    gone = np.triu(np.random.default_rng(2).random((N, N)) < 0.2, 1)
    holes, weights = np.where(gone | gone.T, np.nan, T), np.random.default_rng(3).uniform(1, 2, (N, N))
    weights += weights.T
    maps = []
    for sample in (None, M):
        with pytest.warns(match="are missing"):
            maps.append(PatternSearchMDS(**HOW, sample=sample, init="classical").fit(holes, weights=weights))
    whole, sampled = maps
    assert abs(sampled.normalized_stress_ - whole.normalized_stress_) < 4 * sampled.standard_error_
    assert sampled.mse_ == pytest.approx(whole.mse_, rel=0.1)
    every = PatternSearchMDS(**HOW, sample=N).fit(T)
    assert every.standard_error_ == 0


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"sample": 19}, "sample must be None or a whole number of at least 20, not 19"),
        ({"sample": 50.5}, "sample must be None or a whole number"),
        ({"sample": 50, "transformation": "ordinal"}, "sample .* does not go with a transformation"),
    ],
)
def test_bad_samples_get_a_sentence(parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        PatternSearchMDS(**parameters).fit(T)


@pytest.mark.slow
def test_same_figures_on_workers(client, sampled):
    there = PatternSearchMDS(**HOW, sample=M, cluster=client).fit(T)
    assert there.normalized_stress_ == sampled.normalized_stress_
    assert there.standard_error_ == sampled.standard_error_
    np.testing.assert_array_equal(there.point_stress_, sampled.point_stress_)


@pytest.mark.slow
def test_the_command_tells_the_estimate_and_keeps_it(tmp_path, monkeypatch, sampled):
    monkeypatch.chdir(tmp_path)
    np.save("t.npy", T)
    told = run("fit", "t.npy", "map.zarr", "--sample", M, "--dtype", "float64", "--seed", 3, "--plot", "map.png")
    assert re.search(r"normalized stress  0\.\d{6} \+- 0\.\d{6}   sqrt", told)
    assert f"Estimated from {M} of {N} rows, drawn at random; +- is one standard error." in told
    described = run("info", "map.zarr")
    assert re.search(rf"standard_error +0\.\d+\nmeasured_rows +{M}\n", described)
    found = read_result("map.zarr").stress
    assert (found.measured_rows, found.standard_error > 0) == (M, True)
    line = next(line for line in run("quality", "map.zarr", "--sample", M).splitlines() if "normalized" in line)
    assert f"{found.normalized_stress:.6f}" in line
