"""The pass that writes a store and checks it on the way, and goes on where an interrupted one stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Executor, InputCheck, InputError, Rows
from psmds_dist.data.encoding import HALF_SIZES, Rounded
from psmds_dist.data.ids import check_ids
from psmds_dist.data.transforms import TRIANGLES, OneTriangle, Symmetrized, ZeroDiagonal
from psmds_dist.ingest.check import (
    SYMMETRY_TOL,
    MatrixChecker,
    refuse_one_triangle,
    refuse_similarities,
    require_matrix,
    room_for,
)
from psmds_dist.ingest.connected import keep_connected
from psmds_dist.ingest.conversion import RoundingChecker, encoding_for, from_similarities
from psmds_dist.ingest.diagnose import count_triangles
from psmds_dist.ingest.halves import half_computed
from psmds_dist.ingest.passes import Check, Checker
from psmds_dist.ingest.scan import BlockScanner, Progress, panel_blocks, read_strips, scan_all, split
from psmds_dist.planning import memory
from psmds_dist.utils.locks import exclusive_lock
from psmds_dist.utils.text import note_unsafe

if TYPE_CHECKING:
    from psmds_dist.data.store import Target

F = TypeVar("F")
S = TypeVar("S")
C = TypeVar("C", bound=Check)


@dataclass(frozen=True)
class BuildBlocks(Generic[F]):
    """Work of the pass: write what is not written yet, and scan everything."""

    source: RowSource
    target: Target
    panel: int
    scanner: Callable[[], BlockScanner[F]]

    def __call__(self, blocks: Sequence[int]) -> F:
        """Build and scan ``blocks``."""
        scanner, layout = self.scanner(), self.source.layout
        missing = self._scan_written(scanner, blocks)
        # a copy gets checksums of its own, which would hide damage that those of the source show
        for run, panel in read_strips(self.source.verified(), missing, self.panel):
            for block, rows in split(layout, run, panel):
                self.target.write(block, rows)
                scanner.add(block, rows)
        return scanner.result()

    def _scan_written(self, scanner: BlockScanner[F], blocks: Sequence[int]) -> list[int]:
        """Scan the blocks that an earlier run has written, and return the others."""
        written = sorted(self.target.written(blocks))
        missing = [block for block in blocks if block not in written]
        if written:
            layout = self.source.layout
            buffer: Rows = np.empty((layout.rows, layout.columns), self.source.dtype)
            stored = self.target.verified()
            for block in written:
                lo, hi = layout.bounds(block)
                try:
                    stored.read(lo, hi, buffer)
                except DamagedDataError:  # its source is at hand, so write it again
                    missing.append(block)
                else:
                    scanner.add(block, buffer[: hi - lo])
        return missing


def build(
    source: RowSource,
    path: str | os.PathLike[str],
    executor: Executor,
    *,
    ids: Sequence[str] | None = None,
    metric: str | None = None,
    overwrite: bool = False,
    symmetrize: bool = False,
    triangle: str | None = None,
    zero_diagonal: bool = False,
    disconnected: str = "refuse",
    similarity: str | None = None,
    dtype: str | None = None,
    symmetry_tol: float = SYMMETRY_TOL,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> InputCheck:
    """Write a source into a store and check it, in one pass.

    An interrupted build leaves an unfinished store, which the same call completes; a finished one is checked again.
    A store that fails the check is removed: everything in it is in the source still.

    Parameters
    ----------
    source : RowSource
        Where rows come from; its dtype is that of the store.
    path : path
        Directory of the store.
    executor : Executor
        Where to run.
    ids : sequence of str, optional
        Names of the points; by default those of the source.
    metric : str, optional
        Name of the metric, for the record.
    overwrite : bool
        Whether a store that is at ``path`` already is removed first.
    symmetrize : bool
        Whether to write the mean of both orders of every pair.
    triangle : {"upper", "lower", "auto"}, optional
        Write the entries of this triangle on both sides of the diagonal, and ignore those of the other. ``"auto"``
        counts the entries of both in a pass of its own and does so when one is empty.
    zero_diagonal : bool
        Whether to write zeros on the diagonal. Refused when the matrix looks like similarities.
    disconnected : {"refuse", "largest"}
        What to do with points that no chain of known pairs joins to the others: refuse the matrix, or write the largest
        component only. Rows that have no names keep their numbers as such.
    similarity : {"1-s", "sqrt(1-s)", "sqrt(2(1-s))", "-log s", "max-s", "1/s"}, optional
        The source holds similarities ``s``: write the dissimilarities that this formula computes from them, in float64;
        ``max`` is the largest of all entries, found in a pass of its own.
    dtype : {"float32", "float64", "float16", "uint16"}, optional
        Type of the store where ``similarity`` is given; by default that of the source, which had better be float64.
        The last two, with or without ``similarity``, halve the bytes of float32, as which rows of theirs are read:
        ``"float16"`` keeps eleven binary digits; ``"uint16"`` keeps multiples of a power of two, of which the largest
        dissimilarity is 32,767 to 65,534, and finds that in a pass of its own.
    symmetry_tol : float
        Largest ``|t_ij - t_ji|`` to let pass, as a share of the root mean square.
    memory_limit : int, optional
        Bytes that a worker may take.
    on_progress : callable, optional
        Called with the number of blocks done and the number of all.

    Returns
    -------
    InputCheck

    Raises
    ------
    InputError
        With all that is wrong with the matrix.

    Warns
    -----
    DissimilarityWarning
        When entries were taken for rounded zeros, or behave like similarities.
    """
    require_matrix(source)
    names = check_target(source, path, ids)
    if zero_diagonal and similarity is None:
        refuse_similarities(source, names)
    source = _mirrored(source, executor, symmetrize, triangle, memory_limit)
    if similarity is not None:
        room = room_for(memory.building, source, executor, memory_limit)
        row_dtype = "float32" if dtype in HALF_SIZES else dtype or source.dtype
        source = from_similarities(source, similarity, executor, room, np.dtype(row_dtype))
    source, names = keep_connected(source, executor, disconnected, ids=names, memory_limit=memory_limit)
    source, checker = ZeroDiagonal(source) if zero_diagonal else source, MatrixChecker(names, symmetry_tol)
    if dtype in HALF_SIZES:
        room = room_for(memory.building, source, executor, memory_limit)
        source = Rounded(source, encoding_for(str(dtype), source, executor, room))
        checker = RoundingChecker(names, symmetry_tol, encoding=source.encoding)
    return write_checked(
        source,
        path,
        checker,
        executor,
        ids=names,
        metric=metric,
        overwrite=overwrite,
        memory_limit=memory_limit,
        on_progress=on_progress,
    )


def check_target(source: RowSource, path: str | os.PathLike[str], ids: Sequence[str] | None) -> list[str] | None:
    """Return the names that a store will hold, once it is known that it can be written beside its source."""
    from psmds_dist.data.store import require_apart  # late: needs Zarr

    given = source.ids if ids is None else ids
    names = None if given is None else check_ids(given, source.n)
    note_unsafe(names)
    require_apart(path, source.location)
    return names


def write_checked(
    source: RowSource,
    path: str | os.PathLike[str],
    checker: Checker[F, S, C],
    executor: Executor,
    *,
    ids: Sequence[str] | None = None,
    metric: str | None = None,
    overwrite: bool = False,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> C:
    """Write a source of any kind into a store and check it, in one pass; parameters as in `build`."""
    from psmds_dist.data.store import create

    checker.warm_up(source, executor)
    room = checker.room(source, executor, memory_limit, writing=True)
    with exclusive_lock(path):
        target = create(
            path,
            source.n,
            source.encoding if isinstance(source, Rounded) else source.dtype.name,
            width=checker.width(source),
            landmarks=source.landmarks,
            ids=ids,
            metric=metric,
            source_fingerprint=source.content_id,
            notes=source.notes,
            overwrite=overwrite,
        )
        with (
            _removed_if_refused(target),
            half_computed(source, target, executor, room, on_progress) as rows,
        ):
            room = checker.room(rows, executor, memory_limit, writing=True)
            work = BuildBlocks(rows, target, panel_blocks(rows, room), checker.scanner(rows))
            collected = checker.collect(rows, scan_all(rows, work, executor, room, on_progress))
            check = checker.evaluate(collected, target, executor, room)
        check.suspicion.warn(checker.what)
        target.finish(check.as_dict())
    return check


@contextmanager
def _removed_if_refused(target: Target) -> Iterator[None]:
    """Remove what was written where the source is damaged or refused: all of it is in the source still."""
    try:
        yield
    except InputError:
        target.discard()
        raise


def _mirrored(
    source: RowSource, executor: Executor, symmetrize: bool, triangle: str | None, memory_limit: int | None
) -> RowSource:
    """Make the matrix symmetric, where that is asked for."""
    if not symmetrize and triangle is None:
        return source
    if symmetrize and triangle is not None:
        raise InputError(
            "symmetrize=True (--symmetrize) takes the mean of both triangles and triangle (--triangle) one of them; "
            "give one of the two."
        )
    if symmetrize:
        refuse_one_triangle(source)
        return Symmetrized(source)
    side = _side(source, executor, triangle, room_for(memory.building, source, executor, memory_limit))
    return source if side is None else OneTriangle(source, side)


def _side(source: RowSource, executor: Executor, triangle: str | None, room: int) -> str | None:
    """The triangle to use; None when both are filled and the matrix can be taken as it is."""
    if triangle not in TRIANGLES:
        raise InputError(f"triangle must be {', '.join(map(repr, TRIANGLES))} or None, not {triangle!r}.")
    return count_triangles(source, executor, room).only if triangle == "auto" else triangle
