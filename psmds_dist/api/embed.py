"""A whole run: plan, check, solve. What the estimator and the command line share."""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from psmds_dist.api.export import MapTable
from psmds_dist.api.init import Start, choose_start, memory_of_run, wanted_start, warm_up_start
from psmds_dist.api.run import RunContext, installed
from psmds_dist.core.arrays import as_array, fill, is_masked
from psmds_dist.core.config import MAX_COORDINATE, MAX_SQUARABLE, SolverConfig
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.events import Event, OnEpoch, OnEvent, StageEvent, ignore
from psmds_dist.core.executor import Executor
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.sources import RowSource, require_square
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import Floats, InputCheck, InputError, StopReason
from psmds_dist.core.validation import require_dims
from psmds_dist.data.cache import stored
from psmds_dist.data.paired import PairedRows
from psmds_dist.ingest.paired import check_rows, warn_of_few_pairs
from psmds_dist.kernels.pairs import kernels_of
from psmds_dist.kernels.warm import warm_up_gradients, warm_up_solver
from psmds_dist.planning.memory import Plan, checking, require
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore, CheckpointStream
from psmds_dist.solver.epoch import Objective
from psmds_dist.solver.search import Evidence
from psmds_dist.solver.solve import Solution, solve
from psmds_dist.solver.state_file import Arrays, Identity
from psmds_dist.solver.tasks import CachedRows
from psmds_dist.utils.signals import reraise_swallowed_interrupt


def plan_run(source: RowSource, config: SolverConfig, context: RunContext, init: str | Floats = "random") -> Plan:
    """Decide how memory is spent, or refuse.

    Raises
    ------
    BudgetError
        When the budget is too small for this matrix.
    InputError
        When there are too few points, ``n_components`` is not below their number, or there is no such start.
    """
    require_square(source.first if isinstance(source, PairedRows) else source)
    require_dims(source.n, config.n_components)
    start = wanted_start(init, source, config) if isinstance(init, str) else "random"
    needs = memory_of_run(start, source, config, context.executor)
    workers = context.executor.n_workers
    require(context.limit, needs, checking(stored(source), workers, here=context.executor.in_process))
    return Plan.of(context.limit, needs, workers, source.read_profile.read_amplification)


def warm_up(source: RowSource, config: SolverConfig, executor: Executor) -> None:
    """Have everyone who works compile the kernels, or load them from disk, before a clock runs."""
    dims, dtype = config.n_components, source.dtype.name
    executor.warm_up(partial(warm_up_solver, dims, dtype, config.tried_axes, config.guided, config.rule))
    if config.polishes(source.n):
        executor.warm_up(partial(warm_up_gradients, dims, dtype, config.rule))


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
    """Where the map comes from: ``"random"``, ``"classical"``, ``"landmarks"``, ``"given"`` or another start's name."""

    evidence: Evidence
    """What the starts say about the map."""

    seconds: float
    """Wall time of finding the start, solving and measuring, once kernels are compiled; of all sessions of a run."""

    versions: dict[str, str]

    identity: Identity
    """What must be the same for a run to be this one."""

    peak_memory: dict[str, int] = field(default_factory=dict)
    """Peak resident bytes of each process that worked."""

    over: dict[str, int] = field(default_factory=dict)
    """Bytes by which some of them took more than planned, see `psmds_dist.planning.memory.exceeded`."""

    def to_frame(self) -> Any:
        """Return a data frame of pandas: coordinates and point stress, with ids as its index."""
        return MapTable(self.solution.embedding, self.ids, self.solution.stress.point_stress).to_frame()

    def to_anndata(self) -> Any:
        """Return an AnnData object with the map as ``obsm["X_mds"]``, ids and the stress of each point."""
        return MapTable(self.solution.embedding, self.ids, self.solution.stress.point_stress).to_anndata()

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
    on_epoch: OnEpoch | None = None,
    on_event: OnEvent = ignore,
    on_plan: Callable[[Plan], object] | None = None,
    checkpoint: CheckpointStore = NO_CHECKPOINT,
) -> Embedding:
    """Plan, check and solve; rows are freed at the end in any case.

    A run whose checkpoint holds states of the same run continues from there, to the same bits. The caller removes the
    checkpoint once the outcome is safe.

    Raises
    ------
    InputError, BudgetError, WorkerError
        In a sentence each.
    """
    context = RunContext.of(
        executor,
        memory_limit,
        ids=ids,
        checkpoint=checkpoint,
        on_plan=on_plan,
        on_epoch=on_epoch,
        on_event=on_event,
    )
    plan = plan_run(source, config, context, init)
    if not isinstance(init, str):
        init = _usable_start(init, source.n, config.n_components)
    work = partial(_embed, source, config, context, plan, init)
    embedding, memory = context.run(plan, source, work)
    return replace(embedding, peak_memory=memory.peak, over=memory.over)


