"""What users hand over becomes a panel, or points to make one of, readable by everyone who works."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from landmarks.panel.build import build_panel
from landmarks.panel.check import PanelEntries
from landmarks.panel.sources import StorePanel
from landmarks.panel.tables import array_panel, labelled, npy_panel
from psmds_dist.api.inputs import require_usable, scratch_store
from psmds_dist.core.executor import Executor
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Ints, Rows
from psmds_dist.data.cache import stored
from psmds_dist.data.sources import ArrayRows, NpyRows
from psmds_dist.data.stored_points import is_dask, store_points

Scratch = str | os.PathLike[str] | None


@contextmanager
def panel_input(
    panel: Any,
    executor: Executor,
    *,
    landmarks: Sequence[int] | Ints | None = None,
    dtype: str | None = None,
    scratch: Scratch = None,
) -> Iterator[RowSource]:
    """Open an ``n x S`` panel of dissimilarities.

    Parameters
    ----------
    panel : array_like, zarr.Array, RowSource, or path
        In memory, in a ``.npy`` file, in Zarr, or wherever a source of the user takes it from.
    executor : Executor
        Who will read it. What is in memory goes to a scratch file where other processes must read it.
    landmarks : sequence of int, optional
        Row of each column's landmark, when the panel does not say so itself.
    dtype : {"float32", "float64"}, optional
        Type of the rows; by default float32, except that our stores deliver what they hold.
    scratch : path, optional
        Directory for temporary files, shared by all machines that work.
    """
    if isinstance(panel, RowSource):
        require_usable(panel)
        yield labelled(panel, landmarks)
    elif _is_zarr(panel):
        from psmds_dist.data.store import open_panel  # late: needs Zarr

        rows = open_panel(panel, dtype, None if landmarks is None else list(landmarks))
        executor.check_readable(rows)
        yield rows
    else:
        with _plain(panel, executor, dtype or "float32", landmarks, scratch) as table:
            yield table


@contextmanager
def points_input(points: Any, executor: Executor, *, scratch: Scratch = None) -> Iterator[RowSource]:
    """Open ``(n, d)`` points, for `landmarks.panel.sources.points_panel`; parameters as in `panel_input`."""
    if isinstance(points, RowSource):
        require_usable(points)
        yield points.verified()
    elif _is_zarr(points):
        from psmds_dist.data.store import open_table

        rows = open_table(points)
        executor.check_readable(rows)
        yield rows.verified()
    elif is_dask(points):
        check = partial(executor.check_writable, advice="pass scratch= a directory that all machines share")
        yield store_points(points, scratch, executor.compute, check).verified()
    else:
        with _plain(points, executor, "float64", None, scratch) as table:
            yield table


def _is_zarr(given: Any) -> bool:
    if isinstance(given, str | os.PathLike):
        return Path(os.fspath(given)).suffix.lower() != ".npy"
    return type(given).__module__.split(".")[0] == "zarr"


@contextmanager
def _plain(
    given: Any,
    executor: Executor,
    dtype: str,
    landmarks: Sequence[int] | Ints | None,
    scratch: Scratch,
) -> Iterator[ArrayRows | NpyRows]:
    if isinstance(given, str | os.PathLike):
        table = npy_panel(given, dtype, landmarks)
        executor.check_readable(table)
        yield table
        return
    array = array_panel(given, dtype, landmarks)
    if executor.in_process:
        yield array
        return
    with scratch_store(scratch, executor) as place:
        path = place.with_name("table.npy")
        np.save(path, array.values)
        # identity by content, so that a panel being built from it can be continued by another run
        yield replace(npy_panel(path, dtype, landmarks), content_id=array.content_id)


@contextmanager
def matrix_panel(
    panel: StorePanel,
    executor: Executor,
    *,
    memory_limit: int,
    keep: int,
    names: PanelEntries | None = None,
    scratch: Scratch = None,
) -> Iterator[RowSource]:
    """Take the panel out of a whole matrix once, for any number of passes, into memory or a scratch store.

    Parameters
    ----------
    panel : StorePanel
        Source and landmarks.
    executor : Executor
        Who will read it.
    memory_limit : int
        Bytes that a worker may take, or this process.
    keep : int
        Of these, bytes for a panel in memory when the work is done in this process.
    names : PanelEntries, optional
        How messages name entries.
    scratch : path, optional
        Directory for temporary files, shared by all machines that work.
    """
    rows = stored(panel)
    if executor.in_process and rows.nbytes + rows.scratch <= keep:
        values: Rows = np.empty(panel.shape, panel.dtype)
        panel.verified().read(0, panel.n, values)
        yield array_panel(values, panel.dtype.name, panel.landmarks)
        return
    with scratch_store(scratch, executor) as place:
        from psmds_dist.data.store import open_panel

        path = place.with_name("panel.zarr")
        build_panel(panel, path, executor, names=names, memory_limit=memory_limit)
        yield open_panel(path)
