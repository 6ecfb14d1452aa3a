"""Schedulers and workers of clusters that are started by hand: Dask's own commands with the settings of this package.

A scheduler replaces this process. A worker is watched by this process: Dask ends a worker for good once the connection
to its scheduler breaks, so it is started again, for as long as the scheduler file exists.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import psutil

from psmds_dist.core.errors import ClusterLost, InputError
from psmds_dist.deploy import ending
from psmds_dist.deploy.scheduler_file import VARIABLE, require_unused
from psmds_dist.deploy.settings import LOOPBACK, exported, listen_on, setting

log = logging.getLogger(__name__)

FIRST_PAUSE = 3.0
"""Seconds until a worker is started again; in less a scheduler that closes may not have removed its file."""

MAX_PAUSE = 30.0
"""Seconds between two starts of a worker that ends at once, such as while its old self is still registered."""

ATTEMPT = 120.0
"""Seconds that one start of a worker waits for the scheduler; one that lasted twice that had found it."""

POLL = 0.5
"""Seconds between two looks at a worker that has just started."""

LOGGING = {"distributed": "info", "distributed.client": "warning", "distributed.batched": "error"}
"""Levels of Dask's loggers; one of them logs a traceback for every connection that is closed on purpose."""

STOP_TIMEOUT = 30.0
"""Seconds until a worker that was asked to end is killed; Dask gives it ten."""


def become_scheduler(
    scheduler_file: str,
    *,
    host: str | None = None,
    interface: str | None = None,
    port: int = 0,
    dashboard_port: int = 0,
    tls: str | None = None,
) -> NoReturn:
    """Replace this process by a Dask scheduler.

    Parameters
    ----------
    scheduler_file : str
        Where the scheduler writes its address; it removes the file when it ends, if it is still its own.
    host, interface : str, optional
        Address or network interface to listen on, one of the two; by default the setting, otherwise 127.0.0.1.
    port : int
        Port of the scheduler; 0 takes a free one.
    dashboard_port : int
        Port of the dashboard, which listens on 127.0.0.1 only; 0 takes a free one.
    tls : str, optional
        Directory of `psmds_dist.executor.write_certificates`, to encrypt connections.

    Raises
    ------
    InputError
        When it cannot listen there, the file cannot be written, or the scheduler in it runs.
    """
    require_unused(scheduler_file)
    address = listening_address(host, interface)
    for place in ((address, port), (LOOPBACK, dashboard_port)):
        _require_free(*place)
    _require_writable(scheduler_file)
    options = ["--preload", require_unused.__module__, "--host", address, "--port", str(port)]
    command = _dask_command("scheduler", [*options, *_common_options(dashboard_port, _tls_directory(tls))])
    os.execve(command[0], command, {**_environment(), VARIABLE: os.path.abspath(scheduler_file)})


def run_worker(
    scheduler_file: str,
    *,
    threads: int,
    name: str | None = None,
    host: str | None = None,
    interface: str | None = None,
    tls: str | None = None,
    death_timeout: float = 3600.0,
) -> None:
    """Run a Dask worker until its scheduler closes, or this process is interrupted.

    Parameters
    ----------
    scheduler_file : str
        File that the scheduler writes; waited for.
    threads : int
        Kernel threads.
    name : str, optional
        Name of the worker, unique in its cluster; by default made of the names of host and process.
    host, interface : str, optional
        Address or network interface to listen on, one of the two; by default the setting, otherwise the address by
        which the scheduler is reached, which is 127.0.0.1 for a scheduler that listens there.
    tls : str, optional
        Directory with the certificate and key of the scheduler.
    death_timeout : float
        Seconds without a scheduler after which the worker ends; the wait for its file counts.

    Raises
    ------
    InputError
        When the scheduler file does not appear, or its address needs other options.
    ClusterLost
        After ``death_timeout``.
    """
    tls = _tls_directory(tls)
    given = host or interface or setting("host") or setting("interface")
    own = listening_address(host, interface) if given else None
    began = time.monotonic()
    scheduler = scheduler_address(scheduler_file, min(ATTEMPT, death_timeout))
    _require_same_security(scheduler, tls is not None)
    where = ["--scheduler-file", scheduler_file, "--host", own or address_towards(scheduler)]
    what = ["--nthreads", str(threads), "--nworkers", "1", "--memory-limit", "0"]
    who = ["--name", name or f"{socket.gethostname()}-{os.getpid()}", "--death-timeout", str(ATTEMPT)]
    preload = ["--preload-nanny", ending.__name__]
    command = _dask_command("worker", [*where, *what, *who, *preload, *_common_options(0, tls)])
    keep_running(command, lambda: not is_removed(scheduler_file), death_timeout, began)


def keep_running(
    command: list[str], is_wanted: Callable[[], bool], death_timeout: float, began: float | None = None
) -> None:
    """Run a command again whenever it ends, with growing pauses, until it is not wanted any more.

    Parameters
    ----------
    command : list of str
        Program and arguments.
    is_wanted : callable
        Whether to start it again.
    death_timeout : float
        Seconds of runs that end early after which to give up.
    began : float, optional
        Time on the monotonic clock from which the first of them count, by default now.

    Raises
    ------
    ClusterLost
        When it gives up.
    """
    pause, lasted = FIRST_PAUSE, time.monotonic() if began is None else began
    while True:
        start = time.monotonic()
        with _child(command) as process:
            _wait(process, is_wanted)
        if time.monotonic() - start > 2 * ATTEMPT:
            pause, lasted = FIRST_PAUSE, time.monotonic()
        time.sleep(pause)
        if not is_wanted():
            return
        if time.monotonic() - lasted > death_timeout:
            raise ClusterLost(f"the worker had no scheduler for {death_timeout:g} seconds: start one, then the worker.")
        log.info("the worker ended (exit code %d), but not its scheduler; starting it again", process.returncode)
        pause = min(2 * pause, MAX_PAUSE)


