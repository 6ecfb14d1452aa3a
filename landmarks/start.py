"""A start for exact mode: everybody placed against landmarks. Offered under the entry point ``psmds.starts``."""

from __future__ import annotations

from landmarks.panel.data import USUAL, MatrixData
from landmarks.solver.fit import fit
from landmarks.solver.multilevel import LEAST
from landmarks.solver.refine import polish_radius
from landmarks.solver.types import LandmarkConfig
from landmarks.solver.warm import warm_up_landmarks
from psmds_dist.api.init import Start
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import InputError
from psmds_dist.executor import InProcessExecutor

SHARE = 8
"""One point in so many is a landmark, from 300 landmarks up to the usual number."""


class LandmarkStart:
    """Embed landmarks and place everybody else, without a pass over the matrix.

    That is little work, all of it done in this process: a cluster would need a shared place for the panel first.
    Raises InputError or BudgetError where landmarks do not do (all alike, say) or do not fit into memory.
    """

    def __call__(self, source: RowSource, config: SolverConfig, executor: Executor, memory_limit: int) -> Start:
        """Find the start."""
        near = executor if executor.in_process else InProcessExecutor()
        settings = LandmarkConfig(
            n_components=config.n_components,
            n_landmarks=max(min(LEAST, source.n), min(USUAL, source.n // SHARE)),
            seed=config.seed,
            evaluate=False,
            rough=True,
        )
        data = MatrixData(source)
        try:
            found = fit(data.trusted(), settings, near, memory_limit=memory_limit)
        except InputError:  # rows that are damaged say so where checksums are tested
            found = fit(data, settings, near, memory_limit=memory_limit)
        return Start(found.embedding, polish_radius(found.residual_rms, found.frame.scale))

    def warm_up(self, config: SolverConfig, dtype: str) -> None:
        """Compile what finding the start calls."""
        warm_up_landmarks(config.n_components, dtype)


start = LandmarkStart()
"""What the entry point offers."""
