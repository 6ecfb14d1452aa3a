"""What maps are judged by."""

from __future__ import annotations

import numpy as np
from methods import Problem
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform

Cell = dict[str, float]

LINE = 3
"""Label of the points on the line that joins the clusters."""


def stress(given: Problem, found: np.ndarray) -> Cell:
    """Normalized stress, and that of the map in its best scale, which LLE and SVD leave open.

    The first is ``sqrt(sum (t - d)^2 / sum t^2)``, the second ``sqrt(1 - (sum t d)^2 / (sum t^2 sum d^2))``.
    """
    t, d = squareform(given.distances, checks=False), pdist(found)
    cosine = (t @ d) / np.sqrt((t @ t) * (d @ d))
    return {
        "stress": float(np.sqrt(((t - d) ** 2).sum() / (t @ t))),
        "scaled_stress": float(np.sqrt(max(0.0, 1 - cosine**2))),
    }


def to_truth(truth: np.ndarray, found: np.ndarray) -> Cell:
    """Procrustes disparity to true coordinates (0 same, 1 unrelated), and what an affine map of the map leaves."""
    _, _, disparity = procrustes(truth, found)
    centred = truth - truth.mean(axis=0)
    design = np.column_stack([found, np.ones(len(found))])
    rest = centred - design @ np.linalg.lstsq(design, centred, rcond=None)[0]
    return {"procrustes": float(disparity), "affine": float((rest**2).sum() / (centred**2).sum())}


def same_label(labels: np.ndarray, found: np.ndarray) -> Cell:
    """Share of the points in clusters whose nearest one on the map has the same label; 3 is the line between them."""
    labels, found = labels[labels < LINE], found[labels < LINE]
    distances = squareform(pdist(found))
    np.fill_diagonal(distances, np.inf)
    return {"same_label": float(np.mean(labels[distances.argmin(axis=1)] == labels))}


def of_shape(given: Problem, found: np.ndarray) -> Cell:
    """All that can be measured of the map of a shape."""
    truth = {} if given.truth is None else to_truth(given.truth, found)
    labels = {} if given.labels is None else same_label(given.labels, found)
    return {**stress(given, found), **truth, **labels}
