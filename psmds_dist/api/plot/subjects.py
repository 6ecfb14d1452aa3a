"""What a picture is of: a map from an estimator, a stored result, a file or an array."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.embed import usable_map
from psmds_dist.api.results import Result, read_result
from psmds_dist.core.arrays import as_array
from psmds_dist.core.types import Floats, InputError
from psmds_dist.data.coordinates import count_points, holds_coordinates, read_coordinates


@dataclass(frozen=True)
class Subject:
    """A map, and what is known about it.

    Attributes
    ----------
    name : str
        What it is called.
    embedding : (n, L) ndarray
        Coordinates.
    stress : float
        Normalized stress; NaN where unknown.
    point_stress : (n,) ndarray, optional
        That of each point.
    history : structured ndarray, optional
        Epochs of the solve.
    ids : list of str, optional
        Names of the points.
    matrix : str, optional
        Path of the dissimilarities.
    loss : str
        What the solve lowered.
    curve : (2 or 3, k) ndarray, optional
        Dissimilarities and their disparities, where these were fitted.
    """

    name: str
    embedding: Floats
    stress: float = math.nan
    point_stress: Floats | None = None
    history: NDArray[np.void] | None = None
    ids: list[str] | None = None
    matrix: str | None = None
    loss: str = "squared"
    curve: Floats | None = None

    @property
    def stress_text(self) -> str:
        """The stress, as it follows other words; nothing where it is unknown."""
        return "" if math.isnan(self.stress) else f", normalized stress {self.stress:.4f}"

    def require_history(self) -> NDArray[np.void]:
        """History of the solve, or a refusal."""
        if self.history is None or not len(self.history):
            raise InputError(
                f"{self.name} has no epochs to draw: a map from a file, or one placed against landmarks without a "
                "refinement, has no history of a solve."
            )
        return self.history

    def require_point_stress(self) -> Floats:
        """Stress of the points, or a refusal."""
        if self.point_stress is None or not np.isfinite(self.point_stress).any():
            raise InputError(
                f"the stress of the points of {self.name} is not known; give a result of psmds, or pass "
                "measure(X, embedding).point_stress as color."
            )
        return self.point_stress

    def require_same_points(self, other: Subject) -> None:
        """Refuse a map of other points."""
        n, m = len(self.embedding), len(other.embedding)
        if n != m:
            raise InputError(
                f"{self.name} has {n} points and {other.name} has {m}: maps side by side show the same points."
            )
        if self.ids is not None and other.ids is not None and self.ids != other.ids:
            raise InputError(f"{self.name} and {other.name} have other ids, or the same in another order.")


def subject_of(given: Any, number: int, name: str | None = None) -> Subject:
    """Find out what is known about a map; without a name, it has that of its file, or its number.

    Raises
    ------
    InputError
        When it is none.
    """
    if isinstance(given, str | os.PathLike):
        return _of_path(os.fspath(given), name or Path(given).stem)
    name = name or f"map {number}"
    if isinstance(given, Result):
        return _of_result(given, name)
    if hasattr(given, "embedding_"):
        return _of_estimator(given, name)
    array = as_array(given, name)
    return Subject(name, usable_map(array, len(array) if array.ndim else 0, name))


def _of_path(path: str, name: str) -> Subject:
    if holds_coordinates(path):
        found = read_coordinates(path, count_points(path))
        return Subject(name, usable_map(found.values, len(found.values), path), ids=found.ids)
    return _of_result(read_result(path), name)


def _of_result(found: Result, name: str) -> Subject:
    stress, facts = found.stress, found.attributes
    known = (stress.normalized_stress, stress.point_stress, found.history, found.ids, facts.get("matrix"))
    loss = facts.get("rule", {}).get("loss", "squared")
    return Subject(name, found.embedding, *known, loss=loss, curve=found.disparities)


def _of_estimator(fitted: Any, name: str) -> Subject:
    known: dict[str, Any] = {key: getattr(fitted, f"{key}_", None) for key in ("point_stress", "history", "ids")}
    stress = float(getattr(fitted, "normalized_stress_", math.nan))
    curve = getattr(fitted, "disparities_", None)
    known |= {"loss": getattr(fitted, "loss", "squared"), "curve": None if curve is None else curve.T}
    return Subject(name, np.asarray(fitted.embedding_), stress, **known)
