"""A whole run: plan, check, solve. What the estimator and the command line share."""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from psmds_dist.api.init import choose_start, require_start, wanted_start, warm_up_start
from psmds_dist.core.arrays import as_array, fill, is_masked
from psmds_dist.core.config import MAX_COORDINATE, SolverConfig, check_int
from psmds_dist.core.events import OnEpoch
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import parse_bytes
from psmds_dist.core.sources import RowSource, require_square
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import Floats, InputCheck, InputError, StopReason
from psmds_dist.core.validation import require_dims
from psmds_dist.data.cache import stored
from psmds_dist.ingest.check import checked
from psmds_dist.kernels.warm import warm_up_solver
from psmds_dist.planning.memory import Plan, checking, exact, exceeded, require
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, Arrays, CheckpointStore, CheckpointStream, Identity
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.solve import Solution, solve
from psmds_dist.solver.tasks import CachedRows
from psmds_dist.utils.signals import reraise_swallowed_interrupt

if TYPE_CHECKING:
    pass

LARGEST = 1e150
"""Coordinates beyond this have squares beyond float64."""

PACKAGES = ("psmds-dist", "numpy", "numba", "zarr", "dask", "scikit-learn")


def plan_run(source: RowSource, config: SolverConfig, executor: Executor, memory_limit: Any = None) -> Plan:
    """Decide how memory is spent, or refuse.

    Raises
    ------
    BudgetError
        When the budget is too small for this matrix.
    InputError
        When there are too few points, or ``n_components`` is not below their number.
    """
    require_square(source)
    require_dims(source.n, config.n_components)
    limit = executor.memory_limit() if memory_limit is None else parse_bytes(memory_limit)
    rows, workers, here = stored(source), executor.n_workers, executor.in_process
    needs = exact(rows, config.n_components, config.tried_axes, workers, here=here, guided=config.guided)
    require(limit, needs, checking(rows, workers, here=here))
    return Plan.of(limit, needs, workers, source.read_profile.read_amplification)


def warm_up(source: RowSource, config: SolverConfig, executor: Executor) -> None:
    """Have everyone who works compile the kernels, or load them from disk, before a clock runs."""
    executor.warm_up(partial(warm_up_solver, config.n_components, source.dtype.name, config.tried_axes, config.guided))


CERTIFICATE_MISSING = (
    "the monotone solve ran out of epochs before every point stood still at the last radius, so that its certificate "
    "is missing: raise max_epochs (--max-epochs), or radius_tol (--radius-tol)"
)


@dataclass(frozen=True)
class Embedding:
    """A run's outcome with all that is needed to trust and repeat it."""

    solution: Solution
    check: InputCheck
    plan: Plan
    config: SolverConfig
    ids: list[str] | None
    start: str
    """Where the best solve began: ``"random"``, ``"given"`` or the name of a provided start."""

    seconds: float
    """Wall time of finding the start, solving and measuring, once kernels are compiled; of all sessions of a run."""

    peak_memory: dict[str, int]
    """Peak resident bytes of each process that worked."""

    over: dict[str, int]
    """Bytes by which some of them took more than planned, see `psmds_dist.planning.memory.exceeded`."""

    versions: dict[str, str]

    identity: Identity
    """What must be the same for a run to be this one."""

    @property
    def certificate_missing(self) -> bool:
        """Whether a monotone solve ended before it could certify that no single move improves its map."""
        return not self.config.bad_moves and self.solution.stop_reason is StopReason.EPOCHS

    @property
    def advice(self) -> str:
        """What to do where the map is not what was asked for; empty where it is."""
        if self.certificate_missing:
            return CERTIFICATE_MISSING
        return self.solution.stop_reason.advice if self.config.max_epochs else ""


