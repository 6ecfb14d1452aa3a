"""Non-metric scaling on the command line."""

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from psmds_dist import read_result
from psmds_dist.cli.app import main

POINTS = np.random.default_rng(0).random((40, 2))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A matrix of which the order is right."""
    monkeypatch.chdir(tmp_path)
    np.save("cubes.npy", squareform(pdist(POINTS) ** 3))


def run(*arguments, code=0):
    ended = CliRunner().invoke(main, list(map(str, arguments)))
    assert ended.exit_code == code, ended.output + repr(ended.exception)
    return ended.output


def test_an_ordinal_map_is_fitted_measured_and_drawn(folder):
    told = run("fit", "cubes.npy", "map.zarr", "--transformation", "ordinal", "--ties", "secondary", "--starts", 1)
    assert "Here t are disparities: ordinal transformation, secondary treatment of ties." in told
    found = read_result("map.zarr")
    assert procrustes(POINTS, found.embedding)[2] < 1e-3
    assert found.disparities.shape == (2, 780)
    assert (np.diff(found.disparities) >= 0).all()
    assert found.attributes["rule"]["transformation"] == "ordinal"
    measured = run("quality", "map.zarr")
    assert "Here t are disparities" in measured
    assert f"Stress-1           {found.stress.stress1:.6f}" in measured
    told = run("quality", "map.zarr", "-k", 5)
    assert "Left out, as dissimilarities are transformed:\nafter scaling, strain, Pearson" in told
    assert "psmds quality --matrix MATRIX MAP.csv" in told
    assert "ordinal" in run("info", "map.zarr")
    run("plot", "map.zarr", "shepard.png", "--kind", "shepard")


def test_what_does_not_go_together_is_refused(folder):
    told = run("fit", "cubes.npy", "map.zarr", "--transformation", "ordinal", "--loss", "huber", code=1)
    assert "is for the squared error of pairs that count alike" in told
    assert "transformation must be one of" in run("fit", "cubes.npy", "map.zarr", "--transformation", "rank", code=1)
