"""What users hand over becomes a row source: arrays, data frames, Zarr paths and arrays, Dask arrays."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import fill, is_distance_matrix, is_frame, is_masked, numbers_of
from psmds_dist.core.executor import Executor
from psmds_dist.core.layout import Layout
from psmds_dist.core.sources import RowSource, require_square, require_valid
from psmds_dist.core.types import InputError, Rows
from psmds_dist.data.formats import table_recipe
from psmds_dist.data.ids import check_ids
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.paired import PairedRows
from psmds_dist.data.pairs import PairRows
from psmds_dist.data.sources import ArrayRows, require_numeric
from psmds_dist.data.transforms import Symmetrized, mean_of_orders
from psmds_dist.executor import elementwise, write_dask_array
from psmds_dist.ingest.check import refuse_one_triangle, require_two
from psmds_dist.ingest.diagnose import spread
from psmds_dist.ingest.triangles import Triangles, count_sides


def labels_of(matrix: Any) -> list[str] | None:
    """Row names of a data frame or distance matrix, or None for anything without.

    Raises
    ------
    InputError
        When the index and the columns of a square data frame name the points differently.
    """
    if is_distance_matrix(matrix):
        return list(map(str, matrix.ids))
    if not is_frame(matrix):
        return None
    index, columns = list(matrix.index), list(matrix.columns)
    if len(columns) == len(index) + 1 and index == list(range(len(index))):
        raise InputError(
            f"the data frame has one column more than rows, {len(columns)} and {len(index)}: if column {columns[0]!r} "
            f"holds the names, use frame.set_index({columns[0]!r})."
        )
    names, headings = (list(map(str, axis)) for axis in (index, columns))
    unnamed = list(range(len(names)))
    if names == headings or len(names) != len(headings) or columns == unnamed:
        return names
    if index == unnamed:
        return headings
    raise InputError(_disagreement(index, columns))


def _disagreement(index: list[Any], columns: list[Any]) -> str:
    """Sentence about a frame whose axes do not name the points alike."""
    k = next(k for k, (row, column) in enumerate(zip(index, columns, strict=True)) if str(row) != str(column))
    row, column = index[k], columns[k]
    if isinstance(column, str) and not isinstance(row, str):
        return (
            f"the data frame's index holds {row} where its columns hold the text {column!r} (row {k}), so its names "
            f"were read as numbers; read them as text, for example with `{table_recipe('matrix.tsv')}`."
        )
    if isinstance(row, str) and not isinstance(column, str):
        return (
            f"the data frame's columns hold {column} where its index holds the text {row!r} (column {k}); if both are "
            "in the same order, set frame.columns = frame.index."
        )
    if set(map(str, index)) == set(map(str, columns)):
        return (
            "the data frame's index and columns name the points in different orders: reindex it so that row "
            "and column k are the same point, with frame.loc[frame.columns]."
        )
    return (
        f"the data frame's index and columns have different names, first {row!r} in row {k} and {column!r} in column "
        f"{k}: name row and column k after the same point."
    )


def ids_of(source: RowSource) -> list[str] | None:
    """Names of the points that a source has, if any."""
    return None if source.ids is None else check_ids(source.ids, source.n)


def require_usable(source: RowSource) -> None:
    """Refuse a user's own source whose shape, dtype or ids cannot be used.

    Raises
    ------
    InputError
        In a sentence that names the attribute.
    """
    require_valid(source)
    ids_of(source)


def path_of(matrix: Any, source: RowSource) -> str | None:
    """Where a matrix is stored that was passed as a path, a Zarr array or a row source; None for one in memory."""
    there = isinstance(matrix, str | os.PathLike | RowSource) or _is_from("zarr", matrix)
    return source.location if there else None


def paths_beside(source: RowSource, **given: Any) -> dict[str, str]:
    """Where the matrices beside the first one are stored, of those that were passed as paths or the like."""
    if not isinstance(source, PairedRows):
        return {}
    passed = {name: matrix for name, matrix in given.items() if matrix is not None}
    pairs = zip(passed.items(), source.sources[1:], strict=True)
    paths = {name: path_of(matrix, other) for (name, matrix), other in pairs}
    return {name: path for name, path in paths.items() if path is not None}


def size_of(matrix: Any) -> int:
    """Return the number of points of a matrix that has a shape.

    Raises
    ------
    InputError
        When it is not square.
    """
    shape = tuple(matrix.shape)
    if not all(length == length for length in shape):
        raise InputError("X is a Dask array of unknown shape: call its compute_chunk_sizes() first.")
    if len(shape) != 2 or shape[0] != shape[1]:
        hint = (
            "; for a table of features compute distances first ('psmds distances'), for distances to landmarks alone "
            "use LandmarkMDS ('psmds landmarks fit')"
        ) * (len(shape) == 2)
        raise InputError(f"X must be a square matrix of dissimilarities, not of shape {shape}{hint}.")
    return int(shape[0])


@contextmanager
def row_source(
    matrix: Any,
    executor: Executor,
    *,
    dtype: str = "float32",
    symmetrize: bool = False,
    scratch: str | os.PathLike[str] | None = None,
) -> Iterator[RowSource]:
    """Rows of whatever ``matrix`` is, readable by everyone who works for ``executor``.

    Zarr stores and ``.npy`` files are used in place. Matrices in memory are used as they are in this process, and
    written to a temporary store where other processes must read them; Dask arrays go to a temporary store too.

    Parameters
    ----------
    matrix : ndarray, data frame, zarr.Array, dask.array.Array, RowSource, str or path
        The dissimilarities.
    executor : Executor
        Who will read them.
    dtype : {"float32", "float64"}
        Type of the rows.
    symmetrize : bool
        Take the mean of both orders of every pair.
    scratch : path, optional
        Directory for temporary stores, shared by all machines that work.

    Raises
    ------
    InputError
        When the input cannot be read as a square matrix of numbers.
    """
    dtype = row_type(dtype)
    if isinstance(matrix, RowSource):
        require_usable(matrix)
        require_square(matrix)
        with _within_reach(matrix, executor, symmetrize, scratch) as source:
            yield source
    elif isinstance(matrix, str | os.PathLike) or _is_from("zarr", matrix):
        yield _stored(matrix, executor, dtype, symmetrize)
    elif _is_from("dask", matrix):
        with scratch_store(scratch, executor) as path:
            yield _from_dask(matrix, path, dtype, symmetrize, executor)
    else:
        array = ArrayRows(_in_memory(matrix), dtype=dtype).converted()  # several passes will read it
        with _within_reach(array, executor, symmetrize, scratch) as source:
            yield source


@contextmanager
def paired_rows(
    matrix: Any, weights: Any, upper: Any, executor: Executor, **how: Any
) -> Iterator[tuple[RowSource, list[str] | None]]:
    """Rows of a matrix with its weights and upper bounds beside it, where there are any, and the names of the points.

    Parameters
    ----------
    matrix, weights, upper : as in `row_source`
        Dissimilarities (or lower bounds), and None or matrices of the same points.
    executor : Executor
        Who will read them.
    **how
        Further arguments of `row_source`; the last two are never symmetrized.

    Raises
    ------
    InputError
        When they are not of the same points in the same order.
    """
    with ExitStack() as stack:
        first, names = _opened(stack, matrix, executor, how)
        beside = {**how, "symmetrize": False}
        others = {
            what: _opened_beside(what, stack, given, executor, beside)
            for what, given in {"upper": upper, "weights": weights}.items()
            if given is not None
        }
        yield side_by_side(first, names, others), names


def _opened(
    stack: ExitStack, matrix: Any, executor: Executor, how: Mapping[str, Any]
) -> tuple[RowSource, list[str] | None]:
    """Rows of a matrix, and the names of its points."""
    names = labels_of(matrix)  # first, as what is no matrix may have wrong names
    source = stack.enter_context(row_source(matrix, executor, **how))
    return source, names or ids_of(source)


def _opened_beside(
    what: str, stack: ExitStack, given: Any, executor: Executor, how: Mapping[str, Any]
) -> tuple[RowSource, list[str] | None]:
    """The same of a matrix beside the first; errors name it. A mask is one of weights, zero and one."""
    mask = what == "weights" and isinstance(given, np.ndarray) and given.dtype == bool and not is_masked(given)
    try:
        return _opened(stack, given.astype(how.get("dtype", "float32")) if mask else given, executor, how)
    except InputError as error:
        told = str(error)
        raise InputError(f"{what}{told[1:]}" if told.startswith("X ") else f"{what}: {told}") from None


def side_by_side(
    first: RowSource, ids: list[str] | None, others: Mapping[str, tuple[RowSource, list[str] | None]]
) -> RowSource:
    """Put matrices beside the first one, where there are any.

    Parameters
    ----------
    first : RowSource
        Dissimilarities, or lower bounds.
    ids : list of str or None
        Names of its points.
    others : mapping
        ``"upper"`` and ``"weights"``, in this order, as far as they are given: a source and its own names.

    Raises
    ------
    InputError
        When they are not of the same points in the same order.
    """
    for what, (source, names) in others.items():
        _require_same_points(what, source.n, names, first.n, ids)
    return PairedRows((first, *(source for source, _ in others.values()))) if others else first


def _require_same_points(what: str, n: int, names: list[str] | None, wanted: int, ids: list[str] | None) -> None:
    """Refuse a matrix beside another one that is of other points, or has them in another order."""
    if n != wanted:
        raise InputError(
            f"{what} is a matrix of {n} points, but belongs to one of {wanted}; give one of the same points."
        )
    if names is None or ids is None or names == ids:
        return
    k = next(k for k in range(n) if names[k] != ids[k])
    order = "in another order" if set(names) == set(ids) else "differently"
    raise InputError(
        f"{what} names the points {order}, first {names[k]!r} in row {k} where the matrix has {ids[k]!r}; bring its "
        f"rows and columns into the order of the matrix, as {what}.loc[ids, ids] does for a data frame."
    )


@contextmanager
def _within_reach(
    source: RowSource, executor: Executor, symmetrize: bool, scratch: str | os.PathLike[str] | None
) -> Iterator[RowSource]:
    """A source that other processes can read as well: what is in the memory of this one goes to a scratch store."""
    here = isinstance(source, ArrayRows | PairRows)
    if symmetrize:
        refuse_one_triangle(source)
        source = Symmetrized(source)
    if executor.in_process or not here:
        yield source
    else:
        with scratch_store(scratch, executor) as path:
            yield _copied(source, path)


def row_type(dtype: Any) -> str:
    """Name of a type that rows can be delivered in.

    Raises
    ------
    InputError
        For any other.
    """
    with suppress(TypeError):
        name = "" if dtype is None else str(np.dtype(dtype))
        if name in ("float32", "float64"):
            return name
    raise InputError(f"dtype must be 'float32' or 'float64', not {dtype!r}.")


def _in_memory(matrix: Any) -> NDArray[Any]:
    if is_masked(matrix):
        return np.where(matrix.mask, np.nan, require_numeric(matrix.data, "X"))
    return numbers_of(matrix, "X")


def _is_from(package: str, value: object) -> bool:
    return type(value).__module__.split(".")[0] == package


def _stored(matrix: Any, executor: Executor, dtype: str, symmetrize: bool) -> RowSource:
    rows = open_matrix(matrix, dtype)
    executor.check_readable(rows)
    if symmetrize:
        raise InputError(
            "symmetrize works on matrices in memory; for a stored matrix run 'psmds ingest --symmetrize' "
            "once and embed the store it writes."
        )
    return rows


def _from_dask(array: Any, path: Path, dtype: str, symmetrize: bool, executor: Executor) -> RowSource:
    """Compute a Dask array into a store."""
    from psmds_dist.data.store import create

    n = size_of(array)
    rows = array.map_blocks(_converted, dtype, dtype=dtype)
    if symmetrize:
        few = spread(n, 8)
        looked_at = executor.compute(rows[few])
        require_two(Triangles.total(count_sides(row[None], i) for i, row in zip(few.tolist(), looked_at, strict=True)))
        rows = elementwise(_mean, rows, rows.T)
    target = create(path, n, dtype)
    write_dask_array(rows, target.write, Layout(n), executor)
    return target


def _converted(values: NDArray[Any], dtype: str) -> Rows:
    rows: Rows = np.empty(values.shape, dtype)
    fill(rows, values)
    return rows


def _mean(rows: Rows, columns: Rows) -> Rows:
    mean = rows.copy()
    mean_of_orders(mean, columns.copy())
    return mean


def _copied(source: RowSource, path: Path) -> RowSource:
    """Write a source in memory to a store; the check reads it there."""
    from psmds_dist.data.store import create

    layout = Layout(source.n)
    target = create(path, source.n, source.dtype.name)
    buffer: Rows = np.empty((layout.rows, source.n), source.dtype)
    for block in range(layout.count):
        lo, hi = layout.bounds(block)
        source.read(lo, hi, buffer)
        target.write(block, buffer[: hi - lo])
    return target


@contextmanager
def scratch_store(scratch: str | os.PathLike[str] | None, executor: Executor) -> Iterator[Path]:
    """Yield a path in a new directory that every worker sees, and remove the directory in the end."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="psmds-", dir=scratch))
    except OSError as error:
        raise InputError(f"scratch={str(scratch)!r} cannot be written to: {error.strerror}.") from None
    try:
        executor.check_writable(str(folder), "pass scratch= a directory that all machines share")
        yield folder / "matrix.zarr"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
