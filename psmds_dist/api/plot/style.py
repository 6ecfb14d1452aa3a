"""How all pictures look, and how they are saved."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psmds_dist.core.types import InputError
from psmds_dist.utils.remote import require_local
from psmds_dist.utils.text import escaped_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Colors that people with any kind of color vision tell apart (Okabe and Ito, Color Universal Design, 2008)."""

PALE = "#BBBBBB"
"""What stands back: lines to compare with, classes without a color."""

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#333333",
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.titlesize": "large",
    "grid.color": "#DDDDDD",
    "image.cmap": "viridis",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
}


def styled() -> AbstractContextManager[None]:
    """Context in which figures are made in this style."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def plain(text: str) -> str:
    """Text in which a dollar sign is a dollar sign, and control characters are escaped."""
    return escaped_lines(text).replace("$", r"\$")


def new_figure(width: float, height: float) -> Figure:
    """Empty figure, in inches, that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Save a picture, whole or not at all.

    Raises
    ------
    InputError
        If the format is unknown.
    """
    from psmds_dist.data.store import atomic_file

    try:
        with styled(), atomic_file(path) as fresh, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a name in a script that the font lacks
            figure.draw_without_rendering()  # the layout settles when it is made a second time
            figure.savefig(fresh)
    except ValueError as error:
        raise InputError(f"cannot save a picture to {os.fspath(path)!r}: {error}.") from None


def require_picture_place(path: str | os.PathLike[str], *others: str | os.PathLike[str]) -> None:
    """Reject a path to which no picture can be saved, before the work starts.

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

    require_local(path, "a picture")
    place = Path(path)
    kinds = FigureCanvasAgg.get_supported_filetypes()
    if place.suffix[1:].lower() not in kinds:
        raise InputError(f"cannot save a picture to {str(place)!r}: the name must end in .{', .'.join(kinds)}.")
    if not place.absolute().parent.is_dir():
        raise InputError(f"cannot save a picture to {str(place)!r}: its directory does not exist.")
    require_apart(place, *others)
