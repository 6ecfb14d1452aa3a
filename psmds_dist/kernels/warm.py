"""Compiling ahead: what a worker does before its first round, or what loads the compiled code from disk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from psmds_dist.core.nearness import NOWHERE, Nearness
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.transformations import BinGrid
from psmds_dist.core.types import Rows
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.multiply import multiply_squares
from psmds_dist.kernels.neighbors import rate_rows
from psmds_dist.kernels.pairs import DescentPlan, PairKernels, RuleKernels, kernels_of
from psmds_dist.kernels.scan import SKETCHES, scan_rows


def warm_up_solver(n_components: int, dtype: str, axes: int, guided: bool = False, rule: PairRule = PLAIN) -> None:
    """Compile what a solve will call, on a matrix of four points.

    Parameters
    ----------
    n_components : int
        Dimensions of the map.
    dtype : str
        Type of the rows.
    axes : int
        Axes that an epoch tries; the last ones of a monotone solve try all.
    guided : bool
        Whether points follow their gradients; such a solve begins or ends along axes.
    rule : PairRule
        What a pair costs.
    """
    kernels = _kernels_of(rule)
    rows = _rows_of(rule, dtype)
    points = np.arange(4)
    x = np.zeros((n_components, 4))
    with parallel_region():
        for arithmetic in {dtype, "float64"}:
            for moves in (kernels.propose, kernels.guide) if guided else (kernels.propose,):
                for tried in {axes, n_components}:
                    moves(rows, points, points, x.astype(arithmetic), 1.0, np.arange(tried))
        kernels.row_sums(rows, points, points, x)
        if isinstance(kernels, RuleKernels) and rule.local:
            replace(kernels, nearness=NOWHERE).reaches(rows, points, points, points.size)
        if isinstance(kernels, RuleKernels) and rule.transformation is not None:
            kernels.bin_sums(rows, points, points, x, BinGrid((2, 1, 3), 1.0))


def _kernels_of(rule: PairRule) -> PairKernels:
    """Kernels of a rule for four points, with disparities or near pairs where there are to be any."""
    kernels = kernels_of(rule, 1.0, Nearness(np.ones(4), 1.0, 1.0) if rule.local else NOWHERE)
    if isinstance(kernels, RuleKernels) and rule.transformation is not None:
        return replace(kernels, table=np.ones((1, 2)))
    return kernels


def _rows_of(rule: PairRule, dtype: str) -> Rows:
    """Rows of four points: their type is that of dissimilarities, unless only the order of these matters."""
    return np.ones((4, 4 * rule.parts), "uint16" if rule.transformation == "ordinal" else dtype)


def warm_up_multiply(dtype: str) -> None:
    """Compile the multiplication of classical scaling, on a matrix of four points."""
    points = np.arange(4)
    with parallel_region():
        multiply_squares(np.zeros((4, 4), dtype), points, points, np.zeros((1, 4)))


def warm_up_gradients(
    n_components: int, dtype: str, rule: PairRule = PLAIN, arithmetic: Collection[str] = ("float64",)
) -> None:
    """Compile what polishes and sweeps call, on a matrix of four points, for the types of their arithmetic."""
    kernels, points, x = _kernels_of(rule), np.arange(4), np.zeros((n_components, 4))
    with parallel_region():
        for number in arithmetic:
            kernels.row_gradients(_rows_of(rule, dtype), points, points, x.astype(number))


def warm_up_rating(dtype: str) -> None:
    """Compile what measures of a map call, on a matrix of four points."""
    points = np.arange(4)
    with parallel_region():
        rate_rows(np.zeros((4, 4), dtype), points, points, np.zeros((1, 4)), 1.0, 1)


def warm_up_search(n_components: int, rule: PairRule = PLAIN) -> None:
    """Compile the search, on a matrix of four points."""
    rows, x = np.ones((4, 4 * rule.parts), np.float32), np.zeros((1, n_components, 4), np.float32)
    plan = DescentPlan(0.0, 1.0, 0.0, 1, int(rule.least_squares), 1.0)
    with parallel_region():
        kernels_of(rule, 1.0).descend(rows, x, np.arange(4)[None], np.ones(1, np.float32), plan)


def warm_up_scan(dtype: str) -> None:
    """Compile the input check, on a matrix of four points."""
    with parallel_region():
        scan_rows(np.zeros((4, 4), dtype), 0, np.ones((SKETCHES, 4)), np.zeros((SKETCHES, 4)))
