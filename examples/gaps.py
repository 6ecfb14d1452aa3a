"""Embed a matrix of which a third of the pairs are missing, and a list of known pairs; draw the map of the first.

Give the path of a picture to save it.
"""

import sys
import warnings

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import procrustes

from psmds_dist import DissimilarityWarning, InputError, PatternSearchMDS, open_pairs


def with_gaps(points: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """Distances between points, without a share of the pairs."""
    matrix = np.linalg.norm(points[:, None] - points[None], axis=2)
    missing = np.triu(random.random(matrix.shape) < share, 1)
    matrix[missing | missing.T] = np.nan
    return matrix


def fit(matrix: object, **parameters: object) -> PatternSearchMDS:
    """Fit, and print what is told about the matrix."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", DissimilarityWarning)
        mds = PatternSearchMDS(random_state=0, dtype="float64", **parameters).fit(matrix)
    for note in notes:
        print(f"note: {note.message}")
    return mds


def draw(path: str, points: np.ndarray, mds: PatternSearchMDS) -> None:
    """Draw the true points, and the map turned onto them."""
    true, found, _ = procrustes(points, mds.embedding_)
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    axes.scatter(*true.T, s=60, facecolors="none", edgecolors="tab:grey", label="true place")
    axes.scatter(*found.T, s=10, color="tab:blue", label="place on the map")
    axes.set_title(f"{mds.n_known_pairs_:,} of {len(points) * (len(points) - 1) // 2:,} pairs known")
    axes.legend()
    figure.savefig(path)


def main(picture: str = "") -> None:
    random = np.random.default_rng(0)
    points = random.random((120, 2))
    mds = fit(with_gaps(points, 0.3, random))
    print(f"recovered to 1e-6: {procrustes(points, mds.embedding_)[2] < 1e-6}")
    if picture:
        draw(picture, points, mds)

    i, j = np.triu_indices(len(points), 1)
    known = random.random(i.size) < 0.2
    t = np.linalg.norm(points[i[known]] - points[j[known]], axis=1)
    listed = fit(open_pairs((i[known], j[known], t), dtype="float64"))
    print(f"recovered from a list of a fifth of the pairs: {procrustes(points, listed.embedding_)[2] < 1e-6}")

    apart = with_gaps(points, 0.0, random)
    apart[:100, 100:] = apart[100:, :100] = np.nan
    try:
        fit(apart)
    except InputError as error:
        print(f"refused: {error}")
    print(f"points of the largest component: {len(fit(apart, disconnected='largest').ids_)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
