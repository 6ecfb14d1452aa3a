"""Squared distances by matrix products, as float32 where that is certain, in the thread that computes rows.

A value comes with a bound of its error. Where both ends of that interval round to the same float32, so does every
number between them, among them the one that a computation pair by pair in float64 gives.
"""

from __future__ import annotations

import numpy as np

from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import serial

UNDERFLOW = 1e-290
"""Error beside the relative one, larger than what squares of tiny numbers lose."""

UNSURE = np.float32(np.nan)
"""What stands for a distance that is not certain."""


@serial
def settle(
    products: Floats,
    a: Floats,
    b: Floats,
    share: float,
    form: tuple[bool, float],
    first: int,
    out: Rows,
    unsure: Ints,
) -> None:
    """Fill columns of ``out`` from ``first`` on with distances; those that are not certain become NaN.

    Parameters
    ----------
    products : (m, k) float64
        Inner products of points.
    a, b : (m,) and (k,) float64
        Their squared lengths.
    share : float
        Bound of the error of a squared distance, as a share of the sum of both squared lengths.
    form : (bool, float)
        Whether distances are roots, and what squared ones are multiplied with.
    first : int
        Column of the first product.
    out : (m, n) float32
        Distances.
    unsure : (m,) int64
        How many of each row are to be computed otherwise.
    """
    root, factor = form
    for i in range(products.shape[0]):
        count, own = 0, a[i]
        inner, row = products[i], out[i, first : first + products.shape[1]]
        for j in range(inner.size):
            both = own + b[j]
            value = both - 2 * inner[j]
            width = share * both + UNDERFLOW
            if root:
                value = np.sqrt(abs(value))
                width = width / value
            low, high = np.float32(factor * (value - width)), np.float32(factor * (value + width))
            row[j] = high if low == high else UNSURE  # also where there is no number
            count += 0 if low == high else 1
        unsure[i] = count