def _embed(source: RowSource, config: SolverConfig, context: RunContext, plan: Plan, init: str | Floats) -> Embedding:
    """Check, find the start, and solve from all starts."""
    check = check_rows(
        source,
        config.rule,
        context.executor,
        ids=context.ids,
        memory_limit=context.limit,
        on_progress=partial(context.tell_part, "check"),
    )
    warn_of_few_pairs(check, config.n_components, context.ids)
    config = replace(config, rule=replace(config.rule, gaps=check.missing > 0))
    _require_near(init, config, check.rms)
    if not isinstance(init, str):
        init = _brought_near(init, check.rms)
    given = init if isinstance(init, str) else hashlib.blake2b(init.tobytes(), digest_size=16).hexdigest()
    configuration = {**config.as_dict(), "init": given}
    identity = context.attach(check.n, check.dtype, check.digest, configuration)
    context.tell(StageEvent("compilation"))
    warm_up(source, config, context.executor)
    if isinstance(init, str):
        warm_up_start(wanted_start(init, source, config), config, source.dtype.name, context.executor)
    context.tell(StageEvent("start"))
    find = partial(_find_start, init, source, config, context)
    begin, seconds = _saved_start(find, context.checkpoint.stream("start"))
    first = config if config.radius is not None else replace(config, radius=begin.radius)
    task = partial(
        solve,
        source,
        executor=context.executor,
        scale=check.rms,
        budget=plan.budget,
        on_epoch=context.on_epoch,
    )
    others = (replace(config, seed=config.seed + k) for k in range(1, _solves(config, begin)))
    tasks = [partial(task, config=first, start=begin.x), *(partial(task, config=other) for other in others)]
    solution, stresses, solving = _best_of_sound(tasks, context)
    context.recorder.end(solution.stop_reason)
    return Embedding(
        solution=solution,
        check=check,
        plan=plan,
        config=first,
        ids=context.ids,
        start=begin.name if solution.seed == first.seed else "random",
        evidence=begin.evidence or Evidence.of(stresses),
        seconds=seconds + solving,
        versions=versions(),
        identity=identity,
    )


SOLVES = {"quick": 1, "default": 1, "best": 4}
"""Solves of each effort where one takes many passes over the matrix."""


def _solves(config: SolverConfig, begin: Start) -> int:
    """Number of solves: a search has tried many starts already, and one that was given is wanted."""
    if begin.evidence is not None:
        return 1
    return config.n_init if isinstance(config.n_init, int) else 1 if begin.name == "given" else SOLVES[config.effort]


def _saved_start(find: Callable[[], Start], stream: CheckpointStream) -> tuple[Start, float]:
    """The start that was saved, or else a new one, and the seconds that it took to find."""
    if (saved := stream.last()) is not None:
        evidence = Evidence.from_arrays(saved) if "stresses" in saved else None
        begin = Start(saved["x"], float(saved["radius"]), str(saved["name"]), evidence)
        return begin, float(saved["seconds"])
    began = time.perf_counter()
    begin = find()
    seconds = time.perf_counter() - began
    if begin.x is not None and begin.radius is not None:
        facts = {"name": np.array(begin.name), "x": begin.x, "radius": np.float64(begin.radius)}
        arrays = {**facts, "seconds": np.float64(seconds), **(begin.evidence.as_arrays() if begin.evidence else {})}
        stream.save(0, lambda: arrays)
    return begin, seconds


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


Best = tuple[Solution, list[float], float]
"""The best of several solves, the normalized stress of each, and the seconds of all."""


def _best_of_sound(tasks: Sequence[Callable[..., Solution]], context: RunContext) -> Best:
    """Solve from several starts; a start that may come of damaged rows is forgotten."""
    try:
        return _best_of(tasks, context)
    except DamagedDataError:  # finding the start tests no checksums
        checkpoint = context.checkpoint
        if checkpoint.stream("solve-0").last() is None:
            checkpoint.stream("start").forget()
        raise


