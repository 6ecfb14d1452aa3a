"""``psmds plot``."""

import numpy as np
import pytest
from matplotlib.image import imread

from tests.cli.commands import IDS, refused, run


@pytest.fixture
def mapped(place, points):
    """Two maps of a matrix, coordinates of another program, and classes."""
    run("ingest", "square.npy", "d.zarr", "--ids", "ids.txt", "-q")
    for name, seed in (("m.zarr", 0), ("other.zarr", 1)):
        run("fit", "d.zarr", name, "--init", "random", "--seed", seed, "--max-epochs", 3, "-q")
    run("export", "m.zarr", "m.csv")
    lines = [f'"{name}",{"yes" if value > 0 else "no"}' for name, value in zip(IDS, points[:, 0], strict=True)]
    (place / "labels.csv").write_text("\n".join(lines[::-1]), encoding="utf-8")
    return place


def drawn(path):
    pixels = (imread(path) * 255).astype(np.uint8).view(np.uint32)  # a number for each color sorts fast
    return len(np.unique(pixels)) > 10


def test_pictures_of_every_kind(mapped):
    for kind in ("stress", "convergence"):
        assert run("plot", "m.zarr", f"{kind}.png", "--kind", kind) == f"{kind}.png: {kind} of m.zarr\n"
        assert drawn(mapped / f"{kind}.png")
    run("plot", "m.zarr", "m.csv", "other.zarr", "row.png", "--color", "labels.csv", "--title", "three maps")
    assert drawn(mapped / "row.png")
    run("plot", "m.csv", "pairs.png", "--kind", "shepard", "--matrix", "d.zarr", "--sample", 30)
    assert drawn(mapped / "pairs.png")


def test_what_cannot_be_drawn_gets_a_sentence(mapped):
    run("plot", "m.zarr", "map.png")
    (mapped / "few.txt").write_text("a\nb\n")
    for arguments, words in (
        (("m.zarr", "map.png"), "map.png already exists; choose another path or use --overwrite"),
        (("m.zarr", "few.txt"), "the name must end in"),
        (("m.zarr",), "Missing argument 'RESULTS...'"),
        (("m.zarr", "no/such/map.png"), "its directory does not exist"),
        (("m.zarr", "m.zarr/map.png"), "m.zarr"),
        (("nowhere.zarr", "a.png"), "'nowhere.zarr' does not exist"),
        (("d.zarr", "a.png"), "d.zarr"),
        (("m.csv", "a.png", "--kind", "convergence"), "m has no epochs to draw"),
        (("m.csv", "a.png", "--kind", "stress"), "the stress of the points of m is not known"),
        (("m.csv", "a.png", "--kind", "shepard"), "give them (X= in Python, --matrix)"),
        (("m.zarr", "a.png", "--color", "few.txt"), "few.txt has 2 labels for 120 points"),
    ):
        assert words in refused("plot", *arguments)
    assert not (mapped / "a.png").exists()
    run("plot", "m.zarr", "map.png", "--overwrite")
