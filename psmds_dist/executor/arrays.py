"""Dask arrays as input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from psmds_dist.executor.in_process import InProcessExecutor
from psmds_dist.executor.on_dask import DaskExecutor


def write_dask_array(
    array: Any, write: Callable[[int, Any], object], rows: int, executor: InProcessExecutor | DaskExecutor
) -> None:
    """Compute a Dask array in blocks of whole rows and hand each to ``write(block, rows)``, where it is.

    Every Dask chunk is exactly one block, so no two tasks ever write to the same chunk of a store.
    """
    from dask.array import map_blocks

    def one(part: Any, block_id: tuple[int, int]) -> Any:
        write(block_id[0], part)
        return np.zeros((1, 1), bool)

    whole = array.rechunk((rows, array.shape[1]))
    chunks = ((1,) * whole.numblocks[0], (1,))
    executor.compute(map_blocks(one, whole, dtype=bool, chunks=chunks, meta=np.zeros((0, 0), bool)))
