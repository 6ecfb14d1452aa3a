"""The harness itself: hosts that reach each other until a link is cut, and nothing left at the end."""

import subprocess

import psutil
import pytest

from tests.clusters import wait_for
from tests.lab.netns import Network, namespaces
from tests.lab.netns import can_have_networks as can_have_networks
from tests.lab.netns import network as network

pytestmark = pytest.mark.cluster

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"
SERVE = "import socket, sys, time; s = socket.create_server((sys.argv[1], 7000)); print('ready', flush=True)"
SERVE += "; time.sleep(600)"


def reaches(network, host, other):
    return network.run(host, ["python3", "-c", CONNECT, network.address(other), 7000]).returncode == 0


def test_hosts_reach_each_other_until_a_link_is_cut(network, tmp_path):
    network.start(2, ["python3", "-c", SERVE, network.address(2)], tmp_path / "log")
    wait_for(lambda: "ready" in (tmp_path / "log").read_text())
    assert network.run(1, ["hostname"]).stdout == "host1\n"
    assert reaches(network, 1, 2)
    network.cut(2)
    assert not reaches(network, 1, 2)
    assert reaches(network, 2, 2)  # its own address stays
    network.mend(2)
    wait_for(lambda: reaches(network, 1, 2))
    network.kill(2)
    assert not reaches(network, 1, 2)


def test_a_mount_is_seen_by_one_command_only(network, tmp_path):
    (tmp_path / "store").mkdir()
    hide = ["sh", "-c", f"mount -t tmpfs none {tmp_path}; ls {tmp_path}"]
    command = network.command(1, hide, ["--mount"])
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
    assert (tmp_path / "store").exists()


@pytest.mark.usefixtures("can_have_networks")
def test_nothing_is_left_after_a_failure(tmp_path):
    network = Network(1)
    with pytest.raises(ZeroDivisionError):
        _fail_with_a_process(network, tmp_path / "log")
    assert not [name for name in namespaces() if name.startswith(network.name)]
    (pid,) = map(int, (tmp_path / "log").read_text().split())
    assert not psutil.pid_exists(pid)


def _fail_with_a_process(network, log):
    with network:
        network.start(1, ["sh", "-c", "echo $$; exec sleep 600"], log)
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
        raise ZeroDivisionError
