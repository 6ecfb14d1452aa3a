"""Hosts as network namespaces on a bridge, for tests of networks that fail.

Host ``i`` of a network (from 1) is a namespace with the address ``10.77.0.i`` and a host name of its own. The bridge
is in another namespace, so nothing is added to the network of this machine, whatever its addresses are.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

PREFIX = "psmds"
NUMBERS = itertools.count()

# a namespace has no host name of its own; without its file system it is the one of this machine
AS_HOST = 'hostname "$0" && exec "$@"'

SCAN = """
import resource, select, socket, sys

_, files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

def find_open(ports):
    poll, knocks = select.poll(), {}
    for port in ports:
        knock = socket.socket()
        knock.setblocking(False)
        knocks[knock.fileno()] = port, knock
        knock.connect_ex((sys.argv[1], port))
        poll.register(knock, select.POLLOUT)
    while knocks and (answers := poll.poll(2000)):  # a wall does not answer
        for file, answer in answers:
            poll.unregister(file)
            port, knock = knocks.pop(file)
            if not answer & select.POLLERR and knock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                yield port

step = min(16384, files - 64)
for first in range(1, 65536, step):
    print(*find_open(range(first, min(first + step, 65536))))
"""
"""A program for Python that prints the ports of an address that it can connect to, of all that there are."""


class Network:
    """Hosts on a bridge; used as a context manager, which also ends their processes.

    Parameters
    ----------
    hosts : int
        Number of hosts.
    """

    def __init__(self, hosts: int) -> None:
        remove_left_over()
        self.name = f"{PREFIX}{os.getpid()}x{next(NUMBERS)}"
        self.hosts = range(1, hosts + 1)
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _build(self) -> None:
        _ip("netns", "add", self.namespace(0))
        _ip("-n", self.namespace(0), "link", "add", "br0", "type", "bridge")
        _ip("-n", self.namespace(0), "link", "set", "br0", "up")
        for host in self.hosts:
            self._add(host)

    def _add(self, host: int) -> None:
        bridge, own, port = self.namespace(0), self.namespace(host), f"port{host}"
        _ip("netns", "add", own)
        _ip("link", "add", "eth0", "netns", own, "type", "veth", "peer", "name", port, "netns", bridge)
        _ip("-n", bridge, "link", "set", port, "master", "br0", "up")
        _ip("-n", own, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", own, "link", "set", device, "up")

    def namespace(self, host: int) -> str:
        """Name of the namespace of a host; 0 is that of the bridge."""
        return f"{self.name}-{host}"

    def address(self, host: int) -> str:
        """IPv4 address of a host."""
        return f"10.77.0.{host}"

    def command(self, host: int, command: Sequence[object], unshare: Sequence[str] = ()) -> list[str]:
        """Arguments that run a command on a host.

        Parameters
        ----------
        host : int
            Number of the host.
        command : sequence
            Program and arguments.
        unshare : sequence of str
            More options of unshare, such as ``--mount`` for mounts that only this command sees.
        """
        inside = ["unshare", "--uts", *unshare, "sh", "-c", AS_HOST, f"host{host}", *map(str, command)]
        return ["ip", "netns", "exec", self.namespace(host), *inside]

    def run(self, host: int, command: Sequence[object], timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command on a host and return its output, whatever its exit code."""
        return subprocess.run(self.command(host, command), capture_output=True, text=True, timeout=timeout, check=False)

    def scan(self, host: int, address: str) -> set[int]:
        """Ports of an address that a host can connect to."""
        scan = self.run(host, [sys.executable, "-S", "-c", SCAN, address])
        assert scan.returncode == 0, scan.stderr
        return set(map(int, scan.stdout.split()))

    def start(
        self, host: int, command: Sequence[object], log: Path, unshare: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host in a session of its own, with its output in a file."""
        arguments = self.command(host, command, unshare)
        with log.open("ab") as file:
            self._started.append(subprocess.Popen(arguments, stdout=file, stderr=file, start_new_session=True))
        return self._started[-1]

    def cut(self, host: int) -> None:
        """Take the link of a host down at the switch: packets are lost, and nobody is notified."""
        _ip("-n", self.namespace(0), "link", "set", f"port{host}", "down")

    def mend(self, host: int) -> None:
        """Undo `cut`."""
        _ip("-n", self.namespace(0), "link", "set", f"port{host}", "up")

    def kill(self, host: int) -> None:
        """Kill every process on a host, as the loss of its power does."""
        kill_processes(self.namespace(host))

    def close(self) -> None:
        """Kill all processes and remove all hosts."""
        for namespace in namespaces():
            if namespace.startswith(f"{self.name}-"):
                remove(namespace)
        for process in self._started:
            process.wait(30)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def namespaces() -> list[str]:
    """Names of the network namespaces of this machine."""
    return re.findall(r"^\S+", _ip("netns", "list"), re.MULTILINE)


def processes(namespace: str) -> list[int]:
    """Ids of the processes in a network namespace."""
    return [int(pid) for pid in _ip("netns", "pids", namespace).split()]


def kill_processes(namespace: str, timeout: float = 30) -> None:
    """Kill the processes of a network namespace until there are none."""
    end = time.monotonic() + timeout
    while left := processes(namespace):
        assert time.monotonic() < end, f"processes {left} cannot be killed"
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(namespace: str) -> None:
    """Remove a network namespace and its processes."""
    kill_processes(namespace)
    _ip("netns", "delete", namespace)


def remove_left_over() -> None:
    """Remove the namespaces of test processes that were killed."""
    for namespace in namespaces():
        owner = re.match(rf"{PREFIX}(\d+)x\d+-\d+$", namespace)
        if owner and not psutil.pid_exists(int(owner[1])):
            remove(namespace)


def why_impossible() -> str | None:
    """Why this process cannot have networks of its own, if it cannot."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "hostname"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    try:
        with Network(1) as network:
            network.run(1, ["true"]).check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        return f"network namespaces are not permitted here ({error}: {getattr(error, 'stderr', '')})"
    return None


@pytest.fixture(scope="session")
def can_have_networks():
    """Skip the tests that need networks where there can be none."""
    if reason := why_impossible():
        pytest.skip(reason)


@pytest.fixture
def network(can_have_networks):
    """Five hosts."""
    with Network(5) as network:
        yield network
