"""Clusters on hosts that are reached by SSH, through Dask's SpecCluster."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psmds_dist.core.errors import InputError, WorkerError
from psmds_dist.deploy.files import read_text, require_known
from psmds_dist.deploy.local import close
from psmds_dist.deploy.settings import LOOPBACK, dask_settings, setting
from psmds_dist.executor import tls_configuration, tls_security
from psmds_dist.utils.extras import extra
from psmds_dist.utils.signals import defer_interrupts

if TYPE_CHECKING:
    from distributed import Client

OPTIONS = ("client_keys", "interface", "known_hosts", "python", "threads")

DEATH_TIMEOUT = 120.0
"""Seconds that a worker has to start and to find its scheduler, after which it ends."""

MAX_PORT = 65535

_HOST = re.compile(r"(?:(?P<username>\S+)@)?(?P<host>\[[^\]\s]+\]|[^:@\s]+)(?::(?P<port>\d+))?")

_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass
class Hosts:
    """The machines of a cluster."""

    names: list[str] = field(default_factory=list)
    """The scheduler's, then one for each worker."""

    connections: list[dict[str, Any]] = field(default_factory=list)
    """Arguments of asyncssh for each of them, where they differ from the user's SSH configuration."""

    options: dict[str, str] = field(default_factory=dict)

    @property
    def on_loopback(self) -> bool:
        """Whether all of them are this machine."""
        return all(_is_loopback(name) for name in self.names)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def parse_hosts(text: str, path: str) -> Hosts:
    """Read a list of hosts: ``user@host:port`` a line, the scheduler's first, and options as ``name = value``.

    Raises
    ------
    InputError
        When a line is neither, sets an option again, or there are fewer than two hosts.
    """
    found = Hosts()
    for line in filter(None, (_COMMENT.sub("", line).strip() for line in text.splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        match = _HOST.fullmatch(line)
        if equals:
            require_known([name], OPTIONS, path)
            if name in found.options:
                raise InputError(f"{path} sets {name} twice: remove one of the lines.")
            found.options[name] = _unquoted(value)
        elif match is None or not 0 < int(match["port"] or 22) <= MAX_PORT:
            raise InputError(
                f"{path} must list one host a line, as user@host:port or host, not {line[:60]!r}; an IPv6 "
                "address stands in brackets."
            )
        else:
            parts = {key: part for key, part in match.groupdict().items() if part is not None}
            found.names.append(parts.pop("host").strip("[]"))
            found.connections.append({k: int(v) if k == "port" else v for k, v in parts.items()})
    if len(found.names) < 2:
        raise InputError(f"{path} must list the scheduler's host, then that of each worker; it has {len(found.names)}.")
    return found


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def ssh_arguments(hosts: Hosts, path: str, threads: int | None, tls: str | None) -> dict[str, Any]:
    """What is started on which host: processes that listen on one network, with dashboards on loopback.

    Raises
    ------
    InputError
        When other machines could reach a cluster that does not use TLS, or nothing says on which network it listens.
    """
    options = hosts.options
    listening = _listening(hosts, options.get("interface") or setting("interface"), path, tls)
    common = {**listening, "dashboard_address": f"{LOOPBACK}:0"}
    keys = {name: options[name] for name in ("client_keys", "known_hosts") if name in options}
    count = threads if threads is not None else _threads(options.get("threads"), path)
    return {
        "hosts": hosts.names,
        "connect_options": [{**keys, **own} for own in hosts.connections],
        "scheduler_options": {**common, "port": 0, **({} if tls is None else {"protocol": "tls"})},
        "worker_options": {
            **common,
            "memory_limit": 0,
            "death_timeout": DEATH_TIMEOUT,
            **({} if count is None else {"nthreads": count}),
        },
        "remote_python": options.get("python"),
    }


def _listening(hosts: Hosts, interface: str | None, path: str, tls: str | None) -> dict[str, str]:
    if interface is None and hosts.on_loopback:
        return {"host": LOOPBACK}
    if interface is None:
        raise InputError(f"{path} must say on which network the hosts reach each other: add interface = eth0, or ib0.")
    if tls is None and interface != "lo":
        raise InputError(
            f"the hosts of {path} would listen on {interface} without TLS, where anyone could run code as you: create "
            "a certificate with 'psmds certificates' in a directory that all hosts see, and pass it with --tls."
        )
    return {"interface": interface}


def _threads(text: str | None, path: str) -> int | None:
    if text is not None and not (text.isascii() and text.isdigit() and int(text)):
        raise InputError(f"threads in {path} must be a number of threads, not {text!r}.")
    return None if text is None else int(text)


@contextlib.contextmanager
def ssh_client(path: str, threads: int | None, tls: str | None) -> Iterator[Client]:
    """Start a scheduler and workers on the hosts in a file, for the length of a with block.

    An interrupt that comes while they start is raised when those that have started have ended.
    """
    import dask
    from distributed import Client

    extra("asyncssh", "ssh", "cluster 'ssh'")
    arguments = ssh_arguments(parse_hosts(read_text(path, "the hosts of cluster 'ssh'"), path), path, threads, tls)
    with contextlib.ExitStack() as stack:
        # Dask hands its configuration to the processes on the other hosts
        inherited = {**dask_settings(), **({} if tls is None else tls_configuration(tls))}
        with dask.config.set(inherited), defer_interrupts() as interrupted:  # half a cluster cannot be closed
            cluster = new_cluster(arguments, path, tls, interrupted)
            stack.callback(close, cluster)
            client = stack.enter_context(Client(cluster, set_as_default=False))
        yield client


def new_cluster(
    arguments: dict[str, Any], path: str, tls: str | None, interrupted: Callable[[], bool] = lambda: False
) -> Any:
    """Start processes on all hosts; when one of them fails, or an interrupt comes, those that have started end.

    Raises
    ------
    WorkerError
        When a host cannot be reached, or its process does not start.
    """
    from distributed import SpecCluster

    from psmds_dist.deploy.remote import RemoteProcess

    def process(i: int, options: dict[str, Any]) -> dict[str, Any]:
        place = {"host": arguments["hosts"][i], "connection": arguments["connect_options"][i], "path": path}
        how = {"options": options, "python": arguments["remote_python"], "interrupted": interrupted}
        return {"cls": RemoteProcess, "options": {**place, **how}}

    try:
        return SpecCluster(
            {i - 1: process(i, arguments["worker_options"]) for i in range(1, len(arguments["hosts"]))},
            process(0, arguments["scheduler_options"]),
            name="SSHCluster",
            security=None if tls is None else tls_security(tls),
            silence_logs=logging.CRITICAL,
        )
    except WorkerError:
        raise
    except RuntimeError as error:  # Dask wraps what the scheduler raises
        if isinstance(error.__cause__, WorkerError):
            raise error.__cause__ from None
        if isinstance(error.__cause__, OSError):
            raise WorkerError(
                f"cluster 'ssh:{path}' did not start: this machine does not reach the scheduler on host "
                f"{arguments['hosts'][0]} ({str(error.__cause__).rstrip('.')}): set interface = in {path} to a "
                "network that hosts and this machine share, and let no firewall close its ports."
            ) from error
        raise
