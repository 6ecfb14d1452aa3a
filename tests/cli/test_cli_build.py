"""``psmds distances`` and ``psmds ingest``."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import zarr
from click.testing import CliRunner

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
    Path("table.tsv").write_text("a\tb\n0\t1\n")
    told = refused("ingest", "table.tsv", "t.zarr")
    assert "table.tsv is a table as text, but a .npy file or a Zarr store is expected" in told
    assert "allow_pickle" not in told


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
