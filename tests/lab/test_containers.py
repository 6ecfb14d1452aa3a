"""The image and the containers of cluster/, built and run by a Docker engine of the tests' own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.engine import Engine, engine, missing, run, which

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("engine")]

ROOT = Path(__file__).parents[2]
DOCKERFILE, COMPOSE = ROOT / "cluster" / "Dockerfile", ROOT / "cluster" / "compose.yaml"

DIGITS = "import numpy, sklearn.datasets as s; numpy.save('/data/digits.npy', s.load_digits().data)"
DIGEST = (
    "import hashlib, psmds_dist; print(hashlib.sha256(psmds_dist.read_result('{}').embedding.tobytes()).hexdigest())"
)
LISTENERS = "print(*(line.split()[1] for line in open('/proc/net/tcp') if line.split()[3] == '0A'))"


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if reason := missing():
        pytest.skip(reason)
    with engine(tmp_path_factory.mktemp("docker") / "engine") as one:
        yield one


@pytest.fixture(scope="module")
def image(docker: Engine) -> str:
    """The image, with this machine's Python as its base."""
    docker.import_base("base")
    with docker.package_index(docker.folder / "wheels", ROOT / "cluster" / "requirements.txt") as index:
        arguments = ("--build-arg", "BASE=base", "--build-arg", f"PIP_INDEX_URL={index}")
        docker.docker("build", "--network=host", "--file", str(DOCKERFILE), "--tag", "psmds", *arguments, str(ROOT))
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


def test_nothing_is_published(docker: Engine, containers: Containers) -> None:
    assert docker.docker("ps", "--format", "{{.Ports}}").strip() == ""
    assert docker.docker("network", "inspect", "psmds_cluster", "--format", "{{.Internal}}").strip() == "true"


def test_the_key_of_the_cluster_is_private(docker: Engine, containers: Containers) -> None:
    assert containers("exec", "--no-TTY", "scheduler", "stat", "--format=%a %u", "/tls/key.pem").strip() == "600 1000"
    scheduler = docker.docker("ps", "--quiet", "--filter", "name=scheduler").strip()
    assert "PRIVATE KEY" not in docker.docker("inspect", scheduler)
