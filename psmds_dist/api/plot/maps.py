"""Pictures of maps: points as markers, or for very many points pixels that sum them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from psmds_dist.api.plot.colors import Coloring
from psmds_dist.api.plot.style import OKABE_ITO, plain
from psmds_dist.core.types import Floats, Ints

MOST_MARKERS = 50_000
"""Points beyond which markers would hide each other, and pixels are colored instead."""

PIXELS = 400
"""Pixels along the longer side of a map."""

MOST_COLUMNS = 4
"""Most maps in a row."""

MOST_NAMES = 50
"""Points up to which their names are drawn unless somebody says otherwise; more hide each other."""

LONGEST_NAME = 24
"""Characters of a name in a picture."""

NAMES_OF_LINE = 1.3
"""Inches that names above the points of a line take."""

TALL, FLAT = 1.3, 0.45
"""Largest and smallest height of a map, as a share of its width."""


def size_of_maps(maps: Sequence[Floats], ids: Sequence[str] = ()) -> tuple[float, float]:
    """Width and height, in inches, of a figure of maps side by side, perhaps with names of the points."""
    rows, columns = _grid(len(maps))
    wide, titles = (6.0, 0.6) if len(maps) == 1 else (4.0, 0.8)
    space = [_drawn(x) for x in maps]
    names = NAMES_OF_LINE if ids and any(map(_is_line, space)) else 0
    return wide * columns + 1.2, rows * (_height(space, wide) + titles + names) + 0.3


def _grid(count: int) -> tuple[int, int]:
    """Rows and columns of so many maps."""
    rows = -(-count // MOST_COLUMNS)
    return rows, -(-count // rows)


def draw_maps(
    figure: Any,
    maps: Sequence[Floats],
    titles: Sequence[str],
    coloring: Coloring | None = None,
    heading: str = "",
    ids: Sequence[str] = (),
) -> None:
    """Draw maps side by side, under one scale and with one legend.

    Parameters
    ----------
    figure : Figure or SubFigure
        Empty.
    maps : sequence of (n, L) ndarray
        Coordinates. Three dimensions are drawn as such, of more the first two.
    titles : sequence of str
        A title for each.
    coloring : Coloring, optional
        Colors of the points.
    heading : str
        Title of the figure.
    ids : sequence of str
        Names to write beside the points, if any.
    """
    space = [_drawn(x) for x in maps]
    rows, columns = _grid(len(maps))
    drawn = []
    for k, (x, title) in enumerate(zip(space, titles, strict=True)):
        axes = figure.add_subplot(rows, columns, k + 1, projection="3d" if x.shape[1] == 3 else None)
        drawn.append(draw_map(axes, x, coloring))
        _set_limits(axes, space)
        _write_names(axes, x, ids)
        _label(axes, x.shape[1], maps[k].shape[1], left=k % columns == 0)
        axes.set_title(title)
    if heading:
        figure.suptitle(heading)
    add_key(figure, drawn, coloring, len(space[0]))


def draw_map(axes: Any, x: Floats, coloring: Coloring | None) -> Any:
    """Draw the points of a map and return what a color bar belongs to, if any."""
    return (_draw_pixels if len(x) > MOST_MARKERS else _draw_markers)(axes, x, coloring)


def ids_shown(ids: Sequence[str] | None) -> Sequence[str]:
    """Ids that are written beside the points unless somebody says otherwise: those of few."""
    return ids if ids is not None and len(ids) <= MOST_NAMES else ()


def _write_names(axes: Any, x: Floats, ids: Sequence[str]) -> None:
    """Write names right of the points; above those on a line."""
    line = _is_line(x)
    look = {"rotation": 90, "va": "bottom", "ha": "center"} if line else {"va": "center_baseline"}
    gap = " " * (6 if line else 2)  # markers of a line are tall
    if line and ids:
        axes.set_ylim(x[0, 1] - 0.5, x[0, 1] + 1.7)
    for place, name in zip(x.tolist(), ids, strict=False):
        short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."
        axes.text(*place, gap + plain(short), fontsize="x-small", **look)


def _label(axes: Any, shown: int, dims: int, *, left: bool) -> None:
    """Name the axes; those of flat maps along the vertical axis only on the left."""
    of = f" of {dims}" if dims > shown else ""
    for k, name in enumerate("xyz"[:shown]):
        getattr(axes, f"set_{name}label")(f"dimension {k + 1}{of}" if k != 1 or left or shown == 3 else "")
    if dims == 1:
        axes.set(yticks=[], ylabel="")
        axes.spines["left"].set_visible(False)


def add_key(figure: Any, drawn: Sequence[Any], coloring: Coloring | None, n: int) -> None:
    """Add the legend of classes, or the color bar of values or densities."""
    from matplotlib.lines import Line2D

    pixels = n > MOST_MARKERS
    if coloring is not None and coloring.classes:
        dots = [Line2D([], [], ls="", marker="o", ms=6, mew=0, color=color) for color in coloring.colors]
        title = coloring.legend + "\n(most frequent in a pixel)" * pixels
        figure.legend(
            dots,
            coloring.classes,
            title=title.strip(),
            loc="outside right center",
            handletextpad=0.2,
            fontsize="small",
            title_fontsize="small",
            alignment="left",
        )
    elif drawn[0] is not None:
        limits = [image.get_clim() for image in drawn]
        for image in drawn:
            image.set_clim(np.min(limits), np.max(limits))
        label = "points in a pixel" if coloring is None else coloring.label + " (mean in a pixel)" * pixels
        figure.colorbar(drawn[0], ax=figure.axes, label=label, shrink=0.7, aspect=25, pad=0.02)


def aligned(maps: Sequence[Floats]) -> list[Floats]:
    """Maps that are moved, turned, mirrored and brought to the size of the first, so that they lie like it."""
    dims = max(x.shape[1] for x in maps)
    first, *others = (np.pad(x - x.mean(axis=0), ((0, 0), (0, dims - x.shape[1]))) for x in maps)
    return [first, *(_turned_to(first, x) for x in others)]


def _turned_to(first: Floats, x: Floats) -> Floats:
    u, _, v = np.linalg.svd(np.einsum("ij,ik->jk", x, first))
    turned: Floats = x @ (u @ v) * (np.linalg.norm(first) / (np.linalg.norm(x) or 1.0))
    return turned


def _drawn(x: Floats) -> Floats:
    """Dimensions that are drawn: two, or three of three."""
    if x.shape[1] == 1:
        return np.column_stack((x, np.zeros(len(x))))
    return x if x.shape[1] == 3 and len(x) <= MOST_MARKERS else x[:, :2]


def _set_limits(axes: Any, space: Sequence[Floats]) -> None:
    """Give all maps the same part of the plane, with equal units along the axes."""
    low, high = _bounds(space)
    margin = 0.04 * float((high - low).max() or 1.0)
    for name, lo, hi in zip("xyz", low - margin, high + margin, strict=False):
        getattr(axes, f"set_{name}lim")(lo, hi)
    if low.size == 3:
        axes.set_box_aspect(high - low + 2 * margin, zoom=0.9)
    elif high[1] > low[1]:
        axes.set_aspect("equal")
    else:
        axes.set_ylim(low[1] - 1, low[1] + 1)


def _bounds(space: Sequence[Floats]) -> tuple[Floats, Floats]:
    return np.min([x.min(axis=0) for x in space], axis=0), np.max([x.max(axis=0) for x in space], axis=0)


def _height(space: Sequence[Floats], width: float) -> float:
    """Height of a map that is so wide, or of a line of points."""
    low, high = _bounds(space)
    if low.size == 3:
        return 0.9 * width
    across, along = high - low
    if along == 0:
        return 1.2
    return width * float(np.clip(along / (across or along), FLAT, TALL))


def _draw_markers(axes: Any, x: Floats, coloring: Coloring | None) -> Any:
    """Draw points as dots, in random order, so that no class lies over another."""
    order = np.random.default_rng(0).permutation(len(x))
    line = _is_line(x)
    size = 400 if line else float(np.clip(20000 / len(x), 2, 30))
    look = {"s": size, "linewidths": 1 if line else 0, "marker": "|" if line else "o", "alpha": 0.8}
    columns = x[order].T
    if coloring is None:
        axes.scatter(*columns, color=OKABE_ITO[0], **look)
        return None
    values = coloring.values[order]
    if coloring.classes:
        axes.scatter(*columns, c=_rgba(coloring)[values], **look)
        return None
    return axes.scatter(*columns, c=values, **look)


def _is_line(x: Floats) -> bool:
    return x.shape[1] == 2 and not np.ptp(x[:, 1])


def _rgba(coloring: Coloring) -> Floats:
    from matplotlib.colors import to_rgba_array

    return np.asarray(to_rgba_array(coloring.colors))


def _draw_pixels(axes: Any, x: Floats, coloring: Coloring | None) -> Any:
    """Color pixels by their points: by the most frequent class, the mean value, or the number of points."""
    cells, shape, extent = pixels_of(x)
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    look = {"origin": "lower", "extent": extent, "interpolation": "nearest", "aspect": "auto"}
    if coloring is None:
        from matplotlib.colors import LogNorm

        return axes.imshow(np.ma.masked_equal(counts, 0).reshape(shape), norm=LogNorm(), **look)
    if not coloring.classes:
        sums = np.bincount(cells, coloring.values, counts.size)
        mean = np.ma.masked_array(sums / np.maximum(counts, 1), counts == 0)
        return axes.imshow(mean.reshape(shape), **look)
    most = most_frequent(cells, coloring.values.astype(np.int64), len(coloring.classes), counts.size)
    image = np.where((counts > 0)[:, None], _rgba(coloring)[most], 0.0)
    axes.imshow(image.reshape(*shape, 4), **look)
    return None


def pixels_of(x: Floats) -> tuple[Ints, tuple[int, int], tuple[float, float, float, float]]:
    """Number of the pixel of each point, rows and columns of pixels, and the part of the plane that they cover."""
    low, high = x.min(axis=0), x.max(axis=0)
    side = float((high - low).max()) / PIXELS or 1.0
    columns, rows = (np.floor((high - low) / side).astype(int) + 1).tolist()
    across, along = np.floor((x - low) / side).astype(np.int64).T
    flat = high[1] == low[1]  # a line is drawn as a band
    height = (low[1] - 0.5, low[1] + 0.5) if flat else (low[1], low[1] + rows * side)
    extent = (low[0], low[0] + columns * side, *height)
    return along * columns + across, (rows, columns), extent


def most_frequent(cells: Ints, classes: Ints, count: int, size: int) -> Ints:
    """Most frequent class in each of so many cells."""
    best, most = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for k in range(count):
        found = np.bincount(cells[classes == k], minlength=size)
        best[found > most] = k
        np.maximum(most, found, out=most)
    return best