@reraise_swallowed_interrupt()
def embed(
    source: RowSource,
    config: SolverConfig,
    executor: Executor,
    *,
    memory_limit: Any = None,
    ids: list[str] | None = None,
    init: str | Floats = "auto",
    n_init: int = 1,
    on_epoch: OnEpoch | None = None,
    on_plan: Callable[[Plan], object] | None = None,
    checkpoint: CheckpointStore = NO_CHECKPOINT,
) -> Embedding:
    """Plan, check and solve; the rows are let go at the end whatever happens.

    A run with a checkpoint that holds states of the same run goes on from there, to the same bits. Who called removes
    the checkpoint once the outcome is safe.

    Raises
    ------
    InputError, BudgetError, WorkerError
        In a sentence each.
    """
    n_init = check_int("n_init", n_init, 1)
    plan = plan_run(source, config, executor, memory_limit)
    if isinstance(init, str):
        require_start(init)
    else:
        init = _usable_start(init, source.n, config.n_components)
    if on_plan is not None:
        on_plan(plan)
    before = executor.memory_usage()
    try:
        check = checked(source, executor, ids=ids, memory_limit=plan.limit)
        _require_near(init, config, check.rms)
        if not isinstance(init, str):
            init = _brought_near(init, check.rms)
        identity = _identity(config, check, init, n_init)
        checkpoint.attach(identity)
        warm_up(source, config, executor)
        if isinstance(init, str):
            warm_up_start(wanted_start(init, source, config), config, source.dtype.name)
        find = partial(_find_start, init, source, config, executor, plan.limit)
        (name, start, first), seconds = _kept_start(find, config, checkpoint.stream("start"))
        task = partial(solve, source, executor=executor, scale=check.rms, budget=plan.budget, on_epoch=on_epoch)
        others = (replace(config, seed=config.seed + k) for k in range(1, n_init))
        tasks = [partial(task, config=first, start=start), *(partial(task, config=other) for other in others)]
        try:
            solution, solving = _best_of(tasks, checkpoint)
        except InputError:  # damaged rows may be in the start as well, which tests no checksums
            if checkpoint.stream("solve-0").last() is None:
                checkpoint.stream("start").forget()
            raise
        require_unchanged(source, checkpoint)
        peak = executor.peak_memory()
        over = exceeded(plan.limit, before, peak)
        if solution.seed != first.seed:
            name = "random"
        return Embedding(solution, check, plan, first, ids, name, seconds + solving, peak, over, versions(), identity)
    finally:
        executor.close()


def require_unchanged(source: RowSource, checkpoint: CheckpointStore) -> None:
    """Refuse what came of rows that somebody has written to while they were read, and keep nothing of it.

    Raises
    ------
    InputError
        When its files are not those that were opened.
    """
    if source.is_stale():
        checkpoint.remove()
        raise InputError(
            f"{source.location or 'the matrix'} was written to while it was read, so that the map belongs to no "
            "matrix and is not kept: wait until it is complete, and begin anew."
        )


def _identity(config: SolverConfig, check: InputCheck, init: str | Floats, n_init: int) -> Identity:
    given = init if isinstance(init, str) else hashlib.blake2b(init.tobytes(), digest_size=16).hexdigest()
    return identity_of(check.n, check.dtype, check.digest, {**config.as_dict(), "init": given, "n_init": n_init})


def identity_of(n: int, dtype: str, content: str, configuration: Mapping[str, Any]) -> Identity:
    """What must be the same for a run to go on where another stopped."""
    return {
        "psmds-dist": _installed()["psmds-dist"],
        "input": {"points": n, "dtype": dtype, "content": content},
        "configuration": dict(configuration),
    }


Initialization = tuple[str, Floats | None, SolverConfig]
"""Name and coordinates of a solve's start, and the configuration with the starting radius that suits it."""


def _kept_start(
    find: Callable[[], Initialization], config: SolverConfig, kept: CheckpointStream
) -> tuple[Initialization, float]:
    """The start that was kept, or else a new one, and the seconds that it took to find."""
    if (saved := kept.last()) is not None:
        initialization = str(saved["name"]), saved["x"], replace(config, radius=float(saved["radius"]))
        return initialization, float(saved["seconds"])
    began = time.perf_counter()
    name, start, config = find()
    seconds = time.perf_counter() - began
    if start is not None and config.radius is not None:
        figures = {"radius": np.float64(config.radius), "seconds": np.float64(seconds)}
        arrays = {"name": np.array(name), "x": start, **figures}
        kept.save(0, lambda: arrays)
    return (name, start, config), seconds


