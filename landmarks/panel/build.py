"""Panels checked where they are, and written into stores on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence

from landmarks.panel.check import PanelCheck, PanelChecker, PanelEntries
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import RowSource
from psmds_dist.ingest.build import check_target, write_checked
from psmds_dist.ingest.check import SYMMETRY_TOL
from psmds_dist.ingest.passes import check_once
from psmds_dist.ingest.scan import Progress


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
    checker = PanelChecker(names or PanelEntries(panel.landmarks), symmetry_tol)
    return check_once(panel, checker, executor, memory_limit=memory_limit, on_progress=on_progress)


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
    ids = check_target(source, path, ids)
    return write_checked(
        source,
        path,
        PanelChecker(names or PanelEntries(source.landmarks, ids), symmetry_tol),
        executor,
        ids=ids,
        metric=metric,
        overwrite=overwrite,
        memory_limit=memory_limit,
        on_progress=on_progress,
    )
