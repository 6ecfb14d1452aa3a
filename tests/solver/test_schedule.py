import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.spatial.distance import pdist

from landmarks.selection import LandmarkStream
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.core.rng import FIRST_FREE_STREAM, RandomStream, generator
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import InputError, StopReason
from psmds_dist.solver import schedule
from psmds_dist.solver.schedule import EpochReport, Schedule, State

SEEDS = st.integers(0, 2**32 - 1)
X = np.zeros((2, 5))


def rules(scale=1.0, n=5, dtype="float32", **settings):
    return Schedule(SolverConfig(**settings), scale, Layout(n), np.dtype(dtype))


@given(st.integers(3, 20_000), SEEDS, st.integers(0, 10_000))
def test_halves_take_one_of_each_pair_of_blocks(n, seed, epoch):
    layout = Layout(n)
    first, second = schedule.halves(layout, seed, epoch)
    assert sorted(first + second) == list(range(layout.count))
    for half in (first, second):
        pairs = [block // 2 for block in half]
        assert len(set(pairs)) == len(pairs)
    assert abs(len(first) - len(second)) <= 1


def test_halves_are_a_fair_draw_that_seed_and_epoch_decide():
    layout = Layout(20_000)
    draws = {(s, e): schedule.halves(layout, s, e)[0] for s in range(5) for e in range(40)}
    assert len(set(draws.values())) == len(draws)
    assert all(schedule.halves(layout, s, e)[0] == half for (s, e), half in draws.items())
    first = np.zeros(layout.count)
    for half in draws.values():
        first[list(half)] += 1
    # 200 fair coins a block: outside six standard deviations about once in 10^9
    assert np.abs(first - 100).max() < 6 * math.sqrt(50)


def test_streams_of_random_numbers_are_independent_of_each_other():
    streams = [*RandomStream, *LandmarkStream]
    draws = [generator(3, stream, epoch).random(4) for stream in streams for epoch in range(3)]
    assert len({tuple(draw) for draw in draws}) == len(draws)
    again = generator(3, RandomStream.AXES, 2).random(4)
    assert_array_equal(generator(3, RandomStream.AXES, 2).random(4), again)
    assert max(RandomStream) < FIRST_FREE_STREAM <= min(LandmarkStream)
    assert_array_equal(np.random.Generator(np.random.Philox(key=3, counter=[0, 0, 2, 2])).random(4), again)


@pytest.mark.parametrize("dims", [1, 2, 3, 10])
def test_starting_points_have_the_scale_of_the_data(dims):
    x = rules(12.5, 4000, n_components=dims, seed=5).starting_points()
    assert x.shape == (dims, 4000)
    # the mean of squares over 4,000 points has a relative deviation of about 0.01
    assert math.sqrt(np.mean(pdist(x.T) ** 2)) == pytest.approx(12.5, rel=0.03)
    half = np.abs(x).max()
    assert half == pytest.approx(12.5 * math.sqrt(1.5 / dims), rel=0.01)
    assert_array_equal(x, rules(12.5, 4000, n_components=dims, seed=5).starting_points())
    assert not np.array_equal(x, rules(12.5, 4000, n_components=dims, seed=6).starting_points())


@pytest.mark.parametrize(
    ("dims", "share", "count"), [(10, 0.5, 5), (10, 0.41, 5), (3, 0.1, 1), (2, 0.99, 2), (7, 1, 7)]
)
def test_sampled_axes_are_a_share_drawn_for_each_epoch(dims, share, count):
    sampled = rules(n_components=dims, direction_share=share, seed=1).sampled_axes
    draws = [sampled(epoch) for epoch in range(200)]
    assert all(len(axes) == len(set(axes)) == count and list(axes) == sorted(axes) for axes in draws)
    assert {axis for axes in draws for axis in axes} == set(range(dims))
    assert draws == [sampled(epoch) for epoch in range(200)]
    if count < dims:
        assert len(set(draws)) > 1
        share_of_axis = np.bincount(np.concatenate(draws), minlength=dims) / 200
        assert np.abs(share_of_axis - count / dims).max() < 6 * math.sqrt(0.25 / 200)


def step(error, *, was, radius=1.0, epoch=3, moved=5, **config):
    settings = {"eps": 0.01, "radius_tol": 0.25, "max_epochs": 100, **config}
    return rules(**settings).advance(State(X, radius, epoch, was), EpochReport(X + 1, error, moved))


@pytest.mark.parametrize(
    ("error", "was", "radius"),
    [
        (100.0, math.inf, 1.0),  # the first epoch has nothing to compare with
        (100.0, 102.0, 1.0),  # lower by 2 %
        (100.0, 101.0, 0.5),  # by eps exactly
        (100.0, 100.5, 0.5),
        (100.0, 100.0, 0.5),
        (100.0, 50.0, 0.5),  # risen, as bad moves may
        (math.inf, math.inf, 0.5),  # overflowed
    ],
)
def test_the_radius_halves_when_an_epoch_gains_too_little(error, was, radius):
    after, reason = step(error, was=was)
    assert reason is None
    assert (after.radius, after.epoch, after.error) == (radius, 4, error)
    assert_array_equal(after.x, X + 1)


def test_a_solve_ends_when_the_next_radius_would_be_at_the_tolerance():
    after, reason = step(100.0, was=100.0, radius=0.5)
    assert (after.radius, reason) == (0.5, StopReason.RADIUS)
    after, reason = step(100.0, was=100.0, radius=0.5, radius_tol=0.2499)
    assert (after.radius, reason) == (0.25, None)
    after, reason = step(90.0, was=100.0, radius=0.5)
    assert (after.radius, reason) == (0.5, None)


def test_the_default_tolerance_follows_the_scale_of_the_data():
    assert rules(50.0).end_radius() == pytest.approx(0.01)
    state, report = State(X, 0.019, 9, 0.04), EpochReport(X, 0.04, 5)
    assert rules(50.0).advance(state, report)[1] is StopReason.RADIUS
    assert rules(5.0).advance(state, report)[1] is None


def test_noisy_data_end_where_moves_drown_in_the_residual():
    mse = 25.0
    end = rules(10.0, eps=1e-3).end_radius(mse)
    assert end == pytest.approx(math.sqrt(6e-3) * 5)
    report = EpochReport(X, mse * 25, 5)
    for radius, reason in ((2 * end, StopReason.RADIUS), (2.01 * end, None)):
        assert rules(10.0, eps=1e-3).advance(State(X, radius, 9, mse * 25), report)[1] is reason
    assert rules(10.0, eps=1e-3, radius_tol=0.1).end_radius(mse) == 0.1
    assert rules(10.0, eps=1e-3, bad_moves=False).end_radius(mse) == pytest.approx(2e-3)
    assert rules(10.0, eps=0).end_radius(mse) == pytest.approx(2e-3)


def test_a_solve_that_settles_a_start_leaves_the_last_moves_to_a_short_polish():
    mse = 25.0
    usual = math.sqrt(6e-3) * 5
    settling = {"eps": 1e-3, "radius": 2.5}
    assert rules(10.0, n=5000, **settling).end_radius(mse) == pytest.approx(4 * usual)
    ranked = {"rule": PairRule(transformation="ordinal")}  # fitted to maps as the radius halves
    for n, other in [(5001, {}), (2000, {}), (5000, {"radius": 2.6}), (5000, {"polish": False}), (5000, ranked)]:
        assert rules(10.0, n=n, **settling | other).end_radius(mse) == pytest.approx(usual)


def test_means_are_over_the_pairs_that_count():
    # of five points 6 ordered pairs of weight 2 are known, with squares of 9: weighted ones add up to 108
    sums = np.zeros((5, 5))
    sums[:3, 2], sums[:3, 4] = 36, 4
    counting = rules(7.0).counting(sums)
    assert (counting.pairs, counting.rms, counting.scale) == (12 * 5 / 4, 3.0, 7.0)
    assert counting.mse(EpochReport(X, 30.0, 5)) == 2.0
    assert counting.stress(2.0) == pytest.approx(math.sqrt(2.0 * 5 / 4) / 3)
    assert rules().mse(EpochReport(X, 50.0, 5)) == 2.0
    assert rules(7.0).stress(2.0) == pytest.approx(math.sqrt(2.0 * 5 / 4) / 7)
    sums[:, 2] = 0
    assert rules(7.0).counting(sums).stress(2.0) == rules(7.0).stress(2.0)


@pytest.mark.parametrize("mse", [math.inf, math.nan, 1e300])
def test_an_exploded_map_does_not_end_a_solve(mse):
    assert rules().end_radius(mse) <= 0.025
    assert rules().stall_threshold(1e3, mse) == SolverConfig().eps


def test_a_solve_that_begins_near_its_end_halves_the_radius_earlier():
    near = rules(radius=0.5)
    assert near.stall_threshold(0.3, 1.0) == pytest.approx(0.06)
    assert near.stall_threshold(0.6, 4.0) == pytest.approx(0.06)  # a share of the residual, whose square is 4
    assert near.stall_threshold(0.003, 1.0) == near.config.eps
    assert rules(radius=0.5, eps=0.1).stall_threshold(0.3, 1.0) == 0.1
    other = rules(radius=0.5, rule=PairRule("absolute"))  # whose cost is not the square of a residual
    for far in (rules(), rules(radius=0.51), rules(radius=0.5, bad_moves=False), other):
        assert far.stall_threshold(0.3, 1.0) == far.config.eps
    report = EpochReport(X, 25.0, 5)
    for was, radius in ((26.4, 0.15), (26.6, 0.3)):  # gains of 5.6 % and 6.4 %
        assert near.advance(State(X, 0.3, 3, was), report)[0].radius == radius


@pytest.mark.parametrize(("spread", "cost"), [(0.5, 1 / 6), (1.0, 2 / 3)])
def test_what_displaced_points_cost(spread, cost):
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 2))
    moved = x + random.uniform(-spread * 0.01, spread * 0.01, x.shape)
    assert np.square(pdist(moved) - pdist(x)).mean() == pytest.approx(cost * 0.01**2, rel=0.05)


