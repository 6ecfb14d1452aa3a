"""Metrics beside those of SciPy: great circles on the Earth, and Tanimoto's of bit vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from psmds_dist.core.types import Floats, InputError, Ints

EARTH_KM = 6371.0088
"""Mean radius of the Earth (IUGG)."""


class OwnMetric(Protocol):
    """A metric, of which each pair has the same bits whatever it is computed with."""

    def prepared(self, points: Floats, numbers: Ints | None, what: str) -> Floats:
        """Points in the form that `distances` takes; messages call them ``what``, by their ``numbers``."""

    def distances(self, points: Floats, others: Floats, out: Floats, options: Mapping[str, Any]) -> None:
        """Fill ``out`` with the distances from prepared points to prepared others."""


class Haversine:
    """``2 r asin(c / 2)``, where c is the chord between two places given by latitude and longitude in degrees.

    The parameter ``radius`` is r, by default the Earth's in km.
    """

    def prepared(self, points: Floats, numbers: Ints | None, what: str) -> Floats:
        """Return unit vectors."""
        if points.shape[1] != 2:
            raise InputError(
                f"haversine needs points of 2 numbers, latitude and longitude in degrees, not {points.shape[1]}."
            )
        outside = (np.abs(points) > (90, 360)).any(axis=1)
        if outside.any():
            k = int(outside.argmax())
            raise InputError(
                f"{what} {k if numbers is None else numbers[k]} is {points[k, 0]:g}, {points[k, 1]:g}, but haversine "
                "needs a latitude from -90 to 90 and then a longitude from -180 to 180, in degrees; are they swapped?"
            )
        latitude, longitude = np.radians(points.T)
        level = np.cos(latitude)
        return np.column_stack([level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude)])

    def distances(self, points: Floats, others: Floats, out: Floats, options: Mapping[str, Any]) -> None:
        """Fill ``out`` with lengths of arcs."""
        from scipy.spatial.distance import cdist  # late: importing SciPy takes longer than most starts

        cdist(points, others, "euclidean", out=out)
        out *= 0.5
        np.arcsin(np.minimum(out, 1.0, out=out), out=out)
        out *= 2 * options.get("radius", EARTH_KM)


class Tanimoto:
    """``1 - a / (a + b)`` of bit vectors with ``a`` bits in common and ``b`` bits in one only; 0 where none is set.

    Counts are exact in a matrix product, so that its order of sums does not matter.
    """

    def prepared(self, points: Floats, numbers: Ints | None, what: str) -> Floats:
        """Return the points, all of zeros and ones."""
        wrong = ((points != 0) & (points != 1)).any(axis=1)
        if wrong.any():
            k = int(wrong.argmax())
            raise InputError(
                f"{what} {k if numbers is None else numbers[k]} holds other numbers than 0 and 1, so it has no "
                "tanimoto distance; give bits, or metric 'jaccard' or 'braycurtis' for other numbers."
            )
        return points

    def distances(self, points: Floats, others: Floats, out: Floats, options: Mapping[str, Any]) -> None:
        """Fill ``out``."""
        shared = points @ others.T
        union = points.sum(axis=1)[:, None] + others.sum(axis=1) - shared
        np.divide(union - shared, np.maximum(union, 1), out=out)


OWN: Mapping[str, OwnMetric] = {"haversine": Haversine(), "tanimoto": Tanimoto()}
"""By their names."""

PARAMETERS = {"haversine": {"radius"}, "tanimoto": set[str]()}
"""What these metrics take."""


def require_parameters(metric: str, options: Mapping[str, Any]) -> None:
    """Refuse parameters that a metric of `OWN` does not take."""
    unknown = set(options) - PARAMETERS[metric]
    if unknown:
        known = ", ".join(PARAMETERS[metric]) or "none"
        raise InputError(f"metric {metric!r} takes no parameter {min(unknown)!r}; its parameters are: {known}.")
