"""``psmds dimensions``."""

from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist, squareform

from tests.cli.commands import refused, run

QUICK = ("--starts", 3, "--max", 3, "--sample", 30)


def test_the_curves_are_printed_drawn_and_written(place, points, monkeypatch):
    monkeypatch.setattr("psmds_dist.api.dimensions.FIRST_DIMS", 1)
    np.save("plane.npy", squareform(pdist(points[:60, :2])))
    printed = run("dimensions", "plane.npy", *QUICK, "--plot", "c.png", "--csv", "c.csv")
    first, _, head, *rows, explained, more, _, sentence = printed.splitlines()
    assert "gain: share of the stress that a dimension removes; shuffled: " in explained
    assert "the last column" in more
    assert first == "30 of 60 points, drawn at random (seed 0); 3 starts and 3 shuffles"
    assert head.split()[:5] == ["L", "stress", "lowest", "highest", "shuffled"]
    table = np.genfromtxt("c.csv", delimiter=",", names=True)
    assert [row.split()[1] for row in rows] == [f"{stress:.4f}" for stress in table["stress"]]
    assert "up to L = 2, where it is 0.000" in sentence
    assert sentence.endswith(".")
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")


def test_files_that_cannot_be_written_are_refused_before_the_work(place):
    Path("c.csv").write_text("mine")
    assert "c.csv already exists" in refused("dimensions", "square.npy", "--csv", "c.csv")
    assert "must end in .csv or .tsv" in refused("dimensions", "square.npy", "--csv", "c.txt")
    assert "the name must end in" in refused("dimensions", "square.npy", "--plot", "c.txt")
    assert "nowhere.npy does not exist" in refused("dimensions", "nowhere.npy")
    assert "--max" in refused("dimensions", "square.npy", "--max", 0)
    assert "or give a smaller sample" in refused("dimensions", "square.npy", "--memory-limit", "50 kB")
    assert Path("c.csv").read_text() == "mine"
