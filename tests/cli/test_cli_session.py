"""Targets, checkpoints and clusters of a run."""

import os
import socket
from pathlib import Path

import dask
import distributed  # noqa: F401  (before its settings are changed)
import numpy as np
import pytest

from psmds_dist import read_result
from psmds_dist.data.store import read_result as read_arrays
from psmds_dist.solver.checkpoint import DirectoryCheckpoint, DirectoryStream
from tests.cli.commands import refused, run


def test_targets_are_not_overwritten_unasked(place):
    run("distances", "points.npy", "d.zarr", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 1, "-q")
    assert "d.zarr already holds a finished store of another source; give another path, or" in refused(
        "distances", "points.npy", "d.zarr", "--metric", "cityblock"
    )
    assert "already holds a result" in refused("fit", "d.zarr", "m.zarr")
    assert "is given twice" in refused("fit", "d.zarr", "d.zarr", "--overwrite")
    assert "cannot be written because it contains" in refused("distances", "points.npy", place, "--overwrite")
    Path("other").mkdir()
    Path("other/file").touch()
    assert "is not a dissimilarity store; it will not be overwritten" in refused(
        "distances", "points.npy", "other", "--overwrite"
    )
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 2, "-q", "--overwrite")
    assert len(read_result("m.zarr").history) == 2
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_a_scheduler_that_does_not_answer(place, capfd):
    run("distances", "points.npy", "d.zarr", "-q")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        sentence = refused("fit", "d.zarr", "m.zarr", "--cluster", address)
    assert f"Error: no Dask scheduler answers at {address}" in sentence
    assert "Traceback" not in capfd.readouterr().err  # Dask writes to the stream itself


@pytest.mark.parametrize("command", [("fit",), ("landmarks", "fit")])
def test_a_run_killed_before_its_checkpoint_was_removed_can_be_resumed(place, monkeypatch, command):
    run("distances", "points.npy", "d.zarr", "-q")
    sizes = ("-S", 30) if "landmarks" in command else ("--max-epochs", 4)
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryCheckpoint, "remove", lambda self: None)
        patch.setattr(DirectoryStream, "should_save", True)
        run(*command, "d.zarr", "m.zarr", *sizes, "-q")
    assert "unfinished run" in refused(*command, "d.zarr", "m.zarr", *sizes)
    before = read_arrays("m.zarr")[0]
    assert "resuming from" in run(*command, "d.zarr", "m.zarr", *sizes, "--resume")
    np.testing.assert_array_equal(read_arrays("m.zarr")[0]["embedding"], before["embedding"])
    assert not Path("m.zarr.checkpoint").exists()


@pytest.mark.parametrize("command", [("fit",), ("landmarks", "fit")])
def test_resuming_a_finished_run_changes_nothing(place, command):
    run("distances", "points.npy", "d.zarr", "-q")
    sizes = ("-S", 30) if "landmarks" in command else ("--max-epochs", 4)
    fit = (*command, "d.zarr", "m.zarr", *sizes, "--resume")
    assert "no checkpoint found" in run(*fit)
    before = contents("m.zarr")
    assert run(*fit).splitlines()[-1].startswith("m.zarr is finished")
    assert run(*fit, "-q") == ""
    said = refused(*fit, "-L", 3)
    assert "m.zarr is the finished map of another run (configuration.n_components was 2, is 3)" in said
    np.save("others.npy", 2 * np.load("points.npy"))
    run("distances", "others.npy", "d.zarr", "--overwrite", "-q")
    assert "input.content was" in refused(*fit)
    assert "already holds a result" in refused(*fit[:-1])
    assert contents("m.zarr") == before
    run(*fit, "--overwrite", "-q")
    assert contents("m.zarr") != before


def contents(folder):
    """Every file by its name, with its bytes and time."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