def test_a_monotone_solve_leaves_its_last_radius_only_when_no_point_moved():
    after, reason = step(100.0, was=100.0, radius=0.5, moved=1, bad_moves=False)
    assert (after.radius, reason) == (0.5, None)
    after, reason = step(100.0, was=100.0, radius=0.5, moved=0, bad_moves=False)
    assert (after.radius, reason) == (0.5, StopReason.RADIUS)
    after, reason = step(100.0, was=100.0, radius=1.0, moved=1, bad_moves=False)
    assert (after.radius, reason) == (0.5, None)


def test_a_solve_ends_at_the_last_epoch_and_at_zero_error():
    assert step(90.0, was=100.0, epoch=98)[1] is None
    assert step(90.0, was=100.0, epoch=99)[1] is StopReason.EPOCHS
    assert step(100.0, was=100.0, radius=0.5, epoch=99)[1] is StopReason.RADIUS
    assert step(0.0, was=100.0)[1] is StopReason.PERFECT


@pytest.mark.parametrize("tries", [3, 8])
@pytest.mark.parametrize("power", range(-12, 13))
@pytest.mark.parametrize("nudge", [0.75, 1.0, 1.5])
def test_the_search_finds_the_largest_radius_that_lowers_the_error(power, nudge, tries):
    first, threshold = 3.0, 3.0 * nudge * 2.0**power
    asked = []

    def improves(radius):
        asked.append(radius)
        return radius <= threshold

    found = schedule.search_radius(first, improves, tries)
    candidates = [first * 2.0**k for k in range(-tries, tries + 1)]
    assert found == max([c for c in candidates if c <= threshold], default=candidates[0])
    assert len(asked) == len(set(asked)) <= tries + 1


