"""``psmds distances`` and ``psmds ingest``."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import zarr
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist import open_rows
from psmds_dist.cli.app import main
from tests.cli.commands import IDS, N, refused, run


def test_ingest_of_every_form_gives_the_same_store(place):
    zarr.create_array("foreign", data=np.load("square.npy"), chunks=(50, 50))
    for name in ("square.npy", "condensed.npy", "foreign"):
        run("ingest", name, f"{name}.zarr", "--ids", "ids.txt", "--quiet")
    digests = {json.loads(run("info", f"{n}.zarr", "--json"))["checked"]["digest"] for n in ("square.npy", "foreign")}
    assert len(digests) == 1
    assert open_rows("condensed.npy.zarr").ids == IDS
    np.testing.assert_array_equal(open_rows("condensed.npy.zarr").array[:], open_rows("foreign.zarr").array[:])
    run("fit", "foreign", "map.zarr", "--max-epochs", "3", "-q")


def test_ingest_repairs_what_its_options_name(place):
    broken = np.load("square.npy") + np.eye(N)
    broken[3, 5] += 1
    np.save("broken.npy", broken)
    assert "--zero-diagonal" in refused("ingest", "broken.npy", "m.zarr")
    assert "--symmetrize" in refused("ingest", "broken.npy", "m.zarr", "--zero-diagonal")
    assert not Path("m.zarr").exists()
    run("ingest", "broken.npy", "m.zarr", "--zero-diagonal", "--symmetrize", "--dtype", "float64")
    assert open_rows("m.zarr").array[3, 5] == open_rows("m.zarr").array[5, 3]


def test_stores_of_two_bytes_tell_how_far_they_round_and_are_read_as_any(place):
    for dtype in ("uint16", "float16"):
        told = run("ingest", "square.npy", f"{dtype}.zarr", "--dtype", dtype)
        assert f"{dtype} rounded the dissimilarities by at most " in told
        assert f"{2 * N**2 / 1024:.1f} KiB" in told
        facts = json.loads(run("info", f"{dtype}.zarr", "--json"))
        assert facts["stored as"].startswith(dtype)
        assert facts["rounded"] in told
        assert f"{2 * N**2 / 1024:.1f} KiB read" in run("plan", f"{dtype}.zarr")
        run("fit", f"{dtype}.zarr", f"{dtype}-map.zarr", "--max-epochs", "3", "-q")
        run("quality", f"{dtype}-map.zarr")
    np.save("large.npy", 1e5 * np.load("square.npy"))
    assert "--dtype uint16" in refused("ingest", "large.npy", "large.zarr", "--dtype", "float16")
    assert not Path("large.zarr").exists()


def test_similarities_and_points_become_stores_of_two_bytes(place):
    x = np.random.default_rng(0).normal(size=(N, 90))
    np.save("points.npy", x)
    np.save("correlations.npy", np.corrcoef(x))
    run("distances", "points.npy", "d.zarr", "--dtype", "uint16", "-q")
    run("ingest", "correlations.npy", "s.zarr", "--similarity", "sqrt(2(1-s))", "--dtype", "uint16", "-q")
    for name, expected in (("d.zarr", pdist(x)), ("s.zarr", np.sqrt(2 * pdist(x, "correlation")))):
        found = open_rows(name).take(np.arange(N))
        np.testing.assert_allclose(squareform(found), expected, atol=expected.max() / 65534)


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


def test_similarities_are_not_hidden_by_a_zero_diagonal(place):
    x = np.random.default_rng(0).normal(size=(40, 90))
    np.save("similarities.npy", np.corrcoef(x) ** 2)
    assert "looks like similarities" in refused("ingest", "similarities.npy", "s.zarr", "--zero-diagonal")
    assert not Path("s.zarr").exists()


def test_ingest_converts_similarities_by_the_rule_that_its_error_names(place):
    r = np.corrcoef(np.random.default_rng(0).normal(size=(N, 90)))
    np.savetxt("r.csv", r, delimiter=",")
    assert "--similarity 'sqrt(2(1-s))'" in refused("ingest", "r.csv", "d.zarr")
    run("ingest", "r.csv", "d.zarr", "--similarity", "sqrt(2(1-s))", "--dtype", "float64", "-q")
    expected = np.sqrt(2 * (1 - r)) * (1 - np.eye(N))
    np.testing.assert_allclose(open_rows("d.zarr").array[:], expected, rtol=1e-15)
    assert "sqrt(2(1-s)) of table" in json.loads(run("info", "d.zarr", "--json"))["source"]
    told = refused("ingest", "square.npy", "s.zarr", "--similarity", "1/x")
    assert "similarity must be one of '1-s', 'sqrt(1-s)', 'sqrt(2(1-s))', '-log s', 'max-s', '1/s'" in told


def test_text_is_ingested_and_embedded_like_arrays(place):
    pd.DataFrame(np.load("square.npy"), IDS, IDS).to_csv("square.csv")
    run("ingest", "square.csv", "text.zarr", "-q")
    run("ingest", "square.npy", "array.zarr", "--ids", "ids.txt", "-q")
    np.testing.assert_array_equal(open_rows("text.zarr").array[:], open_rows("array.zarr").array[:])
    assert open_rows("text.zarr").ids == IDS
    run("fit", "square.csv", "map.zarr", "--max-epochs", "3", "-q")
    run("fit", "array.zarr", "same.zarr", "--max-epochs", "3", "-q")
    for file in ("map", "same"):
        run("export", f"{file}.zarr", f"{file}.csv")
    assert Path("map.csv").read_text() == Path("same.csv").read_text()
    assert run("quality", "map.zarr") == run("quality", "same.zarr")
    Path("cut.csv").write_text(Path("square.csv").read_text()[:-40])
    told = refused("ingest", "cut.csv", "cut.zarr")
    assert f"in line {N + 1} instead of" in told
    assert "the file may be cut short" in told
    assert not Path("cut.zarr").exists()
    assert "format must be one of" in refused("ingest", "square.csv", "x.zarr", "--format", "excel")
    assert "does not begin with the number" in refused("fit", "square.csv", "x.zarr", "--format", "phylip")


def test_dissimilarities_given_as_points_are_noticed(place):
    np.save("rectangle.npy", np.ones((5, 3)) * np.arange(5)[:, None])
    for name, noticed in (("square.npy", True), ("points.npy", False), ("rectangle.npy", False)):
        result = CliRunner().invoke(main, ["distances", name, f"{name}.zarr"])
        assert result.exit_code == 0
        assert ("looks like a dissimilarity matrix" in result.stderr) == noticed
    assert CliRunner().invoke(main, ["distances", "square.npy", "again.zarr", "-q"]).stderr == ""


def test_a_full_disk_is_a_sentence(place, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("psmds_dist.data.store.targets.Target.write", full)
    assert refused("distances", "points.npy", "d.zarr") == f"Error: {os.strerror(errno.ENOSPC)}."
