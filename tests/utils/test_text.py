"""Names that others chose are shown and exported so that neither a terminal nor a spreadsheet carries them out."""

import csv
import logging
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

from psmds_dist.api.results import write_coordinates
from psmds_dist.cli.app import main
from psmds_dist.data.ids import read_ids
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.utils.text import as_cell, escaped, escaped_lines, of_cell

CONTROLS = [
    "\x00",
    "\x07",
    "\b",
    "\t",
    "\r",
    "\n",
    "\x1b",
    "\x7f",
    "\x9b",
    "\u061c",
    "\u200f",
    "\u2028",
    "\u202e",
    "\u2066",
]
HARMLESS = [
    "a b",
    "Zürich",
    "日本",
    "na\u0301me",
    "نمی\u200cخواهم",
    "\U0001f469\u200d\U0001f52c",
    "a\\b",
    "50\xa0%",
    "",
]
FORMULAS = ["=cmd|' /C calc'!A0", "+cmd", "-cmd", "@SUM(A1)", "=1+1", "-1+1", "-1_0", "\uff1dA1", "'=x", "''-x"]
NUMBERS = ["-1", "+3", "-1.5e-3", "-.5", "+2."]

NAMES = ["\x1b[31mred\x1b[0m", "a\u202eb", "=cmd|' /C calc'!A0", "@x", "-1", "+3", "-x", "0101", "NA", "1e5"]
N = 30
NAMES += [f"p{k}" for k in range(N - len(NAMES))]


@pytest.fixture(scope="module")
def matrix():
    return squareform(pdist(np.random.default_rng(1).random((N, 3))))


@pytest.fixture
def stored(tmp_path, matrix):
    build(ArrayRows(matrix), tmp_path / "d.zarr", InProcessExecutor(), ids=NAMES)
    return tmp_path / "d.zarr"


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("control", CONTROLS)
def test_control_characters_are_escaped_as_in_repr(control):
    assert escaped(f"a{control}b") == f"a{repr(control)[1:-1]}b"
    assert escaped_lines(f"one\ntwo{control}").startswith("one\ntwo")
    assert as_cell(f"{control}=x") == f"{repr(control)[1:-1]}=x"


@pytest.mark.parametrize("name", HARMLESS + NUMBERS)
def test_other_names_are_left_as_they_are(name):
    assert escaped(name) == as_cell(name) == of_cell(name) == name


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_get_an_apostrophe_that_is_taken_off_again(name):
    assert as_cell(name) == f"'{name}"
    assert of_cell(as_cell(name)) == name


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_every_name_without_control_characters_comes_back(name):
    assert of_cell(as_cell(name)) == name


@given(st.text())
def test_no_cell_begins_a_formula_or_holds_a_control_character(name):
    cell = as_cell(name)
    cell.encode()
    assert not any(control in cell for control in CONTROLS)
    assert not cell.startswith(("=", "@"))
    if cell.startswith(("+", "-")):
        float(cell)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_an_exported_map_is_safe_and_its_ids_are_read_back(tmp_path, stored, ending):
    assert run("fit", stored, tmp_path / "map.zarr").exit_code == 0
    assert run("export", tmp_path / "map.zarr", tmp_path / f"map.{ending}").exit_code == 0
    with open(tmp_path / f"map.{ending}", newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file, delimiter="," if ending == "csv" else "\t")]
    assert cells[1:8] == [r"\x1b[31mred\x1b[0m", r"a\u202eb", "'=cmd|' /C calc'!A0", "'@x", "-1", "+3", "'-x"]
    assert read_ids(tmp_path / f"map.{ending}", N) == [*cells[1:3], *NAMES[2:]]


def test_names_with_line_separators_are_not_cut(tmp_path):
    names = ["a\u2028b", "c\x0bd", "e\x85f"]
    (tmp_path / "ids.txt").write_text("\n".join(names), encoding="utf-8")
    (tmp_path / "ids.tsv").write_text("\n".join(f"{name}\t1" for name in names), encoding="utf-8")
    for file in ("ids.txt", "ids.tsv"):
        assert read_ids(tmp_path / file, 3) == names


