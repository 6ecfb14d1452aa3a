"""Pictures of the experiments."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image
from study import Cell, Study

from psmds_dist import canonical

mpl.use("Agg")
mpl.rcParams.update({"font.size": 8, "axes.titlesize": 8, "image.cmap": "viridis", "savefig.dpi": 110})

PALETTE = 128
"""Colors of a picture; with a palette it has a quarter of the bytes."""

COLORS = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
"""Colors of lines, one after the other."""

AS_THEY_COME = (
    "A map has no direction and each panel a scale of its own, the same along both axes: only shapes and colors are to "
    "be compared, not angle, side or size. One sample may be a good or a bad one for a method: the tables give the "
    "spread."
)
"""What a reader of several maps beside each other has to know."""


def new(rows: int, columns: int, size: float = 1.7, **how: Any) -> tuple[Any, Any]:
    """Return a figure with a grid of axes."""
    import matplotlib.pyplot as plt

    return plt.subplots(
        rows, columns, figsize=(size * columns, size * rows), squeeze=False, layout="constrained", **how
    )


def save(study: Study, figure: Any, name: str) -> None:
    """Write a picture beside the results."""
    import matplotlib.pyplot as plt

    figure.savefig(study.folder / name)
    with Image.open(study.folder / name) as picture:
        small = picture.convert("RGB").quantize(PALETTE)
    small.save(study.folder / name, optimize=True)
    plt.close(figure)


def draw(axes: Any, found: np.ndarray | None, colour: np.ndarray, title: str = "") -> None:
    """Draw a map in equal scales, or say that there is none."""
    axes.set(xticks=[], yticks=[], title=title)
    if found is None:
        axes.text(0.5, 0.5, "failed", ha="center", va="center", transform=axes.transAxes)
        return
    found = canonical(found)
    axes.scatter(found[:, 0], found[:, 1], c=colour, s=3, linewidths=0)
    axes.set_aspect("equal", adjustable="datalim")


def gallery(study: Study, found: dict[str, dict[str, list[Cell]]], n: int) -> None:
    """Draw the shapes, and their maps by all methods, of the first seed."""
    from psmds_dist.shapes import SHAPES

    methods = list(next(iter(found.values())))
    figure, axes = new(len(found), len(methods) + 1)
    for row, name in zip(axes, found, strict=True):
        shape = SHAPES[name](n, random_state=0)
        colour = hue(shape.parameters, shape.labels)
        row[0].remove()
        space = figure.add_subplot(len(found), len(methods) + 1, 1 + row[0].get_subplotspec().num1, projection="3d")
        space.scatter(*shape.points.T, c=colour, s=2, linewidths=0)
        space.set(xticks=[], yticks=[], zticks=[], title=name)
        for one, method in zip(row[1:], methods, strict=True):
            draw(
                one,
                study.load_map(f"{name} {n}", method, 0),
                colour,
                method.replace(" as", "\nas").replace(", ", ",\n"),
            )
    save(study, figure, "manifolds.png")


def hue(parameters: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
    """Return the colour of each point: its cluster, its angle on a circle, or its first parameter."""
    if labels is not None:
        return labels
    on_circle = np.allclose(np.hypot(*parameters.T[:2]), 1)
    return np.arctan2(parameters[:, 1], parameters[:, 0]) if on_circle else parameters[:, 0]
