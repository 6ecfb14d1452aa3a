"""Plots of stress against time, and fits of exponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


def draw_traces(path: Path, title: str, traces: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Plot normalized stress against time, one line per method, with logarithmic axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for name, trace in traces.items():
        when, stress = zip(*trace, strict=True)
        axes.loglog(when, stress, marker=".", markersize=4, linewidth=1.2, label=name)
    axes.set_xlabel("seconds")
    axes.set_ylabel("normalized stress")
    axes.set_title(title)
    axes.grid(which="both", alpha=0.2)
    axes.legend()
    FigureCanvasAgg(figure).print_figure(path, dpi=120)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Exponent of a power law, fitted by least squares on logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(slope)
