"""Guided moves: the kernel against recomputation, and solves against those along all axes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import MatrixRows, distances, error, gains_by_recomputing, scale_of, search_directions

from psmds_dist import PatternSearchMDS
from psmds_dist.core.config import GUIDED_FROM, SolverConfig
from psmds_dist.core.types import InputError, StopReason
from psmds_dist.data import cache as rows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.kernels import guided, jit
from psmds_dist.kernels.moves import WIDE_TILE
from psmds_dist.solver.epoch import Objective, bad_moves_epoch
from psmds_dist.solver.schedule import Schedule, State
from psmds_dist.solver.solve import solve
from psmds_dist.solver.tasks import CachedRows, points_of
from tests.digits import digit_distances


@pytest.fixture(autouse=True)
def _no_rows_held():
    yield
    rows.clear_row_cache()


def embed(t, *, source=None, threads=None, start=None, budget=10**9, **config):
    config = SolverConfig(**{"moves": "guided", **config})
    source = source or ArrayRows(t, str(t.dtype))
    return solve(source, config, InProcessExecutor(threads), scale=scale_of(t), budget=budget, start=start)


# The kernel


def gradient(t, x, i, axes):
    """Half the gradient of the error of row ``i``; coincident points have none."""
    others = np.arange(len(x)) != i
    offset = x[i] - x[others]
    length = np.linalg.norm(offset, axis=1)
    apart = length > 0
    return ((1 - t[i, others][apart] / length[apart])[:, None] * offset[apart]).sum(axis=0)[axes]


def gain(t, x, i, axes, step):
    """Change of the error of row ``i`` under a step, by recomputation."""
    whole = np.zeros((1, x.shape[1]))
    whole[0, axes] = step
    return gains_by_recomputing(t, x, [i], whole)[1][0, 0]


def better_step(t, x, i, axes, radius):
    """The full radius against the gradient, or the bottom of the parabola if that is nearer and better."""
    downhill = -gradient(t, x, i, axes)
    length = np.linalg.norm(downhill)
    first = radius * downhill / length
    curvature = (gain(t, x, i, axes, first) + 2 * length * radius) / radius**2
    if curvature <= 0 or length / curvature >= radius:
        return first
    second = downhill / curvature
    return min(first, second, key=lambda step: gain(t, x, i, axes, step))


@st.composite
def tasks(draw):
    n, dims = draw(st.integers(4, 60)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = 10.0 ** draw(st.integers(-3, 3))
    x = size * rng.normal(size=(n, dims))
    if draw(st.booleans()):  # coincident points
        x[rng.integers(1, n, n // 3)] = x[1]
    t = size * np.abs(rng.normal(2, 1, (n, n)))
    t = (t + t.T) / 2
    np.fill_diagonal(t, 0)
    axes = np.sort(rng.permutation(dims)[: draw(st.integers(1, dims))])
    return t, x, axes, rng.permutation(n)[:8], size * draw(st.sampled_from([4.0, 1.0, 0.1, 2.0**-6]))


@given(tasks(), st.sampled_from([0.0, np.nan, np.inf]))
def test_the_better_of_two_steps_against_the_gradient_with_its_exact_gain(task, diagonal):
    t, x, axes, points, radius = task
    slots = np.arange(points.size)[::-1].copy()
    stored = np.empty((points.size, len(t)))
    stored[slots] = t[points]
    stored[slots, points] = diagonal
    steps, gains, errors = guided.guide(stored, slots, points, np.ascontiguousarray(x.T), radius, axes)
    for k, i in enumerate(points):
        wanted = better_step(t, x, i, axes, radius)
        scale = (t[i] ** 2).sum() + radius**2 * len(t)
        assert np.linalg.norm(steps[k]) <= radius * (1 + 1e-9)
        assert gains[k] == pytest.approx(gain(t, x, i, axes, steps[k]), abs=1e-11 * scale)
        assert gains[k] == pytest.approx(gain(t, x, i, axes, wanted), abs=1e-9 * scale)
        assert errors[k] == pytest.approx(((t[i] - distances(x)[i]) ** 2).sum(), rel=1e-10)


def test_float32_stays_near_float64_over_several_tiles():
    n, dims = 2 * WIDE_TILE + 77, 20
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, dims)).astype(np.float32)
    points = np.array([0, WIDE_TILE - 1, WIDE_TILE, n - 1])
    t = np.abs(rng.normal(6, 1, (points.size, n))).astype(np.float32)
    for radius in (1.0, 0.01):
        results = [
            guided.guide(t, np.arange(4), points, np.ascontiguousarray(x.T.astype(type_)), radius, np.arange(dims))
            for type_ in (np.float32, np.float64)
        ]
        for single, double in zip(*results, strict=True):
            assert_allclose(single, double, rtol=1e-4, atol=1e-6 * np.abs(double).max())
        assert results[0][0].dtype == np.float32


def test_no_gradient_no_step():
    t = 1 - np.eye(5)
    everyone = np.arange(5)
    steps, gains, errors = guided.guide(t, everyone, everyone, np.zeros((3, 5)), 1.0, np.arange(3))
    assert not steps.any()
    assert not gains.any()
    assert_array_equal(errors, 4.0)


# Solves


def test_threads_and_streaming_change_no_bit(monkeypatch):
    monkeypatch.setattr(jit, "PAIRS_A_THREAD", 1)
    t = digit_distances("shuffled")[:150, :150].copy()
    alone = embed(t, n_components=6, threads=1, max_epochs=30)
    block = 4 * t.nbytes // 32
    for how in ({"threads": 2}, {"source": MatrixRows(t, band=3), "budget": block}):
        again = embed(t, n_components=6, max_epochs=30, **how)
        assert_array_equal(again.raw_embedding, alone.raw_embedding)
        assert_array_equal(again.history["mse"], alone.history["mse"])


@pytest.mark.wide
@pytest.mark.slow
def test_workers_change_no_bit(client, tmp_path):
    t = digit_distances("shuffled")[:150, :150].copy()
    settings = {"n_components": 6, "random_state": 0, "max_epochs": 30, "init": "random"}
    alone = PatternSearchMDS(**settings).fit(t)
    spread = PatternSearchMDS(cluster=client, scratch=tmp_path, **settings).fit(t)
    assert DaskExecutor(client).n_workers == 2
    assert_array_equal(spread.embedding_, alone.embedding_)
    assert_array_equal(spread.history_["mse"], alone.history_["mse"])


@pytest.mark.slow
@pytest.mark.parametrize("dims", [10, 20])
def test_a_quarter_of_the_roots_give_no_worse_a_map(dims):
    t = digit_distances("shuffled")[:500, :500].copy()
    runs = {
        moves: [embed(t, n_components=dims, moves=moves, seed=seed, max_epochs=2000) for seed in range(3)]
        for moves in ("axes", "guided")
    }
    stress = {moves: np.median([s.stress.normalized_stress for s in found]) for moves, found in runs.items()}
    epochs = {moves: np.median([len(s.history) for s in found]) for moves, found in runs.items()}
    assert all(s.stop_reason is StopReason.RADIUS for found in runs.values() for s in found)
    assert stress["guided"] <= 1.005 * stress["axes"]
    assert 4 * guided.ROOTS * epochs["guided"] <= (2 * dims + 1) * epochs["axes"]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_an_epoch_steps_along_the_axes_that_were_drawn(share):
    t = distances(np.random.default_rng(7).normal(size=(64, 6)))
    x = np.random.default_rng(0).normal(size=(64, 4))
    objective = Objective(CachedRows(MatrixRows(t), 10 * t.nbytes), InProcessExecutor())
    config = SolverConfig(n_components=4, direction_share=share, moves="guided")
    plan = Schedule(config, 1.0, objective.rows.layout, t.dtype).plan(State(np.ascontiguousarray(x.T), 0.5))
    report = bad_moves_epoch(objective, State(np.ascontiguousarray(x.T), 0.5), plan)
    axes, after = np.array(plan.axes), x.copy()
    assert axes.size == 4 * share
    for blocks in plan.rounds:
        before = after.copy()
        for i in points_of(objective.rows.layout, blocks):
            after[i, axes] += better_step(t, before, i, axes, 0.5)
    assert_allclose(report.x.T, after, atol=1e-8)


def test_exact_points_are_found_again():
    t = distances(np.random.default_rng(1).normal(size=(80, 5)))
    assert embed(t, n_components=5).stress.normalized_stress < 1e-3


@pytest.mark.parametrize("bad_moves", [True, False])
def test_a_start_on_one_spot_or_on_a_line_is_left(bad_moves):
    t = distances(np.random.default_rng(2).normal(size=(60, 4)))
    line = np.outer(np.linspace(-1, 1, 60), np.ones(4))
    for start in (np.zeros((60, 4)), line):
        found = embed(t, n_components=4, start=start, bad_moves=bad_moves, max_epochs=150, radius_tol=0.01)
        assert np.isfinite(found.embedding).all()
        assert found.stress.normalized_stress < 0.1


def test_duplicates_end_together_and_points_alike_apart():
    x = np.repeat(np.random.default_rng(3).normal(size=(20, 4)), 3, axis=0)
    found = embed(distances(x), n_components=4)
    trios = found.embedding.reshape(20, 3, 4)
    assert np.ptp(trios, axis=1).max() < 1e-2 < np.ptp(found.embedding, axis=0).min()
    alike = 1 - np.eye(12)
    found = embed(alike, n_components=11)
    assert found.stress.normalized_stress < 1e-2


def test_two_points():
    t = np.array([[0.0, 3.0], [3.0, 0.0]])
    assert abs(np.ptp(embed(t, n_components=1).embedding)) == pytest.approx(3, rel=1e-3)


def test_a_monotone_solve_falls_and_its_certificate_is_of_all_axes():
    t = distances(np.random.default_rng(4).normal(size=(60, 8)))
    found = embed(t, n_components=4, bad_moves=False, radius_tol=0.02, max_epochs=9999)
    assert found.stop_reason is StopReason.RADIUS
    assert (np.diff(found.history["mse"]) <= 0).all()
    _, gains = gains_by_recomputing(t, found.raw_embedding, np.arange(60), search_directions(4, found.radius))
    assert gains.min() >= -1e-12 * error(t, found.raw_embedding)


# What is asked for


def test_the_number_of_components_decides_when_nobody_said():
    for dims in (1, 2, 3, GUIDED_FROM - 1, GUIDED_FROM, 50):
        assert SolverConfig(n_components=dims).guided == (dims >= GUIDED_FROM)
        assert SolverConfig(n_components=dims, moves="guided").guided
        assert not SolverConfig(n_components=dims, moves="axes").guided
    assert GUIDED_FROM > 3


@pytest.mark.parametrize("moves", ["Guided", None, 3])
def test_other_moves_are_refused_in_a_sentence(moves):
    with pytest.raises(InputError, match=r"moves must be one of 'auto', 'axes', 'guided', not "):
        PatternSearchMDS(moves=moves).fit(1 - np.eye(5))
