"""Experiment 4: error against epoch, and the starting radius."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from manifolds import PAPERS, problem
from methods import Problem, paper_settings
from pictures import COLORS, new, save
from scipy.spatial.distance import cdist
from study import Cell, Study, claim, median, picture, spread, table
from words import problem as words_problem

from psmds_dist import PatternSearchMDS

RADII = [1.0, 32.0, 65536.0]
"""Starting radii of the paper, on the swiss roll: pessimistic, best, optimistic."""

NEAR = 1.01
"""A curve has arrived when its error is at most so many times the lowest that any method ends with."""

STEPS, MOST_EPOCHS = 300, 500
"""Most iterations of SMACOF and epochs of pattern search, which is its default."""

SHOWN = 100
"""Passes in the picture."""

CURVES_SHOWN = picture(
    "convergence.png",
    f"Mean squared error over pairs (logarithmic, in squared units of each matrix) in each of the first {SHOWN} "
    f"passes, of at most {MOST_EPOCHS} epochs or {STEPS} iterations. Each line is a run: one for each sample and "
    "method, with the color of its method. The error of pattern search is what an epoch meets while points move, which "
    "long first moves raise: a run from classical scaling is seen to rise at first, or to begin high. A line that ends "
    "earlier is a run that had stopped: pattern search at its smallest radius, SMACOF when an iteration lowered the "
    "error by less than a millionth of it. Lines at the right edge go on.",
)
RADII_SHOWN = picture(
    "radius.png",
    "Mean squared error over pairs (logarithmic) that each epoch meets while points move: with a radius of 65,536 the "
    "first moves throw the points far apart, and the error falls as the radius halves. Each line is a run, one for "
    "each sample and starting radius, up to where it stopped at its smallest radius. A line that ends high is a poor "
    "local minimum.",
)

Curve = Callable[[Problem, int], list[float]]


def pattern_search(**how: Any) -> Curve:
    """Return the error of every epoch from a random start."""

    def run(given: Problem, seed: int) -> list[float]:
        fit = paper_settings(given.n_components, seed, **how).fit(given.distances)
        return [*fit.history_["mse"].tolist(), fit.mse_]

    return run


def from_classical(given: Problem, seed: int) -> list[float]:
    """Return the error of every epoch from the map of classical scaling."""
    fit = PatternSearchMDS(given.n_components, init="classical", n_init=1, polish=False, random_state=seed)
    fit.fit(given.distances)
    return [*fit.history_["mse"].tolist(), fit.mse_]


def majorization(given: Problem, seed: int) -> list[float]:
    """Return the error of every iteration of SMACOF, until it gains less than 1e-6.

    An iteration is the Guttman transform, ``x_i <- sum_j (t_ij / d_ij) (x_i - x_j) / n``.
    """
    t, n = given.distances, len(given.points)
    x, errors = np.random.default_rng(seed).uniform(size=(n, given.n_components)), []
    while len(errors) <= STEPS and (len(errors) < 2 or errors[-2] - errors[-1] > 1e-6 * errors[-1]):
        d = cdist(x, x)
        errors.append(float(((t - d) ** 2).sum() / n**2))
        ratio = np.divide(t, d, out=np.zeros_like(t), where=d > 0)
        x = (ratio.sum(axis=1, keepdims=True) * x - ratio @ x) / n
    return errors


CURVES: dict[str, Curve] = {
    "pattern search as in the paper": pattern_search(),
    "pattern search, monotone": pattern_search(bad_moves=False),
    "pattern search, guided moves": pattern_search(moves="guided"),
    "pattern search from classical scaling": from_classical,
    "SMACOF": majorization,
}


def curve(study: Study, name: str, label: str, seed: int, given: Callable[[int], Problem], method: Curve) -> Cell:
    """Run a method and keep its errors."""

    def compute() -> Cell:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"errors": method(given(seed), seed)}

    return study.cell(f"convergence {name} | {label} | seed {seed}", compute)


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    sets = _sets(study)
    found = {
        name: {
            label: [curve(study, name, label, seed, given, method) for seed in _seeds(study, name)]
            for label, method in CURVES.items()
        }
        for name, given in sets.items()
    }
    _draw(study, found)
    intro = (
        "Passes over the matrix (epochs, or iterations of SMACOF) until the error is within 1 % of the lowest that any "
        f"of them ends with on the same sample, {len(study.seeds)} samples, one for words: median (least to most) of "
        "those that arrive. Shapes are given by shortest paths and mapped to two dimensions, as in experiment 1; the "
        "words are those of experiment 2, in ten dimensions. All begin at random but *from classical scaling*, which "
        "is the default method with that one start and no polish. *Monotone* and *guided* differ from *as in the "
        "paper* in one thing each: no move that raises the error is taken; or two steps against the gradient of a "
        "point's error are tried, instead of one both ways along each axis. SMACOF iterates longer than with the rule "
        "of scikit-learn in experiment 1.\n\n"
    )
    return "## 4. Convergence\n\n" + intro + CURVES_SHOWN + _passes(found) + "\n" + _radii(study)


def _sets(study: Study) -> dict[str, Callable[[int], Problem]]:
    n = study.pick(1000, 500)
    sets = {f"{name} {n}": lambda seed, name=name: problem(name, n, seed) for name in PAPERS}
    if study.words is not None and not study.quick:
        sets["words"] = lambda seed: words_problem(study.words)
    return sets


def _seeds(study: Study, name: str) -> range:
    """Seeds of a set: a monotone run on words takes long."""
    return range(1) if name == "words" else study.seeds


def _arrivals(found: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    """Passes of each run, for those that arrive."""
    goals = [NEAR * min(cell["errors"][-1] for cell in cells) for cells in zip(*found.values(), strict=True)]
    return {
        label: [
            {"passes": int(np.argmax(np.array(cell["errors"]) <= goal))} if min(cell["errors"]) <= goal else {}
            for cell, goal in zip(cells, goals, strict=True)
        ]
        for label, cells in found.items()
    }


def _passes(found: dict[str, dict[str, list[Cell]]]) -> str:
    arrived = {name: _arrivals(of) for name, of in found.items()}

    def entry(name: str, label: str) -> str:
        cells = arrived[name][label]
        missed = sum("passes" not in cell for cell in cells)
        return spread(cells, "passes", ".0f") + f" ({missed} of {len(cells)} do not arrive)" * (missed > 0)

    text = table(["method", *found], [[label, *(entry(name, label) for name in found)] for label in CURVES]) + "\n"
    ours, theirs = ({n: median(arrived[n][m], "passes") for n in found} for m in (next(iter(CURVES)), "SMACOF"))
    slower = [name for name in found if not ours[name] < np.nan_to_num(theirs[name], nan=np.inf)]
    return text + claim(
        "pattern search needs fewer epochs than SMACOF iterations.",
        not slower,
        ", ".join(f"{name} {ours[name]:.0f} and {theirs[name]:.0f}" for name in found).replace("nan", "none arrives"),
        "Plain moves wait for the radius to halve, while the steps of SMACOF shrink by themselves.",
    )


def _radii(study: Study) -> str:
    name = f"swiss roll {study.pick(1000, 500)}"
    given = _sets(study)[name]
    found = {
        f"{radius:g}": [
            curve(study, name, f"radius {radius:g}", seed, given, pattern_search(radius=radius)) for seed in study.seeds
        ]
        for radius in RADII
    }
    _draw_radii(study, found)
    ends = {radius: [_end(cell) for cell in cells] for radius, cells in found.items()}
    rows = [[radius, spread(of, "mse", ".4g"), spread(of, "epochs", ".0f")] for radius, of in ends.items()]
    folded = sum(_folded(cells) for cells in zip(*ends.values(), strict=True))
    verdict = claim(
        "the solution is robust to the starting radius.",
        folded == 0,
        f"{folded} of {sum(map(len, ends.values()))} runs end more than half above another radius on the same sample",
        "There one random start ends in a poor local minimum, which is why the default takes several starts.",
    )
    heads = ["starting radius", "error at the end", "epochs"]
    intro = (
        "Pattern search as in the paper on the swiss roll of above, from random starts; the root mean square of the "
        f"distances is {_usual(given):.0f}. Error and epochs where a run stopped: median (least to most) of "
        f"{len(study.seeds)} samples."
    )
    return f"### Starting radius\n\n{intro}\n\n{table(heads, rows)}\n{RADII_SHOWN}{verdict}"


def _usual(given: Callable[[int], Problem]) -> float:
    """Root mean square distance between two points of the first sample."""
    t = given(0).distances
    return float(np.sqrt((t**2).sum() / (t.size - len(t))))


def _folded(cells: Sequence[Cell]) -> int:
    """Number of radii that end in a much worse map of a sample than the best of them."""
    least = min(cell["mse"] for cell in cells)
    return sum(cell["mse"] > 1.5 * least for cell in cells)


def _end(cell: Cell) -> Cell:
    return {"mse": cell["errors"][-1], "epochs": len(cell["errors"]) - 1}


def _draw_radii(study: Study, found: dict[str, list[Cell]]) -> None:
    figure, axes = new(1, 1, 4.0)
    _curves(axes[0, 0], {f"starting radius {radius}": cells for radius, cells in found.items()})
    axes[0, 0].set(xlabel="epoch", ylabel="mean squared error", title="swiss roll")
    axes[0, 0].legend()
    save(study, figure, "radius.png")


def _draw(study: Study, found: dict[str, dict[str, list[Cell]]]) -> None:
    figure, axes = new(1, len(found), 3.2)
    for one, (name, of) in zip(axes[0], found.items(), strict=True):
        _curves(one, of)
        one.set(xlabel="epoch or iteration", title=name, xlim=(1, SHOWN))
    axes[0, 0].set_ylabel("mean squared error")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(CURVES))
    save(study, figure, "convergence.png")


def _curves(axes: Any, found: dict[str, list[Cell]]) -> None:
    """Draw all runs of each method in its color."""
    for color, (label, cells) in zip(COLORS, found.items(), strict=False):
        for k, cell in enumerate(cells):
            passes = np.arange(1, 1 + len(cell["errors"]))
            axes.semilogy(
                passes, cell["errors"], color=color, alpha=0.7, linewidth=0.8, label=label if k == 0 else None
            )
