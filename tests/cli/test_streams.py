"""Output that cannot be written never costs a result."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import open_rows, read_result
from tests.cli.commands import run
from tests.marks import wide_but_one

PSMDS = Path(sys.executable).parent / "psmds"
LOST = ["<&- >&- 2>&-", ">/dev/full 2>&1"]
ALSO_LOST = [
    "| true",
    "2>&-",
    "<&-",
    ">&-",
    "<&- >&-",
    "<&- 2>&-",
    ">&- 2>&-",
    ">/dev/full",
    "2>/dev/full",
    "2>&1 | true",
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with points and their distances, and in it."""
    monkeypatch.chdir(tmp_path)
    points = np.random.default_rng(0).normal(size=(60, 3))
    np.save("points.npy", points)
    np.save("matrix.npy", squareform(pdist(points)))
    return tmp_path


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The map that a command makes when all it says can be written."""
    folder = tmp_path_factory.mktemp("expected")
    points = np.random.default_rng(0).normal(size=(60, 3))
    np.save(folder / "matrix.npy", squareform(pdist(points)))
    subprocess.run([PSMDS, "fit", "matrix.npy", "map.zarr"], cwd=folder, check=True, capture_output=True)
    return read_result(folder / "map.zarr").embedding


def psmds(command, streams=""):
    """Exit code of a command and what it says on standard error, its streams as a shell leaves them."""
    line = f"'{PSMDS}' {command} {streams}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("streams", [LOST[0], *wide_but_one(*LOST[1:], *ALSO_LOST)])
@pytest.mark.wide
def test_a_map_is_written_whatever_becomes_of_words(place, expected, streams):
    code, said = psmds("fit matrix.npy map.zarr --plot map.png", streams)
    assert code == 0, said
    assert np.array_equal(read_result("map.zarr").embedding, expected)
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir()) == ["map.png", "map.zarr", "matrix.npy", "points.npy"]


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", ">&-", ">/dev/full 2>&1", "2>&1 | true"])
def test_workers_find_valid_streams_where_a_command_has_none(place, expected, streams):
    code, said = psmds("fit matrix.npy map.zarr --workers 2", streams)
    assert code == 0, said
    assert np.array_equal(read_result("map.zarr").embedding, expected)


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("streams", [">/dev/full", "<&- >&- 2>&-"])
def test_every_command_that_writes_something_has_written_it(place, streams):
    for command in (
        "ingest matrix.npy store.zarr",
        "distances points.npy distances.zarr",
        "landmarks fit points.npy land.zarr --metric euclidean -S 30",
        "landmarks panel points.npy panel.zarr --metric euclidean -S 30",
        "landmarks transform land.zarr points.npy new.csv",
        "export land.zarr land.csv",
        "certificates tls",
    ):
        code, said = psmds(command, streams)
        assert code == 0, (command, said)
    assert np.array_equal(open_rows("store.zarr").array[:], np.load("matrix.npy").astype("float32"))
    assert read_result("land.zarr").embedding.shape == (60, 2)
    assert {len(Path(name).read_text().splitlines()) for name in ("new.csv", "land.csv")} == {61}
    assert sorted(os.listdir("tls")) == ["certificate.pem", "key.pem"]


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("streams", wide_but_one(">&-", ">/dev/full"))
def test_an_answer_that_cannot_be_written_is_a_failure(place, streams):
    assert psmds("fit matrix.npy map.zarr -q")[0] == 0
    for command in ("--version", "fit --help", "plan -N 1000", "info map.zarr", "quality map.zarr"):
        code, said = psmds(command, streams)
        assert code == 1
        assert said.startswith("Error: ")


def test_a_reader_that_has_seen_enough_is_told_nothing(place):
    run("fit", "matrix.npy", "map.zarr", "-q", "--max-epochs", 3)
    assert psmds("info map.zarr", "| true") == (1, "")


def test_a_run_says_that_its_words_are_lost(place):
    code, said = psmds("fit matrix.npy map.zarr", ">/dev/full")
    assert (code, said) == (
        0,
        "Note: standard output cannot be written (No space left on device); the result is not affected.\n",
    )


LOSES = """
import sys
from psmds_dist.utils.streams import discard_output, open_standard_streams
open_standard_streams()
sys.stdout.write("words")
discard_output()
"""


def test_words_that_a_closed_stream_did_not_take_are_dropped_in_silence():
    line = f"'{sys.executable}' -c '{LOSES}' >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stderr == ""
