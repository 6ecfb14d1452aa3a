"""Pictures of curves: convergence, and stress against dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.plot.style import OKABE_ITO, PALE, new_figure
from psmds_dist.core.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psmds_dist.api.dimensions import Dimensions

WIDE_RANGE = 20
"""Ratio of errors beyond which their axis is logarithmic."""


def figure_of_history(
    names: Sequence[str], histories: Sequence[NDArray[np.void]], heading: str, loss: str = "squared"
) -> Figure:
    """Draw error and radius of solves against the epoch, by their names."""
    figure = new_figure(7.2, 5)
    axes = add_history_axes(figure, loss)
    for k, history in enumerate(histories):
        draw_history(*axes, history, color=OKABE_ITO[k % len(OKABE_ITO)])
    if len(histories) > 1:
        figure.legend(axes[0].lines, names, loc="outside right center")
    axes[0].set_title(heading)
    return figure


def add_history_axes(figure: Any, loss: str = "squared") -> tuple[Any, Any]:
    """Axes of the error, and below them those of the radius."""
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    above.set_ylabel("root mean square error" if loss == "squared" else f"root of the mean {loss} loss")
    below.set_ylabel("radius of the moves")
    below.set_xlabel("epoch")
    below.xaxis.get_major_locator().set_params(integer=True)
    return above, below


def _set_log(axes: Any) -> None:
    """Make the vertical axis logarithmic, with plain numbers; within a decade, some between powers of ten as well."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    numbers = FuncFormatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(numbers)
    axes.yaxis.set_minor_formatter(numbers if high < 10 * low else NullFormatter())


def draw_history(above: Any, below: Any, history: NDArray[np.void], color: str = OKABE_ITO[0]) -> None:
    """Draw the error and the radius of a solve into axes of `add_history_axes`."""
    errors = np.sqrt(history["mse"])
    known = errors[np.isfinite(errors) & (errors > 0)]
    look = {"color": color, "marker": "o", "ms": 3, "mew": 0}
    above.plot(history["epoch"], errors, **look)
    below.plot(history["epoch"], history["radius"], **look)
    _set_log(below)
    if known.size and known.max() > WIDE_RANGE * known.min():
        _set_log(above)


def figure_of_dimensions(found: Dimensions) -> Figure:
    """Draw stress against dimensions, beside that of noise."""
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    _draw_range(axes, found.shuffled, "shuffled dissimilarities", PALE)
    _draw_range(axes, found.stress, "dissimilarities", OKABE_ITO[0])
    if found.n_components:
        axes.axvline(found.n_components, color=OKABE_ITO[0], linestyle=":")
    axes.set_xticks(range(1, found.stress.shape[1] + 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("dimensions")
    axes.set_ylabel("normalized stress (median, range of starts)")
    axes.set_title(found.coverage)
    axes.legend()
    return figure


def _draw_range(axes: Any, values: Floats, label: str, color: str) -> None:
    dims = np.arange(1, values.shape[1] + 1)
    axes.fill_between(dims, values.min(axis=0), values.max(axis=0), color=color, alpha=0.3, linewidth=0)
    axes.plot(dims, np.median(values, axis=0), marker="o", color=color, label=label)
