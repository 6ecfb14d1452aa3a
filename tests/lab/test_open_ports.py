"""What of a cluster another host can connect to, and what other users can read: no more than is documented."""

import base64
import json
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from psmds_dist.executor import write_certificates
from tests.clusters import wait_for
from tests.lab.netns import Network, processes
from tests.lab.netns import can_have_networks as can_have_networks

pytestmark = pytest.mark.cluster

PSMDS = str(Path(sys.executable).parent / "psmds")

PATIENCE = 300

OPEN, LOOPBACK, LOCAL, STRANGER = 1, 2, 3, 4
"""Hosts: a cluster on the network, one on loopback, one of ``--workers``, and one that looks around."""

LOCAL_CLUSTER = """
import time
from psmds_dist.deploy.local import local_client

if __name__ == "__main__":
    with local_client(workers=2, threads=1):
        print("ready", flush=True)
        time.sleep(3600)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("shared")
    write_certificates(str(place / "tls"))
    (place / "local.py").write_text(LOCAL_CLUSTER)
    return place


@pytest.fixture(scope="module")
def network(can_have_networks, place):
    with Network(4) as network:
        _start(network, place, OPEN, ["--tls", place / "tls"], ["--interface", "eth0"])
        _start(network, place, LOOPBACK, [], [])
        network.start(LOCAL, [sys.executable, place / "local.py"], place / f"local{LOCAL}.log")
        for host, sign in ((OPEN, "Registered to"), (LOOPBACK, "Registered to"), (LOCAL, "ready")):
            wait_for(lambda host=host, sign=sign: sign in _logs(place, host), PATIENCE)
        yield network


def _start(network, place, host, both, listen):
    """Start a scheduler and a worker, which listens on the network of its scheduler without being told."""
    file = ["--scheduler-file", place / f"cluster{host}.json"]
    network.start(host, [PSMDS, "scheduler", *file, *both, *listen], place / f"scheduler{host}.log")
    network.start(host, [PSMDS, "worker", *file, *both, "--threads", "1"], place / f"worker{host}.log")


def _logs(place, host):
    return "".join(log.read_text() for log in place.glob(f"*{host}.log"))


def listening(network, host):
    """Addresses and ports that processes of a host listen on."""
    ss = network.run(host, ["ss", "-ltnH"])
    assert ss.returncode == 0, ss.stderr
    found = [line.split()[3].rpartition(":") for line in ss.stdout.splitlines()]
    return {(address, int(port)) for address, _, port in found}


def port_of(address):
    return int(address.rpartition(":")[2])


def test_an_open_cluster_has_three_ports(network, place):
    """One of the scheduler, and two of the worker: its own and that of the process that restarts it."""
    scheduler = port_of(json.loads((place / f"cluster{OPEN}.json").read_text())["address"])
    log = (place / f"worker{OPEN}.log").read_text()
    worker, nanny = (
        port_of(re.search(rf"Start {name} at: +'?(\S+?)'?$", log, re.M)[1]) for name in ("worker", "Nanny")
    )
    assert network.scan(STRANGER, network.address(OPEN)) == {scheduler, worker, nanny}
    inside = {address for address, port in listening(network, OPEN) if port not in {scheduler, worker, nanny}}
    assert inside == {"127.0.0.1"}  # dashboards


@pytest.mark.parametrize("host", [LOOPBACK, LOCAL])
def test_other_clusters_have_none(network, host):
    assert network.scan(STRANGER, network.address(host)) == set()
    ports = listening(network, host)
    assert len(ports) >= 5  # scheduler and worker, nanny, dashboards
    assert {address for address, _ in ports} == {"127.0.0.1"}


def test_nobody_can_read_a_key(network, place):
    """Neither in files, nor in what the system shows of processes."""
    key = (place / "tls" / "key.pem").read_text()
    secrets = [line for line in key.splitlines() if len(line) > 40]
    assert base64.b64decode(secrets[0])
    for name in ("key.pem", "certificate.pem"):
        assert stat.S_IMODE((place / "tls" / name).stat().st_mode) == 0o600
    shown = "".join(map(_shown, processes(network.namespace(OPEN))))
    assert str(place / "tls" / "key.pem") in shown
    others = [path.read_text() for path in place.iterdir() if path.is_file()]
    for secret in secrets:
        assert secret not in shown
        assert not any(secret in other for other in others)


def _shown(pid):
    shown = ""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        shown += "\n".join([*process.cmdline(), *process.environ().values()])
    return shown
