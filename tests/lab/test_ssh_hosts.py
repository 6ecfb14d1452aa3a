"""Clusters on hosts that are reached by SSH: a real sshd with keys of its own, on two addresses of this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, WorkerError, open_client, read_result
from psmds_dist.executor import write_certificates
from tests.clusters import ended, wait_for

pytestmark = pytest.mark.cluster
pytest.importorskip("asyncssh")

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
ADDRESSES = ("127.0.0.1", "127.0.0.2")

PROGRAMS = {
    # shells
    "noisy": """#!/bin/sh
printf 'Sch\\366n, mit psmds-pid none\\n'; printf 'Sch\\366n ' >&2; exec sh -c "$SSH_ORIGINAL_COMMAND"
""",
    "closed": "#!/bin/sh\necho This account is currently not available.; exit 1\n",
    # Pythons
    "slow": "#!/bin/sh\n: > $0.started; exec sleep 300\n",
    "dies": """#!/bin/sh
case "$*" in *tcp://*) echo 'Start worker at: tcp://127.0.0.1:1' >&2; echo 'Illegal instruction' >&2; exit 132;; esac
exec {python} "$@"
""",
    "far": "#!/bin/sh\necho 'Scheduler at: tcp://127.0.0.1:1' >&2; exec sleep 300\n",
}
"""Login shells of keys of the same name, and what hosts have in place of Python."""


@dataclass(frozen=True)
class Server:
    """A running sshd."""

    folder: Path
    port: int
    process: psutil.Popen

    def hosts(self, known: str = "known_hosts", *, second: str = ADDRESSES[1], key: str = "key", more: str = "") -> str:
        """Name of a cluster: a scheduler and a worker on the first address, a worker on the second."""
        names = (ADDRESSES[0], ADDRESSES[0], second)
        lines = [f"{getpass.getuser()}@{name}:{self.port}" for name in names]
        lines += [f"client_keys = {self.folder}/{key}", f"known_hosts = {self.folder}/{known}", "threads = 1", more]
        file = self.folder / f"{known}.hosts"
        file.write_text("\n".join(lines))
        return f"ssh:{file}"

    def running(self) -> list[psutil.Process]:
        """Processes of logins."""
        return self.process.children(recursive=True)

    def left(self) -> list[psutil.Process]:
        """Processes that were started by a login, also those whose login has ended."""
        return [process for process in psutil.process_iter() if self._started(process)]

    def _started(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("SSH_CONNECTION", "").endswith(f" {self.port}")
        except psutil.Error:
            return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if SSHD is None:
        pytest.skip("not installed: sshd")
    folder, port = tmp_path_factory.mktemp("ssh"), free_port()
    for name in ("host", "key", "other", "noisy", "closed"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    known_hosts(folder / "known_hosts", folder / "host.pub", port)
    known_hosts(folder / "known_otherwise", folder / "other.pub", port)
    for name, text in PROGRAMS.items():
        (folder / f"{name}.sh").write_text(text.format(python=sys.executable))
        (folder / f"{name}.sh").chmod(0o755)
    keys = [f'command="{folder}/{name}.sh" {(folder / f"{name}.pub").read_text()}' for name in ("noisy", "closed")]
    (folder / "keys").write_text("".join([(folder / "key.pub").read_text(), *keys]))
    (folder / "config").write_text(configuration(folder, port))
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # sshd insists on it
    process = psutil.Popen([SSHD, "-D", "-E", folder / "log", "-f", folder / "config"])
    sshd = Server(folder, port, process)
    try:
        wait_for(lambda: answers(port), 60)
        yield sshd
    finally:
        for each in {*sshd.running(), *sshd.left(), process}:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(30)


def free_port() -> int:
    with socket.create_server((ADDRESSES[0], 0)) as taken:
        return int(taken.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESSES[1], port)) == 0


def known_hosts(file: Path, key: Path, port: int) -> None:
    file.write_text("".join(f"[{address}]:{port} {key.read_text()}" for address in ADDRESSES))


def configuration(folder: Path, port: int) -> str:
    settings = [("Port", port), *(("ListenAddress", address) for address in ADDRESSES)]
    settings += [("HostKey", folder / "host"), ("AuthorizedKeysFile", folder / "keys"), ("PidFile", "none")]
    settings += [("PasswordAuthentication", "no"), ("KbdInteractiveAuthentication", "no"), ("UsePAM", "no")]
    settings += [("PermitRootLogin", "prohibit-password"), ("StrictModes", "no")]
    return "".join(f"{name} {value}\n" for name, value in settings)


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 4))


def psmds(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "psmds_dist", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_command_on_hosts_gives_the_bits_of_one_process(server: Server, points: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", points)
    where = ("--cluster", server.hosts(), "--tls", tmp_path / "tls")
    assert psmds("certificates", tmp_path / "tls").returncode == 0
    for command in (("distances", "points.npy", "matrix.zarr"), ("fit", "matrix.zarr", "map.zarr")):
        done = psmds(command[0], *(tmp_path / name for name in command[1:]), *where)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers" in done.stdout
    expected = PatternSearchMDS(random_state=0).fit(squareform(pdist(points))).embedding_
    assert np.array_equal(read_result(tmp_path / "map.zarr").embedding, expected)
    wait_for(lambda: not server.running(), 60)


def test_processes_on_hosts_listen_on_loopback_only(server: Server) -> None:
    with open_client(server.hosts()) as client:
        client.wait_for_workers(2, timeout=120)
        assert client.scheduler.address.startswith("tcp://127.0.0.1:")
        listening = [c.laddr.ip for p in server.running() for c in p.net_connections("tcp") if c.status == "LISTEN"]
    assert set(listening) == {"127.0.0.1"}
    wait_for(lambda: not server.running(), 60)


def test_a_host_with_another_key_is_refused(server: Server, points: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", points)
    cluster = server.hosts("known_otherwise")
    done = psmds("distances", tmp_path / "points.npy", tmp_path / "matrix.zarr", "--cluster", cluster)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Host key is not trusted" in done.stderr
    assert "Traceback" not in done.stderr
    assert not server.running()


def test_a_start_that_fails_leaves_no_process(server: Server) -> None:
    cluster = server.hosts(second="nosuch.invalid", more="interface = lo")
    sentence = "host nosuch.invalid cannot be reached .*correct the host or its port in "
    with pytest.raises(WorkerError, match=sentence), open_client(cluster):
        pass
    wait_for(lambda: not server.left(), 10)


@pytest.mark.parametrize(
    ("known", "key", "more", "sentence"),
    [
        ("known_hosts", "key", "interface = ib7", "did not start its scheduler .*ib7.*interface = in "),
        ("known_hosts", "key", "python = /no/python", "did not start its scheduler .*No such file.*check python = "),
        ("known_hosts", "other", "", "cannot be reached .Permission denied.*set client_keys = in "),
        ("known_hosts", "nokey", "", "cannot be reached .*nokey.*set client_keys = in "),
        ("known_hosts", "closed", "", "did not start its scheduler .This account is currently not available"),
        ("nofile", "key", "", "cannot be reached .No such file.*nofile.*set known_hosts = in "),
        ("other", "key", "", "cannot be reached .Invalid known hosts entry.*set known_hosts = in "),
        ("known_otherwise", "key", "", "cannot be reached .Host key is not trusted.*set known_hosts = in "),
    ],
)
def test_why_a_host_fails_is_a_sentence(server: Server, known: str, key: str, more: str, sentence: str) -> None:
    tls = {}
    if more.startswith("interface"):
        write_certificates(str(server.folder / "tls"))
        tls = {"tls": str(server.folder / "tls")}
    whole = f"^cluster 'ssh:.*' did not start: host 127.0.0.1 {sentence}"
    with pytest.raises(WorkerError, match=whole), open_client(server.hosts(known, key=key, more=more), **tls):
        pass
    wait_for(lambda: not server.left(), 10)


@pytest.mark.parametrize("delay", [0.0, 1.5])
def test_an_interrupt_during_the_start_leaves_no_process(server: Server, tmp_path: Path, delay: float) -> None:
    np.save(tmp_path / "points.npy", np.eye(3))
    command = ["distances", tmp_path / "points.npy", tmp_path / "matrix.zarr", "--cluster", server.hosts()]
    with ended(subprocess.Popen([sys.executable, "-m", "psmds_dist", *map(str, command)])) as process:
        wait_for(server.left, 60)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    wait_for(lambda: not server.left(), 10)


def test_a_shell_that_writes_anything_on_both_streams(server: Server) -> None:
    with open_client(server.hosts(key="noisy")) as client:
        client.wait_for_workers(2, timeout=120)
    wait_for(lambda: not server.left(), 10)


def test_a_worker_that_writes_much_goes_on(server: Server) -> None:
    def write() -> bool:
        return all(print("x" * 1000, file=sys.stderr) is None for _ in range(5000))

    with open_client(server.hosts()) as client:
        assert client.submit(write).result(timeout=60)


def test_a_worker_that_ends_at_once_fails_the_start(server: Server) -> None:
    sentence = "host 127.0.0.[12] did not start its worker .Illegal instruction.*check python = "
    cluster = server.hosts(more=f"python = {server.folder}/dies.sh")
    with pytest.raises(WorkerError, match=sentence), open_client(cluster):
        pass
    wait_for(lambda: not server.left(), 10)


def test_a_scheduler_that_this_machine_does_not_reach_names_its_host(server: Server) -> None:
    sentence = "this machine does not reach the scheduler on host 127.0.0.1 .*tcp://127.0.0.1:1 .*set interface = in "
    cluster = server.hosts(more=f"python = {server.folder}/far.sh")
    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, pytest.raises(WorkerError, match=sentence), open_client(cluster):
        pass
    wait_for(lambda: not server.left(), 10)


def test_a_command_that_is_killed_leaves_no_process(server: Server, tmp_path: Path) -> None:
    program = "import sys, time, psmds_dist as p\nwith p.open_client(sys.argv[1]): print(flush=True), time.sleep(300)"
    command = [sys.executable, "-c", program, server.hosts()]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        assert process.stdout.readline() == b"\n"
        assert server.left()
        process.kill()
        process.communicate()
    wait_for(lambda: not server.left(), 30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_host_is_slow_ends_the_start(server: Server, tmp_path: Path, number: int) -> None:
    np.save(tmp_path / "points.npy", np.eye(3))
    cluster, there = server.hosts(more=f"python = {server.folder}/slow.sh"), server.folder / "slow.sh.started"
    there.unlink(missing_ok=True)
    command = ["distances", tmp_path / "points.npy", tmp_path / "matrix.zarr", "--cluster", cluster]
    with ended(subprocess.Popen([sys.executable, "-m", "psmds_dist", *map(str, command)])) as process:
        wait_for(there.exists, 60)
        process.send_signal(number)
        assert process.wait(20) == 130
    wait_for(lambda: not server.left(), 10)
