"""The experiments of the paper: what the quick ones find."""

import base64
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

PAPER = Path(__file__).parent.parent / "examples" / "paper"
DEFAULT, AS_IN_PAPER = "pattern search, default", "pattern search as in the paper"
FLAT = ["swiss roll 500", "S-curve 500", "toroidal helix 500"]
SETS = [
    *FLAT, "clusters 500", "swiss roll 500 noise 0.3", "toroidal helix 500 noise 0.07", "clusters 500 noise 0.4",
    "swiss roll with a hole 500", "digits of scikit-learn 300",
]  # fmt: skip

pytestmark = pytest.mark.wide


def command(folder):
    arguments = [sys.executable, PAPER, "--quick", "--output", folder]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=1500, check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("paper")
    command(place)
    return place


@pytest.fixture(scope="module")
def cells(folder):
    return json.loads((folder / "cells.json").read_text())


def median(cells, name, method, measure):
    return statistics.median(cell[measure] for key, cell in cells.items() if key.startswith(f"{name} | {method} | "))


@pytest.mark.parametrize("name", SETS)
def test_the_default_has_no_more_stress_than_smacof(cells, name):
    assert median(cells, name, DEFAULT, "stress") <= 1.001 * median(cells, name, "SMACOF", "stress")


@pytest.mark.parametrize("name", FLAT)
def test_the_default_is_no_further_from_the_truth_than_smacof(cells, name):
    ours = median(cells, name, DEFAULT, "procrustes")
    assert ours < 0.05
    assert ours <= 1.001 * median(cells, name, "SMACOF", "procrustes")


def test_digits_are_classified_as_well_as_by_their_pixels(cells):
    name = "digits of scikit-learn 300"
    assert median(cells, name, DEFAULT, "f1") >= median(cells, name, "original pixels", "f1") - 0.01
    assert median(cells, name, DEFAULT, "f1") >= median(cells, name, "SMACOF", "f1") - 0.005


def test_results_have_all_sections_and_pictures(folder):
    text = (folder / "RESULTS.md").read_text()
    assert [line[3] for line in text.splitlines() if line.startswith("## ")] == list("123456")
    for name in ("manifolds", "convergence", "radius", "holes"):
        assert f"({name}.png)" in text
        assert (folder / f"{name}.png").stat().st_size > 5_000


def test_the_page_holds_its_tables_and_pictures(folder):
    html = (folder / "RESULTS.html").read_text()
    pictures = re.findall(r'<img alt="[^"]*" src="([^"]*)"', html)
    text = (folder / "RESULTS.md").read_text()
    assert len(pictures) == text.count("](") > 0
    assert (
        base64.b64decode(pictures[0].removeprefix("data:image/png;base64,")) == (folder / "manifolds.png").read_bytes()
    )
    assert html.count("<table>") == text.count("\n| ---")


def test_one_experiment_is_renewed_among_the_others(folder):
    before = (folder / "RESULTS.md").read_text()
    (folder / "sections" / "noise.md").unlink()
    arguments = [sys.executable, PAPER, "--quick", "--output", folder, "--only", "noise"]
    subprocess.run(arguments, capture_output=True, timeout=300, check=True)
    assert (folder / "RESULTS.md").read_text() == before


def test_a_second_command_repeats_nothing(folder):
    before = (folder / "RESULTS.md").read_text()
    told = command(folder).splitlines()
    assert len(told) == 1
    assert (folder / "RESULTS.md").read_text() == before