@pytest.mark.parametrize("bad_moves", [True, False])
def test_arithmetic_is_float64_wherever_float32_would_not_do(bad_moves):
    def arithmetic(radius, scale=10.0, dtype="float32"):
        return rules(scale, dtype=dtype, bad_moves=bad_moves, radius_tol=0.01).arithmetic(radius)

    assert arithmetic(1.0) == "float32"
    assert arithmetic(1.0, dtype="float64") == "float64"
    assert arithmetic(0.0009) == "float64"
    assert arithmetic(0.0201) == "float32"
    assert arithmetic(0.02) == ("float32" if bad_moves else "float64")
    assert arithmetic(1e15, scale=1e15) == "float64"
    assert arithmetic(1e-15, scale=1e-15) == "float64"
    assert arithmetic(1e15) == "float64"


def test_the_certificate_of_a_monotone_solve_is_for_all_axes():
    monotone = rules(n=50, n_components=10, direction_share=0.3, bad_moves=False, radius_tol=0.1)
    x = np.zeros((10, 50))
    assert len(monotone.plan(State(x, 0.21, 4)).axes) == 3
    assert monotone.plan(State(x, 0.2, 4)).axes == tuple(range(10))


def test_a_plan_is_made_of_its_parts():
    plan = rules(n=500, seed=3).plan(State(X, 0.5, 7))
    assert plan.radius == 0.5
    assert plan.rounds == schedule.halves(Layout(500), 3, 7)
    assert plan.axes == (0, 1)
    assert plan.dtype == "float32"


