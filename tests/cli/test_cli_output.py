"""What commands print, and when they print nothing."""

import os
import pty
import re
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

from psmds_dist import read_result
from psmds_dist.cli.app import main
from tests.cli.commands import PSMDS, run


def test_nothing_is_said_when_quiet(place):
    assert run("distances", "points.npy", "d.zarr", "-q") == ""
    assert run("fit", "d.zarr", "m.zarr", "--quiet", "--max-epochs", 2) == ""
    assert read_result("m.zarr").attributes["stop_reason"] == "max_epochs"


def terminal(command):
    """Run a command on a pseudo-terminal; return its exit code and all it showed."""
    pid, descriptor = pty.fork()
    if pid == 0:  # the child
        os.environ.update(TERM="xterm", COLUMNS="160")
        os.execv(command[0], command)
    shown = b""
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(descriptor)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), plain


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of forkpty")
@pytest.mark.wide
def test_a_line_moves_on_a_terminal_only(place):
    run("distances", "points.npy", "d.zarr", "-q")
    slow = ["--eps", "0", "--radius", "1e-3", "--max-epochs", "1500"]
    code, shown = terminal([PSMDS, "fit", "d.zarr", "m.zarr", *slow])
    assert code == 0
    assert re.search(r"epoch \d+   radius 0\.001 \(ends at [\d.e-]+\)   rms error [\d.]+   \d+% moved", shown)
    assert re.search(r"about [\d.]+ (s|min|h) left", shown) or re.search(r"about \d+ h \d\d min left", shown)
    assert "1500 epochs in" in shown
    code, shown = terminal([PSMDS, "fit", "d.zarr", "m2.zarr", "--quiet", *slow])
    assert (code, shown) == (0, "")
    process = subprocess.run([PSMDS, "fit", "d.zarr", "m3.zarr", *slow], capture_output=True, text=True)
    assert process.stderr == ""
    assert "\r" not in process.stdout
    assert len(process.stdout.splitlines()) == 6


def test_rounded_zeros_and_hollow_similarities_are_noted_by_every_command_that_uses_them(place):
    matrix = np.load("square.npy").astype("float32")
    matrix[3, 9] = matrix[9, 3] = -1.2e-7
    np.save("rounded.npy", matrix)
    similar = np.exp(-np.load("square.npy"))
    np.fill_diagonal(similar, 0)
    np.save("hollow.npy", similar)
    notes = {
        "rounded.npy": "Note: 2 negative entries and 0 diagonal entries of the matrix were taken for rounded zeros; ",
        "hollow.npy": "Note: the matrix has a zero diagonal, but its other entries behave like similarities",
    }
    for name, note in notes.items():
        for command in (["ingest", name, "m.zarr", "--overwrite"], ["fit", "m.zarr", "map.zarr", "--overwrite"]):
            assert CliRunner().invoke(main, command).stderr.count(note) == 1, command
            assert CliRunner().invoke(main, [*command, "--quiet"]).stderr == ""
        assert CliRunner().invoke(main, ["fit", name, "map.zarr", "--overwrite"]).stderr.count(note) == 1
