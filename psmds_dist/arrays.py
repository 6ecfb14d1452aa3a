"""What users hand over as an array, and its numbers on their way into rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.types import InputError, Rows


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


def is_masked(given: Any) -> bool:
    """Whether entries are masked; NumPy itself cannot tell for records, which are refused for their type."""
    return bool(np.ma.isMaskedArray(given) and given.dtype.names is None and np.ma.is_masked(given))


def fill(out: Rows, values: NDArray[Any]) -> None:
    """Copy numbers into rows of another type; one too large for it becomes infinite, for the check to tell."""
    with np.errstate(over="ignore"):
        out[...] = values
