"""The pictures that can be asked for, by their kinds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.plot.colors import Coloring, coloring
from psmds_dist.api.plot.curves import add_history_axes, draw_history, figure_of_dimensions, figure_of_history
from psmds_dist.api.plot.maps import aligned, draw_maps, ids_shown, size_of_maps
from psmds_dist.api.plot.shepard import figure_of_pairs, pairs_of
from psmds_dist.api.plot.style import new_figure, plain, require_picture_place, save, styled
from psmds_dist.api.plot.subjects import Subject, subject_of
from psmds_dist.core.types import Floats, InputError
from psmds_dist.data.labels import labels_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psmds_dist.api.dimensions import Dimensions

KINDS = ("map", "stress", "convergence", "shepard")
"""Kinds of pictures."""


def plot(
    results: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    kind: str = "map",
    color: Any = None,
    color_label: str | None = None,
    categorical: bool = False,
    X: Any = None,
    sample: int | None = None,
    names: Sequence[str] | None = None,
    ids: bool | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a map, or several side by side, or how it was found, or how well it fits.

    Parameters
    ----------
    results : fitted estimator, Result, (n, L) array_like, path, or list of these
        What to draw. A path is that of a result, or of a file with coordinates (.npy, .csv or .tsv). Several maps of
        the same points are moved, turned, mirrored and brought to the size of the first.
    path : path, default=None
        Where to save the picture; its suffix selects the format. None saves nothing.
    kind : {"map", "stress", "convergence", "shepard"}, default="map"
        ``"map"``: the points; three dimensions are drawn as such, of more the first two. Beyond 50,000 points the
        pixels of a grid are colored: by mean value, most frequent class, or number of points.
        ``"stress"``: the points, colored by the normalized stress of their rows.
        ``"convergence"``: error and radius against the epoch.
        ``"shepard"``: distances in the map against dissimilarities, from 20,000 pairs on as a density.
    color : (n,) array_like or path, default=None
        Label or value of each point, as `quality` takes labels. Text and up to 20 different whole numbers are drawn as
        classes, other numbers as values.
    color_label : str, default=None
        Title of the legend or color bar; by default the name of the file of ``color``.
    categorical : bool, default=False
        Draw all numbers as classes.
    X : matrix or path, default=None
        Dissimilarities of a Shepard diagram, as `PatternSearchMDS.fit` takes them; by default those that a stored
        result was computed from.
    sample : int, default=None
        Points whose rows a Shepard diagram shows; by default so many that there are about four million pairs.
    names : sequence of str, default=None
        Name of each map; by default that of its file.
    ids : bool, default=None
        Whether the ids of the points are written beside them in a map. None does so where there are ids, of up to 50
        points.
    title : str, default=None
        Title of the picture; by default kind, number of points and stress.

    Returns
    -------
    matplotlib.figure.Figure
        The picture; `savefig` and ``axes`` work as usual.

    Raises
    ------
    InputError
        (a ValueError) When there is nothing such to draw, or the file cannot be written.
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(map(repr, KINDS))}, not {kind!r}.")
    if path is not None:
        require_picture_place(path)
    subjects = _subjects(results, names)
    label, heading = (None if text is None else plain(text) for text in (color_label, title))
    with styled():
        if kind == "convergence":
            figure = _convergence(subjects, heading)
        elif kind == "shepard":
            figure = _shepard(subjects, X, sample, heading)
        else:
            colors = _coloring(subjects[0], kind, color, label, categorical)
            figure = _maps(subjects, colors, _ids_of(subjects[0], ids), heading)
    if path is not None:
        save(figure, path)
    return figure


def _subjects(results: Any, names: Sequence[str] | None) -> list[Subject]:
    given = results if isinstance(results, list | tuple) else [results]
    if not given:
        raise InputError("results is empty; give at least one map.")
    if names is not None and len(names) != len(given):
        raise InputError(f"names has {len(names)} names for {len(given)} maps; give one for each.")
    return [subject_of(one, k + 1, names[k] if names else None) for k, one in enumerate(given)]


def _coloring(subject: Subject, kind: str, color: Any, label: str | None, categorical: bool) -> Coloring | None:
    """Colors of the points of all maps."""
    if kind == "stress":
        if color is not None:
            raise InputError("kind='stress' colors points by their stress; leave color out, or use kind='map'.")
        return coloring(subject.require_point_stress(), label or "normalized stress of the point")
    if color is None:
        return None
    if label is None:
        label = plain(Path(color).stem) if isinstance(color, str | os.PathLike) else ""
    return coloring(labels_for(color, len(subject.embedding), subject.ids, "color"), label, categorical=categorical)


def _ids_of(subject: Subject, wanted: bool | None) -> Sequence[str]:
    """Ids to write beside the points."""
    if wanted is None:
        return ids_shown(subject.ids)
    if wanted and subject.ids is None:
        raise InputError(f"ids=True (--ids) needs ids of the points, but {subject.name} has none; leave it out.")
    return subject.ids or () if wanted else ()


def _maps(subjects: Sequence[Subject], colors: Coloring | None, ids: Sequence[str], title: str | None) -> Figure:
    """Draw maps, and say how many points and how much stress they have."""
    n = len(subjects[0].embedding)
    for subject in subjects:
        subject.require_same_points(subjects[0])
    if len(subjects) == 1:
        titles, heading = [title or f"Map of {n:,} points{subjects[0].stress_text}"], ""
        maps = [subjects[0].embedding]
    else:
        titles = [plain(subject.name) + subject.stress_text.replace(", ", "\n") for subject in subjects]
        heading = title or f"Maps of {n:,} points, turned and scaled to the first"
        maps = aligned([subject.embedding for subject in subjects])
    figure = new_figure(*size_of_maps(maps, ids))
    draw_maps(figure, maps, titles, colors, heading, ids)
    return figure


def _convergence(subjects: Sequence[Subject], heading: str | None) -> Figure:
    """Draw the epochs of all solves, and say how many there are."""
    histories = [subject.require_history() for subject in subjects]
    epochs, n = len(histories[0]), len(subjects[0].embedding)
    several = f"Convergence of {len(subjects)} solves"
    one = f"Convergence: {epochs:,} epochs for {n:,} points{subjects[0].stress_text}"
    losses = {subject.loss for subject in subjects}
    loss = losses.pop() if len(losses) == 1 else "own"
    names = [plain(subject.name) for subject in subjects]
    return figure_of_history(names, histories, heading or (several if len(subjects) > 1 else one), loss)


def _shepard(subjects: Sequence[Subject], X: Any, sample: int | None, title: str | None) -> Figure:
    if len(subjects) > 1:
        raise InputError(f"a Shepard diagram shows one map, not {len(subjects)}: draw one for each.")
    subject = subjects[0]
    given, embedded, which = pairs_of(subject, X, sample)
    heading = title or f"Shepard diagram{subject.stress_text}\n{which}"
    return figure_of_pairs(given, embedded, heading, subject.curve)


def save_map(
    path: str | os.PathLike[str],
    embedding: Floats,
    *,
    colour: NDArray[Any] | None = None,
    colour_label: str = "",
    title: str = "",
    history: NDArray[np.void] | None = None,
    loss: str = "squared",
    ids: Sequence[str] | None = None,
) -> None:
    """Draw a map, and its convergence beside it, and save the picture.

    Parameters
    ----------
    path : path
        Picture; its suffix selects the format.
    embedding : (n, L) ndarray
        Coordinates.
    colour : (n,) ndarray, optional
        Label or value of each point.
    colour_label, title : str
        Title of the color bar or legend, and of the map.
    history : structured ndarray, optional
        Epochs of the solve, to draw beside the map if there are any.
    loss : str
        What the solve lowered.
    ids : sequence of str, optional
        Names of the points, which are written beside them where they are few.

    Raises
    ------
    InputError
        If the format is unknown.
    """
    colors = None if colour is None else coloring(colour, plain(colour_label))
    shown = ids_shown(ids)
    with styled():
        width, height = size_of_maps([embedding], shown)
        if history is None or not len(history):
            figure = new_figure(width, height)
            draw_maps(figure, [embedding], [plain(title)], colors, ids=shown)
        else:
            figure = new_figure(width + 5, max(4.5, height))
            left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[width, 5])[0]
            draw_maps(left, [embedding], [plain(title)], colors, ids=shown)
            above, below = add_history_axes(right, loss)
            draw_history(above, below, history)
            above.set_title("convergence")
    save(figure, path)


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
    with styled():
        figure = figure_of_dimensions(found)
    save(figure, path)
