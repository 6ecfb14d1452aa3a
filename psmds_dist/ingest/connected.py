"""The part of a matrix whose points chains of known pairs join."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, InputError, Ints, warn_user
from psmds_dist.data.transforms import Subset
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
    memory_limit: int | None = None,
) -> tuple[RowSource, list[str] | None]:
    """Return a matrix and its names as they are, or of its largest component only.

    Parameters
    ----------
    source : RowSource
        The matrix.
    executor : Executor
        Where to run the pass that finds the components.
    disconnected : {"refuse", "largest"}
        ``"refuse"`` leaves it to the input check to refuse several components; ``"largest"`` keeps the largest.
    ids : sequence of str, optional
        Names of the points; by default those of the source.
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
    require_matrix(source)
    room = room_for(checking, source, executor, memory_limit)
    labels = component_labels(source, executor, math.inf, room)
    outside = labels != largest_component(labels)
    if not outside.any():
        return source, None if names is None else list(names)
    left = np.flatnonzero(outside)
    warn_user(
        f"{left.size:,} of {source.n:,} points are left out, because no chain of known pairs joins them to the largest "
        f"component: {names_of(left, names)}"
    )
    return _subset(source, np.flatnonzero(~outside), names)


def _subset(source: RowSource, rows: Ints, names: Sequence[str] | None) -> tuple[Subset, list[str]]:
    subset = Subset(source, rows)
    return subset, subset.ids if names is None else [names[k] for k in rows.tolist()]
