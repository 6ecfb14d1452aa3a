"""Distances between points, block by block."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.core.validation import require_size
from psmds_dist.data.metrics import OWN, require_parameters
from psmds_dist.data.products import FORMS, MIN_FEATURES, ROWS, UNIT_FORM, Products
from psmds_dist.data.sources import file_identity, load_npy, require_numeric

SCRATCH_BYTES = 1_000_000
"""Float64 distances computed at a time before they are converted: small enough for the cache."""


@contextmanager
def trying(metric: str, where: str) -> Iterator[None]:
    """Turn what a metric that does not suit its points ends in, overflow among it, into a sentence."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except InputError:
        raise
    except (ValueError, TypeError, FloatingPointError, np.linalg.LinAlgError) as error:
        raise InputError(
            f"metric {metric!r} cannot be used on {where} ({error}); give a metric of scipy.spatial.distance.cdist, "
            "and parameters it takes."
        ) from None


@dataclass(frozen=True, eq=False)
class Points(RowSource):
    """Distances between the rows of a ``.npy`` file, by a metric of `scipy.spatial.distance.cdist`."""

    path: str
    shape: tuple[int, int]
    metric: str
    options: Mapping[str, Any]
    dtype: np.dtype[Any]
    content_id: str

    @property
    def location(self) -> str:
        """Path of the file."""
        return self.path

    @cached_property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: all points, once more where the metric changes them, and distances as computed."""
        points = load_npy(self.path)
        metric = Metric(self.metric, self.options)
        as_they_are = points.dtype == np.float64 and not metric.prepares
        features, together = 8 * points.size * (1 if as_they_are else 2), 1
        distances = max(8 * self.n, min(SCRATCH_BYTES, 8 * self.n**2))
        if metric.form(self.dtype, points.shape[1]):
            distances, together = Products.scratch_bytes(*points.shape), min(ROWS, self.n)
        return ReadProfile(together, scratch_bytes=features + distances)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and self.content_id == other.content_id

    def __hash__(self) -> int:
        return hash(self.content_id)

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        _space(self).fill(lo, hi, out[: hi - lo])


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric of `scipy.spatial.distance.cdist` or of `psmds_dist.data.metrics`, every pair computed by itself.

    SciPy's cosine and correlation go through a matrix product, whose last bits depend on the block, and its
    seuclidean and mahalanobis take variances from the block: neither would give a symmetric matrix.
    """

    name: str
    options: Mapping[str, Any]

    @property
    def described(self) -> str:
        """Name and parameters, for tokens: the same text for the same metric."""
        return f"{self.name}({', '.join(f'{k}={_described(v)}' for k, v in sorted(self.options.items()))})"

    @property
    def wants(self) -> str | None:
        """Parameter that is missing: ``V``, variances of the points, or ``VI``, their inverse covariance."""
        needed = {"seuclidean": "V", "mahalanobis": "VI"}.get(self.name)
        return None if needed in self.options else needed

    def fitted(self, moments: Floats) -> Metric:
        """Return the metric with what it wants, from variances (for ``V``) or a covariance (for ``VI``)."""
        value = moments if self.wants == "V" else np.linalg.inv(moments).T
        return Metric(self.name, {**self.options, str(self.wants): value})

    @property
    def of_units(self) -> bool:
        """Whether 1 - <u, v> = |u - v|^2 / 2 of unit vectors does: pair by pair, and zero on the diagonal."""
        return self.name in ("cosine", "correlation") and not self.options

    def form(self, dtype: np.dtype[Any], features: int) -> tuple[bool, float] | None:
        """How distances of a type follow from squared ones, where matrix products are the faster way to these."""
        if self.options or dtype != np.float32 or features < MIN_FEATURES:
            return None
        return UNIT_FORM if self.of_units else FORMS.get(self.name)

    @property
    def prepares(self) -> bool:
        """Whether `prepared` makes other points of them."""
        return self.of_units or self.name in OWN

    def prepared(self, points: Floats, numbers: Ints | None = None, what: str = "point") -> Floats:
        """Points in the form that `distances` takes, row by row.

        Messages call them ``what``, by their ``numbers``, or by their places here.
        """
        if self.name in OWN:
            require_parameters(self.name, self.options)
            return OWN[self.name].prepared(points, numbers, what)
        if not self.of_units:
            return points
        if self.name == "correlation":
            points = points - points.mean(axis=1, keepdims=True)
        return _unit(points, self.name, numbers, what)

    def distances(self, points: Floats, others: Floats, out: Floats) -> Floats:
        """Fill ``out`` with the distances from prepared points to prepared others."""
        from scipy.spatial.distance import cdist  # late: importing SciPy takes longer than most starts

        if self.name in OWN:
            OWN[self.name].distances(points, others, out, self.options)
        elif self.of_units:
            cdist(points, others, "sqeuclidean", out=out)
            out *= 0.5
        else:
            cdist(points, others, self.name, out=out, **self.options)
        return out


