"""Who decides what a case looks like: a seed, or hypothesis, which then makes a failure smaller."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st


class Chooser(Protocol):
    """Makes the choices of a case; simple alternatives stand first."""

    def pick(self, options: Sequence[Any]) -> Any:
        """One of some alternatives."""

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""


class Seeded:
    """Choices that a seed, an entry and the number of a case determine."""

    def __init__(self, seed: int, entry: str, case: int) -> None:
        self._random = np.random.default_rng([seed, zlib.crc32(entry.encode()), case])

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self._random.integers(len(options))]

    def number(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high + 1))


class Drawn:
    """Choices that hypothesis draws."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self._data.draw(st.integers(0, len(options) - 1))]

    def number(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


def seldom(choose: Chooser, common: Any, others: Sequence[Any], share: int = 3) -> Any:
    """``common`` most times, and one of the others once in ``share`` times."""
    return choose.pick(others) if choose.number(1, share) == share else common
