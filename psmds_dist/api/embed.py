"""A whole run: plan, check, solve. What the estimator and the command line share."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from psmds_dist.api.export import MapTable
from psmds_dist.api.init import (
    Keeping,
    Start,
    choose_start,
    memory_of_solve,
    provider_of,
    solves_of,
    starts_to_try,
    wanted_start,
)
from psmds_dist.api.run import RunContext, installed
from psmds_dist.core.arrays import as_array, digest_of_arrays, fill, is_masked
from psmds_dist.core.certificate import Certificate
from psmds_dist.core.config import MAX_COORDINATE, MAX_SQUARABLE, SolverConfig
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.events import Event, OnEpoch, OnEvent, StageEvent, ignore
from psmds_dist.core.executor import Executor
from psmds_dist.core.nearness import Nearness
from psmds_dist.core.region import Region
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.sources import RowSource, require_square
from psmds_dist.core.stress import Stress
from psmds_dist.core.transformations import degeneracy
from psmds_dist.core.types import Floats, InputCheck, InputError, StopReason
from psmds_dist.core.validation import require_dims, require_neighbors
from psmds_dist.data.cache import stored
from psmds_dist.data.paired import PairedRows
from psmds_dist.data.positions import Positions
from psmds_dist.ingest.paired import check_rows, warn_of_few_pairs
from psmds_dist.kernels.warm import warm_up_gradients, warm_up_solver
from psmds_dist.planning.memory import Plan, checking, require
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore, CheckpointStream
from psmds_dist.solver.nearness import find_nearness
from psmds_dist.solver.optimal import Scaling, objective_of
from psmds_dist.solver.schedule import Schedule
from psmds_dist.solver.search import Evidence
from psmds_dist.solver.solve import Solution, solve
from psmds_dist.solver.state_file import Arrays, Identity
from psmds_dist.solver.tasks import CachedRows
from psmds_dist.utils.signals import reraise_swallowed_interrupt


def plan_run(
    source: RowSource,
    config: SolverConfig,
    context: RunContext,
    init: str | Floats = "random",
    region: Region | None = None,
) -> Plan:
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
    require_neighbors(config.rule, source.n)
    start = wanted_start(init, source, config) if isinstance(init, str) else "random"
    rows = stored(rows_to_plan(source, config.rule))
    workers, here = context.executor.n_workers, context.executor.in_process
    needs = memory_of_solve(start, rows, config, workers, here=here, placed=region is not None)
    require(context.limit, needs, checking(rows, workers, here=here))
    return Plan.of(context.limit, needs, workers, source.read_profile.read_amplification)


def rows_to_plan(source: RowSource, rule: PairRule) -> RowSource:
    """Rows as a solve keeps them: transformed ones are its own, also where the matrix is in memory."""
    if rule.transformation is None:
        return source
    return Positions(source, np.zeros(1), rule.transformation == "ordinal")


def warm_up(source: RowSource, config: SolverConfig, executor: Executor) -> None:
    """Have everyone who works compile the kernels, or load them from disk, before a clock runs."""
    dims, dtype = config.n_components, source.dtype.name
    executor.warm_up(partial(warm_up_solver, dims, dtype, config.tried_axes, config.guided, config.rule))
    if config.polishes(source.n) or config.eases(source.n):
        arithmetic = {dtype, "float64"} if config.polishes_shortly(source.n) else {"float64"}  # float32 may be enough
        executor.warm_up(partial(warm_up_gradients, dims, dtype, config.rule, arithmetic))


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

    region: Region | None = None
    """Where points had to be; None where they were free."""

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
    def certificate(self) -> Certificate | None:
        """What a monotone solve that converged certifies about `Solution.raw_embedding`, but for a transformation."""
        converged = self.solution.stop_reason in (StopReason.RADIUS, StopReason.PERFECT)
        if self.config.bad_moves or self.config.rule.transformation is not None or not converged:
            return None
        n = len(self.solution.embedding)
        tried = n if self.region is None else int(self.region.movable.sum())
        return Certificate(self.solution.radius, gain=0.0, share=0.0, improvable=0, points=tried)

    @property
    def degeneracy(self) -> str:
        """What makes the map meaningless though its stress is low; empty where nothing does."""
        return degeneracy(self.solution.embedding, self.solution.disparities)

    @property
    def advice(self) -> str:
        """What to do where the map is not what was asked for; empty where it is."""
        if self.certificate_missing:
            return CERTIFICATE_MISSING
        return self.solution.stop_reason.advice if self.config.max_epochs else ""


def embed(
    source: RowSource,
    config: SolverConfig,
    executor: Executor,
    *,
    memory_limit: Any = None,
    ids: list[str] | None = None,
    init: str | Floats = "auto",
    region: Region | None = None,
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
    config = config if region is None else along_axes(config)
    plan = plan_run(source, config, context, init, region)
    if not isinstance(init, str):
        init = _usable_start(init, source.n, config.n_components)
    with reraise_swallowed_interrupt(), context.running(plan, source) as memory_used:
        run = _Run.checked(source, config, context, plan, init, region)
        identity = run.attach()
        run.compile()
        start, scaling, nearness, seconds = run.begin()
        tasks = run.tasks(start, scaling, nearness)
        solution, stresses, solving = _best_of(tasks, context)
        context.recorder.end(solution.stop_reason)
        memory = memory_used()
    first = run.config_from(start)
    return Embedding(
        solution=solution,
        check=run.check,
        plan=plan,
        config=_followed(first, scaling),
        ids=ids,
        start=start.name if solution.seed == first.seed else "random",
        evidence=start.evidence if start.evidence and scaling is None else Evidence.of(stresses),
        seconds=seconds + solving,
        versions=versions(),
        identity=identity,
        region=region,
        peak_memory=memory.peak,
        over=memory.over,
    )


def along_axes(config: SolverConfig) -> SolverConfig:
    """Configuration of a solve in a region: a step along an axis can be filtered, one against a gradient cannot."""
    if config.moves == "guided":
        raise InputError("pinned and bounds work with moves along axes: leave moves='guided' (--moves guided) out.")
    if config.rule.transformation is not None:
        raise InputError(
            "pinned and bounds are in units of the dissimilarities, which a transformation changes: leave "
            "transformation (--transformation) out."
        )
    return replace(config, moves="axes")


Task = Callable[..., Solution]
"""A solve that takes its stream of states and its event callback, and returns a solution."""


@dataclass(frozen=True)
class _Run:
    """What the steps of a run share: a checked matrix, and how it is solved."""

    source: RowSource
    config: SolverConfig
    context: RunContext
    plan: Plan
    init: str | Floats
    region: Region | None
    check: InputCheck

    @classmethod
    def checked(
        cls,
        source: RowSource,
        config: SolverConfig,
        context: RunContext,
        plan: Plan,
        init: str | Floats,
        region: Region | None,
    ) -> Self:
        """Check the matrix, and what was given in its units; a start is moved to the origin."""
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
        if region is not None:
            _require_reachable(region, check.rms)
        elif not isinstance(init, str):
            init = _brought_near(init, check.rms)
        return cls(source, config, context, plan, init, region, check)

    def attach(self) -> Identity:
        """Begin, or continue, the run that this is, and return its identity."""
        given = self.init if isinstance(self.init, str) else digest_of_arrays(self.init)
        region = {"region": self.region.digest} if self.region else {}
        configuration = {**self.config.as_dict(), "init": given, **region}
        return self.context.attach(self.check.n, self.check.dtype, self.check.digest, configuration)

    def compile(self) -> None:
        """Compile all kernels, or load them from disk, before a clock runs."""
        source, executor = self.source, self.context.executor
        self.context.tell(StageEvent("compilation"))
        warm_up(source, self.config, executor)
        if isinstance(self.init, str):
            for name in starts_to_try(self.init, source, self.config):
                provider_of(name).warm_up(_alike(self.config), source.dtype.name, executor)

    def begin(self) -> tuple[Start, Scaling | None, Nearness, float]:
        """Find the start, how dissimilarities are transformed, and near pairs; with the seconds that the start took."""
        source, config, context, check = self.source, self.config, self.context, self.check
        context.tell(StageEvent("start"))
        schedule = Schedule(config, check.rms, source.layout, source.dtype)
        scaling = Scaling.of(source, config.rule, context.executor, schedule, self.plan.budget, check.highest)
        find = partial(_find_start, self.init, source, config, context, scaling)
        start, seconds = _saved_start(find, context.checkpoint.stream("start"))
        if self.region is not None or config.rule.local:  # what was found out about another map does not hold
            start = replace(start, radius=None, evidence=None)
        rows = CachedRows(source, self.plan.budget)
        return start, scaling, find_nearness(rows, config.rule, context.executor, check.rms), seconds

    def tasks(self, start: Start, scaling: Scaling | None, nearness: Nearness) -> list[Task]:
        """Solves from the start that was found, and from random ones."""
        task = partial(
            solve,
            self.source,
            executor=self.context.executor,
            scale=self.check.rms,
            budget=self.plan.budget,
            region=self.region,
            on_epoch=self.context.on_epoch,
            scaling=scaling,
            nearness=nearness,
        )
        first = partial(task, config=self.config_from(start), start=start.x)
        seeds = range(self.config.seed + 1, self.config.seed + self.solves(start))
        return [first, *(partial(task, config=replace(self.config, seed=seed)) for seed in seeds)]

    def config_from(self, start: Start) -> SolverConfig:
        """Configuration of the solve from the start that was found, which may know the radius to begin with."""
        return self.config if self.config.radius is not None else replace(self.config, radius=start.radius)

    def solves(self, start: Start) -> int:
        """Number of solves: a search has tried many starts already, and one that was given is wanted."""
        searched = self.config.rule.transformation is None and self.region is None
        if searched and start.evidence is not None:
            return 1
        if start.name == "given" and self.config.n_init == "auto":
            return 1
        return solves_of(self.config, self.source.n, placed=self.region is not None)


def _alike(config: SolverConfig) -> SolverConfig:
    """Configuration for finding a start: for dissimilarities as they are, near ones like others."""
    return replace(config, rule=replace(config.rule, transformation=None, ties="primary", local=0.0))


def _followed(config: SolverConfig, scaling: Scaling | None) -> SolverConfig:
    """Configuration as a solve followed it."""
    return config if scaling is None else replace(config, rule=scaling.followed(config.rule))


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


def _require_reachable(region: Region, scale: float) -> None:
    """Refuse a region so far from zero that digits would be lost."""
    if region.reach > MAX_COORDINATE * scale:
        raise InputError(
            f"pinned coordinates or bounds demand coordinates of {region.reach:g}, more than {MAX_COORDINATE:g} times "
            f"the root mean square dissimilarity ({scale:g}): give them in units of the dissimilarities, around zero."
        )


def _brought_near(x: Floats, scale: float) -> Floats:
    """Move coordinates to the origin, where float32 tells them best, by whole steps that cost them no digit."""
    step = 2.0 ** math.ceil(math.log2(scale))
    return np.asarray(x - step * np.round(x.mean(axis=0) / step))


Best = tuple[Solution, list[float], float]
"""The best of several solves, the normalized stress of each, and the seconds of all."""


def _best_of(tasks: Sequence[Task], context: RunContext) -> Best:
    """Solve from several starts; an interrupt or callback ends them all."""
    best: Solution | None = None
    stresses, seconds, checkpoint = [], 0.0, context.checkpoint
    done = checkpoint.stream("starts")
    if (saved := done.last()) is not None:
        best, stresses, seconds = Solution.from_arrays(saved), saved["stresses"].tolist(), float(saved["spent"])
    for k, task in enumerate(tasks[len(stresses) :], len(stresses)):
        on_event = partial(_tell_of, k, len(tasks), context.tell)
        with _forgetting_start(checkpoint):
            found = task(stream=checkpoint.stream(f"solve-{k}"), on_event=on_event)
        seconds += found.seconds
        stresses.append(found.stress.normalized_stress)
        if best is None or found.merit < best.merit:
            best = found
        if found.stop_reason.ends_all_starts:
            return replace(best, stop_reason=found.stop_reason), stresses, seconds
        if k + 1 < len(tasks):
            done.save(k, partial(_finished, best, list(stresses), seconds))
    assert best is not None
    return best, stresses, seconds


@contextmanager
def _forgetting_start(checkpoint: CheckpointStore) -> Iterator[None]:
    """Forget a start that may come of damaged rows: finding it tests no checksums."""
    try:
        yield
    except DamagedDataError:
        if checkpoint.stream("solve-0").last() is None:
            for name in ("search", "start"):
                checkpoint.stream(name).forget()
        raise


def _tell_of(k: int, count: int, tell: OnEvent, event: Event) -> None:
    """Tell of an event of solve ``k`` of so many."""
    if isinstance(event, StageEvent) and count > 1:
        event = replace(event, done=k, total=count, last=event.last and k + 1 == count)
    tell(event)


def _finished(best: Solution, stresses: list[float], seconds: float) -> Arrays:
    """The best of so many solves, to continue from."""
    return {**best.as_arrays(), "stresses": np.array(stresses), "spent": np.float64(seconds)}


def _find_start(
    init: str | Floats, source: RowSource, config: SolverConfig, context: RunContext, scaling: Scaling | None
) -> Start:
    """Find the start, of the disparities to begin with where dissimilarities are transformed.

    Near pairs weigh like others in it: descents that weigh them more are caught in worse maps than that leads to.
    """
    if not isinstance(init, str):
        return Start(init, None, "given")
    source, config = source if scaling is None else scaling.disparities(source), _alike(config)
    keeping = Keeping(context.checkpoint.stream("search"), partial(context.tell_part, "start"))
    return choose_start(init, source, config, context.executor, context.limit, keeping)


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
            sums = _sums(source, x, executor, plan, PLAIN, 1.0, 0.0)
            rule = replace(rule, gaps=not np.isfinite(sums).all())
        if rule != PLAIN:
            check = check_rows(source, rule, executor, memory_limit=plan.limit)
            sums = _sums(source, x, executor, plan, replace(rule, gaps=check.missing > 0), check.rms, check.highest)
        return Stress.from_row_sums(sums)
    finally:
        executor.close()


def _sums(
    source: RowSource, x: Floats, executor: Executor, plan: Plan, rule: PairRule, scale: float, highest: float
) -> Floats:
    """Row sums of a map by a rule."""
    schedule = Schedule(SolverConfig(n_components=x.shape[1]), scale, source.layout, source.dtype)
    scaling = Scaling.of(source, rule, executor, schedule, plan.budget, highest)
    nearness = find_nearness(CachedRows(source, plan.budget), rule, executor, scale)
    lines = np.ascontiguousarray(x.T)
    return objective_of(source, rule, executor, scale, plan.budget, scaling, nearness).fitted(lines).measure(lines)


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
