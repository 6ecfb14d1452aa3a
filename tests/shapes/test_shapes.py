"""Shapes against their closed forms."""

import doctest

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.spatial.distance import cdist
from scipy.stats import kstest

from psmds_dist import InputError, shapes
from psmds_dist.shapes import SHAPES

N = 2000


@pytest.fixture(params=SHAPES)
def name(request):
    return request.param


def made(name, **how):
    return SHAPES[name](N, random_state=0, **how)


def on_swiss_roll(x, y, z):
    return np.abs(np.cos(np.hypot(x, z)) * np.hypot(x, z) - x)


def on_s_curve(x, y, z):
    return np.abs(np.hypot(x, np.abs(z) - 1) - 1)


def on_sphere(x, y, z):
    return np.abs(x**2 + y**2 + z**2 - 1)


def on_helix(x, y, z):
    t = np.arctan2(y, x)
    return np.abs(np.hypot(x, y) - 2 - np.cos(8 * t)) + np.abs(z - np.sin(8 * t))


def in_ball(x, y, z):
    return np.maximum(x**2 + y**2 + z**2 - 1, 0)


def near_clusters(x, y, z):
    points = np.column_stack([x, y, z])
    t = np.linspace(0, 2, 20001)
    line = np.column_stack([np.interp(t, range(3), column) for column in shapes.CENTRES.T])
    inside = cdist(points, shapes.CENTRES).min(axis=1) <= 1
    return np.where(inside, 0, np.floor(1e3 * cdist(points, line).min(axis=1)))


def on_peaks(x, y, z):
    return np.abs(z - np.sin(np.pi * x) * np.tanh(3 * y))


def on_corner(x, y, z):
    flat = (np.abs(z) < 1e-12) & (x >= 0) & (x <= 1)
    upright = (np.abs(x - 1) < 1e-12) & (z >= 0) & (z <= 1)
    return np.where((flat | upright) & (y >= 0) & (y <= 1), 0, 1)


SURFACES = {
    "swiss roll": on_swiss_roll,
    "S-curve": on_s_curve,
    "toroidal helix": on_helix,
    "clusters": near_clusters,
    "sphere": on_sphere,
    "cut sphere": on_sphere,
    "ball": in_ball,
    "twin peaks": on_peaks,
    "punctured sphere": on_sphere,
    "corner plane": on_corner,
    "swiss roll with a hole": on_swiss_roll,
}


def test_points_lie_on_the_surface(name):
    shape = made(name)
    assert shape.points.shape == (N, 3)
    assert len(shape.parameters) == N
    np.testing.assert_allclose(SURFACES[name](*shape.points.T), 0, atol=1e-12)


def test_noise_is_gaussian_with_its_standard_deviation(name):
    noise = made(name, noise=0.3).points - made(name).points
    assert kstest(noise.ravel() / 0.3, "norm").pvalue > 1e-4


def test_a_seed_gives_the_same_points_and_another_seed_others(name):
    np.testing.assert_array_equal(made(name).points, made(name).points)
    assert not np.array_equal(made(name).points, SHAPES[name](N, random_state=1).points)


def uniform(values, low, high):
    return kstest(values, "uniform", (low, high - low)).pvalue > 1e-3


def angle(x):
    return np.arctan2(x[:, 1], x[:, 0])


UNIFORM = {
    "S-curve": lambda x, p: uniform(p[:, 0], -1.5 * np.pi, 1.5 * np.pi) and uniform(p[:, 1], 0, 2),
    "toroidal helix": lambda x, p: uniform(angle(p), -np.pi, np.pi),
    "sphere": lambda x, p: all(uniform(column, -1, 1) for column in x.T),  # by area, as Archimedes found
    "cut sphere": lambda x, p: uniform(x[:, 2], -1, 0.5),
    "ball": lambda x, p: uniform(np.linalg.norm(x, axis=1) ** 3, 0, 1) and uniform(angle(x), -np.pi, np.pi),
    "twin peaks": lambda x, p: all(uniform(column, -1, 1) for column in p.T),
    "punctured sphere": lambda x, p: uniform((p**2).sum(axis=1), 0, 16) and uniform(angle(p), -np.pi, np.pi),
    "corner plane": lambda x, p: uniform(p[:, 0], 0, 2) and uniform(p[:, 1], 0, 1),
    "swiss roll": lambda x, p: (
        uniform(np.hypot(x[:, 0], x[:, 2]), 1.5 * np.pi, 4.5 * np.pi) and uniform(p[:, 1], 0, 21)
    ),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_parameters_are_uniform(name):
    shape = made(name)
    assert UNIFORM[name](shape.points, shape.parameters)


@pytest.mark.parametrize("name", UNIFORM)
def test_density_crowds_the_points(name):
    shape = made(name, density=2.0)
    assert not UNIFORM[name](shape.points, shape.parameters)


def test_the_parameter_of_a_roll_is_its_arc_length():
    roll = made("swiss roll")
    for point, length in zip(roll.points[:5], roll.parameters[:5, 0], strict=True):
        expected, _ = quad(lambda t: np.sqrt(1 + t * t), 0, np.hypot(point[0], point[2]))
        assert length == pytest.approx(expected)


def test_the_hole_is_empty_and_all_else_is_not():
    whole, holed = made("swiss roll"), made("swiss roll with a hole")

    def in_hole(shape):
        t = np.hypot(*shape.points[:, [0, 2]].T) / np.pi
        return (t > 2.7) & (t < 3.3) & (shape.points[:, 1] > 6.3) & (shape.points[:, 1] < 14.7)

    assert np.mean(in_hole(whole)) == pytest.approx(0.08, abs=0.02)
    assert not in_hole(holed).any()
    assert uniform(holed.points[holed.points[:, 1] < 6.3][:, 1], 0, 6.3)


def test_the_line_between_clusters_has_a_tenth_of_the_points():
    np.testing.assert_array_equal(np.bincount(made("clusters").labels), [600, 600, 600, 200])


def test_a_corner_of_another_angle_keeps_its_lengths():
    flat = shapes.corner_plane(N, angle=180, random_state=0)
    np.testing.assert_allclose(flat.points[:, :2], flat.parameters, atol=1e-12)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"n": 0}, "n must be a whole number of at least 1, not 0"),
        ({"n": 2.5}, "n must be a whole number of at least 1, not 2.5"),
        ({"noise": -1}, "noise must be a standard deviation, zero or more, not -1"),
        ({"density": 0}, "density must be a positive number, 1 for a uniform one, not 0"),
    ],
)
def test_unusable_parameters_are_told(name, how, sentence):
    with pytest.raises(InputError, match=sentence):
        SHAPES[name](**{"n": 9, **how})


def test_the_example_of_the_module():
    assert doctest.testmod(shapes).failed == 0
