"""The command ``psmds``: its commands together, and every error one sentence."""

import csv
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import click
import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.cli.app import main
from tests.cli.commands import IDS, PSMDS, N, refused, run
from tests.clusters import ended


def test_help_and_version():
    assert run("--version").startswith("psmds, version 0.")
    for command in main.commands:
        assert run(command, "--help").startswith(f"Usage: main {command}")


def all_commands(group, *path):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, *path, name)
        yield (*path, name), command


def test_every_command_and_option_has_a_help_text():
    described = dict(all_commands(main))
    assert ("landmarks", "fit") in described
    for path, command in described.items():
        assert re.fullmatch(r"[A-Z].*[^.]\.", command.get_short_help_str(62)), path  # whole in the list of commands
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert re.fullmatch(r"[A-Z].*[.]", parameter.help), (path, parameter.name)


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
    assert re.search(r"\n\d+ epochs in .* s, converged; map in map\.zarr\n\d+ of \d+ starts found this map.*\n", out)
    assert "\nnormalized stress  0." in out
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    result = read_result("map.zarr")
    expected = PatternSearchMDS(random_state=4).fit(squareform(pdist(points)))
    assert np.array_equal(result.embedding, expected.embedding_)
    assert result.ids == IDS

    out = run("quality", "map.zarr", "--worst", "3", "--compare", "classical", "--compare", "smacof")
    assert f"normalized stress  {expected.normalized_stress_:.6f}" in out
    worst = [IDS[k] for k in np.argsort(-expected.point_stress_, kind="stable")[:3]]
    assert all(name in out for name in worst)
    assert "SMACOF" in out
    assert "classical MDS" in out
    assert json.loads(run("info", "map.zarr", "--json"))["seed"] == 4

    assert run("export", "map.zarr", "map.csv") == "map.csv: coordinates of map.zarr\n"
    with open("map.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["id", "x1", "x2", "point_stress"]
    assert [row[0] for row in rows] == IDS
    assert np.array_equal(np.array([row[1:3] for row in rows], float), expected.embedding_)
    run("export", "map.zarr", "map.npy")
    assert np.array_equal(np.load("map.npy"), expected.embedding_)


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
            ("fit", "d.zarr", "x.zarr", "--workers", "2", "--cluster", "tcp://h:1"),
            "--cluster and --workers are mutually exclusive",
        ),
        (
            ("fit", "d.zarr", "x.zarr", "--cluster", "none.json"),
            "scheduler file 'none.json' does not exist",
        ),
        (
            ("fit", "d.zarr", "x.zarr", "--plot", "x.nonsense"),
            "cannot save a picture to 'x.nonsense': the name must end",
        ),
        (("fit", "d.zarr", "x.zarr", "--plot", "no/x.png"), "its directory does not exist"),
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
        (("ingest", "nan.npy", "x.zarr"), "all entries of the matrix off its diagonal are NaN"),
        (("ingest", place, "x.zarr"), "Zarr"),
        (("info", "nowhere"), "does not exist"),
        (("quality", "d.zarr"), "holds dissimilarities; give the result of a fit"),
        (("quality", "m.zarr", "--matrix", "nowhere"), "nowhere does not exist"),
        (("export", "m.zarr", "map.xlsx"), "must end in one of .csv, .tsv, .npy, .parquet"),
        (("export", "m.zarr", "no/such/place.csv"), "no/such/place.csv cannot be written; create its directory first"),
        (("export", "m.zarr", "no/such/place.npy"), "no/such/place.npy cannot be written; create its directory first"),
        (("dance",), "No such command 'dance'"),
    ]
    for arguments, part in faults:
        sentence = refused(*arguments)
        assert part in sentence, (arguments, sentence)
    assert sorted(path.name for path in place.glob("*.zarr")) == ["d.zarr", "m.zarr"]


def typed(command):
    """Output of a command as a user types it, without a word of Dask."""
    process = subprocess.run([PSMDS, *command.split()], capture_output=True, text=True, timeout=300)
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


@pytest.mark.slow
@pytest.mark.versions
def test_workers_of_this_machine_make_the_map_of_one_process(place, points):
    typed("fit square.npy m.zarr --workers 2 --max-epochs 12")
    assert set(read_result("m.zarr").attributes["peak_memory"]) == {"0", "1"}
    expected = PatternSearchMDS(random_state=0, max_epochs=12).fit(squareform(pdist(points)))
    assert np.array_equal(read_result("m.zarr").embedding, expected.embedding_)


@pytest.mark.slow
@pytest.mark.wide
def test_workers_of_this_machine_do_all_of_it(place, points):
    typed("distances points.npy d.zarr --workers 2")
    typed("fit d.zarr m.zarr --workers 2 --max-epochs 12")
    assert "point stress" in typed("quality m.zarr --worst 1")
    expected = PatternSearchMDS(random_state=0, max_epochs=12).fit(squareform(pdist(points)))
    assert np.array_equal(read_result("m.zarr").embedding, expected.embedding_)


def test_an_interrupted_store_is_continued(place):
    """Exit code 130 and one sentence; the next run writes only what is missing."""
    np.save("many.npy", np.random.default_rng(0).normal(size=(2500, 200)))
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
    assert err == "Error: interrupted; d.zarr is unfinished; rerun the same command to continue.\n"
    assert "is unfinished" in refused("fit", "d.zarr", "m.zarr")
    written = {path: path.stat().st_mtime_ns for path in chunks.glob("c*")}
    run("distances", "many.npy", "d.zarr", "--metric", "cityblock", "-q")
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())
