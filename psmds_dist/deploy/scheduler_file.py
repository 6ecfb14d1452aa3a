"""The file by which a scheduler is found, written by a preload module of ``dask scheduler``.

Dask's own option removes the file at the end even when another scheduler has replaced it by then.
"""

from __future__ import annotations

import asyncio
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

MAX_SIZE = 2**20
"""Characters that are read of a scheduler file, which has some hundred; a matrix may be given by mistake."""

ANSWER_TIMEOUT = 3.0
"""Seconds that the scheduler in a file has to accept a connection."""


def dask_setup(scheduler: Any) -> None:
    """Write the address of a scheduler that listens; one that cannot be found ends."""
    path = os.environ[VARIABLE]
    try:
        with atomic_file(path) as fresh:
            fresh.write_text(json.dumps(scheduler.identity(), indent=2), encoding="utf-8")
    except (StorageError, OSError) as error:
        said = error if isinstance(error, StorageError) else f"{path} cannot be written: {error.strerror}."
        with contextlib.suppress(RuntimeError):  # the loop would print a traceback
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        raise SystemExit(f"Error: {said}") from None
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
        When its address answers, or there is anything else than a scheduler file.
    """
    if _is_foreign(path):
        raise InputError(f"{path} exists and is not a scheduler file: choose another path, or remove it.")
    try:
        address = str(_read(path).get("address", ""))
    except OSError:
        return
    if _answers(address):
        raise InputError(
            f"a scheduler answers at {address}, the address in {path!r}: end it first or choose another file, or "
            "remove this one if another program has that port now."
        )


def _is_foreign(path: str) -> bool:
    """Whether replacing what is there would destroy something else."""
    if not os.path.isfile(path):
        return os.path.exists(path)
    try:
        with open(path, encoding="utf-8") as file:
            json.loads(file.read(MAX_SIZE) or "{}")
    except ValueError:
        return True
    except OSError:
        return False
    return False


def _read(path: str) -> dict[str, Any]:
    """Content of a scheduler file, nothing if it is another file."""
    with open(path, encoding="utf-8") as file, contextlib.suppress(ValueError):
        found = json.loads(file.read(MAX_SIZE))
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
