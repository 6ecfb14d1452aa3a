"""Put new samples on an old map, whose points stay where they are; then use a known quantity as an axis.

Give the path of a picture to save it.
"""

import sys

import numpy as np
import pandas
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.datasets import load_digits

from psmds_dist import PatternSearchMDS

OLD, NEW = 250, 50


def hits(embedding: np.ndarray, labels: np.ndarray) -> float:
    """Share of the new samples whose nearest old sample on a map shows the same digit."""
    nearest = cdist(embedding[OLD:], embedding[:OLD]).argmin(axis=1)
    return float(np.mean(labels[nearest] == labels[OLD:]))


def draw(path: str, embedding: np.ndarray, labels: np.ndarray) -> None:
    """Draw old samples as dots and new ones as their digits."""
    figure = Figure(figsize=(7, 7), layout="constrained")
    axes = figure.subplots()
    axes.scatter(*embedding[:OLD].T, c=labels[:OLD], cmap="tab10", s=15, alpha=0.5)
    for place, digit in zip(embedding[OLD:], labels[OLD:], strict=True):
        axes.annotate(str(digit), place, color=f"C{digit}", weight="bold", ha="center", va="center")
    axes.set_title(f"{NEW} new samples (digits) on the map of {OLD} old ones (dots)")
    figure.savefig(path)


def main(picture: str = "") -> None:
    digits = load_digits()
    labels = digits.target[: OLD + NEW]
    names = [f"sample {k}" for k in range(OLD + NEW)]
    matrix = pandas.DataFrame(squareform(pdist(digits.data[: OLD + NEW])), names, names)

    old = PatternSearchMDS(random_state=0).fit(matrix.iloc[:OLD, :OLD])
    on_old_map = pandas.DataFrame(old.embedding_, old.ids_)
    mds = PatternSearchMDS(random_state=0).fit(matrix, pinned=on_old_map.reindex(names))  # NaN where it has no row
    print(f"old samples stay to the last bit: {np.array_equal(mds.embedding_[:OLD], old.embedding_)}")
    again = PatternSearchMDS(random_state=0).fit(matrix)
    print(f"normalized stress, with old samples pinned and free: {mds.normalized_stress_:.4f}, ", end="")
    print(f"{again.normalized_stress_:.4f}")
    shares = [hits(found.embedding_, labels) for found in (mds, again)]
    print(f"new samples whose nearest old one shows their digit: {shares[0]:.0%}, {shares[1]:.0%}")
    print(f"new samples are as well off on the old map: {shares[0] > shares[1] - 0.1}")
    if picture:
        draw(picture, mds.embedding_, labels)

    random = np.random.default_rng(0)
    places = random.random((100, 2)) * [5, 1]  # sampled along a shore: the first coordinate is known
    apart = squareform(np.abs(pdist(places) + random.normal(scale=0.05, size=100 * 99 // 2)))
    along = PatternSearchMDS(random_state=0).fit(apart, pinned=np.column_stack([places[:, 0], np.full(100, np.nan)]))
    correlation = abs(np.corrcoef(along.embedding_[:, 1], places[:, 1])[0, 1])
    print(f"the other axis is found from one that is given: {correlation > 0.99}")

    inside = PatternSearchMDS(random_state=0, bounds=(0, None)).fit(apart)
    print(f"no coordinate is negative: {inside.embedding_.min() >= 0}")


if __name__ == "__main__":
    main(*sys.argv[1:])