@pytest.mark.parametrize("moves", ["axes", "guided"])
@pytest.mark.parametrize("bad_moves", [True, False])
def test_moves_are_guided_where_that_is_asked_but_for_a_certificate(moves, bad_moves):
    rules_of = rules(n=50, moves=moves, bad_moves=bad_moves, radius_tol=0.1)
    plans = [rules_of.plan(State(X, radius, 4)) for radius in (0.21, 0.2)]
    assert [plan.guided for plan in plans] == [moves == "guided", moves == "guided" and bad_moves]


def test_a_start_is_jittered_by_a_thousandth_of_the_radius():
    given = State(np.ones((2, 5000)), 4.0)
    after = rules(n=5000).jittered(given)
    assert np.std(after.x - given.x) == pytest.approx(0.004, rel=0.05)
    assert (after.radius, after.epoch, after.error) == (given.radius, given.epoch, given.error)


def test_numbers_of_small_types_do_not_overflow():
    config = SolverConfig(n_components=np.int8(100), radius=np.float16(0.1), seed=np.uint8(200))
    plain = SolverConfig(n_components=100, radius=float(np.float16(0.1)), seed=200)
    assert config == plain
    assert {type(value) for value in config.as_dict().values()} <= {int, float, bool, str, type(None)}
    starts = [Schedule(c, 1.0, Layout(120), np.dtype("float32")).starting_points() for c in (config, plain)]
    assert_array_equal(*starts)


@given(st.integers(3, 50_000), SEEDS)
def test_the_sample_is_a_few_whole_blocks(n, seed):
    sampling, layout = rules(n=n, seed=seed), Layout(n)
    chosen = sampling.sample_blocks()
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(range(layout.count))
    assert chosen == sampling.sample_blocks()
    points = sum(hi - lo for lo, hi in map(layout.bounds, chosen))
    assert min(n, 512 - layout.rows) <= points <= 512 + layout.rows
    assert len(rules(n=2336).sample_blocks()) == 8  # of 73 points


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_components": 0},
        {"n_components": 2.0},
        {"n_components": True},
        {"max_epochs": -1},
        {"seed": -1},
        {"seed": 2**128},
        {"eps": -1e-9},
        {"eps": math.nan},
        {"radius": 0.0},
        {"radius": math.inf},
        {"radius_tol": 0},
        {"direction_share": 0},
        {"direction_share": 1.01},
        {"bad_moves": 1},
    ],
)
def test_a_wrong_parameter_is_refused_by_name(wrong):
    name = {"seed": "random_state"}.get(*wrong, *wrong)
    with pytest.raises(InputError, match=rf"^{name} "):
        SolverConfig(**wrong)
