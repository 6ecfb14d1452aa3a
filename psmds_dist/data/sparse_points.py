"""Distances between sparse points, computed by sparse products, and again from differences where points are near."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from psmds_dist.core.arrays import fill
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.sources import ReadProfile, RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.core.validation import require_size
from psmds_dist.utils.pickling import PickledOnce

SCRATCH_BYTES = 8_000_000
"""Float64 distances computed at a time before they are converted."""

NEAR = 1e-6
"""Squared distance, as a share of both squared norms, below which it is computed from the difference: the product has
ten digits above."""

NEAR_PAIRS = 4096
"""Pairs of near points whose differences are formed at a time."""

Sparse = Any  # scipy.sparse.csr_array, with sorted indices and no duplicates


@dataclass(frozen=True, eq=False)
class SparsePoints(PickledOnce, RowSource):
    """Distances between the rows of a sparse matrix; made by `psmds_dist.open_points`.

    Sums run over features in ascending order, so that both orders of a pair have the same bits.
    """

    points: Sparse
    metric: str
    dtype: np.dtype[Any]
    content_id: str
    location: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points, twice."""
        return self.points.shape[0], self.points.shape[0]

    @property
    def read_profile(self) -> ReadProfile:
        """Cost of reading: the points, as pickled and transposed as well, and distances with their sparse product."""
        points = self.points.indptr.nbytes + self.points.indices.nbytes + self.points.data.nbytes
        return ReadProfile(scratch_bytes=3 * points + 5 * max(SCRATCH_BYTES, 8 * self.n))

    def read(self, lo: int, hi: int, out: Rows) -> None:
        """Fill ``out[: hi - lo]`` with rows ``lo`` to ``hi``."""
        self.read_rows(np.arange(lo, hi), slice(0, self.n), out)

    def read_rows(self, rows: Ints, columns: slice, out: Rows) -> None:
        """Fill ``out[: rows.size]`` with the entries of some rows in some columns."""
        others = self.points[columns]
        step = max(1, SCRATCH_BYTES // (8 * others.shape[0]))
        for first in range(0, rows.size, step):
            part = rows[first : first + step]
            fill(out[first : first + part.size], DISTANCES[self.metric](self.points[part], others))


def _squares(some: Sparse, others: Sparse) -> Floats:
    """Squared distances."""
    norms, other_norms = _norms(some)[:, None], _norms(others)
    found: Floats = norms + other_norms - 2 * (some @ others.T).toarray()
    i, j = np.nonzero(found <= NEAR * (norms + other_norms))
    for k in range(0, i.size, NEAR_PAIRS):
        part = slice(k, k + NEAR_PAIRS)
        found[i[part], j[part]] = _norms(some[i[part]] - others[j[part]])
    return found


def _norms(points: Sparse) -> Floats:
    """Squared norms."""
    norms: Floats = points.multiply(points) @ np.ones(points.shape[1])
    return norms


def _manhattan(some: Sparse, others: Sparse) -> Floats:
    from sklearn.metrics.pairwise import manhattan_distances

    found: Floats = manhattan_distances(some, others)
    return found


def _tanimoto(some: Sparse, others: Sparse) -> Floats:
    shared = (some @ others.T).toarray()
    union = _norms(some)[:, None] + _norms(others) - shared
    found: Floats = (union - shared) / np.maximum(union, 1)
    return found


DISTANCES: Mapping[str, Callable[[Sparse, Sparse], Floats]] = {
    "euclidean": lambda some, others: np.sqrt(_squares(some, others)),
    "sqeuclidean": _squares,
    "cosine": lambda some, others: 0.5 * _squares(some, others),
    "cityblock": _manhattan,
    "tanimoto": _tanimoto,
}
"""By the metrics of sparse points; for cosine these are unit vectors."""


def open_sparse(points: Any, metric: str, options: Mapping[str, Any] | None, dtype: str) -> SparsePoints:
    """Open the distances between the rows of a sparse matrix; parameters as in `psmds_dist.open_points`."""
    location = os.path.abspath(points) if isinstance(points, str | os.PathLike) else None
    if metric not in DISTANCES or options:
        raise InputError(
            f"sparse points have the metrics {', '.join(DISTANCES)}, without parameters, not {metric!r}; for others "
            "pass points.toarray()."
        )
    rows = _usable(points if location is None else _load(location), location or "the sparse matrix")
    content = f"sparse points {_digest(rows)} {metric} {dtype}"
    return SparsePoints(_prepared(rows, metric), metric, np.dtype(dtype), content, location)


def _load(path: str) -> Any:
    from scipy.sparse import load_npz

    try:
        return load_npz(path)
    except Exception as error:  # NumPy and zipfile end in anything where a file is damaged
        raise DamagedDataError(f"{path} is damaged or no sparse matrix ({error}); write it again.") from None


def _usable(points: Any, where: str) -> Sparse:
    """Points as float64 in compressed rows, a copy, finite, in ascending order of their features."""
    from scipy.sparse import csr_array

    if points.dtype.kind not in "fiub":
        raise InputError(f"{where} holds {points.dtype}, but needs floats or integers.")
    rows = csr_array(points, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    require_size(rows.shape[0])
    if not np.isfinite(rows.data).all():
        row = int(np.searchsorted(rows.indptr, int((~np.isfinite(rows.data)).argmax()), side="right")) - 1
        raise InputError(f"{where} has NaN or infinite features, first in row {row}; fill them in.")
    return rows


def _prepared(points: Sparse, metric: str) -> Sparse:
    if metric == "tanimoto" and not np.isin(points.data, (0, 1)).all():
        raise InputError("tanimoto distances are of bits, but the points hold other numbers than 0 and 1.")
    if metric != "cosine":
        return points
    norms = np.sqrt(_norms(points))
    if not norms.all():
        raise InputError(f"point {int(norms.argmin())} is zero, so its cosine distance is undefined; leave it out.")
    points.data /= np.repeat(norms, np.diff(points.indptr))
    return points


def _digest(points: Sparse) -> str:
    digest = hashlib.blake2b(repr(points.shape).encode(), digest_size=16)
    for part in (points.indptr, points.indices, points.data):
        digest.update(part.tobytes())
    return digest.hexdigest()
