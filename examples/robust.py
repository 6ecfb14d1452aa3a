"""Recover points although one dissimilarity in twenty is garbage, by losses under which that does little harm.

Give the path of a picture to save it.
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS

LOSSES = ("squared", "huber", "absolute")


def spoilt(points: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Distances with noise of 1 %, of which one in twenty is replaced by any number up to the largest."""
    t = pdist(points) * random.normal(1, 0.01, size=len(points) * (len(points) - 1) // 2)
    garbage = random.random(t.size) < 0.05
    t[garbage] = random.uniform(0, t.max(), garbage.sum())
    return squareform(t)


def draw(path: str, points: np.ndarray, maps: list[np.ndarray]) -> None:
    """Draw each map, turned onto the true points."""
    figure = Figure(figsize=(5 * len(maps), 5), layout="constrained")
    for axes, loss, embedding in zip(figure.subplots(1, len(maps)), LOSSES, maps, strict=True):
        true, found, misfit = procrustes(points, embedding)
        axes.scatter(*true.T, s=50, facecolors="none", edgecolors="tab:grey")
        axes.scatter(*found.T, s=10, color="tab:blue")
        axes.set_title(f"{loss}: squared misfit {misfit:.1e}")
    figure.savefig(path)


def main(picture: str = "") -> None:
    random = np.random.default_rng(0)
    points = random.random((80, 2))
    matrix = spoilt(points, random)
    maps = [PatternSearchMDS(random_state=0, loss=loss).fit_transform(matrix) for loss in LOSSES]
    misfits = [procrustes(points, embedding)[2] for embedding in maps]
    for loss, misfit in zip(LOSSES, misfits, strict=True):
        print(f"{loss:8} loss: squared misfit to the true points {misfit:.2e}")
    print(f"robust losses take away nine tenths of it: {max(misfits[1:]) < 0.1 * misfits[0]}")
    if picture:
        draw(picture, points, maps)


if __name__ == "__main__":
    main(*sys.argv[1:])