def _best_of(tasks: Sequence[Callable[..., Solution]], context: RunContext) -> Best:
    """Solve from several starts; an interrupt or callback ends them all."""
    best: Solution | None = None
    stresses, seconds, checkpoint = [], 0.0, context.checkpoint
    done = checkpoint.stream("starts")
    if (saved := done.last()) is not None:
        best, stresses, seconds = Solution.from_arrays(saved), saved["stresses"].tolist(), float(saved["spent"])
    for k, task in enumerate(tasks[len(stresses) :], len(stresses)):
        on_event = partial(_tell_of, k, len(tasks), context.tell)
        found = task(stream=checkpoint.stream(f"solve-{k}"), on_event=on_event)
        seconds += found.seconds
        stresses.append(found.stress.normalized_stress)
        if best is None or found.stress.error < best.stress.error:
            best = found
        if found.stop_reason.ends_all_starts:
            return replace(best, stop_reason=found.stop_reason), stresses, seconds
        if k + 1 < len(tasks):
            done.save(k, partial(_finished, best, list(stresses), seconds))
    assert best is not None
    return best, stresses, seconds


def _tell_of(k: int, count: int, tell: OnEvent, event: Event) -> None:
    """Tell of an event of solve ``k`` of so many."""
    if isinstance(event, StageEvent) and count > 1:
        event = replace(event, done=k, total=count, last=event.last and k + 1 == count)
    tell(event)


def _finished(best: Solution, stresses: list[float], seconds: float) -> Arrays:
    """The best of so many solves, to continue from."""
    return {**best.as_arrays(), "stresses": np.array(stresses), "spent": np.float64(seconds)}


def _find_start(init: str | Floats, source: RowSource, config: SolverConfig, context: RunContext) -> Start:
    """Find the start."""
    if not isinstance(init, str):
        return Start(init, None, "given")
    return choose_start(init, source, config, context.executor, context.limit)


def measure(
    source: RowSource, embedding: Floats, executor: Executor, memory_limit: Any = None, rule: PairRule = PLAIN
) -> Stress:
    """Stress of any map of a matrix.

    Parameters
    ----------
    source : RowSource
        The dissimilarities; with weights or bounds beside them, where the rule has any.
    embedding : (n, L) array_like
        Coordinates.
    executor : Executor
        Who reads the rows.
    memory_limit : int or str, optional
        Bytes a worker may take.
    rule : PairRule
        What a pair costs. Unless it is the plain one, the matrix is checked first.
    """
    x = usable_map(embedding, source.n)
    plan = plan_run(source, SolverConfig(n_components=x.shape[1]), RunContext.of(executor, memory_limit))
    try:
        if rule == PLAIN:
            sums = _sums(source, x, executor, plan, PLAIN, 1.0)
            rule = replace(rule, gaps=not np.isfinite(sums).all())
        if rule != PLAIN:
            check = check_rows(source, rule, executor, memory_limit=plan.limit)
            sums = _sums(source, x, executor, plan, rule, check.rms)
        return Stress.from_row_sums(sums)
    finally:
        executor.close()


def _sums(source: RowSource, x: Floats, executor: Executor, plan: Plan, rule: PairRule, scale: float) -> Floats:
    """Row sums of a map by a rule."""
    objective = Objective(CachedRows(source, plan.budget), executor, kernels_of(rule, scale))
    return objective.measure(np.ascontiguousarray(x.T))


def usable_map(embedding: Any, n: int, name: str = "embedding") -> Floats:
    """Coordinates of ``n`` points in any number of dimensions.

    Raises
    ------
    InputError
        When there are others, or they are not finite.
    """
    given = as_array(embedding, name)
    if given.ndim == 2 and not given.shape[1]:
        raise InputError(f"{name} has no coordinates: give an array of shape ({n}, L), with L dimensions.")
    return _usable_start(embedding, n, given.shape[-1] if given.ndim else 0, name)


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
    if np.abs(x).max(initial=0) > MAX_SQUARABLE:
        raise InputError(f"{name} reaches out to {np.abs(x).max():g}, where squares overflow: scale it down.")
    return x


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    return {"python": platform.python_version(), **installed()}
