"""Time of landmark fits: stages for the cost model of `psmds_dist.planning.cost`."""

from __future__ import annotations

from dataclasses import replace

from psmds_dist.kernels.jit import PAIRS_A_THREAD
from psmds_dist.planning.cost import LOCAL_EPOCH, Job, Rates, Stage, pass_over_rows, searching
from psmds_dist.solver.search import descents_of

EPOCHS = 18
"""Epochs over all pairs of landmarks until they are mapped: two starts on half of them, and a few epochs for all."""

EVALUATION = 0.8
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
    threads = min(job.threads, max(1, job.width**2 // (2 * PAIRS_A_THREAD)))
    kernel = (1 + EVALUATION) * EPOCHS * job.width**2 / (rates.pairs(job.dims) * threads)
    return [Stage("landmarks", here=kernel + (1 + CURVE) * SMALL_EPOCHS * LOCAL_EPOCH), placement]


def start_stages(job: Job, rates: Rates, size: int) -> list[Stage]:
    """Stages of a start of a solve: a search on ``size`` landmarks, and all points placed where the run was started."""
    descents = descents_of(size, job.dims, "default")
    [searched] = searching(replace(job, n=size, width=0), rates, descents)
    seconds = job.n * size * PLACING / (rates.pairs(job.dims) * job.threads)
    nbytes = job.n * size * job.itemsize * job.stored_share
    placing = Stage("placing", here=seconds, disk=nbytes / rates.disk, disk_bytes=nbytes)
    return [Stage("landmark start", here=searched.here), placing]
