"""Errors of a cluster as errors of this package."""

from __future__ import annotations

from concurrent.futures import CancelledError

from psmds_dist.core.types import ClusterLost, WorkerError
from psmds_dist.executor._dask_internals import comm_closed_error

ATTEMPTS = 4
"""Losses of the same blocks, each with its worker, that end a run."""


def is_loss(error: Exception) -> bool:
    """Whether the cluster failed and not the work."""
    from distributed import KilledWorker

    return isinstance(error, KilledWorker | CancelledError | comm_closed_error())


def lost_too_often(cause: str) -> WorkerError:
    """Error that ends a run whose blocks lose one worker after the other."""
    return WorkerError(
        f"the cluster lost its workers {ATTEMPTS} times over the same blocks ({cause}); "
        "most often the machine is out of memory: lower memory_limit, or start fewer workers on it."
    )


def translate_error(error: Exception) -> Exception:
    """Return an error of this package for an error of the cluster, and an error of the work as it is."""
    translated = _translation(error)
    if translated is None:
        return error
    translated.__cause__ = error
    return translated


def _translation(error: Exception) -> WorkerError | None:
    if isinstance(error, comm_closed_error() | CancelledError):  # this package cancels nothing that it waits for
        why = getattr(error, "reason", error)
        return ClusterLost(
            f"the connection to the Dask scheduler broke ({why}): check that it still runs, and rerun the same command."
        )
    if is_loss(error):
        return lost_too_often(type(error).__name__)
    if isinstance(error, ModuleNotFoundError):
        return WorkerError(
            f"a worker cannot import {error.name!r}: install psmds-dist, in the same versions, where the workers run."
        )
    return None
