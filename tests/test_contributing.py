"""The files that CONTRIBUTING.md refers to exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = re.search(r"\| to find \| look in \|\n(.*?)\n\n", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)[1]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+\.py)`", TABLE))))
def test_the_file_exists(name):
    assert (ROOT / name).exists() or (ROOT / "psmds_dist" / name).exists()
