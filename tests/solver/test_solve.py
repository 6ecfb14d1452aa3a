import math
import pickle
from functools import cache

import click
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import (
    MatrixRows,
    distances,
    error,
    gains_by_recomputing,
    scale_of,
    search_directions,
    sequential,
    sequential_fast,
)
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import make_swiss_roll
from sklearn.neighbors import kneighbors_graph

from psmds_dist.cli.session import finish_run
from psmds_dist.core.config import RADIUS_TOL, SolverConfig
from psmds_dist.core.layout import Layout
from psmds_dist.core.stress import canonical
from psmds_dist.core.types import ClusterLost, StopReason, WorkerError
from psmds_dist.data import cache as rows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels import jit
from psmds_dist.solver.checkpoint import NO_CHECKPOINT
from psmds_dist.solver.schedule import Schedule
from psmds_dist.solver.solve import solve
from tests.digits import digit_distances


@pytest.fixture(autouse=True)
def _no_rows_held():
    yield
    rows.clear_row_cache()


def embed(t, *, source=None, budget=10**9, threads=None, start=None, on_epoch=None, **config):
    source = source or ArrayRows(t, str(t.dtype))
    return solve(
        source,
        SolverConfig(**config),
        InProcessExecutor(threads),
        scale=scale_of(t),
        budget=budget,
        start=start,
        on_epoch=on_epoch,
    )


