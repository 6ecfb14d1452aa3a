"""Optimal scaling in a solve: the same bits however rows are held, and monotone solves."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist.core.config import SolverConfig
from psmds_dist.core.rules import PairRule
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver.optimal import Scaling
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
