import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime

from psmds_dist.core.errors import InputError
from psmds_dist.core.losses import LOSSES
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.kernels import loss as kernels
from psmds_dist.kernels.bins import MISSING
from psmds_dist.kernels.pairs import PLAIN_KERNELS, kernels_of
from tests.marks import wide_but_one
from tests.pair_costs import FORMULAS, SOME_LOSSES, Pairs, random_pairs

OTHERS = ["sstress", "relative", "log"]
"""Smooth losses whose gradients are compiled for a broad search only."""


def rule_of(loss: str, kind: str, power: float = 0.0) -> PairRule:
    """A rule by the kind of rows."""
    return PairRule(
        loss, power=0.0 if "bounds" in kind else power, weighted="weights" in kind, bounded="bounds" in kind, gaps=True
    )


KINDS = ("values", "weights", "bounds", "bounds and weights")

problems = st.fixed_dictionaries(
    {
        "n": st.integers(2, 14),
        "dims": st.integers(1, 4),
        "kind": st.sampled_from(KINDS),
        "gaps": st.sampled_from([0.0, 0.3, 0.8]),
        "zero": st.sampled_from([0.0, 0.5]),
        "power": st.sampled_from([0.0, -1.0, -2.0, 1.0]),
        "seed": st.integers(0, 2**20),
    }
)


def of_few_kernels(loss: str, problem: dict) -> dict:
    """A problem whose power is 0 but by one loss: each loss with powers is another kernel to compile."""
    return problem if loss == "squared" else {**problem, "power": 0.0}


def compare_with_oracle(loss: str, dtype: str, *, n, dims, kind, gaps, zero, power, seed):
    rule = rule_of(loss, kind, power)
    pairs = random_pairs(n, seed, gaps=gaps, zero=zero, spread=0.5 * rule.bounded)
    rng = np.random.default_rng(seed + 1)
    x = rng.uniform(-1, 1, (n, dims)).astype(dtype).astype(float)
    radius, points = 0.25, np.arange(n)
    rows = pairs.rows(rule, dtype)
    exact = Pairs(
        *(np.asarray(part, float) for part in (pairs.low.astype(dtype), pairs.high.astype(dtype))),
        pairs.weights,
        pairs.scale,
    )
    lines = np.ascontiguousarray(x.T, dtype=dtype)
    errors, gains = kernels_of(rule, pairs.scale).propose(rows, points, points, lines, radius, np.arange(dims))
    wanted = exact.gains(rule, x, radius)
    wanted_errors = [exact.costs(rule, x, i, x[i]) for i in points]
    single = 3e-4 if rule.divides else 3e-5  # quotients of near pairs lose digits
    tolerance = 1e-10 if dtype == "float64" else single
    size = max(1.0, np.abs(wanted).max(), np.max(wanted_errors))
    assert_allclose(errors, wanted_errors, atol=tolerance * size)
    assert_allclose(gains, wanted, atol=tolerance * size)
    chosen = wanted[points, gains.argmin(axis=1)]
    assert (chosen <= wanted.min(axis=1) + tolerance * size).all()


@pytest.mark.parametrize("loss", SOME_LOSSES)
@settings(max_examples=30, deadline=None)
@given(problem=problems)
def test_errors_gains_and_chosen_moves_are_those_of_a_full_recomputation(loss, problem):
    compare_with_oracle(loss, "float64", **of_few_kernels(loss, problem))


@pytest.mark.parametrize("loss", ["squared", "huber"])
@settings(max_examples=20, deadline=None)
@given(problem=problems)
def test_float32_chooses_the_same_moves_to_rounding(loss, problem):
    compare_with_oracle(loss, "float32", **of_few_kernels(loss, problem))


@pytest.mark.wide
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=300, deadline=None)
@given(problem=problems)
def test_many_moves_are_those_of_a_full_recomputation(loss, dtype, problem):
    if LOSSES[loss].steep and dtype == "float32":  # a solve computes in float64
        return
    compare_with_oracle(loss, dtype, **problem)


def test_tiles_beyond_the_first_count_as_well():
    n = 2 * kernels.WIDE_TILE + 100
    rng = np.random.default_rng(3)
    pairs = random_pairs(n, 4, gaps=0.3, zero=0.2)
    rule, x = PairRule(weighted=True, gaps=True), rng.uniform(-1, 1, (n, 3))
    points = np.array([0, kernels.WIDE_TILE, n - 1])
    lines = np.ascontiguousarray(x.T)
    errors, gains = kernels_of(rule, pairs.scale).propose(pairs.rows(rule), points, points, lines, 0.3, np.arange(3))
    weights = pairs.full_weights(rule)
    for k, i in enumerate(points):
        t, w = np.nan_to_num(pairs.low[i]), weights[i]
        before = w @ (t - np.linalg.norm(x[i] - x, axis=1)) ** 2
        assert errors[k] == pytest.approx(before, rel=1e-12)
        moved = x[i] - [0, 0.3, 0]
        after = w @ (t - np.linalg.norm(moved - x, axis=1)) ** 2
        assert gains[k, 3] == pytest.approx(after - before, rel=1e-9)


