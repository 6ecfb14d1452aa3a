"""Stress of a map that any program has made."""

from __future__ import annotations

import os
from typing import Any

from psmds_dist.api import embed
from psmds_dist.api.estimator import executor_for
from psmds_dist.api.inputs import paired_rows
from psmds_dist.core.arrays import is_frame, numbers_of
from psmds_dist.core.rules import PairRule
from psmds_dist.core.stress import Stress
from psmds_dist.data.coordinates import Coordinates, read_coordinates
from psmds_dist.data.ids import check_ids


def measure(
    X: Any,
    embedding: Any,
    *,
    weights: Any = None,
    upper: Any = None,
    loss: str = "squared",
    weight_power: float = 0.0,
    dtype: str = "float32",
    cluster: Any = None,
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
) -> Stress:
    """Measure the stress of any map of a matrix.

    Parameters
    ----------
    X : ndarray, data frame, zarr.Array, dask.array.Array, RowSource, or path of a Zarr store or .npy file; (n, n)
        Dissimilarities, as `PatternSearchMDS.fit` takes them.
    embedding : (n, L) array_like, data frame, or path of a .csv, .tsv or .npy file
        Coordinates, in units of the dissimilarities. If they and the matrix have names, the names are matched;
        otherwise the points are in the order of the matrix. See `psmds_dist.data.coordinates.read_coordinates`.
    weights, upper : like X, optional
        Weights of the pairs, and upper bounds of the dissimilarities, as in `PatternSearchMDS.fit`.
    loss : str, default="squared"
        What a pair costs, as in `PatternSearchMDS`; tells ``error`` of the result.
    weight_power : float, default=0.0
        Weigh each pair by this power of its dissimilarity, as in `PatternSearchMDS`.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows.
    cluster : str, distributed.Client or Dask cluster, default=None
        Who does the work, as in `PatternSearchMDS`. None works in this process.
    memory_limit : int or str, default=None
        Bytes a worker (or this process) may take, as in `PatternSearchMDS`.
    n_jobs : int, default=None
        Kernel threads in this process; None or -1 takes all.

    Returns
    -------
    Stress
        Stress under its several names, and that of each point in the order of the matrix.

    Raises
    ------
    InputError
        (a ValueError) When matrix or coordinates cannot be used, or their names differ.
    BudgetError
        (a MemoryError) When it cannot be done within ``memory_limit``.

    Examples
    --------
    >>> from psmds_dist import measure
    >>> measure([[0, 3, 5], [3, 0, 4], [5, 4, 0]], [[0, 0], [3, 0], [3, 4]]).normalized_stress
    0.0
    """
    rule = PairRule(loss, power=weight_power, weighted=weights is not None, bounded=upper is not None)
    with (
        executor_for(cluster, n_jobs) as executor,
        paired_rows(X, weights, upper, executor, dtype=dtype) as (source, names),
    ):
        coordinates = _coordinates(embedding, source.n, names)
        return embed.measure(source, coordinates, executor, memory_limit, rule)


def _coordinates(given: Any, n: int, ids: list[str] | None) -> Any:
    """Coordinates in the order of the matrix, if they have names."""
    if isinstance(given, str | os.PathLike):
        return read_coordinates(given, n, ids).values
    if not is_frame(given):
        return given
    values, names = numbers_of(given, "embedding"), list(given.index)
    if len(values) != n or names == list(range(n)):
        return values
    return Coordinates("embedding", values, check_ids(names, n, "the index of embedding")).ordered(ids).values
