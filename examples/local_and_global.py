"""Near distances against the whole: what a map keeps of each along the dial ``local``.

Give the path of a picture to save it.
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_digits

from psmds_dist import PatternSearchMDS, quality

SHARES = (0, 0.02, 0.1, 0.3, 0.6, 0.9)
NEIGHBORS = 10


def near_stress(matrix: np.ndarray, embedding: np.ndarray) -> float:
    """Normalized stress of the pairs of each point and its nearest ones alone."""
    nearest = np.argsort(matrix, axis=1, kind="stable")[:, 1 : NEIGHBORS + 1]
    t, d = (np.take_along_axis(given, nearest, axis=1) for given in (matrix, squareform(pdist(embedding))))
    return float(np.sqrt(np.sum((t - d) ** 2) / np.sum(t**2)))


def kept(matrix: np.ndarray, embedding: np.ndarray) -> tuple[float, float, float, float]:
    """Stress of all pairs and of near ones, trustworthiness and continuity."""
    found = quality(matrix, embedding, n_neighbors=NEIGHBORS)
    return found.normalized_stress, near_stress(matrix, embedding), found.trustworthiness, found.continuity


def draw(path: str, maps: list[np.ndarray], table: np.ndarray, labels: np.ndarray) -> None:
    """Draw the first, a middle and the last map, and the figures along the dial."""
    figure = Figure(figsize=(16, 4), layout="constrained")
    *places, curves = figure.subplots(1, 4)
    for axes, k in zip(places, (0, 3, 5), strict=True):
        axes.scatter(*maps[k].T, c=labels, cmap="tab10", s=10)
        axes.set_title(f"local={SHARES[k]:g}")
        axes.set_aspect("equal")
    names = ("stress, all pairs", "stress, near pairs", "trustworthiness", "continuity")
    for name, column in zip(names, table.T, strict=True):
        curves.plot(SHARES, column, marker="o", label=name)
    curves.set_xlabel("local")
    curves.legend()
    figure.savefig(path)


def main(picture: str = "") -> None:
    digits = load_digits()
    matrix = squareform(pdist(digits.data[:300]))
    maps = [
        PatternSearchMDS(random_state=0, local=share, local_neighbors=NEIGHBORS).fit_transform(matrix)
        for share in SHARES
    ]
    table = np.array([kept(matrix, embedding) for embedding in maps])
    print("local   stress of all pairs   of near pairs   trustworthiness   continuity")
    for share, (whole, near, trust, continuity) in zip(SHARES, table, strict=True):
        print(f"{share:5g}   {whole:19.4f}   {near:13.4f}   {trust:15.4f}   {continuity:10.4f}")
    steps = np.diff(table, axis=0)
    print(f"near distances are kept better with every step, all of them worse: {(steps[:, :2] * [1, -1] > 0).all()}")
    print(f"the stress of near pairs is less than half of what it was: {table[-1, 1] < 0.5 * table[0, 1]}")
    print(f"which points are near is kept best by the whole: {(table[0, 2:] > table[1:, 2:]).all()}")
    if picture:
        draw(picture, maps, table, digits.target[:300])


if __name__ == "__main__":
    main(*sys.argv[1:])
