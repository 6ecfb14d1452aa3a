"""A whole run: plan, check, solve. What the estimator and the command line share."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from psmds_dist.block import Held
from psmds_dist.check import check_source
from psmds_dist.checkpoint import NOWHERE, Identity, Keeper, Kept
from psmds_dist.config import SolverConfig
from psmds_dist.epoch import Field
from psmds_dist.events import OnEpoch
from psmds_dist.executor import AnyExecutor
from psmds_dist.kernels.warm import warm_up_solver
from psmds_dist.partition import Layout, RowMemory, format_bytes, parse_bytes, row_budget
from psmds_dist.quality import Stress
from psmds_dist.rows import memory_for
from psmds_dist.solve import Solution, solve
from psmds_dist.starts import choose_start
from psmds_dist.types import BudgetError, Floats, InputCheck, InputError, RowSource, StopReason

PACKAGES = ("psmds-dist", "numpy", "numba", "zarr", "dask", "scikit-learn")


@dataclass(frozen=True)
class Plan:
    """What a run will take, known before it starts.

    Attributes
    ----------
    limit : int
        Bytes a worker may take.
    budget : int
        Of these, bytes for rows.
    memory : RowMemory
        How a worker spends them.
    workers : int
        Processes that share the rows.
    layout : Layout
        Blocks of the matrix.
    read_cost : float
        How often an epoch reads a stored byte that is not cached.
    """

    limit: int
    budget: int
    memory: RowMemory
    workers: int
    layout: Layout
    read_cost: float

    @property
    def cached_share(self) -> float:
        """Share of the matrix that the workers together keep in memory."""
        return min(1.0, self.memory.cached_blocks * self.workers / self.layout.count)

    def describe(self) -> str:
        """Say in one line how the matrix will be read."""
        matrix = format_bytes(self.layout.count * self.memory.block_bytes)
        kept = "kept in memory" if self.cached_share == 1 else f"{self.cached_share:.0%} kept in memory, rest streamed"
        again = ""
        if self.read_cost > 1.05 and self.cached_share < 1:
            again = f"; an epoch reads its chunks {self.read_cost:.1f} times, so ingest it once"
        budget = format_bytes(self.limit)
        who = "1 process" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.layout.n:,} points, rows {matrix}, {who} with {budget} each: {kept}{again}"


def plan_run(source: RowSource, config: SolverConfig, executor: AnyExecutor, memory_limit: Any = None) -> Plan:
    """Decide how memory is spent, or refuse.

    Raises
    ------
    BudgetError
        When the budget is too small for this matrix.
    InputError
        When ``n_components`` is not below the number of points.
    """
    if config.n_components >= source.n:
        raise InputError(
            f"n_components must be below the number of points, {source.n}, not {config.n_components}: any "
            "dissimilarities fit exactly in fewer dimensions than points."
        )
    limit = executor.memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    budget = row_budget(limit, source.n, config.n_components)
    if budget <= 0:
        raise BudgetError(
            f"memory_limit is {format_bytes(limit)} a worker, but the coordinates of {source.n:,} points "
            f"alone need {format_bytes(limit - budget)}; raise memory_limit."
        )
    layout = Layout(source.n)
    memory = memory_for(source, budget)
    cost = 2.0 if memory.run_blocks > 1 else float(getattr(source, "read_cost", 1.0))
    return Plan(limit, budget, memory, executor.n_workers, layout, cost)


def checked(
    source: RowSource, executor: AnyExecutor, ids: list[str] | None, memory_limit: int | None = None
) -> InputCheck:
    """Return the result of the input check: the one kept with a store where it still holds, or a new one."""
    find = partial(check_source, source, executor, ids=ids, memory_limit=memory_limit)
    if not hasattr(source, "fingerprint"):
        return find()
    from psmds_dist.store import ZarrRows, load_check, save_check  # late: needs Zarr

    if not isinstance(source, ZarrRows):
        return find()
    kept = load_check(source)
    if kept is None:
        save_check(source, kept := find())
    return kept


def warm_up(source: RowSource, n_components: int, executor: AnyExecutor, axes: int | None = None) -> None:
    """Have everyone who works compile the kernels, or load them from disk, before a clock runs."""
    executor.prepare(partial(warm_up_solver, n_components, source.dtype.name, axes or n_components))


CERTIFICATE_MISSING = (
    "the monotone solve ran out of epochs before every point stood still at the last radius, so that its certificate "
    "is missing: raise max_epochs (--max-epochs), or radius_tol (--radius-tol)"
)


CUT_SHORT = (StopReason.INTERRUPTED, StopReason.CALLBACK, StopReason.LOST)
"""Reasons to stop that end all starts."""

RESUMABLE = (StopReason.INTERRUPTED, StopReason.LOST)
"""Of these, those after which a run can go on from its checkpoint."""

LOST = "the cluster was lost in the middle of the run, so that the map is the best one until then, its stress unknown"


@dataclass(frozen=True)
class Embedding:
    """A run's outcome with all that is needed to trust and repeat it."""

    solution: Solution
    check: InputCheck
    plan: Plan
    config: SolverConfig
    ids: list[str] | None
    start: str
    """Where the solve began: ``"random"``, ``"given"`` or the name of a provided start."""

    seconds: float
    """Wall time of finding the start, solving and measuring, once kernels are compiled."""

    peak_memory: dict[str, int]
    versions: dict[str, str]

    @property
    def certificate_missing(self) -> bool:
        """Whether a monotone solve ended before it could certify that no single move improves its map."""
        return not self.config.bad_moves and self.solution.stop_reason is StopReason.EPOCHS


