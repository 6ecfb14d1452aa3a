"""A start for exact mode: all points placed against landmarks. Offered under the entry point ``psmds.starts``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from landmarks.panel.data import MatrixData
from landmarks.solver.cost import start_stages
from landmarks.solver.fit import fit
from landmarks.solver.memory import fit_memory
from landmarks.solver.multilevel import MOST_SQUEEZED
from landmarks.solver.refine import polish_radius
from landmarks.solver.types import LandmarkConfig
from landmarks.solver.warm import warm_up_landmarks
from psmds_dist.api.init import UNKEPT, Keeping, Start
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import InputError
from psmds_dist.data.paired import as_matrix
from psmds_dist.executor import InProcessExecutor
from psmds_dist.planning.cost import Job, Rates, Stage
from psmds_dist.planning.memory import MemoryRequirement, RowStorage

STARTING = MOST_SQUEEZED
"""Landmarks, where there are as many points. Which ones they are decides the basin of the map: that of 1,000 is another
one for one seed of ten on handwritten digits (0.5 % worse), images and clusters, that of 2,000 for none."""

FIRST_RADIUS = 0.5
"""First radius of the solve, as a share of that of a refinement: the start is that good."""


class LandmarkStart:
    """Embed landmarks and place all other points, without a pass over the matrix.

    That is little work, all of it done in this process: a cluster would need a shared place for the panel first.
    Raises InputError or BudgetError where landmarks do not suit the data (all alike, say) or do not fit into memory.
    """

    epochs = 8

    def __call__(
        self,
        source: RowSource,
        config: SolverConfig,
        executor: Executor,
        memory_limit: int,
        keeping: Keeping = UNKEPT,
    ) -> Start:
        """Find the start."""
        near = executor if executor.in_process else InProcessExecutor()
        settings = LandmarkConfig(
            n_components=config.n_components,
            n_landmarks=min(STARTING, source.n),
            n_init=1,
            seed=config.seed,
            evaluate=False,
            rough=True,
        )
        data = MatrixData(as_matrix(source, config.rule))
        try:
            found = fit(data.trusted(), settings, near, memory_limit=memory_limit)
        except InputError:  # may come of damaged rows, which are reported where checksums are tested
            found = fit(data, settings, near, memory_limit=memory_limit)
        return Start(found.embedding, FIRST_RADIUS * polish_radius(found.residual_rms, found.frame.scale))

    def warm_up(self, config: SolverConfig, dtype: str, executor: Executor) -> None:
        """Compile what finding the start calls, in this process."""
        warm_up_landmarks(config.n_components, dtype)

    def memory(self, solve: MemoryRequirement, dims: int, workers: int, *, here: bool) -> MemoryRequirement:
        """What the solve needs, or the landmarks before it: their fit plans its memory again, with what it knows then.

        Rows of a solve may take two bytes a number, but not those of landmarks; points may have names.
        """
        n, wide = solve.rows.layout.n, max(solve.rows.itemsize, np.dtype(np.float32).itemsize)
        fit = fit_memory(RowStorage(Layout(n, min(STARTING, n)), wide), dims, named=True, of_matrix=True)
        remedies = (*solve.remedies, "begin at random (--init random)")
        return replace(solve, apart=max(solve.apart, fit.min_limit), remedies=remedies)

    def passes(self, n: int) -> int:
        """Passes over the matrix: none, as only some of its rows are read."""
        return 0

    def stages(self, job: Job, rates: Rates) -> list[Stage]:
        """What finding the start takes."""
        return start_stages(job, rates, min(STARTING, job.n))


start = LandmarkStart()
"""The object that the entry point names."""
