"""New points on an old map, and bounds on axes, on the command line."""

import json

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import read_result
from tests.cli.commands import refused, run

N, OLD = 30, 20
POINTS = np.random.default_rng(0).normal(size=(N, 2)) * [2, 1]
IDS = [f"p{k}" for k in range(N)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A matrix of old and new points with names, and the exported map of the old ones."""
    monkeypatch.chdir(tmp_path)
    t = squareform(pdist(POINTS))
    np.save("all.npy", t)
    np.save("old.npy", t[:OLD, :OLD])
    (tmp_path / "ids.txt").write_text("\n".join(IDS) + "\n")
    (tmp_path / "old.txt").write_text("\n".join(IDS[:OLD]) + "\n")
    run("fit", "old.npy", "old.zarr", "--ids", "old.txt", "--dtype", "float64", "-q")
    run("export", "old.zarr", "old.csv", "--sort")
    return tmp_path


def test_new_points_join_an_exported_map(folder):
    run("fit", "all.npy", "all.zarr", "--ids", "ids.txt", "--pinned", "old.csv", "--dtype", "float64", "-q")
    old, joined = read_result("old.zarr"), read_result("all.zarr")
    np.testing.assert_array_equal(joined.embedding[:OLD], old.embedding)
    np.testing.assert_allclose(pdist(joined.embedding), pdist(POINTS), atol=1e-4)
    assert json.loads(run("info", "all.zarr", "--json"))["pinned_coordinates"] == 2 * OLD


def test_single_coordinates_are_pinned_and_axes_bounded(folder):
    rows = np.column_stack([np.full(N, np.nan), POINTS[:, 1]])
    np.save("rows.npy", rows)
    run("fit", "all.npy", "a.zarr", "--pinned", "rows.npy", "--bounds", "-9:", "--bounds", ":5.5", "-q")
    found = read_result("a.zarr").embedding
    np.testing.assert_array_equal(found[:, 1], POINTS[:, 1])
    assert found[:, 0].min() >= -9
    run("fit", "all.npy", "b.zarr", "--bounds", "0:", "-q")
    assert read_result("b.zarr").embedding.min() >= 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--bounds", "3"], "'3' is not LOW:HIGH, such as -1:1, or 0: for no upper bound"),
        (["--bounds", "3:1"], "bounds must have the lower one first"),
        (["--pinned", "old.csv"], "old.csv has coordinates of 20 points that the matrix does not name, first 'p"),
        (["--pinned", "old.csv", "--ids", "ids.txt", "-L", 3], r"pinned must be coordinates of shape (30, 3)"),
        (["--pinned", "old.npy"], "pinned must be coordinates of shape (30, 2)"),
        (["--bounds", "0:", "--moves", "guided"], "leave moves='guided' (--moves guided) out"),
    ],
)
def test_what_cannot_be_pinned_gets_a_sentence(folder, arguments, sentence):
    assert sentence in refused("fit", "all.npy", "no.zarr", *arguments)
    assert not (folder / "no.zarr").exists()
