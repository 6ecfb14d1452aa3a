"""Embed a small matrix in memory, see how its starts agree, and list the points that fit worst."""

import numpy as np
from sklearn.datasets import load_digits

from psmds_dist import PatternSearchMDS


def dissimilarities() -> tuple[np.ndarray, list[str]]:
    """Distances between the mean images of forty sets of handwritten digits, in place of ratings."""
    digits = load_digits()
    random = np.random.default_rng(0)
    images, names = [], []
    for digit in range(10):
        of_digit = random.permutation(np.flatnonzero(digits.target == digit))
        for part in range(4):
            images.append(digits.data[of_digit[part::4]].mean(axis=0))
            names.append(f"{digit}{'abcd'[part]}")
    images = np.array(images)
    return np.linalg.norm(images[:, None] - images[None], axis=2), names


def main() -> None:
    matrix, names = dissimilarities()
    best = PatternSearchMDS(n_components=2, random_state=0).fit(matrix)
    print(f"normalized stress {best.normalized_stress_:.4f}, Stress-1 {best.stress1_:.4f}: {best.evidence_.describe()}")
    print("worst points:", ", ".join(names[k] for k in np.argsort(-best.point_stress_)[:3]))
    nearest = np.linalg.norm(best.embedding_[:, None] - best.embedding_[None], axis=2)
    np.fill_diagonal(nearest, np.inf)
    hits = np.mean([names[k][0] == names[j][0] for k, j in enumerate(nearest.argmin(axis=1))])
    print(f"nearest neighbour on the map shows the same digit: {hits:.0%}")


if __name__ == "__main__":
    main()
