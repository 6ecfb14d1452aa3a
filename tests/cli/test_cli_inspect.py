"""``psmds info``, ``psmds quality`` and ``psmds export``."""

import re

import numpy as np

from tests.cli.commands import refused, run


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
