"""Compiling ahead: what a worker does before its first round, or what loads the compiled code from disk."""

from __future__ import annotations

import numpy as np

from psmds_dist.kernels.guided import guide
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.moves import propose, row_sums
from psmds_dist.kernels.scan import SKETCHES, scan_rows


def warm_up_solver(n_components: int, dtype: str, axes: int, guided: bool = False) -> None:
    """Compile what a solve will call, on a matrix of four points."""
    rows = np.zeros((4, 4), dtype)
    points = np.arange(4)
    x = np.zeros((n_components, 4))
    with parallel_region():
        for arithmetic in {dtype, "float64"}:
            for moves in (propose, guide) if guided else (propose,):  # a guided solve ends or begins along axes
                moves(rows, points, points, x.astype(arithmetic), 1.0, np.arange(axes))
        row_sums(rows, points, points, x)


def warm_up_scan(dtype: str) -> None:
    """Compile the input check, on a matrix of four points."""
    with parallel_region():
        scan_rows(np.zeros((4, 4), dtype), 0, np.ones((SKETCHES, 4)), np.zeros((SKETCHES, 4)))
