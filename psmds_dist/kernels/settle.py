"""Squared distances by matrix products, as float32 where that is certain, in the thread that computes rows.

A value comes with a bound of its error. Where both ends of that interval round to the same float32, so does every
number between them, among them the one that a computation pair by pair in float64 gives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, Rows
from psmds_dist.kernels.jit import serial

UNDERFLOW = 1e-290
"""Error beside the relative one, larger than what squares of tiny numbers lose."""


@serial
def settle(
    products: Floats,
    a: Floats,
    b: Floats,
    share: float,
    form: tuple[bool, float],
    first: int,
    out: Rows,
    unsure: NDArray[np.bool_],
) -> None:
    """Fill columns of ``out`` from ``first`` on with distances, and mark those that are not certain.

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
    out, unsure : (m, n) float32 and bool
        Distances, and whether they are to be computed otherwise.
    """
    root, factor = form
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            both = a[i] + b[j]
            value = both - 2 * products[i, j]
            width = share * both + UNDERFLOW
            if root:
                value = np.sqrt(abs(value))
                width = width / value
            low, high = np.float32(factor * (value - width)), np.float32(factor * (value + width))
            out[i, first + j] = high
            unsure[i, first + j] = low != high  # also where there is no number