def embed(
    source: RowSource,
    config: SolverConfig,
    executor: AnyExecutor,
    *,
    memory_limit: Any = None,
    ids: list[str] | None = None,
    init: str | Floats = "auto",
    n_init: int = 1,
    on_epoch: OnEpoch | None = None,
    on_plan: Callable[[Plan], object] | None = None,
    checkpoint: Keeper = NOWHERE,
) -> Embedding:
    """Plan, check and solve; the rows are let go at the end whatever happens.

    A run with a checkpoint that holds states of the same run goes on from there, to the same bits. Who called removes
    the checkpoint once the outcome is safe.

    Raises
    ------
    InputError, BudgetError, WorkerError
        In a sentence each.
    """
    if not isinstance(n_init, int | np.integer) or isinstance(n_init, bool) or n_init < 1:
        raise InputError(f"n_init must be a whole number of at least 1, not {n_init!r}.")
    plan = plan_run(source, config, executor, memory_limit)
    if on_plan is not None:
        on_plan(plan)
    if not isinstance(init, str):
        init = _usable_start(init, source.n, config.n_components)
    try:
        check = checked(source, executor, ids, plan.limit)
        checkpoint.bind(_identity(config, check, init, n_init))
        warm_up(source, config.n_components, executor, config.tried_axes)
        began = time.perf_counter()
        begin = partial(_begin, init, source, config, executor, plan.limit)
        name, start, config = _begun(begin, config, checkpoint.strand("start"))
        task = partial(
            solve, source, executor=executor, scale=check.rms, budget=plan.budget, start=start, on_epoch=on_epoch
        )
        solution = _best_of(task, config, n_init if name == "random" else 1, checkpoint)
        seconds = time.perf_counter() - began
        return Embedding(solution, check, plan, config, ids, name, seconds, executor.peak_memory(), versions())
    finally:
        executor.close()


def _identity(config: SolverConfig, check: InputCheck, init: str | Floats, n_init: int) -> Identity:
    """What must be the same for a run to go on where another stopped."""
    given = init if isinstance(init, str) else hashlib.blake2b(init.tobytes(), digest_size=16).hexdigest()
    return {
        "psmds-dist": _installed()["psmds-dist"],
        "input": {"points": check.n, "dtype": check.dtype, "content": check.digest},
        "configuration": {**config.as_dict(), "init": given, "n_init": n_init},
    }


Begun = tuple[str, Floats | None, SolverConfig]
"""Name and coordinates of a solve's start, and the configuration with the starting radius that suits it."""


def _begun(begin: Callable[[], Begun], config: SolverConfig, kept: Kept) -> Begun:
    """The start that was kept, or else a new one."""
    if (saved := kept.last()) is not None:
        return str(saved["name"]), saved["x"], replace(config, radius=float(saved["radius"]))
    name, start, config = begin()
    if start is not None and config.radius is not None:
        arrays = {"name": np.array(name), "x": start, "radius": np.float64(config.radius)}
        kept.save(0, lambda: arrays)
    return name, start, config


def _best_of(task: Callable[..., Solution], config: SolverConfig, n_init: int, checkpoint: Keeper) -> Solution:
    """Solve from several starts, with seeds in a row, and keep the best; an interrupt or callback ends them all."""
    best: Solution | None = None
    for k in range(n_init):
        found = task(config=replace(config, seed=config.seed + k), kept=checkpoint.strand(f"solve-{k}"))
        if best is None or found.stress.mse < best.stress.mse:
            best = found
        if found.stop_reason in CUT_SHORT:
            return replace(best, stop_reason=found.stop_reason)
    assert best is not None
    return best


def _begin(
    init: str | Floats, source: RowSource, config: SolverConfig, executor: AnyExecutor, memory_limit: int
) -> Begun:
    """Find the start."""
    if not isinstance(init, str):
        return "given", init, config
    name, start = choose_start(init, source, config, executor, memory_limit)
    if start is None:
        return name, None, config
    return name, start.x, config if config.radius is not None else replace(config, radius=start.radius)


def measure(source: RowSource, embedding: Floats, executor: AnyExecutor, memory_limit: Any = None) -> Stress:
    """Stress of any map of a matrix, in one pass.

    Parameters
    ----------
    source : RowSource
        The dissimilarities.
    embedding : (n, L) array_like
        Coordinates.
    executor : Executor
        Who reads the rows.
    memory_limit : int or str, optional
        Bytes a worker may take.
    """
    dims = np.shape(embedding)[-1] if np.ndim(embedding) else 0
    x = _usable_start(embedding, source.n, dims, "embedding")
    plan = plan_run(source, SolverConfig(n_components=x.shape[1]), executor, memory_limit)
    try:
        field = Field(Held(source, plan.budget), executor)
        return Stress.from_row_sums(field.measure(np.ascontiguousarray(x.T)))
    finally:
        executor.close()


def _usable_start(start: Floats, n: int, n_components: int, name: str = "init") -> Floats:
    try:
        given = np.asarray(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers of shape ({n}, {n_components}).") from None
    if given.shape != (n, n_components) or not np.isfinite(given).all():
        raise InputError(
            f"{name} must be finite coordinates of shape ({n}, {n_components}), not of shape {given.shape}"
            + ("." if given.shape != (n, n_components) else " with NaN or infinite values.")
        )
    return given


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    return {"python": platform.python_version(), **_installed()}


@cache
def _installed() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}
