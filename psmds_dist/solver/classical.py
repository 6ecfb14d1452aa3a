"""Classical scaling (Torgerson) in a few passes over the rows: a start for pattern search.

The axes of its map are the leading eigenvectors of ``B = -1/2 J T^2 J``, where ``T^2`` holds the squared
dissimilarities and ``J`` centres. ``B`` is never formed: a pass multiplies a block of vectors with it, and the
eigenpairs are those of ``B`` within the span of the blocks of all passes (block Lanczos, every block orthogonal to all
others). That span finds both ends of the spectrum, so that the large negative eigenvalues of data that are not
Euclidean do no harm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from psmds_dist.core.layout import Layout
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.types import Floats
from psmds_dist.kernels.multiply import TOGETHER
from psmds_dist.solver.epoch import Objective
from psmds_dist.utils.blas import one_thread

EXTRA_VECTORS = 5
"""Fewest vectors of a block beyond the axes of the map. With 6 of them three passes come within 0.1 % of the stress of
the exact map on digits and 0.5 % on word vectors, with 2 within 0.3 % and 1.5 %."""

PASSES = 3
"""Passes over a large matrix. The stress of the map is above that of the exact one by 3 to 7 % after two of them on
digits and word vectors, by at most 0.5 % after three and 0.01 % after four, in two dimensions; on pure noise by 7, 4
and 2 %. A pass costs as much as an epoch, which gains more by then."""

SMALL_BYTES = 2**24
"""Largest matrix, counted in float32, whose passes are so cheap that they continue until the map is exact."""

MOST_PASSES = 16
"""Most passes over a small matrix. Real data took 3 to 13; only noise, whose eigenvalues are dense, takes more."""

CONVERGED = 1e-7
"""Residual, as a share of the largest eigenvalue, at which an eigenpair is exact: coordinates are then so to 1e-6."""

DEPENDENT = 1e-12
"""Length, as a share of the eigenvalue of largest magnitude, at which what a pass adds to the span is rounding."""

ZERO_EIGENVALUE = 1e-10
"""Eigenvalue, as the same share, that is rounding."""

MISSING_AXIS = 1e-3
"""Standard deviation of coordinates along an axis without a positive eigenvalue, as a share of the scale. Were they
zero, guided moves could not leave the subspace of the others."""


class ClassicalMap(NamedTuple):
    """A map from classical scaling."""

    x: Floats
    """Coordinates, ``(n, L)``: centred, axes in order of falling eigenvalues."""

    scale: float
    """Root mean square dissimilarity."""


def block_vectors(n: int, n_components: int) -> int:
    """Vectors that a pass multiplies with the matrix: as many as the kernel takes together, where there are."""
    return min(n - 1, TOGETHER * math.ceil((n_components + EXTRA_VECTORS) / TOGETHER))


def most_passes(n: int) -> int:
    """Most passes over a matrix of ``n`` points."""
    return MOST_PASSES if 4 * n * n <= SMALL_BYTES else PASSES


def classical_scaling(objective: Objective, n_components: int, seed: int) -> ClassicalMap:
    """Map by classical scaling, to the same bits whoever multiplies.

    Parameters
    ----------
    objective : Objective
        The matrix, symmetric with finite entries, and who works on it.
    n_components : int
        Dimensions of the map, below the number of points.
    seed : int
        Key of the random vectors to begin with.

    Returns
    -------
    ClassicalMap
        Exact to about 1e-6 where the matrix is small, see `SMALL_BYTES`; from `PASSES` passes otherwise. Axes that the
        data do not have, for want of positive eigenvalues, hold a little noise.
    """
    layout = objective.rows.layout
    span = _Span([_random_block(layout, n_components, seed)])
    products = objective.multiply_squares(np.vstack([np.ones(layout.n), span.blocks[0]]))
    scale = math.sqrt(float(products[0].sum()) / (layout.n * (layout.n - 1)))
    unit = -2 * scale * scale or 1.0  # numbers near 1, whose squares neither overflow nor vanish
    span.project(products[1:] / unit)
    for _ in range(1, most_passes(layout.n)):
        if not span.extend(n_components):
            break
        span.project(objective.multiply_squares(span.blocks[-1]) / unit)
    noise = generator(seed, RandomStream.MISSING_AXES).standard_normal((layout.n, n_components))
    return ClassicalMap(scale * span.fill_axes(MISSING_AXIS * noise), scale)


def _random_block(layout: Layout, n_components: int, seed: int) -> Floats:
    """Orthonormal vectors to begin with, centred."""
    shape = block_vectors(layout.n, n_components), layout.n
    block = _centred(generator(seed, RandomStream.BLOCK).standard_normal(shape))
    with one_thread():
        return _orthonormal(block)


def _centred(block: Floats) -> Floats:
    """Vectors, one a line, less their means; changed in place."""
    block -= block.mean(axis=1, keepdims=True)
    return block


def _orthonormal(block: Floats, least: float = 0.0) -> Floats:
    """Orthonormal vectors with the span of a block, without directions in which it is no longer than ``least``."""
    from scipy.linalg import qr

    q, r, _ = qr(block.T, mode="economic", pivoting=True, check_finite=False)
    return np.ascontiguousarray(q.T[np.abs(np.diag(r)) > least])


class _Span:
    """Orthonormal blocks of vectors, ``B`` within their span, and what ``B`` makes of the last block."""

    def __init__(self, blocks: list[Floats]) -> None:
        self.blocks = blocks
        self._within: Floats = np.empty((0, 0))
        self._product: Floats = np.empty(0)

    def project(self, products: Floats) -> None:
        """Take in ``-1/2 T^2`` times the last block: that is centred, so that one side is left to centre."""
        self._product = _centred(products)
        with one_thread():
            column = np.vstack([block @ self._product.T for block in self.blocks])
        size, new = column.shape
        whole = np.zeros((size, size))
        whole[: size - new, : size - new] = self._within
        whole[size - new :] = column.T
        whole[:, size - new :] = column  # eigh takes one triangle: the two differ by rounding
        self._within = whole

    def extend(self, wanted: int) -> bool:
        """Add what is new in the last product as another block, unless the leading eigenpairs are exact already."""
        with one_thread():
            rest = self._without(self._product)
            values, vectors = _eigen(self._within)
            residuals = vectors[-len(self._product) :, :wanted].T @ rest
            exact = np.sqrt(np.square(residuals).sum(axis=1)).max() <= CONVERGED * values[0]
            new = _orthonormal(rest, DEPENDENT * np.abs(values).max())
            if exact or not len(new):
                return False
            # twice is enough: what rounding left of the others in a short vector is gone after the second time
            self.blocks.append(_orthonormal(self._without(new)))
            return True

    def _without(self, block: Floats) -> Floats:
        """Vectors without their parts in the span, and centred: an uncentred part would grow with every pass."""
        rest = _centred(block.copy())
        for other in self.blocks:
            rest -= (rest @ other.T) @ other
        return rest

    def fill_axes(self, x: Floats) -> Floats:
        """Put coordinates along the leading eigenvectors into the columns for which there is a positive eigenvalue."""
        with one_thread():
            values, vectors = _eigen(self._within)
            for axis in np.flatnonzero(values[: x.shape[1]] > ZERO_EIGENVALUE * np.abs(values).max()):
                parts = np.split(vectors[:, axis] * math.sqrt(values[axis]), self._ends())
                x[:, axis] = sum(part @ block for part, block in zip(parts, self.blocks, strict=True))
                x[:, axis] *= math.copysign(1.0, x[np.abs(x[:, axis]).argmax(), axis])
        return x

    def _ends(self) -> Sequence[int]:
        """Where the vectors of one block end and those of the next begin."""
        return np.cumsum([len(block) for block in self.blocks])[:-1].tolist()  # type: ignore[no-any-return]


def _eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues in falling order, and eigenvectors."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors[:, ::-1]
