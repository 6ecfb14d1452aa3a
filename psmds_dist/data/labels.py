"""Labels of points: a class or a value for each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.arrays import as_array, is_masked
from psmds_dist.core.types import InputError
from psmds_dist.data.coordinates import Coordinates
from psmds_dist.data.ids import check_ids, read_lines
from psmds_dist.data.sources import load_npy

Labels = NDArray[Any]


def labels_for(given: Any, n: int, ids: Sequence[str] | None = None, name: str = "labels") -> Labels:
    """Labels of ``n`` points, from an array or a file.

    Parameters
    ----------
    given : array_like or path
        Labels in the order of the points; or the path of a text file with one label a line, of a ``.csv`` or ``.tsv``
        file whose last column is taken, below a heading if it has one line more than there are points, or of a
        ``.npy`` file. If there are several columns, the first holds names, which are matched with ``ids``; lines of
        other points are ignored.
    n : int
        Number of points.
    ids : sequence of str, optional
        Names of the points.
    name : str
        What messages call an array.

    Returns
    -------
    (n,) ndarray
        Integers, other numbers, or strings.

    Raises
    ------
    InputError
        When there are not ``n`` labels, some are missing, or a file has names and the points have none.
    """
    if not isinstance(given, str | os.PathLike):
        return _checked(given, n, name)
    place = Path(given)
    if place.suffix.lower() == ".npy":
        return _checked(load_npy(str(place)), n, str(place))
    return _read(place, n, ids)


def _checked(given: Any, n: int, name: str) -> Labels:
    labels = as_array(given, name)
    if labels.shape != (n,):
        raise InputError(f"{name} must hold one label for each of {n} points, not an array of shape {labels.shape}.")
    if is_masked(given):
        raise InputError(f"{name} has masked entries: give every point a label, or leave those points out.")
    if labels.dtype.kind == "O":
        labels = _numbers_or_text(["" if label is None or label != label else str(label) for label in labels.tolist()])
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    missing = np.flatnonzero(_missing(labels))
    if missing.size:
        raise InputError(f"{name} has no label for {missing.size} points, first for point {missing[0]}; give each one.")
    return labels


def _missing(labels: Labels) -> NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    return np.equal(labels, "") if labels.dtype.kind == "U" else np.zeros(labels.size, bool)


def _read(place: Path, n: int, ids: Sequence[str] | None) -> Labels:
    lines = read_lines(place, n, f"the file of labels {place}")
    named = all(len(line) > 1 for line in lines)
    if named and ids is not None and len(lines) != n:
        lines = _of_points(lines, ids, place)
    if len(lines) != n:
        raise InputError(f"{place} has {len(lines)} labels for {n} points; give one a line, in their order.")
    labels = _numbers_or_text([line[-1] for line in lines])
    if named:
        names = check_ids([line[0] for line in lines], n, str(place))
        if ids is None:
            _refuse_names(names, place)
        labels = Coordinates(str(place), labels, names, what="labels").ordered(ids).values
    return _checked(labels, n, str(place))


def _of_points(lines: list[list[str]], ids: Sequence[str], place: Path) -> list[list[str]]:
    """Lines of the points of a map, of a table that has others as well, and perhaps a heading."""
    wanted = set(ids)
    lines = [line for line in lines if line[0] in wanted]
    missing = wanted.difference(line[0] for line in lines)
    if missing:
        first = next(name for name in ids if name in missing)
        raise InputError(
            f"{place} has no labels of {len(missing)} of {len(ids)} points, first {first!r}; add them to the file."
        )
    return lines


def _refuse_names(names: Sequence[str], place: Path) -> None:
    """Refuse names that tell which points are meant where points have none: the order may be another."""
    with suppress(ValueError):
        np.array(names, float)
        return
    raise InputError(
        f"{place} names its points, first {names[0]!r}, but the map has no names to match them with: fit with names "
        "(--ids), or remove the first column if the lines are in the order of the matrix."
    )


def _numbers_or_text(labels: Sequence[str]) -> Labels:
    """Integers if all labels are, else other numbers if all are, else the text."""
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            return np.array([kind(label) for label in labels], kind)
    return np.array(labels, str)
