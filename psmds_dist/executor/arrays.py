"""Dask arrays as input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import Layout

TASK_BYTES = 2**24
"""Bytes of the array per task, about: each task takes Dask a millisecond, however small its block."""


def elementwise(function: Callable[..., Any], array: Any, other: Any) -> Any:
    """Dask array of a function of the chunks of two arrays, of the type of the first."""
    from dask.array import map_blocks

    return map_blocks(function, array, other.rechunk(array.chunks), dtype=array.dtype)


def write_dask_array(array: Any, write: Callable[[int, Any], object], layout: Layout, executor: Executor) -> None:
    """Compute a Dask array and call ``write(block, rows)`` for each block of its rows, where they are computed.

    Every Dask chunk is a whole number of blocks, so no two tasks write to the same chunk of a store.

    Parameters
    ----------
    array : dask.array.Array
        Two-dimensional, with the rows and columns of ``layout``.
    write : callable
        Takes the number of a block and its rows; sent to the workers.
    layout : Layout
        Blocks of the rows.
    executor : Executor
        Computes the array.
    """
    from dask.array import map_blocks

    blocks = max(1, TASK_BYTES // (layout.rows * layout.columns * array.dtype.itemsize))
    whole = array.rechunk((blocks * layout.rows, layout.columns))

    def one(part: Any, block_id: tuple[int, int]) -> Any:
        for k, lo in enumerate(range(0, len(part), layout.rows)):
            write(block_id[0] * blocks + k, part[lo : lo + layout.rows])
        return np.zeros((1, 1), bool)

    chunks = ((1,) * whole.numblocks[0], (1,))
    executor.compute(map_blocks(one, whole, dtype=bool, chunks=chunks, meta=np.zeros((0, 0), bool)))
