"""Solves by any rule: recovered maps, a monotone objective, a true certificate, the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import distances
from scipy.optimize import minimize
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist

from psmds_dist.api.init import choose_start
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.errors import InputError
from psmds_dist.core.losses import LOSSES
from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import StopReason
from psmds_dist.data.cache import clear_row_cache, stored
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.paired import ArrayTable, PairedRows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.planning.memory import RowBuffers
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.solver.completion import completed
from psmds_dist.solver.solve import Solution, solve
from tests.pair_costs import SOME_LOSSES, Pairs, random_pairs


@pytest.fixture(autouse=True)
def _no_rows_held():
    yield
    clear_row_cache()


def source_of(pairs: Pairs, rule: PairRule, dtype: str = "float64") -> RowSource:
    """Rows in memory."""
    return ArrayTable(pairs.rows(rule, dtype), dtype)


def solved(pairs: Pairs, config: SolverConfig, source: RowSource | None = None, **how) -> Solution:
    """A solve from a random start."""
    source = source or source_of(pairs, config.rule)
    task = {"executor": InProcessExecutor(1), "budget": 2**28, **how}
    return solve(source, config, scale=pairs.scale, **task)


def searched(pairs: Pairs, config: SolverConfig, init: str = "auto") -> Solution:
    """A solve from a start of the package."""
    source, executor = source_of(pairs, config.rule), InProcessExecutor()
    begin = choose_start(init, source, config, executor, 2**30)
    return solved(pairs, replace(config, radius=begin.radius), start=begin.x)


def planar(n: int, share: float, seed: int = 0) -> tuple[np.ndarray, Pairs]:
    """Points of a plane, and their distances without a share of the pairs."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 2))
    t, lost = distances(points), np.triu(rng.random((n, n)) < share, 1)
    t[lost | lost.T] = np.nan
    return points, Pairs(t, t, np.ones_like(t), float(np.sqrt(np.nanmean(t**2))))


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_exact_data_are_recovered_from_the_pairs_that_are_known(share):
    points, pairs = planar(400, share)
    found = searched(pairs, SolverConfig(rule=PairRule(gaps=True)))
    assert procrustes(points, found.embedding)[2] < 1e-6  # the square of what coordinates differ by
    assert found.stress.normalized_stress < 1e-6


@pytest.mark.parametrize("init", ["random", "classical"])
def test_other_starts_recover_them_as_well(init):
    points, pairs = planar(150, 0.3, seed=1)
    found = searched(pairs, SolverConfig(rule=PairRule(gaps=True)), init)
    assert procrustes(points, found.embedding)[2] < 1e-6


@pytest.mark.parametrize(("loss", "bound"), [("huber", 1.5), pytest.param("absolute", 2, marks=pytest.mark.wide)])
def test_robust_losses_survive_garbage(loss, bound):
    """Normal noise makes least absolute errors vary pi / 2 times as much as least squares."""
    points, pairs = planar(100, 0.0, seed=3)
    rng = np.random.default_rng(4)
    wrong = np.triu(rng.random((100, 100)) < 0.05, 1)
    garbage = np.where(wrong, rng.uniform(0, 10, (100, 100)), 0)
    noise = np.triu(rng.normal(scale=0.02, size=(100, 100)), 1)
    clean = np.abs(pairs.low + noise + noise.T)
    spoilt = np.where(wrong | wrong.T, garbage + garbage.T, clean)
    undisturbed, squared, robust = (
        procrustes(points, searched(replace(pairs, low=t), SolverConfig(rule=rule)).embedding)[2]
        for t, rule in ((clean, PairRule()), (spoilt, PairRule()), (spoilt, PairRule(loss, unit=0.03)))
    )
    assert squared > 50 * undisturbed
    assert robust < bound * undisturbed


def test_distances_within_bounds_cost_nothing():
    _, exact = planar(60, 0.0, seed=5)
    pairs = Pairs(0.8 * exact.low, np.where(exact.low > 2, np.inf, 1.2 * exact.low), exact.weights, exact.scale)
    found = searched(pairs, SolverConfig(rule=PairRule(bounded=True)))
    d = distances(found.embedding)
    assert (d > pairs.low - 1e-3).all()
    assert (d < pairs.high + 1e-3).all()