def _wait(process: subprocess.Popen[bytes], is_wanted: Callable[[], bool]) -> None:
    """Wait for the end of a process; one that is unwanted early on cannot find its scheduler."""
    end = time.monotonic() + ATTEMPT
    while process.poll() is None and time.monotonic() < end:
        if not is_wanted():
            return
        time.sleep(POLL)
    process.wait()


@contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Process that ends with the block; in a session of its own, for one Ctrl-C to be one signal."""
    process = subprocess.Popen(command, env=_environment(), start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


def scheduler_address(scheduler_file: str, timeout: float) -> str:
    """Address in a scheduler file, which is waited for.

    Raises
    ------
    InputError
        When there is none in time.
    """
    from psmds_dist.executor.cluster import address_in

    end, told = time.monotonic() + timeout, False
    while time.monotonic() < end:
        try:
            return address_in(scheduler_file)
        except (OSError, ValueError, KeyError, TypeError):  # not there, or being written
            if not told:
                log.info(
                    "waiting for %s: start 'psmds scheduler --scheduler-file %s', or correct the path",
                    *(scheduler_file, scheduler_file),
                )
                told = True
            time.sleep(min(0.1, timeout))
    raise InputError(
        f"no scheduler file {scheduler_file!r} after {timeout:g} seconds: start 'psmds scheduler --scheduler-file "
        f"{scheduler_file}' first, on a file system that this machine shares with it."
    )


def is_removed(path: str) -> bool:
    """Whether a file does not exist; a file system that does not answer removes nothing."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def listening_address(host: str | None = None, interface: str | None = None) -> str:
    """Address to listen on: as given, otherwise as set, otherwise 127.0.0.1.

    Raises
    ------
    InputError
        When both are given, or the interface does not exist or has no IPv4 address.
    """
    where = listen_on(host, interface)
    return where["host"] if "host" in where else interface_address(where["interface"])


def interface_address(interface: str) -> str:
    """IPv4 address of a network interface of this machine.

    Raises
    ------
    InputError
        When there is none.
    """
    found = psutil.net_if_addrs()
    addresses = [each.address for each in found.get(interface, []) if each.family == socket.AF_INET]
    if not addresses:
        raise InputError(
            f"interface must be a network interface with an IPv4 address, not {interface!r}: this machine has "
            f"{', '.join(sorted(found))}."
        )
    return str(addresses[0])


def address_towards(scheduler: str) -> str:
    """Address of this machine by which a scheduler is reached, without sending anything.

    Raises
    ------
    InputError
        When there is no route to it.
    """
    from psmds_dist.executor._dask_internals import host_of

    host = host_of(scheduler)
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise InputError(
            f"this machine has no route to the scheduler at {scheduler} ({error.strerror}): start the scheduler with "
            "--interface or --host of a network that both share."
        ) from None


def _require_free(address: str, port: int) -> None:
    try:
        socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
    except OSError as error:
        raise InputError(
            f"cannot listen on {address}, port {port} ({error.strerror}): choose another port, or an address or "
            "interface of this machine."
        ) from None


def _require_writable(scheduler_file: str) -> None:
    folder = os.path.dirname(os.path.abspath(scheduler_file))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise InputError(
            f"scheduler file {scheduler_file!r} cannot be written: choose a directory that exists, that you can write "
            "to and that all machines of the cluster see."
        )


def _require_same_security(scheduler: str, encrypted: bool) -> None:
    from psmds_dist.executor.tls import require_same_security

    require_same_security(scheduler, able=encrypted, required=encrypted)


def _tls_directory(given: str | None) -> str | None:
    """Directory of certificates, as given or as set, once it is known to be of use."""
    tls = given if given is not None else setting("tls")
    if tls is None:
        return None
    from psmds_dist.executor import tls_security  # what it imports takes memory beside the worker

    tls_security(str(tls))
    return str(tls)


def _common_options(dashboard_port: int, tls: str | None) -> list[str]:
    """Options of both processes; only the places of secrets, since everyone can list arguments."""
    options = ["--dashboard-address", f"{LOOPBACK}:{dashboard_port}"]
    if tls is None:
        return options
    from psmds_dist.executor.tls import CERTIFICATE, KEY

    certificate, key = (os.path.abspath(os.path.join(tls, name)) for name in (CERTIFICATE, KEY))
    return [*options, "--protocol", "tls", "--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key]


def _dask_command(role: str, options: list[str]) -> list[str]:
    return [sys.executable, "-m", f"distributed.cli.dask_{role}", *options]


def _environment() -> dict[str, str]:
    """Environment of both processes: the settings of this package, and those for workers that come back."""
    back = {"DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "None", "DASK_LOGGING": str(LOGGING)}
    return {**exported(), **back, **os.environ}
