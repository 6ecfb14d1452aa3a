from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import MatrixRows, distances, error, gains_by_recomputing, search_directions

from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.data import cache as rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver.epoch import Objective, apply_moves, bad_moves_epoch, monotone_epoch
from psmds_dist.solver.schedule import EpochPlan, Schedule, State
from psmds_dist.solver.tasks import (
    CachedRows,
    Measure,
    Propose,
    ProposeAllowed,
    ProposeGradientSteps,
    SelectColumns,
    gather,
    points_of,
)


@pytest.fixture(autouse=True)
def _no_rows_held():
    yield
    rows.clear_row_cache()


def problem(n=60, dims=2, seed=0):
    rng = np.random.default_rng(seed)
    t = distances(rng.normal(size=(n, dims + 2)))
    x = rng.normal(size=(n, dims))
    objective = Objective(CachedRows(MatrixRows(t, band=3, token=str(seed)), 10 * t.nbytes), InProcessExecutor())
    return t, x, objective


def simultaneous_rounds(t, x, plan, monotone):
    """Two rounds by full recomputation: all points of a round choose against the same snapshot."""
    x, met = x.copy(), 0.0
    steps = search_directions(x.shape[1], plan.radius)
    layout = Layout(len(t))
    for blocks in plan.rounds:
        points = points_of(layout, blocks)
        errors, gains = gains_by_recomputing(t, x, points, steps)
        met += errors.sum()
        for i, gain in zip(points, gains, strict=True):
            if not monotone or gain.min() < 0:
                x[i] += steps[gain.argmin()]
    return x, met


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_an_epoch_is_two_rounds_of_simultaneous_moves(dims):
    t, x, objective = problem(dims=dims)
    state = State(np.ascontiguousarray(x.T), 0.5)
    plan = Schedule(SolverConfig(n_components=dims), 1.0, objective.rows.layout, t.dtype).plan(state)
    report = bad_moves_epoch(objective, state, plan)
    wanted, met = simultaneous_rounds(t, x, plan, monotone=False)
    assert_array_equal(report.x.T, wanted)
    assert report.error == pytest.approx(met, rel=1e-12)
    assert report.moved == 60
    assert_array_equal(state.x.T, x)


def test_a_monotone_epoch_takes_the_summed_step_when_it_lowers_the_error():
    t, x, objective = problem()
    state = State(np.ascontiguousarray(x.T), 0.25)
    plan = Schedule(SolverConfig(bad_moves=False), 1.0, objective.rows.layout, t.dtype).plan(state)
    report = monotone_epoch(objective, state, plan)
    wanted, _ = simultaneous_rounds(t, x, plan, monotone=True)
    assert_array_equal(report.x.T, wanted)
    assert report.error == pytest.approx(error(t, wanted), rel=1e-12)
    assert report.error < error(t, x)
    assert report.moved == (wanted != x).any(axis=1).sum()


def test_a_monotone_epoch_shrinks_a_step_that_worsens_the_map():
    """All points at one place: each would gain by leaving, but all of them together gain nothing."""
    n = 40
    t = 1 - np.eye(n)
    objective = Objective(CachedRows(MatrixRows(t), 10 * t.nbytes), InProcessExecutor())
    start = np.zeros((1, n))
    plan = EpochPlan(4 / 3, (tuple(range(objective.rows.layout.count)),), (0,), "float64")
    assert error(t, np.full((n, 1), 4 / 3)) == error(t, start.T)
    report = monotone_epoch(objective, State(start, plan.radius), plan)
    assert report.moved == n // 2
    assert report.error == pytest.approx(error(t, report.x.T), rel=1e-12)
    assert report.error < error(t, start.T)


class FakeObjective:
    """An error that is a formula of the coordinates, with proposals from a table."""

    def __init__(self, formula, gain_of):
        self.rows = SimpleNamespace(layout=Layout(4))
        self._formula, self._gain_of = formula, gain_of

    def propose(self, x, plan, blocks):
        gains = np.array([self._gain_of(x[0], i) for i in sorted(blocks)])
        return np.zeros(len(gains), np.int16), gains, np.zeros(len(gains))

    def measure(self, x):
        sums = np.zeros((4, 3))
        sums[0, 0] = self._formula(x[0])
        return sums


def test_moves_that_gain_nothing_are_not_made():
    plan = EpochPlan(1.0, ((0, 2), (1, 3)), (0,), "float64")
    objective = FakeObjective(lambda x: (x[0] - 1) ** 2, lambda x, i: -1.0 if i == 0 else 0.0)
    report = monotone_epoch(objective, State(np.zeros((1, 4)), 1.0), plan)
    assert (report.x.tolist(), report.error, report.moved) == ([[1.0, 0.0, 0.0, 0.0]], 0.0, 1)


