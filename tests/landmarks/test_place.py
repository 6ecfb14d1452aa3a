"""Placing points against landmarks that stand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import MatrixRows
from scipy.spatial.distance import cdist

from landmarks.solver.placement import (
    END_SHARE,
    Place,
    PlacementModel,
    fix_landmarks,
    mutual_errors,
    place,
    require_known,
)
from psmds_dist.core.types import InputError
from psmds_dist.solver.tasks import CachedRows

DIMS = [1, 2, 3]


def scene(dims=2, size=40, points=60, noise=0.2, seed=0, dtype="float32", shift=0.0):
    random = np.random.default_rng(seed)
    sites = random.normal(size=(size, dims)) + shift
    true = random.normal(size=(points, dims)) + shift
    rows = cdist(true, sites) * random.uniform(1 - noise, 1 + noise, (points, size))
    scale = np.sqrt((cdist(sites, sites) ** 2).sum() / (size * (size - 1)))
    return rows.astype(dtype), sites, true, scale


def errors_at(rows, sites, x):
    return np.nansum((rows.astype(float) - cdist(x, sites)) ** 2, axis=1)


def placed(rows, frame, **more):
    return place(rows, np.arange(len(rows)), frame, **more)


# --- the frame ---


@pytest.mark.parametrize("dims", DIMS)
def test_a_frame_is_centred_and_knows_the_map_it_came_from(dims):
    _, sites, _, scale = scene(dims, shift=5.0)
    frame = PlacementModel.of(sites, scale)
    assert_allclose(frame.y.mean(axis=1), 0, atol=1e-12)
    assert_allclose(frame.coordinates, sites, atol=1e-12)
    assert_allclose(frame.pull, np.linalg.pinv(frame.y.T), atol=1e-12)
    assert_allclose(frame.offset, (frame.y**2).sum(axis=0))
    assert frame.rank == dims


def test_classical_start_is_the_formula_of_de_silva_and_tenenbaum():
    rows, sites, _, scale = scene(2, dtype="float64")
    squares = cdist(sites, sites) ** 2
    size = len(sites)
    centering = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-0.5 * centering @ squares @ centering)
    values, vectors = values[-2:], vectors[:, -2:]
    landmarks = vectors * np.sqrt(values)  # classical MDS of the landmarks
    pseudo_inverse = vectors / np.sqrt(values)
    wanted = -0.5 * (rows**2 - squares.mean(axis=0)) @ pseudo_inverse
    frame = PlacementModel.of(landmarks, scale, squares.mean(axis=1))
    x = -0.5 * (rows**2 - frame.offset) @ frame.pull.T
    assert_allclose(x, wanted, atol=1e-12)
    least = PlacementModel.of(
        landmarks, scale
    )  # exact landmarks: both offsets differ by a constant, which pull ignores
    assert_allclose(-0.5 * (rows**2 - least.offset) @ least.pull.T, wanted, atol=1e-10)


@pytest.mark.parametrize(("axes", "rank"), [([0], 1), ([1], 1), ([0, 1], 2), ([0, 2], 2), ([0, 1, 2], 3)])
def test_rank_counts_the_dimensions_that_landmarks_span(axes, rank):
    sites = np.zeros((30, 3))
    sites[:, axes] = np.random.default_rng(0).normal(size=(30, len(axes)))
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    frame = PlacementModel.of(sites @ turn, 1.0)
    assert frame.rank == rank
    assert_allclose(frame.pull, np.linalg.pinv(frame.y.T), atol=1e-9)


# --- placing ---


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_points_are_found(dims, dtype):
    rows, sites, true, scale = scene(dims, noise=0, dtype=dtype, shift=3.0)
    frame = PlacementModel.of(sites, scale)
    x, errors, squares, known = placed(rows, frame)
    assert_allclose(frame.in_map(x), true, atol=2e-7 * 3 if dtype == "float32" else 1e-8)
    assert_allclose(errors, errors_at(rows, frame.y.T, x), rtol=1e-4, atol=1e-16)
    assert_allclose(squares, (rows.astype(float) ** 2).sum(axis=1))
    assert_array_equal(known, 40)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("closed_form", ["least squares", "classical"])
def test_noisy_points_end_where_no_small_move_helps(dims, dtype, closed_form):
    rows, sites, _, scale = scene(dims, dtype=dtype)
    classical = (cdist(sites, sites) ** 2).mean(axis=1) if closed_form == "classical" else None
    frame = PlacementModel.of(sites, scale, classical)
    x, errors, _, _ = placed(rows, frame)
    closed = -0.5 * (rows.astype(float) ** 2 - frame.offset) @ frame.pull.T
    after = errors_at(rows, frame.y.T, x)
    assert (after <= errors_at(rows, frame.y.T, closed) * (1 + 1e-6)).all()
    assert_allclose(errors, after, rtol=1e-5)
    radius = 2 * END_SHARE * np.sqrt(after / 40)  # the last radius tried is at most twice the end
    for axis in range(dims):
        for sign in (1, -1):
            other = x.copy()
            other[:, axis] += sign * radius
            assert (errors_at(rows, frame.y.T, other) >= after * (1 - (5e-5 if dtype == "float32" else 1e-12))).all()


def test_a_point_is_placed_by_itself():
    rows, sites, _, scale = scene(2, points=101)
    rows[np.random.default_rng(3).random(rows.shape) < 0.1] = np.nan
    frame = PlacementModel.of(sites, scale)
    whole = placed(rows, frame)
    for k in range(0, 101, 7):
        for part, alone in zip(whole, placed(rows[k : k + 1], frame), strict=True):
            assert_array_equal(part[k], alone[0])


def test_points_with_a_seat_stay_where_the_closed_form_puts_them_and_others_do_not_notice():
    rows, sites, _, scale = scene(2, points=64)
    frame = PlacementModel.of(sites, scale)
    seats = np.array([3, 10, 11, 63])
    panel = MatrixRows(rows)
    x, errors, squares, known = Place(CachedRows(panel, 1 << 20), frame, seated=seats)(range(panel.layout.count))
    free = np.setdiff1d(np.arange(64), seats)
    for part, all_free in zip((x, errors, squares, known), placed(rows, frame), strict=True):
        assert_array_equal(part[free], all_free[free])
    closed = -0.5 * (rows.astype(float) ** 2 - frame.offset) @ frame.pull.T
    assert_allclose(x[seats], closed[seats], atol=1e-9)
    assert_allclose(errors[seats], errors_at(rows, frame.y.T, x)[seats], rtol=1e-5)


def test_missing_dissimilarities_are_left_out():
    rows, sites, true, scale = scene(2, noise=0, dtype="float64")
    frame = PlacementModel.of(sites, scale)
    for k in range(len(rows)):
        rows[k, : k % 38] = np.nan  # down to three known
    x, errors, squares, known = placed(rows, frame)
    assert_allclose(frame.in_map(x), true, atol=1e-6)
    assert_array_equal(known, 40 - np.arange(60) % 38)
    assert_allclose(squares, np.nansum(rows**2, axis=1))
    assert_allclose(errors, 0, atol=1e-12)


def test_too_few_known_landmarks_give_nan_and_a_sentence_by_id():
    rows, sites, _, scale = scene(2)
    rows[7, 2:] = np.nan
    rows[20] = np.nan
    x, errors, _, known = placed(rows, PlacementModel.of(sites, scale))
    assert_array_equal(np.flatnonzero(np.isnan(x).any(axis=1)), [7, 20])
    assert_array_equal(np.flatnonzero(np.isnan(errors)), [7, 20])
    names = [f"sample {k}" for k in range(60)]
    with pytest.raises(
        InputError,
        match=r"point 7 \(id 'sample 7'\) has known dissimilarities to 2 landmarks, but 3 .*\(2 points in all",
    ):
        require_known(known, 2, names)
    with pytest.raises(InputError, match="point 7 has known"):
        require_known(known, 2, None)
    require_known(known[:7], 2, None)


@pytest.mark.parametrize("factor", [2.0**-80, 2.0**-50, 2.0**-30, 2.0**30, 2.0**70])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_unit_of_the_data_does_not_matter(factor, missing):
    rows, sites, _, scale = scene(2)
    rows[np.random.default_rng(1).random(rows.shape) < missing] = np.nan
    here = placed(rows, PlacementModel.of(sites, scale))[0]
    there = placed((rows * factor).astype(np.float32), PlacementModel.of(sites * factor, scale * factor))[0]
    assert_allclose(there / factor, here, atol=5e-3)  # a point ends at END_SHARE of its residual
    if 2.0**-35 < factor < 2.0**35:  # float32 arithmetic in both: powers of two change no digit
        assert_array_equal(there / factor, here)


def test_a_start_is_gone_on_from():
    rows, sites, _, scale = scene(2)
    frame = PlacementModel.of(sites, scale)
    x = placed(rows, frame)[0]
    assert_array_equal(placed(rows, frame, start=x, radius=1e-9)[0], x)
    near = placed(rows, frame, start=x + 0.05, radius=0.05)[0]
    assert_allclose(near, x, atol=0.02)
    assert (near != x + 0.05).any()


def test_blocks_of_a_panel_give_the_points_in_order():
    rows, sites, _, scale = scene(2, points=230)
    frame = PlacementModel.of(sites, scale)
    wanted = placed(rows, frame)
    for budget in (10**6, 3000):  # kept, and streamed
        work = Place(CachedRows(MatrixRows(rows), budget), frame)
        count = work.panel.layout.count
        for got, want in zip(work(range(count)), wanted, strict=True):
            assert_array_equal(got, want)
        some = [4, 1, 17]
        points = np.concatenate([np.arange(*work.panel.layout.bounds(b)) for b in sorted(some)])
        for got, want in zip(work(some), wanted, strict=True):
            assert_array_equal(got, want[points])


def test_landmarks_are_seated_with_their_own_errors():
    rows, sites, _, scale = scene(2)
    frame = PlacementModel.of(sites, scale)
    among = (cdist(sites, sites) * 1.25).astype(np.float32)
    landmarks = np.random.default_rng(0).permutation(60)[:40]
    found = placed(rows, frame)
    kept = [column.copy() for column in found]
    fix_landmarks(found, landmarks, frame, among)
    assert_array_equal(found[0][landmarks], frame.y.T)
    wanted = ((among - cdist(sites, sites)) ** 2).sum(axis=1)
    assert_allclose(found[1][landmarks], wanted, rtol=1e-6)
    assert_allclose(mutual_errors(among, sites), wanted, rtol=1e-6)
    others = np.setdiff1d(np.arange(60), landmarks)
    for column, before in zip(found, kept, strict=True):
        assert_array_equal(column[others], before[others])
