"""``psmds fit``."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.cli.app import main
from tests.cli.commands import IDS, N, refused, run


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
        "direction_share": 0.5, "moves": "guided", "seed": 0, "init": "auto", "n_init": "auto",
        "effort": "default", "polish": "auto",
    }  # fmt: skip
    assert result.embedding.shape == (N, 3)
    assert result.history["radius"][0] == 2
    assert result.attributes["check"]["dtype"] == "float64"
    assert result.attributes["memory_limit"] == 60_000


def test_a_matrix_in_a_file_is_embedded_in_place(place, points):
    for name in ("square.npy", "condensed.npy"):
        run("fit", name, f"{name}.map", "--seed", "4", "-q")
    expected = PatternSearchMDS(random_state=4).fit(squareform(pdist(points)))
    for name in ("square.npy", "condensed.npy"):
        assert np.array_equal(read_result(f"{name}.map").embedding, expected.embedding_)
        assert f"normalized stress  {expected.normalized_stress_:.6f}" in run("quality", f"{name}.map")
    assert "ids.txt is a text file without a table of numbers" in refused("fit", "ids.txt", "x.map")


def test_names_of_a_file_are_given_to_the_fit_or_to_a_store_and_stay(place):
    run("fit", "square.npy", "m.zarr", "--ids", "ids.txt", "-q", "--max-epochs", 2)
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    run("ingest", "d.zarr", "again.zarr", "-q")
    run("fit", "again.zarr", "n.zarr", "-q", "--max-epochs", 2)
    assert read_result("m.zarr").ids == read_result("n.zarr").ids == IDS
    Path("short.txt").write_text("one\ntwo\n")
    assert "has 2 ids for 120 points" in refused("fit", "square.npy", "x.zarr", "--ids", "short.txt")


def test_an_unknown_start_is_refused_before_the_plan(place):
    result = CliRunner().invoke(main, ["fit", "square.npy", "m.zarr", "--init", "foo"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert (
        "init must be 'auto', 'random', 'classical', 'search', 'sample', 'landmarks' or coordinates, not 'foo'"
        in result.stderr
    )


def test_a_damaged_store_is_a_sentence(place):
    run("distances", "points.npy", "d.zarr", "-q")
    chunks = sorted(Path("d.zarr/dissimilarities/c").parent.glob("c.*")) or sorted(Path("d.zarr").rglob("c*0"))
    chunks[0].unlink()
    assert re.search(r"lacks 1 of its \d+ chunks", refused("fit", "d.zarr", "m.zarr"))
    run("distances", "points.npy", "d.zarr", "-q", "--overwrite")
    chunks[0].write_bytes(chunks[0].read_bytes()[:100])
    assert "d.zarr" in refused("fit", "d.zarr", "m.zarr")
    assert not Path("m.zarr").exists()


@pytest.mark.parametrize("target", ["map.csv", "map.NPY"])
def test_a_target_with_the_ending_of_another_file_is_refused(target, place):
    told = f"{target} would be a Zarr store, which is a directory: end its name in .zarr"
    for command in (("fit", "square.npy"), ("ingest", "square.npy"), ("landmarks", "fit", "points.npy")):
        assert told in refused(*command, target)
        assert not (place / target).exists()
    (place / target).touch()
    assert "exists" in refused("fit", "square.npy", target)
