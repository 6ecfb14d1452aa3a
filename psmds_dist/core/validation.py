"""What sizes and indices must be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from psmds_dist.core.arrays import as_array
from psmds_dist.core.errors import InputError
from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import Ints


def check_landmarks(landmarks: Sequence[int] | Ints, n: int, width: int | None = None) -> Ints:
    """Return landmarks as an array, after a test that they are different rows of ``n`` points.

    Parameters
    ----------
    landmarks : sequence of int
        Row indices, in the order of the panel's columns.
    n : int
        Number of points.
    width : int, optional
        Number of landmarks there must be.
    """
    given = as_array(landmarks, "landmarks")
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
        hint = "; turn a mask into indices by np.flatnonzero" if given.dtype.kind == "b" else ""
        raise InputError(f"landmarks must be a list of row indices, not {given.dtype} of shape {given.shape}{hint}.")
    if width not in (None, given.size):
        raise InputError(f"landmarks lists {given.size} rows for the {width} columns of the panel: list one for each.")
    outside = given[(given < 0) | (given >= n)]
    if outside.size:
        raise InputError(f"landmarks must be row indices from 0 to {n - 1}, but {int(outside[0])} is among them.")
    kinds, counts = np.unique(given, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"landmarks lists {int(kinds[counts > 1][0])} more than once: list each landmark once.")
    return given.astype(np.int64)


def require_size(n: int) -> None:
    """Refuse matrices that are too small to be mapped."""
    if n < 3:
        raise InputError(f"the matrix has {n} point{'s' * (n != 1)}, but a map needs at least 3.")


def require_dims(n: int, dims: int) -> None:
    """Refuse a map of more dimensions than so many points can need."""
    require_size(n)
    if dims >= n:
        raise InputError(
            f"n_components must be below the number of points, {n}, not {dims}: any dissimilarities fit exactly in "
            "fewer dimensions than points."
        )


def require_neighbors(rule: PairRule, n: int) -> None:
    """Refuse more near points than there are others."""
    if rule.local and rule.local_neighbors >= n - 1:
        raise InputError(
            f"local_neighbors (--local-neighbors) is {rule.local_neighbors}, but each of {n} points has {n - 1} others "
            f"and some must be far: give at most {n - 2}."
        )
