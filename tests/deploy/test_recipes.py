"""The files in cluster/: their commands exist, what they name is there, and the image has what this package needs."""

import re
import shlex
import tomllib
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from psmds_dist.cli.app import main
from psmds_dist.deploy.ssh import OPTIONS, parse_hosts

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
PAGES = sorted(CLUSTER.rglob("README.md"))
MANIFESTS = [
    CLUSTER / "compose.yaml",
    *(CLUSTER / "kubernetes" / f"{name}.yaml" for name in ("cluster", "job", "kubernetes")),
]


def commands(text):
    """Commands of psmds in a page or a manifest, from the name of the command on."""
    quoted = re.findall(r"`psmds ([a-z][^`]*)`", text) + re.findall(
        r"^(?:\S.*-- )?psmds ([a-z].*)$", text, re.MULTILINE
    )
    return [command for command in quoted if "..." not in command and " " in command]


def arguments(node):
    """Arguments of the containers in a manifest or a file of compose."""
    if isinstance(node, dict):
        yield from (node[name] for name in ("args", "command") if isinstance(node.get(name), list))
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from arguments(part)


def parse(command):
    """Parse a command line without running it."""
    words = shlex.split(command, comments=True) if isinstance(command, str) else command
    with click.Context(main) as context:
        found = main.get_command(context, words[0])
        assert found is not None, words
        with suppress_missing_files():
            found.make_context(words[0], words[1:], parent=context)


@contextmanager
def suppress_missing_files():
    """Some commands look for their input before they start."""
    try:
        yield
    except click.BadParameter as error:
        if "does not exist" not in error.message:
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_commands_on_a_page_exist(page):
    found = commands(page.read_text())
    assert found
    for command in found:
        parse(command.rstrip(" &"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_commands_of_containers_exist(path):
    found = [
        words for words in arguments(yaml.safe_load(path.read_text())) if words[0] in ("scheduler", "worker", "fit")
    ]
    assert {words[0] for words in found} >= {"scheduler", "worker"}
    for words in found:
        parse([re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in words])  # defaults of compose


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\((?!https)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_settings_on_the_page_exist():
    (block,) = re.findall(r"```yaml\n(.*?)```", (CLUSTER / "README.md").read_text(), re.DOTALL)
    known = yaml.safe_load((ROOT / "psmds_dist" / "deploy" / "psmds.yaml").read_text())
    assert yaml.safe_load(block)["psmds"].keys() <= known["psmds"].keys()


def test_the_image_has_versions_that_this_package_supports():
    pins = dict(line.split("==") for line in (CLUSTER / "requirements.txt").read_text().split())
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in metadata["dependencies"]:
        needed = Requirement(text)
        assert pins[canonicalize_name(needed.name)] in needed.specifier, text
    assert "prometheus-client" in pins


def test_the_list_of_hosts_is_read():
    text = (CLUSTER / "ssh" / "hosts.txt").read_text()
    hosts = parse_hosts(text, "hosts.txt")
    assert hosts.names == ["node-0", "node-0", "node-1", "node-2"]
    assert hosts.options == {"interface": "ib0", "threads": "16"}
    optional = set(re.findall(r"^# (\w+) =", text, re.MULTILINE))
    assert {*hosts.options, *optional} == set(OPTIONS)
