"""Compiling the kernels of landmark mode ahead."""

from __future__ import annotations

import numpy as np

from landmarks import kernels
from landmarks.solver.placement import PlacementModel, place
from psmds_dist.core.config import SolverConfig
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.warm import warm_up_gradients, warm_up_multiply, warm_up_search, warm_up_solver


def warm_up_landmarks(n_components: int, dtype: str) -> None:
    """Compile what a landmark fit will call, on a simplex."""
    warm_up_solver(n_components, dtype, n_components, SolverConfig(n_components=n_components).guided)
    warm_up_multiply("float32")
    warm_up_search(n_components)
    warm_up_gradients(n_components + 1, "float32", arithmetic=("float32", "float64"))
    size = n_components + 2
    frame = PlacementModel.of(np.eye(size, n_components), 1.0)
    rows = np.ones((2, size), dtype)
    with parallel_region():
        x = place(rows, np.arange(2), frame)[0]
        for arithmetic in {rows.dtype, np.dtype(np.float64)}:  # radii too small for float32 are tried in float64
            y = frame.y.astype(arithmetic)
            kernels.search(rows, np.arange(2), y, x, np.zeros(2), 1.0, 1.0, 1)
            kernels.pull_landmarks(rows, np.arange(2), x.astype(arithmetic), y, 0.1)