@pytest.mark.parametrize("dims", [2, 3])
def test_a_pair_of_weight_zero_has_the_bits_of_a_missing_one(dims):
    n, rule = 50, PairRule(weighted=True, gaps=True)
    pairs, points = random_pairs(n, 5, zero=0.4), np.arange(n)
    holes = Pairs(
        np.where(pairs.weights > 0, pairs.low, np.nan), pairs.high, np.where(pairs.weights > 0, pairs.weights, 7), 1.0
    )
    x = np.random.default_rng(6).normal(size=(dims, n))
    of = kernels_of(rule, 1.0)
    for ours in (of.propose, of.guide):
        results = [ours(p.rows(rule), points, points, x, 0.3, np.arange(dims)) for p in (pairs, holes)]
        for one, other in zip(*results, strict=True):
            assert_array_equal(one, other)
    for measure in (of.row_sums, lambda *a: of.row_gradients(*a)[1]):
        assert_array_equal(*(measure(p.rows(rule), points, points, x) for p in (pairs, holes)))


@pytest.mark.parametrize("dims", [2, 3])
def test_weights_of_one_agree_with_the_plain_kernels(dims):
    n, rule = 40, PairRule(weighted=True)
    pairs, points, axes = random_pairs(n, 7), np.arange(n), np.arange(dims)
    pairs.weights = np.ones((n, n))
    x = np.random.default_rng(8).normal(size=(dims, n))
    ours = kernels_of(rule, 1.0)
    for name in ("propose", "guide"):
        results = getattr(ours, name)(pairs.rows(rule), points, points, x, 0.3, axes)
        for got, wanted in zip(
            results, getattr(PLAIN_KERNELS, name)(pairs.low, points, points, x, 0.3, axes), strict=True
        ):
            assert_allclose(got, wanted, atol=1e-12)
    assert_allclose(
        ours.row_sums(pairs.rows(rule), points, points, x)[:, :3],
        PLAIN_KERNELS.row_sums(pairs.low, points, points, x),
        rtol=1e-12,
    )
    assert kernels_of(PLAIN, 1.0) is PLAIN_KERNELS


