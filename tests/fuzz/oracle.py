"""Expected outcome of a case, computed without the package: NumPy in extended precision, and SciPy."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform


class Verdict(enum.Enum):
    """Expected outcome of an input."""

    RIGHT = "right"
    REFUSED = "refused"
    EITHER = "either"
    """Correct or refused: at the limits of floating point either is accepted."""


def worse(*verdicts: Verdict) -> Verdict:
    """Verdict on input with several problems."""
    order = [Verdict.REFUSED, Verdict.EITHER, Verdict.RIGHT]
    return min(verdicts, key=order.index)


COMFORT = {"float32": (1e-30, 1e36), "float64": (1e-140, 1e140)}
"""Root mean squares and largest values that must not be refused because of their size."""


def on_matrix(array: Any, rows: str, n_components: int = 2) -> Verdict:
    """Verdict on dissimilarities that are read as data type ``rows``."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        return Verdict.REFUSED
    square = squared(array)
    if square is None or len(square) < 3 or len(square) <= n_components:
        return Verdict.REFUSED
    known = ~np.isnan(square)
    np.fill_diagonal(known, False)
    square = np.where(np.isnan(square), 0, square)
    return worse(_on_gaps(known), _on_entries(square, known), _on_symmetry(square), _on_size(square, rows))


def _on_gaps(known: np.ndarray) -> Verdict:
    """Missing pairs are missing in both orders, and the others join all points."""
    if (known != known.T).any() or connected_components(known, directed=False)[0] > 1:
        return Verdict.REFUSED
    return Verdict.RIGHT


def squared(array: np.ndarray) -> np.ndarray | None:
    """Square form in extended precision, or None if there is none."""
    values = array.astype(np.longdouble)
    if values.ndim == 2 and values.shape[0] == values.shape[1]:
        return values
    if values.ndim != 1:
        return None
    n = round((1 + (1 + 8 * values.size) ** 0.5) / 2)
    if n * (n - 1) // 2 != values.size or n < 2:
        return None
    full = np.zeros((n, n), np.longdouble)
    full[np.triu_indices(n, 1)] = values
    return full + full.T


def _on_entries(square: np.ndarray, known: np.ndarray) -> Verdict:
    if not np.isfinite(square).all() or not square.any():
        return Verdict.REFUSED
    off = max(-square.min(), np.abs(square.diagonal()).max())
    others = np.where(np.eye(len(square), dtype=bool), 0, square / np.abs(square).max())
    means = (others**2).sum(axis=1) / np.maximum(1, known.sum(axis=1))
    typical = np.sqrt(min(np.median(means), means.mean()) or means.mean()) * np.abs(square).max()
    if off > 1.01e-5 * typical + np.finfo(np.float32).tiny:
        return Verdict.REFUSED
    return Verdict.EITHER if off > 0.99e-5 * typical else Verdict.RIGHT


def _on_symmetry(square: np.ndarray) -> Verdict:
    n = len(square)
    top = np.abs(square).max()
    if not np.isfinite(top) or top == 0:
        return Verdict.REFUSED
    unit = square / top
    share = np.abs(unit - unit.T).max() / np.sqrt((unit**2).sum() / (n * (n - 1)))
    if share > 2e-4:
        return Verdict.REFUSED
    return Verdict.EITHER if share > 1e-5 else Verdict.RIGHT


def _on_size(square: np.ndarray, rows: str) -> Verdict:
    low, high = COMFORT[rows]
    top = float(np.abs(square).max())
    return Verdict.RIGHT if low < top / len(square) and top < high else Verdict.EITHER


def require_right_map(array: np.ndarray, rows: str, embedding: Any, figures: dict[str, Any], *, bound: float) -> None:
    """Assert that a map belongs to these dissimilarities and that its stress is correct."""
    with np.errstate(over="ignore", under="ignore"):
        given = squared(array).astype(rows).astype(np.float64)
    n = len(given)
    x = np.asarray(embedding)
    assert x.shape[0] == n, f"{x.shape} coordinates for {n} points"
    assert x.dtype == np.float64
    assert np.isfinite(x).all(), "coordinates are not finite"
    expected = figures_of(given, x)
    of_means = figures_of((given + given.T) / 2, x)  # effect of a tolerated asymmetry on landmarks
    top = np.nanmax(np.abs(given))
    for name, value in expected.items():
        if np.isfinite(value) and name in figures:
            slack = 1e-5 * value + 1e-9 * (top * top if name in ("mse", "raw_stress") else 1)
            off = min(abs(figures[name] - value), abs(figures[name] - of_means[name]))
            assert off <= slack, f"{name} is {figures[name]}, but NumPy finds {value}"
    assert expected["normalized_stress"] <= bound, f"normalized stress {expected['normalized_stress']:g}"


def figures_of(given: np.ndarray, x: np.ndarray) -> dict[str, float]:
    """Stress of a map from its formulas, over all ordered pairs that are known."""
    n, top = len(given), np.nanmax(np.abs(given))
    pairs = ~np.eye(n, dtype=bool) & ~np.isnan(given)
    t, d = (given / top)[pairs], squareform(pdist(x / top))[pairs]
    error, total, embedded = ((values**2).sum() / 2 for values in (t - d, t, d))
    return {
        "normalized_stress": np.sqrt(error / total),
        "stress1": np.sqrt(error / embedded) if embedded else np.inf,
        "mse": 2 * error / (pairs.sum() * n / (n - 1)) * top * top,
        "raw_stress": error * top * top,
    }


def require_sentence(text: str) -> None:
    """Assert that a message is one readable sentence."""
    assert text.strip(), "an empty message"
    assert text.strip().endswith((".", "?", ")")), f"no sentence: {text!r}"
    assert "Traceback" not in text
    assert "\n" not in text.strip(), f"more than a sentence: {text!r}"
