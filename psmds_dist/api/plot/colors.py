"""Colors of points: by a value, or by a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.plot.style import OKABE_ITO, PALE, plain
from psmds_dist.core.types import Floats, Ints

MOST_CLASSES = 20
"""Most classes with a color of their own."""

MOST_LETTERS = 28
"""Longest name of a class in a legend."""


@dataclass(frozen=True)
class Coloring:
    """What the points are colored by.

    Attributes
    ----------
    values : (n,) ndarray
        A number for each point, or the number of its class.
    label : str
        What the values are.
    classes : tuple of str
        Names of the classes; none if the values are numbers.
    """

    values: Floats | Ints
    label: str = ""
    classes: tuple[str, ...] = ()

    @property
    def colors(self) -> list[Any]:
        """Color of each class."""
        import matplotlib

        count = len(self.classes)
        if count <= len(OKABE_ITO):
            return list(OKABE_ITO[:count])
        table = matplotlib.colormaps["tab10" if count <= 10 else "tab20"].colors  # type: ignore[attr-defined]
        return [*table[: min(count, MOST_CLASSES)], PALE][:count]

    @property
    def legend(self) -> str:
        """Title of the legend."""
        alike = "(some colors are alike)" if len(self.classes) > len(OKABE_ITO) else ""
        return "\n".join(filter(None, (self.label, alike)))


def coloring(values: NDArray[Any], label: str = "", *, categorical: bool = False) -> Coloring:
    """Colors by classes for text, for at most 20 different whole numbers, and if asked for; otherwise by value.

    Of more than 20 classes, the most frequent get colors of their own.
    """
    kinds, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if not (categorical or values.dtype.kind in "USb" or (values.dtype.kind in "iu" and kinds.size <= MOST_CLASSES)):
        return Coloring(values.astype(float), label)
    if kinds.size <= MOST_CLASSES:
        return Coloring(codes, label, tuple(map(_short, kinds)))
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST_CLASSES])
    place = np.full(kinds.size, MOST_CLASSES)
    place[frequent] = np.arange(MOST_CLASSES)
    others = f"{kinds.size - MOST_CLASSES:,} other classes"
    return Coloring(place[codes], label, (*map(_short, kinds[frequent]), others))


def _short(name: object) -> str:
    text = str(name)
    return plain(text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…")
