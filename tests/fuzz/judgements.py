"""``python -m tests.fuzz.judgements``: how the input check classifies random matrices of known kinds.

Errors are an invalid matrix that is accepted silently, a valid one that is refused, and advice that leads to a silently
accepted invalid matrix. Prints a table, and exits with code 1 on any error.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import pdist, squareform

from psmds_dist.core.errors import DissimilarityWarning, InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.ingest.check import check_source

Random = np.random.Generator
Matrix = np.ndarray


def points(random: Random, n: int) -> Matrix:
    """Random points of several shapes and dimensions."""
    d = int(random.integers(1, 30))
    x = random.normal(size=(n, d))
    shape = random.integers(0, 7)
    if shape == 1:
        x += 5 * random.integers(0, 5, (n, 1)) * random.normal(size=(1, d))
    elif shape == 2:
        x = x[random.integers(0, max(2, n // 2), n)]
    elif shape == 3:
        x = random.random((n, d))
    elif shape == 4:
        x = np.abs(x) ** 3
    elif shape == 5:
        x = np.c_[np.linspace(0, 1, n), 0.1 * x[:, :1]]
    elif shape == 6:
        x = x * np.exp(-np.arange(d))
    return x if np.ptp(x, axis=0).any() else x + np.arange(n)[:, None]


def geodesic(random: Random, n: int) -> Matrix:
    """Shortest paths in a graph of neighbors; unconnected parts get the largest distance."""
    d = squareform(pdist(random.normal(size=(n, 3))))
    near = np.where(np.argsort(np.argsort(d, axis=1), axis=1) < 8, d, 0)
    t = shortest_path(np.maximum(near, near.T), directed=False)
    return np.where(np.isfinite(t), t, t[np.isfinite(t)].max())


def noise(random: Random, n: int) -> Matrix:
    """Positive numbers without structure."""
    t = np.abs(random.normal(1, random.uniform(0.05, 0.5), (n, n)))
    return (t + t.T) / 2


METRICS = ["euclidean", "cityblock", "chebyshev", "sqeuclidean", "canberra"]
DISSIMILARITIES: list[Callable[[Random, int], Matrix]] = [
    lambda r, n: squareform(pdist(points(r, n), METRICS[r.integers(0, len(METRICS))])),
    lambda r, n: squareform(pdist(np.c_[points(r, n), np.full(n, 0.3)], "cosine")),
    lambda r, n: squareform(pdist(r.normal(size=(n, 40)) + r.normal(size=40), "correlation")),
    lambda r, n: squareform(pdist(1.0 + r.poisson(r.gamma(0.5, 8, (n, 60))), "braycurtis")),
    lambda r, n: squareform(pdist(r.random((n, 50)) < r.uniform(0.2, 0.6), "jaccard")),
    lambda r, n: squareform(pdist(r.integers(0, 4, (n, 30)), "hamming")),
    lambda r, n: np.round(4 * squareform(pdist(points(r, n)))),
    lambda r, n: squareform(pdist(points(r, n))) ** r.uniform(0.3, 2),
    lambda r, n: squareform(pdist(points(r, n))) * (0.5 + noise(r, n)),
    geodesic,
    noise,
]


def dissimilarities(random: Random, n: int) -> Matrix:
    """A valid matrix."""
    while True:
        t = DISSIMILARITIES[random.integers(0, len(DISSIMILARITIES))](random, n)
        np.fill_diagonal(t, 0)
        if t.any():
            return (t + t.T) / 2


def _decay(random: Random, n: int) -> Matrix:
    d = squareform(pdist(points(random, n)))
    return d / (d.mean() * random.uniform(0.2, 2))


SIMILARITIES: list[Callable[[Random, int], Matrix]] = [
    lambda r, n: np.exp(-_decay(r, n)),
    lambda r, n: np.exp(-(_decay(r, n) ** 2)),
    lambda r, n: 1 / (1 + _decay(r, n)),
    lambda r, n: 1 - r.uniform(0.2, 1) * (lambda d: d / d.max())(_decay(r, n)),
    lambda r, n: np.abs(np.corrcoef((r.normal(size=(40, n)) + r.normal(size=(40, 3)) @ r.normal(size=(3, n))).T)),
    lambda r, n: np.corrcoef((r.normal(size=(40, n)) + r.normal(size=(40, 3)) @ r.normal(size=(3, n))).T),
    lambda r, n: 1 - squareform(pdist(r.random((n, 50)) < r.uniform(0.1, 0.5), "jaccard")),
    lambda r, n: 100 - 100 * squareform(pdist(r.integers(0, 4, (n, 30)), "hamming")),
    lambda r, n: (lambda s, low: np.where(s < low, 0, s))(np.exp(-_decay(r, n)), r.uniform(0.02, 0.2)),
    lambda r, n: (lambda x: x @ x.T)(np.abs(points(r, n))),
]


def similarities(random: Random, n: int) -> Matrix:
    """Similarities with a complete diagonal."""
    return SIMILARITIES[random.integers(0, len(SIMILARITIES))](random, n)


def with_holes(random: Random, n: int) -> Matrix:
    """Similarities with zeros on part of the diagonal, or in whole rows; at least one row is complete."""
    s = similarities(random, n)
    rows = random.permutation(n)[: random.choice([1, 2, 5, n // 2, n - 1])]
    s[rows, rows] = 0
    if random.random() < 0.5:
        s[rows], s[:, rows] = 0, 0
    return s


def hollow(random: Random, n: int) -> Matrix:
    """Non-negative similarities whose diagonal was set to zero."""
    s = np.abs(similarities(random, n))
    np.fill_diagonal(s, 0)
    return s


def one_triangle(random: Random, n: int) -> Matrix:
    """A matrix with one triangle only; the other is zero or NaN."""
    t = dissimilarities(random, n)
    t[np.tril_indices(n, -1)] = random.choice([0.0, np.nan])
    return t if random.random() < 0.5 else t.T.copy()


def rounded(random: Random, n: int) -> Matrix:
    """A valid matrix with rounded zeros off the diagonal, on it, or both."""
    t = dissimilarities(random, n)
    size = np.finfo(random.choice([np.float32, np.float64])).eps * np.sqrt(np.square(t).sum() / (n * (n - 1)))
    where = random.integers(0, 3)
    if where != 1:
        i, j = random.integers(0, n, (2, random.integers(1, n)))
        t[i, j] = t[j, i] = -size * random.uniform(0.5, 4)
    if where != 0:
        np.fill_diagonal(t, size * random.uniform(-4, 4, n))
    return t


def negative(random: Random, n: int) -> Matrix:
    """A valid matrix with one negative pair after some rounded zeros."""
    t = rounded(random, n)
    i, j = random.choice(n, 2, replace=False)
    t[i, j] = t[j, i] = -random.uniform(0.001, 1) * np.sqrt(np.square(t).mean())
    return t


SPOILS: dict[str, Callable[[Matrix, int, int], None]] = {
    "infinite": lambda t, i, j: t.__setitem__((i, j), np.inf),
    "huge": lambda t, i, j: t.__setitem__((i, j), 3e38),
    "negative": lambda t, i, j: t.__setitem__((i, j), -0.3 * t[np.isfinite(t)].mean()),
    "diagonal": lambda t, i, j: t.__setitem__((i, i), 0.02 * np.abs(t[np.isfinite(t)]).mean()),
}


def mixed(random: Random, n: int) -> tuple[Matrix, list[str]]:
    """Several problems in one matrix, and their names."""
    t = dissimilarities(random, n)
    names = list(random.permutation(list(SPOILS))[: random.integers(2, 4)])
    names.sort(key=["diagonal", "negative", "infinite", "huge"].index)
    cells = random.permutation(n)[: 2 * len(names)].reshape(-1, 2)
    for name, (i, j) in zip(names, cells.tolist(), strict=True):
        SPOILS[name](t, i, j)
    return t, names


def said(matrix: Matrix, zero_diagonal: bool = False) -> str:
    """Text of the error or warning for a matrix; ``""`` if it is accepted silently."""
    with warnings.catch_warnings(record=True) as notes, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        source = ArrayRows(matrix, "float64" if np.nanmax(matrix) < 1e38 else "float32")
        try:
            if zero_diagonal:
                build(source, Path(folder) / "t.zarr", InProcessExecutor(), zero_diagonal=True)
            else:
                check_source(source, InProcessExecutor())
        except InputError as error:
            return f"refused: {error}"
    return " ".join(str(note.message) for note in notes if issubclass(note.category, DissimilarityWarning))


def judge(kind: str, random: Random, n: int) -> str:
    """Check a random matrix of a kind; return ``"right"`` or the name of the error."""
    if kind == "mixtures":
        matrix, names = mixed(random, n)
        answer = said(matrix)
        return "right" if all(name in answer for name in names) and answer.startswith("refused") else "not all told"
    matrix = KINDS[kind](random, n)
    answer = said(matrix)
    if kind == "dissimilarities":
        return "right" if not answer.startswith("refused") else "refused"
    if kind == "rounding noise":
        return "right" if "taken for rounded zeros" in answer and not answer.startswith("refused") else "refused"
    if kind == "hollow similarities":
        return "right" if "similarities" in answer else "silent"
    if not answer.startswith("refused"):
        return "silent"
    if "--zero-diagonal" in answer and not said(matrix, zero_diagonal=True):
        return "bad advice"
    named = {"one triangle": "triangle of the matrix is filled", "negative pairs": "the lowest in row "}
    return "right" if re.search(named.get(kind, "looks like similarities"), answer) else "another reason"


KINDS: dict[str, Callable[[Random, int], Matrix]] = {
    "dissimilarities": dissimilarities,
    "rounding noise": rounded,
    "similarities": similarities,
    "similarities with holes": with_holes,
    "hollow similarities": hollow,
    "one triangle": one_triangle,
    "negative pairs": negative,
}

ENDS = ["right", "silent", "refused", "bad advice", "another reason", "not all told"]


def table(cases: int, seed: int) -> dict[str, Counter[str]]:
    """Check a number of matrices of each kind."""
    found = {kind: Counter[str]() for kind in [*KINDS, "mixtures"]}
    for number, (kind, ends) in enumerate(found.items()):
        for case in range(cases):
            random = np.random.default_rng([seed, number, case])
            ends[judge(kind, random, int(random.integers(16, 150)))] += 1
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.judgements", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = table(options.cases, options.seed)
    print(f"{'kind':26}" + "".join(f"{end:>16}" for end in ENDS))
    for kind, ends in found.items():
        print(f"{kind:26}" + "".join(f"{ends[end]:16,}" for end in ENDS))
    sys.exit(any(ends.total() != ends["right"] for ends in found.values()))


if __name__ == "__main__":
    main()
