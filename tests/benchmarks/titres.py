"""A titre table with missing and censored values, compared with a quasi-Newton method from many starts."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from threadpoolctl import threadpool_limits

from psmds_dist import DissimilarityWarning, PatternSearchMDS, unfold
from tests.benchmarks.harness import Record, Settings, held, show, show_held
from tests.titres import titres as example

STARTS = 50
SPREAD = 10.0
"""Standard deviation of the coordinates of a random start, about that of the true ones."""


def titres(settings: Settings) -> list[Record]:
    """Squared misfit to a table of 273 viruses and 79 sera, a third of it known: the search compared with L-BFGS.

    L-BFGS starts from 50 random maps, and once from the true places, which no method knows.
    """
    starts = settings.pick(4, STARTS, STARTS)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        random = _line(f"L-BFGS, {starts} random starts, each", list(pool.map(_minimised, range(starts))))
    true = _line("L-BFGS from the true places", [_minimised(None)])
    _fitted("quick", 0)  # compiles
    ours = {
        effort: _line(f"effort {effort!r}", [_fitted(effort, k) for k in range(5)]) for effort in ("default", "best")
    }
    found = [random, true, *ours.values()]
    show(found, what="", best=".1f", median=".1f", worst=".1f", seconds=".2f")
    lines = [
        held("worst of five seeds over the best of L-BFGS", ours["default"]["worst"] / random["best"], most=1.01),
        held("the same at the highest effort", ours["best"]["worst"] / random["best"], most=1.01),
        held("the same over L-BFGS from the true places", ours["best"]["worst"] / true["best"], most=1.01),
    ]
    show_held(lines)
    return found + lines


Outcome = tuple[float, float]
"""Cost of a map, and the seconds that it took."""


def _line(what: str, outcomes: list[Outcome]) -> Record:
    costs, seconds = zip(*outcomes, strict=True)
    spread = {"best": min(costs), "median": statistics.median(costs), "worst": max(costs)}
    return {"what": what, **spread, "seconds": statistics.median(seconds)}


def _table() -> tuple[np.ndarray, ...]:
    places, lower, upper = example.made_up_table(np.random.default_rng(0), 273, 79)
    return places, lower, upper


def _timed(function: Callable[[], float]) -> Outcome:
    began = time.perf_counter()
    cost = function()
    return cost, time.perf_counter() - began


def _minimised(seed: int | None) -> Outcome:
    """L-BFGS from a random start, or from the true places."""
    places, lower, upper = _table()
    start = places if seed is None else np.random.default_rng([1, seed]).normal(scale=SPREAD, size=places.shape)
    with threadpool_limits(1, "blas"):  # small vectors: threads would only wait for each other
        return _timed(lambda: example.best_of_scipy(lower, upper, [start]))


def _fitted(effort: str, seed: int) -> Outcome:
    _, lower, upper = _table()

    def fitted() -> float:
        mds = PatternSearchMDS(random_state=seed, dtype="float64", effort=effort)
        mds.fit(unfold(lower, dtype="float64"), upper=unfold(upper, dtype="float64"))
        return float(example.cost(lower, upper, mds.embedding_)[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)  # pairs of one kind are missing, as they must be
        return _timed(fitted)
