"""The command ``psmds``: real files through all its commands, and every fault a sentence."""

import csv
import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, open_rows, read_result
from psmds_dist.cli.app import main
from psmds_dist.data.store import read_result as read_arrays
from psmds_dist.solver.checkpoint import DirectoryCheckpoint, DirectoryStream
from tests.clusters import ended

N = 120
IDS = [f"sample {k}, é" for k in range(N)]
PSMDS = str(Path(sys.executable).parent / "psmds")


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(2).normal(size=(N, 4))


@pytest.fixture
def place(tmp_path, monkeypatch, points):
    """A directory with the files of a user, and in it."""
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", points)
    np.save("square.npy", squareform(pdist(points)))
    np.save("condensed.npy", pdist(points))
    Path("ids.txt").write_text("\n".join(IDS) + "\n", encoding="utf-8")
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def refused(*arguments):
    """The sentence in which a command refuses."""
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    *_, sentence = result.stderr.strip().splitlines()
    assert sentence.startswith("Error: ")
    assert sentence.endswith((".", "?")), sentence
    return sentence


def test_from_points_to_a_table(place, points):
    rms = np.sqrt((pdist(points) ** 2).mean())
    out = run("distances", "points.npy", "d.zarr", "--ids", "ids.txt")
    assert out == f"d.zarr: {N} points, 56.2 KiB, root mean square dissimilarity {rms:.6g}; checked.\n"
    facts = json.loads(run("info", "d.zarr", "--json"))
    assert (facts["kind"], facts["points"], facts["ids"], facts["metric"]) == (
        "dissimilarities",
        N,
        True,
        "euclidean",
    )
    assert facts["checked"]["rms"] == pytest.approx(rms, rel=1e-6)
    assert "points               120" in run("info", "d.zarr")

    out = run("fit", "d.zarr", "map.zarr", "--seed", "4", "--plot", "map.png")
    assert re.match(r"120 points, rows 56\.2 KiB, 1 process with .* each: kept in memory\n", out)
    assert re.search(r"\n\d+ epochs in .* s, converged; map in map\.zarr\nnormalised stress  0\.", out)
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    result = read_result("map.zarr")
    expected = PatternSearchMDS(random_state=4).fit(squareform(pdist(points)))
    assert np.array_equal(result.embedding, expected.embedding_)
    assert result.ids == IDS

    out = run("quality", "map.zarr", "--worst", "3", "--compare", "classical", "--compare", "smacof")
    assert f"normalised stress  {expected.normalized_stress_:.6f}" in out
    worst = [IDS[k] for k in np.argsort(-expected.point_stress_, kind="stable")[:3]]
    assert all(name in out for name in worst)
    assert "SMACOF" in out
    assert "classical MDS" in out
    assert json.loads(run("info", "map.zarr", "--json"))["seed"] == 4

    assert run("export", "map.zarr", "map.csv") == "map.csv: the coordinates of map.zarr\n"
    with open("map.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["id", "x1", "x2", "point_stress"]
    assert [row[0] for row in rows] == IDS
    assert np.array_equal(np.array([row[1:3] for row in rows], float), expected.embedding_)
    run("export", "map.zarr", "map.npy")
    assert np.array_equal(np.load("map.npy"), expected.embedding_)


def test_ingest_of_every_form_gives_the_same_store(place):
    zarr.create_array("foreign", data=np.load("square.npy"), chunks=(50, 50))
    for name in ("square.npy", "condensed.npy", "foreign"):
        run("ingest", name, f"{name}.zarr", "--ids", "ids.txt", "--quiet")
    digests = {json.loads(run("info", f"{n}.zarr", "--json"))["checked"]["digest"] for n in ("square.npy", "foreign")}
    assert len(digests) == 1
    assert open_rows("condensed.npy.zarr").ids == IDS
    np.testing.assert_array_equal(open_rows("condensed.npy.zarr").array[:], open_rows("foreign.zarr").array[:])
    run("fit", "foreign", "map.zarr", "--max-epochs", "3", "-q")


def test_ingest_mends_what_it_is_told_to(place):
    broken = np.load("square.npy") + np.eye(N)
    broken[3, 5] += 1
    np.save("broken.npy", broken)
    assert "--zero-diagonal" in refused("ingest", "broken.npy", "m.zarr")
    assert "--symmetrize" in refused("ingest", "broken.npy", "m.zarr", "--zero-diagonal")
    assert not Path("m.zarr").exists()
    run("ingest", "broken.npy", "m.zarr", "--zero-diagonal", "--symmetrize", "--dtype", "float64")
    assert open_rows("m.zarr").array[3, 5] == open_rows("m.zarr").array[5, 3]


def test_options_reach_the_solve(place):
    run("distances", "points.npy", "d.zarr", "--metric", "cityblock", "--dtype", "float64")
    options = [
        "--components",
        3,
        "--monotone",
        "--eps",
        0.01,
        "--radius",
        2,
        "--radius-tol",
        0.1,
        "--max-epochs",
        9,
    ]
    run(
        "fit",
        "d.zarr",
        "m.zarr",
        *options,
        "--direction-share",
        0.5,
        "--moves",
        "guided",
        "--memory-limit",
        "60 kB",
        "--threads",
        1,
    )
    result = read_result("m.zarr")
    config = result.attributes["run"]["configuration"]
    assert config == {
        "n_components": 3, "bad_moves": False, "eps": 0.01, "radius": 2.0, "radius_tol": 0.1, "max_epochs": 9,
        "direction_share": 0.5, "moves": "guided", "seed": 0, "init": "auto", "n_init": 1,
    }  # fmt: skip
    assert result.embedding.shape == (N, 3)
    assert result.history["radius"][0] == 2
    assert result.attributes["check"]["dtype"] == "float64"
    assert result.attributes["memory_limit"] == 60_000


def test_nothing_is_said_when_quiet(place):
    assert run("distances", "points.npy", "d.zarr", "-q") == ""
    assert run("fit", "d.zarr", "m.zarr", "--quiet", "--max-epochs", 2) == ""
    assert read_result("m.zarr").attributes["stop_reason"] == "max_epochs"


def test_targets_are_not_overwritten_unasked(place):
    run("distances", "points.npy", "d.zarr", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 1, "-q")
    assert "d.zarr already holds a finished store of another source; give another path, or" in refused(
        "distances", "points.npy", "d.zarr", "--metric", "cityblock"
    )
    assert "already holds a result" in refused("fit", "d.zarr", "m.zarr")
    assert "is given twice" in refused("fit", "d.zarr", "d.zarr", "--overwrite")
    assert "points.npy is there" in refused("distances", "points.npy", place, "--overwrite")
    Path("other").mkdir()
    Path("other/file").touch()
    assert "is not a dissimilarity store, so it stays" in refused("distances", "points.npy", "other", "--overwrite")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 2, "-q", "--overwrite")
    assert len(read_result("m.zarr").history) == 2
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_faults_are_sentences(place):
    run("distances", "points.npy", "d.zarr", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 1, "-q")
    Path("empty.npy").touch()
    Path("few.txt").write_text("a\nb\n")
    np.save("nan.npy", np.full((5, 5), np.nan))
    np.save("words.npy", np.array(["a", "b"]))
    faults = [
        (("fit", "nowhere.zarr", "x.zarr"), "nowhere.zarr does not exist; give a Zarr array or group"),
        (("fit", "points.npy", "x.zarr"), "for points use `psmds distances`"),
        (("fit", "m.zarr", "x.zarr"), "holds a result, not dissimilarities"),
        (("fit", "d.zarr", "x.zarr", "-L", "0"), "n_components must be a whole number of at least 1, not 0"),
        (("fit", "d.zarr", "x.zarr", "-L", str(N)), "n_components must be below the number of points"),
        (("fit", "d.zarr", "x.zarr", "-L", "two"), "'two' is not a valid integer"),
        (("fit", "d.zarr", "x.zarr", "--seed", "-1"), "at least 0, not -1"),
        (("fit", "d.zarr", "x.zarr", "--eps", "-1"), "eps must be a finite number at least 0"),
        (("fit", "d.zarr", "x.zarr", "--memory-limit", "plenty"), "such as '400 MiB' or '4GB', not 'plenty'"),
        (("fit", "d.zarr", "x.zarr", "--memory-limit", "1kB"), "raise memory_limit"),
        (("fit", "d.zarr", "x.zarr", "--workers", "0"), "0 is not in the range"),
        (
            ("fit", "d.zarr", "x.zarr", "--workers", "2", "--scheduler", "tcp://h:1"),
            "give one of --workers, --scheduler",
        ),
        (
            ("fit", "d.zarr", "x.zarr", "--scheduler-file", "none.json"),
            "scheduler file 'none.json' does not exist",
        ),
        (
            ("fit", "d.zarr", "x.zarr", "--plot", "x.nonsense"),
            "cannot save a picture to 'x.nonsense': its name must end",
        ),
        (("fit", "d.zarr", "x.zarr", "--plot", "no/x.png"), "there is no such directory"),
        (("distances", "nowhere.npy", "x.zarr"), "'nowhere.npy' does not exist"),
        (("distances", "empty.npy", "x.zarr"), "is an empty file, but a .npy file or a Zarr store is expected"),
        (("distances", "condensed.npy", "x.zarr"), "points are an array of shape (n, d)"),
        (("distances", "words.npy", "x.zarr"), "needs floats or integers"),
        (("distances", "points.npy", "x.zarr", "--metric", "crow"), "metric 'crow' cannot be used"),
        (("distances", "points.npy", "x.zarr", "--ids", "few.txt"), "has 2 ids for 120 points"),
        (
            ("distances", "points.npy", "x.zarr", "--memory-limit", "-1"),
            "--memory-limit must be a positive number",
        ),
        (("ingest", "points.npy", "x.zarr"), "for points use `psmds distances`"),
        (("ingest", "nan.npy", "x.zarr"), "25 NaN entries, the first in row 0, column 0"),
        (("ingest", place, "x.zarr"), "Zarr"),
        (("info", "nowhere"), "does not exist"),
        (("quality", "d.zarr"), "holds dissimilarities; give the result of a fit"),
        (("quality", "m.zarr", "--matrix", "nowhere"), "nowhere does not exist"),
        (("export", "m.zarr", "map.xlsx"), "must end in .csv, .tsv or .npy"),
        (("export", "m.zarr", "no/such/place.csv"), "no/such/place.csv cannot be written: make its directory first"),
        (("export", "m.zarr", "no/such/place.npy"), "no/such/place.npy cannot be written: make its directory first"),
        (("dance",), "No such command 'dance'"),
    ]
    for arguments, part in faults:
        sentence = refused(*arguments)
        assert part in sentence, (arguments, sentence)
    assert sorted(path.name for path in place.glob("*.zarr")) == ["d.zarr", "m.zarr"]


