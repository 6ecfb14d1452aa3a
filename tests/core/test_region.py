"""Where points may be: what users describe, which moves are allowed, and how a map is put there."""

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.spatial.distance import pdist
from scipy.spatial.transform import Rotation

from psmds_dist.core.errors import InputError
from psmds_dist.core.region import Region

NAN = float("nan")


def test_nothing_pinned_or_bounded_is_no_region():
    assert Region.of(3, 2) is None
    assert Region.of(3, 2, np.full((3, 2), NAN), (None, np.inf)) is None


@pytest.mark.parametrize("form", [np.asarray, pandas.DataFrame, lambda rows: np.ma.masked_invalid(np.array(rows))])
def test_pinned_coordinates_are_intervals_of_one_number(form):
    region = Region.of(3, 2, form([[1.0, NAN], [NAN, NAN], [0.5, 2.0]]), [(0, None), (None, 9)])
    assert_array_equal(region.low, [[1, 0, 0.5], [-np.inf, -np.inf, 2]])
    assert_array_equal(region.high, [[1, np.inf, 0.5], [9, 9, 2]])
    assert_array_equal(region.movable, [True, True, False])
    assert region.share == pytest.approx(8 / 9)  # one of nine ordered pairs, self pairs among them, is of pinned points
    assert region.reach == 2


def test_moves_are_allowed_that_end_in_the_region():
    region = Region.of(3, 2, [[1.0, NAN], [NAN, NAN], [0.5, 2.0]], [(0, None), (None, 9)])
    x = np.array([[1, 0.25, 0.5], [8.5, 9, 2]])
    allowed = region.allows(x, 0.5, (0, 1))
    assert_array_equal(allowed, [[False, False, True, True], [True, False, False, True], [False] * 4])
    assert_array_equal(region.allows(x, 0.5, (1,)), allowed[:, 2:])


def test_a_map_is_turned_onto_pinned_points():
    random = np.random.default_rng(0)
    true = random.normal(size=(3, 30)) + 1
    turned = Rotation.random(random_state=1).as_matrix() @ true * [[1], [1], [-1]] - 7
    pinned = np.where(np.arange(30) < 8, true, NAN).T
    assert_allclose(Region.of(30, 3, pinned).placed(turned), true, atol=1e-12)


def test_a_map_is_turned_onto_single_coordinates():
    true = np.random.default_rng(1).normal(size=(2, 20)) * [[3], [1]]
    cosine, sine = np.cos(0.5), np.sin(0.5)
    turned = np.array([[cosine, -sine], [sine, cosine]]) @ true
    region = Region.of(20, 2, np.array([np.full(20, NAN), true[1]]).T)
    placed = region.placed(turned)
    assert_array_equal(placed[1], true[1])
    assert_allclose(pdist(placed.T), pdist(true.T), rtol=1e-3)


def test_the_alignment_is_the_best_one():
    """Against a minimiser over the angle of a rotation, with and without reflection, and the shift."""
    random = np.random.default_rng(2)
    x, pins = random.normal(size=(2, 12)), random.normal(size=(2, 5))
    region = Region.of(12, 2, np.vstack([pins.T, np.full((7, 2), NAN)]))

    def misfit(motion, mirror):
        c, s = np.cos(motion[0]), np.sin(motion[0])
        moved = np.array([[c, -s], [s, c]]) @ (x[:, :5] * [[1], [mirror]]) + motion[1:, None]
        return ((moved - pins) ** 2).sum()

    best = min(minimize(misfit, [angle, 0, 0], (mirror,)).fun for angle in (0, 2, 4) for mirror in (1, -1))
    assert ((region._aligned(x)[:, :5] - pins) ** 2).sum() == pytest.approx(best, rel=1e-6)


def test_a_map_moves_into_its_bounds_as_little_as_it_must():
    x = np.array([[4.0, 0, -2], [0, 1, 0]])
    upright = x - x.mean(axis=1, keepdims=True)  # on its principal axes, nearly

    def moves(bounds):
        placed = Region.of(3, 2, bounds=bounds).placed(x)
        assert_allclose(pdist(placed.T), pdist(x.T))
        return placed.min(axis=1), placed.max(axis=1)

    assert_allclose(moves((0, None))[0], [0, 0], atol=1e-12)
    assert_allclose(moves([(None, 1), (None, None)])[1][0], 1)
    assert_array_equal(Region.of(3, 2, bounds=(-9, 9)).placed(upright), upright)
    narrow = Region.of(3, 2, bounds=[(0, 2), (-9, 9)]).placed(x)
    assert np.ptp(narrow[0]) < 1.1  # its short axis lies along the narrow one, uncut
    assert_allclose(pdist(narrow.T), pdist(x.T))
    middle = Region.of(3, 2, bounds=[(0, 2), (0, 2)]).placed(x)
    assert_array_equal(np.sort(middle[0])[[0, 2]], [0, 2])  # no room: it is cut at both ends


@pytest.mark.parametrize(
    ("pinned", "bounds", "sentence"),
    [
        (
            np.zeros((2, 2)),
            None,
            r"pinned must be coordinates of shape \(3, 2\), NaN for free ones, not float64 of shape",
        ),
        (np.array([["a", "b"]] * 3), None, "pinned must be coordinates"),
        ([[0, 1], [NAN, NAN], [0, np.inf]], None, "has infinite values, the first in row 2"),
        (np.zeros((3, 2)), None, "pinned leaves no coordinate free"),
        (
            [[0, 1], [NAN, NAN], [0, 7]],
            (None, 5),
            "point 2 is pinned to 7 on axis 1, outside of the bounds there, -inf to 5",
        ),
        (None, (1, 0), r"bounds must have the lower one first, not \(1, 0\)"),
        (None, (1, 1), "to fix an axis, pin its coordinates"),
        (None, (NAN, 1), "lower one first"),
        (None, 3, r"bounds must be a pair \(low, high\) for all axes, or one for each of the 2"),
        (None, [(0, 1)] * 3, "bounds must be a pair"),
        (None, [(0, 1), (1,)], "bounds must be a pair"),
        (None, ("a", "b"), "bounds must be a pair"),
    ],
)
def test_bad_descriptions_get_a_sentence(pinned, bounds, sentence):
    with pytest.raises(InputError, match=sentence):
        Region.of(3, 2, pinned, bounds)


def test_points_are_moved_inside_of_their_intervals():
    region = Region.of(4, 2, [[np.nan, np.nan], [0.5, np.nan], [np.nan, np.nan], [np.nan, np.nan]], [(0, 1), (0, None)])
    x = np.array([[0.0, 0.5, 1.0, 0.4], [0.0, 3.0, 9.0, 0.0]])
    shares = np.full((2, 4), 0.25)
    np.testing.assert_array_equal(region.inside(x, shares, 0.1), [[0.1, 0.5, 0.9, 0.4], [0.1, 3.0, 9.0, 0.1]])
    np.testing.assert_array_equal(region.inside(x, 0.04 * shares, 9.0)[0], [0.01, 0.5, 0.99, 0.4])
