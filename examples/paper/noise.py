"""Experiment 5: additive noise."""

from __future__ import annotations

from manifolds import no_worse, solve
from methods import DEFAULT, PAPER
from study import Study, claim, median, spread, table
from words import NO_WORDS, SETS
from words import load as load_words
from words import solve as solve_words

NOISE = {"swiss roll": 0.3, "toroidal helix": 0.07, "clusters": 0.4}
"""Standard deviations of the paper."""

METHODS = [DEFAULT, PAPER, "SMACOF", "Isomap", "LLE"]
WORDS = {0.01: (0.249, 0.229, 0.593, 0.633), 0.1: (0.315, 0.222, 0.597, 0.620), 0.5: (0.204, 0.123, 0.462, 0.462)}
"""By standard deviation, SimLex-999 of pattern search and SMACOF, then MEN, in the paper."""

GLOVE = 0.4
"""Root mean square of an entry of the paper's vectors, about; noise is scaled from this to the vectors at hand."""


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    return "## 5. Additive noise\n\n" + _shapes(study) + "\n" + _words(study)


def _shapes(study: Study) -> str:
    n = study.pick(1000, 500)
    found = {
        name: {method: [solve(study, name, n, method, seed, sigma) for seed in study.few_seeds] for method in METHODS}
        for name, sigma in NOISE.items()
    }
    measure = {name: "same_label" if name == "clusters" else "procrustes" for name in NOISE}
    heads = [
        f"{name}, {sigma}: {'same cluster' if name == 'clusters' else 'Procrustes'}" for name, sigma in NOISE.items()
    ]
    rows = [[method, *(spread(found[name][method], measure[name]) for name in NOISE)] for method in METHODS]
    text = f"{n:,} points with Gaussian noise, {len(study.few_seeds)} samples: median (least to most).\n\n"
    text += table(["method", *heads], rows) + "\n"
    text += no_worse(found)
    kept = {name: median(found[name][DEFAULT], measure[name]) for name in NOISE}
    recovered = all(value > 0.99 if name == "clusters" else value < 0.05 for name, value in kept.items())
    return text + claim(
        "pattern search keeps the shapes under this noise.",
        recovered,
        ", ".join(f"{name} {value:.4f}" for name, value in kept.items()),
        "Noise makes edges between turns that lie near each other, and shortest paths take them.",
    )


def _words(study: Study) -> str:
    if study.words is None or study.quick:
        return NO_WORDS if study.words is None else "Words: left out of the quick study.\n"
    vectors = load_words(study.words)["vectors"]
    unit = float((vectors**2).mean() ** 0.5) / GLOVE
    rows = []
    for sigma, figures in WORDS.items():
        found = {
            m: [solve_words(study, m, seed, round(sigma * unit, 6)) for seed in study.few_seeds[:2]]
            for m in (DEFAULT, "SMACOF")
        }
        row = [f"{sigma}"]
        for k, name in enumerate(reversed(SETS)):
            for j, method in enumerate(found):
                row += [f"{figures[2 * k + j]:.3f}", spread(found[method], name, ".3f")]
        rows.append(row)
    heads = [
        f"{label}, {who}{end}"
        for label in ("SimLex", "MEN")
        for who in ("pattern search", "SMACOF")
        for end in (", paper", "")
    ]
    intro = (
        f"### Words\n\nSpearman correlations; the noise is in units of the paper's vectors ({unit:.3f} of these).\n\n"
    )
    return intro + table(["noise", *heads], rows)
