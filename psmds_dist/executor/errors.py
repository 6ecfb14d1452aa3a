"""Faults of a cluster, in words of this package."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import NoReturn

from psmds_dist.core.types import ClusterLost, WorkerError

ATTEMPTS = 4
"""How often the same blocks may be lost with their worker before the run gives up."""


def is_loss(error: Exception) -> bool:
    """Whether the cluster failed and not the work."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return isinstance(error, KilledWorker | CancelledError | CommClosedError)


def lost_too_often(cause: str) -> WorkerError:
    """Make the error that ends a run whose blocks take one worker after the other with them."""
    return WorkerError(
        f"the cluster lost its workers {ATTEMPTS} times over the same blocks ({cause}); "
        "most often the machine is out of memory: lower memory_limit, or start fewer workers on it."
    )


def translate_error(error: Exception) -> NoReturn:
    """Raise faults of the cluster in words of this package, and a work's own as they are."""
    from distributed.comm import CommClosedError

    if isinstance(error, CommClosedError | CancelledError):  # nobody here cancels what is waited for
        why = getattr(error, "reason", error)
        raise ClusterLost(
            f"the connection to the Dask scheduler broke ({why}): see whether it still runs, and start this again."
        ) from error
    if is_loss(error):
        raise lost_too_often(type(error).__name__) from error
    if isinstance(error, ModuleNotFoundError):
        raise WorkerError(
            f"a worker cannot import {error.name!r}: install psmds-dist, in the same versions, where the workers run."
        ) from error
    raise error
