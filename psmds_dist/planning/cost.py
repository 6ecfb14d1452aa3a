"""How long a run takes, and what holds it up: a model, pure. Its rates come from `psmds_dist.api.probe`, or are given.

A pass costs what its slowest stream costs, as rows are read ahead while the kernel works, on the same cores where
reading keeps one busy; what goes through the scheduler and through the process that started the run comes on top, for
a round ends with a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

ROUNDS = 2
"""Rounds of an epoch, each with a barrier."""

EPOCHS = 90
"""Epochs to expect of a solve that begins at random: data sets differ by a factor of two either way."""

MEASURED = 1.0
"""What a pair costs in float64 when a map is measured, in pairs of the move kernel at two dimensions."""

CHECKED = 0.4
"""What the input check of a pair costs, in pairs of the move kernel at two dimensions."""

MULTIPLIED = 1.0
"""What a pair costs for each vector that the matrix is multiplied with, in square roots of the move kernel (1.0 to 1.2
on 1,797 points, with 8 vectors and 16)."""

ROUND_BASE, ROUND_WORKER = 0.012, 0.0045
"""Seconds of a round on a cluster, and of each of its workers in it: processor time of scheduler and client together
(``python -m tests.benchmarks --only overhead scheduler``)."""

ASK_BASE, ASK_WORKER = 0.005, 0.0015
"""The same where workers are asked directly (``python -m tests.benchmarks --only planning`` holds it against runs)."""

INLINE = 2**22
"""Most bytes that workers are asked with directly in a round; what is larger they fetch from each other."""

HANDED = 6.5e-11
"""Seconds that a byte takes beside being read: a thread is woken for every block, and a kernel is started."""

TOUCHED = 5e-11
"""Seconds that a byte takes beside this when it is kept: its memory is new, and its checksum is tested."""

LOCAL_EPOCH = 5e-4
"""Seconds of an epoch in this process beside its kernels."""

ANSWER = 18
"""Bytes of a point's answer in a round."""


@dataclass(frozen=True)
class Rates:
    """What machines do in a second.

    Attributes
    ----------
    roots : float
        Square roots of the move kernel, a thread; a pair of points takes ``2 L + 1``.
    distances : float
        Distances from points that a process computes, where nothing is stored.
    disk : float
        Bytes that a worker reads.
    reading : float
        Processor seconds in a second of reading: 1 for files in the page cache, near 0 where a device is waited for.
    network : float
        Bytes that the scheduler, or the process that started the run, sends or receives.
    round_base, round_worker : float
        Seconds of a round beside all this, and of each worker in it.
    ask_base, ask_worker : float
        The same where little goes to the workers, so that they are asked directly.
    point : float
        Seconds for a point's move in the process that started the run.
    """

    roots: float
    distances: float = 30e6
    disk: float = 1e9
    reading: float = 0.0
    network: float = 1.25e9
    round_base: float = ROUND_BASE
    round_worker: float = ROUND_WORKER
    ask_base: float = ASK_BASE
    ask_worker: float = ASK_WORKER
    point: float = 1e-7

    def pairs(self, dims: int) -> float:
        """Pairs of points a thread, all axes tried both ways."""
        return self.roots / (2 * dims + 1)

    def round(self, workers: int, nbytes: float) -> float:
        """Seconds of a round with so many workers, each of which is sent so many bytes."""
        if workers * nbytes <= INLINE:
            return self.ask_base + self.ask_worker * workers
        return self.round_base + self.round_worker * workers