def test_a_full_disk_is_a_sentence(place, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("psmds_dist.data.store.targets.Target.write", full)
    assert refused("distances", "points.npy", "d.zarr") == f"Error: {os.strerror(errno.ENOSPC)}."


def test_a_damaged_store_is_a_sentence(place):
    run("distances", "points.npy", "d.zarr", "-q")
    chunks = sorted(Path("d.zarr/dissimilarities/c").parent.glob("c.*")) or sorted(Path("d.zarr").rglob("c*0"))
    chunks[0].unlink()
    assert re.search(r"lacks 1 of its \d+ chunks", refused("fit", "d.zarr", "m.zarr"))
    run("distances", "points.npy", "d.zarr", "-q", "--overwrite")
    chunks[0].write_bytes(chunks[0].read_bytes()[:100])
    assert "d.zarr" in refused("fit", "d.zarr", "m.zarr")
    assert not Path("m.zarr").exists()


def test_a_map_of_another_matrix_is_told(place):
    run("distances", "points.npy", "d.zarr", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 1, "-q")
    np.save("fewer.npy", np.load("points.npy")[:50])
    run("distances", "fewer.npy", "e.zarr", "-q")
    assert "embedding must be finite coordinates of shape (50, 2)" in refused("quality", "m.zarr", "--matrix", "e.zarr")


def test_a_scheduler_that_does_not_answer(place):
    run("distances", "points.npy", "d.zarr", "-q")
    with socket.socket() as unused:
        unused.attach(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
    process = subprocess.run(
        [PSMDS, "fit", "d.zarr", "m.zarr", "--scheduler", address],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"},
    )
    assert process.returncode == 1
    assert f"Error: no Dask scheduler answers at {address}" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.slow
@pytest.mark.versions
def test_workers_of_this_machine_do_all_of_it(place, points):
    """The command as a user types it: no clutter from Dask, and the map of one process."""
    for command in (
        "distances points.npy d.zarr --workers 2",
        "fit d.zarr m.zarr --workers 2 --max-epochs 12",
        "quality m.zarr --worst 1",
    ):
        process = subprocess.run([PSMDS, *command.split()], capture_output=True, text=True, timeout=300)
        assert (process.returncode, process.stderr) == (0, "")
    assert "point stress" in process.stdout
    assert set(read_result("m.zarr").attributes["peak_memory"]) == {"0", "1"}
    expected = PatternSearchMDS(random_state=0, max_epochs=12).fit(squareform(pdist(points)))
    assert np.array_equal(read_result("m.zarr").embedding, expected.embedding_)


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


def test_an_interrupt_outside_the_solve(place):
    """While distances are written: exit code 130, a sentence, and the next run goes on from there."""
    np.save("many.npy", np.random.default_rng(0).normal(size=(4000, 300)))
    process = subprocess.Popen(
        [PSMDS, "distances", "many.npy", "d.zarr", "--metric", "cityblock", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    chunks = Path("d.zarr/dissimilarities")
    with ended(process):
        while not chunks.exists() or len(os.listdir(chunks)) < 4:
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "Error: interrupted; d.zarr is unfinished, and the same command goes on with it.\n"
    assert "is unfinished" in refused("fit", "d.zarr", "m.zarr")
    written = {path: path.stat().st_mtime_ns for path in chunks.glob("c*")}
    run("distances", "many.npy", "d.zarr", "--metric", "cityblock", "-q")
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())


def test_commands_of_other_packages_are_found(monkeypatch):
    @click.command()
    def extra():
        """Do something else."""
        click.echo("else")

    class Point:
        name = "extra"

        def load(self):
            return extra

    def points(group, name=None):
        return [Point()] if group == "psmds.commands" and name in (None, "extra") else []

    monkeypatch.setattr("psmds_dist.cli.app.entry_points", points)
    assert "extra" in run("--help")
    assert run("extra") == "else\n"


def test_help_and_version():
    assert run("--version").startswith("psmds, version 0.")
    for command in main.commands:
        assert run(command, "--help").startswith(f"Usage: main {command}")


def test_similarities_are_not_hidden_by_a_zero_diagonal(place):
    x = np.random.default_rng(0).normal(size=(40, 90))
    np.save("similarities.npy", np.corrcoef(x) ** 2)
    assert "looks like similarities" in refused("ingest", "similarities.npy", "s.zarr", "--zero-diagonal")
    assert not Path("s.zarr").exists()
    Path("table.tsv").write_text("a\tb\n0\t1\n")
    told = refused("ingest", "table.tsv", "t.zarr")
    assert "table.tsv is a table as text, but a .npy file or a Zarr store is expected" in told
    assert "allow_pickle" not in told


def test_ingest_mirrors_a_lone_triangle(place):
    whole = np.load("square.npy")
    np.save("half.npy", np.triu(whole))
    assert "--triangle upper" in refused("ingest", "half.npy", "m.zarr")
    assert "--triangle upper" in refused("ingest", "half.npy", "m.zarr", "--symmetrize")
    assert "--triangle upper" in refused("fit", "half.npy", "map.zarr")
    run("ingest", "half.npy", "m.zarr", "--triangle", "auto", "--dtype", "float64")
    rows = np.empty((N, N))
    open_rows("m.zarr").read(0, N, rows)
    np.testing.assert_array_equal(rows, whole)


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


def test_a_matrix_in_a_file_is_embedded_in_place(place, points):
    for name in ("square.npy", "condensed.npy"):
        run("fit", name, f"{name}.map", "--seed", "4", "-q")
    expected = PatternSearchMDS(random_state=4).fit(squareform(pdist(points)))
    for name in ("square.npy", "condensed.npy"):
        assert np.array_equal(read_result(f"{name}.map").embedding, expected.embedding_)
        assert f"normalised stress  {expected.normalized_stress_:.6f}" in run("quality", f"{name}.map")
    assert "ids.txt is a text file without a table of numbers" in refused("fit", "ids.txt", "x.map")


def test_dissimilarities_given_as_points_are_noticed(place):
    np.save("rectangle.npy", np.ones((5, 3)) * np.arange(5)[:, None])
    for name, noticed in (("square.npy", True), ("points.npy", False), ("rectangle.npy", False)):
        result = CliRunner().invoke(main, ["distances", name, f"{name}.zarr"])
        assert result.exit_code == 0
        assert ("looks like dissimilarities already" in result.stderr) == noticed
    assert CliRunner().invoke(main, ["distances", "square.npy", "again.zarr", "-q"]).stderr == ""


def test_info_reads_well(place):
    run("fit", "square.npy", "m.zarr", "-q")
    run("landmarks", "fit", "points.npy", "l.zarr", "--metric", "euclidean", "-S", "40", "-q")
    for name in ("m.zarr", "l.zarr"):
        text = run("info", name)
        assert not re.search(r"[{}\[\]]|None|True|False", text), text
    assert run("info", "m.zarr").count("\n  configuration\n    n_components     2\n") == 1
    assert "\nconfig\n" not in run("info", "m.zarr")
    assert "\ncurve\n  1\n    n_landmarks      5\n" in run("info", "l.zarr")


def test_an_unknown_start_is_refused_before_the_plan(place):
    result = CliRunner().invoke(main, ["fit", "square.npy", "m.zarr", "--init", "foo"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "init must be 'auto', 'random', 'landmarks' or coordinates, not 'foo'" in result.stderr


def test_quality_of_a_landmark_map_asks_for_its_matrix(place, points):
    run("landmarks", "fit", "points.npy", "l.zarr", "--metric", "euclidean", "-S", "40", "-q")
    assert "pass --matrix" in refused("quality", "l.zarr")
    assert "normalised stress" in run("quality", "l.zarr", "--matrix", "square.npy")


def test_plan_of_a_store(place):
    run("distances", "points.npy", "d.zarr", "-q")
    out = run("plan", "d.zarr", "--memory-limit", "1 MiB", "--threads", 1)
    lines = out.splitlines()
    assert lines[0] == f"{N} points, rows 56.2 KiB, 1 process with 1.0 MiB each: kept in memory"
    heads = [line.split("  ")[0] for line in lines if line]
    wanted = ["rows", "memory a process", "least that works", "passes", "time", "bytes moved", "saturates first"]
    assert heads[1:8] == wanted
    assert {"first epoch", "epochs", "measurement"} < set(heads)
    assert "stage" in heads
    assert "check" not in heads  # it is kept with the store
    sentence = refused("plan", "d.zarr", "--memory-limit", "1kB")
    needed = re.search(r"--memory-limit\) to ([0-9.]+ KiB)", sentence)[1]
    assert f"a map of {N} points in 2 dimensions needs {needed}" in sentence
    run("plan", "d.zarr", "--memory-limit", needed)
    run("fit", "d.zarr", "m.zarr", "--memory-limit", needed, "--max-epochs", 1, "-q")


def test_names_of_a_file_are_given_to_the_fit_or_to_a_store_and_stay(place):
    run("fit", "square.npy", "m.zarr", "--ids", "ids.txt", "-q", "--max-epochs", 2)
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    run("ingest", "d.zarr", "again.zarr", "-q")
    run("fit", "again.zarr", "n.zarr", "-q", "--max-epochs", 2)
    assert read_result("m.zarr").ids == read_result("n.zarr").ids == IDS
    Path("short.txt").write_text("one\ntwo\n")
    assert "has 2 ids for 120 points" in refused("fit", "square.npy", "x.zarr", "--ids", "short.txt")


def test_plan_of_a_file(place):
    out = run("plan", "square.npy", "--memory-limit", "1 MiB")
    assert out.startswith(f"{N} points, rows 56.2 KiB, 1 process with 1.0 MiB each: kept in memory")
    assert "\ncheck " in out  # nothing is kept with a file
    np.save("odd.npy", np.ones(4))
    assert "is 1-D with 4 entries" in refused("plan", "odd.npy")
    assert "give MATRIX or --points, one of them: both came" in refused("plan", "square.npy", "--points", 120)
    assert "--landmarks goes with --points, not with MATRIX" in refused("plan", "square.npy", "-S", 40)
    assert "--computed goes with --landmarks" in refused("plan", "square.npy", "--computed")
    assert f"n_components must be below the number of points, {N}" in refused("plan", "square.npy", "-L", N)
    np.save("two.npy", np.ones((2, 2)))
    assert "the matrix has 2 points" in refused("plan", "two.npy")


def test_plan_without_data():
    million = ("plan", "--points", "1e6", "--workers", 1000, "--threads", 16, "--disk", "1.5GB/s")
    out = run(*million, "--memory-limit", "8GiB")
    assert out.startswith("1,000,000 points, rows 3.64 TiB, 1000 workers with 8.00 GiB each: kept in memory")
    assert "memory here" in out
    many = run("plan", "-N", "1e8", "-S", 1000, "--workers", 1000, "--memory-limit", "8GiB", "--computed")
    assert "computed, never stored, streamed once" in many
    assert "1 over the panel" in many
    assert "needs" in refused(*million, "--memory-limit", "1MB")
    assert "give MATRIX or --points, one of them: neither came" in refused("plan")
    assert "--landmarks must be more than the 2 dimensions" in refused("plan", "-N", "100", "-S", 2)
    assert "--disk must be a positive number" in refused("plan", "-N", "100", "--disk", "fast")
    assert "--computed goes with --landmarks" in refused("plan", "-N", "100", "--computed")
    for number in ("1000.7", "1e300", "many", "0"):
        assert f"{number} is no whole number from 1 to 1e+15" in refused("plan", "-N", number)
    assert "disk 4 ms" in run("plan", "-N", "1e4", "-S", "1e2", "--disk", "1.1 GB / s")


def test_plan_tells_one_size_of_the_rows():
    rows = re.findall(r"rows +([0-9.]+ MiB)", run("plan", "-N", 1000, "--memory-limit", "1GB"))
    assert rows == ["3.8 MiB"] * 2


@pytest.mark.parametrize("command", [("fit",), ("landmarks", "fit")])
def test_a_run_killed_before_its_checkpoint_was_removed_goes_on(place, monkeypatch, command):
    run("distances", "points.npy", "d.zarr", "-q")
    sizes = ("-S", 30) if "landmarks" in command else ("--max-epochs", 4)
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryCheckpoint, "remove", lambda self: None)
        patch.setattr(DirectoryStream, "should_save", True)
        run(*command, "d.zarr", "m.zarr", *sizes, "-q")
    assert "unfinished run" in refused(*command, "d.zarr", "m.zarr", *sizes)
    before = read_arrays("m.zarr")[0]
    assert "going on from" in run(*command, "d.zarr", "m.zarr", *sizes, "--resume")
    np.testing.assert_array_equal(read_arrays("m.zarr")[0]["embedding"], before["embedding"])
    assert not Path("m.zarr.checkpoint").exists()


@pytest.mark.parametrize("command", [("fit",), ("landmarks", "fit")])
def test_a_finished_run_that_shall_go_on_is_left_as_it_is(place, command):
    run("distances", "points.npy", "d.zarr", "-q")
    sizes = ("-S", 30) if "landmarks" in command else ("--max-epochs", 4)
    fit = (*command, "d.zarr", "m.zarr", *sizes, "--resume")
    assert "beginning anew" in run(*fit)
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


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "0"])
@pytest.mark.parametrize("command", [["plan", "--points"], ["fit", "square.npy", "map.zarr", "--deadline"]])
def test_numbers_that_are_none_are_refused(place, command, number):
    result = CliRunner().invoke(main, [*command, number])
    assert result.exit_code == 2
    assert f"Invalid value for '{command[-1]}'" in result.stderr
