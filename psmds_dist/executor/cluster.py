"""Connections to a running cluster, and clusters on this machine."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil

from psmds_dist.core.types import InputError, WorkerError
from psmds_dist.executor._dask_internals import check_address, silence_logging
from psmds_dist.executor.tls import require_same_security, tls_security
from psmds_dist.executor.workers import WORKER_TIMEOUT
from psmds_dist.utils.signals import defer_interrupts

if TYPE_CHECKING:
    from distributed import Client, LocalCluster


def connect(address: str | None = None, scheduler_file: str | None = None, tls: str | None = None) -> Client:
    """Connect to a running scheduler.

    Parameters
    ----------
    address, scheduler_file : str, optional
        Where the scheduler is: one of the two.
    tls : str, optional
        Directory with the certificate and key of the scheduler.

    Raises
    ------
    InputError
        When no scheduler answers, or a file is missing.
    """
    from distributed import Client

    security = None if tls is None else tls_security(tls)
    if scheduler_file is not None and not os.path.exists(scheduler_file):
        raise InputError(
            f"scheduler file {scheduler_file!r} does not exist: start 'dask scheduler --scheduler-file "
            f"{scheduler_file}' first, on a file system that this machine shares with it."
        )
    try:
        if scheduler_file is not None:
            with open(scheduler_file, encoding="utf-8") as file:
                address = json.load(file)["address"]
        address = str(address)
        if "://" not in address:
            address = f"{'tcp' if tls is None else 'tls'}://{address}"
        # a client that fails on its address or security never lets the process end
        check_address(address)
        require_same_security(address, security)
        # waits as long as Dask's setting distributed.comm.timeouts.connect says; as the default client it
        # would change Dask's settings, and leave them changed when nobody answers
        return Client(address, set_as_default=False, security=security)
    except InputError:
        raise
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        if "TLS certificate does not match" in str(error):
            raise InputError(
                f"the scheduler at {address} does not have the certificate in {tls}: pass --tls with the directory of "
                "the one that it was started with."
            ) from None
        place, what = scheduler_file or address, str(error).rstrip(".")
        hint = "" if tls else "; one that uses TLS has an address that begins with tls://, and needs --tls"
        raise InputError(f"no Dask scheduler answers at {place}: {type(error).__name__} {what}{hint}.") from None


@contextlib.contextmanager
def dask_silenced() -> Iterator[None]:
    """Hide Dask's log of faults that end in an error of this package."""
    with silence_logging():
        yield


CLOSE_TIMEOUT = 20
"""Seconds until a client or cluster that does not close is left; twice what Dask gives a worker that does not end."""

WORKER_ENVIRONMENT = {
    # Dask's own value makes glibc map and unmap every large buffer: reads fall to a third
    "MALLOC_TRIM_THRESHOLD_": str(2**28),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}


@contextlib.contextmanager
def local_client(workers: int, threads: int, tls: str | None = None) -> Iterator[Client]:
    """Start a cluster on this machine for the length of a with block, listening on loopback only.

    An interrupt that comes while it starts or closes is raised afterwards.

    Parameters
    ----------
    workers : int
        Worker processes.
    threads : int
        Kernel threads of each worker.
    tls : str, optional
        Directory of `write_certificates`, to encrypt connections.
    """
    import dask
    from distributed import Client, LocalCluster

    # after this time Dask closes the nanny of a lost worker, even if that worker came back and is being restarted
    lasting = {"distributed.deploy.lost-worker-timeout": "1 day"}
    settings = {
        **{f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
        "distributed.scheduler.worker-ttl": "60s",
        "distributed.scheduler.no-workers-timeout": f"{WORKER_TIMEOUT}s",
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        # profiling takes Dask a tenth of a core, which the kernels need
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "10s",
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(lasting))
        with dask.config.set(settings), defer_interrupts(), _start_timeout(WORKER_TIMEOUT):
            try:
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads,
                    dashboard_address="127.0.0.1:0",
                    host="127.0.0.1",
                    protocol="tcp" if tls is None else "tls",
                    security=None if tls is None else tls_security(tls),
                    silence_logs=logging.CRITICAL,  # faults are raised; the log is noise when the cluster ends
                )
            except RuntimeError as error:  # such as: a worker was killed while it started
                raise WorkerError(
                    f"the {workers} workers did not start on this machine ({error}): check what ends "
                    "or stops them, most often a lack of memory, and rerun the same command."
                ) from error
            stack.callback(_close, cluster)
            client = Client(cluster, set_as_default=False, direct_to_workers=True)
            stack.callback(_close, client)
        yield client


def _close(opened: Client | LocalCluster) -> None:
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