def unsafe(output):
    return [control for control in CONTROLS if control != "\n" and control in output]


def test_no_command_prints_control_characters(tmp_path, stored, matrix):
    (tmp_path / "ids.txt").write_text("\n".join(NAMES), encoding="utf-8")
    wrong = matrix.copy()
    wrong[0, 1] = np.nan
    np.save(tmp_path / "wrong.npy", wrong)
    place = tmp_path / "map\x1b[31m\u202e.zarr"
    ended = [
        run("fit", stored, place),
        run("fit", stored, place),  # exists
        run("quality", place, "--worst", N),
        run("info", place),
        run("info", place, "--json"),
        run("export", place, tmp_path / "out\x1b.csv"),
        run("landmarks", "fit", stored, tmp_path / "lm.zarr", "-S", N),
        run("landmarks", "list", tmp_path / "lm.zarr", "--ids"),
        run("fit", tmp_path / "wrong.npy", tmp_path / "none.zarr", "--ids", tmp_path / "ids.txt"),
        run("fit", "nothing\x1b[31m.npy", tmp_path / "none.zarr"),
        run("quality", "nothing\x1b[31m.zarr"),
        run("comm\x1band"),
    ]
    assert [one.exit_code for one in ended] == [0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2]
    for one in ended:
        assert not unsafe(one.output), one.output
    assert r"\x1b[31mred\x1b[0m" in ended[2].output
    assert r"\x1b[31mred\x1b[0m" in ended[7].output.splitlines()
    assert r"map\x1b[31m\u202e.zarr already holds a result" in ended[1].output


@pytest.mark.slow
@pytest.mark.wide
def test_a_real_terminal_gets_no_escape_sequence_of_a_name(tmp_path, stored):
    import os
    import pty

    assert run("fit", stored, tmp_path / "map.zarr").exit_code == 0
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "psmds_dist", "quality", str(tmp_path / "map.zarr"), "--worst", str(N)]
    ended = subprocess.run(command, stdout=theirs, stderr=theirs, timeout=300)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert ended.returncode == 0
    assert r"\x1b[31mred\x1b[0m" in shown
    assert "\x1b[31m" not in shown


def test_ingest_tells_of_such_names_once(tmp_path, matrix, caplog):
    np.save(tmp_path / "d.npy", matrix)
    (tmp_path / "ids.txt").write_text("\n".join(NAMES), encoding="utf-8")
    for command in (("ingest",), ("fit",), ("landmarks", "fit"), ("landmarks", "panel")):
        how = ("--ids", tmp_path / "ids.txt", *(("-S", 20) if len(command) > 1 else ()))
        ended = run(*command, tmp_path / "d.npy", tmp_path / "-".join(command), *how)
        assert ended.exit_code == 0, ended.output
        notes = [line for line in ended.stderr.splitlines() if line.startswith("Note: ") and " ids " in line]
        assert notes == [
            r"Note: 2 ids contain control characters, the first '\x1b[31mred\x1b[0m' in row 0: they are shown and "
            r"exported escaped, such as \x1b.",
            """Note: 3 ids look like formulas, the first "=cmd|' /C calc'!A0" in row 2: they are exported """
            "to .csv and .tsv with a leading apostrophe.",
        ]
        assert not unsafe(ended.output)
    quiet = run("ingest", tmp_path / "d.npy", tmp_path / "quiet", "--ids", tmp_path / "ids.txt", "--quiet")
    assert quiet.output == ""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="psmds_dist"):
        build(ArrayRows(matrix), tmp_path / "python.zarr", InProcessExecutor(), ids=NAMES)
        assert len(caplog.records) == 2
        caplog.clear()
        build(ArrayRows(matrix), tmp_path / "plain.zarr", InProcessExecutor(), ids=[f"p{k}" for k in range(N)])
    assert not caplog.records


def test_row_numbers_are_exported_as_before(tmp_path):
    write_coordinates(tmp_path / "x.csv", np.array([[-1.5, 2.0]]))
    assert (tmp_path / "x.csv").read_text() == "id,x1,x2\n0,-1.5,2.0\n"
