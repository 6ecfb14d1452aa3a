"""Sources of choices for a case: a seed, or hypothesis, which also shrinks failures."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st


class Chooser(Protocol):
    """Source of the choices of a case; simpler alternatives come first."""

    def pick(self, options: Sequence[Any]) -> Any:
        """Choose one of the alternatives."""

    def number(self, low: int, high: int) -> int:
        """Choose an integer; both ends are included."""


class Seeded:
    """Choices determined by a seed, an entry and the number of a case."""

    def __init__(self, seed: int, entry: str, case: int) -> None:
        self._random = np.random.default_rng([seed, zlib.crc32(entry.encode()), case])

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self._random.integers(len(options))]

    def number(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high + 1))


class Drawn:
    """Choices drawn by hypothesis."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self._data.draw(st.integers(0, len(options) - 1))]

    def number(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


def seldom(choose: Chooser, common: Any, others: Sequence[Any], share: int = 3) -> Any:
    """Choose ``common`` usually, and one of the others once in ``share`` times."""
    return choose.pick(others) if choose.number(1, share) == share else common
