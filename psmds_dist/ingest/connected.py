"""The part of a matrix whose points chains of known pairs join."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, InputError, Ints, warn_user
from psmds_dist.data.paired import PairedRows
from psmds_dist.data.transforms import Subset, WithoutZeroWeights
from psmds_dist.ingest.check import require_matrix, room_for
from psmds_dist.ingest.diagnose import component_labels
from psmds_dist.ingest.gaps import largest_component, names_of
from psmds_dist.planning.memory import checking

DISCONNECTED = ("refuse", "largest")
"""What can be done with points that no chain of known pairs joins to the others."""


def keep_connected(
    source: RowSource,
    executor: Executor,
    disconnected: str,
    *,
    ids: Sequence[str] | None = None,
    weighted: bool = False,
    memory_limit: int | None = None,
) -> tuple[RowSource, list[str] | None]:
    """Return a matrix and its names as they are, or of its largest component only.

    Parameters
    ----------
    source : RowSource
        The matrix, or matrices side by side.
    executor : Executor
        Where to run the pass that finds the components.
    disconnected : {"refuse", "largest"}
        ``"refuse"`` leaves it to the input check to refuse several components; ``"largest"`` keeps the largest.
    ids : sequence of str, optional
        Names of the points; by default those of the source.
    weighted : bool
        Whether the last of several matrices holds weights, of which those of zero join nothing.
    memory_limit : int, optional
        Bytes that a worker may take.

    Warns
    -----
    DissimilarityWarning
        When points are left out.
    """
    if disconnected not in DISCONNECTED:
        raise InputError(f"disconnected must be {' or '.join(map(repr, DISCONNECTED))}, not {disconnected!r}.")
    names = source.ids if ids is None else ids
    if disconnected == "refuse":
        return source, None if names is None else list(names)
    graph = _counted(source, weighted)
    require_matrix(graph)
    labels = component_labels(graph, executor, math.inf, room_for(checking, graph, executor, memory_limit))
    outside = labels != largest_component(labels)
    if not outside.any():
        return source, None if names is None else list(names)
    left, rows = np.flatnonzero(outside), np.flatnonzero(~outside)
    warn_user(
        f"{left.size:,} of {source.n:,} points are left out, because no chain of known pairs joins them to the largest "
        f"component: {names_of(left.tolist(), names)}"
    )
    kept = [str(k) if names is None else names[k] for k in rows.tolist()]
    return subset_of(source, rows), kept


def _counted(source: RowSource, weighted: bool) -> RowSource:
    """The matrix of which known entries join points: those of a positive weight, where there are weights."""
    if not isinstance(source, PairedRows):
        return source
    return WithoutZeroWeights(source.first, source.sources[-1]) if weighted else source.first


def rows_kept(source: RowSource) -> Ints:
    """Rows that are left of a matrix, or of matrices side by side, of which `subset_of` took some."""
    first = source.first if isinstance(source, PairedRows) else source
    assert isinstance(first, Subset)
    return first.rows


def subset_of(source: RowSource, rows: Ints) -> RowSource:
    """Return a matrix, or matrices side by side, of some of the points."""
    if isinstance(source, PairedRows):
        return PairedRows(tuple(Subset(part, rows) for part in source.sources))
    return Subset(source, rows)