@pytest.mark.parametrize(
    "rule",
    [
        PairRule(power=-1.0),
        PairRule("huber", weighted=True),
        pytest.param(PairRule("relative", gaps=True), marks=pytest.mark.wide),
        pytest.param(PairRule("sstress"), marks=pytest.mark.wide),
    ],
)
def test_smooth_objectives_end_at_a_local_minimum(rule):
    pairs = random_pairs(24, 6, gaps=0.2 * rule.gaps, zero=0.2)
    found = solved(pairs, SolverConfig(rule=rule))
    assert found.stop_reason is StopReason.RADIUS
    reached = pairs.error(rule, found.embedding)
    weight = pairs.full_weights(rule).sum()
    assert found.stress.error == pytest.approx(reached / (weight * 24 / 23), rel=1e-9)
    better = minimize(lambda x: pairs.error(rule, x.reshape(-1, 2)), found.embedding.ravel(), options={"maxiter": 3})
    assert better.fun > reached * (1 - 1e-6)


def test_stress_counts_known_pairs_by_their_weights():
    rule = PairRule("absolute", weighted=True, gaps=True)
    pairs = random_pairs(20, 7, gaps=0.3, zero=0.2)
    found = solved(pairs, SolverConfig(rule=rule, max_epochs=5))
    w, d, t = pairs.full_weights(rule), distances(found.embedding), np.nan_to_num(pairs.low)
    squares, given = (w * (t - d) ** 2).sum(), (w * t**2).sum()
    assert found.stress.normalized_stress == pytest.approx(np.sqrt(squares / given), rel=1e-10)
    assert found.stress.stress1 == pytest.approx(np.sqrt(squares / (w * d**2).sum()), rel=1e-10)
    assert found.stress.raw_stress == pytest.approx(squares / 2, rel=1e-10)
    assert found.stress.error == pytest.approx((w * np.abs(t - d)).sum() / (w.sum() * 20 / 19), rel=1e-10)
    wanted = np.sqrt((w * (t - d) ** 2).sum(axis=1) / (w * t**2).sum(axis=1))
    np.testing.assert_allclose(found.stress.point_stress, wanted, rtol=1e-10)


def test_weights_of_one_lead_to_the_map_of_the_plain_rule():
    pairs = random_pairs(40, 8)
    pairs.weights = np.ones_like(pairs.weights)
    plain = solved(pairs, SolverConfig())
    weighted = solved(pairs, SolverConfig(rule=PairRule(weighted=True)))
    assert weighted.stress.mse == pytest.approx(plain.stress.mse, rel=1e-8)
    assert weighted.stress.normalized_stress == pytest.approx(plain.stress.normalized_stress, rel=1e-8)


