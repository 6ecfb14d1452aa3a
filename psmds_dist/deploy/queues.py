"""Clusters whose workers are jobs of a batch system: Slurm, PBS, LSF or SGE, through dask-jobqueue."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psmds_dist.core.errors import InputError, WorkerError
from psmds_dist.deploy.files import read_mapping, require_known
from psmds_dist.deploy.local import close
from psmds_dist.deploy.processes import interface_address
from psmds_dist.deploy.settings import LOOPBACK, dask_settings, exported, setting
from psmds_dist.executor import open_jobs, tls_security, write_certificates
from psmds_dist.utils.extras import extra

if TYPE_CHECKING:
    from distributed import Client

CLASSES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}

OURS = ("jobs", "adapt")
"""Names in a file that are no arguments of the class: how many jobs, or how many at least and at most."""

REPLACE_INTERVAL = 30
"""Seconds between two looks at the jobs; Dask forgets one that it has lost after 15."""

DEATH_TIMEOUT = 60
"""Seconds after which a job without its scheduler ends."""


@contextlib.contextmanager
def queue_client(kind: str, path: str, threads: int | None, tls: str | None) -> Iterator[Client]:
    """Submit jobs that become workers, for the length of a with block.

    Parameters
    ----------
    kind : str
        One of `CLASSES`.
    path : str
        YAML file with arguments of the class, and ``jobs`` or ``adapt``; empty for Dask's configuration of jobqueue.
    threads : int or None
        Cores of a job, where the file does not say.
    tls : str or None
        Directory of `write_certificates`; None makes a certificate for this cluster.

    Raises
    ------
    InputError
        When the file cannot be used, dask-jobqueue is missing, or the batch system has no command here.
    WorkerError
        When the batch system refuses a job.
    """
    import dask
    from distributed import Client

    given = read_mapping(path, f"the arguments of cluster {kind!r}") if path else {}
    jobs, adapt = given.pop("jobs", 1), given.pop("adapt", None)
    # a job may wait for hours, and tasks with it
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_certificate(tls, given.pop("shared_temp_directory", None)))
        with dask.config.set({**dask_settings(), "distributed.scheduler.no-workers-timeout": None}):
            cluster = new_cluster(kind, given, path, threads, folder)
            stack.callback(close, cluster)
            _start_jobs(cluster, kind, jobs, adapt)
            client = stack.enter_context(Client(cluster, set_as_default=False))
        yield client


@contextlib.contextmanager
def _certificate(tls: str | None, shared: str | None) -> Iterator[str]:
    """Directory with a certificate: the user's, or a new one that only this user can read, where jobs see it too."""
    if tls is not None:
        yield tls
        return
    above = Path.home() / ".cache" / "psmds" if shared is None else Path(os.path.expandvars(shared)).expanduser()
    try:
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="tls-", dir=above)
    except OSError as error:
        raise InputError(
            f"a certificate cannot be written to {above} ({error.strerror}): set shared_temp_directory to a directory "
            "that jobs see too, or pass --tls."
        ) from None
    with folder as path:
        write_certificates(path)
        yield path


def new_cluster(kind: str, given: Mapping[str, Any], path: str, threads: int | None, tls: str) -> Any:
    """Cluster of dask-jobqueue without jobs."""
    made = getattr(extra("dask_jobqueue", "slurm", f"cluster {kind!r}"), CLASSES[kind])
    place = path or f"Dask's configuration of jobqueue.{kind}"
    require_known(given, {*OURS, *_parameters(made)}, place)
    try:
        return made(**job_arguments(given, threads, tls))
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        said = str(error).splitlines()[0].rstrip(":. ")
        raise InputError(f"{place} does not describe a job ({said}): correct it and rerun the same command.") from None


def job_arguments(given: Mapping[str, Any], threads: int | None, tls: str) -> dict[str, Any]:
    """Arguments of a cluster of dask-jobqueue: what is given, with defaults that listen to nobody else.

    A job is one process, all of whose cores run the kernels.
    """
    interface = given.get("interface") or setting("interface") or "lo"
    interface_address(interface)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in exported().items()]
    return {
        "processes": 1,
        **({} if threads is None else {"cores": threads}),
        "death_timeout": DEATH_TIMEOUT,
        "silence_logs": logging.CRITICAL,
        **given,
        "security": tls_security(tls),
        "interface": interface,
        "scheduler_options": {"dashboard_address": f"{LOOPBACK}:0", **(given.get("scheduler_options") or {})},
        "job_script_prologue": exports + list(given.get("job_script_prologue") or []),
        "worker_extra_args": ["--dashboard-address", f"{LOOPBACK}:0", *(given.get("worker_extra_args") or [])],
    }


def _parameters(made: type) -> set[str]:
    """Names of the arguments of a class of clusters and of its jobs."""
    classes = [*made.__mro__, *made.job_cls.__mro__]  # type: ignore[attr-defined]
    return {name for c in classes if c.__module__.startswith("dask_jobqueue") for name in _arguments(c)}


def _arguments(kind: type) -> list[str]:
    found = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return [one.name for one in found if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name != "self"]


def _start_jobs(cluster: Any, kind: str, jobs: Any, adapt: Any) -> None:
    """Submit jobs, and again those that end before the cluster does."""
    command = shlex.split(cluster.job_cls.submit_command)[0]
    if shutil.which(command) is None:
        raise InputError(
            f"cluster {kind!r} needs the command {command}, which this machine does not have: run psmds where you "
            "submit jobs, or use another cluster."
        )
    if adapt is not None:
        _adapt(cluster, adapt)
        return
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"jobs must be a whole number of at least 1, not {jobs!r}.")
    try:
        open_jobs(cluster, jobs, REPLACE_INTERVAL)
    except RuntimeError as error:
        refused = re.search(r"stderr:\s*(.+?)\s*$", str(error), re.DOTALL)
        said = " ".join((refused[1] if refused else str(error)).split()).rstrip(".")
        raise WorkerError(f"{command} refused a job ({said}): correct the file and rerun the same command.") from None


def _adapt(cluster: Any, adapt: Any) -> None:
    try:
        cluster.adapt(**{name.replace("-", "_"): value for name, value in adapt.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"adapt must hold minimum_jobs and maximum_jobs, not {adapt!r} ({str(error).rstrip('.')})."
        ) from None
