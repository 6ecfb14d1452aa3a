"""What estimators and functions take alike: a random state, a cluster and threads.

Without scikit-learn, whose import takes 100 MiB where pandas is installed: commands do without it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from psmds_dist.core.errors import InputError
from psmds_dist.core.executor import Executor
from psmds_dist.deploy.clusters import open_executor
from psmds_dist.solver.checkpoint import CheckpointStore


def seed_of(random_state: object, checkpoint: CheckpointStore) -> int:
    """Seed of a run: of the one that it goes on with where it was given none."""
    kept = checkpoint.seed() if random_state is None else None
    return seed_from(random_state) if kept is None else kept


def seed_from(random_state: object) -> int:
    """Turn scikit-learn's ``random_state`` into one seed.

    Raises
    ------
    InputError
        When it is none of the kinds scikit-learn takes.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state >= 0:
            return int(random_state)
    elif isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    elif isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise InputError(f"random_state must be a whole number of at least 0, a RandomState or None, not {random_state!r}.")


def executor_for(cluster: Any, n_jobs: object) -> AbstractContextManager[Executor]:
    """Executor on a cluster, or in this process with ``n_jobs`` kernel threads, for the length of a with block.

    Raises
    ------
    InputError
        When ``cluster`` is no cluster, or ``n_jobs`` no number of threads.
    """
    return open_executor(cluster, threads=threads_of(n_jobs))


def threads_of(n_jobs: object) -> int | None:
    """Kernel threads that ``n_jobs`` asks for; None takes all.

    Raises
    ------
    InputError
        When it is no number of threads.
    """
    if n_jobs is None or n_jobs == -1:
        return None
    if isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool) and n_jobs > 0:
        return int(n_jobs)
    raise InputError(f"n_jobs must be None, -1 or a positive number of threads, not {n_jobs!r}.")