def _described(value: Any) -> str:
    """Text of a parameter; an array of any size by its content."""
    if np.ndim(value) == 0:
        return repr(value)
    return hashlib.blake2b(np.asarray(value, dtype=np.float64).tobytes(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class _Space:
    """Prepared points with a metric."""

    points: Floats
    metric: Metric
    products: Products | None = None
    """How distances are computed where matrix products are faster."""

    def fill(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out`` with the distances from points ``lo`` to ``hi`` to all."""
        if self.products is not None:
            self.products.fill(lo, hi, out)
        else:
            self._fill_by_pairs(lo, hi, out)

    def _fill_by_pairs(self, lo: int, hi: int, out: Rows) -> None:
        n = len(self.points)
        step = max(1, SCRATCH_BYTES // (8 * n))
        scratch = np.empty((min(step, hi - lo), n))
        for first in range(lo, hi, step):
            last = min(first + step, hi)
            fill(out[first - lo : last - lo], self.distances(first, last, scratch[: last - first]))

    def distances(self, lo: int, hi: int, out: Floats) -> Floats:
        """Distances from points ``lo`` to ``hi`` to all."""
        return self.metric.distances(self.points[lo:hi], self.points, out)


@lru_cache(maxsize=1)
def _space(source: Points) -> _Space:
    points = np.asarray(load_npy(source.path), dtype=np.float64, order="C")
    metric = Metric(source.metric, source.options)
    if metric.wants:
        spread = points.var(axis=0, ddof=1) if metric.wants == "V" else np.atleast_2d(np.cov(points.T))
        metric = metric.fitted(spread)
    points = metric.prepared(points)
    form = metric.form(source.dtype, points.shape[1])
    return _Space(points, metric, None if form is None else Products(points, form, metric.distances))


def _unit(points: Floats, metric: str, numbers: Ints | None, what: str) -> Floats:
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    if (lengths == 0).any():
        place = int((lengths == 0).argmax())
        row = place if numbers is None else numbers[place]
        kind = "constant" if metric == "correlation" else "zero"
        raise InputError(f"{what} {row} is {kind}, so its {metric} distance is undefined; leave it out.")
    units: Floats = points / lengths
    return units


def open_points(
    path: str | os.PathLike[str],
    metric: str = "euclidean",
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> Points:
    """Open a ``.npy`` file of points.

    Parameters
    ----------
    path : path
        Array of shape (n, d).
    metric : str
        Name of a metric of `scipy.spatial.distance.cdist`; ``"haversine"``, great circles in km between latitudes and
        longitudes in degrees; or ``"tanimoto"`` for vectors of bits.
    options : mapping, optional
        Parameters of the metric, such as ``p`` for ``"minkowski"``, or ``radius`` for ``"haversine"``.
    dtype : {"float32", "float64"}
        Type of the distances to deliver; they are computed in float64.

    Returns
    -------
    Points
    """
    place = os.path.abspath(path)
    values = load_npy(place)
    require_points(values, place)
    require_size(int(values.shape[0]))
    chosen = dict(options or {})
    n = int(values.shape[0])
    content_id = f"points {file_identity(place)} {Metric(metric, chosen).described} {dtype}"
    source = Points(place, (n, n), metric, chosen, np.dtype(dtype), content_id)
    _try_metric(source)
    return source


def seem_dissimilarities(path: str | os.PathLike[str], sample: int = 500) -> bool:
    """Whether points look like a matrix of dissimilarities: square, zero on the diagonal, symmetric in a sample."""
    values = load_npy(os.path.abspath(path))
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.diagonal().any():
        return False
    some = np.unique(np.linspace(0, len(values) - 1, sample).astype(np.int64))
    part = np.asarray(values[np.ix_(some, some)])
    return bool(part.any() and (part >= 0).all() and (part == part.T).all())


def require_points(values: NDArray[Any], where: str) -> None:
    """Refuse what is no array of finite points."""
    if values.dtype.kind != "b":
        require_numeric(values, where)
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"{where} has shape {values.shape}, but points are an array of shape (n, d).")
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise InputError(f"{where} has NaN or infinite coordinates, first in row {int(finite.argmin())}; fill them in.")


def _try_metric(source: Points) -> None:
    with trying(source.metric, source.path):
        _space(source).distances(0, 1, np.empty((1, source.n)))
