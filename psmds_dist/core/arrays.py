"""Arrays as users pass them, and the cast of their numbers into rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import InputError, Rows

MATRIX_NAMES = ("matrix", "distances", "dissimilarities")
"""Likely names of the matrix among several arrays; UniFrac's HDF5 files have it beside ``order``, the ids."""


def as_array(given: Any, name: str) -> NDArray[Any]:
    """Make an array of what was given.

    Raises
    ------
    InputError
        When it is ragged.
    """
    try:
        return np.asarray(given)
    except ValueError as error:
        raise InputError(f"{name} cannot be made an array ({error}): pass rows of equal length.") from None


def numbers_of(given: Any, name: str) -> NDArray[Any]:
    """Return the numbers of a matrix or table as an array, without importing what it comes from.

    Parameters
    ----------
    given : array_like, data frame or distance matrix
        Also frames of nullable types, whose missing values become NaN, and distance matrices of scikit-bio.
    name : str
        What messages call it.

    Returns
    -------
    ndarray

    Raises
    ------
    InputError
        For a container of several arrays, for text, for what is ragged, and for a sparse matrix.
    """
    if hasattr(given, "toarray"):
        raise InputError(
            f"{name} is a sparse matrix, whose missing entries would be read as zeros: pass all numbers as an array."
        )
    if is_distance_matrix(given):
        return as_array(given.data, name)
    if hasattr(given, "obsm") and hasattr(given, "obsp"):
        raise InputError(
            f"{name} is an AnnData object: pass a complete matrix of {name}.obsp, or its points, such as "
            f"{name}.obsm['X_pca'], to LandmarkMDS(metric='euclidean')."
        )
    if hasattr(given, "keys") and hasattr(given, "__getitem__") and not hasattr(given, "shape"):
        raise InputError(_several(given, name))
    array = as_array(given, name)
    return array if array.dtype.kind != "O" or not is_frame(given) else _of_frame(given, name)


def is_frame(given: object) -> bool:
    """Whether something has names of rows and columns, as data frames do."""
    return hasattr(given, "index") and hasattr(given, "columns")


def is_distance_matrix(given: object) -> bool:
    """Whether something is what scikit-bio calls a distance matrix: numbers, and the ids of their rows."""
    named = isinstance(getattr(given, "ids", None), Sequence)  # a method of NumPy's masked arrays
    return named and isinstance(getattr(given, "data", None), np.ndarray)


def _several(given: Any, name: str) -> str:
    """Sentence about a container, such as an HDF5 file, of which one array is to be passed."""
    keys = list(given.keys())
    chosen = next((key for key in (*MATRIX_NAMES, *keys) if key in keys), "name")
    listed = ", ".join(map(repr, keys[:5])) + ", ..." * (len(keys) > 5)
    named = ""
    if {"matrix", "order"}.issubset(keys):
        text = "" if isinstance(given, np.lib.npyio.NpzFile) else ".asstr()"  # h5py's strings are bytes
        named = (
            f", or with its names pandas.DataFrame({name}['matrix'][:], ids, ids), where ids = {name}['order']{text}[:]"
        )
    return (
        f"{name} is a container ({type(given).__name__}) of {listed or 'nothing'}: pass one array, such as "
        f"{name}[{chosen!r}]{named}."
    )


def _of_frame(frame: Any, name: str) -> NDArray[Any]:
    """Numbers of a frame that NumPy sees as objects, as it does for nullable types."""
    types = dict(zip(frame.columns, getattr(frame, "dtypes", ()), strict=False))
    for k, (column, dtype) in enumerate(types.items()):
        if getattr(dtype, "kind", "O") not in "fiub":
            first = f", or with frame.set_index({column!r}) if that column holds the names" * (k == 0)
            raise InputError(
                f"{name} is a data frame whose column {column!r} holds {dtype}, but needs floats or integers; convert "
                f"it with frame.astype(float){first}."
            )
    if not types:
        return as_array(frame, name)
    return np.asarray(frame.to_numpy(dtype="float64", na_value=np.nan))


def is_masked(given: Any) -> bool:
    """Whether entries are masked; NumPy itself cannot tell for records, which are refused for their type."""
    return bool(np.ma.isMaskedArray(given) and given.dtype.names is None and np.ma.is_masked(given))


def fill(out: Rows, values: NDArray[Any]) -> None:
    """Copy numbers into rows of another type; one too large for it becomes infinite, for the check to tell."""
    with np.errstate(over="ignore"):
        out[...] = values


def digest_of_arrays(*arrays: NDArray[Any]) -> str:
    """Digest of the bytes of arrays, one after the other."""
    content = hashlib.blake2b(digest_size=16)
    for array in arrays:
        content.update(array.tobytes())
    return content.hexdigest()
