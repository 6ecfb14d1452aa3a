"""The methods that are compared: of this package and its peers.

Each is a function of an input (a property of `child.Inputs`) and a seed, called in a separate process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from tests.benchmarks.harness import Settings

HOURS = "left out: hours, or more memory than most have"


Trace = list[tuple[float, float | np.ndarray]]
"""Seconds, and the sum of squared residuals over ordered pairs, or the map, at that time."""


@dataclass
class Map:
    """Result of a method."""

    embedding: np.ndarray
    passes: float | None = None
    """Passes over all pairs."""

    claimed: float | None = None
    """Normalized stress that the method reports."""

    trace: Callable[[], Trace] = list
    """Returns the trace; called after time and memory are measured."""


@dataclass(frozen=True)
class Method:
    """A method: how it is called, and its limits.

    Attributes
    ----------
    name : str
        Name in the table.
    target : str
        ``module:function``.
    needs : str
        Input of the function.
    limit, full_limit : int
        Largest number of points in the standard profile, and with ``--full``.
    package : str or None
        Required module.
    extra : str
        Extra of this project that installs it.
    seeds : int
        Runs, each with its own seed.
    ours : bool
        Whether its results are checked.
    quick : bool
        Whether the quick profile runs it.
    warm : str or None
        Function for the warm-up on a tiny data set, if it is not the method itself.
    measured : bool
        Whether stress is measured over all pairs; otherwise the stress of the method is used.
    """

    name: str
    target: str
    needs: str
    limit: int
    full_limit: int
    package: str | None = None
    extra: str = "bench"
    seeds: int = 1
    ours: bool = False
    quick: bool = False
    warm: str | None = None
    measured: bool = True

    def missing(self, settings: Settings, n: int, has_matrix: bool) -> str | None:
        """Reason why this method is not run, or None."""
        if self.needs != "points" and not has_matrix:
            return "needs the matrix"
        if n > self.full_limit:
            return HOURS
        if n > self.limit and not settings.full:
            return "left out: takes minutes (--full)"
        if self.package is not None and find_spec(self.package) is None:
            return f"not installed: pip install '.[{self.extra}]'"
        return None


OURS = "pattern search"
RANDOM = "pattern search, random start"
WIDE = "pattern search, wide radius"
PAPER = "paper, in NumPy"

_OURS = {"ours": True, "quick": True, "seeds": 5, "warm": "tests.benchmarks.ours:warm"}

METHODS: Sequence[Method] = (
    Method(OURS, "tests.benchmarks.ours:exact", "store", 50_000, 50_000, **_OURS),
    Method(RANDOM, "tests.benchmarks.ours:random", "store", 10_000, 30_000, **_OURS),
    Method(WIDE, "tests.benchmarks.ours:wide", "store", 10_000, 30_000, **_OURS),
    Method("landmarks", "tests.benchmarks.ours:landmarks", "store", 50_000, 50_000, **_OURS),
    Method(PAPER, "tests.benchmarks.peers:paper", "matrix", 2_000, 10_000, quick=True),
    Method("SMACOF, scikit-learn", "tests.benchmarks.peers:smacof", "matrix", 3_000, 10_000, quick=True),
    Method("classical MDS, scikit-learn", "tests.benchmarks.peers:classical", "matrix", 3_000, 10_000, quick=True),
    Method("Isomap, scikit-learn", "tests.benchmarks.peers:isomap", "points", 3_000, 10_000, quick=True),
    Method("pcoa fsvd, scikit-bio", "tests.benchmarks.peers:pcoa", "matrix", 10_000, 20_000, "skbio", seeds=5),
    Method("s_gd2, 30 epochs", "tests.benchmarks.peers:s_gd2", "condensed", 10_000, 10_000, "s_gd2"),
    Method("PyMDE, quadratic loss", "tests.benchmarks.peers:pymde", "condensed", 1_000, 3_000, "pymde", "bench-torch"),
)

SCATTERED: Sequence[Method] = (
    Method("landmarks", "tests.benchmarks.ours:landmarks_of_points", "points", 10**6, 10**7, seeds=3, ours=True),
    Method(
        "PyMDE, sampled pairs",
        "tests.benchmarks.peers:pymde_of_points",
        "points",
        1_000,
        100_000,
        "pymde",
        "bench-torch",
    ),
)
"""Methods for data sets that are too large for a matrix."""
