"""One way to a cluster: started, connected to, or taken as it is."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from psmds_dist.core.errors import ClusterLost, InputError, PsmdsError, WorkerError
from psmds_dist.deploy.names import QUEUES, ClusterName, parse_cluster
from psmds_dist.deploy.settings import dask_settings, exported, setting
from psmds_dist.utils.importing import working_directory_importable
from psmds_dist.utils.machine import numa_nodes

if TYPE_CHECKING:
    from distributed import Client

    from psmds_dist.core.executor import Executor

log = logging.getLogger(__name__)


class Wishes(NamedTuple):
    """What the caller asks of a cluster."""

    threads: int | None
    """Kernel threads of each worker; None takes all of its share."""

    tls: str | None
    """Directory with a certificate and its key."""


@contextlib.contextmanager
def open_client(cluster: Any, *, threads: int | None = None, tls: str | None = None) -> Iterator[Client]:
    """Yield a client of a cluster; what was started for it ends with the block.

    Parameters
    ----------
    cluster : str, distributed.Client or Dask cluster
        The name of a cluster: ``"local:4"``, or ``"local"`` for a worker of each NUMA node; the address or file of a
        scheduler; ``"slurm:file.yaml"`` (or pbs, lsf, sge), ``"ssh:hosts.txt"``, ``"kubernetes:file.yaml"``; or
        ``"package.module:function"``, which returns a cluster or a client. A client or cluster that exists is used, and
        stays open.
    threads : int, optional
        Kernel threads of each worker that is started, by default all of its share.
    tls : str, optional
        Directory of ``psmds certificates``, by default the setting ``psmds.tls``.

    Raises
    ------
    InputError
        When there is no such cluster, or it cannot be used from here.
    WorkerError
        When it does not start.
    """
    if not isinstance(cluster, str):
        with _client_of(cluster) as client:
            yield client
        return
    name = parse_cluster(cluster)
    opened = _OPENERS[name.kind](name, Wishes(threads, setting("tls") if tls is None else tls))
    with _explained(cluster, opened) as client:
        yield client


@contextlib.contextmanager
def open_executor(
    cluster: Any = None, *, threads: int | None = None, tls: str | None = None, deadline: float | None = None
) -> Iterator[Executor]:
    """Yield what runs the work: a cluster, or this process where there is none.

    Parameters
    ----------
    cluster : str, distributed.Client, Dask cluster or None
        As `open_client` takes it; None works in this process.
    threads : int, optional
        Kernel threads of this process, or of each worker that is started.
    tls : str, optional
        As `open_client` takes it.
    deadline : float, optional
        Seconds that a worker may hang before its blocks are reassigned, by default the setting ``psmds.deadline``.
    """
    from psmds_dist.executor import DaskExecutor, InProcessExecutor

    if cluster is None:
        yield InProcessExecutor(threads)
        return
    with open_client(cluster, threads=threads, tls=tls) as client:
        yield DaskExecutor(client, setting("deadline") if deadline is None else deadline)


@contextlib.contextmanager
def _explained(cluster: str, opened: AbstractContextManager[Client]) -> Iterator[Client]:
    """Say in a sentence why a cluster does not start; errors of the block stay as they are."""
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(opened)
        except PsmdsError:
            raise
        except (Exception, SystemExit) as error:  # whatever libraries of clusters, and functions of users, raise
            said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise WorkerError(f"cluster {cluster!r} did not start: {type(error).__name__} {said}.") from error
        yield client


@contextlib.contextmanager
def _client_of(cluster: Any) -> Iterator[Client]:
    """Client of what is open already."""
    from distributed import Client

    if hasattr(cluster, "scheduler_address") and not isinstance(cluster, Client):
        with Client(cluster, set_as_default=False) as client:
            yield client
    elif isinstance(cluster, Client):
        yield cluster
    else:
        raise InputError(
            "cluster must be the name of a cluster such as 'local:4', a distributed.Client or a Dask cluster, not "
            f"{type(cluster).__name__}."
        )


@contextlib.contextmanager
def _local(name: ClusterName, wishes: Wishes) -> Iterator[Client]:
    from psmds_dist.deploy.local import local_client
    from psmds_dist.kernels.jit import available_threads

    workers = int(name.value or len(numa_nodes()))
    threads = wishes.threads or max(1, available_threads() // workers)
    with local_client(workers, threads, wishes.tls) as client:
        yield client


@contextlib.contextmanager
def _running(name: ClusterName, wishes: Wishes) -> Iterator[Client]:
    from psmds_dist.executor import connect, dask_silenced

    place = {"address": name.value} if name.kind == "address" else {"scheduler_file": name.value}
    with dask_silenced(), connect(**place, tls=wishes.tls) as client:
        yield client


@contextlib.contextmanager
def _queue(name: ClusterName, wishes: Wishes) -> Iterator[Client]:
    from psmds_dist.deploy.queues import queue_client
    from psmds_dist.executor import dask_silenced

    with dask_silenced(), queue_client(*name, *wishes) as client:
        wait_for_worker(client, name.kind)
        yield client


def wait_for_worker(client: Client, cluster: str) -> None:
    """Wait until a cluster that was started has its first worker, for as long as the setting says.

    Raises
    ------
    ClusterLost
        When it has none by then.
    """
    timeout = setting("queue-timeout")
    log.info("waiting for a first worker of cluster %s", cluster)
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise ClusterLost(
            f"no worker of cluster {cluster!r} has connected in {timeout}: look whether its jobs run and what "
            "they log, whether they reach this machine on the interface of the cluster, or raise the setting "
            "psmds.queue-timeout."
        ) from None


@contextlib.contextmanager
def _ssh(name: ClusterName, wishes: Wishes) -> Iterator[Client]:
    from psmds_dist.deploy.ssh import ssh_client
    from psmds_dist.executor import dask_silenced

    with dask_silenced(), ssh_client(name.value, *wishes) as client:
        yield client


@contextlib.contextmanager
def _kubernetes(name: ClusterName, wishes: Wishes) -> Iterator[Client]:
    """Start a cluster by Dask's operator; a file with a ``kind`` is the whole resource, any other holds arguments."""
    import dask

    from psmds_dist.deploy.files import read_mapping
    from psmds_dist.utils.extras import extra

    if wishes.tls is not None:
        raise InputError(
            "cluster 'kubernetes' cannot use TLS, which Dask's operator does not know: leave out --tls and let a "
            "network policy keep others out, or start one with TLS by cluster/kubernetes/cluster.yaml."
        )
    given = read_mapping(name.value, "the arguments of cluster 'kubernetes'")
    if "kind" in given:
        given = {"custom_cluster_spec": name.value}
    else:
        given["env"] = {**exported(), **(given.get("env") or {})}
    kind = extra("dask_kubernetes.operator", "kubernetes", "cluster 'kubernetes'").KubeCluster
    with dask.config.set(dask_settings()), kind(**given) as cluster, _client_of(cluster) as client:
        wait_for_worker(client, name.kind)
        yield client


