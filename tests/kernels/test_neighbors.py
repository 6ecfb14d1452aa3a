"""The kernel of quality measures beside its definition, with ties."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist, squareform

from psmds_dist.kernels.neighbors import rate_rows


def order_of(values, i):
    """Other points by value; of equal values the lower point comes first."""
    return [int(j) for j in np.lexsort((np.arange(values.size), values)) if j != i]


def penalty(values, chosen, i):
    """Sum of the ranks of the chosen points beyond their number."""
    order = order_of(values, i)
    return sum(max(0, order.index(j) + 1 - len(chosen)) for j in chosen)


@pytest.mark.parametrize(("dtype", "unit"), [("f4", 1.0), ("f8", 0.25)])
@pytest.mark.parametrize("k", [1, 4, 11])
def test_rows_are_rated_by_definition(dtype, unit, k):
    rng = np.random.default_rng(k)
    n = 25
    x = rng.integers(0, 5, (n, 2)).astype(float)  # distances repeat, some are zero
    t = squareform(rng.integers(0, 9, n * (n - 1) // 2)).astype(dtype)
    t[np.arange(n), np.arange(n)] = 7  # whatever stands on the diagonal plays no part
    points = rng.permutation(n)[:20]
    slots = np.arange(20)[::-1].copy()
    sums, penalties, nearest = rate_rows(t[points[::-1]], slots, points, np.ascontiguousarray(x.T), unit, k)
    squares = squareform(pdist(x, "sqeuclidean"))
    for row, i in enumerate(points):
        near, around = order_of(squares[i], i)[:k], order_of(t[i], i)[:k]
        assert_array_equal(nearest[row], near)
        assert penalties[row].tolist() == [penalty(t[i], near, i), penalty(squares[i], around, i)]
        others = np.arange(n) != i
        given, square = unit * t[i, others].astype(float), squares[i, others]
        d = np.sqrt(square)
        terms = ((given - d) ** 2, square, given**2, given, d, given * d, given**4, (given**2 - square) ** 2)
        assert_allclose(sums[row], [term.sum() for term in terms], rtol=1e-13)
