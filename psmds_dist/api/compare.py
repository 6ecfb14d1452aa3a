"""Methods of scikit-learn on the same matrix, with stress measured the same way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from psmds_dist.api.embed import measure
from psmds_dist.core.layout import format_bytes
from psmds_dist.core.sources import RowSource
from psmds_dist.core.stress import Stress, canonical
from psmds_dist.core.types import BudgetError, Floats, InputError, Rows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor


@dataclass(frozen=True)
class Comparison:
    """A map computed by another method.

    Attributes
    ----------
    method : str
        Name of the method.
    embedding : (n, L) ndarray
        Coordinates in canonical orientation.
    stress : Stress
        Stress of the coordinates.
    seconds : float
        Wall time of the method alone.
    """

    method: str
    embedding: Floats
    stress: Stress
    seconds: float


def smacof(
    dissimilarities: Any,
    n_components: int = 2,
    *,
    random_state: int | None = None,
    max_iter: int = 300,
    eps: float = 1e-6,
    n_init: int = 1,
) -> Comparison:
    """Metric MDS by majorization, `sklearn.manifold.smacof`.

    Parameters
    ----------
    dissimilarities : (n, n) array_like
        Symmetric matrix, in memory.
    n_components, random_state, max_iter, eps, n_init
        As in `sklearn.manifold.smacof`.

    Returns
    -------
    Comparison
    """
    from sklearn.manifold import smacof as run

    matrix = np.asarray(dissimilarities, dtype=np.float64)
    began = time.perf_counter()
    embedding, _ = run(
        matrix,
        n_components=n_components,
        n_init=n_init,
        max_iter=max_iter,
        eps=eps,
        random_state=random_state,
    )
    return _compared("SMACOF", matrix, embedding, time.perf_counter() - began)


def classical_mds(dissimilarities: Any, n_components: int = 2) -> Comparison:
    """Classical (Torgerson) MDS, `sklearn.manifold.ClassicalMDS`.

    Parameters
    ----------
    dissimilarities : (n, n) array_like
        Symmetric matrix, in memory.
    n_components : int
        Dimensions.

    Returns
    -------
    Comparison
    """
    from sklearn.manifold import ClassicalMDS

    matrix = np.asarray(dissimilarities, dtype=np.float64)
    began = time.perf_counter()
    embedding = ClassicalMDS(n_components=n_components, metric="precomputed").fit_transform(matrix)
    return _compared("classical MDS", matrix, embedding, time.perf_counter() - began)


def load(source: RowSource) -> Floats:
    """Load a whole matrix into memory as float64, for `smacof` and `classical_mds`.

    Raises
    ------
    BudgetError
        If twice its size does not fit into free memory.
    InputError
        If pairs are missing.
    """
    import psutil

    need = 2 * 8 * source.n**2
    if need > psutil.virtual_memory().available:
        raise BudgetError(
            f"comparing needs {format_bytes(need)}, twice the size of the matrix, which is more than the free memory; "
            "compare on a smaller sample of points."
        )
    rows: Rows = np.empty((source.n, source.n), source.dtype)
    source.verified().read(0, source.n, rows)
    if np.isnan(rows.sum(dtype=np.float64)):
        raise InputError(
            "the methods to compare with need every pair, but some are missing (NaN); leave --compare out."
        )
    return rows.astype(np.float64)


def _compared(method: str, matrix: Floats, embedding: Floats, seconds: float) -> Comparison:
    oriented = canonical(embedding)
    stress = measure(ArrayRows(matrix, dtype="float64"), oriented, InProcessExecutor(), 32 * matrix.nbytes)
    return Comparison(method, oriented, stress, seconds)