@dataclass(frozen=True)
class Job:
    """What is to be done, and by whom.

    Attributes
    ----------
    n : int
        Points.
    dims : int
        Dimensions of the map.
    workers, threads : int
        Processes, and kernel threads of each.
    width : int
        Columns of a panel; 0 for a square matrix.
    parts : int
        Numbers that rows hold about each pair.
    itemsize : int
        Bytes of a number.
    stored_share : float
        Bytes that are stored for each byte of a row.
    kept : float
        Share of the rows that workers keep in memory.
    read_cost : float
        How often a pass reads a stored byte that is not kept.
    epochs : int
        Epochs of all solves.
    fits, polish : int
        Passes in which a transformation of the dissimilarities is fitted, and those of the polish.
    start : str
        Name of the start that another package provides (`psmds_dist.api.init`); empty for a start at random.
    checked : bool
        Whether the input check was done before.
    computed : bool
        Whether dissimilarities are computed from points, and not read.
    local : bool
        Whether this process does the work itself.
    """

    n: int
    dims: int = 2
    workers: int = 1
    threads: int = 1
    width: int = 0
    parts: int = 1
    itemsize: int = 4
    stored_share: float = 1.0
    kept: float = 0.0
    read_cost: float = 1.0
    epochs: int = EPOCHS
    fits: int = 0
    polish: int = 0
    start: str = ""
    checked: bool = False
    computed: bool = False
    local: bool = True

    @property
    def pairs(self) -> int:
        """Pairs of points in all rows."""
        return self.n * (self.width or self.n)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.pairs * self.parts * self.itemsize

    @property
    def stored_bytes(self) -> float:
        """Bytes of all rows as they are stored."""
        return self.nbytes * self.stored_share


@dataclass(frozen=True)
class Stage:
    """Seconds that a part of a run takes of each thing that can hold it up.

    Attributes
    ----------
    kernel, disk, distances : float
        Of the workers; the longest of the three counts, as rows are read, or computed from points, ahead.
    busy : float
        Of a worker's cores while it reads or computes rows; the kernel has to wait for them.
    network, scheduler, here : float
        Of the barrier: bytes in transit, tasks, and work in the process that started the run.
    disk_bytes, network_bytes : float
        Bytes read by all workers, and bytes that go through the scheduler.
    """

    name: str
    kernel: float = 0.0
    disk: float = 0.0
    distances: float = 0.0
    busy: float = 0.0
    network: float = 0.0
    scheduler: float = 0.0
    here: float = 0.0
    disk_bytes: float = 0.0
    network_bytes: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from its begin to its end."""
        return max(self.kernel + self.busy, self.disk, self.distances) + self.network + self.scheduler + self.here


RESOURCES = {
    "kernel": "the kernel",
    "disk": "the disk",
    "distances": "distances, as they are computed",
    "network": "the network",
    "scheduler": "the scheduler",
    "here": "the process that starts the run",
}


@dataclass(frozen=True)
class Estimate:
    """A run, stage by stage."""

    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each thing that can hold a run up; kernel, disk and distances overlap."""
        return {name: sum(getattr(stage, name) for stage in self.stages) for name in RESOURCES}

    @property
    def bottleneck(self) -> str:
        """What saturates first, in words."""
        parts = self.parts
        return RESOURCES[max(parts, key=lambda name: parts[name])]

    @property
    def disk_bytes(self) -> float:
        """Bytes that all workers read."""
        return sum(stage.disk_bytes for stage in self.stages)

    @property
    def network_bytes(self) -> float:
        """Bytes that go through the scheduler and the process that started the run."""
        return sum(stage.network_bytes for stage in self.stages)


def exact_stages(job: Job, rates: Rates, start: Sequence[Stage] = (), *, cached: bool = False) -> list[Stage]:
    """Stages of a solve on the whole matrix, among them those of its ``start``, which may have ``cached`` rows."""
    check = pass_over_rows("check", job, rates, pairs=CHECKED * 5 / (2 * job.dims + 1), answer=32)
    stages = [*([] if job.checked else [check]), *start]
    first = 1 if job.kept and job.epochs and not cached else 0
    left = 1 - job.kept * (first or cached)
    answer = ANSWER / ROUNDS
    epoch = partial(pass_over_rows, job=job, rates=rates, pairs=1.0, answer=answer, snapshot=4, rounds=ROUNDS)
    if first:
        stages.append(epoch("first epoch", kept=job.kept))
    stages.append(epoch("epochs", share=left, times=job.epochs - first))
    later = partial(pass_over_rows, job=job, rates=rates, share=left, snapshot=8)
    if job.fits:
        stages.append(later("fits of disparities", pairs=FITTED, answer=0, times=job.fits))
    if job.polish:
        stages.append(later("polish at the end", pairs=POLISHED, answer=8 * (1 + job.dims), times=job.polish))
    scale = MEASURED * 5 / (2 * job.dims + 1)
    stages.append(later("measurement", pairs=scale, answer=24))
    return stages


