"""Missing dissimilarities, estimated along shortest paths between points: good enough for a start."""

from __future__ import annotations

import numpy as np

from psmds_dist.core.types import Rows

SHORTEST = 1e-6
"""Least length of an edge, as a share of the longest: SciPy takes those below 1e-8 for no edge."""


def completed(values: Rows) -> Rows:
    """Matrix whose missing entries are lengths of shortest paths through known ones.

    The cost grows with the cube of the number of points. Pairs that no path connects get the length of the longest.

    Parameters
    ----------
    values : (n, n) ndarray
        Symmetric dissimilarities, NaN where they are missing.
    """
    missing = np.isnan(values)
    np.fill_diagonal(missing, False)
    if not missing.any():
        return values
    from scipy.sparse.csgraph import floyd_warshall  # late: SciPy takes a while

    unit = float(np.nanmax(values)) or 1.0
    lengths = floyd_warshall(np.where(missing, np.inf, np.maximum(values / unit, SHORTEST)), directed=False)
    longest = lengths[np.isfinite(lengths)].max()
    return np.where(missing, unit * np.minimum(lengths, longest), values).astype(values.dtype)
