"""A user with some files."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from tests.cli.commands import IDS, N


@pytest.fixture(scope="session")
def points():
    return np.random.default_rng(2).normal(size=(N, 4))


@pytest.fixture
def place(tmp_path, monkeypatch, points):
    """A directory with the files of a user, and in it."""
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", points)
    np.save("square.npy", squareform(pdist(points)))
    np.save("condensed.npy", pdist(points))
    Path("ids.txt").write_text("\n".join(IDS) + "\n", encoding="utf-8")
    return tmp_path
