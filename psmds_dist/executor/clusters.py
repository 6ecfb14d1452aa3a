"""Getting a cluster: one that runs already, or one on this machine for as long as it is needed."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from psmds_dist.executor.crew import PATIENCE
from psmds_dist.executor.tasks import at_start
from psmds_dist.types import InputError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster


def connect(address: str | None = None, scheduler_file: str | None = None) -> Client:
    """Connect to a running scheduler.

    Raises
    ------
    InputError
        When nobody answers, or the file is not there.
    """
    from distributed import Client
    from distributed.comm import get_address_host_port

    if scheduler_file is not None and not os.path.exists(scheduler_file):
        raise InputError(
            f"scheduler file {scheduler_file!r} does not exist: start 'dask scheduler --scheduler-file "
            f"{scheduler_file}' first, on a file system that this machine shares with it."
        )
    try:
        if scheduler_file is not None:
            with open(scheduler_file, encoding="utf-8") as file:
                address = json.load(file)["address"]
        get_address_host_port(address)  # a client that stumbled over its address would never let the process end
        # waits as long as Dask's setting distributed.comm.timeouts.connect says; as the default client it
        # would change Dask's settings, and leave them changed when nobody answers
        return Client(address, set_as_default=False)
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        place = scheduler_file or address
        raise InputError(f"no Dask scheduler answers at {place}: {type(error).__name__} {error}.") from None


WORKER_ENVIRONMENT = {
    # a spinning OpenMP thread takes the core from the thread that reads ahead
    "OMP_WAIT_POLICY": "passive",
    # Dask's own value makes glibc map and unmap every large buffer: reads fall to a third
    "MALLOC_TRIM_THRESHOLD_": str(2**28),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}


@contextlib.contextmanager
def local_client(workers: int, threads: int) -> Iterator[Client]:
    """Start a cluster on this machine for the length of a with block, listening on loopback only.

    Parameters
    ----------
    workers : int
        Worker processes.
    threads : int
        Kernel threads of each.
    """
    import dask
    from distributed import Client, LocalCluster

    settings = {
        **{f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
        "distributed.scheduler.worker-ttl": "60s",
        "distributed.scheduler.no-workers-timeout": f"{PATIENCE}s",
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    with dask.config.set(settings), _interrupts_ignored():
        cluster: LocalCluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=logging.CRITICAL,  # what matters is raised; the rest is noise when the cluster ends
        )
    with cluster, Client(cluster, set_as_default=False) as client:
        at_start(client, "psmds-interrupts", partial(signal.signal, signal.SIGINT, signal.SIG_IGN))
        yield client


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that a Ctrl-C at the terminal does not reach: the run ends them, in order.

    Workers that a nanny starts later are told by a plugin.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
