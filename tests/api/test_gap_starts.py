"""Large matrices with gaps: a sample is mapped first; exact data are recovered, and all ways give the same bits."""

import warnings

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from psmds_dist import DissimilarityWarning, InputError, PatternSearchMDS
from psmds_dist.api import sample
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import BudgetError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor


def fit(matrix, **parameters):
    given = {
        name: parameters.pop(name) for name in ("weights", "init") if not isinstance(parameters.get(name, ""), str)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)  # gaps are told
        return PatternSearchMDS(random_state=0, **parameters).fit(matrix, **given)


def at_random(n, share, random):
    missing = np.triu(random.random((n, n)) < share, 1)
    return missing | missing.T


def in_two_batches(n, bridges, random):
    """Only so many points of each half know such of the other."""
    batch = np.repeat([0, 1], [n // 2, n - n // 2])
    some = np.concatenate([random.choice(np.flatnonzero(batch == k), bridges, replace=False) for k in (0, 1)])
    missing = batch[:, None] != batch
    missing[np.ix_(some, some)] = False
    return missing


def with_common_points(n, common, random):
    """Only so many points are in both halves."""
    batch = np.repeat([0, 1], [n // 2, n - n // 2])
    some = random.choice(n, common, replace=False)
    missing = batch[:, None] != batch
    missing[some] = missing[:, some] = False
    return missing


def planar(n, gaps, amount, seed):
    """Points of a plane, their distances, and which of these are missing."""
    random = np.random.default_rng(seed)
    points = random.random((n, 2))
    missing = gaps(n, amount, random)
    return points, squareform(pdist(points)).astype(np.float32), missing


GAPS = [(at_random, 0.3), (at_random, 0.6), (in_two_batches, 5), (in_two_batches, 3), (with_common_points, 5)]


def recovered(n, gaps, amount, seed=0):
    points, t, missing = planar(n, gaps, amount, seed)
    mds = fit(np.where(missing, np.nan, t))
    assert procrustes(points, mds.embedding_)[2] < 1e-6  # the square of what coordinates differ by
    return mds


@pytest.mark.parametrize(
    ("gaps", "amount"), [GAPS[2], *(pytest.param(*pair, marks=pytest.mark.wide) for pair in (*GAPS[:2], *GAPS[3:]))]
)
def test_a_plane_is_recovered(gaps, amount):
    recovered(400, gaps, amount)


@pytest.mark.wide
@pytest.mark.parametrize(("gaps", "amount"), GAPS)
def test_a_large_plane_is_recovered(gaps, amount):
    assert recovered(5000, gaps, amount).result_.start == "sample"


@pytest.mark.parametrize(
    "n", [150, pytest.param(400, marks=pytest.mark.wide), pytest.param(5000, marks=pytest.mark.wide)]
)
def test_weight_zero_and_missing_give_the_same_bits(n):
    points, _, missing = planar(n, at_random, 0.3, seed=1)
    t = squareform(pdist(np.column_stack([points, 0.1 * np.sin(9 * points)])))
    holes = fit(np.where(missing, np.nan, t))
    zeros = fit(np.where(missing, 7.0, t), weights=np.where(missing, 0.0, 1.0))
    np.testing.assert_array_equal(zeros.embedding_, holes.embedding_)
    assert zeros.result_.start == holes.result_.start


# --- the start from a sample, of 200 points here ---


@pytest.fixture
def small(monkeypatch):
    """A sample that is taken of some hundred points."""
    from psmds_dist.api import init

    for module, name, value in (
        (sample, "SMALL_POINTS", 100),
        (init, "SMALL_POINTS", 100),
        (sample, "SAMPLE", 80),
        (sample, "LOOKED_AT", 60),
        (sample, "LINKING", 10),
    ):
        monkeypatch.setattr(module, name, value)


def started(t, executor=None, **rule):
    config = SolverConfig(rule=PairRule(gaps=True, **rule))
    return sample.start(ArrayRows(t, "float64"), config, executor or InProcessExecutor(1), 2**28)


@pytest.mark.parametrize(("gaps", "amount"), [GAPS[1], GAPS[2], GAPS[4]])
def test_all_points_are_placed_against_the_sample(small, gaps, amount):
    points, t, missing = planar(240, gaps, amount, seed=2)
    begin = started(np.where(missing, np.nan, t))
    assert procrustes(points, begin.x)[2] < 1e-6
    again = started(np.where(missing, np.nan, t), InProcessExecutor(2))
    np.testing.assert_array_equal(again.x, begin.x)


def test_points_that_know_too_few_of_the_sample_get_some_place(small):
    points, t, missing = planar(240, at_random, 0.0, seed=3)
    missing[7] = missing[:, 7] = True
    missing[7, 8] = missing[8, 7] = False
    begin = started(np.where(missing, np.nan, t))
    others = np.arange(240) != 7
    assert np.isfinite(begin.x).all()
    assert procrustes(points[others], begin.x[others])[2] < 1e-6


def test_a_sample_that_tells_little_is_refused(small):
    _, t, missing = planar(240, at_random, 0.97, seed=4)
    with pytest.raises(InputError, match="too few pairs are known for a map of a sample"):
        started(np.where(missing, np.nan, t))
    noise = squareform(np.random.default_rng(5).random(240 * 239 // 2))
    with pytest.raises(InputError, match="a map of a sample of the points has a stress of"):
        started(np.where(at_random(240, 0.3, np.random.default_rng(6)), np.nan, noise))
    with pytest.raises(BudgetError, match="a start from 80 of 240 points needs"):
        sample.start(ArrayRows(t), SolverConfig(rule=PairRule(gaps=True)), InProcessExecutor(1), 10_000)


def test_few_points_are_no_matter_of_a_sample():
    with pytest.raises(InputError, match="init='sample' is for more than 2000 points"):
        started(planar(50, at_random, 0.0, 0)[1])
