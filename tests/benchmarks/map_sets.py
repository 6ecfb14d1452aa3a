"""Data sets of the maps: real and synthetic dissimilarities of 12 to 10,000 objects, without files.

A set is a function of its number of objects that returns a symmetric float64 matrix, always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import zscore

from tests.benchmarks.data import clusters, shortest_paths

Array = NDArray[np.float64]

CITIES = (
    (-34.60, -58.38), (52.37, 4.90), (37.98, 23.73), (13.75, 100.50), (39.90, 116.40), (52.52, 13.40), (4.71, -74.07),
    (-35.28, 149.13), (30.04, 31.24), (-33.92, 18.42), (10.48, -66.90), (41.88, -87.63), (14.69, -17.44),
    (28.61, 77.21), (25.20, 55.27), (60.17, 24.94), (22.32, 114.17), (21.31, -157.86), (41.01, 28.98), (-6.21, 106.85),
    (24.86, 67.00), (-4.44, 15.27), (6.52, 3.38), (-12.05, -77.04), (38.72, -9.14), (51.51, -0.13), (34.05, -118.24),
    (40.42, -3.70), (14.60, 120.98), (19.43, -99.13), (55.76, 37.62), (-1.29, 36.82), (40.71, -74.01), (48.86, 2.35),
    (64.15, -21.94), (-22.91, -43.17), (37.57, 126.98), (-33.87, 151.21), (35.68, 139.69), (-41.29, 174.78),
)  # fmt: skip
"""Latitudes and longitudes in degrees: Buenos Aires, Amsterdam, Athens, Bangkok, Beijing, Berlin and so on."""


@dataclass(frozen=True)
class MapSet:
    """A data set, and the dimensions of its maps."""

    name: str
    n: int
    dims: int
    make: Callable[[int], Array]

    def matrix(self) -> Array:
        """Compute the dissimilarities."""
        return self.make(self.n)


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


def distances(points: Array, metric: str = "euclidean") -> Array:
    """Square matrix of the distances between points."""
    return squareform(pdist(points, metric))


def features(load: Callable[..., Any], n: int) -> Array:
    """Distances between the objects of a table of scikit-learn."""
    return distances(load().data[:n])


def standardised(load: Callable[..., Any], n: int) -> Array:
    """The same, with features of unit variance."""
    return distances(zscore(load().data[:n]))


def uniform(n: int, dims: int = 10) -> Array:
    """Points of a cube."""
    return distances(_random().random((n, dims)))


def normal(n: int, dims: int = 20) -> Array:
    """Points of one normal distribution."""
    return distances(_random().standard_normal((n, dims)))


def simplex(n: int) -> Array:
    """Objects of equal dissimilarity: many maps are nearly as good."""
    return 1.0 - np.eye(n)


def noise(n: int) -> Array:
    """Dissimilarities without any structure."""
    return squareform(_random().random(n * (n - 1) // 2))


def noisy_line(n: int, share: float, seed: int = 0) -> tuple[Array, Array]:
    """Positions on a line, and their distances with relative errors."""
    random = np.random.default_rng(seed)
    positions = random.random((n, 1))
    exact = pdist(positions)
    return positions, squareform(np.abs(exact * (1 + share * random.standard_normal(exact.size))))


def line(n: int, share: float) -> Array:
    """Distances on a line with relative errors."""
    return noisy_line(n, share)[1]


def swiss_roll(n: int) -> Array:
    """Geodesic distances on a swiss roll."""
    from sklearn.datasets import make_swiss_roll

    return shortest_paths(make_swiss_roll(n, random_state=0)[0])


def s_curve(n: int) -> Array:
    """Geodesic distances on a sheet in the form of an S."""
    from sklearn.datasets import make_s_curve

    return shortest_paths(make_s_curve(n, random_state=0)[0])


def twin_peaks(n: int) -> Array:
    """Geodesic distances on a sheet with two peaks and two valleys."""
    x, y = _random().uniform(-1, 1, (2, n))
    return shortest_paths(np.column_stack([x, y, 10 * np.sin(np.pi * x) * np.tanh(3 * y)]))


def sphere(n: int) -> Array:
    """Great-circle distances of points on a sphere."""
    return _great_circles(_random().standard_normal((n, 3)))


def cities(n: int) -> Array:
    """Great-circle distances of well-known cities, in thousands of kilometres."""
    latitude, longitude = np.radians(CITIES[:n]).T
    level = np.cos(latitude)
    points = np.column_stack([level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude)])
    return 6.371 * _great_circles(points)


def _great_circles(points: Array) -> Array:
    """Angles between points as seen from the origin."""
    on_sphere = points / np.linalg.norm(points, axis=1, keepdims=True)
    return 2 * np.arcsin(np.minimum(distances(on_sphere) / 2, 1))


def ratings(n: int) -> Array:
    """Distances in a cube, with errors, rated from 0 to 5: integers and many ties."""
    random = _random()
    exact = pdist(random.random((n, 3)))
    return squareform(np.clip(np.rint(5 * exact + random.normal(scale=0.5, size=exact.size)), 0, 5))


def answers(n: int) -> Array:
    """Jaccard distances of yes-no answers from a few types of people."""
    random = _random()
    types = random.random((6, 30)) < 0.4
    return distances(types[random.integers(6, size=n)] ^ (random.random((n, 30)) < 0.15), "jaccard")


def strings(n: int) -> Array:
    """Edit distances of strings that descend from a few ancestors."""
    random = _random()
    found = ["".join(random.choice(list("ACGT"), 14)) for _ in range(5)]
    while len(found) < n:
        found.append(_mutated(found[random.integers(len(found))], random))
    return squareform([float(edits(a, b)) for i, a in enumerate(found) for b in found[i + 1 :]])


def _mutated(text: str, random: np.random.Generator) -> str:
    """Replace up to three letters by up to two."""
    at, cut, width = random.integers(len(text)), random.integers(1, 4), random.integers(0, 3)
    return text[:at] + "".join(random.choice(list("ACGT"), width)) + text[at + cut :] or "A"


def edits(a: str, b: str) -> int:
    """Fewest insertions, deletions and replacements that turn one string into another."""
    costs = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, costs[0] = costs[0], i
        for j, other in enumerate(b, 1):
            before, costs[j] = costs[j], min(costs[j] + 1, costs[j - 1] + 1, before + (letter != other))
    return costs[-1]


def correlations(n: int) -> Array:
    """The distance sqrt(2 (1 - r)) of series that share four factors."""
    random = _random()
    series = random.standard_normal((n, 4)) @ random.standard_normal((4, 60)) + random.standard_normal((n, 60))
    return distances(zscore(series, axis=1)) / np.sqrt(60)


def counts(n: int, species: int = 60) -> Array:
    """Counts of species along a gradient."""
    random = _random()
    optimum, abundance = random.random(species), random.lognormal(2, 1, species)
    fit = np.exp(-(((random.random((n, 1)) - optimum) / 0.15) ** 2) / 2)
    return random.poisson(1 + abundance * fit * random.gamma(2, 0.5, (n, species))).astype(float)


def bray_curtis(n: int) -> Array:
    """Bray-Curtis dissimilarities of counts."""
    return distances(counts(n), "braycurtis")


def morisita_horn(n: int) -> Array:
    """Morisita-Horn dissimilarities of counts."""
    shares = counts(n)
    shares /= shares.sum(axis=1, keepdims=True)
    squares = (shares**2).sum(axis=1)
    found = 1 - 2 * (shares @ shares.T) / (squares[:, None] + squares)
    found = np.maximum(found + found.T, 0) / 2
    np.fill_diagonal(found, 0)
    return found


def one_place(n: int) -> Array:
    """Points in the plane, nine tenths of them at one place."""
    points = _random().random((n, 2))
    points[n // 10 :] = points[0]
    return distances(points)


def few_places(n: int) -> Array:
    """Points at thirty places in five dimensions."""
    return distances(np.resize(_random().random((30, 5)), (n, 5)))


def outliers(n: int) -> Array:
    """Points with heavy tails in five dimensions."""
    return distances(_random().standard_t(1.5, (n, 5)))


def in_clusters(n: int, dims: int = 16) -> Array:
    """Points in thirty overlapping clusters."""
    return distances(clusters(n, dims))


def images(n: int) -> Array:
    """Ten classes in fifty dimensions, each with its own directions of falling variance, as images have them."""
    random = _random()
    centres, spread = random.normal(scale=2.0, size=(10, 50)), 4 / np.sqrt(1 + np.arange(50))
    turns = np.linalg.qr(random.standard_normal((10, 50, 50)))[0]
    kind = random.integers(10, size=n)
    own = random.standard_normal((n, 50)) * spread
    return distances(centres[kind] + np.einsum("ni,nij->nj", own, turns[kind]))


def _of_sklearn() -> Sequence[MapSet]:
    from sklearn import datasets as shipped

    return (
        MapSet("iris", 150, 2, partial(features, shipped.load_iris)),
        MapSet("iris-1d", 150, 1, partial(features, shipped.load_iris)),
        MapSet("wine", 178, 2, partial(standardised, shipped.load_wine)),
        MapSet("wine-3d", 178, 3, partial(standardised, shipped.load_wine)),
        MapSet("breast-cancer", 569, 2, partial(standardised, shipped.load_breast_cancer)),
        MapSet("diabetes", 442, 2, partial(features, shipped.load_diabetes)),
        MapSet("linnerud", 20, 2, partial(standardised, shipped.load_linnerud)),
        MapSet("digits", 1797, 2, partial(features, shipped.load_digits)),
        MapSet("digits-10d", 500, 10, partial(features, shipped.load_digits)),
    )


SETS: Sequence[MapSet] = (
    *_of_sklearn(),
    MapSet("uniform", 800, 2, uniform),
    MapSet("normal", 400, 3, normal),
    MapSet("exact-1d", 200, 1, partial(uniform, dims=1)),
    MapSet("exact-2d", 300, 2, partial(uniform, dims=2)),
    MapSet("exact-3d", 300, 3, partial(uniform, dims=3)),
    MapSet("simplex-12", 12, 2, simplex),
    MapSet("simplex-20", 20, 2, simplex),
    MapSet("noise", 100, 2, noise),
    MapSet("line-10", 200, 1, partial(line, share=0.1)),
    MapSet("line-30", 200, 1, partial(line, share=0.3)),
    MapSet("long-line-10", 2000, 1, partial(line, share=0.1)),
    MapSet("long-line-30", 2000, 1, partial(line, share=0.3)),
    MapSet("swiss-roll", 1000, 2, swiss_roll),
    MapSet("s-curve", 1000, 2, s_curve),
    MapSet("twin-peaks", 1000, 2, twin_peaks),
    MapSet("sphere", 500, 2, sphere),
    MapSet("cities", 40, 2, cities),
    MapSet("ratings", 200, 2, ratings),
    MapSet("answers", 250, 2, answers),
    MapSet("strings", 150, 2, strings),
    MapSet("correlations", 120, 2, correlations),
    MapSet("bray-curtis", 150, 2, bray_curtis),
    MapSet("morisita-horn", 150, 2, morisita_horn),
    MapSet("one-place", 300, 2, one_place),
    MapSet("few-places", 300, 2, few_places),
    MapSet("outliers", 400, 2, outliers),
    MapSet("clusters", 1000, 2, in_clusters),
    MapSet("images-10d", 1500, 10, images),
    MapSet("clusters-3d", 5000, 3, in_clusters),
    MapSet("large-normal", 10_000, 2, normal),
    MapSet("large-images", 10_000, 2, images),
)

QUICK = ("simplex-12", "linnerud", "cities")
