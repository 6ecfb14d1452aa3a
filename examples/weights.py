"""Weigh pairs: Sammon's mapping, which cares for small dissimilarities, and known errors of measurement.

Give the path of a picture to save it.
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_digits

from psmds_dist import PatternSearchMDS


def sammon_stress(matrix: np.ndarray, embedding: np.ndarray) -> float:
    """Stress of Sammon (1969): sum of (t - d)^2 / t over pairs, as a share of the sum of t."""
    t, d = squareform(matrix, checks=False), pdist(embedding)
    return float(np.sum((t - d) ** 2 / t) / t.sum())


def draw(path: str, maps: dict[str, np.ndarray], labels: np.ndarray) -> None:
    """Draw maps side by side."""
    figure = Figure(figsize=(6 * len(maps), 6), layout="constrained")
    for axes, (title, embedding) in zip(figure.subplots(1, len(maps)), maps.items(), strict=True):
        axes.scatter(*embedding.T, c=labels, cmap="tab10", s=12)
        axes.set_title(title)
    figure.savefig(path)


def main(picture: str = "") -> None:
    digits = load_digits()
    matrix = squareform(pdist(digits.data[:200]))
    plain = PatternSearchMDS(random_state=0).fit(matrix)
    sammon = PatternSearchMDS(random_state=0, weight_power=-1).fit(matrix)
    stress = [sammon_stress(matrix, mds.embedding_) for mds in (plain, sammon)]
    print(f"Sammon's stress, plain and weighted by 1/t: {stress[0]:.4f}, {stress[1]:.4f}")
    print(f"normalized stress with these weights: {sammon.normalized_stress_:.4f}")
    print(f"the mapping of Sammon is better by its own measure: {stress[1] < stress[0]}")
    if picture:
        draw(picture, {"all pairs alike": plain.embedding_, "weighted by 1/t": sammon.embedding_}, digits.target[:200])

    random = np.random.default_rng(0)
    points = random.random((100, 2))
    error = squareform(random.choice([0.01, 0.3], size=100 * 99 // 2))  # half of the pairs are measured badly
    measured = np.abs(squareform(pdist(points)) + error * squareform(random.normal(size=100 * 99 // 2)))
    np.fill_diagonal(error, 1)
    trusting = PatternSearchMDS(random_state=0).fit(measured)
    weighing = PatternSearchMDS(random_state=0).fit(measured, weights=1 / error**2)
    misfits = [procrustes(points, mds.embedding_)[2] for mds in (trusting, weighing)]
    print(f"squared misfit to the true points, without and with weights: {misfits[0]:.5f}, {misfits[1]:.5f}")
    print(f"weights of one over the variance take away nine tenths of it: {misfits[1] < 0.1 * misfits[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
