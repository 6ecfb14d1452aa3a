"""Finding the array that a path, a group or an array stands for, and refusing what is none."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, cast

import numpy as np
import zarr
from zarr.errors import NodeNotFoundError, ZarrUserWarning
from zarr.storage import LocalStore

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import InputError, StorageError
from psmds_dist.core.validation import check_landmarks
from psmds_dist.data.encoding import encoding_of
from psmds_dist.data.formats import NPY, begins_with, other_format
from psmds_dist.data.store.chunkfile import Chunks
from psmds_dist.data.store.decoding import bounded, most_stored
from psmds_dist.data.store.header import (
    FORMAT,
    PART_OF_STORE,
    ZARR_ERRORS,
    damage_told,
    directory,
    location,
    open_node,
    open_ours,
    read_header,
)
from psmds_dist.data.store.integrity import require_seal
from psmds_dist.data.store.reading import ARRAY, PANEL, ZarrRows, files_of, fingerprint, grid_of
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.utils.remote import parent_of

MOST_CHUNKS = 10**8
"""Chunks of an array that can be counted in a minute or two; what has more is refused at once."""

COUNTED = 10**6
"""Where more chunks than this are missing, files need not be told from chunks to say so."""


@dataclass(frozen=True)
class _Kind:
    """What is looked for, and how people are told that something is not that."""

    name: str
    noun: str
    shape: str
    rule: str
    advice: str
    square: bool = False

    def fits(self, array: zarr.Array[Any]) -> bool:
        """Whether an array has the right shape."""
        return array.ndim == 2 and (array.shape[0] == array.shape[1] if self.square else 0 not in array.shape)


_MATRIX = _Kind(
    ARRAY,
    "dissimilarities",
    "square 2-D",
    "a dissimilarity matrix is square and 2-D",
    "give the store it was made from",
    square=True,
)
_PANEL = _Kind(
    PANEL,
    "a panel",
    "2-D",
    "a panel is 2-D, a row for each point and a column for each landmark",
    "make a panel from it first (psmds landmarks panel)",
)
_TABLE = _Kind("points", "points", "2-D", "points are an array of shape (n, d)", "give a Zarr array of shape (n, d)")
_NOUNS = {ARRAY: _MATRIX.noun, PANEL: _PANEL.noun}


def open_rows(path: str | os.PathLike[str] | zarr.Array[Any], dtype: str | None = None) -> ZarrRows:
    """Open a store of ours, or any square 2-D Zarr array, of format 2 or 3.

    Parameters
    ----------
    path : path, URL or zarr.Array
        A store, an array, or a group with exactly one square array in it; also in a ``.zip`` archive.
    dtype : {"float32", "float64"}, optional
        Type of the rows to deliver; by default float32, except that our stores of float64 deliver that.

    Returns
    -------
    ZarrRows
    """
    return _opened(path, dtype, _MATRIX)


def open_panel(
    path: str | os.PathLike[str] | zarr.Array[Any],
    dtype: str | None = None,
    landmarks: Sequence[int] | None = None,
) -> ZarrRows:
    """Open a panel of ours, or any ``n x S`` Zarr array, of format 2 or 3.

    Parameters
    ----------
    path : path, URL or zarr.Array
        A store, an array, or a group with exactly one 2-D array in it.
    dtype : {"float32", "float64"}, optional
        As in `open_rows`.
    landmarks : sequence of int, optional
        Row of each column's landmark, when the array does not say so itself.

    Returns
    -------
    ZarrRows
    """
    rows = _opened(path, dtype, _PANEL)
    if landmarks is None:
        return rows
    given = check_landmarks(landmarks, *rows.shape)
    if rows.landmarks is not None and (given != rows.landmarks).any():
        column = int((given != rows.landmarks).argmax())
        raise InputError(
            f"landmarks has {given[column]} for column {column}, but the panel {rows.location} was made for "
            f"{rows.landmarks[column]} there; leave landmarks out."
        )
    return replace(rows, given=given)


def open_table(path: str | os.PathLike[str] | zarr.Array[Any], dtype: str = "float64") -> ZarrRows:
    """Open an ``(n, d)`` Zarr array of points, of format 2 or 3."""
    return _opened(path, dtype, _TABLE)


def foreign_group_at(path: str | os.PathLike[str]) -> zarr.Group | None:
    """Return a group of somebody else that stands for none of its arrays; None for anything else."""
    node = _open(path)
    if not isinstance(node, zarr.Group) or read_header(node):
        return None
    alone = len(arrays_within(node)) == len([array for array in _arrays(node) if array.ndim == 2]) == 1
    return node if is_anndata(node) or not alone else None


def is_anndata(group: zarr.Group) -> bool:
    """Whether a group says that AnnData wrote it: its ``X`` holds features, whatever its shape."""
    return group.attrs.get("encoding-type") == "anndata"


def arrays_within(group: zarr.Group) -> dict[str, zarr.Array[Any]]:
    """Return the 2-D arrays in a group and its subgroups, by their paths inside."""
    return {name: node for name, node in _members(group) if isinstance(node, zarr.Array) and node.ndim == 2}


def sparse_within(group: zarr.Group) -> list[str]:
    """Return the paths inside a group of matrices in compressed sparse form."""
    return [
        name
        for name, node in _members(group)
        if isinstance(node, zarr.Group) and {"data", "indices", "indptr"} <= set(node.array_keys())
    ]


def dissimilarities_within(group: zarr.Group) -> list[str]:
    """Return the paths inside a group of arrays that may hold dissimilarities: square, and no features of AnnData."""
    fitting = [name for name, array in arrays_within(group).items() if _MATRIX.fits(array)]
    return [name for name in fitting if not is_anndata(group) or name.startswith("obsp/")]


def _members(group: zarr.Group, depth: int | None = None) -> list[tuple[str, zarr.Array[Any] | zarr.Group]]:
    if isinstance(group.store, RemoteStore):
        group.store.require_listing()
    with damage_told(location(group)), warnings.catch_warnings():
        warnings.simplefilter("ignore", ZarrUserWarning)  # other things may lie in the directory
        return sorted(group.members(max_depth=depth), key=itemgetter(0))


def shape_at(path: str | os.PathLike[str] | zarr.Array[Any]) -> tuple[int, ...] | None:
    """Shape of the 2-D array that a path stands for; None for a group with none or several."""
    node = path if isinstance(path, zarr.Array) else _open(path)
    if isinstance(node, zarr.Group):
        arrays = [array for array in _arrays(node) if array.ndim == 2]
        return tuple(map(int, arrays[0].shape)) if len(arrays) == 1 else None
    return tuple(map(int, node.shape))


def _opened(path: str | os.PathLike[str] | zarr.Array[Any], dtype: str | None, kind: _Kind) -> ZarrRows:
    array, group = _find(path, kind)
    where = location(array)
    _require_shape(array, where, kind)
    _require_countable(array, where)
    chunks = files_of(array)
    _require_readable(array, chunks, where)
    _require_complete(array, chunks, where)
    encoding = encoding_of(array.dtype, {} if group is None else read_header(group))
    held = encoding.row_dtype.name if group is not None else "float32"
    return ZarrRows(bounded(array), fingerprint(array, chunks), encoding, _row_type(dtype or held), group)


def _row_type(dtype: str) -> np.dtype[Any]:
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', not {dtype!r}.")
    return np.dtype(dtype)


def _find(path: str | os.PathLike[str] | zarr.Array[Any], kind: _Kind) -> tuple[zarr.Array[Any], zarr.Group | None]:
    node = _reopen(path) if isinstance(path, zarr.Array) else _open(path)
    if isinstance(node, zarr.Array):
        owner = _owner(node)
        return (_foreign(node), None) if owner is None else (node, _require_usable(owner, kind))
    if read_header(node):
        group = _require_usable(node, kind)
        return _array_in(group, kind), group
    return _foreign(_only_fitting(node, kind)), None


def _foreign(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Refuse an array of ours whose group no longer says what it is."""
    if PART_OF_STORE in array.attrs:
        raise DamagedDataError(
            f"{location(array)} is part of a store of psmds, but what the store says of itself is damaged or gone; "
            "restore it from a copy, or build it anew."
        )
    return array


