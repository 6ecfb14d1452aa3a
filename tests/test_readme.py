"""The commands, the Python code and the estimates in README.md, as they stand."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy.spatial.distance import cdist, pdist, squareform

from psmds_dist import PatternSearchMDS
from psmds_dist.cli.app import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
INLINE = re.findall(r"`(psmds (?:fit|distances|quality|plan|plot) [^`]*(?:zarr|[0-9])[^`]*)`", README)
N, S = 1040, 40  # more points than the 1,000 landmarks of the examples
TABLE = 200
"""Rows of the table with names."""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def call(command):
    """Run a line of README in this process."""
    program, *arguments = shlex.split(command, comments=True)
    assert program == "psmds"
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, f"{command}\n{done.output}"
    return done.output


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The files and variables that README takes for granted, in a directory of their own."""
    folder = tmp_path_factory.mktemp("readme")
    points = np.random.default_rng(0).random((N, 4))
    new_points = points[:5] + 0.1
    rows = list(range(0, N, N // S))
    names = [f"sample {k}" for k in range(N)]
    distances = squareform(pdist(points))
    panel, new_panel = distances[:, rows], cdist(new_points, points[rows])
    for name, array in {"matrix": distances, "points": points, "new_points": new_points, "panel": panel}.items():
        np.save(folder / f"{name}.npy", array)
    zarr.save_array(folder / "unifrac.zarr", distances)
    (folder / "names.txt").write_text("\n".join(names))
    (folder / "rows.txt").write_text("\n".join(map(str, rows)))
    rows_with_names = zip(names, distances[:TABLE, :TABLE].tolist(), strict=False)
    table = [["", *names[:TABLE]], *([name, *map(str, row)] for name, row in rows_with_names)]
    (folder / "matrix.tsv").write_text("\n".join("\t".join(line) for line in table))
    variables = {
        "distances": distances, "points": points, "new_points": new_points,
        "panel": panel, "new_panel": new_panel, "rows": rows,
    }  # fmt: skip
    return folder, variables


@pytest.mark.slow
def test_the_commands(inputs, client, monkeypatch):
    folder, _ = inputs
    monkeypatch.chdir(folder)
    client.write_scheduler_file("scheduler.json")
    for command in "".join(blocks("bash")).splitlines() + INLINE:
        call(command)
    assert Path("map.png").stat().st_size > 0
    assert Path("map.csv").read_text().splitlines()[0] == "id,x1,x2,point_stress"
    assert len(Path("new.csv").read_text().splitlines()) == 6


@pytest.mark.slow
def test_the_python_code(inputs, monkeypatch):
    folder, variables = inputs
    monkeypatch.chdir(folder)
    exec("\n".join(code for code in blocks("python") if "pandas" not in code), scope := dict(variables))
    assert scope["xy"].shape == (N, 2)
    assert scope["mds"].transform(variables["new_panel"]).shape == (5, 2)
    assert PatternSearchMDS(n_init=10, max_epochs=1).fit("unifrac.zarr").embedding_.shape == (N, 2)


def test_the_table_with_names(inputs, monkeypatch):
    folder, variables = inputs
    monkeypatch.chdir(folder)
    (code,) = [code for code in blocks("python") if "pandas" in code]
    exec(code, scope := {"pandas": pytest.importorskip("pandas")})
    np.testing.assert_array_equal(scope["frame"].to_numpy(), variables["distances"][:TABLE, :TABLE])


ESTIMATES = re.findall(r"^\| `(--points [^`]*)` \| (.*) \|$", README, re.MULTILINE)


@pytest.mark.parametrize(("options", "cells"), ESTIMATES)
def test_the_estimates(options, cells):
    (common,) = re.findall(r"`psmds plan` with `(.*?)`", README)
    rows, memory, passes, read = cells.split(" | ")
    printed = call(f"psmds plan {options} {common}")
    assert re.search(rf"^rows +{rows}[ ,]", printed, re.MULTILINE)
    assert re.search(rf" {memory} ", printed)
    assert re.search(rf"^passes +{passes} ", printed, re.MULTILINE)
    assert re.search(rf" {read} read,", printed)


def test_the_picture_is_small():
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", README)
    assert 0 < (ROOT / picture).stat().st_size < 100_000


def test_readme_is_short():
    assert len(ESTIMATES) == 4
    assert len(README.splitlines()) < 180
