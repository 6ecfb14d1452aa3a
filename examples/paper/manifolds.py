"""Experiment 1: shapes in space, mapped to two dimensions, with wall times."""

from __future__ import annotations

from functools import cache

import numpy as np
from measures import of_shape
from methods import DEFAULT, METHODS, PAPER, Problem
from pictures import AS_THEY_COME, gallery
from study import Cell, Study, claim, failures, median, picture, spread, table

from psmds_dist import open_geodesics
from psmds_dist.shapes import SHAPES

FLAT = ["swiss roll", "S-curve", "toroidal helix"]
"""Shapes whose true coordinates lie in the plane."""

NAMES = [*FLAT, "clusters"]
PAPERS = ["swiss roll", "clusters", "toroidal helix"]
"""Shapes of the paper, each of 3,000 points."""

SHAPES_SHOWN = picture(
    "manifolds.png",
    "The first sample of each shape in space (left), and its maps by all methods. Colors go along the roll and the S, "
    "which are some four times as long as wide, and around the helix, where dark and yellow meet; points of a cluster "
    "share a color, those on the lines between them are yellow and drawn last: a cluster that is not seen has shrunk "
    "to a place under them. A good map unrolls the sheets to strips of that form and closes the helix to a circle, "
    "with the colors in order, and keeps the clusters apart without shrinking them; shortest paths between the outer "
    f"two lead through the middle one, which opens the corner there. {AS_THEY_COME}",
)


def neighbors(name: str, n: int) -> int:
    """Neighbors of a point in all graphs: on a rolled sheet of few points fewer, or edges jump from turn to turn."""
    return 12 if n >= 1000 else 10 if name == "toroidal helix" else 8 if n >= 600 else 6


@cache
def problem(name: str, n: int, seed: int, noise: float = 0.0) -> Problem:
    """Return a shape with the shortest paths on its graph of neighbors."""
    k, shape = neighbors(name, n), SHAPES[name](n, noise=noise, random_state=seed)
    source = open_geodesics(shape.points, k, disconnected="bridge", dtype="float64")
    truth = shape.parameters if shape.parameters.shape[1] == 2 else None
    return Problem(shape.points, source.take(np.arange(n)), 2, truth, shape.labels, k)


def solve(study: Study, name: str, n: int, method: str, seed: int, noise: float = 0.0) -> Cell:
    """Run a method on a sample of a shape."""
    title = f"{name} {n}" + f" noise {noise}" * (noise > 0)
    return study.solve(title, method, seed, lambda: problem(name, n, seed, noise), of_shape)


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    n = study.pick(1000, 500)
    found = {
        name: {method: [solve(study, name, n, method, seed) for seed in study.seeds] for method in METHODS}
        for name in NAMES
    }
    gallery(study, found, n)
    intro = (
        f"{n:,} points on each shape, two dimensions, {len(study.seeds)} samples: median (least to most). MDS is given "
        f"shortest paths on the graph of {neighbors(NAMES[0], n)} nearest neighbors, the other methods the points in "
        "space. Procrustes: disparity to the true coordinates, 0 is perfect. Stress: that of each map in its best "
        "scale, against the shortest paths."
    )
    tables = "".join(_table(name, found[name]) for name in NAMES)
    return "\n".join(["## 1. Manifold geometry\n", intro, "", SHAPES_SHOWN, tables, _claims(found), _times(study)])


def _table(name: str, found: dict[str, list[Cell]]) -> str:
    measure, head = ("procrustes", "Procrustes") if name in FLAT else ("same_label", "same cluster")
    rows = [
        [method, spread(of, measure), spread(of, "scaled_stress"), spread(of, "seconds", ".2f")]
        for method, of in found.items()
    ]
    return f"### {name}\n\n{table(['method', head, 'stress', 'seconds'], rows)}\n{failures(found)}\n"


def _claims(found: dict[str, dict[str, list[Cell]]]) -> str:
    recovered = [_recovered(name, found[name]) for name in FLAT]
    others = [_apart(found["clusters"]), _singular(found["clusters"])]
    return "### What the paper says of them\n\n" + "".join(
        [*recovered, *others, *(no_worse(found, m) for m in (DEFAULT, PAPER))]
    )


def _recovered(name: str, found: dict[str, list[Cell]]) -> str:
    ours, smacof, isomap = (median(found[method], "procrustes") for method in (DEFAULT, "SMACOF", "Isomap"))
    return claim(
        f"the {name} is recovered, no worse than by SMACOF and Isomap.",
        ours < 0.05 and ours <= 1.001 * min(smacof, isomap),
        f"Procrustes {ours:.5f}, SMACOF {smacof:.5f}, Isomap {isomap:.5f}",
        "All three fit the same shortest paths, which are not the true distances; MDS fits them with less stress.",
    )


def _apart(found: dict[str, list[Cell]]) -> str:
    hit = median(found[DEFAULT], "same_label")
    return claim(
        "the clusters stay apart.",
        hit > 0.99,
        f"{hit:.1%} of the points in clusters have their nearest neighbor in the same one",
    )


def _singular(found: dict[str, list[Cell]]) -> str:
    broken = [m for m in ("Hessian LLE", "LTSA") if any("failure" in cell for cell in found[m])]
    stress = ", ".join(f"{m} {median(found[m], 'scaled_stress'):.3f}" for m in (DEFAULT, "Hessian LLE", "LTSA"))
    return claim(
        "Hessian LLE and LTSA fail on the clusters (singular matrices).",
        len(broken) == 2,
        f"{' and '.join(broken) or 'neither'} raised an error; stress {stress}",
        "Their maps shrink clusters to points and lines, or scatter them, as the picture shows.",
    )


def no_worse(found: dict[str, dict[str, list[Cell]]], method: str = DEFAULT) -> str:
    """Compare the stress of pattern search with that of SMACOF on several sets."""
    ratios = {name: median(of[method], "stress") / median(of["SMACOF"], "stress") for name, of in found.items()}
    return claim(
        f"the stress of {method} is at most 1.001 times that of SMACOF.",
        max(ratios.values()) <= 1.001,
        "ratios of medians " + ", ".join(f"{name} {ratio:.4f}" for name, ratio in ratios.items()),
        "One start ends in a local minimum of its own; the default searches several.",
    )


def _times(study: Study) -> str:
    """Wall times at the size of the paper, from one sample."""
    n = study.pick(3000, 600)
    methods = study.pick(list(METHODS), [DEFAULT, PAPER, "SMACOF", "Isomap"])
    found = {method: [solve(study, name, n, method, 0) for name in PAPERS] for method in methods}
    rows = [[method, *(spread([cell], "seconds", ".2f") for cell in of)] for method, of in found.items()]
    slower = [
        name for name, ours, theirs in zip(PAPERS, found[DEFAULT], found["SMACOF"], strict=True)
        if ours["seconds"] >= theirs["seconds"]
    ]  # fmt: skip
    verdict = claim(
        "pattern search is faster than SMACOF.", not slower, f"slower on {slower}" if slower else "on all three"
    )
    return f"### Seconds at {n:,} points\n\n{table(['method', *PAPERS], rows)}\n{verdict}"
