"""Pairs that a landmark map is judged by: which ones, and what they tell of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from landmarks.evaluation import COLUMNS, ROWS, HeldOut, StressEstimate, estimate
from landmarks.selection import LandmarkStream
from landmarks.solver.multilevel import LandmarkDissimilarities, map_landmarks
from landmarks.solver.placement import place
from landmarks.solver.types import CurvePoint, Data, FitInputs, LandmarkConfig
from psmds_dist.core.rng import generator
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels.jit import parallel_region

ValidationStress = Callable[[Floats], float]
"""Stress of a map on pairs that it was not fitted to."""


def without(landmarks: Ints, some: Ints) -> Ints:
    """Landmarks that are not among some, in their order."""
    return landmarks[~np.isin(landmarks, some)]


def said_of(aside: Ints, landmarks: Ints, config: LandmarkConfig) -> str:
    """Message about landmarks that are set aside."""
    some = f"{aside.size} of the {landmarks.size} landmarks of the panel"
    if config.refine == "panel":
        return f"{some} are left out of the map: the refinement is validated, and the map evaluated, on them"
    return f"{some} are left out of a map of some points for the evaluation; the map itself uses all"


def set_aside(data: Data, landmarks: Ints, config: LandmarkConfig) -> Ints:
    """Landmarks that the evaluation, or the validation of a refinement, does not use."""
    aside = data.set_aside(landmarks, config.seed) if config.evaluate or config.refine == "panel" else landmarks[:0]
    return aside if landmarks.size - aside.size > 2 * config.n_components else landmarks[:0]


def judge_of(data: Data, landmarks: Ints, config: LandmarkConfig) -> ValidationStress:
    """Stress on pairs outside the panel, none of them among those of the evaluation."""
    pairs = hold_out(data, landmarks, config, LandmarkStream.VALIDATION_PAIRS)
    if pairs is None:
        raise InputError(
            "refine='panel' needs dissimilarities that the fit does not use, to judge by, and too few are left when "
            "landmarks of this panel are set aside: add landmarks, or use refine='none'."
        )
    return lambda x: _estimated(pairs, x).normalized_stress


def hold_out(
    data: Data,
    landmarks: Ints,
    config: LandmarkConfig,
    random_stream: LandmarkStream = LandmarkStream.HELD_OUT_PAIRS,
) -> HeldOut | None:
    """Random pairs of points that are no landmarks."""
    random = generator(config.seed, random_stream)
    free = np.ones(data.n, dtype=bool)
    free[landmarks] = False
    others = np.flatnonzero(free)
    chosen = random.permutation(others)[: ROWS + COLUMNS]
    rows = chosen[: max(2, ROWS * chosen.size // (ROWS + COLUMNS))]
    if chosen.size < 4:
        return None
    share = slice(None)
    if config.refine == "panel":  # those that validate the refinement are none of the held-out ones
        share = slice(int(random_stream is LandmarkStream.VALIDATION_PAIRS), None, 2)
    found = data.hold_out(landmarks, np.sort(rows), np.sort(np.setdiff1d(chosen, rows)), share)
    return found if found is not None and np.nansum(found.values) > 0 else None  # none may be known


def _estimated(held_out: HeldOut, embedding: Floats) -> StressEstimate:
    return estimate(held_out, embedding[held_out.rows], embedding[held_out.columns])


def estimate_stress(
    inputs: FitInputs, among: LandmarkDissimilarities, x: Floats
) -> tuple[StressEstimate | None, list[CurvePoint]]:
    """Stress of a map on held-out pairs, and against the number of landmarks.

    Where landmarks are set aside, it is that of a map made in the same way without them, for the held-out points alone.
    """
    held_out = hold_out(inputs.data, without(inputs.landmarks, inputs.aside), inputs.config)
    used = np.flatnonzero(~np.isin(inputs.landmarks, inputs.aside))
    if held_out is None or not among.part(used).values.any():
        return None, []
    fewer = partial(_with_fewer, inputs.panel.take(held_out.points), among, held_out, inputs.config)
    order = (
        used
        if inputs.data.candidates is None
        else generator(inputs.config.seed, LandmarkStream.CURVE_LANDMARKS).permutation(used)
    )
    counts = [used.size // k for k in (8, 4, 2, 1) if used.size // k > 2 * inputs.config.n_components]
    curve = [
        CurvePoint(count, fewer(order[:count], 1))
        for count in counts
        if among.part(order[:count]).values.any()  # the first may all be one point
    ]
    return fewer(used, inputs.config.n_init) if inputs.aside.size else _estimated(held_out, x), curve


def _with_fewer(
    rows: Rows, among: LandmarkDissimilarities, held_out: HeldOut, config: LandmarkConfig, columns: Ints, n_init: int
) -> StressEstimate:
    """Stress of the held-out pairs when some of the landmarks are used; ``rows`` are those of the held-out points."""
    part, points = among.part(columns), held_out.points
    found = map_landmarks(part, config.n_components, config.seed, n_init, InProcessExecutor())
    frame = part.frame(found.solution.embedding, config.closed_form)
    with parallel_region():
        x = place(np.ascontiguousarray(rows[:, columns]), np.arange(points.size), frame)[0]
    return estimate(held_out, x[np.searchsorted(points, held_out.rows)], x[np.searchsorted(points, held_out.columns)])
