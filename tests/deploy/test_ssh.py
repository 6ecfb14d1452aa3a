"""Lists of hosts, and what SSHCluster is given for them."""

import socket
import subprocess

import dask
import pytest

from psmds_dist import InputError, WorkerError, open_client
from psmds_dist.deploy import remote
from psmds_dist.deploy.files import read_text
from psmds_dist.deploy.ssh import parse_hosts, ssh_arguments

TEXT = """
# the scheduler, then the workers
me@node-0:2222
node-1   # has 16 cores
[fd00::2]:22
interface = ib0
threads = 16
"""


def arguments(text, threads=None, tls=None):
    return ssh_arguments(parse_hosts(text, "hosts.txt"), "hosts.txt", threads, tls)


def test_a_list_of_hosts():
    hosts = parse_hosts(TEXT, "hosts.txt")
    assert hosts.names == ["node-0", "node-1", "fd00::2"]
    assert hosts.connections == [{"username": "me", "port": 2222}, {}, {"port": 22}]
    assert hosts.options == {"interface": "ib0", "threads": "16"}


def test_users_with_an_at_sign_quoted_paths_and_paths_with_a_number_sign():
    hosts = parse_hosts('me@corp@node-0\nnode-1\t# x\n#node-2\nclient_keys = "/my keys/#1"  # mine\n', "hosts.txt")
    assert hosts.names == ["node-0", "node-1"]
    assert hosts.connections == [{"username": "me@corp"}, {}]
    assert hosts.options == {"client_keys": "/my keys/#1"}


def test_a_list_of_an_editor_that_marks_its_encoding(tmp_path):
    (tmp_path / "hosts.txt").write_bytes(b"\xef\xbb\xbfnode-0\r\nnode-1\r\n")
    assert parse_hosts(read_text(str(tmp_path / "hosts.txt"), "hosts"), "hosts.txt").names == ["node-0", "node-1"]


def test_hosts_of_a_network_use_tls():
    given = arguments(TEXT, tls="/shared/tls")
    common = {"interface": "ib0", "dashboard_address": "127.0.0.1:0"}
    assert given["scheduler_options"] == {**common, "port": 0, "protocol": "tls"}
    assert given["worker_options"] == {**common, "memory_limit": 0, "nthreads": 16, "death_timeout": 120.0}
    assert given["hosts"] == ["node-0", "node-1", "fd00::2"]


def test_hosts_on_loopback_listen_there():
    given = arguments("localhost:22\n127.0.0.1\nclient_keys = /key\npython = /venv/bin/python\n", threads=2)
    assert given["scheduler_options"] == {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "port": 0}
    assert given["worker_options"]["nthreads"] == 2
    assert given["connect_options"] == [{"client_keys": "/key", "port": 22}, {"client_keys": "/key"}]
    assert given["remote_python"] == "/venv/bin/python"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "hosts.txt must list the scheduler's host, then that of each worker; it has 0."),
        ("node-1\n", "it has 1."),
        ("node 1\nnode 2\n", "hosts.txt must list one host a line, as user@host:port or host, not 'node 1'"),
        ("a:99999\nb\n", "as user@host:port or host, not 'a:99999'"),
        ("a:0\nb\n", "not 'a:0'"),
        ("fd00::1\nb\n", "not 'fd00::1'; an IPv6 address stands in brackets."),
        ("a\nb\nthreads = 1\nthreads = 2\n", "hosts.txt sets threads twice: remove one of the lines."),
        ("a\nb\ninterfaces = eth0\n", "hosts.txt has the unknown name interfaces: did you mean interface?"),
        ("a\nb\nthreads = many\ninterface = lo\n", "threads in hosts.txt must be a number of threads, not 'many'"),
        ("a\nb\n", "hosts.txt must say on which network the hosts reach each other: add interface = eth0"),
        ("a\nb\ninterface = eth0\n", "the hosts of hosts.txt would listen on eth0 without TLS"),
    ],
)
def test_mistakes_are_explained(text, sentence):
    with pytest.raises(InputError) as error:
        arguments(text)
    assert sentence in str(error.value)


