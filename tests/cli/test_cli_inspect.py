"""``psmds info``, ``psmds quality`` and ``psmds export``."""

import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.distance import pdist

from psmds_dist.cli.app import main
from tests.cli.commands import IDS, refused, run


def test_info_reads_well(place):
    run("fit", "square.npy", "m.zarr", "-q")
    run("landmarks", "fit", "points.npy", "l.zarr", "--metric", "euclidean", "-S", "40", "-q")
    for name in ("m.zarr", "l.zarr"):
        text = run("info", name)
        assert not re.search(r"[{}\[\]]|None|True|False", text), text
    assert run("info", "m.zarr").count("\n  configuration\n    n_components     2\n") == 1
    assert "\nconfig\n" not in run("info", "m.zarr")
    assert "\ncurve\n  1\n    n_landmarks      5\n" in run("info", "l.zarr")


def test_a_map_of_another_matrix_is_refused(place):
    run("distances", "points.npy", "d.zarr", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 1, "-q")
    np.save("fewer.npy", np.load("points.npy")[:50])
    run("distances", "fewer.npy", "e.zarr", "-q")
    assert "embedding must be finite coordinates of shape (50, 2)" in refused("quality", "m.zarr", "--matrix", "e.zarr")


def test_quality_of_a_landmark_map_asks_for_its_matrix(place, points):
    run("landmarks", "fit", "points.npy", "l.zarr", "--metric", "euclidean", "-S", "40", "-q")
    assert "with --matrix" in refused("quality", "l.zarr")
    assert "normalized stress" in run("quality", "l.zarr", "--matrix", "square.npy")


def normalized(printed):
    return float(re.search(r"^normalized stress +(\S+)", printed, re.MULTILINE)[1])


def test_quality_measures_a_map_of_another_program(place, points):
    pandas = pytest.importorskip("pandas")
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    given, order = pdist(points), np.random.default_rng(0).permutation(len(points))
    expected = np.sqrt(((given - pdist(points[:, :2])) ** 2).sum() / (given**2).sum())
    table = pandas.DataFrame(points[:, :2], IDS).iloc[order]
    table.to_csv("map.csv", index_label="sample")
    table.to_csv("map.tsv", sep="\t", header=False)
    np.save("map.npy", points[:, :2])
    for name in ("map.csv", "map.tsv", "map.npy"):
        printed = run("quality", "--matrix", "d.zarr", name, "--worst", 3)
        assert normalized(printed) == pytest.approx(expected, abs=1e-6)
        assert printed.count("sample ") == 3
    compared = run("quality", "--matrix", "d.zarr", "map.csv", "--compare", "classical")
    assert re.search(rf"^map.csv +{normalized(printed)} +unknown$", compared, re.MULTILINE)


def test_quality_of_an_exported_map_is_that_of_the_map(place):
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 2, "-q")
    for name in ("m.csv", "m.tsv", "m.npy"):
        run("export", "m.zarr", name)
        agreement, figures = run("quality", "m.zarr").split("\n", 1)
        assert "starts" in agreement
        assert run("quality", "--matrix", "d.zarr", name) == figures


def test_row_numbers_in_a_file_tell_the_order_where_the_matrix_has_no_names(place):
    run("fit", "square.npy", "m.zarr", "-q")
    run("export", "m.zarr", "order.csv", "--sort")
    printed, known = run("quality", "--matrix", "square.npy", "order.csv"), run("quality", "m.zarr")
    assert normalized(printed) == normalized(known)


def test_coordinates_that_cannot_be_measured_get_a_sentence(place, points):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(points, IDS).to_csv("map.csv")
    assert "(--matrix)" in refused("quality", "map.csv")
    np.save("fewer.npy", pdist(points[:50]))
    assert "map.csv has 121 lines for 50 points" in refused("quality", "map.csv", "--matrix", "fewer.npy")
    run("ingest", "square.npy", "d.zarr", "-q", "--ids", "ids.txt")
    pandas.DataFrame(points, [*IDS[:-1], "other"]).to_csv("map.csv")
    assert "first 'other'" in refused("quality", "map.csv", "--matrix", "d.zarr")
    np.save("map.npy", points[:50])
    assert "shape (120, 4)" in refused("quality", "map.npy", "--matrix", "d.zarr")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def test_a_sorted_export_is_the_order_along_the_first_axis(place):
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    run("fit", "d.zarr", "line.zarr", "-L", 1, "-q")
    run("export", "line.zarr", "order.csv", "--sort")
    run("export", "line.zarr", "plain.csv")
    found, plain = rows_of(place / "order.csv"), rows_of(place / "plain.csv")
    assert found == sorted(plain, key=lambda row: float(row[1]))
    assert found != plain
    assert "write a .csv or .tsv file" in refused("export", "line.zarr", "order.npy", "--sort")


def test_a_map_goes_to_standard_output_as_text_and_never_as_binary(place):
    run("fit", "square.npy", "m.zarr", "-q", "--effort", "quick")
    before = set(os.listdir())
    for name in ("csv", "tsv", "json", "ordination"):
        assert run("export", "m.zarr", f"file.{name}", "--format", name, "-q") == ""
        printed = CliRunner().invoke(main, ["export", "m.zarr", "-", "--format", name]).stdout_bytes
        assert printed == Path(f"file.{name}").read_bytes()
        os.remove(f"file.{name}")
    assert "npy is binary" in refused("export", "m.zarr", "-", "--format", "npy")
    assert "--format" in refused("export", "m.zarr", "-")
    assert set(os.listdir()) == before
