"""``psmds quality`` with more measures than stress."""

import json

import numpy as np
import pytest

from psmds_dist import quality, read_result
from psmds_dist.cli.options import SAMPLE_ROWS
from psmds_dist.core.config import MIN_SAMPLE
from tests.cli.commands import IDS, N, refused, run


@pytest.fixture
def mapped(place, points):
    """A map of a matrix with names, classes in three kinds of files, and known coordinates."""
    classes = [("low", "high")[int(value > 0)] for value in points[:, 0]]
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    run("fit", "d.zarr", "m.zarr", "--max-epochs", 2, "-q")
    (place / "labels.txt").write_text("\n".join(classes) + "\n")
    lines = [f'"{name}",{kind}' for name, kind in zip(IDS, classes, strict=True)]
    (place / "labels.csv").write_text("\n".join(["id,class", *lines[::-1]]), encoding="utf-8")
    np.save(place / "labels.npy", np.array(classes))
    np.save(place / "truth.npy", points)
    return classes


def test_the_lines_of_stress_stay_above_the_measures(mapped):
    plain, more = run("quality", "m.zarr"), run("quality", "m.zarr", "--neighbors", 7)
    above, table = plain.split("\n\n")
    assert more.startswith(above)
    assert more.endswith("\n\n" + table)
    assert more.removeprefix(above).count("the 7 nearest points") == 2
    for name in ("after scaling", "strain", "Pearson", "Spearman", "trustworthiness", "continuity"):
        assert more.count(f"\n{name} ") == 1
    assert "Procrustes" not in more


@pytest.mark.parametrize("labels", ["labels.txt", "labels.csv", "labels.npy"])
def test_json_holds_what_python_gives(mapped, points, labels):
    found = json.loads(run("quality", "m.zarr", "--labels", labels, "--truth", "truth.npy", "--json", "--worst", 1))
    result = read_result("m.zarr")
    expected = quality("d.zarr", result.embedding, labels=mapped, truth=points)
    assert found.pop("worst_points") == [
        {"id": IDS[result.stress.point_stress.argmax()], "point_stress": expected.point_stress.max()}
    ]
    assert found == expected.as_dict()
    assert found["knn_score"] > 0.5


def test_a_sample_comes_with_intervals(mapped):
    lines = run("quality", "m.zarr", "--sample", 40, "--labels", "labels.txt", "--worst", 2).splitlines()
    assert lines[1] == f"40 of {N} rows, drawn at random; in brackets 95 % confidence intervals"
    assert sum("[" in line for line in lines) == 12
    found = json.loads(run("quality", "m.zarr", "--sample", 40, "--seed", 1, "--json"))
    assert found["rows"] == 40
    low, high = found["intervals"]["strain"]
    assert low < found["strain"] < high
    other = json.loads(run("quality", "m.zarr", "--sample", 40, "--seed", 2, "--json"))
    assert {point["id"] for point in other["worst_points"]} < set(IDS)
    assert other["strain"] != found["strain"]


def test_a_sample_has_the_rows_that_the_library_asks_for():
    assert SAMPLE_ROWS.min == MIN_SAMPLE


def test_what_cannot_be_measured_gets_a_sentence(mapped, place, points):
    (place / "fewer.txt").write_text("a\n" * (N - 1))
    (place / "one.txt").write_text("a\n" * N)
    (place / "gap.csv").write_text("class\n" + "a\n" * 5 + '""\n' + "b\n" * (N - 6))
    (place / "others.csv").write_text("".join(f"{k},a\n" for k in range(N)))
    np.save(place / "short.npy", points[1:])
    for options, words in (
        (("--labels", "fewer.txt"), "fewer.txt has 119 labels for 120 points"),
        (("--labels", "one.txt"), "labels are all a"),
        (("--labels", "gap.csv"), "gap.csv has no label for 1 points, first for point 5"),
        (("--labels", "others.csv"), "others.csv has no"),
        (("--labels", "d.zarr"), "is a directory"),
        (("--truth", "short.npy"), "truth must be finite coordinates of shape (120, 4)"),
        (("--neighbors", N // 2), "give at most 59"),
        (
            ("--sample", MIN_SAMPLE - 1),
            f"Invalid value for '--sample': {MIN_SAMPLE - 1} is not in the range x>={MIN_SAMPLE}",
        ),
        (("--json", "--compare", "smacof"), "mutually exclusive"),
    ):
        assert words in refused("quality", "m.zarr", *options)
