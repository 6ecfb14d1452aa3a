"""Map a table of titres between viruses and sera, with missing and censored values, as antigenic cartography does.

Give the path of a picture to save it.
"""

import sys
import warnings
from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist

from psmds_dist import DissimilarityWarning, PatternSearchMDS, unfold


def made_up_table(random: np.random.Generator, viruses: int, sera: int) -> tuple[np.ndarray, ...]:
    """Places of viruses and sera that drift over the years, and lower and upper bounds of their distances.

    A titre falls by one twofold dilution per unit of distance from the best titre of its serum. Dilutions are whole
    numbers, titres below 10 are told as "<10", and few viruses are tested against sera of other years.
    """
    years = np.concatenate([random.uniform(0, 18, viruses), random.uniform(0, 18, sera)])
    places = np.column_stack([years, 3 * np.sin(years / 3)]) + random.normal(scale=1.2, size=(viruses + sera, 2))
    apart = cdist(places[:viruses], places[viruses:])
    titres = np.round(random.uniform(7, 9, sera) - apart + random.normal(scale=0.6, size=apart.shape))  # log2(t / 10)
    gap = np.abs(years[:viruses, None] - years[viruses:])
    tested = random.random(apart.shape) < np.where(gap < 8, 0.45, 0.15)
    best = np.max(np.where(tested, titres, 0), axis=0)
    lower = np.where(tested, best - np.maximum(titres, -1), np.nan)
    upper = np.where(tested & (titres < 0), np.inf, lower)
    return places, lower, upper


def cost(lower: np.ndarray, upper: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum of squared distances from the nearer bound, over known pairs, and its derivatives."""
    viruses, sera = np.nonzero(~np.isnan(lower))
    steps = x[viruses] - x[len(lower) + sera]
    d = np.linalg.norm(steps, axis=1)
    residuals = d - np.clip(d, lower[viruses, sera], upper[viruses, sera])
    pulls = 2 * (residuals / np.maximum(d, 1e-12))[:, None] * steps
    points = np.concatenate([viruses, len(lower) + sera])
    gradient = [np.bincount(points, np.concatenate([pull, -pull]), len(x)) for pull in pulls.T]
    return float(residuals @ residuals), np.column_stack(gradient)


def best_of_scipy(lower: np.ndarray, upper: np.ndarray, starts: Iterable[np.ndarray]) -> float:
    """Least cost that L-BFGS finds from some starts."""

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        error, gradient = cost(lower, upper, z.reshape(-1, 2))
        return error, gradient.ravel()

    options = {"maxiter": 3000, "maxfun": 5000}
    return min(minimize(value, x.ravel(), jac=True, method="L-BFGS-B", options=options).fun for x in starts)


def fit(lower: np.ndarray, upper: np.ndarray) -> PatternSearchMDS:
    """Map both kinds of points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)  # pairs of one kind are missing, as they must be
        mds = PatternSearchMDS(random_state=0, dtype="float64")
        return mds.fit(unfold(lower, dtype="float64"), upper=unfold(upper, dtype="float64"))


def draw(path: str, places: np.ndarray, embedding: np.ndarray, viruses: int) -> None:
    """Draw the map, turned onto the true places, beside these."""
    true, found, _ = procrustes(places, embedding)
    figure = Figure(figsize=(10, 5), layout="constrained")
    for axes, x, title in zip(figure.subplots(1, 2), (true, found), ("true places", "map of the titres"), strict=True):
        axes.scatter(*x[:viruses].T, s=12, label="viruses")
        axes.scatter(*x[viruses:].T, s=25, facecolors="none", edgecolors="tab:red", marker="s", label="sera")
        axes.set_title(title)
        axes.set_aspect("equal")
        axes.legend()
    figure.savefig(path)


def main(picture: str = "") -> None:
    random = np.random.default_rng(0)
    places, lower, upper = made_up_table(random, 273, 79)
    known, censored = ~np.isnan(lower), np.isinf(upper)
    print(f"{known.mean():.0%} of the titres known, {censored[known].mean():.0%} of them below 10")
    mds = fit(lower, upper)
    error, _ = cost(lower, upper, mds.embedding_)
    print(f"root mean square misfit: {np.sqrt(error / known.sum()):.2f} dilutions")
    print(f"squared misfit to the true places below 0.03: {procrustes(places, mds.embedding_)[2] < 0.03}")
    other = best_of_scipy(lower, upper, 10 * random.normal(size=(3, *places.shape)))
    print(f"no worse than L-BFGS from three random starts: {error <= 1.01 * other}")
    if picture:
        draw(picture, places, mds.embedding_, len(lower))


if __name__ == "__main__":
    main(*sys.argv[1:])
