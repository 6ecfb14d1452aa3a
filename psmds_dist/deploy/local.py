"""Clusters on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psutil

from psmds_dist.core.errors import InputError, WorkerError
from psmds_dist.deploy.settings import LOOPBACK, dask_settings, setting
from psmds_dist.executor import tls_security
from psmds_dist.utils.machine import numa_nodes
from psmds_dist.utils.signals import defer_interrupts

if TYPE_CHECKING:
    from distributed import Client

CLOSE_TIMEOUT = 20
"""Seconds until a client or cluster that does not close is left; twice what Dask gives a worker that does not end."""


@contextlib.contextmanager
def local_client(workers: int, threads: int, tls: str | None = None) -> Iterator[Client]:
    """Start a cluster on this machine for the length of a with block, listening on loopback only.

    Where the machine has several NUMA nodes and each gets as many workers, these stay there. An interrupt that comes
    while the cluster starts or closes is raised afterwards.

    Parameters
    ----------
    workers : int
        Worker processes.
    threads : int
        Kernel threads of each worker.
    tls : str, optional
        Directory of `write_certificates`, to encrypt connections.

    Raises
    ------
    WorkerError
        When the workers do not start.
    """
    import dask
    from distributed import Client, LocalCluster

    # after this time Dask closes the nanny of a lost worker, even if that worker came back and is being restarted
    lasting = {"distributed.deploy.lost-worker-timeout": "1 day"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(lasting))
        with dask.config.set(dask_settings()), defer_interrupts(), _start_timeout(start_timeout()):
            try:
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads,
                    dashboard_address=f"{LOOPBACK}:0",
                    host=LOOPBACK,
                    protocol="tcp" if tls is None else "tls",
                    security=None if tls is None else tls_security(tls),
                    silence_logs=logging.CRITICAL,  # faults are raised; the log is noise when the cluster ends
                )
            except RuntimeError as error:  # such as: a worker was killed while it started
                raise WorkerError(
                    f"the {workers} workers did not start on this machine ({error}): check what ends "
                    "or stops them, most often a lack of memory, and rerun the same command."
                ) from error
            stack.callback(close, cluster)
            client = Client(cluster, set_as_default=False, direct_to_workers=True)
            stack.callback(close, client)
            nodes = numa_nodes()
            if len(nodes) > 1 and workers % len(nodes) == 0:
                _deal(client, nodes)
        yield client


def _deal(client: Client, nodes: Sequence[Collection[int]]) -> None:
    """Keep each worker, and any that replaces it, on the CPUs of one node, so that its rows lie in near memory."""
    from distributed import WorkerPlugin

    class Near(WorkerPlugin):  # type: ignore[misc]
        """Threads of a worker inherit from those that are there when it begins."""

        def setup(self, worker: Any) -> None:
            for thread in os.listdir("/proc/self/task"):
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(int(thread), nodes[int(worker.name) % len(nodes)])

    client.register_plugin(Near(), name="psmds-near")


def start_timeout() -> float:
    """Seconds that processes of this machine have to start."""
    seconds = setting("start-timeout")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(f"the setting psmds.start-timeout must be a positive number of seconds, not {seconds!r}.")
    return float(seconds)


def close(opened: Any) -> None:
    """Close in order: Dask waits a minute for what was left half closed, and its workers leave directories behind."""
    with defer_interrupts(), contextlib.suppress(TimeoutError):
        opened.close(timeout=CLOSE_TIMEOUT)


@contextlib.contextmanager
def _start_timeout(seconds: float) -> Iterator[None]:
    """Kill processes that take too long to start: Dask waits forever for one that hangs."""
    here = psutil.Process()
    before = here.children()

    def end() -> None:
        for child in here.children():
            if child not in before:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()

    watch = threading.Timer(seconds, end)
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
