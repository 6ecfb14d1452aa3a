"""Pictures: a map, and how its error fell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, InputError


def require_picture_place(path: str | os.PathLike[str], *others: str | os.PathLike[str]) -> None:
    """Refuse a place where `save_map` cannot write, before hours are spent on the map.

    Parameters
    ----------
    path : path
        Where the picture is to be.
    *others : path
        What else is read or written: the picture must not lie there, nor inside of it.

    Raises
    ------
    InputError
        When the format is unknown, the directory is not there, or something else is.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from psmds_dist.data.store import require_apart

    place = Path(path)
    kinds = FigureCanvasAgg.get_supported_filetypes()
    if place.suffix[1:].lower() not in kinds:
        raise InputError(f"cannot save a picture to {str(place)!r}: its name must end in .{', .'.join(kinds)}.")
    if not place.absolute().parent.is_dir():
        raise InputError(f"cannot save a picture to {str(place)!r}: there is no such directory.")
    require_apart(place, *others)


def save_map(
    path: str | os.PathLike[str],
    embedding: Floats,
    *,
    colour: NDArray[Any] | None = None,
    colour_label: str = "",
    title: str = "",
    history: NDArray[np.void] | None = None,
) -> None:
    """Draw the first two dimensions of a map and save the picture; the ending of ``path`` tells the format.

    Parameters
    ----------
    path : path
        Where.
    embedding : (n, L) ndarray
        Coordinates, at least one dimension.
    colour : (n,) ndarray, optional
        Value of each point; whole numbers of at most ten kinds are drawn as classes.
    colour_label, title : str
        Words.
    history : structured ndarray, optional
        Draws the error of each epoch beside the map.

    Raises
    ------
    InputError
        When the format is unknown or the place cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from psmds_dist.data.store import atomic_file

    figure = Figure(figsize=(12.5 if history is not None else 7.5, 6), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2 if history is not None else 1, squeeze=False)[0]
    _draw_map(figure, axes[0], embedding, colour, colour_label)
    axes[0].set_title(title)
    if history is not None:
        _draw_history(axes[1], history)
    try:
        with atomic_file(path) as fresh:
            canvas.print_figure(os.fspath(fresh), dpi=120)
    except ValueError as error:
        raise InputError(f"cannot save a picture to {os.fspath(path)!r}: {error}.") from None


def _draw_map(figure: Any, axes: Any, embedding: Floats, colour: NDArray[Any] | None, label: str) -> None:
    x = embedding[:, 0]
    y = embedding[:, 1] if embedding.shape[1] > 1 else np.zeros_like(x)
    size = float(np.clip(20000 / len(x), 1.5, 30))
    classes = colour is not None and colour.dtype.kind in "iu" and len(np.unique(colour)) <= 10
    if colour is None:
        axes.scatter(x, y, s=size, linewidths=0)
    else:
        points = axes.scatter(x, y, c=colour, s=size, linewidths=0, cmap="tab10" if classes else "viridis")
        bar = figure.colorbar(points, ax=axes, label=label, shrink=0.8)
        if classes:
            bar.set_ticks(np.unique(colour))
    axes.set_aspect("equal")
    axes.set_xlabel("dimension 1" if embedding.shape[1] < 3 else f"dimension 1 of {embedding.shape[1]}")
    axes.set_ylabel("dimension 2" if embedding.shape[1] > 1 else "")


def _draw_history(axes: Any, history: NDArray[np.void]) -> None:
    axes.plot(history["epoch"], np.sqrt(history["mse"]))
    axes.set_xlabel("epoch")
    axes.set_ylabel("root mean square error (bad moves may raise it for a while)")
    radius = axes.twinx()
    radius.semilogy(history["epoch"], history["radius"], color="tab:grey", linestyle=":")
    radius.set_ylabel("radius (dotted)")
