"""Manifolds in space whose true parameters are known: the shapes of the paper's experiments.

Every function draws ``n`` points at random and returns a `Shape`. ``noise`` is the standard deviation of Gaussian noise
that is added to every coordinate, ``random_state`` a seed. Densities are uniform in the parameters unless ``density``
says otherwise: parameters are ``u ** density`` for uniform ``u``, so that 1 is uniform, and larger values crowd the
points at the beginning of each parameter.

Examples
--------
>>> from psmds_dist import open_geodesics
>>> from psmds_dist.shapes import swiss_roll
>>> roll = swiss_roll(500, random_state=0)
>>> roll.points.shape, roll.parameters.shape
((500, 3), (500, 2))
>>> distances = open_geodesics(roll.points, n_neighbors=12)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, InputError, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Shape:
    """Points on a manifold.

    Attributes
    ----------
    points : (n, 3) ndarray
        Coordinates in space, with noise.
    parameters : (n, p) ndarray
        True coordinates on the manifold; where it is flat, in units of length, so that their distances are the geodesic
        ones. The first is a good colour.
    labels : (n,) ndarray of int or None
        Cluster of each point, where there are clusters.
    """

    points: Floats
    parameters: Floats
    labels: Ints | None = None


@dataclass(frozen=True)
class _Draw:
    """Random numbers of a shape."""

    n: int
    noise: float
    density: float
    random: np.random.Generator

    @classmethod
    def of(cls, n: int, noise: float, density: float, random_state: int | None) -> _Draw:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"n must be a whole number of at least 1, not {n!r}.")
        if not 0 <= noise < np.inf:
            raise InputError(f"noise must be a standard deviation, zero or more, not {noise!r}.")
        if not 0 < density < np.inf:
            raise InputError(f"density must be a positive number, 1 for a uniform one, not {density!r}.")
        return cls(int(n), noise, density, np.random.default_rng(random_state))

    def between(self, low: float, high: float, n: int | None = None) -> Floats:
        """Parameters between two ends, as dense as is wished."""
        u: Floats = self.random.random(self.n if n is None else n) ** self.density
        return low + (high - low) * u

    def shape(self, points: list[Floats], parameters: list[Floats], labels: Ints | None = None) -> Shape:
        """Return points, with noise, and parameters from their columns."""
        exact = np.column_stack(points)
        noisy = exact + self.noise * self.random.standard_normal(exact.shape)
        return Shape(noisy, np.column_stack(parameters), labels)


def _arc(t: Floats) -> Floats:
    """Length of the spiral ``t (cos t, sin t)`` from 0 to ``t``: ``(t sqrt(1 + t^2) + asinh t) / 2``."""
    length: Floats = (t * np.sqrt(1 + t * t) + np.arcsinh(t)) / 2
    return length


def _roll(draw: _Draw, t: Floats, height: Floats) -> Shape:
    return draw.shape([t * np.cos(t), height, t * np.sin(t)], [_arc(t), height])


ROLL = 1.5 * np.pi, 4.5 * np.pi
"""Angles at which a swiss roll begins and ends."""

HEIGHT = 21.0
"""Width of a swiss roll along its axis."""


def swiss_roll(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Rectangle that is rolled up: ``(t cos t, h, t sin t)``.

    ``t`` is in [1.5 pi, 4.5 pi], ``h`` in [0, 21]. The parameters are ``h`` and the length of the spiral,
    ``(t sqrt(1 + t^2) + asinh t) / 2``: their distances are those along the surface.
    """
    draw = _Draw.of(n, noise, density, random_state)
    return _roll(draw, draw.between(*ROLL), draw.between(0, HEIGHT))


HOLE = (0.4, 0.6), (0.3, 0.7)
"""What is cut out of a swiss roll, as shares of the range of ``t`` and of the height."""


