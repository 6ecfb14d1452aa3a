"""Distances that many tests use."""

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_digits


def digit_distances(order: str) -> np.ndarray:
    """Distances between 1,200 handwritten digits, sorted by class or shuffled."""
    digits = load_digits()
    chosen = np.random.default_rng(0).permutation(len(digits.target))[:1200]
    if order == "sorted":
        chosen = chosen[np.argsort(digits.target[chosen], kind="stable")]
    return squareform(pdist(digits.data[chosen])).astype(np.float32)
