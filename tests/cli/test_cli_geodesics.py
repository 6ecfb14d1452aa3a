"""``--metric geodesic`` of ``psmds distances`` and ``psmds landmarks``."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from sklearn.datasets import make_swiss_roll
from sklearn.neighbors import kneighbors_graph

from landmarks.model import Model
from psmds_dist import DaskExecutor, build, open_geodesics, open_rows
from psmds_dist.data.store import open_panel
from tests.cli.commands import refused, run

N = 250


@pytest.fixture(scope="module")
def roll():
    return make_swiss_roll(N, random_state=0)[0]


@pytest.fixture(scope="module")
def paths(roll):
    return shortest_path(kneighbors_graph(roll, 8, mode="distance"), directed=False)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, roll):
    monkeypatch.chdir(tmp_path)
    np.save("roll.npy", roll)
    np.save("apart.npy", np.r_[roll, roll[:40] + 500])
    Path("names.txt").write_text("\n".join(f"p{k}" for k in range(N + 40)))


def rows_of(source):
    return source.take(np.arange(source.n))


def test_distances_writes_a_store_of_shortest_paths(paths):
    run("distances", "roll.npy", "d.zarr", "--metric", "geodesic", "--neighbors", "8", "-q")
    np.testing.assert_allclose(rows_of(open_rows("d.zarr")), paths, rtol=1e-6)
    assert "geodesic" in run("info", "d.zarr")
    run("distances", "roll.npy", "again.zarr", "--metric", "geodesic", "--neighbours", "8", "-q")
    np.testing.assert_array_equal(rows_of(open_rows("again.zarr")), rows_of(open_rows("d.zarr")))


def test_a_graph_in_parts_is_told_bridged_or_reduced():
    words = ["distances", "apart.npy", "d.zarr", "--metric", "geodesic", "--neighbors", "8", "--ids", "names.txt"]
    assert "2 parts without a path between them (of 250, 40 points)" in refused(*words)
    assert not Path("d.zarr").exists()
    run(*words, "--disconnected", "bridge", "-q")
    assert open_rows("d.zarr").n == N + 40
    run(*words, "--disconnected", "largest", "--overwrite")
    assert open_rows("d.zarr").ids == [f"p{k}" for k in range(N)]


def test_options_of_the_graph_belong_to_geodesic_distances():
    assert "require --metric geodesic" in refused("distances", "roll.npy", "d.zarr", "--neighbors", "8")
    assert "require --metric geodesic" in refused("landmarks", "fit", "roll.npy", "map", "--graph-radius", "2")
    assert "give one" in refused(
        "distances", "roll.npy", "d.zarr", "--metric=geodesic", "--neighbors=8", "--graph-radius=2"
    )
    assert "from 1 to 249" in refused("distances", "roll.npy", "d.zarr", "--metric=geodesic", "--neighbors=250")


def test_landmarks_compute_a_panel_of_shortest_paths(paths):
    words = ["--metric", "geodesic", "--neighbors", "8", "-S", "30", "-q"]
    run("landmarks", "panel", "roll.npy", "panel.zarr", *words)
    panel = open_panel("panel.zarr")
    np.testing.assert_allclose(rows_of(panel), paths[:, panel.landmarks], rtol=1e-6)
    run("landmarks", "fit", "roll.npy", "map.zarr", *words)
    run("landmarks", "fit", "panel.zarr", "same.zarr", "-q")
    assert len(Model.load("map.zarr").embedding) == len(Model.load("same.zarr").embedding) == N


@pytest.mark.slow
def test_workers_write_the_same_store(client, roll):
    run("distances", "roll.npy", "here.zarr", "--metric", "geodesic", "-q")
    check = build(open_geodesics(roll), "there.zarr", DaskExecutor(client))
    assert check.asymmetry is None
    np.testing.assert_array_equal(rows_of(open_rows("there.zarr")), rows_of(open_rows("here.zarr")))