def test_a_host_without_an_address_is_named(tmp_path):
    pytest.importorskip("asyncssh")
    file = tmp_path / "hosts.txt"
    file.write_text("nosuch.invalid\nlocalhost\ninterface = lo\n")
    with pytest.raises(WorkerError) as error, open_client(f"ssh:{file}"):
        pass
    said = str(error.value)
    assert said.startswith(f"cluster 'ssh:{file}' did not start: host nosuch.invalid cannot be reached (")
    assert "Errno" not in said
    assert said.endswith(f"): correct the host or its port in {file}, or name its address in ~/.ssh/config.")


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".invalid"])
def test_a_name_that_no_host_can_have_is_no_fault_of_the_key(tmp_path, host):
    pytest.importorskip("asyncssh")
    (tmp_path / "hosts.txt").write_text(f"{host}\nlocalhost\ninterface = lo\n")
    with pytest.raises(WorkerError) as error, open_client(f"ssh:{tmp_path}/hosts.txt"):
        pass
    assert f"host {host} cannot be reached" in str(error.value)
    assert "correct the host or its port" in str(error.value)


def test_a_host_that_accepts_a_connection_and_says_nothing(tmp_path, monkeypatch):
    pytest.importorskip("asyncssh")
    monkeypatch.setattr(remote, "CONNECT_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "hosts.txt").write_text(f"127.0.0.1:{silent.getsockname()[1]}\nlocalhost\n")
        sentence = r"cannot be reached \(no answer within 0.5 seconds\): correct the host"
        with pytest.raises(WorkerError, match=sentence), open_client(f"ssh:{tmp_path}/hosts.txt"):
            pass


def test_a_port_that_is_closed_is_told_without_numbers_of_errors(tmp_path):
    pytest.importorskip("asyncssh")
    (tmp_path / "hosts.txt").write_text("127.0.0.1:1\nlocalhost\n")
    sentence = r"host 127.0.0.1 cannot be reached \(Connection refused\): correct the host"
    with pytest.raises(WorkerError, match=sentence), open_client(f"ssh:{tmp_path}/hosts.txt"):
        pass


def process(python):
    """A worker whose Python is another program."""
    return remote.RemoteProcess(
        "tls://node-0:1", host="node-1", path="hosts.txt", connection={}, options={}, python=python
    )


def test_the_path_of_python_may_have_spaces(tmp_path, monkeypatch):
    (tmp_path / "my env").mkdir()
    (tmp_path / "my env" / "python").symlink_to("/bin/echo")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (f"{tmp_path}/my env/python", "~/my env/python"):
        told = subprocess.run(["sh", "-c", process(path).command()], capture_output=True, text=True, check=True)
        assert told.stdout.startswith("-m distributed.cli.dask_spec tls://node-0:1 ")


@pytest.mark.parametrize(
    "logs", [{"logging": {"distributed": "error"}}, {"distributed.logging": {"distributed.worker": "error"}}]
)
def test_a_process_logs_its_start_also_where_logs_are_silenced(logs):
    with dask.config.set(logs):
        words = process("python").command().split()
    given = next(word for word in words if word.startswith("DASK_INTERNAL_INHERIT_CONFIG=")).partition("=")[2]
    assert dask.config.deserialize(given)["distributed"]["logging"] == {"distributed": "info"}


def test_a_process_ends_with_its_connection(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "python").chmod(0o755)
    command = ["sh", "-c", f"exec {process(f'{tmp_path}/python').command()}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        try:
            started.stdin.write(b"\n")
            started.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                started.wait(1)
            started.stdin.close()
            assert started.wait(10) == -15
        finally:
            started.kill()


def test_what_a_host_runs_tells_its_number_and_keeps_options_whole():
    process = remote.RemoteProcess(
        "tls://node-0:1", host="node-1", path="hosts.txt", connection={}, options={"name": "it's"}, python="echo"
    )
    told = subprocess.run(["sh", "-c", process.command()], capture_output=True, text=True, check=True)
    assert int(told.stderr.removeprefix("psmds-pid ")) > 1
    spec = '{"0": {"cls": "distributed.Nanny", "opts": {"name": "it\'s"}}}'
    assert told.stdout == f"-m distributed.cli.dask_spec tls://node-0:1 --spec {spec}\n"
