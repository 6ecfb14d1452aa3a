"""The files that CONTRIBUTING.md refers to exist, and its map is whole."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
TABLE = re.search(r"\| to find \| look in \|\n(.*?)\n\n", TEXT, re.DOTALL)[1]
MAP = re.search(r"## Map of the imports\n.*?```\n(.*?)```", TEXT, re.DOTALL)[1]
LAYERS = [path.parent for path in (ROOT / "psmds_dist").glob("*/__init__.py")]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+\.py)`", TABLE))))
def test_the_file_exists(name):
    assert (ROOT / name).exists() or (ROOT / "psmds_dist" / name).exists()


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_the_map_names_every_module(layer):
    assert f"{layer.name}/" in MAP
    modules = {path.stem for path in layer.glob("[a-z]*.py")}
    assert modules <= set(re.findall(r"\w+", MAP))
