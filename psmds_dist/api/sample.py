"""A start for large matrices with gaps: a map of a sample, and all others placed against it; `api.init` lists it.

Landmarks have to know each other, which they do not where pairs are missing at random, or in blocks. Parts that few
pairs join are turned in the map of the sample, which is polished: all that joins them is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.init import UNKEPT, Keeping, Start, memory_of_run
from psmds_dist.api.search import LEAST, classical_of, read_units
from psmds_dist.api.search import start as search_start
from psmds_dist.core.config import SMALL_POINTS, SolverConfig
from psmds_dist.core.executor import Executor
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.rules import PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.data.paired import ArrayTable, middle_of
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.connected import subset_of
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.pairs import kernels_of
from psmds_dist.planning.cost import Job, Rates, Stage, searching
from psmds_dist.planning.memory import MemoryRequirement, RowStorage, exact, require, with_search
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.parts import known_pairs, weak_parts
from psmds_dist.solver.polish import polished
from psmds_dist.solver.search import descents_of, search
from psmds_dist.solver.tasks import CachedRows, CountLinks, gather
from psmds_dist.utils.blas import one_thread

SAMPLE = 1000
"""Points of the sample: a search takes a second."""

LOOKED_AT = 400
"""Points among which parts are looked for."""

LINKING = 200
"""Most points of a part that are in the sample because they know points of another part."""

STRIP = 32
"""Rows that are read at a time; sums over strips are of the same bits everywhere."""

FEWEST_KNOWN = 4
"""Known pairs, as a multiple of the dimensions, that a point of the sample must have there, on average."""


WORST = 0.1
"""Most stress of the sample. Beyond, random starts end lower: by 2 to 5 % on uniform points in six dimensions and on
clusters in four batches, at a stress of 0.24 to 0.32."""

FIRST_RADIUS = 1.0
"""First radius of the solve, as a share of the root mean square residual in the sample."""


class SampleStart:
    """A search on a sample, and linear placement of all other points."""

    epochs = 8

    def __call__(
        self,
        source: RowSource,
        config: SolverConfig,
        executor: Executor,
        memory_limit: int,
        keeping: Keeping = UNKEPT,
    ) -> Start:
        """Find the start.

        Raises
        ------
        InputError
            When points know too few others, or no map fits them.
        BudgetError
            When the sample does not fit into memory.
        """
        if source.n <= SMALL_POINTS:
            raise InputError(f"init='sample' is for more than {SMALL_POINTS} points; use init='auto'.")
        dims, rule = config.n_components, config.rule
        require(memory_limit, self._needs(source, config))
        sample = _sample(source, config, executor, memory_limit)
        known = np.concatenate([known_pairs(rows, rule)[:, sample] for _, rows in _strips(source, sample)]).sum(axis=1)
        if known.mean() < 1 + FEWEST_KNOWN * dims:
            raise InputError("too few pairs are known for a map of a sample of the points: use init='random'.")
        sample = sample[known > 1 + dims]  # others have no place of their own in it
        rows, scale = read_units(subset_of(source, sample), rule)
        near = executor if isinstance(executor, InProcessExecutor) else InProcessExecutor()
        y, radius = _searched(rows, config, near)
        return Start(scale * _placed(source, sample, y, scale, config), scale * radius)

    def _needs(self, source: RowSource, config: SolverConfig) -> MemoryRequirement:
        """What finding the start takes in this process, beside the coordinates."""
        n, dims, columns = source.n, config.n_components, source.shape[1]
        sample = subset_of(source, np.arange(min(n, SAMPLE)))
        rows = RowStorage(sample.layout, source.dtype.itemsize, resident=True)
        parts = {
            "known pairs of a sample": 4 * LOOKED_AT * n,
            "sums over it": 8 * n * (dims + 2) * (dims + 3),
            "rows of it": 2 * source.dtype.itemsize * STRIP * columns,
        }
        needs = with_search(exact(rows, dims), dims)
        return replace(
            needs,
            what=f"a start from {SAMPLE:,} of {n:,} points",
            parts={**needs.parts, **parts},
            remedies=("begin at random (--init random)",),
        )

    def warm_up(self, config: SolverConfig, dtype: str, executor: Executor) -> None:
        """Compile what finding the start calls, in this process."""
        search_start.warm_up(config, dtype, executor)

    def memory(self, solve: MemoryRequirement, dims: int, workers: int, *, here: bool) -> MemoryRequirement:
        """What the solve needs: the start comes before it, and plans its own memory."""
        return solve

    def passes(self, n: int) -> int:
        """Passes over the matrix: one, where there are parts."""
        return 1

    def stages(self, job: Job, rates: Rates) -> list[Stage]:
        """What finding the start takes."""
        return searching(replace(job, n=min(job.n, SAMPLE)), rates, descents_of(SAMPLE, job.dims, "default"))


def _searched(rows: Rows, config: SolverConfig, near: InProcessExecutor) -> tuple[Floats, float]:
    """Map of the sample, in units of its scale, and a radius to go on with."""
    rule, descents = config.rule, descents_of(len(rows), config.n_components, "default")
    classical = classical_of(rows, config.n_components + 1, config, near)
    with parallel_region(near.threads):
        found = search(rows, classical, config.seed, descents=descents, rule=rule)
    if found.stress > WORST:
        raise InputError(
            f"a map of a sample of the points has a stress of {found.stress:.2g}, too much to place others against it: "
            "use init='random'."
        )
    x = np.ascontiguousarray(found.x.T)
    if rule.facts.smooth:
        table = CachedRows(ArrayTable(rows, rows.dtype.name), budget=rows.nbytes)
        x = polished(Objective(table, near, kernels_of(rule, 1.0)), x, scale=1.0)
    return np.ascontiguousarray(x.T), max(FIRST_RADIUS * found.stress, LEAST)


def _sample(source: RowSource, config: SolverConfig, executor: Executor, memory_limit: int) -> Ints:
    """Points of the sample, ascending: of each part those that know most of the others, and random ones."""
    n, draw = source.n, generator(config.seed, RandomStream.PARTS, 1)
    order = draw.permutation(n)
    labels = _labels(source, np.sort(order[:LOOKED_AT]), config.rule)
    if not labels.any():
        return np.sort(order[:SAMPLE])
    budget = memory_of_run("random", source, config, executor).budget(memory_limit)
    work = CountLinks(CachedRows(source, budget), labels, config.rule)
    (counts,) = gather(executor, work, source.layout, range(source.layout.count))
    linking = [_most(np.flatnonzero((labels == part) & (counts > 0)), counts) for part in range(labels.max() + 1)]
    first = np.concatenate(linking)[:SAMPLE]
    return np.sort(np.concatenate([first, order[~np.isin(order, first)]])[:SAMPLE])


def _most(points: Ints, counts: Ints) -> Ints:
    return points[np.argsort(-counts[points], kind="stable")[:LINKING]]


def _labels(source: RowSource, few: Ints, rule: PairRule) -> Ints:
    """Part of every point: among a few of them, and of the others the one of which they know most."""
    known = np.concatenate([known_pairs(rows, rule) for _, rows in _strips(source, few)])
    found = weak_parts(known[:, few])
    if not found.any():
        return np.zeros(source.n, np.int64)
    shares = [known[found == part].mean(axis=0) for part in range(found.max() + 1)]
    labels = np.argmax(shares, axis=0)
    labels[few] = found
    return np.asarray(labels)


def _strips(source: RowSource, points: Ints) -> Iterator[tuple[slice, Rows]]:
    """Rows of some points, a few at a time."""
    for first in range(0, points.size, STRIP):
        piece = slice(first, first + STRIP)
        yield piece, source.take(points[piece])


def _placed(source: RowSource, sample: Ints, y: Floats, scale: float, config: SolverConfig) -> Floats:
    """Map of all points in units of ``scale``: those of the sample at ``y``, others where their known squares put them.

    A squared dissimilarity to a point at ``y`` is linear in the place ``x`` and in its square: ``2 y x - x^2 = y^2 -
    t^2``.
    """
    n, rule, width = source.n, config.rule, config.n_components + 1
    left, right, seen = np.zeros((n, width * width)), np.zeros((n, width)), np.zeros(n)
    terms = np.column_stack([2 * y, -np.ones(len(y))])
    squares = np.square(y).sum(axis=1)
    for piece, rows in _strips(source, sample):
        known = known_pairs(rows, rule)
        known[np.arange(len(rows)), sample[piece]] = False
        t = np.where(known, middle_of(rows, n, rule), 0).astype(float) / scale
        of_pairs = np.einsum("ci,cj->cij", terms[piece], terms[piece]).reshape(len(rows), -1)
        with one_thread():  # the order of sums in BLAS depends on its threads
            left += known.T.astype(float) @ of_pairs
            right += (known * (squares[piece, None] - np.square(t))).T @ terms[piece]
        seen += known.sum(axis=0)
    lost, half = seen <= width, float(np.abs(y).max())
    x: Floats = np.clip(_solved(left.reshape(n, width, width), right, ~lost), -REACH * half, REACH * half)
    x[lost] = generator(config.seed, RandomStream.PARTS, 2).uniform(-half, half, (int(lost.sum()), width - 1))
    x[sample] = y
    return x


REACH = 2.0
"""Farthest place, as a multiple of the largest coordinate in the sample; noise may put points who knows where."""


def _solved(left: Floats, right: Floats, able: NDArray[np.bool_]) -> Floats:
    """Places by normal equations, a little of a ridge for points that lie on a line with those they know."""
    width = right.shape[1]
    ridge = 1e-9 * np.trace(left, axis1=1, axis2=2)[:, None, None] + (~able)[:, None, None]
    return np.asarray(np.linalg.solve(left + ridge * np.eye(width), right[..., None])[:, : width - 1, 0])


start = SampleStart()
"""The object that the list of starts names."""
