"""Refinement through the panel, and how a polish begins."""

import math

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import MatrixRows
from scipy.spatial.distance import cdist, pdist, squareform

from landmarks import kernels
from landmarks.solver.placement import Place, PlacementModel, place
from landmarks.solver.refine import (
    FIRST_RADIUS,
    MAX_FIRST_RADIUS,
    SETTLED,
    Pull,
    apply_moves,
    panel_pass,
    polish_config,
    polish_radius,
    refine_panel,
)
from landmarks.solver.warm import warm_up_landmarks
from psmds_dist.core.stress import canonical
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver.tasks import CachedRows

N, S = 300, 30


class Scene:
    """Noisy dissimilarities, with landmarks that stand a little wrong."""

    def __init__(self, dims=2, noise=0.1, off=0.1, dtype="float32", seed=0):
        random = np.random.default_rng(seed)
        self.true = random.normal(size=(N, dims))
        t = squareform(pdist(self.true) * random.uniform(1 - noise, 1 + noise, N * (N - 1) // 2))
        self.t = t.astype(dtype)
        self.landmarks = random.permutation(N)[:S]
        self.panel = np.ascontiguousarray(self.t[:, self.landmarks])
        self.among = np.ascontiguousarray(self.panel[self.landmarks])
        self.scale = np.sqrt((self.among.astype(float) ** 2).sum() / (S * (S - 1)))
        self.frame = PlacementModel.of(self.true[self.landmarks] + random.normal(scale=off, size=(S, dims)), self.scale)
        self.placement = place(self.panel, np.arange(N), self.frame)
        self.placement[0][self.landmarks] = self.frame.y.T
        self.own = np.full(N, -1)
        self.own[self.landmarks] = np.arange(S)
        others = np.setdiff1d(np.arange(N), self.landmarks)
        self.pairs = others[:100], others[100:]

    def judge(self, x):
        a, b = self.pairs
        t = self.t[np.ix_(a, b)].astype(float)
        return np.sqrt(((t - cdist(x[a], x[b])) ** 2).sum() / (t**2).sum())

    def held(self, budget=10**7, **more):
        return CachedRows(MatrixRows(self.panel, **more), budget)

    def refined(self, executor=None, **more):
        return refine_panel(
            executor or InProcessExecutor(), self.held(**more), self.frame, self.among, self.landmarks,
            tuple(column.copy() for column in self.placement), self.judge,
        )  # fmt: skip


class Scattered:
    """An executor that hands out blocks in groups, in any order."""

    def __init__(self, group, seed):
        self.group, self.random = group, np.random.default_rng(seed)

    def map(self, work, blocks, *, group=None):
        blocks = self.random.permutation(list(blocks)).tolist()
        for k in range(0, len(blocks), self.group):
            yield (part := blocks[k : k + self.group]), work(part)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pass_tells_the_gain_of_every_move_of_a_landmark(dims, dtype):
    scene = Scene(dims, dtype=dtype)
    radius = 0.05
    found = panel_pass(InProcessExecutor(), Pull(Place(scene.held(), scene.frame), scene.own, radius))
    x, y = found.placement[0], scene.frame.y.T
    t = scene.panel.astype(float)
    assert_array_equal(x[scene.landmarks], y)
    residual = (t - cdist(x, y)) ** 2
    assert_allclose(found.errors, residual.sum(axis=0), rtol=1e-4 if dtype == "float32" else 1e-10)
    for axis in range(dims):
        for column, step in ((2 * axis, radius), (2 * axis + 1, -radius)):
            other = y.copy()
            other[:, axis] += step
            after = (t - cdist(x, other)) ** 2
            own = (np.arange(N)[:, None] == scene.landmarks[None]) * (after - residual)  # the point itself moves along
            wanted = (after - residual - own).sum(axis=0)
            assert_allclose(found.gains[:, column], wanted, atol=2e-3 if dtype == "float32" else 1e-9)


def test_landmarks_take_their_best_move_if_it_helps():
    frame = PlacementModel.of(np.random.default_rng(0).normal(size=(4, 2)), 1.0)
    gains = np.array([[-1.0, 2, -3, 4], [0, 1, 2, 3], [5, -1, 1, 1], [-2, 0, 0, -4]])
    after = apply_moves(frame, gains, 0.5)
    assert_allclose(after.y - frame.y, [[0, 0, -0.5, 0], [0.5, 0, 0, -0.5]], atol=1e-15)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_misplaced_landmarks_are_mended(dims):
    scene = Scene(dims, noise=0.02, off=0.3)
    frame, placement, passes = scene.refined()
    assert passes > 2
    assert scene.judge(placement[0]) < 0.8 * scene.judge(scene.placement[0])
    before = squareform(pdist(scene.frame.y.T)) - squareform(pdist(scene.true[scene.landmarks]))
    after = squareform(pdist(frame.y.T)) - squareform(pdist(scene.true[scene.landmarks]))
    assert (after**2).sum() < 0.7 * (before**2).sum()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("noise", "off"), [(0.9, 0.0), (0.3, 0.0), (0.1, 0.3)])
def test_refinement_never_ends_with_a_worse_map_and_new_points_go_where_the_old_ones_are(noise, off, seed):
    scene = Scene(noise=noise, off=off, seed=seed)
    frame, placement, _ = scene.refined()
    x, errors, squares, known = placement
    assert scene.judge(x) <= scene.judge(scene.placement[0])
    again = place(scene.panel, np.arange(N), frame)
    others = np.setdiff1d(np.arange(N), scene.landmarks)
    assert_array_equal(again[0][others], x[others])
    assert_array_equal(x[scene.landmarks], frame.y.T)
    full = scene.panel.astype(float)
    assert_allclose(errors[others], ((full - cdist(x, frame.y.T)) ** 2).sum(axis=1)[others], rtol=1e-4)
    assert_allclose(squares, (full**2).sum(axis=1))
    assert_array_equal(known, S)


def test_a_refinement_that_the_judge_dislikes_changes_nothing():
    scene = Scene()
    calls = []
    scene.judge = lambda x: calls.append(1) or float(len(calls))
    frame, placement, passes = scene.refined()
    assert frame is scene.frame
    assert passes == 3
    for kept, before in zip(placement, scene.placement, strict=True):
        assert_array_equal(kept, before)


@pytest.mark.parametrize("group", [1, 5, 100])
def test_the_order_of_blocks_changes_no_bit(group):
    scene = Scene()
    wanted = scene.refined()
    got = scene.refined(Scattered(group, group))
    streamed = scene.refined(budget=5000, band=40)
    for other in (got, streamed):
        assert_array_equal(other[0].y, wanted[0].y)
        assert other[2] == wanted[2]
        for column, want in zip(other[1], wanted[1], strict=True):
            assert_array_equal(column, want)


@pytest.mark.parametrize("factor", [1e-15, 1e15])
def test_the_unit_of_the_data_does_not_matter(factor):
    scene, large = Scene(), Scene()
    large.t = large.t * np.float32(factor)
    large.panel, large.among = large.panel * np.float32(factor), large.among * np.float32(factor)
    large.frame = PlacementModel.of(scene.frame.y.T * factor, scene.scale * factor)
    large.placement = place(large.panel, np.arange(N), large.frame)
    large.placement[0][large.landmarks] = large.frame.y.T
    one, other = scene.refined(), large.refined()
    assert large.judge(other[1][0]) == pytest.approx(scene.judge(one[1][0]), rel=0.02)


def test_missing_dissimilarities_pull_at_nothing():
    scene = Scene()
    gone = np.random.default_rng(0).random(scene.panel.shape) < 0.2
    gone[scene.landmarks] = False
    scene.panel[gone] = np.nan
    scene.placement = place(scene.panel, np.arange(N), scene.frame)
    scene.placement[0][scene.landmarks] = scene.frame.y.T
    frame, placement, _ = scene.refined()
    assert np.isfinite(placement[0]).all()
    assert np.isfinite(frame.y).all()
    assert scene.judge(placement[0]) < scene.judge(scene.placement[0])


def test_how_a_polish_begins_and_ends():
    assert polish_radius(0.02, 1.0) == FIRST_RADIUS * 0.02
    assert polish_radius(3.0, 1.0) == MAX_FIRST_RADIUS
    config = polish_config(3, 7, 0.02, 1.0)
    assert (config.n_components, config.seed) == (3, 7)
    assert config.radius == FIRST_RADIUS * 0.02
    halvings = 0
    radius = config.radius
    while radius > config.radius_tol:
        radius, halvings = radius / 2, halvings + 1
    assert halvings == math.ceil(math.log2(FIRST_RADIUS / SETTLED))
    exact = polish_config(2, 0, 0.0, 1.0)
    assert 0 < exact.radius <= exact.radius_tol


def test_a_scene_is_what_it_says():
    scene = Scene(noise=0, off=0, dtype="float64")
    assert_allclose(pdist(canonical(scene.placement[0])), pdist(scene.true), atol=1e-6)
    assert scene.judge(scene.placement[0]) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_are_compiled_ahead(dtype, monkeypatch):
    compiled, real = set(), kernels._pull_landmarks

    def noting(*arguments):
        compiled.add(tuple(numba.typeof(argument) for argument in arguments))
        real(*arguments)

    monkeypatch.setattr(kernels, "_pull_landmarks", noting)
    warm_up_landmarks(2, dtype)
    ahead = compiled.copy()
    _, _, passes = Scene(dtype=dtype).refined()
    assert passes > 0
    assert compiled == ahead
