"""Shepard diagrams: distances in a map against dissimilarities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from psmds_dist.api.inputs import row_source
from psmds_dist.api.plot.style import OKABE_ITO, new_figure
from psmds_dist.api.plot.subjects import Subject
from psmds_dist.core.config import check_int
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.types import Floats, InputError, Ints
from psmds_dist.executor import InProcessExecutor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DOTS = 20_000
"""Pairs beyond which the density of the dots is shown."""

MOST_PAIRS = 4_000_000
"""Pairs that are read if the user does not say of how many points: about 100 MB."""

FEWEST_ROWS = 20
"""Rows that are read at least, however many points there are."""

BINS = 150
"""Cells of a density along an axis."""


def pairs_of(subject: Subject, matrix: Any, sample: int | None) -> tuple[Floats, Floats, str]:
    """Dissimilarities and distances of pairs of points, and words on which pairs these are."""
    matrix = subject.matrix if matrix is None else matrix
    if matrix is None:
        raise InputError(
            f"it is not recorded where the dissimilarities of {subject.name} are; give them (X= in Python, --matrix)."
        )
    x, n = subject.embedding, len(subject.embedding)
    with row_source(matrix, InProcessExecutor()) as source:
        if source.n != n:
            raise InputError(f"{subject.name} has {n} points, but the matrix {source.n}: give that of this map.")
        rows = _rows(n, sample)
        given = source.verified().take(rows)
    used = np.arange(n) > rows[:, None] if rows.size == n else np.arange(n) != rows[:, None]
    used &= np.isfinite(given)
    embedded = np.concatenate([_distances(x, row)[use] for row, use in zip(rows, used, strict=True)])
    which = f"{embedded.size:,} pairs of {n:,} points"
    drawn = "" if rows.size == n else f": {rows.size:,} random ones with all others"
    return given[used].astype(float), embedded, which + drawn


def _rows(n: int, sample: int | None) -> Ints:
    """Points whose pairs are shown, ascending."""
    wanted = max(FEWEST_ROWS, MOST_PAIRS // n) if sample is None else check_int("sample", sample, 1)
    if wanted >= n or (sample is None and n * (n - 1) // 2 <= MOST_PAIRS):
        return np.arange(n)
    return np.sort(generator(0, RandomStream.MEASURED_ROWS).permutation(n)[:wanted])


def _distances(x: Floats, row: int) -> Floats:
    distances: Floats = np.sqrt(np.square(x - x[row]).sum(axis=1))
    return distances


def figure_of_pairs(given: Floats, embedded: Floats, heading: str, curve: Floats | None = None) -> Figure:
    """Draw distances against dissimilarities, as dots or as a density, with the fitted disparities."""
    figure = new_figure(6, 5)
    axes = figure.subplots()
    right, top = float(given.max(initial=0)) or 1.0, float(embedded.max(initial=0)) or 1.0
    if given.size <= MOST_DOTS:
        size = float(np.clip(20000 / max(1, given.size), 1, 20))
        axes.scatter(given, embedded, s=size, linewidths=0, alpha=0.5, color=OKABE_ITO[0])
    else:
        _draw_density(figure, axes, given, embedded, [[0, right], [0, top]])
    if curve is None:
        axes.plot([0, max(right, top)], [0, max(right, top)], color=OKABE_ITO[5], linewidth=1, label="equal")
    else:
        for line, label in zip(curve[1:], ("disparity", None), strict=False):
            axes.plot(curve[0], line, color=OKABE_ITO[5], linewidth=1, label=label)
    axes.set(xlim=(0, 1.03 * right), ylim=(0, 1.03 * top), xlabel="dissimilarity", ylabel="distance in the map")
    axes.set_title(heading)
    axes.legend(loc="upper left")
    return figure


def _draw_density(figure: Any, axes: Any, given: Floats, embedded: Floats, limits: list[list[float]]) -> None:
    from matplotlib.colors import LogNorm

    counts, across, along = np.histogram2d(given, embedded, BINS, limits)
    mesh = axes.pcolormesh(across, along, np.ma.masked_equal(counts.T, 0), norm=LogNorm(), rasterized=True)
    figure.colorbar(mesh, ax=axes, label="pairs in a cell", shrink=0.7, aspect=25, pad=0.02)