@pytest.mark.parametrize("loss", ["squared", "huber", *(pytest.param(name, marks=pytest.mark.wide) for name in OTHERS)])
@pytest.mark.parametrize("kind", ["weights", "bounds"])
def test_gradients_are_those_of_the_cost(loss, kind):
    n, rule = 9, rule_of(loss, kind)
    pairs = random_pairs(n, 9, gaps=0.2, spread=0.3 * rule.bounded)
    x = np.random.default_rng(10).uniform(-1, 1, (n, 3))
    points = np.arange(n)
    errors, halves = kernels_of(rule, pairs.scale).row_gradients(
        pairs.rows(rule), points, points, np.ascontiguousarray(x.T)
    )
    for i in range(n):
        assert errors[i] == pytest.approx(pairs.costs(rule, x, i, x[i]), rel=1e-10, abs=1e-12)
        slope = approx_fprime(x[i], lambda place, i=i: pairs.costs(rule, x, i, place), 1e-7)
        assert_allclose(2 * halves[i], slope, atol=2e-5 * max(1, np.abs(slope).max()))


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_guided_step_gains_what_it_says(loss):
    n, rule = 12, rule_of(loss, "bounds and weights")
    pairs = random_pairs(n, 11, gaps=0.2, spread=0.3)
    x = np.random.default_rng(12).uniform(-1, 1, (n, 5))
    points = np.arange(n)
    steps, gains, errors = kernels_of(rule, pairs.scale).guide(
        pairs.rows(rule), points, points, np.ascontiguousarray(x.T), 0.2, np.arange(5)
    )
    for i in range(n):
        before = pairs.costs(rule, x, i, x[i])
        assert errors[i] == pytest.approx(before, rel=1e-10)
        assert gains[i] == pytest.approx(pairs.costs(rule, x, i, x[i] + steps[i]) - before, abs=1e-10)
        assert 0 < np.linalg.norm(steps[i]) <= 0.2 * (1 + 1e-12)
    assert (gains < 0).mean() > 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_row_sums_hold_the_objective_and_the_weighted_squares(kind):
    n, rule = 10, rule_of("huber", kind, power=-1.0)
    pairs = random_pairs(n, 13, gaps=0.3, spread=0.4 * rule.bounded)
    x = np.random.default_rng(14).uniform(-1, 1, (n, 2))
    points = np.arange(n)
    sums = kernels_of(rule, pairs.scale).row_sums(pairs.rows(rule), points, points, np.ascontiguousarray(x.T))
    w, d = pairs.full_weights(rule), np.linalg.norm(x[:, None] - x, axis=2)
    t = np.clip(d, np.nan_to_num(pairs.low), np.nan_to_num(pairs.high if rule.bounded else pairs.low, posinf=np.inf))
    objective = [pairs.costs(rule, x, i, x[i]) for i in points]
    wanted = np.column_stack(
        [objective, *(np.sum(w * part, axis=1) for part in (d**2, t**2, (t - d) ** 2, np.ones_like(d)))]
    )
    assert_allclose(sums, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dims", wide_but_one(2, 3))
@pytest.mark.parametrize("kind", ["interval", "primary", "secondary"])
def test_rows_of_positions_cost_what_their_disparities_do(kind, dims):
    n, random, ordinal = 2 * kernels.WIDE_TILE + 30, np.random.default_rng(15), kind != "interval"
    points, table = np.array([0, kernels.WIDE_TILE, n - 1]), np.sort(random.uniform(0.2, 3, (2, 9)), axis=0)
    places = random.uniform(0, 8, (3, n))
    places[:, 0], holes = 8, random.random((3, n)) < 0.1
    rule = PairRule(transformation="ordinal" if ordinal else "interval", gaps=True)
    lines = table if kind == "primary" else table[:1]
    low, high = (np.interp(np.floor(places) if ordinal else places, np.arange(9), lines[k]) for k in (0, -1))
    rows = np.where(holes, MISSING, places).astype(np.uint16) if ordinal else np.where(holes, np.nan, places)
    x = random.normal(size=(dims, n))
    known = ~holes & (np.arange(n) != points[:, None])

    def costs(k, place):
        d = np.linalg.norm(place[:, None] - x, axis=0)
        return float(np.sum(((np.clip(d, low[k], high[k]) - d) ** 2 - 0.1 * d**2)[known[k]]))

    of = replace(kernels_of(rule, 2.0), table=lines, share=0.1)
    slots = np.arange(3)
    errors, gains = of.propose(rows, slots, points, x, 0.3, np.arange(dims))
    same, halves = of.row_gradients(rows, slots, points, x)
    sums = of.row_sums(rows, slots, points, x)
    for k, i in enumerate(points):
        here = costs(k, x[:, i])
        moves = [costs(k, x[:, i] + step * axis) - here for axis in np.eye(dims) for step in (0.3, -0.3)]
        assert (errors[k], same[k], sums[k, 0]) == pytest.approx((here,) * 3, rel=1e-10)
        assert_allclose(gains[k], moves, rtol=1e-8)
        slope = approx_fprime(x[:, i], lambda place, k=k: costs(k, place), 1e-6)
        assert_allclose(2 * halves[k], slope, atol=1e-3 * np.abs(slope).max())
        assert sums[k, 4] == known[k].sum()


def test_every_loss_is_compared_with_its_formula():
    assert {getattr(loss, "values", (loss,))[0] for loss in SOME_LOSSES} == set(LOSSES)


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_the_derivatives_of_costs(loss):
    facts = LOSSES[loss]
    kind = facts.kind(0.1)
    for t in (0.3, 1.0, 2.5):
        for d in (0.2, 0.7, 1.3, 4.0):
            assert kind.cost(t, d) == pytest.approx(FORMULAS[loss](t, d, 0.1), rel=1e-12)
            step = 1e-6
            slope = (FORMULAS[loss](t, d + step, 0.1) - FORMULAS[loss](t, d - step, 0.1)) / (2 * step)
            assert kind.slope(t, d) == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"loss": "cubic"}, "loss must be one of 'squared', .*, not 'cubic'"),
        ({"loss": 2}, "loss must be one of"),
        ({"unit": 0.0}, "threshold of a loss must be a positive number, not 0.0"),
        ({"power": float("nan")}, "weight_power must be a number between -4 and 4, not nan"),
        ({"power": -9}, "weight_power must be"),
        ({"power": -1, "bounded": True}, "with bounds, give the weights themselves"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(values, named):
    with pytest.raises(InputError, match=named):
        PairRule(**values)


def test_kernels_of_a_rule_travel():
    ours = replace(kernels_of(PairRule("log", weighted=True), 2.0), table=np.array([[1.0, 2.0]]), share=0.5)
    travelled = pickle.loads(pickle.dumps(ours))
    assert (travelled.rule, travelled.scale, travelled.share) == (ours.rule, 2.0, 0.5)
    np.testing.assert_array_equal(travelled.table, ours.table)