def _open(path: str | os.PathLike[str]) -> zarr.Array[Any] | zarr.Group:
    place = os.fspath(path)
    try:
        return open_node(place)
    except (InputError, StorageError):
        raise
    except (NodeNotFoundError, FileNotFoundError, NotADirectoryError):
        if os.path.isfile(place) and not begins_with(place, NPY):
            raise other_format(place) from None
        os.path.abspath(place)  # raises where the working directory of a relative path has been removed
        if not os.path.exists(place):
            raise InputError(f"{place} does not exist; give a Zarr array or group, or a file of a matrix.") from None
        raise InputError(
            f"{place} is not a Zarr store; give a Zarr array or group, or turn other files into a store with "
            "`psmds ingest`."
        ) from None
    except ImportError as error:  # zarr leaves remote stores to packages of their own
        raise InputError(f"{place} cannot be reached from here: {error}; or copy it to a disk.") from None
    except ZARR_ERRORS as error:
        raise DamagedDataError(f"{place} is damaged: zarr cannot read what it says of itself ({error}).") from None


def _reopen(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Open a local array by its absolute path, for workers that run elsewhere, and to read only."""
    if not isinstance(array.store, LocalStore):
        return array
    return zarr.open_array(str(directory(array).absolute()), mode="r")


def _owner(array: zarr.Array[Any]) -> zarr.Group | None:
    """Return our group around an array that was opened by itself."""
    place = location(array)
    return open_ours(parent_of(place)) if os.path.basename(place) in _NOUNS else None


def _require_usable(group: zarr.Group, kind: _Kind) -> zarr.Group:
    header, where = read_header(group), location(group)
    if header["kind"] != kind.name:
        found = _NOUNS.get(header["kind"], f"a {header['kind']}")
        raise InputError(f"{where} holds {found}, not {kind.noun}; {kind.advice}.")
    if header.get("format") not in range(FORMAT + 1):
        raise InputError(
            f"{where} has store format {header.get('format')}, but this psmds-dist reads up to {FORMAT}; "
            "upgrade psmds-dist."
        )
    if header.get("status") != "complete":
        raise InputError(
            f"{where} is unfinished: the command that was building it was interrupted; run it again with the "
            "same arguments to finish it."
        )
    require_seal(group)
    return group


def _arrays(group: zarr.Group) -> list[zarr.Array[Any]]:
    return [node for name, node in _members(group, depth=0) if isinstance(node, zarr.Array)]


def _array_in(group: zarr.Group, kind: _Kind) -> zarr.Array[Any]:
    with damage_told(location(group)):
        return cast("zarr.Array[Any]", group[kind.name])


def _only_fitting(group: zarr.Group, kind: _Kind) -> zarr.Array[Any]:
    where = location(group)
    inside = list(arrays_within(group)) if kind is _TABLE else dissimilarities_within(group)
    advice = f"give the path of the array itself{f', such as {where}/{inside[0]}' if inside else ''}"
    if is_anndata(group) and kind is not _TABLE:
        raise InputError(f"{where} is an AnnData group, whose X holds features and not {kind.noun}; {advice}.")
    fitting = [array for array in _arrays(group) if kind.fits(array)]
    if len(fitting) != 1:
        raise InputError(f"{where} is a Zarr group with {len(fitting)} {kind.shape} arrays instead of one; {advice}.")
    return fitting[0]


def _require_shape(array: zarr.Array[Any], where: str, kind: _Kind) -> None:
    if not kind.fits(array):
        raise InputError(f"{where} has shape {array.shape}, but {kind.rule}.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{where} holds {array.dtype}, but needs floats or integers; convert it.")


def _require_countable(array: zarr.Array[Any], where: str) -> None:
    """Refuse chunks that are too many to be told apart."""
    count = math.prod(grid_of(array))
    if count > MOST_CHUNKS:
        raise InputError(
            f"{where} is cut into {count:.3g} chunks of {array.chunks}, but at most {MOST_CHUNKS:.0e} can be read: "
            "write it in larger chunks."
        )


def _require_readable(array: zarr.Array[Any], chunks: Chunks, where: str) -> None:
    """Refuse chunks that no memory is planned for."""
    most = most_stored(array)
    large = [key for key, (size, _) in chunks.items() if size > most]
    if large and isinstance(array.store, LocalStore | RemoteStore):
        raise DamagedDataError(
            f"the store is damaged: the chunk file {large[0]} of {where} has {chunks[large[0]][0]:,} bytes, but at "
            f"most {most:,} are expected; restore it from a copy, or build the store anew."
        )


def _require_complete(array: zarr.Array[Any], chunks: Mapping[str, object], where: str) -> None:
    unit, grid = array.shards or array.chunks, grid_of(array)
    missing = math.prod(grid) - _count_written(array, chunks, grid)
    # a corner of one diagonal cell is zero, and zarr leaves out chunks that hold nothing but their fill value
    square = array.shape[0] == array.shape[1]
    alone = all(int(array.shape[k]) % int(unit[k]) == 1 for k in range(2))
    corner = square and alone and array.fill_value == 0
    if missing > corner:
        raise InputError(
            f"{where} lacks {missing} of its {math.prod(grid)} chunks, which would read as "
            f"{array.fill_value}; finish writing it (with write_empty_chunks=True if chunks hold only that)."
        )


def _count_written(array: zarr.Array[Any], chunks: Mapping[str, object], grid: tuple[int, int]) -> int:
    if isinstance(array.store, LocalStore | RemoteStore):
        if math.prod(grid) > len(chunks) + COUNTED:
            return len(chunks)
        key = array.metadata.encode_chunk_key
        return sum(key((int(i), int(j))) in chunks for i, j in np.ndindex(*grid))
    in_a_shard = math.prod(s // c for s, c in zip(array.shards or array.chunks, array.chunks, strict=True))
    return array.nchunks_initialized // in_a_shard
