"""Draw the map at the top of README; ``make picture`` runs it."""

import sys

import matplotlib
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances

from psmds_dist import PatternSearchMDS

COLORS = matplotlib.colormaps["tab10"].colors


def main(path: str) -> None:
    """Embed the handwritten digits of scikit-learn with the defaults and plot them, one color per digit."""
    images, digits = load_digits(return_X_y=True)
    mds = PatternSearchMDS(random_state=0).fit(pairwise_distances(images))
    axes = (figure := Figure(figsize=(5.6, 4.4), layout="constrained")).subplots()
    for digit, color in enumerate(COLORS):
        x, y = mds.embedding_[digits == digit].T
        axes.scatter(x, y, s=9, linewidths=0, color=color, alpha=0.8, label=str(digit))
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_title(f"{len(digits):,} handwritten digits, normalized stress {mds.normalized_stress_:.3f}")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=2)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
