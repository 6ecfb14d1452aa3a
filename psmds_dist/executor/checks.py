"""What every worker tries before a run: to read the input, and to write where it has to."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Rows

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that a worker has at least: it may have to load this package from a network file system first."""


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function of a worker without holding up its heartbeats."""
    return await asyncio.to_thread(function)


def missing(path: str) -> str | None:
    """Fault of a path that this process does not see."""
    return None if os.path.exists(path) else "it does not exist there"


def reading_fault(source: RowSource) -> str | None:
    """Why this process cannot read a source; None where it can, or where the work itself will say it better."""
    if source.location is not None and "://" not in source.location and (fault := missing(source.location)):
        return fault
    row = os.getpid() % source.shape[0]
    out: Rows = np.empty((1, source.shape[1]), source.dtype)
    try:
        source.read(row, row + 1, out)
    except OSError as error:
        return error.strerror or str(error)
    except Exception:  # damaged data, a missing module
        return None
    return None


def writing_fault(folder: str) -> str | None:
    """Why this process cannot write to a directory; None where it can."""
    if fault := missing(folder):
        return fault
    try:
        with tempfile.NamedTemporaryFile(prefix=".psmds-check-", dir=folder) as file:
            file.write(b"psmds")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None
