"""Weights of near pairs, beside a full recomputation in NumPy."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from psmds_dist.core.errors import InputError
from psmds_dist.core.nearness import NOWHERE, SLACK, Nearness
from psmds_dist.core.rules import PairRule
from psmds_dist.kernels.moves import WIDE_TILE
from psmds_dist.kernels.pairs import RuleKernels, kernels_of
from tests.marks import wide
from tests.pair_costs import FORMULAS, UNITS, Pairs, random_pairs


def found_by(rule: PairRule, pairs: Pairs, dtype: str = "float64") -> Nearness:
    """Near pairs as the package finds them."""
    points = np.arange(len(pairs.low))
    return Nearness.of(
        rule, *RuleKernels(rule, pairs.scale).reaches(pairs.rows(rule, dtype), points, points, len(points))
    )


def expected(rule: PairRule, pairs: Pairs) -> np.ndarray:
    """Weight of each pair: its own times that of the two near ends, which are told by sorting."""
    w = pairs.full_weights(rule)
    t = np.where(w > 0, pairs.low, np.inf)
    reach = np.sort(t, axis=1)[:, rule.local_neighbors - 1]
    ends = 0.5 * ((t <= reach[:, None]) & (w > 0)) + 0.5 * ((t <= reach) & (w > 0))
    unit = pairs.scale * (UNITS[rule.loss] if rule.unit is None else rule.unit)
    costs = w * FORMULAS[rule.loss](np.where(w > 0, pairs.low, 1.0), 0.0, unit)
    return w * (1 - rule.local + rule.local * ends * costs.sum() / (ends * costs).sum())


RULES = [
    PairRule(local=0.3, local_neighbors=3),
    PairRule(local=0.9, local_neighbors=1, weighted=True, gaps=True),
    PairRule(local=0.5, local_neighbors=4, power=-1.0, gaps=True),
    PairRule("huber", local=0.5, local_neighbors=2),
]


@pytest.mark.parametrize("dtype", ["float64", *wide("float32")])
@pytest.mark.parametrize("rule", [*RULES[:3], *wide(RULES[3])], ids=str)
def test_near_pairs_weigh_what_sorted_rows_say(rule, dtype):
    pairs = random_pairs(13, 1, gaps=0.3 * rule.gaps, zero=0.3)
    pairs = replace(pairs, low=pairs.low.astype(dtype).astype(float), weights=pairs.weights.astype(dtype).astype(float))
    near, points = found_by(rule, pairs, dtype), np.arange(13)
    x = np.random.default_rng(2).normal(size=(2, 13)).astype(dtype)
    weights = expected(rule, pairs)
    of = kernels_of(rule, pairs.scale, near)
    sums = of.row_sums(pairs.rows(rule, dtype), points, points, x.astype(float))
    assert_allclose(sums[:, 4], weights.sum(axis=1), rtol=1e-6 if dtype == "float32" else 1e-12)
    weighed = replace(pairs, weights=weights)
    plain = replace(rule, local=0.0, power=0.0, weighted=True)
    errors, gains = of.propose(pairs.rows(rule, dtype), points, points, x, 0.2, np.arange(2))
    tolerance = 1e-4 if dtype == "float32" else 1e-10
    assert_allclose(errors, [weighed.costs(plain, x.T, i, x.T[i]) for i in points], rtol=tolerance)
    assert_allclose(gains, weighed.gains(plain, x.T, 0.2), atol=tolerance * np.abs(gains).max())


def test_near_pairs_have_their_share_of_the_objective_in_one_place():
    rule = PairRule(local=0.25, local_neighbors=3)
    pairs, place = random_pairs(20, 3), np.zeros((2, 20))
    points = np.arange(20)
    near = found_by(rule, pairs)
    whole = RuleKernels(rule, pairs.scale).row_sums(pairs.low, points, points, place)[:, 0].sum()
    assert kernels_of(rule, pairs.scale, near).row_sums(pairs.low, points, points, place)[:, 0].sum() == pytest.approx(
        whole
    )
    far = replace(near, near=0.0)
    assert kernels_of(rule, pairs.scale, far).row_sums(pairs.low, points, points, place)[:, 0].sum() == pytest.approx(
        0.75 * whole
    )


def test_rows_longer_than_a_tile_are_searched_to_their_end():
    n = 2 * WIDE_TILE + 50
    t = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype("float32")
    rule, some = PairRule(local=0.5, local_neighbors=3), np.array([0, WIDE_TILE, n - 1])
    reach, costs = RuleKernels(rule, 1.0).reaches(t, some, some, n)
    assert_allclose(reach, [3, 2, 3], rtol=2 * SLACK)
    assert_allclose(costs[:, 1], [1 + 4 + 9, 2 * (1 + 4), 1 + 4 + 9])  # of the second point, four are as near as three
    assert_allclose(costs[:, 0], np.square(t[some].astype(float)).sum(axis=1))


def test_points_that_know_fewer_others_reach_all_of_them():
    t = np.full((4, 4), np.nan)
    t[0, 1] = t[1, 0] = 2.0
    np.fill_diagonal(t, 0)
    rule, points = PairRule(local=0.5, local_neighbors=2, gaps=True), np.arange(4)
    reach, costs = RuleKernels(rule, 1.0).reaches(t, points, points, 4)
    assert np.isinf(reach).all()
    assert_array_equal(costs, [[4, 4], [4, 4], [0, 0], [0, 0]])


def test_the_reach_of_some_points_travels_with_their_rows():
    rule, pairs = RULES[0], random_pairs(12, 5)
    whole, some, x = found_by(rule, pairs), np.array([1, 4, 5, 9]), np.zeros((2, 4))
    kernels = pickle.loads(pickle.dumps(kernels_of(rule, pairs.scale, whole))).of_points(some)
    rows = np.ascontiguousarray(pairs.low[np.ix_(some, some)])
    weights = expected(rule, pairs)[np.ix_(some, some)]
    assert_allclose(kernels.row_sums(rows, np.arange(4), np.arange(4), x)[:, 4], weights.sum(axis=1))
    assert kernels_of(PairRule(), 1.0).of_points(some) is kernels_of(PairRule(), 1.0)
    assert kernels_of(PairRule("log"), 1.0).of_points(some).nearness is NOWHERE


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"local": 1}, "local must be a number of at least 0 and below 1, not 1: with 1, nothing would tell"),
        ({"local": -0.1}, "local must be a number"),
        ({"local": float("nan")}, "local must be a number"),
        ({"local": "half"}, "local must be a number"),
        ({"local": 0.5, "local_neighbors": 0}, "local_neighbors must be at least 1, not 0"),
        ({"local": 0.5, "local_neighbors": 2.5}, "local_neighbors must be a whole number, not 2.5"),
        ({"local": 0.5, "bounded": True}, "local is for dissimilarities that are known"),
        ({"local": 0.5, "transformation": "ordinal"}, "leave out loss, weight_power, weights, local and upper"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(values, sentence):
    with pytest.raises(InputError, match=sentence):
        PairRule(**values)


def test_near_points_in_one_place_have_nothing_to_weigh():
    with pytest.raises(InputError, match="the 2 nearest points of every point are at dissimilarity 0"):
        Nearness.of(PairRule(local=0.5, local_neighbors=2), np.zeros(3), np.array([[1.0, 0.0]] * 3))
