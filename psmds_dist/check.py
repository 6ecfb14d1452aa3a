"""The input check: one streamed pass tells whether a matrix can be used, and what is wrong with it if not.

A pair that differs from its mirror image by more than the tolerance is always noticed when the rest of its
row is symmetric to rounding, and otherwise once it stands out of the row's other differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from psmds_dist.kernels.warm import warm_up_scan
from psmds_dist.partition import Layout
from psmds_dist.plan import PANEL_BYTES, Needs, checking
from psmds_dist.rows import stored, testing_checksums
from psmds_dist.scan import (
    Fault,
    GatherColumns,
    Scan,
    ScanBlocks,
    Scanner,
    group_size,
)
from psmds_dist.types import Executor, Floats, InputCheck, InputError, Ints, RowSource

SYMMETRY_TOL = 1e-4
"""Largest ``|t_ij - t_ji|`` that passes as rounding, as a share of the root mean square."""

LOOK_BYTES = 64_000_000
"""Rows and columns gathered for an entry-by-entry comparison, in float64."""

Progress = Callable[[int, int], None]
Ids = Sequence[str] | None


@dataclass(frozen=True)
class Pair:
    """An entry and its mirror image."""

    i: int
    j: int
    value: float
    mirrored: float

    @property
    def difference(self) -> float:
        """How far apart the two are."""
        return abs(self.value - self.mirrored)


def check_source(
    source: RowSource,
    executor: Executor,
    *,
    ids: Ids = None,
    symmetry_tol: float = SYMMETRY_TOL,
    memory_limit: int | None = None,
    on_progress: Progress | None = None,
) -> InputCheck:
    """Read a whole matrix once and tell whether it can be used.

    Parameters
    ----------
    source : RowSource
        The matrix.
    executor : Executor
        Where to run.
    ids : sequence of str, optional
        Names of the rows, for messages.
    symmetry_tol : float
        Largest ``|t_ij - t_ji|`` to let pass, as a share of the root mean square dissimilarity.
    memory_limit : int, optional
        Bytes that a worker may take.
    on_progress : callable, optional
        Called with the number of blocks done and the number of all.

    Returns
    -------
    InputCheck
        Scale and identity of the data.

    Raises
    ------
    InputError
        In one sentence, the first fault and where it is.
    """
    require_size(source.n)
    layout = Layout(source.n)
    scan = Scan(source.n, source.dtype)
    executor.prepare(partial(warm_up_scan, source.dtype.name))
    room = room_for(checking, source, executor, memory_limit)
    work = ScanBlocks(testing_checksums(source), partial(Scanner, source.n), room)
    for _, group in executor.run(work, range(layout.count), group=group_size(source, executor, room)):
        scan.add(group)
        if on_progress is not None:
            on_progress(scan.done, layout.count)
    return conclude(scan, source, executor, ids=ids, symmetry_tol=symmetry_tol, room=room)


def room_for(kind: Callable[..., Needs], source: RowSource, executor: Executor, memory_limit: int | None) -> int:
    """Bytes of rows that a pass may read together, within what its kind of pass needs besides."""
    if memory_limit is None:
        return PANEL_BYTES
    return kind(stored(source), executor.n_workers, here=executor.in_process).room(memory_limit)


def require_size(n: int) -> None:
    """Refuse matrices that are too small to be mapped."""
    if n < 3:
        raise InputError(f"the matrix has {n} point{'s' * (n != 1)}, but a map needs at least 3.")


def require_dims(n: int, dims: int) -> None:
    """Refuse a map of more dimensions than so many points can need."""
    require_size(n)
    if dims >= n:
        raise InputError(
            f"n_components must be below the number of points, {n}, not {dims}: any dissimilarities fit exactly in "
            "fewer dimensions than points."
        )


def conclude(
    scan: Scan,
    source: RowSource,
    executor: Executor,
    *,
    ids: Ids = None,
    symmetry_tol: float = SYMMETRY_TOL,
    room: int = PANEL_BYTES,
) -> InputCheck:
    """Judge a finished pass; ``source`` is read again only when its symmetry is in doubt."""
    _refuse_faults(scan, ids)
    rms = scan.rms
    refuse_similarities(scan.diagonal, rms)
    _refuse_negative(scan, ids)
    _refuse_diagonal(scan.diagonal, ids)
    highest = max(block.highest for block in scan.blocks)
    refuse_tiny(scan.dtype, rms, highest)
    pair = _doubtful_pair(scan, source, executor, symmetry_tol * rms, room)
    if pair is not None and pair.difference > symmetry_tol * rms:
        raise InputError(_asymmetric(pair, rms, symmetry_tol, ids))
    return InputCheck(
        n=scan.n,
        dtype=scan.dtype.name,
        highest=highest,
        rms=rms,
        symmetry_tol=symmetry_tol,
        asymmetry=None if pair is None else pair.difference / rms,
        digest=scan.digest,
    )


def row_name(row: int, ids: Ids) -> str:
    """Return a row as people know it."""
    return f"{row}" if ids is None else f"{row} (id {ids[row]!r})"


def total_fault(faults: Sequence[Fault | None]) -> Fault | None:
    """Return the first of some faults, with the count of all."""
    found = [fault for fault in faults if fault is not None]
    if not found:
        return None
    first = found[0]
    return Fault(sum(fault.count for fault in found), first.row, first.column, first.value)


def _where(fault: Fault, ids: Ids) -> str:
    return f"the first in row {row_name(fault.row, ids)}, column {row_name(fault.column, ids)}"


def entries(count: int, kind: str) -> str:
    """Count entries in words."""
    return f"{count} {kind} entr{'y' if count == 1 else 'ies'}"


def _refuse_faults(scan: Scan, ids: Ids) -> None:
    nan = total_fault([block.nan for block in scan.blocks])
    if nan is not None:
        raise InputError(
            f"the matrix has {entries(nan.count, 'NaN')}, {_where(nan, ids)}; missing pairs are not "
            "supported where all are used, so fill them in, leave out their points, or embed through landmarks without "
            "a full refinement (psmds landmarks fit, LandmarkMDS)."
        )
    infinite = total_fault([block.infinite for block in scan.blocks])
    if infinite is not None:
        raise InputError(
            f"the matrix has {entries(infinite.count, 'infinite')} as {scan.dtype.name}, {_where(infinite, ids)}; "
            "replace them by finite dissimilarities or leave out their points."
        )
    if not math.isfinite(scan.rms):
        raise InputError("the squares of the dissimilarities overflow; divide the matrix by a constant first.")


def refuse_similarities(diagonal: Floats, rms: float) -> None:
    """Refuse what looks like a Gram matrix: as ``t_ij^2 <= t_ii t_jj``, its diagonal outweighs the rest."""
    if diagonal.min() > 0 and diagonal.mean() >= rms:
        raise InputError(
            "the matrix looks like similarities: its largest values are on the diagonal (mean "
            f"{diagonal.mean():g}, against a root mean square of {rms:g} elsewhere), so turn them into "
            "dissimilarities first, for example by sqrt(s_ii + s_jj - 2 s_ij)."
        )


def _refuse_negative(scan: Scan, ids: Ids) -> None:
    negative = total_fault([block.negative for block in scan.blocks])
    if negative is not None:
        raise InputError(
            f"the matrix has {entries(negative.count, 'negative')}, {_where(negative, ids)} "
            f"({negative.value:g}), but dissimilarities are zero or more; correct them at their origin."
        )


def _refuse_diagonal(diagonal: Floats, ids: Ids) -> None:
    wrong = np.flatnonzero(diagonal)
    if wrong.size:
        worst = int(np.abs(diagonal).argmax())
        raise InputError(
            f"the diagonal is not zero in {wrong.size} of {diagonal.size} rows, the largest "
            f"{diagonal[worst]:g} in row {row_name(worst, ids)}; set it to zero (numpy.fill_diagonal, or "
            "psmds ingest --zero-diagonal)."
        )


def refuse_tiny(dtype: np.dtype[Any], rms: float, highest: float) -> None:
    """Refuse what has lost its digits, or would in float64 squares of differences, and so seem to be fitted."""
    name, limits = dtype.name, np.finfo(dtype)
    if highest == 0:
        raise InputError(
            f"all dissimilarities are zero as {name}, so there is nothing to map; check how they were computed."
        )
    least = float(limits.tiny / limits.eps)
    if rms < (math.sqrt(least) if name == "float64" else least):
        raise InputError(
            f"the dissimilarities, at most {highest:g}, are too small for the digits of {name}; multiply the matrix "
            "by a constant first."
        )


def _asymmetric(pair: Pair, rms: float, symmetry_tol: float, ids: Ids) -> str:
    i, j = row_name(pair.i, ids), row_name(pair.j, ids)
    return (
        f"the matrix is not symmetric: the worst pair found is {i} and {j}, with {pair.value:.9g} in row "
        f"{pair.i} and {pair.mirrored:.9g} in row {pair.j}, which differ by {pair.difference / rms:.2g} of "
        f"the root mean square ({rms:.6g}) where {symmetry_tol:g} is tolerated; use symmetrize=True "
        "(psmds ingest --symmetrize) to take the mean of both orders, which has the same best map."
    )


def _doubtful_pair(scan: Scan, source: RowSource, executor: Executor, bound: float, room: int) -> Pair | None:
    """Compare the most suspect rows with their columns, if any row is suspect.

    One entry that differs by ``d`` moves both sketches of its row by ``d`` to ``2 d``, so nothing above the
    bound escapes; noise in all entries together may raise a false suspicion, which this look then settles.
    """
    imbalance = scan.imbalance
    if not (imbalance > bound).any():
        return None
    count = max(16, LOOK_BYTES // (16 * scan.n))
    suspects = np.argsort(-imbalance, kind="stable")[:count]
    return find_asymmetry(source, np.sort(suspects), executor, room)


def find_asymmetry(source: RowSource, suspects: Ints, executor: Executor, room: int = PANEL_BYTES) -> Pair:
    """Compare some rows with the columns of the same index, entry by entry, and return the worst pair.

    Columns are gathered, as many at a time as ``room`` bytes hold; each time takes another pass.
    """
    room //= 2
    step = max(1, room // (16 * source.n))
    pairs = [
        pair
        for first in range(0, suspects.size, step)
        for pair in _compared(source, suspects[first : first + step], executor, room)
    ]
    return max(pairs, key=lambda pair: pair.difference)


def _compared(source: RowSource, suspects: Ints, executor: Executor, room: int) -> Iterator[Pair]:
    """The worst pair of each suspect row."""
    columns = np.empty((source.n, suspects.size))
    work, size = GatherColumns(source, suspects, room), group_size(source, executor, room)
    for _, parts in executor.run(work, range(Layout(source.n).count), group=size):
        for lo, part in parts:
            columns[lo : lo + len(part)] = part
    row = np.empty((1, source.n), source.dtype)
    for k, i in enumerate(suspects.tolist()):
        source.read(i, i + 1, row)
        j = int(np.abs(row[0] - columns[:, k]).argmax())
        yield Pair(i, j, float(row[0, j]), float(columns[j, k]))