def test_a_gain_below_rounding_does_not_hide_the_movers_of_the_other_round():
    plan = EpochPlan(1.0, ((0, 2), (1, 3)), (0,), "float64")

    def formula(x):
        return (x[1] + x[3] - 1) ** 2

    def gain_of(x, i):
        # point 1 looks best after the idle move of point 0, point 3 before it
        return {0: -1e-20, 1: -1.0 if x[0] else -0.5, 2: 1.0, 3: -0.7}[i]

    report = monotone_epoch(FakeObjective(formula, gain_of), State(np.zeros((1, 4)), 1.0), plan)
    assert (report.error, report.moved) == (0.0, 1)
    assert_array_equal(report.x, [[0, 0, 0, 1]])


def test_a_monotone_epoch_stays_where_only_rounding_would_gain():
    plan = EpochPlan(1.0, ((0, 2), (1, 3)), (0,), "float64")
    objective = FakeObjective(lambda x: 5.0, lambda x, i: -1e-20)
    state = State(np.zeros((1, 4)), 1.0)
    report = monotone_epoch(objective, state, plan)
    assert (report.error, report.moved) == (5.0, 0)
    assert report.x is state.x


def test_the_second_round_is_not_asked_again_where_the_first_has_no_movers():
    """Its proposals are from where the epoch began; asking again would read half of the rows for nothing."""
    asked = []

    def gain_of(x, i):
        asked.append(i)
        return {0: 1.0, 1: -0.5, 2: 1.0, 3: -0.7}[i]

    plan = EpochPlan(1.0, ((0, 2), (1, 3)), (0,), "float64")
    objective = FakeObjective(lambda x: 4 if x[1] else (x[3] - 1) ** 2, gain_of)
    report = monotone_epoch(objective, State(np.zeros((1, 4)), 1.0), plan)
    assert (report.error, report.moved) == (0.0, 1)
    assert asked == [0, 2, 1, 3]


def test_moves_go_along_the_axes_that_were_tried():
    plan = EpochPlan(0.5, (), (1, 3), "float64")
    after = apply_moves(np.zeros((4, 5)), np.array([0, 2, 3, 4]), np.array([0, 1, 2, 3], dtype=np.int16), plan)
    wanted = np.zeros((4, 5))
    wanted[1, 0], wanted[1, 2], wanted[3, 3], wanted[3, 4] = 0.5, -0.5, 0.5, -0.5
    assert_array_equal(after, wanted)


def test_guided_moves_are_steps_along_the_axes_that_were_tried():
    plan = EpochPlan(0.5, (), (1, 3), "float64", guided=True)
    after = apply_moves(np.ones((4, 5)), np.array([0, 4]), np.array([[1.0, 2.0], [3.0, 4.0]]), plan)
    wanted = np.ones((4, 5))
    wanted[1, 0], wanted[3, 0], wanted[1, 4], wanted[3, 4] = 2, 3, 4, 5
    assert_array_equal(after, wanted)


def test_proposals_are_of_the_kind_that_plan_and_region_ask_for():
    _, x, objective = problem()
    plan = EpochPlan(0.5, (), (0, 1), "float32")
    confined = replace(objective, region=SimpleNamespace(allows=lambda x, radius, axes: (radius, axes)))
    assert type(objective._proposing(x.T, plan)) is Propose
    assert type(objective._proposing(x.T, replace(plan, guided=True))) is ProposeGradientSteps
    assert type(confined._proposing(x.T, plan)) is ProposeAllowed
    assert confined._proposing(x.T, plan).allowed == (0.5, (0, 1))
    assert objective._proposing(x.T, plan).x.dtype == np.float32


def test_what_a_plain_objective_fits_is_nothing():
    _, x, objective = problem()
    same, error = objective.refitted(x.T)
    assert same is objective is objective.fitted(x.T)
    assert np.isnan(error)
    assert objective.curve.size == 0


def test_what_is_gathered_is_in_the_order_of_points_however_it_arrives():
    t, x, objective = problem(n=99)
    rows, layout = objective.rows, objective.rows.layout
    columns = np.array([5, 1, 98])

    class Scrambled(InProcessExecutor):
        def map(self, work, blocks, *, group=None):
            parts = list(super().map(work, blocks, group=4))
            return iter(parts[::-1])

    blocks = [30, 2, 17, 32, 5, 4, 31]
    points = points_of(layout, blocks)
    assert list(points) == sorted(i for b in blocks for i in range(*layout.bounds(b)))
    (part,) = gather(Scrambled(), SelectColumns(rows, columns), layout, blocks)
    assert_array_equal(part, t[np.ix_(points, columns)])
    (sums,) = gather(Scrambled(), Measure(rows, np.ascontiguousarray(x.T)), layout, blocks)
    assert_allclose(sums[:, 2], (t[points] ** 2).sum(axis=1), rtol=1e-12)
    best, gain, errors = gather(Scrambled(), Propose(rows, np.ascontiguousarray(x.T), 0.5, (0, 1)), layout, blocks)
    wanted_errors, wanted = gains_by_recomputing(t, x, points, search_directions(2, 0.5))
    assert best.dtype == np.int16
    assert_array_equal(best, wanted.argmin(axis=1))
    assert_allclose(gain, wanted.min(axis=1), rtol=1e-9)
    assert_allclose(errors, wanted_errors, rtol=1e-12)
