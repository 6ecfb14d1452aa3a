"""The image and the containers of cluster/, built and run by an engine of the tests' own, and who reaches them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import wait_for
from tests.lab.engine import Engine, Unavailable, engine, run, which
from tests.lab.netns import SCAN, Network
from tests.lab.netns import can_have_networks as can_have_networks

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
DOCKERFILE, COMPOSE = ROOT / "cluster" / "Dockerfile", ROOT / "cluster" / "compose.yaml"

DIGITS = "import numpy, sklearn.datasets as s; numpy.save('/data/digits.npy', s.load_digits().data)"
DIGEST = (
    "import hashlib, psmds_dist; print(hashlib.sha256(psmds_dist.read_result('{}').embedding.tobytes()).hexdigest())"
)
LISTENERS = "print(*(line.split()[1] for line in open('/proc/net/tcp') if line.split()[3] == '0A'))"

ENGINE, STRANGER = 1, 2
"""Hosts."""


@pytest.fixture(scope="module")
def network(can_have_networks: None) -> Iterator[Network]:
    with Network(2) as network:
        yield network


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[Engine]:
    try:
        with engine(tmp_path_factory.mktemp("docker") / "engine", network.namespace(ENGINE)) as one:
            yield one
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def image(docker: Engine) -> str:
    """The image, with this machine's Python as its base."""
    docker.import_base("base")
    try:
        with docker.package_index(docker.folder / "wheels", ROOT / "cluster" / "requirements.txt") as index:
            arguments = ("--build-arg", "BASE=base", "--build-arg", f"PIP_INDEX_URL={index}")
            docker.docker("build", "--network=host", "--file", str(DOCKERFILE), "--tag", "psmds", *arguments, str(ROOT))
    except Unavailable as error:
        pytest.skip(str(error))
    return "psmds"


class Containers:
    """The services of compose.yaml."""

    def __init__(self, docker: Engine) -> None:
        self.docker = docker
        self.program = which("docker-compose") or str(Path(sys.executable).with_name("docker-compose"))
        if not Path(self.program).exists():
            pytest.skip("not installed: docker-compose")

    def __call__(self, *command: str) -> str:
        return run(self.program, "--file", str(COMPOSE), *command, env=self.docker.environment)

    def psmds(self, *command: str) -> str:
        """Run a command of psmds on the cluster."""
        return self("run", "--rm", "--no-TTY", "psmds", *command)

    def python(self, code: str) -> str:
        """Run Python beside the cluster."""
        return self("run", "--rm", "--no-TTY", "--entrypoint=python", "psmds", "-c", code)


@pytest.fixture(scope="module")
def containers(docker: Engine, image: str) -> Iterator[Containers]:
    compose = Containers(docker)
    try:
        compose("up", "--detach", "--wait", "--no-build")
        wait_for(lambda: compose("logs", "--no-color", "worker").count("Registered to") >= 2, 120)
        yield compose
    finally:
        print(compose("logs", "--no-color")[-3000:])
        compose("--profile=*", "down", "--volumes", "--timeout=20")


def test_a_map_of_containers_has_the_bits_of_one_process(docker: Engine, containers: Containers) -> None:
    containers.python(DIGITS)
    containers.psmds("distances", "/data/digits.npy", "/data/digits.zarr")
    said = containers.psmds("fit", "/data/digits.zarr", "/data/map.zarr", "--memory-limit=200MiB")
    assert re.search(r"1,797 points, rows .*2 workers", said), said
    docker.docker("run", "--rm", "--volume=psmds_data:/data", "psmds", "fit", "/data/digits.zarr", "/data/alone.zarr")
    digests = [containers.python(DIGEST.format(f"/data/{name}.zarr")).split()[-1] for name in ("map", "alone")]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("service", ["scheduler", "worker"])
def test_containers_are_closed(containers: Containers, service: str) -> None:
    """An ordinary user; listeners on loopback and on the network of the containers, never on all."""
    assert containers("exec", "--no-TTY", service, "id", "-u").strip() == "1000"
    listeners = containers("exec", "--no-TTY", service, "python", "-c", LISTENERS).split()
    assert listeners
    assert not [each for each in listeners if each.startswith("00000000:")]
    assert "0A" not in containers("exec", "--no-TTY", service, "python", "-c", LISTENERS.replace("tcp'", "tcp6'"))


def test_only_containers_of_the_cluster_reach_it(docker: Engine, network: Network, containers: Containers) -> None:
    """Nothing is published, and neither another network of the engine nor another host finds a way in."""
    shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    scan = ("run", "--rm", "--entrypoint=python", "psmds", "-c", SCAN)
    within = docker.docker("network", "inspect", "psmds_cluster", "--format", "{{(index .IPAM.Config 0).Subnet}}")
    network.run(STRANGER, ["ip", "route", "add", within.strip(), "via", network.address(ENGINE)]).check_returncode()
    assert network.scan(STRANGER, network.address(ENGINE)) == set()
    for service, count in {"scheduler": 1, "worker": 2}.items():
        container = docker.docker("ps", "--quiet", "--filter", f"name={service}").split()[0]
        address = docker.docker("inspect", "--format", shown, container).strip()
        inside = containers("run", "--rm", "--no-TTY", "--entrypoint=python", "psmds", "-c", SCAN, address)
        assert len(re.findall(r"(?<!\S)\d+(?!\S)", inside)) == count, inside
        assert docker.docker(*scan, address).split() == []
        assert network.scan(STRANGER, address) == set()


def test_the_key_of_the_cluster_is_private(docker: Engine, containers: Containers) -> None:
    assert containers("exec", "--no-TTY", "scheduler", "stat", "--format=%a %u", "/tls/key.pem").strip() == "600 1000"
    scheduler = docker.docker("ps", "--quiet", "--filter", "name=scheduler").strip()
    assert "PRIVATE KEY" not in docker.docker("inspect", scheduler)
