"""Pictures of a map, of the error over its epochs, and of stress against dimensions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.types import Floats, InputError

if TYPE_CHECKING:
    from psmds_dist.api.dimensions import Dimensions


def require_picture_place(path: str | os.PathLike[str], *others: str | os.PathLike[str]) -> None:
    """Reject a path to which `save_map` cannot write, before the run starts.

    Parameters
    ----------
    path : path
        Path of the picture.
    *others : path
        Inputs and other outputs; the picture must not be one of them, nor inside one.

    Raises
    ------
    InputError
        If the format is unknown, the directory does not exist, or the path is used otherwise.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from psmds_dist.data.store import require_apart

    place = Path(path)
    kinds = FigureCanvasAgg.get_supported_filetypes()
    if place.suffix[1:].lower() not in kinds:
        raise InputError(f"cannot save a picture to {str(place)!r}: the name must end in .{', .'.join(kinds)}.")
    if not place.absolute().parent.is_dir():
        raise InputError(f"cannot save a picture to {str(place)!r}: its directory does not exist.")
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
    """Draw the first two dimensions of a map and save the picture.

    Parameters
    ----------
    path : path
        Picture; its suffix selects the format.
    embedding : (n, L) ndarray
        Coordinates.
    colour : (n,) ndarray, optional
        Value of each point; at most ten distinct integers are drawn as classes.
    colour_label, title : str
        Text of the colour bar, and of the map.
    history : structured ndarray, optional
        Epochs of the solve; draws their errors beside the map.

    Raises
    ------
    InputError
        If the format is unknown.
    """
    figure = _figure(12.5 if history is not None else 7.5)
    axes = figure.subplots(1, 2 if history is not None else 1, squeeze=False)[0]
    _draw_map(figure, axes[0], embedding, colour, colour_label)
    axes[0].set_title(title)
    if history is not None:
        _draw_history(axes[1], history)
    _save(figure, path)


def save_curve(path: str | os.PathLike[str], found: Dimensions) -> None:
    """Draw stress against dimensions beside that of noise, and save the picture.

    Parameters
    ----------
    path : path
        Picture; its suffix selects the format.
    found : Dimensions
        The curves.

    Raises
    ------
    InputError
        If the format is unknown.
    """
    figure = _figure(7.5)
    axes = figure.subplots()
    _draw_range(axes, found.shuffled, "shuffled dissimilarities", "tab:grey")
    _draw_range(axes, found.stress, "dissimilarities", "tab:blue")
    if found.n_components:
        axes.axvline(found.n_components, color="tab:blue", linestyle=":")
    axes.set_xticks(range(1, found.stress.shape[1] + 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("dimensions")
    axes.set_ylabel("normalized stress (median and range of the starts)")
    axes.set_title(found.coverage)
    axes.legend()
    _save(figure, path)


def _figure(width: float) -> Any:
    """Empty figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 6), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Save a picture, whole or not at all."""
    from psmds_dist.data.store import atomic_file

    try:
        with atomic_file(path) as fresh:
            figure.canvas.print_figure(os.fspath(fresh), dpi=120)
    except ValueError as error:
        raise InputError(f"cannot save a picture to {os.fspath(path)!r}: {error}.") from None


def _draw_range(axes: Any, values: Floats, label: str, color: str) -> None:
    dims = np.arange(1, values.shape[1] + 1)
    axes.fill_between(dims, values.min(axis=0), values.max(axis=0), color=color, alpha=0.3, linewidth=0)
    axes.plot(dims, np.median(values, axis=0), marker="o", color=color, label=label)


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
    axes.set_ylabel("root mean square error (bad moves may raise it temporarily)")
    radius = axes.twinx()
    radius.semilogy(history["epoch"], history["radius"], color="tab:grey", linestyle=":")
    radius.set_ylabel("radius (dotted)")
