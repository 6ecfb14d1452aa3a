"""Maps from one dimension more: points pass each other along an axis that is squeezed to nothing.

In few dimensions the error rises where a point passes others, so that a descent ends in the basin that it began in.
With an axis more points pass each other freely. A map of all these axes settles by majorization (the Guttman transform
of SMACOF); then its last axis shrinks a little after each sweep, until the map is flat. That is nearly the best map of
digits, wine or breast cancer, where most random starts end 1 to 5 % above it.
"""

from __future__ import annotations

import numpy as np

from psmds_dist.core.types import Floats, Rows
from psmds_dist.kernels.pairs import PairKernels

SETTLING = 5
"""Sweeps before the last axis shrinks."""


def flattened(kernels: PairKernels, rows: Rows, x: Floats, dims: int, sweeps: int) -> Floats:
    """Squeeze a map flat; same bits for any number of threads.

    Parameters
    ----------
    kernels : PairKernels
        What a pair costs, a squared error.
    rows : (n, k n) float32
        As for `psmds_dist.solver.search.search`.
    x : (more than L, n) ndarray
        Coordinates with axes to be lost.
    dims : int
        Axes to keep, ``L``: the first ones.
    sweeps : int
        Sweeps until the others are gone, of a size that falls evenly.

    Returns
    -------
    (L, n) ndarray
        Coordinates.
    """
    points, steps = np.arange(x.shape[1]), kernels.steps(rows, x)
    x = np.array(x, steps.dtype, order="C")

    def sweep() -> None:
        _, gradients = kernels.row_gradients(rows, points, points, x)
        x[:] -= steps * gradients.T

    for _ in range(SETTLING):
        sweep()
    first = _size(x[dims:])
    for left in range(sweeps - 1, -1, -1):
        sweep()
        size, target = _size(x[dims:]), first * left / sweeps
        if size > target:
            x[dims:] *= target / size
    return x[:dims].astype(float)


def _size(x: Rows) -> float:
    return float(np.sqrt(np.square(x, dtype=float).sum()))