@contextlib.contextmanager
def _function(name: ClusterName, wishes: Wishes) -> Iterator[Client]:
    """Call a function; the cluster that it returns is closed, a client is not."""
    made = function_named(name.value)()
    with contextlib.ExitStack() as stack:
        if hasattr(made, "scheduler_address") and hasattr(made, "close"):
            stack.callback(made.close)
        yield stack.enter_context(_client_of(made))


def function_named(name: str) -> Callable[[], Any]:
    """Function of a module, which may lie in the working directory.

    Raises
    ------
    InputError
        When there is no such function.
    """
    module, _, function = name.replace(":", ".").rpartition(".")
    with working_directory_importable():
        try:
            found = getattr(import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"cluster {name!r} is no function that can be imported ({error}): give package.module:function."
            ) from None
    if not callable(found):
        raise InputError(f"cluster {name!r} must be a function that returns a cluster or a client, not {found!r}.")
    made: Callable[[], Any] = found
    return made


_Opener = Callable[[ClusterName, Wishes], AbstractContextManager["Client"]]

_OPENERS: dict[str, _Opener] = {
    "local": _local,
    "address": _running,
    "file": _running,
    "ssh": _ssh,
    "kubernetes": _kubernetes,
    "function": _function,
    **dict.fromkeys(QUEUES, _queue),
}
