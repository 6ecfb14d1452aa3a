"""Counter-based random numbers: each purpose draws from a stream of its own, so that no draw shifts another."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class RandomStream(IntEnum):
    """What random numbers are drawn for; packages that build on this one number theirs from `FIRST_FREE_STREAM` on."""

    START = 0
    ROUNDS = 1
    AXES = 2
    SAMPLE = 3
    JITTER = 4
    BLOCK = 5
    MISSING_AXES = 6
    SEARCH_STARTS = 7
    SEARCH_ORDERS = 8
    SEARCH_HOPS = 9
    SUBSET = 10
    SHUFFLE = 11
    LIFT = 12
    PARTS = 14
    MEASURED_ROWS = 15


FIRST_FREE_STREAM = 16
"""Least number of a stream of another package."""


def generator(seed: int, stream: IntEnum, epoch: int = 0) -> np.random.Generator:
    """Random numbers of one stream and epoch."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, int(stream), epoch]))


def measured_rows(n: int, sample: int | None, seed: int = 0) -> NDArray[np.int64]:
    """Rows that a map of ``n`` points is measured on, in the order that they are drawn; all without a sample."""
    return generator(seed, RandomStream.MEASURED_ROWS).permutation(n)[:sample]
