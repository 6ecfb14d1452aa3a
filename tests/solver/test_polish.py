"""The end game: a local minimum to many digits, however it is reached and whoever works."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import distances, error, scale_of

from psmds_dist import PatternSearchMDS
from psmds_dist.core.config import POLISHED_POINTS, SMALL_POINTS, SolverConfig
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import StopReason
from psmds_dist.data.cache import clear_row_cache, stored
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.planning.memory import RowBuffers
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.polish import FEW_STEPS, MANY_STEPS, polished, short_steps, shortly_polished
from psmds_dist.solver.solve import solve
from psmds_dist.solver.tasks import CachedRows

DIMS = [1, 2, 3, 5]


@pytest.fixture(autouse=True)
def _no_rows_held():
    yield
    clear_row_cache()


def noisy(n=120, seed=0):
    """Distances in 12 dimensions, which no map in a few fits."""
    return distances(np.random.default_rng(seed).random((n, 12)))


def objective_of(t, *, source=None, executor=None, budget=10**9):
    return Objective(CachedRows(source or ArrayRows(t, str(t.dtype)), budget), executor or InProcessExecutor())


def solved(t, *, source=None, executor=None, budget=10**9, start=None, stream=None, **config):
    source = source or ArrayRows(t, str(t.dtype))
    more = {} if stream is None else {"stream": stream}
    return solve(
        source,
        SolverConfig(**config),
        executor or InProcessExecutor(),
        scale=scale_of(t),
        budget=budget,
        start=start,
        **more,
    )


def settled(t, dims):
    """A map near a minimum, ``(L, n)``."""
    return np.ascontiguousarray(solved(t, n_components=dims, polish=False).raw_embedding.T)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("size", [1e-100, 1.0, 1e100])
def test_the_error_falls_to_where_the_gradient_vanishes(dims, size):
    t = noisy(60)
    objective = objective_of(size * t)
    x = size * settled(t, dims)
    before, steep = objective.gradient(x)
    found = polished(objective, x, scale=size * scale_of(t))
    after, flat = objective.gradient(found)
    assert after < before
    assert found.shape == x.shape
    assert np.linalg.norm(flat) < 1e-3 * np.linalg.norm(steep)
    # what a Newton step along the gradient could still gain, for a curvature of 4 n or so
    assert (flat**2).sum() / (8 * len(t)) < 1e-8 * after


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dims", [1, 2, 5])
def test_no_start_is_made_worse(dims, seed):
    t, rng = noisy(40, seed), np.random.default_rng(seed)
    for x in (rng.normal(size=(dims, 40)), np.zeros((dims, 40)), 100 * rng.normal(size=(dims, 40))):
        assert error(t, polished(objective_of(t), x, scale=scale_of(t)).T) <= error(t, x.T) * (1 + 1e-12)


def test_a_map_without_error_stays():
    x = np.array([[0.0, 3.0, 0.0, 3.0], [0.0, 0.0, 4.0, 4.0]])
    assert_array_equal(polished(objective_of(distances(x.T)), x, scale=4.0), x)


def test_the_minimum_stays():
    t = noisy(60)
    once = polished(objective_of(t), settled(t, 2), scale=scale_of(t))
    twice = polished(objective_of(t), once, scale=scale_of(t))
    assert error(t, twice.T) == pytest.approx(error(t, once.T), rel=1e-8)
    assert np.abs(twice - once).max() < 1e-3 * scale_of(t)


@pytest.mark.parametrize("dims", [2, 3])
def test_solves_that_found_the_same_minimum_agree(dims):
    t = noisy(60)
    best = np.ascontiguousarray(polished(objective_of(t), settled(t, dims), scale=scale_of(t)).T)
    rng = np.random.default_rng(0)
    ways = {"n_components": dims, "radius": 0.02 * scale_of(t), "polish": True}
    starts = [best + 0.01 * scale_of(t) * rng.normal(size=best.shape) for _ in range(3)]
    stresses = [solved(t, start=start, **ways).stress.normalized_stress for start in starts]
    assert max(stresses) <= min(stresses) * (1 + 1e-6)


# --- a short one ----------------------------------------------------------------------------------------------


class Passes(Objective):
    """Counts its passes."""

    def gradient(self, x, dtype="float64"):
        self.executor.passes = getattr(self.executor, "passes", 0) + 1
        return super().gradient(x, dtype)


@pytest.mark.parametrize("dims", [1, 2, 10])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_a_short_polish_takes_a_pass_for_each_step_and_two_at_most(dims, size):
    """Also of a map that rounding alone keeps from a minimum: a search along a line found no end there."""
    t = (size * noisy(300)).astype("float32")
    radius = 0.02 * scale_of(t)
    near = solved(t, n_components=dims, polish=False, radius_tol=radius)
    objective = Passes(CachedRows(ArrayRows(t), 10**9), InProcessExecutor())
    x = np.ascontiguousarray(near.raw_embedding.T)
    for _ in range(2):
        objective.executor.passes = 0
        found = shortly_polished(objective, x, PairRule(), radius=radius, epochs=3, dtype="float32")
        assert 2 <= objective.executor.passes <= FEW_STEPS + 2
        assert error(t, found.T) <= error(t, x.T) * (1 + 1e-7)  # float32
        x = polished(objective, x, scale=scale_of(t))


def test_a_short_polish_is_longer_after_many_epochs_and_for_disparities():
    assert short_steps(3, PairRule()) == FEW_STEPS
    assert short_steps(240, PairRule()) == 60
    assert short_steps(3, PairRule(transformation="ordinal")) == MANY_STEPS


@pytest.mark.slow
def test_ranks_of_a_curved_sheet_are_fitted_to_the_end():
    """Moves against disparities that are fixed end at 0.04."""
    rng = np.random.default_rng(0)
    flat = rng.random((SMALL_POINTS + 1, 2)) * (4, 1)
    fit = PatternSearchMDS(transformation="ordinal", random_state=0).fit(distances(flat) ** 3)
    assert fit.stress1_ < 0.001


# --- when -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "n", "polishes"),
    [
        ({}, SMALL_POINTS, True),
        ({}, POLISHED_POINTS, True),
        ({}, POLISHED_POINTS + 1, False),
        ({"effort": "best"}, POLISHED_POINTS + 1, True),
        ({"effort": "quick"}, 100, False),
        ({"radius_tol": 0.1}, 100, False),
        ({"bad_moves": False}, 100, False),
        ({"polish": False}, 100, False),
        ({"polish": False, "effort": "best"}, 100, False),
        ({"polish": True, "bad_moves": False, "radius_tol": 0.1, "effort": "quick"}, 10**6, True),
    ],
    ids=str,
)
def test_small_solves_are_polished_unless_their_end_was_given(config, n, polishes):
    assert SolverConfig(**config).polishes(n) is polishes


@pytest.mark.parametrize("bad_moves", [True, False])
def test_a_polished_solve_ends_lower(bad_moves):
    t = noisy(60)
    plain = solved(t, bad_moves=bad_moves, polish=False)
    found = solved(t, bad_moves=bad_moves, polish=True)
    assert found.stress.mse < plain.stress.mse
    assert found.stress.mse == pytest.approx(error(t, found.raw_embedding) / 60**2, rel=1e-6)
    assert_array_equal(found.history["mse"], plain.history["mse"])
    assert found.stop_reason is plain.stop_reason is StopReason.RADIUS


def test_a_solve_that_was_ended_is_not_polished(monkeypatch):
    monkeypatch.setattr("psmds_dist.solver.solve.polished", lambda *_, **__: pytest.fail("polished"))
    assert solved(noisy(40), max_epochs=3, polish=True).stop_reason is StopReason.EPOCHS
    t = noisy(40)
    ended = solve(
        ArrayRows(t), SolverConfig(polish=True), InProcessExecutor(), scale=scale_of(t), budget=10**8,
        on_epoch=lambda event: event.epoch == 2,
    )  # fmt: skip
    assert ended.stop_reason is StopReason.CALLBACK


# --- the same bits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dims", [2, 5])
def test_same_bits_on_one_thread_and_two_and_streamed(tmp_path, dtype, dims):
    t = noisy(800).astype(dtype)
    np.save(tmp_path / "t.npy", t)
    source = open_matrix(tmp_path / "t.npy", str(t.dtype))
    least = stored(source).min_limit
    assert RowBuffers.plan(stored(source), least).cached_blocks == 0
    x = np.random.default_rng(0).normal(size=(dims, 800))
    how = {"scale": scale_of(t), "max_steps": 12}
    expected = polished(objective_of(t), x, **how)
    for threads, budget in [(1, 10**9), (2, 10**9), (2, least), (1, 3 * least)]:
        objective = objective_of(t, source=source, executor=InProcessExecutor(threads), budget=budget)
        assert_array_equal(polished(objective, x, **how), expected)
        objective.executor.close()


@pytest.mark.slow
def test_same_bits_on_two_workers(client, tmp_path):
    t = noisy(300).astype("float32")
    np.save(tmp_path / "t.npy", t)
    x = np.random.default_rng(0).normal(size=(2, 300))
    executor = DaskExecutor(client)
    there = objective_of(t, source=open_matrix(tmp_path / "t.npy", "float32"), executor=executor, budget=10**6)
    how = {"scale": scale_of(t), "max_steps": 12}
    found = polished(there, x, **how)
    executor.close()
    assert_array_equal(found, polished(objective_of(t), x, **how))


@pytest.mark.parametrize("step", [1, 2, 7])
def test_a_solve_cut_in_the_polish_says_so_and_goes_on_to_the_same_bits(tmp_path, monkeypatch, step):
    t = noisy()
    whole = solved(t)
    calls, gradient = [], Objective.gradient

    def interrupted(self, x, *dtype):
        calls.append(x)
        if len(calls) == step:
            raise KeyboardInterrupt
        return gradient(self, x, *dtype)

    kept = DirectoryCheckpoint(tmp_path / "kept", every=1e9)
    kept.attach({"a": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Objective, "gradient", interrupted)
        cut = solved(t, stream=kept.stream("solve"))
    assert cut.stop_reason is StopReason.INTERRUPTED
    assert cut.stop_reason.resumable
    assert cut.stress.mse > whole.stress.mse
    again = solved(t, stream=kept.stream("solve"))
    assert again.stop_reason is StopReason.RADIUS
    assert_array_equal(again.embedding, whole.embedding)
    assert_array_equal(again.history["mse"], whole.history["mse"])
