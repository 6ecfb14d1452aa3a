"""Classical scaling as a start; `psmds_dist.api.init` lists it."""

from __future__ import annotations

from functools import partial

from psmds_dist.api.init import UNKEPT, Keeping, Start, memory_of_run
from psmds_dist.api.search import classical_of, read_units
from psmds_dist.core.config import SMALL_POINTS, SolverConfig
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import InputError
from psmds_dist.data.paired import as_matrix
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels.warm import warm_up_multiply
from psmds_dist.planning.cost import Job, Rates, Stage, multiplication
from psmds_dist.planning.memory import MemoryRequirement, with_multiplication
from psmds_dist.solver.classical import block_vectors, classical_scaling, most_passes
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.tasks import CachedRows

FIRST_RADIUS = 0.2
"""First radius of the solve, as a share of the scale: wide enough to leave a shallow minimum, not the shape. A tenth
ended 0.1 to 0.7 % higher on wine, breast cancer, digits and word vectors; three tenths and a half were no better."""


class ClassicalStart:
    """Map by classical scaling, in a few passes over the matrix, by all who work."""

    epochs = 26

    def __call__(
        self,
        source: RowSource,
        config: SolverConfig,
        executor: Executor,
        memory_limit: int,
        keeping: Keeping = UNKEPT,
    ) -> Start:
        """Find the start; the rows that are cached on the way are those that the solve goes on with."""
        if config.rule.gaps:
            return _from_known_pairs(source, config)
        budget = memory_of_run("classical", source, config, executor).budget(memory_limit)
        objective = Objective(CachedRows(as_matrix(source, config.rule), budget), executor)
        found = classical_scaling(objective, config.n_components, config.seed)
        return Start(found.x, FIRST_RADIUS * found.scale)

    def warm_up(self, config: SolverConfig, dtype: str, executor: Executor) -> None:
        """Compile what finding the start calls, wherever there is work."""
        executor.warm_up(partial(warm_up_multiply, dtype))

    def memory(self, solve: MemoryRequirement, dims: int, workers: int, *, here: bool) -> MemoryRequirement:
        """What a solve needs that begins here."""
        n = solve.rows.layout.n
        return with_multiplication(solve, block_vectors(n, dims), most_passes(n), workers, here=here)

    def passes(self, n: int) -> int:
        """Most passes over a matrix of ``n`` points."""
        return most_passes(n)

    def stages(self, job: Job, rates: Rates) -> list[Stage]:
        """What finding the start takes."""
        return multiplication("classical scaling", job, rates, block_vectors(job.n, job.dims), most_passes(job.n))


def _from_known_pairs(source: RowSource, config: SolverConfig) -> Start:
    """Start from a small matrix with gaps, in this process."""
    if source.n > SMALL_POINTS:
        raise InputError(
            f"init='classical' needs every pair of {source.n} points, and estimates missing ones for at most "
            f"{SMALL_POINTS}: use init='landmarks' or init='random'."
        )
    rows, scale = read_units(source, config.rule)
    x = classical_of(rows, config.n_components, config, InProcessExecutor())
    return Start(scale * x, FIRST_RADIUS * scale)


start = ClassicalStart()
"""The object that the list of starts names."""
