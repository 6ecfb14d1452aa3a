"""Time of landmark fits: stages for the cost model of `psmds_dist.planning.cost`."""

from __future__ import annotations

from dataclasses import replace

from landmarks.solver.multilevel import MOST_SEARCHED, MOST_SQUEEZED, SWEEPS
from psmds_dist.kernels.jit import PAIRS_A_THREAD
from psmds_dist.planning.cost import LOCAL_EPOCH, Job, Rates, Stage, pass_over_rows, searching
from psmds_dist.solver.search import ROUND

SWEEP = 0.7
"""What a pair of landmarks costs in a sweep with an axis more, in pairs of the move kernel."""

EPOCHS = 15
"""Epochs over all pairs of landmarks until their map settles, of two starts."""

EVALUATION = 1.3
"""The same again for the curve of a landmark fit, with the first eighth, quarter, half and all of the landmarks."""

PLACING = 30.0
"""What placing a point against a landmark costs, in pairs of the move kernel (``--only planning``): points that fit
exactly are placed to more digits, and cost many times as much."""

CURVE = 4
"""Maps for the curve of a landmark fit."""

SMALL_EPOCHS = 60
"""Epochs of such a map, most of them over a part of the landmarks."""


def fit_stages(job: Job, rates: Rates) -> list[Stage]:
    """Stages of a landmark fit: its landmarks, with the evaluation, and the placement of all points."""
    placement = pass_over_rows("placement", job, rates, pairs=PLACING, answer=8 * (job.dims + 4))
    mapping = (1 + EVALUATION) * _settling(job, rates, job.width) + (1 + CURVE) * _searching(job, rates, job.width)
    return [Stage("landmarks", here=mapping + (1 + CURVE) * SMALL_EPOCHS * LOCAL_EPOCH), placement]


def _settling(job: Job, rates: Rates, size: int) -> float:
    """Seconds to squeeze a map of ``size`` landmarks and to settle it."""
    pairs = SWEEP * SWEEPS * min(size, MOST_SQUEEZED) ** 2 + EPOCHS * size**2
    threads = min(job.threads, max(1, size**2 // (2 * PAIRS_A_THREAD)))
    return pairs / (rates.pairs(job.dims) * threads)


def _searching(job: Job, rates: Rates, size: int) -> float:
    """Seconds to search a few of them."""
    few = min(size, MOST_SEARCHED)
    [stage] = searching(replace(job, n=few, width=0), rates, ROUND)
    return stage.here


def start_stages(job: Job, rates: Rates, size: int) -> list[Stage]:
    """Stages of a start of a solve: ``size`` landmarks mapped, and all points placed where the run was started."""
    mapping = _settling(job, rates, size) + _searching(job, rates, size)
    seconds = job.n * size * PLACING / (rates.pairs(job.dims) * job.threads)
    nbytes = job.n * size * job.itemsize * job.stored_share
    placing = Stage("placing", here=seconds, disk=nbytes / rates.disk, disk_bytes=nbytes)
    return [Stage("landmark start", here=mapping), placing]
