"""Where a solve begins: at random, by classical scaling, or near its end by a method that another package provides.

Packages offer starts under the entry point ``psmds.starts``; landmark mode does. So this package need not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, Protocol

from psmds_dist.core.config import SMALL_POINTS, SolverConfig
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import BudgetError, Floats, InputError
from psmds_dist.data.cache import stored
from psmds_dist.planning.cost import Job, Rates, Stage
from psmds_dist.planning.memory import MemoryRequirement, RowStorage, exact, with_nearness, with_polish, with_region
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStream
from psmds_dist.solver.search import Evidence

GROUP = "psmds.starts"
"""Entry point under which starts are offered."""

OWN_STARTS = (
    EntryPoint("classical", "psmds_dist.api.classical:start", GROUP),
    EntryPoint("search", "psmds_dist.api.search:start", GROUP),
    EntryPoint("sample", "psmds_dist.api.sample:start", GROUP),
)
"""Starts of this package, listed as packages list theirs."""


@dataclass(frozen=True)
class Start:
    """Where a solve begins.

    Attributes
    ----------
    x : (n, L) ndarray or None
        Coordinates; random ones where there are none.
    radius : float or None
        First radius that suits them; searched for where there is none.
    name : str
        Kind of start that they come from; empty for that of the provider.
    evidence : Evidence, optional
        What other starts found.
    """

    x: Floats | None
    radius: float | None
    name: str = ""
    evidence: Evidence | None = None


RANDOM = Start(None, None, "random")
"""Random coordinates."""


class Keeping(NamedTuple):
    """What a run does with the work on a start while it goes on."""

    stream: CheckpointStream = NO_CHECKPOINT
    """Where states of that work may be saved, and are found by a run that goes on."""

    on_progress: Callable[[int, int], object] | None = None
    """Called with how many parts of it are done, and how many there are."""


UNKEPT = Keeping()
"""Nothing is saved or told."""


class Provider(Protocol):
    """What a package offers as a start."""

    epochs: int
    """Epochs to expect of a solve that begins here."""

    def __call__(
        self,
        source: RowSource,
        config: SolverConfig,
        executor: Executor,
        memory_limit: int,
        keeping: Keeping = UNKEPT,
    ) -> Start:
        """Find a start for a matrix and what will be solved, given who works and the bytes a process may take."""
        ...

    def warm_up(self, config: SolverConfig, dtype: str, executor: Executor) -> None:
        """Compile what finding a start calls for rows of a type, in every process that calls it."""
        ...

    def memory(self, solve: MemoryRequirement, dims: int, workers: int, *, here: bool) -> MemoryRequirement:
        """What a process needs for a solve that begins here, given what it needs for the solve."""
        ...

    def passes(self, n: int) -> int:
        """Passes over a matrix of ``n`` points; if there are any, their rows are cached for the solve."""
        ...

    def stages(self, job: Job, rates: Rates) -> Sequence[Stage]:
        """What finding a start takes, for a forecast."""
        ...


def require_start(init: str) -> dict[str, EntryPoint]:
    """Return the starts that packages provide, by name, or refuse an unknown one."""
    offered = offered_starts()
    if init not in ("auto", "random", *offered):
        raise InputError(
            f"init must be 'auto', 'random', {', '.join(map(repr, offered))} or coordinates, not {init!r}."
        )
    return offered


@cache
def offered_starts() -> dict[str, EntryPoint]:
    """Starts by name; looking through all installed packages takes a while."""
    return {point.name: point for point in (*OWN_STARTS, *entry_points(group=GROUP))}


def choose_start(
    init: str,
    source: RowSource,
    config: SolverConfig,
    executor: Executor,
    memory_limit: int,
    keeping: Keeping = UNKEPT,
) -> Start:
    """Begin as ``init`` says.

    Parameters
    ----------
    init : str
        ``"random"``, ``"auto"``, or the name of a start that is provided, such as ``"classical"`` or ``"landmarks"``.
        ``"auto"`` searches where there are at most `SMALL_POINTS` points and takes landmarks where there are more,
        unless a starting radius is given.
    source : RowSource
        The matrix.
    config : SolverConfig
        What will be solved.
    executor : Executor
        Who works.
    memory_limit : int
        Bytes that a process may take.
    keeping : Keeping
        What becomes of unfinished work on the start.

    Returns
    -------
    Start
        Named by what was chosen.

    Raises
    ------
    InputError
        When no package provides such a start.
    BudgetError
        When the start does not fit into memory: taking another one would make the map depend on memory.
    """
    for name in starts_to_try(init, source, config):
        try:
            start = _provided(name, source, config, executor, memory_limit, keeping)
        except DamagedDataError:
            raise
        except InputError:  # landmarks, or a sample, do not suit these data
            if init != "auto":
                raise
        else:
            return start if start.name else replace(start, name=name)
    return RANDOM


def starts_to_try(init: str, source: RowSource, config: SolverConfig) -> list[str]:
    """Starts to look for, in turn: ``"auto"`` tries a sample where landmarks do not suit data with gaps."""
    name = wanted_start(init, source, config)
    if name == "random":
        return []
    return [name, *["sample"] * (init == "auto" and source.n > SMALL_POINTS and config.rule.gaps)]


def wanted_start(init: str, source: RowSource, config: SolverConfig) -> str:
    """Name of the start that `choose_start` tries first."""
    require_start(init)
    if init != "auto":
        return init
    return auto_start(source.n) if config.radius is None and config.max_epochs > 0 else "random"


def auto_start(n: int) -> str:
    """Name of the start that ``"auto"`` takes for so many points."""
    if n <= SMALL_POINTS:
        return "search"
    return "landmarks" if "landmarks" in offered_starts() else "classical"


def memory_of_run(name: str, source: RowSource, config: SolverConfig, executor: Executor) -> MemoryRequirement:
    """What a process needs for a solve that begins at the start of that name."""
    return memory_of_solve(name, stored(source), config, executor.n_workers, here=executor.in_process)


def memory_of_solve(
    name: str, rows: RowStorage, config: SolverConfig, workers: int, *, here: bool, placed: bool = False
) -> MemoryRequirement:
    """What a process needs for a solve of rows that begins at the start of that name.

    Parameters
    ----------
    name : str
        A start, or ``"random"``.
    rows : RowStorage
        The matrix, or matrices side by side.
    config : SolverConfig
        What will be solved.
    workers, here
        As in `psmds_dist.planning.memory.checking`.
    placed : bool
        Whether points have a region.
    """
    dims = config.n_components
    solve = exact(rows, dims, config.tried_axes, workers, here=here, guided=config.guided)
    if config.polishes(rows.layout.n) or config.eases(rows.layout.n):
        solve = with_polish(solve, dims, workers, here=here)
    if name != "random":
        solve = provider_of(name).memory(solve, dims, workers, here=here)
    if config.sample is not None:
        solve = solve.with_part("rows that are measured", rows.scratch + rows.copies * rows.block_bytes)
    if config.rule.local:
        solve = with_nearness(solve, workers, here=here)
    return with_region(solve, dims, here=here) if placed else solve


SOLVES = {"quick": 1, "default": 1, "best": 4}
"""Solves of each effort where one takes many passes over the matrix."""

UNSEARCHED_SOLVES = {"quick": 1, "default": 8, "best": 32}
"""The same of a small matrix that no search solves: dissimilarities are transformed, or points have a region."""


def solves_of(config: SolverConfig, n: int, *, placed: bool) -> int:
    """Number of solves from starts of their own, unless a search or the user has found the one that counts."""
    if isinstance(config.n_init, int):
        return config.n_init
    searched = config.rule.transformation is None and not placed
    return (SOLVES if searched or n > SMALL_POINTS else UNSEARCHED_SOLVES)[config.effort]


def provider_of(name: str) -> Provider:
    """Load the provider of a start."""
    provider: Provider = offered_starts()[name].load()
    return provider


def _provided(
    name: str, source: RowSource, config: SolverConfig, executor: Executor, memory_limit: int, keeping: Keeping
) -> Start:
    provider = provider_of(name)
    try:
        return provider(source, config, executor, memory_limit, keeping)
    except BudgetError as error:
        raise BudgetError(f"{str(error).rstrip('.')}, or begin at random by init='random' (--init random).") from None
