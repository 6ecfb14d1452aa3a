"""Files of cluster/ that other programs read, checked with those programs' own schemas."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.engine import run

pytestmark = pytest.mark.cluster

CLUSTER = Path(__file__).parents[2] / "cluster"
MANIFESTS = sorted((CLUSTER / "kubernetes").glob("*.yaml"))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CRDS = "operator/deployment/helm/dask-kubernetes-operator/crds"


def tool(name: str) -> str:
    """A program, or skip."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return found or pytest.skip(f"not installed: {name}")


def test_the_dockerfile_has_no_bad_habits() -> None:
    assert run(tool("hadolint"), "--failure-threshold=style", str(CLUSTER / "Dockerfile")) == ""


@pytest.mark.parametrize("profile", ["", "*"])
def test_compose_reads_its_file(profile: str) -> None:
    services = yaml.safe_load(
        run(tool("docker-compose"), f"--profile={profile}", "--file", str(CLUSTER / "compose.yaml"), "config")
    )
    assert not [name for name, service in services["services"].items() if "ports" in service]


def strict(schema: Any) -> Any:
    """A schema that also refuses unknown names."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(part) for name, part in schema.items()}
    closed = "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields")
    return {"additionalProperties": False, **found} if closed and "type" in schema else found


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, str], Any]:
    return dict(custom_resources())


def custom_resources() -> Iterator[tuple[tuple[str, str], Any]]:
    """Schemas of the resources of Dask's operator."""
    found = find_spec("dask_kubernetes")
    if found is None or found.origin is None:
        pytest.skip("not installed: dask-kubernetes")
    for path in Path(found.origin).parent.joinpath(CRDS).glob("*.yaml"):
        for definition in yaml.load_all(path.read_text(), LOADER):
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}
                yield (f"{spec['group']}/{version['name']}", spec["names"]["kind"]), schema


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_accepts_a_manifest(path: Path, known: dict[tuple[str, str], Any]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    jsonschema = pytest.importorskip("jsonschema")
    for manifest in yaml.safe_load_all(path.read_text()):
        key = manifest["apiVersion"], manifest["kind"]
        if key in known:
            jsonschema.validate(manifest, known[key])
        else:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def pods(resource: Any) -> Iterator[Any]:
    """Specifications of pods in a resource."""
    if isinstance(resource, dict):
        if "containers" in resource:
            yield resource
        for part in resource.values():
            yield from pods(part)


@pytest.mark.parametrize(
    "path", [path for path in MANIFESTS if "containers:" in path.read_text()], ids=lambda path: path.name
)
def test_every_pod_is_of_an_ordinary_user(path: Path) -> None:
    found = list(pods(yaml.safe_load(path.read_text())))
    assert len(found) >= 2
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["resources"]["limits"] == container["resources"]["requests"]


def described(name: str) -> Any:
    return yaml.safe_load((CLUSTER / "kubernetes" / name).read_text())


def found_in(resource: Any, name: str) -> Iterator[Any]:
    """Values of a key, anywhere in a resource."""
    parts = resource.values() if isinstance(resource, dict) else resource if isinstance(resource, list) else ()
    if isinstance(resource, dict) and name in resource:
        yield resource[name]
    for part in parts:
        yield from found_in(part, name)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_opens_the_port_of_the_scheduler_within_the_cluster_only(path: Path) -> None:
    """No more than the README tells."""
    resource = yaml.safe_load(path.read_text())
    for name in ("hostPort", "hostNetwork", "nodePort", "externalIPs", "hostPID", "hostIPC", "privileged"):
        assert list(found_in(resource, name)) == []
    ports = {"tcp-comm": 8786, "http-dashboard": 8787}
    for service in found_in(resource, "service"):
        assert service["type"] == "ClusterIP"
        assert {each["name"]: each["port"] for each in service["ports"]} == ports
    assert set(found_in(resource, "containerPort")) <= set(ports.values())
    text = (CLUSTER / "kubernetes" / "README.md").read_text()
    assert all(str(port) in text for port in ports.values())


@pytest.mark.parametrize("name", ["cluster.yaml", "job.yaml", "kubernetes.yaml"])
def test_the_policy_is_for_all_pods_of_a_cluster_and_lets_no_others_in(name: str) -> None:
    """Its label is the one that Dask's operator gives to pods."""
    operator = pytest.importorskip("dask_kubernetes.operator.controller.controller")
    cluster, policy = described(name)["metadata"]["name"], described("network.yaml")["spec"]
    chosen = policy["podSelector"]["matchLabels"]
    made = [
        operator.build_scheduler_deployment_spec(cluster, {}, {}, {})["spec"]["template"],
        operator.build_worker_deployment_spec("group", "own", cluster, "1", {"containers": []}, {}, {})["spec"][
            "template"
        ],
        operator.build_job_pod_spec("job", cluster, "own", {"containers": []}, {}, {}),
    ]
    assert all(chosen.items() <= pod["metadata"]["labels"].items() for pod in made)
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": chosen}}]}]