def _require_near(init: str | Floats, config: SolverConfig, scale: float) -> None:
    """Refuse a radius, or coordinates, so far beyond the data that digits would be lost on the way back."""
    if config.radius is not None and config.radius > MAX_COORDINATE * scale:
        raise InputError(
            f"radius is {config.radius:g}, more than {MAX_COORDINATE:g} times the root mean square dissimilarity "
            f"({scale:g}): give it in units of the dissimilarities, or leave it out."
        )
    reach = 0.0 if isinstance(init, str) else float(np.abs(init).max())
    if reach > MAX_COORDINATE * scale:
        raise InputError(
            f"init reaches out to {reach:g}, more than {MAX_COORDINATE:g} times the root mean square dissimilarity "
            f"({scale:g}): centre it on zero and bring it to the units of the dissimilarities."
        )


def _brought_near(x: Floats, scale: float) -> Floats:
    """Move coordinates to the origin, where float32 tells them best, by whole steps that cost them no digit."""
    step = 2.0 ** math.ceil(math.log2(scale))
    return np.asarray(x - step * np.round(x.mean(axis=0) / step))


def _best_of(tasks: Sequence[Callable[..., Solution]], checkpoint: CheckpointStore) -> tuple[Solution, float]:
    """Solve from several starts; an interrupt or callback ends them all.

    Returns the best, and the seconds of all.
    """
    best: Solution | None = None
    first, seconds = 0, 0.0
    done = checkpoint.stream("starts")
    if (kept := done.last()) is not None:
        best, first, seconds = Solution.from_arrays(kept), int(kept["starts"]), float(kept["spent"])
    for k, task in enumerate(tasks[first:], first):
        found = task(kept=checkpoint.stream(f"solve-{k}"))
        seconds += found.seconds
        if best is None or found.stress.mse < best.stress.mse:
            best = found
        if found.stop_reason.ends_all_starts:
            return replace(best, stop_reason=found.stop_reason), seconds
        if k + 1 < len(tasks):
            done.save(k, partial(_starts, best, k + 1, seconds))
    assert best is not None
    return best, seconds


def _starts(best: Solution, count: int, seconds: float) -> Arrays:
    """The best of so many starts, to go on from."""
    return {**best.as_arrays(), "starts": np.int64(count), "spent": np.float64(seconds)}


def _find_start(
    init: str | Floats, source: RowSource, config: SolverConfig, executor: Executor, memory_limit: int
) -> Initialization:
    """Find the start."""
    if not isinstance(init, str):
        return "given", init, config
    name, start = choose_start(init, source, config, executor, memory_limit)
    if start is None:
        return name, None, config
    return name, start.x, config if config.radius is not None else replace(config, radius=start.radius)


def measure(source: RowSource, embedding: Floats, executor: Executor, memory_limit: Any = None) -> Stress:
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
    given = as_array(embedding, "embedding")
    x = _usable_start(given, source.n, given.shape[-1] if given.ndim else 0, "embedding")
    plan = plan_run(source, SolverConfig(n_components=x.shape[1]), executor, memory_limit)
    try:
        field = Objective(CachedRows(source, plan.budget), executor)
        sums = field.measure(np.ascontiguousarray(x.T))
        _require_known(sums, source)
        return Stress.from_row_sums(sums)
    finally:
        executor.close()


def _require_known(sums: Floats, source: RowSource) -> None:
    """Refuse sums that a missing dissimilarity has spoilt."""
    spoilt = np.flatnonzero(~np.isfinite(sums).all(axis=1))
    if spoilt.size:
        raise InputError(
            f"{source.location or 'the matrix'} has missing or infinite dissimilarities in {spoilt.size} of its "
            f"{len(sums)} rows, first in row {spoilt[0]}, so that stress over all pairs is unknown: fill them in, or "
            "keep to the stress on known pairs that a landmark fit tells."
        )


def _usable_start(start: Floats, n: int, n_components: int, name: str = "init") -> Floats:
    given = as_array(start, name)
    wanted = f"{name} must be finite coordinates of shape ({n}, {n_components})"
    if given.shape != (n, n_components) or given.dtype.kind not in "fiu" or is_masked(start):
        masked = " with masked entries" * is_masked(start)
        raise InputError(f"{wanted}, not {given.dtype} of shape {given.shape}{masked}.")
    x: Floats = np.empty(given.shape)
    fill(x, given)
    if not np.isfinite(x).all():
        raise InputError(f"{wanted}, but it has NaN or infinite values.")
    if np.abs(x).max(initial=0) > LARGEST:
        raise InputError(f"{name} reaches out to {np.abs(x).max():g}, where squares overflow: scale it down.")
    return x


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    return {"python": platform.python_version(), **_installed()}


@cache
def _installed() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}