@cache
def data(kind, n=60):
    rng = np.random.default_rng(8)
    if kind == "metric":
        t = distances(rng.normal(size=(n, 6)))
    elif kind == "random":
        t = squareform(rng.uniform(0, 1, n * (n - 1) // 2))
    elif kind == "clusters":
        t = distances(rng.normal(size=(n, 4)) + 20 * rng.integers(0, 3, (n, 1)))
    else:
        raise ValueError(kind)
    t.flags.writeable = False
    return t


def rules(n, config, scale):
    return Schedule(config, scale, Layout(n), np.dtype("float32"))


def least_budget(t):
    return 2 * Layout(len(t)).rows * len(t) * t.itemsize


# The monotone guarantee


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["metric", "random", "clusters"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_monotone_never_rises_and_ends_where_no_single_move_helps(kind, dims, seed, dtype):
    t = data(kind).astype(dtype)
    maps = [rules(60, SolverConfig(n_components=dims, seed=seed), scale_of(t)).starting_points().T]
    solution = embed(t, n_components=dims, seed=seed, bad_moves=False, radius_tol=0.01 * scale_of(t), max_epochs=9999)
    assert solution.stop_reason is StopReason.RADIUS
    mse = solution.history["mse"]
    assert (np.diff(mse) <= 0).all()
    assert mse[0] <= error(t, maps[0]) / 60**2
    assert mse[-1] == pytest.approx(error(t, solution.raw_embedding) / 60**2, rel=1e-12)
    assert solution.radius / 2 <= 0.01 * scale_of(t) < solution.radius
    _, gains = gains_by_recomputing(t, solution.raw_embedding, np.arange(60), search_directions(dims, solution.radius))
    assert gains.min() >= -1e-12 * error(t, solution.raw_embedding)


def test_the_certificate_holds_when_axes_were_sampled():
    t = data("random")
    solution = embed(t, n_components=3, bad_moves=False, direction_share=0.3, radius_tol=0.04, max_epochs=9999)
    assert solution.stop_reason is StopReason.RADIUS
    assert (np.diff(solution.history["mse"]) <= 0).all()
    _, gains = gains_by_recomputing(t, solution.raw_embedding, np.arange(60), search_directions(3, solution.radius))
    assert gains.min() >= -1e-12 * error(t, solution.raw_embedding)


# What a solution says


@pytest.mark.parametrize("bad_moves", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stress_is_that_of_the_returned_coordinates(bad_moves, dtype):
    t = data("metric").astype(dtype)
    solution = embed(t, bad_moves=bad_moves, seed=3)
    residual = ((squareform(t.astype(float)) - pdist(solution.embedding)) ** 2).sum()
    stress = solution.stress
    assert stress.raw_stress == pytest.approx(residual, rel=1e-10)
    assert stress.mse == pytest.approx(2 * residual / 60**2, rel=1e-10)
    assert stress.normalized_stress == pytest.approx(
        math.sqrt(residual / (squareform(t.astype(float)) ** 2).sum()), rel=1e-10
    )
    assert stress.stress1 == pytest.approx(math.sqrt(residual / (pdist(solution.embedding) ** 2).sum()), rel=1e-10)
    assert_array_equal(solution.embedding, canonical(solution.raw_embedding))


@pytest.mark.parametrize("bad_moves", [True, False])
def test_history_follows_the_rule_of_the_radius(bad_moves):
    t = data("clusters")
    events = []
    solution = embed(t, bad_moves=bad_moves, radius_tol=0.5, max_epochs=9999, on_epoch=events.append)
    history = solution.history
    assert_array_equal(history["epoch"], np.arange(1, len(history) + 1))
    assert (np.diff(history["seconds"]) >= 0).all()
    assert solution.seconds >= history["seconds"][-1]
    mse, radius = history["mse"], history["radius"]
    for k in range(1, len(history) - 1):
        stalled = mse[k - 1] - mse[k] <= 1e-4 * mse[k]
        last = radius[k] / 2 <= 0.5
        assert radius[k + 1] == (radius[k] / 2 if stalled and not last else radius[k])
    assert solution.radius == radius[-1]
    assert radius[-1] / 2 <= 0.5 < radius[-1]
    assert (history["moved"] == 1).all() if bad_moves else history["moved"][-1] == 0
    assert [tuple(row) for row in history] == [(e.epoch, e.radius, e.mse, e.seconds, e.moved) for e in events]
    assert {e.end_radius for e in events} == {0.5}


def test_default_tolerance_is_a_share_of_the_scale():
    t = data("metric")
    solution = embed(t)
    assert solution.stop_reason is StopReason.RADIUS
    end = rules(len(t), SolverConfig(), scale_of(t)).end_radius(solution.history["mse"][-1])
    assert solution.radius / 2 <= end < solution.radius
    assert end >= RADIUS_TOL * scale_of(t)


def test_the_starting_radius_is_the_given_one_or_found():
    t = data("metric")
    assert embed(t, radius=0.7, max_epochs=1).history["radius"][0] == 0.7
    found = embed(t, max_epochs=1).history["radius"][0]
    assert math.log2(found / scale_of(t)) == pytest.approx(round(math.log2(found / scale_of(t))), abs=1e-12)
    config = SolverConfig()
    start = rules(60, config, scale_of(t)).starting_points().T

    def lowers(radius):
        x = embed(t, start=start, radius=radius, max_epochs=1, bad_moves=True)
        # the map after the epoch, not the better of the two
        return x.stress.mse * 60**2 < error(t, start) * (1 - 1e-9)

    assert lowers(found)
    assert not lowers(2 * found)


# Starts and ends


def test_no_epochs_return_the_start():
    t = data("metric")
    start = np.random.default_rng(1).normal(size=(60, 2))
    solution = embed(t, max_epochs=0, start=start)
    assert solution.stop_reason is StopReason.EPOCHS
    assert_array_equal(solution.raw_embedding, start)
    assert solution.stress.mse == pytest.approx(error(t, start) / 60**2, rel=1e-12)
    assert solution.history.shape == (0,)
    drawn = embed(t, max_epochs=0, seed=5)
    assert_array_equal(drawn.raw_embedding, rules(60, SolverConfig(seed=5), scale_of(t)).starting_points().T)


@pytest.mark.parametrize("start_type", [np.float32, np.float64])
def test_a_given_start_is_where_the_solve_begins_and_stays_as_it_was(start_type):
    t = data("metric")
    start = np.random.default_rng(1).normal(size=(60, 2)).astype(start_type)
    before = start.copy()
    solution = embed(t, start=start, radius=0.5, max_epochs=1, bad_moves=False)
    assert_array_equal(start, before)
    steps = solution.raw_embedding - start
    assert solution.raw_embedding.dtype == np.float64
    assert set(np.round(np.abs(steps), 9).ravel()) == {0.0, 0.5}
    assert (np.count_nonzero(np.round(steps, 9), axis=1) <= 1).all()
    again = embed(t, start=start.astype(float), radius=0.5, max_epochs=1, bad_moves=False)
    assert_array_equal(solution.raw_embedding, again.raw_embedding)


def test_the_better_map_is_returned_when_bad_moves_left_it():
    rng = np.random.default_rng(3)
    good = rng.normal(size=(60, 2))
    t = distances(good)
    start = good + 1e-3 * rng.normal(size=good.shape)
    solution = embed(t, start=start, radius=50.0, max_epochs=1)
    assert_array_equal(solution.raw_embedding, start)
    assert solution.stress.mse == pytest.approx(error(t, start) / 60**2, rel=1e-9)


@pytest.mark.parametrize("yes", [True, np.True_])
def test_a_callback_ends_the_solve(yes):
    solution = embed(data("metric"), on_epoch=lambda event: yes if event.epoch == 4 else None)
    assert solution.stop_reason is StopReason.CALLBACK
    assert len(solution.history) == 4
    same = embed(data("metric"), max_epochs=4)
    assert same.stop_reason is StopReason.EPOCHS
    assert_array_equal(solution.raw_embedding, same.raw_embedding)


@pytest.mark.parametrize("answer", [1, "stop", [0], np.False_])
def test_other_answers_of_a_callback_mean_nothing(answer):
    assert len(embed(data("metric"), max_epochs=3, on_epoch=lambda event: answer).history) == 3


@pytest.mark.parametrize("bad_moves", [True, False])
def test_an_interrupt_in_a_callback_returns_the_best_map(bad_moves):
    def stop(event):
        if event.epoch == 5:
            raise KeyboardInterrupt

    solution = embed(data("metric"), bad_moves=bad_moves, on_epoch=stop)
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert len(solution.history) == 5
    same = embed(data("metric"), bad_moves=bad_moves, max_epochs=5)
    assert_array_equal(solution.raw_embedding, same.raw_embedding)
    assert solution.stress.mse == same.stress.mse


def interrupting(t, when):
    """A source whose reading is interrupted at the given reads."""
    count = iter(range(10**9))

    def before_read(lo, hi):
        if next(count) in when:
            raise KeyboardInterrupt

    return MatrixRows(t, before_read=before_read)


def test_an_interrupt_within_an_epoch_returns_the_map_before_it():
    t = data("metric")
    # streaming: nearly 60 reads an epoch
    solution = embed(t, source=interrupting(t, {400}), budget=least_budget(t), radius=0.5)
    assert solution.stop_reason is StopReason.INTERRUPTED
    epochs = len(solution.history)
    assert epochs == 400 // 60
    assert_array_equal(solution.raw_embedding, embed(t, radius=0.5, max_epochs=epochs).raw_embedding)
    assert solution.stress.mse == pytest.approx(error(t, solution.raw_embedding) / 60**2, rel=1e-12)


def test_a_second_interrupt_leaves_the_figures_unknown_and_keeps_the_map():
    t = data("metric")
    solution = embed(t, source=interrupting(t, {400, 405}), budget=least_budget(t), radius=0.5)
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert math.isnan(solution.stress.mse)
    assert_array_equal(solution.raw_embedding, embed(t, radius=0.5, max_epochs=6).raw_embedding)


def test_an_interrupt_of_the_radius_search_returns_the_start():
    t = data("metric")
    solution = embed(t, source=interrupting(t, {3}), budget=least_budget(t), seed=2)
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert solution.history.shape == (0,)
    assert_array_equal(solution.raw_embedding, rules(60, SolverConfig(seed=2), scale_of(t)).starting_points().T)


def test_errors_of_the_source_are_not_taken_for_an_end():
    def fail(lo, hi):
        raise OSError("disk gone")

    t = data("metric")
    with pytest.raises(OSError, match="disk gone"):
        embed(t, source=MatrixRows(t, before_read=fail))


# The same bits


def same(one, two):
    assert_array_equal(one.raw_embedding, two.raw_embedding)
    assert_array_equal(one.embedding, two.embedding)
    assert one.stress.mse == two.stress.mse
    for column in ("epoch", "radius", "mse", "moved"):
        assert_array_equal(one.history[column], two.history[column])


@pytest.mark.parametrize("bad_moves", [True, False])
@pytest.mark.parametrize(
    ("dtype", "dims", "radius"), [(np.float32, 2, None), (np.float32, 5, 2.0), (np.float64, 2, 2.0)]
)
def test_threads_memory_and_storage_do_not_change_a_bit(bad_moves, dtype, dims, radius, monkeypatch):
    monkeypatch.setattr(jit, "PAIRS_A_THREAD", 1)  # two threads even for a small matrix
    t = data("metric", 201).astype(dtype)
    config = {"bad_moves": bad_moves, "n_components": dims, "radius": radius, "max_epochs": 8, "seed": 4}
    one = embed(t, threads=1, **config)
    same(one, embed(t, threads=2, **config))
    for band, budget in [
        (1, least_budget(t)),
        (1, 2 * t.nbytes),
        (7, t.nbytes // 2),
        (50, least_budget(t)),
        (201, 2 * t.nbytes),
    ]:
        same(one, embed(t, source=MatrixRows(t, band), budget=budget, **config))


def test_a_matrix_with_room_is_read_once_in_a_solve():
    t = data("metric", 201)
    source = MatrixRows(t)
    solution = embed(t, source=source, budget=2 * t.nbytes, max_epochs=20)
    assert len(solution.history) == 20
    assert source.rows_read == 201


def test_seeds_decide_the_map():
    t = data("metric")
    same(embed(t, seed=1), embed(t, seed=1))
    assert not np.array_equal(embed(t, seed=1).embedding, embed(t, seed=2).embedding)


@pytest.mark.parametrize("bad_moves", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_change_of_unit_changes_nothing_else(bad_moves, dtype):
    t = data("metric", 100).astype(dtype)
    one = embed(t, bad_moves=bad_moves, max_epochs=40)
    for factor in (1024, 2.0**-10):
        other = embed(t * dtype(factor), bad_moves=bad_moves, max_epochs=40)
        assert other.raw_embedding.dtype == np.float64
        assert_array_equal(other.raw_embedding, one.raw_embedding * factor)
        assert_array_equal(other.history["radius"], one.history["radius"] * factor)
        assert other.stress.normalized_stress == pytest.approx(one.stress.normalized_stress, rel=1e-12)


@pytest.mark.parametrize("power", [-90, 90])
def test_units_beyond_the_squares_of_float32_work(power):
    t = data("metric", 100).astype(np.float32)
    usual = [embed(t, seed=s).stress.normalized_stress for s in range(3)]
    extreme = [embed(t * np.float32(2.0**power), seed=s).stress.normalized_stress for s in range(3)]
    assert np.mean(extreme) == pytest.approx(np.mean(usual), rel=0.02)


def test_a_far_too_large_radius_finds_back():
    t = data("metric", 60).astype(np.float32)
    found = embed(t, radius=1e14)
    assert found.history["mse"][0] > 1e26
    assert found.stop_reason is StopReason.RADIUS
    assert found.stress.normalized_stress == pytest.approx(embed(t).stress.normalized_stress, rel=0.1)


@pytest.mark.parametrize("bad_moves", [True, False])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_start_of_coincident_points_comes_apart(bad_moves, dims):
    t = data("metric")
    start = np.zeros((60, dims))
    solution = embed(t, start=start, n_components=dims, bad_moves=bad_moves, radius_tol=0.02, max_epochs=2000)
    drawn = [
        embed(t, n_components=dims, bad_moves=bad_moves, radius_tol=0.02, max_epochs=2000, seed=s) for s in range(3)
    ]
    assert np.isfinite(solution.embedding).all()
    assert solution.stress.mse <= 1.3 * max(other.stress.mse for other in drawn)


def test_a_perfect_map_ends_the_solve():
    x = np.array([[i, j] for i in range(4) for j in range(4)], dtype=float)
    start = x.copy()
    start[5, 1] += 1
    solution = embed(distances(x), start=start, radius=1.0, bad_moves=False)
    assert solution.stop_reason is StopReason.PERFECT
    assert len(solution.history) == 1
    assert_array_equal(solution.raw_embedding, x)
    assert solution.history["mse"][0] == 0


# How good the maps are


@pytest.mark.parametrize("bad_moves", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_in_the_plane_are_recovered(bad_moves, dtype):
    x = np.random.default_rng(6).uniform(size=(60, 2))
    t = distances(x).astype(dtype)
    solutions = [embed(t, seed=s, bad_moves=bad_moves, radius_tol=1e-5, max_epochs=5000) for s in range(3)]
    best = min(solutions, key=lambda solution: solution.stress.mse)
    off = np.abs(pdist(best.embedding) - pdist(x))
    assert off.max() <= 1e-3 * scale_of(t)


def test_ten_dimensions_with_half_of_the_axes():
    t = digit_distances("shuffled")[:150, :150].copy()
    start = rules(150, SolverConfig(n_components=10, seed=1), scale_of(t)).starting_points().T
    first = embed(t, n_components=10, direction_share=0.5, seed=1, max_epochs=1, start=start, radius=8.0, moves="axes")
    axes = rules(150, SolverConfig(n_components=10, direction_share=0.5, seed=1), 1.0).sampled_axes(0)
    assert set(np.flatnonzero((first.raw_embedding != start).any(axis=0))) == set(axes)
    half = [embed(t, n_components=10, direction_share=0.5, seed=s).stress.normalized_stress for s in range(3)]
    full = [embed(t, n_components=10, seed=s).stress.normalized_stress for s in range(3)]
    assert np.mean(half) <= 1.05 * np.mean(full)


@pytest.mark.wide  # as what it is compared with
@pytest.mark.parametrize("bad_moves", [True, False])
def test_the_fast_sequential_reference_is_the_plain_one(bad_moves):
    t = data("metric", 24)
    x = np.random.default_rng(0).normal(size=(24, 2))
    settings = {"radius_tol": 0.05, "bad_moves": bad_moves, "max_epochs": 15}
    plain, plain_errors = sequential(t, x, 1.0, **settings)
    fast, fast_errors = sequential_fast(t, x, 1.0, **settings)
    np.testing.assert_allclose(fast, plain, atol=1e-12)
    np.testing.assert_allclose(fast_errors, plain_errors, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.wide
def test_as_good_and_as_quick_as_the_sequential_algorithm(digits):
    t, n = digits, len(digits)
    scale = scale_of(t)
    ours, theirs = [], []
    for seed in range(5):
        solution = embed(t, seed=seed)
        ours.append((len(solution.history), solution.stress.normalized_stress))
        start = rules(n, SolverConfig(seed=seed), scale).starting_points().T
        x, errors = sequential_fast(t, start, solution.history["radius"][0], radius_tol=RADIUS_TOL * scale)
        residual = ((squareform(t.astype(float), checks=False) - pdist(x)) ** 2).sum()
        theirs.append((len(errors), math.sqrt(2 * residual / (t.astype(float) ** 2).sum())))
    (epochs, stress), (their_epochs, their_stress) = np.mean(ours, axis=0), np.mean(theirs, axis=0)
    print("ours", epochs, stress, "sequential", their_epochs, their_stress)
    assert epochs <= 1.4 * their_epochs
    assert stress <= 1.01 * their_stress


@pytest.mark.slow
@pytest.mark.wide
def test_the_geodesic_swiss_roll_unrolls():
    points, _ = make_swiss_roll(3000, random_state=0)
    graph = kneighbors_graph(points, 12, mode="distance")
    t = shortest_path(graph, directed=False).astype(np.float32)
    assert np.isfinite(t).all()
    solutions = [embed(t, seed=seed) for seed in range(5)]
    print(
        "stress",
        [s.stress.normalized_stress for s in solutions],
        "epochs",
        [len(s.history) for s in solutions],
    )
    assert max(s.stress.normalized_stress for s in solutions) <= 0.00513
    assert np.mean([len(s.history) for s in solutions]) <= 100


class Mortal(InProcessExecutor):
    """Ends with an error in the midst of a solve, and with every call from then on."""

    def __init__(self, error):
        super().__init__()
        self.calls, self.error = 0, error

    def map(self, work, blocks, *, group=None):
        self.calls += 1
        if self.calls > 12:
            raise self.error
        return super().map(work, blocks, group=group)


@pytest.mark.parametrize(
    ("error", "reason"), [(ClusterLost("gone."), "cluster_lost"), (WorkerError("killed."), "workers_died")]
)
def test_what_a_cluster_does_to_a_run(digits, error, reason):
    """Only a lost cluster is worth another try with the same settings; work that kills its workers is not."""
    found = solve(ArrayRows(digits), SolverConfig(), Mortal(error), scale=1.0, budget=10**9)
    assert found.stop_reason == reason
    assert 0 < len(found.history) < 12
    assert np.isfinite(found.embedding).all()
    assert np.isnan(found.stress.mse)


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_to_stop_has_its_words(reason):
    """What results hold, what is said of it, and, where the run was cut short by others, what to do."""
    assert StopReason(str(reason)) is reason
    assert pickle.loads(pickle.dumps(reason)) is reason
    assert reason.description
    assert bool(reason.advice) == (reason in (StopReason.EPOCHS, StopReason.LOST, StopReason.FATAL))
    assert reason.ends_all_starts == (reason.resumable or reason is StopReason.CALLBACK)


@pytest.mark.parametrize("reason", StopReason)
def test_the_command_line_can_end_for_every_reason(reason):
    """Without a fault, or with a sentence that ends in what to do, and an exit code of its own."""
    codes = {StopReason.INTERRUPTED: 130, StopReason.LOST: 75, StopReason.FATAL: 1}
    if reason not in codes:
        assert finish_run(reason, "map.zarr", NO_CHECKPOINT) is None
        return
    with pytest.raises(click.ClickException, match=r"rerun the same command with --resume to continue\.$") as caught:
        finish_run(reason, "map.zarr", NO_CHECKPOINT)
    assert caught.value.exit_code == codes[reason]
