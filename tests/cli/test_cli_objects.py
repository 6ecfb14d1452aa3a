"""``--metric package.module.function`` of ``psmds distances`` and ``psmds landmarks``."""

from pathlib import Path

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist as all_pairs

from landmarks.model import Model
from psmds_dist import open_rows
from tests.cli.commands import refused, run

LEVENSHTEIN = "rapidfuzz.distance.Levenshtein.distance"
LINES = [f"{k * k:b}x{k % 7}" for k in range(90)]
OWN = "own_metric_of_the_user.lengths"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("strings.txt").write_text("\n".join(LINES) + "\n")
    Path("again.txt").write_text("\n".join([*LINES, LINES[0]]))
    Path("own_metric_of_the_user.py").write_text("def lengths(a, b):\n    return abs(len(a) - len(b))\n")
    np.save("points.npy", np.random.default_rng(0).random((50, 3)))


def rows_of(path):
    source = open_rows(path)
    return source.take(np.arange(source.n))


def edits(lines):
    return all_pairs(lines, lines, scorer=Levenshtein.distance)


def test_distances_compares_lines_of_text():
    run("distances", "strings.txt", "d.zarr", "--metric", LEVENSHTEIN)
    np.testing.assert_array_equal(rows_of("d.zarr"), edits(LINES))
    assert open_rows("d.zarr").ids == LINES
    assert LEVENSHTEIN in run("info", "d.zarr")


def test_lines_that_repeat_have_no_names_unless_a_file_gives_them():
    run("distances", "again.txt", "d.zarr", "--metric", LEVENSHTEIN, "-q")
    assert open_rows("d.zarr").ids is None
    Path("names.txt").write_text("\n".join(f"p{k}" for k in range(91)))
    run("distances", "again.txt", "named.zarr", "--metric", LEVENSHTEIN, "--ids", "names.txt", "-q")
    assert open_rows("named.zarr").ids[90] == "p90"


def test_a_function_may_lie_in_the_working_directory():
    run("distances", "strings.txt", "d.zarr", "--metric", OWN, "-q")
    np.testing.assert_array_equal(rows_of("d.zarr"), [[abs(len(a) - len(b)) for b in LINES] for a in LINES])


def test_a_function_may_compare_rows_of_numbers():
    run("distances", "points.npy", "d.zarr", "--metric", "scipy.spatial.distance.cityblock", "-q")
    run("distances", "points.npy", "expected.zarr", "--metric", "cityblock", "-q")
    np.testing.assert_allclose(rows_of("d.zarr"), rows_of("expected.zarr"), rtol=1e-6)


def test_landmarks_of_lines():
    run("distances", "strings.txt", "d.zarr", "--metric", LEVENSHTEIN, "-q")
    run("landmarks", "fit", "d.zarr", "expected.zarr", "-S", "20", "-q")
    run("landmarks", "fit", "strings.txt", "map.zarr", "--metric", LEVENSHTEIN, "-S", "20", "-q")
    found, expected = Model.load("map.zarr"), Model.load("expected.zarr")
    np.testing.assert_array_equal(found.embedding, expected.embedding)
    assert found.ids == LINES
    assert "does not record where its dissimilarities are" in refused("quality", "map.zarr")
    assert "normalized stress" in run("quality", "map.zarr", "--matrix", "d.zarr")


def test_what_cannot_be_compared_is_refused():
    assert "pip install" not in refused("distances", "strings.txt", "d.zarr", "--metric", "no_such.metric")
    assert "--metric package.module.function" in refused("distances", "strings.txt", "d.zarr")
    assert "raises TypeError" in refused("distances", "points.npy", "d.zarr", "--metric", "math.hypot")
    assert not Path("d.zarr").exists()


@pytest.mark.slow
@pytest.mark.wide
def test_workers_import_it_themselves():
    run("distances", "strings.txt", "d.zarr", "--metric", OWN, "--workers", "2", "-q")
    np.testing.assert_array_equal(rows_of("d.zarr"), [[abs(len(a) - len(b)) for b in LINES] for a in LINES])
