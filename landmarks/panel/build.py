"""Passes over a panel: writing it into a store, continuing where an interrupted one stopped, checking it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from landmarks.panel.check import PanelBlock, PanelCheck, PanelEntries, PanelScanner, evaluate, landmarks_digest
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor
from psmds_dist.data.cache import stored
from psmds_dist.data.ids import check_ids
from psmds_dist.ingest.build import BuildBlocks, removed_if_refused
from psmds_dist.ingest.check import SYMMETRY_TOL, Progress, keep_check, known_check
from psmds_dist.ingest.scan import ScanBlocks, panel_blocks
from psmds_dist.planning.memory import PANEL_BYTES, panel_pass
from psmds_dist.utils.locks import exclusive_lock
from psmds_dist.utils.text import note_unsafe

F = TypeVar("F")


@dataclass(frozen=True)
class Strips(Generic[F]):
    """Work over strips of neighbouring blocks: a worker's own blocks are scattered, its strips are not.

    What one strip needs is read with one call.
    """

    work: Callable[[Sequence[int]], F]
    height: int
    count: int
    """Number of blocks."""

    def __call__(self, strips: Sequence[int]) -> F:
        """Work on the blocks of ``strips``."""
        bounds = [(s * self.height, min((s + 1) * self.height, self.count)) for s in strips]
        return self.work([block for first, last in bounds for block in range(first, last)])


def _pass(
    panel: RowSource,
    work: Callable[[Sequence[int]], list[PanelBlock]],
    height: int,
    executor: Executor,
    on_progress: Progress | None,
) -> list[PanelBlock]:
    count = panel.layout.count
    strips = -(-count // height)
    group = max(1, strips // (8 * executor.n_workers))
    found: list[PanelBlock] = []
    for _, part in executor.map(Strips(work, height, count), range(strips), group=group):
        found += part
        if on_progress is not None:
            on_progress(len(found), count)
    return found


def _strip(panel: RowSource, executor: Executor, memory_limit: int | None) -> int:
    """Blocks to read together: those stored together, as memory allows, and something for every worker."""
    room = PANEL_BYTES if memory_limit is None else panel_pass(stored(panel)).room(memory_limit)
    return min(panel_blocks(panel, room), -(-panel.layout.count // executor.n_workers))


def check_panel(
    panel: RowSource,
    executor: Executor,
    *,
    names: PanelEntries | None = None,
    symmetry_tol: float = SYMMETRY_TOL,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> PanelCheck:
    """Read a whole panel once and tell whether it can be used.

    What is found is kept with a stored panel, so that the next check costs nothing while it stays the same.

    Parameters
    ----------
    panel : RowSource
        Dissimilarities to landmarks; NaN where missing.
    executor : Executor
        Where to run.
    names : PanelEntries, optional
        How messages name entries; by default by the rows and columns of the panel.
    symmetry_tol : float
        Largest ``|t_rs - t_sr|`` between landmarks, and largest dissimilarity of a landmark to itself, to let
        pass, as a share of the root mean square between landmarks.
    memory_limit : int, optional
        Bytes that a worker may take.
    on_progress : callable, optional
        Called with the number of blocks done and the number of all.

    Raises
    ------
    InputError
        In one sentence, the first fault and where it is.
    """
    names = names or PanelEntries(panel.landmarks)
    kept = known_check(panel, PanelCheck)
    if kept is not None and kept.landmarks == landmarks_digest(panel.landmarks):
        kept.suspicion.warn(names.what)
        return kept
    height = _strip(panel, executor, memory_limit)
    room = height * stored(panel).block_bytes
    work = ScanBlocks(panel.verified(), partial(PanelScanner, *panel.shape), room)
    found = _pass(panel, work, height, executor, on_progress)
    check = evaluate(panel, found, names, symmetry_tol)
    keep_check(panel, check)
    return check


def build_panel(
    source: RowSource,
    path: str | os.PathLike[str],
    executor: Executor,
    *,
    ids: Sequence[str] | None = None,
    names: PanelEntries | None = None,
    metric: str | None = None,
    overwrite: bool = False,
    symmetry_tol: float = SYMMETRY_TOL,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> PanelCheck:
    """Write a panel into a store and check it, in one pass.

    An interrupted build leaves an unfinished panel, which the same call completes; a finished one is checked again.
    A panel that fails the check is removed: everything in it is in the source still.

    Parameters
    ----------
    source : RowSource
        Where rows come from; its dtype and its landmarks are those of the store.
    path : path
        Directory of the store; `psmds_dist.data.store.open_panel` opens it.
    executor : Executor
        Where to run.
    ids : sequence of str, optional
        Names of the points, which the store keeps.
    names : PanelEntries, optional
        How messages name entries; by default by the rows and columns of the panel, and by ``ids``.
    metric : str, optional
        Name of the metric, for the record.
    overwrite : bool
        Whether a panel that is at ``path`` already is removed first.
    symmetry_tol : float
        As in `check_panel`.
    memory_limit : int, optional
        Bytes that a worker may take.
    on_progress : callable, optional
        Called with the number of blocks done and the number of all.

    Returns
    -------
    PanelCheck
    """
    from psmds_dist.data.store import create, require_apart

    require_apart(path, source.location)
    ids = None if ids is None else check_ids(ids, source.n)
    names = names or PanelEntries(source.landmarks, ids)
    note_unsafe(ids)
    height = _strip(source, executor, memory_limit)
    with exclusive_lock(path):
        target = create(
            path,
            source.n,
            source.dtype.name,
            width=source.shape[1],
            landmarks=source.landmarks,
            ids=ids,
            metric=metric,
            source_fingerprint=source.content_id,
            overwrite=overwrite,
        )
        work = BuildBlocks(source, target, height, partial(PanelScanner, *source.shape))
        found = _pass(source, work, height, executor, on_progress)
        with removed_if_refused(target):
            check = evaluate(target, found, names, symmetry_tol)
        target.finish(check.as_dict())
    return check
