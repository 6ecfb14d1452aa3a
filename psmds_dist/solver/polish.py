"""The end game of a solve: down to a local minimum, to many digits.

Moves of a fixed length bring a map to within a share of the last radius of a minimum; how near depends on the start. A
quasi-Newton method takes it to the minimum itself, so that two solves which found the same minimum agree.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from psmds_dist.core.rules import PairRule
from psmds_dist.core.types import Floats
from psmds_dist.solver.epoch import Objective
from psmds_dist.utils.blas import one_thread
from psmds_dist.utils.heap import trim_heap

GAIN = 1e-10
"""The polish ends when a step lowers the error by at most this share of the error that it began with."""

MAX_STEPS = 300
"""Most steps of the polish; a step is a pass over the rows, seldom two."""

MANY_STEPS = 60
"""Most steps where dissimilarities are transformed, or near pairs weigh more than in the start. Moves come to a minimum
slowly there: Stress-1 of ranked distances on a swiss roll of 3,000 points falls from 0.039 to 0.005 after some 20, as
far as in 300. With near pairs of an S-curve (2,500, a share of 0.8) they end at 0.116, and 286 epochs at 0.120."""

FEW_STEPS = 6
"""Most steps of a short polish otherwise. Clusters in space (5,000) lose 0.18 % of stress in 60, 0.10 in six."""

STEPS_PER_EPOCH = 0.25
"""Most steps of a short polish for each epoch before it, where that is more: it costs little beside these."""

SHORT_GAIN = 1e-6
"""`GAIN` of a short polish: float32 is blind to less, and a search for it goes on for dozens of passes."""

FITTED_GAIN = 2e-4
"""`GAIN` of a short polish of transformed dissimilarities, whose passes cost more. On eleven matrices of 2,500 to
6,000 points that is 2 to 55 passes, to Stress-1 within 0.5 % of that of 60 steps, but for ranks on a swiss roll (2 %)
and with outliers (6 %)."""

FIRST_STEP = 0.25
"""Length of the first step of a short polish, as a share of that of moving every coordinate by the last radius. About
that of a step of majorization, which the root mean square dissimilarity may exceed a hundredfold: a pass in vain."""

SPARE_PASSES = 2
"""Passes that may be more than steps, the first among them. Where rounding hides what a step gains, a search along a
line tries twenty."""

MEMORY = 10
"""Earlier steps that the method remembers."""


def polished(
    objective: Objective,
    x: Floats,
    *,
    scale: float,
    max_steps: int = MAX_STEPS,
    gain: float = GAIN,
    dtype: str = "float64",
) -> Floats:
    """Take a map to a local minimum of the error by L-BFGS (`scipy.optimize.minimize`); same bits for any executor.

    Parameters
    ----------
    objective : Objective
        The matrix and who works on it.
    x : (L, n) ndarray
        Coordinates near the minimum.
    scale : float
        Unit of the search and length of its first step; root mean square dissimilarity, if nothing better is known.
    max_steps : int
        Most steps, and with `SPARE_PASSES` most passes.
    gain : float
        Share of the first error; a step that lowers it by no more is the last.
    dtype : str
        Type of the kernel's arithmetic: float32 is enough for a few steps.

    Returns
    -------
    (L, n) ndarray
        Coordinates of no higher error, in the region of the objective.
    """
    from scipy.optimize import Bounds, minimize  # late: SciPy takes a while

    region, bounds = objective.region, None
    if region is not None:
        bounds = Bounds(region.low.ravel() / scale, region.high.ravel() / scale)
    begin = objective.gradient(x, dtype)
    first, start = begin[0], x.astype(dtype)
    if first == 0:
        return x
    passes, least, best = 0, 1.0, None

    def value(point: Floats) -> tuple[float, Floats]:
        nonlocal passes, least, best
        place = scale * point.reshape(x.shape)
        known = np.array_equal(place.astype(dtype), start)  # but for rounding, the search begins there
        if passes == max_steps + SPARE_PASSES:
            raise _Spent
        error, gradient = begin if known else objective.gradient(place, dtype)
        passes += 1
        if error / first <= least:
            least, best = error / first, place
        return error / first, (scale / first) * gradient.ravel()

    options = {"ftol": gain, "gtol": 0.0, "maxiter": max_steps, "maxcor": MEMORY}
    with suppress(_Spent), one_thread():  # the order of sums in BLAS depends on its threads
        minimize(value, x.ravel() / scale, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    if best is None:
        return x
    return best if region is None else region.clipped(best)


class _Spent(Exception):
    """No pass is left."""


def shortly_polished(
    objective: Objective, x: Floats, rule: PairRule, *, radius: float, epochs: int, dtype: str
) -> Floats:
    """Take a map some steps towards a local minimum, after so many epochs whose last moves were of that radius."""
    trim_heap()  # before SciPy is loaded, which takes 20 MiB: limits leave it little where rows are streamed
    unit, gain = FIRST_STEP * radius * math.sqrt(x.size), SHORT_GAIN if rule.transformation is None else FITTED_GAIN
    return polished(objective, x, scale=unit, max_steps=short_steps(epochs, rule), gain=gain, dtype=dtype)


def short_steps(epochs: int, rule: PairRule) -> int:
    """Most steps of a short polish after so many epochs."""
    return MANY_STEPS if rule.transformation is not None else max(FEW_STEPS, math.ceil(STEPS_PER_EPOCH * epochs))
