"""Input checks of any kind: one pass over the rows of a source, whose result is kept with a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import KeepsChecks, RowSource
from psmds_dist.core.types import Suspicion
from psmds_dist.ingest.scan import BlockScanner, Progress, ScanBlocks, scan_all


class Check(Protocol):
    """Result of a check."""

    @property
    def suspicion(self) -> Suspicion:
        """What a user should know before trusting a map."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `as_dict`."""

    def as_dict(self) -> dict[str, Any]:
        """Return a plain dictionary."""


F = TypeVar("F")
S = TypeVar("S")
C = TypeVar("C", bound=Check)


class Checker(ABC, Generic[F, S, C]):
    """A kind of input check: what it notes of each block, and what it concludes from all notes."""

    result: type[C]
    """Type of its conclusion."""

    @property
    def what(self) -> str:
        """What messages call the source."""
        return "the matrix"

    def warm_up(self, source: RowSource, executor: Executor) -> None:
        """Compile what scanners call. Default: nothing."""

    def covers(self, found: C, source: RowSource) -> bool:
        """Whether an earlier result is an answer for this source as well."""
        return True

    def width(self, source: RowSource) -> int | None:
        """Numbers in a row of a store of the source; None for a square matrix."""
        return None

    @abstractmethod
    def room(self, source: RowSource, executor: Executor, memory_limit: int | None, *, writing: bool) -> int:
        """Bytes of rows that a pass may read together."""

    @abstractmethod
    def scanner(self, source: RowSource) -> Callable[[], BlockScanner[F]]:
        """Return what makes a scanner for a group of blocks."""

    @abstractmethod
    def collect(self, source: RowSource, found: Iterable[F]) -> S:
        """Put together what scanners found."""

    @abstractmethod
    def evaluate(self, collected: S, source: RowSource, executor: Executor, room: int) -> C:
        """Conclude, or refuse; ``source`` is read again only to explain what is wrong.

        Raises
        ------
        InputError
            With all that is wrong.
        """


def run_check(
    source: RowSource,
    checker: Checker[F, S, C],
    executor: Executor,
    *,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> C:
    """Read a whole source once and return whether it can be used.

    Raises
    ------
    InputError
        With all that is wrong.

    Warns
    -----
    DissimilarityWarning
        When something is suspicious.
    """
    checker.warm_up(source, executor)
    room = checker.room(source, executor, memory_limit, writing=False)
    work = ScanBlocks(source.verified(), checker.scanner(source), room)
    collected = checker.collect(source, scan_all(source, work, executor, room, on_progress))
    found = checker.evaluate(collected, source, executor, room)
    found.suspicion.warn(checker.what)
    return found


def check_once(
    source: RowSource,
    checker: Checker[F, S, C],
    executor: Executor,
    *,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> C:
    """Return the result that is kept with the source where it still holds, or check it and keep the result."""
    found = known_check(source, checker.result)
    if found is None or not checker.covers(found, source):
        found = run_check(source, checker, executor, memory_limit=memory_limit, on_progress=on_progress)
        if isinstance(source, KeepsChecks):
            source.save_check(found.as_dict())
    else:
        found.suspicion.warn(checker.what)
    return found


def known_check(source: RowSource, kind: type[C]) -> C | None:
    """Return the result of an earlier check that is kept with a store, where it still holds."""
    facts = source.load_check() if isinstance(source, KeepsChecks) else None
    try:
        return None if facts is None else kind.from_dict(facts)
    except (TypeError, KeyError):  # other fields: another version of this package has kept it
        return None
