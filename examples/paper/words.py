"""Experiment 2: word vectors in ten dimensions, compared with human judgements of similarity."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from measures import stress
from methods import ALL, CLASSICAL_SMACOF, DEFAULT, PAPER, SEEDLESS, Problem
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr
from study import Cell, Study, claim, failures, median, spread, table

DIMENSIONS = 10
SETS = {"men": "MEN", "simlex": "SimLex-999"}
ORIGINAL = "original vectors"

IN_PAPER = {
    ORIGINAL: (0.635, 0.177),
    PAPER: (0.596, 0.242),
    "SMACOF": (0.632, 0.221),
    "Isomap": (0.625, 0.132),
    "truncated SVD": (0.562, 0.140),
    "LLE": (0.657, 0.172),
    "modified LLE": (0.643, 0.158),
    "Hessian LLE": (0.157, 0.004),
    "LTSA": (0.154, 0.004),
}
"""Spearman correlations of the paper, on 300-dimensional GloVe vectors."""

NO_WORDS = """Left out: no word vectors. Give a file with `--words FILE` or `PSMDS_PAPER_WORDS`: an `.npz` with
`vectors` (n, d), `men` and `simlex` (pairs of row numbers), `men_score` and `simlex_score` (human judgements).
"""


@cache
def load(path: Path) -> dict[str, np.ndarray]:
    """Load unit vectors, and the pairs with their scores."""
    with np.load(path) as file:
        loaded = {name: file[name] for name in file.files}
    vectors = loaded["vectors"].astype(np.float64)
    return {**loaded, "vectors": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}


@cache
def problem(path: Path, noise: float = 0.0, seed: int = 0) -> Problem:
    """Return Euclidean distances of unit vectors, which order pairs as their cosines do; perhaps with noise."""
    vectors = load(path)["vectors"]
    vectors = vectors + noise * np.random.default_rng(seed).standard_normal(vectors.shape)
    return Problem(vectors, squareform(pdist(vectors)), DIMENSIONS)


def judged(path: Path, found: np.ndarray) -> Cell:
    """Spearman correlation of human scores with distances and with cosines on a map."""
    file, cell = load(path), {}
    for name in SETS:
        a, b = (found[column] for column in file[name].T)
        apart = np.linalg.norm(a - b, axis=1)
        cosine = (a * b).sum(axis=1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-300)
        cell[name] = float(spearmanr(-apart, file[f"{name}_score"]).statistic)
        cell[f"{name}_cosine"] = float(spearmanr(cosine, file[f"{name}_score"]).statistic)
    return cell


def solve(study: Study, method: str, seed: int, noise: float = 0.0) -> Cell:
    """Run a method on the words."""
    title = "words" + f" noise {noise}" * (noise > 0)

    def measures(given: Problem, found: np.ndarray) -> Cell:
        return {**stress(given, found), **judged(study.words, found)}

    return study.solve(title, method, seed, lambda: problem(study.words, noise, seed), measures)


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    head = "## 2. Semantic similarity\n\n"
    if study.words is None:
        return head + NO_WORDS
    methods = study.pick(list(ALL), [DEFAULT, "SMACOF", "truncated SVD"])
    found = {method: [solve(study, method, seed) for seed in _seeds(study, method)] for method in methods}
    found = {ORIGINAL: [judged(study.words, load(study.words)["vectors"])], **found}
    vectors = load(study.words)["vectors"]
    intro = (
        f"{len(vectors):,} words, {vectors.shape[1]} dimensions to {DIMENSIONS}, {len(_seeds(study, DEFAULT))} seeds: "
        "median (least to most) of the Spearman correlation with human scores, by distance and by cosine on the map. "
        "MDS is given the distances of unit vectors. The paper's vectors were others, so compare the order, not the "
        "numbers.\n\n"
    )
    return head + intro + _table(found) + "\n" + failures(found) + _claims(found)


def _seeds(study: Study, method: str) -> range:
    return range(1) if method in SEEDLESS or study.quick else study.few_seeds


def _table(found: dict[str, list[Cell]]) -> str:
    heads = [
        "method",
        "MEN, paper",
        "MEN",
        "MEN by cosine",
        "SimLex, paper",
        "SimLex",
        "SimLex by cosine",
        "stress",
        "seconds",
    ]
    rows = []
    for method, of in found.items():
        men, simlex = (f"{value:.3f}" for value in IN_PAPER.get(method, (np.nan, np.nan)))
        measured = [spread(of, measure, ".3f") for measure in ("men", "men_cosine", "simlex", "simlex_cosine")]
        rows.append(
            [
                method,
                men,
                *measured[:2],
                simlex,
                *measured[2:],
                spread(of, "scaled_stress", ".3f"),
                spread(of, "seconds", ".1f"),
            ]
        )
    return table(heads, rows).replace("nan", "")


def _claims(found: dict[str, list[Cell]]) -> str:
    def of(measure: str, method: str) -> float:
        return median(found[method], measure)

    text = "\n"
    reduced = [
        method for method in found if method != ORIGINAL and found[method] and not np.isnan(of("simlex", method))
    ]
    best = max(reduced, key=lambda method: of("simlex", method))
    text += claim(
        "pattern search is best on SimLex-999.",
        best in (DEFAULT, PAPER),
        f"best is {best} with {of('simlex', best):.3f}; pattern search has {of('simlex', DEFAULT):.3f}",
        "MDS fits all distances alike, and most are large; methods of neighbors fit the small ones only.",
    )
    text += claim(
        "ten dimensions of pattern search are better on SimLex-999 than the original vectors.",
        of("simlex", DEFAULT) > of("simlex", ORIGINAL),
        f"{of('simlex', DEFAULT):.3f}, original {of('simlex', ORIGINAL):.3f}",
        "The vectors at hand lose more by reduction than those of the paper did.",
    )
    text += claim(
        "pattern search is no worse than SMACOF on SimLex-999.",
        of("simlex", DEFAULT) >= of("simlex", "SMACOF"),
        f"{of('simlex', DEFAULT):.3f}, SMACOF {of('simlex', 'SMACOF'):.3f}; stress {of('stress', DEFAULT):.4f} and "
        f"{of('stress', 'SMACOF'):.4f}",
        "The map with the lower stress is not always the one that people agree with more.",
    )
    if CLASSICAL_SMACOF in found:
        text += (
            f"* SMACOF has not converged after 300 iterations from a random start; from classical scaling it has "
            f"{of('simlex', CLASSICAL_SMACOF):.3f} with stress {of('stress', CLASSICAL_SMACOF):.4f}.\n"
        )
    return text
