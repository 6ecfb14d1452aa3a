"""Experiment 6: swiss rolls with a hole."""

from __future__ import annotations

import numpy as np
from manifolds import neighbors, no_worse, solve
from methods import DEFAULT, METHODS, PAPER
from pictures import AS_THEY_COME, draw, hue, new, save
from study import Cell, Study, claim, failures, median, picture, spread, table

from psmds_dist.shapes import swiss_roll_with_hole

NAME = "swiss roll with a hole"
LOCAL = ["LLE", "modified LLE", "Hessian LLE", "LTSA"]
SHOWN = picture(
    "holes.png",
    "The first sample of each density as a flat sheet, which is the truth (left), and its maps by all methods, colored "
    f"along the roll. Where it says failed, the method raised an error on this sample. {AS_THEY_COME}",
)


def run(study: Study) -> str:
    """Run the experiment and return its section."""
    sizes = study.pick({"sparse": 600, "dense": 2000}, {"sparse": 500})
    methods = study.pick(list(METHODS), [DEFAULT, PAPER, "SMACOF", "Isomap", "modified LLE"])
    found = {
        density: {method: [solve(study, NAME, n, method, seed) for seed in study.few_seeds] for method in methods}
        for density, n in sizes.items()
    }
    _draw(study, sizes, methods)
    shown = ", ".join(
        f"{density}: {n:,} points and graphs of {neighbors(NAME, n)} nearest neighbors" for density, n in sizes.items()
    )
    intro = (
        f"A swiss roll from whose middle a rectangle is cut out; {shown}; {len(study.few_seeds)} samples: median "
        "(least to most) of those that did not fail. Shortest paths go around the hole and are longer than the true "
        "distances, so that MDS widens it. *After an affine map* is the disparity that remains after the best affine "
        "map to the truth: LLE and its variants leave the two scales open.\n\n"
    )
    tables = "\n".join(_table(name, of) for name, of in found.items())
    return "## 6. Swiss roll with a hole\n\n" + intro + SHOWN + tables + _claims(study, sizes, found)


def _table(density: str, found: dict[str, list[Cell]]) -> str:
    rows = [
        [method, *(spread(of, m) for m in ("scaled_stress", "procrustes", "affine"))] for method, of in found.items()
    ]
    heads = ["method", "stress", "Procrustes", "after an affine map"]
    return f"### {density}\n\n{table(heads, rows)}\n{failures(found)}"


def _claims(study: Study, sizes: dict[str, int], found: dict[str, dict[str, list[Cell]]]) -> str:
    around = _around(study, sizes["dense"], found["dense"]) if "dense" in found else ""
    return "\n" + around + _edges(found["sparse"]) + no_worse(found)


def _around(study: Study, n: int, found: dict[str, list[Cell]]) -> str:
    whole = median([solve(study, "swiss roll", n, DEFAULT, seed) for seed in study.few_seeds], "procrustes")
    holed = median(found[DEFAULT], "procrustes")
    result = f"Procrustes {holed:.5f}, without a hole {whole:.5f}"
    return claim("MDS distorts the dense roll around its hole.", holed > 2 * whole, result)


def _edges(found: dict[str, list[Cell]]) -> str:
    local = {median(of, "affine"): method for method, of in found.items() if method in LOCAL}
    least, ours = np.nanmin(list(local)), median(found[DEFAULT], "affine")
    return claim(
        "LLE and its variants distort the sparse roll more than MDS does.",
        ours < least,
        f"up to an affine map {local[least]} leaves {least:.4f}, pattern search {ours:.4f}",
        "Modified and Hessian LLE and LTSA fit neighborhoods only, so detours around the hole do not matter to them, "
        "but their scales are lost; plain LLE does distort it more.",
    )


def _draw(study: Study, sizes: dict[str, int], methods: list[str]) -> None:
    figure, axes = new(len(sizes), len(methods) + 1)
    for row, (density, n) in zip(axes, sizes.items(), strict=True):
        truth = swiss_roll_with_hole(n, random_state=0).parameters
        draw(row[0], truth, hue(truth, None), f"truth, {density}")
        for one, method in zip(row[1:], methods, strict=True):
            title = method.replace(" as", "\nas").replace(", ", ",\n")
            draw(one, study.load_map(f"{NAME} {n}", method, 0), hue(truth, None), title)
    save(study, figure, "holes.png")