def searching(job: Job, rates: Rates, descents: int) -> list[Stage]:
    """Stage of a search: the process that starts the run reads all rows, and descends on its threads."""
    kernel = descents * DESCENT * job.pairs / (rates.pairs(job.dims) * job.threads)
    return [Stage("search", disk=job.stored_bytes / rates.disk, here=kernel, disk_bytes=job.stored_bytes)]


POLISHED = 1.4
"""What a pair costs in a pass of the polish, in pairs of the move kernel."""

POLISH_PASSES = 60
"""Passes of a polish: 15 on maps with clear groups, 200 on noise."""

SHORT_POLISH_PASSES = 15
"""Passes to expect of a short polish that may take as many: 2 to 60 where dissimilarities are transformed."""

FITTED = 0.8
"""What a pair costs in a pass that fits disparities, in pairs of the kernel that moves points against these."""

REFITS = 6
"""Fits of disparities while the radius comes down; each pass of a polish has one of its own."""

ROBUST_EPOCHS, PLACED_EPOCHS, LATER_EPOCHS = 60, 30, 40
"""Epochs from a good start by other losses than the squared error, and where points have a region; and those of further
solves of small matrices (58, 28 to 32, and 33 to 59 on 3,000 and 600 uniform points)."""


DESCENT = 35.0
"""What a descent costs a pair, in pairs of the move kernel: its epochs, and sweeps at half the cost."""


def multiplication(name: str, job: Job, rates: Rates, vectors: int, passes: int) -> list[Stage]:
    """Stages of passes that multiply the rows with a block of vectors, of which the first caches rows."""
    cost = MULTIPLIED * vectors / (2 * vectors + 1)
    one = partial(
        pass_over_rows, job=replace(job, dims=vectors), rates=rates, pairs=cost, answer=8 * vectors, snapshot=8
    )
    return [one(f"{name}, first pass", kept=job.kept), one(name, share=1 - job.kept, times=passes - 1)]


def _contended(kernel: float, made: float, threads: int) -> float:
    """Seconds by which a thread that computes distances holds up the kernel's.

    It shares a core with one of these. The others are done when half of that one's work is left, and make room.
    """
    return made if threads == 1 else min(made, kernel / 2)


def pass_over_rows(
    name: str,
    job: Job,
    rates: Rates,
    *,
    pairs: float,
    answer: float,
    share: float = 1.0,
    kept: float = 0.0,
    times: int = 1,
    snapshot: int = 0,
    rounds: int = 1,
) -> Stage:
    """Stage of passes over all rows.

    Parameters
    ----------
    pairs : float
        Cost of a pair in pairs of the move kernel.
    answer : float
        Bytes of a point's answer in a round.
    share, kept : float
        Share of the rows that is read, and that is kept from now on.
    times : int
        Passes.
    snapshot : int
        Bytes of a coordinate that is sent to the workers.
    rounds : int
        Rounds of a pass.
    """
    work = job.pairs * pairs / (rates.pairs(job.dims) * job.threads * job.workers)
    taken = share * job.nbytes * job.read_cost
    read = taken * job.stored_share
    made = job.pairs / (rates.distances * job.workers) if job.computed else read / (rates.disk * job.workers)
    handed = (taken * HANDED + kept * job.nbytes * TOUCHED) / job.workers
    sent = 0.0 if job.local else rounds * job.n * (2 * answer + snapshot * job.dims * (1 + min(job.workers, FANOUT)))
    return Stage(
        name,
        kernel=times * work,
        **{"distances" if job.computed else "disk": times * made},
        busy=times * (_contended(work, made, job.threads) if job.computed else made * rates.reading + handed),
        network=times * sent / rates.network,
        scheduler=0.0 if job.local else times * rounds * rates.round(job.workers, job.n * job.dims * snapshot),
        here=times * job.n * rates.point,
        disk_bytes=0.0 if job.computed else times * read,
        network_bytes=times * sent,
    )


FANOUT = 8
"""Workers that take a snapshot one after the other from those who have it; the rest take it from these meanwhile."""
