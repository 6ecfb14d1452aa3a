"""Other methods on the same matrix, through scikit-learn, with stress measured the same way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from psmds_dist.api.embed import measure
from psmds_dist.core.layout import format_bytes
from psmds_dist.core.sources import RowSource
from psmds_dist.core.stress import Stress, canonical
from psmds_dist.core.types import BudgetError, Floats, Rows
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor


@dataclass(frozen=True)
class Comparison:
    """A map by another method.

    Attributes
    ----------
    method : str
        Its name.
    embedding : (n, L) ndarray
        Coordinates in canonical position.
    stress : Stress
        Stress of these coordinates.
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
    """Metric MDS by majorisation, `sklearn.manifold.smacof`.

    Parameters
    ----------
    dissimilarities : (n, n) array_like
        Symmetric matrix, in memory.
    n_components, random_state, max_iter, eps, n_init
        As there.

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
    """Read a whole matrix into memory as float64, which these methods need.

    Raises
    ------
    BudgetError
        When twice that does not fit into what is free.
    """
    import psutil

    need = 2 * 8 * source.n**2
    if need > psutil.virtual_memory().available:
        raise BudgetError(
            f"comparing needs the whole matrix in memory twice, {format_bytes(need)}, more than is free: "
            "compare on a smaller sample of points."
        )
    rows: Rows = np.empty((source.n, source.n), source.dtype)
    source.verified().read(0, source.n, rows)
    return rows.astype(np.float64)


def _compared(method: str, matrix: Floats, embedding: Floats, seconds: float) -> Comparison:
    position = canonical(embedding)
    stress = measure(ArrayRows(matrix, dtype="float64"), position, InProcessExecutor(), 32 * matrix.nbytes)
    return Comparison(method, position, stress, seconds)
