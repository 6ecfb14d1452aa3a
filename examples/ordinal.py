"""Embed dissimilarities of which only the order is known, and ratings from 1 to 7; draw a Shepard diagram.

Give the path of a picture to save it.
"""

import sys

import numpy as np
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, plot


def fit(t: np.ndarray, **parameters: object) -> PatternSearchMDS:
    """Fit a condensed matrix from one start."""
    return PatternSearchMDS(random_state=0, n_init=1, **parameters).fit(squareform(t))


def main(picture: str = "") -> None:
    random = np.random.default_rng(0)
    points = random.random((80, 2))
    distances = pdist(points)

    bent = fit(np.exp(4 * distances), transformation="ordinal")
    print(f"Stress-1 of a map from the order alone: {bent.stress1_:.4f}")
    print(f"recovered from the order alone: {procrustes(points, bent.embedding_)[2] < 1e-3}")

    seen = distances + random.normal(0, 0.03, distances.size)
    ratings = 1.0 + np.digitize(seen, np.quantile(seen, [0.02, 0.05, 0.1, 0.18, 0.3, 0.5]))
    maps = {
        "metric scaling": fit(ratings),
        "interval": fit(ratings, transformation="interval"),
        "ordinal, equal ratings are equal": fit(ratings, transformation="ordinal", ties="secondary"),
        "ordinal, equal ratings may differ": fit(ratings, transformation="ordinal", ties="primary"),
    }
    misfit = {name: procrustes(points, mds.embedding_)[2] for name, mds in maps.items()}
    for name, mds in maps.items():
        print(f"{name:34} Stress-1 {mds.stress1_:.4f}   difference from the true map {misfit[name]:.5f}")
    primary = maps["ordinal, equal ratings may differ"]
    print("distances of each rating:")
    for rating, low, high in primary.disparities_:
        print(f"  {rating:.0f}: {low:.2f} to {high:.2f}")
    better = misfit["ordinal, equal ratings may differ"] < misfit["metric scaling"] / 2
    print(f"recovered from seven ratings, better than by metric scaling: {better}")
    if picture:
        plot(primary, kind="shepard", X=squareform(ratings)).savefig(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
