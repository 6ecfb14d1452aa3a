"""The commands ``status`` and ``watch``, and logs as JSON."""

import json
import os
import pty
import re
import signal
import subprocess
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist import read_result
from psmds_dist.cli.app import main
from psmds_dist.solver.progress import Progress, read_progress
from tests.cli.commands import PSMDS, refused

ENDLESS = ["--init", "random", "--monotone", "--radius", "1", "--radius-tol", "1e-300", "--eps", "0"]
ENDLESS += ["--max-epochs", "100000000", "--threads", "1"]
"""Options of a run that takes many minutes for a large matrix."""


def wait_for(condition):
    end = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that has done some epochs, and its directory."""
    folder = tmp_path_factory.mktemp("running")
    np.save(folder / "large.npy", squareform(pdist(np.random.default_rng(0).normal(size=(1500, 6)))))
    command = [PSMDS, "fit", "large.npy", "map.zarr", *ENDLESS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        wait_for(lambda: (found := read_progress(folder / "map.zarr.checkpoint")) and found.epoch)
        yield folder, process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def running(begun, monkeypatch):
    """The process of the run; the test is in its directory."""
    folder, process = begun
    monkeypatch.chdir(folder)
    return process


@pytest.mark.slow
def test_the_watch_ends_with_ctrl_c_and_leaves_the_run_alone(running):
    watched = subprocess.Popen([PSMDS, "watch", "map.zarr"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watched.stdout.readline()
    watched.send_signal(signal.SIGINT)
    out, err = watched.communicate(timeout=120)
    assert (watched.returncode, err) == (130, "")
    assert running.poll() is None
    assert "Traceback" not in out


@pytest.mark.slow
def test_a_run_from_beginning_to_end(running):
    found = invoke("status", "map.zarr")
    assert found.exit_code == 3
    assert f"(process {running.pid})" in found.stdout
    assert re.search(r"^epoch +\d[\d,]*, radius [\d.e-]+ \(ends at 1e-300\)", found.stdout, re.MULTILINE)
    assert re.search(r"^stress +0\.\d+", found.stdout, re.MULTILINE)
    facts = json.loads(invoke("status", "map.zarr", "--json").stdout)
    assert (facts["state"], facts["facts"]["pid"]) == ("running", running.pid)
    assert facts["facts"]["command"].startswith("psmds fit large.npy map.zarr --init random")
    watched = subprocess.Popen([PSMDS, "watch", "map.zarr", "--interval", "0.2"], stdout=subprocess.PIPE, text=True)
    try:
        first = watched.stdout.readline()
        assert re.search(r"^\d\d:\d\d:\d\d   epochs   epoch \d", first)
        running.send_signal(signal.SIGINT)
        rest, _ = watched.communicate(timeout=120)
        assert running.wait(120) == 130
    finally:
        watched.kill()
    assert watched.returncode == 75
    assert "interrupted, this is the best map so far; continue with: cd " in rest
    waiting = invoke("status", "map.zarr")
    assert (waiting.exit_code, "psmds fit large.npy map.zarr" in waiting.stdout) == (75, True)
    restarted = [PSMDS, "fit", "large.npy", "map.zarr", *ENDLESS, "--resume"]
    process = subprocess.Popen(restarted, stdout=subprocess.DEVNULL)
    try:
        again = wait_for(lambda: (found := read_progress("map.zarr.checkpoint")).pid == process.pid and found)
    finally:
        process.kill()
        process.wait()
    assert (again.restarts, again.started) == (1, facts["facts"]["started"])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of forkpty")
def test_a_screen_on_a_terminal(place):
    progress = Progress(stage="epochs", host="node7", started=time.time(), updated=time.time())
    os.mkdir("map.zarr.checkpoint")
    with open("map.zarr.checkpoint/progress.json", "w") as file:
        file.write(progress.as_text())
    pid, descriptor = pty.fork()
    if pid == 0:  # the child
        os.environ.update(TERM="xterm", COLUMNS="160")
        os.execv(PSMDS, [PSMDS, "watch", "map.zarr", "--interval", "0.1"])
    shown = b""
    while b"last heard of" not in shown:
        shown += os.read(descriptor, 4096)
    os.write(descriptor, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(descriptor)
    assert b"running on node7" in shown


def test_the_end_of_a_run(place):
    assert "nothing of psmds is there" in refused("status", "map.zarr")
    assert invoke("fit", "square.npy", "map.zarr", "-q").exit_code == 0
    for command in ("status", "watch"):
        found = invoke(command, "map.zarr")
        assert found.exit_code == 0
        assert f"{read_result('map.zarr').stress.normalized_stress:.6f}" in found.stdout
    assert 'state="finished"} 1' in invoke("status", "map.zarr", "--prometheus").stdout
    assert invoke("status", "nothing", "--prometheus").exit_code == 1
    assert "mutually exclusive" in refused("status", "map.zarr", "--json", "--prometheus")
    assert "cannot be served at 'here'" in refused("watch", "map.zarr", "--metrics", "here")
    assert "metrics at http://127.0.0.1:" in invoke("watch", "map.zarr", "--metrics", "0").stderr


def test_names_do_not_reach_the_terminal_raw(place):
    os.mkdir("\x1b[31m.checkpoint")
    with open("\x1b[31m.checkpoint/progress.json", "w") as file:
        file.write(Progress(command="psmds \x1b[31m", host="\x1b[0m", updated=time.time()).as_text())
    found = invoke("status", "\x1b[31m")
    assert found.exit_code == 3
    assert "\x1b" not in found.stdout


def logged(*arguments):
    """Exit code and records of a command that logs."""
    result = invoke(*arguments, "--log-json")
    return result.exit_code, [json.loads(line) for line in result.stderr.splitlines()]


def test_a_fit_logs_one_object_a_line(place):
    code, records = logged("fit", "square.npy", "map.zarr", "--init", "random", "--no-polish")
    assert code == 0
    for record in records:
        assert record.keys() >= {"time", "level", "event", "message"}
        assert abs((datetime.now(UTC) - datetime.fromisoformat(record["time"])).total_seconds()) < 3600
    epochs = [record for record in records if record["event"] == "epoch"]
    history = read_result("map.zarr").history
    for column in ("epoch", "radius", "mse", "moved"):
        np.testing.assert_array_equal([record[column] for record in epochs], history[column])
    stages = [record["stage"] for record in records if record["event"] == "stage"]
    assert list(dict.fromkeys(stages)) == ["check", "compilation", "start", "epochs", "stress"]


@pytest.mark.parametrize(
    ("command", "stages"),
    [
        (("distances", "points.npy", "out.zarr"), ["writing"]),
        (("ingest", "square.npy", "out.zarr"), ["writing"]),
        (("landmarks", "panel", "square.npy", "out.zarr", "-S", "20"), ["writing"]),
        (("landmarks", "fit", "square.npy", "out.zarr", "-S", "20"), ["panel", "landmarks", "placement", "evaluation"]),
        (
            ("landmarks", "fit", "square.npy", "out.zarr", "-S", "20", "--refine", "full"),
            ["check", "panel", "landmarks", "placement", "epochs", "stress", "evaluation"],
        ),
    ],
)
def test_every_command_that_runs_logs_its_stages(place, command, stages):
    code, records = logged(*command)
    assert code == 0
    found = [record["stage"] for record in records if record["event"] == "stage"]
    assert list(dict.fromkeys(found)) == stages


def test_errors_notes_and_warnings_are_logged_too(place):
    matrix = np.load("square.npy").astype("float32")
    matrix[3, 9] = matrix[9, 3] = -1.2e-7
    np.save("rounded.npy", matrix)
    code, records = logged("ingest", "rounded.npy", "out.zarr")
    (warning,) = [record for record in records if record["event"] == "warning"]
    assert (code, warning["level"], warning["category"]) == (0, "warning", "DissimilarityWarning")
    assert "rounded zeros" in warning["message"]
    code, records = logged("distances", "square.npy", "distances.zarr")
    (note,) = [record for record in records if record["event"] == "note"]
    assert "looks like a dissimilarity matrix" in note["message"]
    code, (error,) = logged("fit", "square.npy", "out.zarr")
    assert (code, error["level"], error["event"], error["exit_code"]) == (1, "error", "error", 1)
    assert "will not be overwritten" in error["message"]
    code, (error,) = logged("fit", "square.npy", "map.zarr", "--workers", "1", "--cluster", "local:2")
    assert (code, error["exit_code"]) == (2, 2)


def test_a_quiet_log_holds_errors_only(place):
    assert logged("fit", "square.npy", "map.zarr", "-q") == (0, [])
    code, records = logged("fit", "square.npy", "map.zarr", "-q")
    assert (code, [record["event"] for record in records]) == (1, ["error"])


def test_the_log_ends_with_its_command(place):
    import logging

    logger = logging.getLogger("psmds_dist")
    before = (list(logger.handlers), logger.level)
    logged("ingest", "square.npy", "out.zarr")
    assert (logger.handlers, logger.level) == before
    assert "Error: " in invoke("fit", "missing.npy", "map.zarr").stderr


def test_a_performance_report_needs_workers(place):
    assert "needs Dask workers" in refused("fit", "square.npy", "map.zarr", "--performance-report", "report.html")
    assert not os.path.exists("map.zarr")