def certify(loss: str, seed: int) -> None:
    """A monotone solve never raises its objective, and no single move of its last radius lowers it."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4)
    rule = PairRule(loss, weighted=bool(kind & 1), bounded=bool(kind & 2), gaps=True)
    n, dims = int(rng.integers(3, 10)), int(rng.integers(1, 4))
    dims = min(dims, n - 1)
    pairs = random_pairs(n, seed, gaps=rng.choice([0.0, 0.3]), zero=0.2, spread=0.4 * rule.bounded)
    if not pairs.full_weights(rule).any():  # the input check refuses it
        return
    config = SolverConfig(n_components=dims, bad_moves=False, radius_tol=0.05, seed=seed, max_epochs=2000, rule=rule)
    found = solved(pairs, config)
    falling = found.history["mse"]
    assert (np.diff(falling) <= 0).all()
    x = found.raw_embedding
    assert found.stress.error == pytest.approx(falling[-1], rel=1e-9, abs=1e-12)
    if found.stop_reason is not StopReason.PERFECT:
        assert found.stop_reason is StopReason.RADIUS
        gains = pairs.gains(rule, x, found.radius)
        assert gains.min() >= -1e-12 * max(1.0, pairs.error(rule, x))


@pytest.mark.parametrize("loss", SOME_LOSSES)
def test_the_objective_never_rises_and_the_certificate_is_true(loss):
    for seed in range(6):
        certify(loss, seed)


@pytest.mark.wide
@pytest.mark.parametrize("loss", LOSSES)
def test_many_certificates_are_true(loss):
    for seed in range(100, 270):
        certify(loss, seed)


def stored_pairs(tmp_path, n: int = 120) -> tuple[Pairs, PairRule, PairedRows]:
    """Dissimilarities with gaps and weights in files."""
    pairs, rule = random_pairs(n, 9, gaps=0.3, zero=0.2), PairRule("huber", weighted=True, gaps=True)
    np.save(tmp_path / "t.npy", pairs.low)
    np.save(tmp_path / "w.npy", pairs.weights)
    return pairs, rule, PairedRows(tuple(open_matrix(tmp_path / name, "float64") for name in ("t.npy", "w.npy")))


@pytest.mark.parametrize("moves", ["axes", "guided"])
def test_same_bits_streamed_and_on_several_threads(tmp_path, moves):
    pairs, rule, source = stored_pairs(tmp_path)
    config = SolverConfig(max_epochs=12, rule=rule, moves=moves)
    wanted = solved(pairs, config)
    few = stored(source).block_bytes * 20  # of 40 blocks
    assert RowBuffers.plan(stored(source), few).cached_blocks < source.layout.count
    for executor, budget in ((InProcessExecutor(2), 2**28), (InProcessExecutor(1), few)):
        found = solved(pairs, config, source, executor=executor, budget=budget)
        assert_array_equal(found.raw_embedding, wanted.raw_embedding)
        assert found.stress.error == wanted.stress.error


@pytest.mark.slow
@pytest.mark.wide  # tests/api/test_pair_rules_on_workers.py has fits by other rules
def test_same_bits_on_two_workers(client, tmp_path):
    pairs, rule, source = stored_pairs(tmp_path)
    config = SolverConfig(max_epochs=12, rule=rule)
    executor = DaskExecutor(client)
    found = solved(pairs, config, source, executor=executor, budget=10**6)
    executor.close()
    assert_array_equal(found.raw_embedding, solved(pairs, config).raw_embedding)


def test_a_solve_that_was_cut_goes_on_to_the_same_bits(tmp_path):
    pairs, rule, source = stored_pairs(tmp_path)
    config = SolverConfig(max_epochs=12, rule=rule)
    whole = solved(pairs, config, source)

    def stop(event):
        if event.epoch == 5:
            raise KeyboardInterrupt

    kept = DirectoryCheckpoint(tmp_path / "kept", every=0)
    cut = solved(pairs, config, source, on_epoch=stop, stream=kept.stream("solve"))
    assert cut.stop_reason is StopReason.INTERRUPTED
    found = solved(pairs, config, source, stream=kept.stream("solve"))
    assert_array_equal(found.raw_embedding, whole.raw_embedding)
    assert_array_equal(found.history["mse"], whole.history["mse"])


def test_the_configuration_names_the_rule_where_it_is_not_the_plain_one():
    assert "rule" not in SolverConfig().as_dict()
    assert SolverConfig(rule=PairRule("log", weighted=True)).as_dict()["rule"]["loss"] == "log"


def test_missing_dissimilarities_are_lengths_of_shortest_paths():
    line = np.array([0.0, 1.0, 1.0, 4.0, 9.0])
    t = np.abs(line[:, None] - line)
    holes = np.full_like(t, np.nan)
    near = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
    holes[near] = t[near]
    np.testing.assert_allclose(completed(holes), t, atol=1e-4)
    holes[4, :4] = holes[:4, 4] = np.nan
    assert completed(holes)[0, 4] == pytest.approx(t[0, 3], abs=1e-4)
    assert completed(t) is t


def test_classical_scaling_of_many_points_needs_every_pair(monkeypatch):
    monkeypatch.setattr("psmds_dist.api.classical.SMALL_POINTS", 50)
    _, pairs = planar(60, 0.3)
    with pytest.raises(InputError, match="init='classical' needs every pair of 60 points"):
        searched(pairs, SolverConfig(rule=PairRule(gaps=True)), "classical")


def test_matrices_side_by_side_are_of_the_same_points(tmp_path):
    pairs, _, source = stored_pairs(tmp_path, 20)
    rows = np.empty((7, 40))
    source.verified().read(3, 10, rows)
    assert_array_equal(rows, np.hstack([pairs.low, pairs.weights])[3:10])
    assert source.content_id == " + ".join(part.content_id for part in source.sources)
    assert not source.is_stale()
    with pytest.raises(InputError, match=r"has shape \(20, 20\), but belongs to one of shape \(15, 15\)"):
        PairedRows((ArrayRows(pdist(np.eye(15))), source.first))
