"""Optimal scaling in a solve: the same bits however rows are held, and monotone solves."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import MIN_BLOCKS, Layout
from psmds_dist.core.rules import PairRule
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver import optimal
from psmds_dist.solver.optimal import Scaling, fitted_blocks, objective_of
from psmds_dist.solver.schedule import Schedule
from psmds_dist.solver.solve import solve

N = 300
T = np.digitize(pdist(np.random.default_rng(0).random((N, 2))), np.linspace(0.05, 1.2, 30)) + 1.0
SCALE = float(np.sqrt(2 * np.sum(T**2) / (N * (N - 1))))


def solved(*, budget=10**9, threads=2, transformation="ordinal", ties="primary", **given):
    rule = PairRule(transformation=transformation, ties=ties)
    config = SolverConfig(**{"rule": rule, "polish": True, "max_epochs": 20, **given})
    executor, source = InProcessExecutor(threads), ArrayRows(squareform(T).astype(np.float32), "float32")
    schedule = Schedule(config, SCALE, source.layout, source.dtype)
    scaling = Scaling.of(source, config.rule, executor, schedule, budget)
    return solve(source, config, executor, scale=SCALE, budget=budget, scaling=scaling)


@pytest.mark.parametrize(
    ("transformation", "ties"), [("ordinal", "primary"), ("ordinal", "secondary"), ("interval", "")]
)
def test_streamed_rows_and_threads_give_the_same_bits(transformation, ties):
    given = {"transformation": transformation, "ties": ties or "primary", "radius_tol": SCALE / 100}
    wanted = solved(**given)
    for budget, threads in [(10**9, 1), (4 * N * 40, 2), (4 * N * 100, 1)]:
        found = solved(budget=budget, threads=threads, **given)
        np.testing.assert_array_equal(found.embedding, wanted.embedding)
        np.testing.assert_array_equal(found.disparities, wanted.disparities)


def test_disparities_never_fall_and_keep_the_map_from_collapsing():
    found = solved()
    assert (np.diff(found.disparities) >= 0).all()
    assert 0.5 < np.sqrt(np.mean(pdist(found.embedding) ** 2)) / SCALE < 1.5
    assert found.stress.stress1 < 0.1


def test_few_rows_of_a_large_matrix_tell_the_disparities(monkeypatch):
    random, rule = np.random.default_rng(1), PairRule(transformation="ordinal")
    x, executor = random.random((2, N)), InProcessExecutor(1)
    source = ArrayRows(squareform(T).astype(np.float32), "float32")
    schedule = Schedule(SolverConfig(rule=rule), SCALE, source.layout, source.dtype)
    scaling = Scaling.of(source, rule, executor, schedule, 10**9)
    objective = objective_of(source, rule, executor, SCALE, 10**9, scaling)
    exact, sums = objective.fit(x, whole=True)
    assert objective.fit(x)[1].squares == sums.squares  # a small matrix is looked at as a whole
    monkeypatch.setattr(optimal, "FITTED_PAIRS", 1)
    few, estimate = objective.fit(x)
    assert 0 < np.abs(few.table - exact.table).max() < 0.1 * exact.table.max()
    assert estimate.squares == pytest.approx(sums.squares, rel=0.05)
    assert estimate.pairs.sum() == pytest.approx(N * (N - 1))


def test_rows_for_a_fit_are_spread_evenly():
    assert list(fitted_blocks(Layout(500))) == list(range(Layout(500).count))
    large = Layout(100_000)
    blocks = fitted_blocks(large)
    assert MIN_BLOCKS <= len(blocks) < large.count / 50
    assert (blocks[0], blocks[-1]) == (0, large.count - 1)
    assert np.ptp(np.diff(blocks)) <= 1
