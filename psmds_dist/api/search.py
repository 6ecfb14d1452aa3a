"""The search over many starts as the start of a solve; `psmds_dist.api.init` lists it."""

from __future__ import annotations

import math

import numpy as np

from psmds_dist.api.init import UNKEPT, Keeping, Start
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.executor import Executor
from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Floats, Rows
from psmds_dist.data.paired import middle_of
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.warm import warm_up_gradients, warm_up_multiply, warm_up_search
from psmds_dist.planning.cost import Job, Rates, Stage, searching
from psmds_dist.planning.memory import MemoryRequirement, with_search
from psmds_dist.solver.classical import classical_scaling
from psmds_dist.solver.completion import completed
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.search import Found, descents_of, search
from psmds_dist.solver.tasks import CachedRows

SETTLE = 0.05
"""First radius of the solve that settles what was found, as a share of the root mean square residual."""

LEAST = 1e-3
"""The same as a share of the scale, at least: maps without a residual have some way to go."""


class SearchStart:
    """Search on a small matrix, in this process: a cluster would spend its time on messages."""

    epochs = 8

    def __call__(
        self,
        source: RowSource,
        config: SolverConfig,
        executor: Executor,
        memory_limit: int,
        keeping: Keeping = UNKEPT,
    ) -> Start:
        """Find the start, the best map of many descents."""
        near = executor if isinstance(executor, InProcessExecutor) else InProcessExecutor()
        rows, scale = read_units(source, config.rule)
        classical = classical_of(rows, config.n_components + 1, config, near)
        with parallel_region(near.threads):
            found = self._search(rows, classical, config, keeping)
        radius = scale * max(SETTLE * found.stress, LEAST)
        return Start(scale * found.x, radius, found.name, found.evidence)

    def _search(self, rows: Rows, classical: Floats, config: SolverConfig, keeping: Keeping) -> Found:
        starts = None if isinstance(config.n_init, str) else config.n_init
        descents = starts or descents_of(len(rows), config.n_components, config.effort)
        return search(
            rows,
            classical,
            config.seed,
            descents=descents,
            starts=starts,
            early=config.effort != "best",
            rule=config.rule,
            stream=keeping.stream,
            on_progress=keeping.on_progress,
        )

    def warm_up(self, config: SolverConfig, dtype: str, executor: Executor) -> None:
        """Compile what finding the start calls, in this process."""
        warm_up_multiply("float32")
        warm_up_search(config.n_components, config.rule)
        arithmetic = ("float32", "float64") if config.rule.plain else ("float64",)
        warm_up_gradients(config.n_components, "float32", config.rule, arithmetic)

    def memory(self, solve: MemoryRequirement, dims: int, workers: int, *, here: bool) -> MemoryRequirement:
        """What a solve needs that begins here."""
        return with_search(solve, dims) if here else solve

    def passes(self, n: int) -> int:
        """Passes over the matrix: one that reads it."""
        return 1

    def stages(self, job: Job, rates: Rates) -> list[Stage]:
        """What finding the start takes."""
        return searching(job, rates, descents_of(job.n, job.dims, "default"))


def read_units(source: RowSource, rule: PairRule) -> tuple[Rows, float]:
    """All rows, with dissimilarities as multiples of the root mean square of those that are known, and that."""
    rows: Rows = np.empty(source.shape, source.dtype)
    for block in range(source.layout.count):  # in the portions that the plan of memory knows
        lo, hi = source.layout.bounds(block)
        source.read(lo, hi, rows[lo:hi])
    for part in range(1 + rule.bounded):
        np.fill_diagonal(rows[:, part * source.n :], 0)
    values = rows[:, : (1 + rule.bounded) * source.n]
    largest = float(np.nanmax(_estimates(rows, rule)))
    values /= largest  # squares of extreme numbers overflow or vanish
    share = math.sqrt(_mean_square(_estimates(rows, rule)))
    values /= share
    return rows.astype(np.float32, copy=False), largest * share


def _estimates(rows: Rows, rule: PairRule) -> Rows:
    """One dissimilarity for each pair, NaN where it is missing."""
    n = len(rows)
    values = middle_of(rows, n, rule)
    if rule.weighted:
        values = np.where(rows[:, -n:] > 0, values, np.nan)
        np.fill_diagonal(values, 0)
    return values


def _mean_square(values: Rows) -> float:
    """Mean square of the entries that are known, without the diagonal."""
    n = len(values)
    total, pairs = float(np.einsum("ij,ij->", values, values, dtype=np.float64)), n * (n - 1)
    if math.isnan(total):
        known = values[~np.isnan(values)].astype(float)
        total, pairs = float(known @ known), known.size - n
    return total / pairs


def classical_of(rows: Rows, axes: int, config: SolverConfig, executor: InProcessExecutor) -> Floats:
    """Map by classical scaling of rows as `read_units` returns them, with estimates of missing dissimilarities.

    Axes for which there are too few points are zero.
    """
    matrix = completed(_estimates(rows, config.rule))
    cached = CachedRows(ArrayRows(matrix, "float32"), budget=2 * matrix.nbytes)
    x = classical_scaling(Objective(cached, executor), min(axes, len(rows) - 1), config.seed).x
    return np.pad(x, ((0, 0), (0, axes - x.shape[1])))


start = SearchStart()
"""The object that the list of starts names."""
