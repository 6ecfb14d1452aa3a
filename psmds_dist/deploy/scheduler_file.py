"""The file by which a scheduler is found, written by a preload module of ``dask scheduler``.

Dask's own option removes the file at the end even when another scheduler has replaced it by then.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from psmds_dist.core.errors import InputError, StorageError
from psmds_dist.utils.atomic import atomic_file

VARIABLE = "PSMDS_SCHEDULER_FILE"
"""Environment variable with the path of the file."""

ANSWER_TIMEOUT = 3.0
"""Seconds that the scheduler in a file has to accept a connection."""


def dask_setup(scheduler: Any) -> None:
    """Write the address of a scheduler that listens; one that cannot be found ends."""
    path = os.environ[VARIABLE]
    try:
        with atomic_file(path) as fresh:
            fresh.write_text(json.dumps(scheduler.identity(), indent=2), encoding="utf-8")
    except (StorageError, OSError) as error:
        raise SystemExit(f"Error: {error}") from None
    atexit.register(remove_own, path, scheduler.id)  # for an end without teardown


def dask_teardown(scheduler: Any) -> None:
    """Remove the file before workers lose their scheduler."""
    remove_own(os.environ[VARIABLE], scheduler.id)


def remove_own(path: str, own: str) -> None:
    """Remove a scheduler file, unless another scheduler wrote it."""
    with contextlib.suppress(OSError):
        if _read(path).get("id") == own:
            os.remove(path)


def require_unused(path: str) -> None:
    """Refuse the file of a scheduler that runs.

    Raises
    ------
    InputError
        When its address answers.
    """
    try:
        address = str(_read(path).get("address", ""))
    except OSError:
        return
    if _answers(address):
        raise InputError(
            f"a scheduler answers at {address}, the address in {path!r}: end it first or choose another file, or "
            "remove this one if another program has that port now."
        )


def _read(path: str) -> dict[str, Any]:
    """Content of a scheduler file, nothing if it is another file."""
    with open(path, encoding="utf-8") as file, contextlib.suppress(ValueError):
        found = json.load(file)
        if isinstance(found, dict):
            return found
    return {}


def _answers(address: str) -> bool:
    try:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port or 0), ANSWER_TIMEOUT):
            return place.hostname is not None
    except (OSError, ValueError):
        return False