def swiss_roll_with_hole(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """`swiss_roll` without its rectangle of ``t`` in [2.7 pi, 3.3 pi] and ``h`` in [6.3, 14.7].

    Shortest paths around the hole are longer than the distances of the parameters.
    """
    draw = _Draw.of(n, noise, density, random_state)
    t, height = _outside(lambda k: np.column_stack([draw.between(0, 1, k), draw.between(0, 1, k)]), _in_hole, draw.n).T
    return _roll(draw, ROLL[0] + (ROLL[1] - ROLL[0]) * t, HEIGHT * height)


def _in_hole(x: Floats) -> Bools:
    (left, right), (low, high) = HOLE
    inside: Bools = (left < x[:, 0]) & (x[:, 0] < right) & (low < x[:, 1]) & (x[:, 1] < high)
    return inside


def _outside(draw: Callable[[int], Floats], refused: Callable[[Floats], Bools], n: int) -> Floats:
    """Draw rows until ``n`` are not refused."""
    found = draw(n)
    while True:
        found = found[~refused(found)]
        if len(found) >= n:
            return found[:n]
        found = np.concatenate([found, draw(n)])


def s_curve(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Rectangle that is bent to an S: ``(sin t, h, sign(t) (cos t - 1))``.

    ``t`` is in [-1.5 pi, 1.5 pi], ``h`` in [0, 2]. The parameters are ``t`` and ``h``: ``t`` is a length along the
    curve, so their distances are those along the surface.
    """
    draw = _Draw.of(n, noise, density, random_state)
    t, height = draw.between(-1.5 * np.pi, 1.5 * np.pi), draw.between(0, 2)
    return draw.shape([np.sin(t), height, np.sign(t) * (np.cos(t) - 1)], [t, height])


def toroidal_helix(
    n: int, *, turns: int = 8, noise: float = 0.0, density: float = 1.0, random_state: int | None = None
) -> Shape:
    """Curve around a torus: ``((2 + cos k t) cos t, (2 + cos k t) sin t, sin k t)`` with ``k = turns``.

    ``t`` is in [0, 2 pi]. It is closed, so the parameters are the circle ``(cos t, sin t)``, on which ``t`` is the
    angle; with eight turns, equal steps of ``t`` are lengths along the curve within 3 %.
    """
    draw = _Draw.of(n, noise, density, random_state)
    t = draw.between(0, 2 * np.pi)
    radius = 2 + np.cos(turns * t)
    return draw.shape([radius * np.cos(t), radius * np.sin(t), np.sin(turns * t)], [np.cos(t), np.sin(t)])


CENTRES = np.array([[0.0, 0.0, 0.0], [6.0, 1.0, 0.0], [4.0, 7.0, 2.0]])
"""Centres of the clusters."""


def clusters(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Three balls of radius 1, joined by a line through their centres; a tenth of the points is on the line.

    The centres are (0, 0, 0), (6, 1, 0) and (4, 7, 2), the balls of the same size to one point. The parameters are the
    points without noise; the labels are 0, 1, 2, and 3 on the line.
    """
    draw = _Draw.of(n, noise, density, random_state)
    on_line = draw.n // 10
    labels = np.arange(draw.n - on_line) % len(CENTRES)
    inside = CENTRES[labels] + _ball(draw, labels.size)
    t = draw.between(0, len(CENTRES) - 1, on_line)
    places = np.arange(len(CENTRES))
    line = np.column_stack([np.interp(t, places, column) for column in CENTRES.T])
    columns = list(np.concatenate([inside, line]).T)
    return draw.shape(columns, columns, np.r_[labels, np.full(on_line, len(CENTRES))])


def _directions(draw: _Draw, n: int, height: Floats | None = None) -> Floats:
    """Points of the unit sphere, with given heights or uniform ones, which make them uniform by area."""
    z = draw.between(-1, 1, n) if height is None else height
    angle = 2 * np.pi * draw.random.random(n)
    ring = np.sqrt(1 - z * z)
    return np.column_stack([ring * np.cos(angle), ring * np.sin(angle), z])


def _ball(draw: _Draw, n: int) -> Floats:
    """Points of the unit ball: radii are cube roots of uniform numbers, which make them uniform by volume."""
    ball: Floats = np.cbrt(draw.between(0, 1, n))[:, None] * _directions(draw, n)
    return ball


def _on_sphere(draw: _Draw, height: Floats | None = None) -> Shape:
    x = _directions(draw, draw.n, height)
    return draw.shape(list(x.T), [x[:, 2], np.arctan2(x[:, 1], x[:, 0])])


def sphere(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Unit sphere, uniform by area: ``(r cos a, r sin a, z)`` with ``r = sqrt(1 - z^2)``.

    The parameters are ``z`` in [-1, 1] and the angle ``a`` in [-pi, pi].
    """
    return _on_sphere(_Draw.of(n, noise, density, random_state))


def cut_sphere(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """`sphere` without its cap above ``z = 1/2``: ``z`` is in [-1, 0.5]."""
    draw = _Draw.of(n, noise, density, random_state)
    return _on_sphere(draw, draw.between(-1, 0.5))


def ball(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Unit ball, uniform by volume; the parameters are the points without noise."""
    draw = _Draw.of(n, noise, density, random_state)
    columns = list(_ball(draw, draw.n).T)
    return draw.shape(columns, columns)


def twin_peaks(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Surface with two peaks and two pits: ``(x, y, sin(pi x) tanh(3 y))``.

    The parameters are ``x`` and ``y``, both in [-1, 1].
    """
    draw = _Draw.of(n, noise, density, random_state)
    x, y = draw.between(-1, 1), draw.between(-1, 1)
    return draw.shape([x, y, np.sin(np.pi * x) * np.tanh(3 * y)], [x, y])


def punctured_sphere(n: int, *, noise: float = 0.0, density: float = 1.0, random_state: int | None = None) -> Shape:
    """Sphere that is dense at its open top: the inverse stereographic image of a disc of radius 4.

    ``(2 x, 2 y, s - 1) / (s + 1)`` with ``s = x^2 + y^2``: the top, ``s`` to infinity, is missing. The parameters are
    ``x`` and ``y``, uniform on the disc.
    """
    draw = _Draw.of(n, noise, density, random_state)
    radius, angle = 4 * np.sqrt(draw.between(0, 1)), 2 * np.pi * draw.random.random(draw.n)
    x, y, s = radius * np.cos(angle), radius * np.sin(angle), radius**2
    return draw.shape([2 * x / (s + 1), 2 * y / (s + 1), (s - 1) / (s + 1)], [x, y])


def corner_plane(
    n: int, *, angle: float = 90.0, noise: float = 0.0, density: float = 1.0, random_state: int | None = None
) -> Shape:
    """Two squares of side 1 that share an edge, with ``angle`` degrees between them.

    ``(min(u, 1) - w cos(angle), v, w sin(angle))`` with ``w = max(u - 1, 0)``. The parameters are ``u`` in [0, 2] and
    ``v`` in [0, 1], lengths along the surface.
    """
    draw = _Draw.of(n, noise, density, random_state)
    u, v = draw.between(0, 2), draw.between(0, 1)
    beyond, bend = np.maximum(u - 1, 0), np.deg2rad(angle)
    return draw.shape([np.minimum(u, 1) - np.cos(bend) * beyond, v, np.sin(bend) * beyond], [u, v])


SHAPES: dict[str, Callable[..., Shape]] = {
    "swiss roll": swiss_roll,
    "S-curve": s_curve,
    "toroidal helix": toroidal_helix,
    "clusters": clusters,
    "sphere": sphere,
    "cut sphere": cut_sphere,
    "ball": ball,
    "twin peaks": twin_peaks,
    "punctured sphere": punctured_sphere,
    "corner plane": corner_plane,
    "swiss roll with a hole": swiss_roll_with_hole,
}
"""All shapes, by name."""
