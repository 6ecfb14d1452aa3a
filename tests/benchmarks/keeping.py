"""Cost of checkpoints."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from psmds_dist.api.embed import embed
from psmds_dist.core.config import SolverConfig
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStore, DirectoryCheckpoint
from tests.benchmarks.harness import Record, Settings, held, show, show_held

N = 20_000
EPOCHS = 15
REPEAT = 3


def keeping(settings: Settings) -> list[Record]:
    """Cost of checkpoints at N = 20,000: the same 15 epochs in memory with and without them, alternating."""
    rows = ArrayRows(_distances(N))
    _seconds(rows, NO_CHECKPOINT)  # compiles
    without, kept, writing, states = [], [], [], 0
    for _ in range(REPEAT):
        without.append(_seconds(rows, NO_CHECKPOINT))
        with tempfile.TemporaryDirectory() as folder, _timed_writes() as spent:
            kept.append(_seconds(rows, DirectoryCheckpoint(Path(folder) / "checkpoint")))
        writing.append(sum(spent))
        states = len(spent)
    plain, seconds, spent_writing = map(statistics.median, (without, kept, writing))
    line = {
        "what": f"N = {N:,}, {EPOCHS} epochs",
        "seconds_without": plain,
        "seconds_with": seconds,
        "states": states,
        "seconds_writing": spent_writing,
    }
    show([line], what="", seconds_without=".2f", seconds_with=".2f", states="d", seconds_writing=".3f")
    bounds = [
        held("share of the run spent in writing", spent_writing / seconds, most=0.02),
        held("run with against without", seconds / plain, most=1.02),
    ]
    show_held(bounds)
    return [line, *bounds]


def _distances(n: int) -> np.ndarray:
    points = np.random.default_rng(0).random((n, 10))
    matrix = np.empty((n, n), np.float32)
    for lo in range(0, n, 1000):
        matrix[lo : lo + 1000] = cdist(points[lo : lo + 1000], points)
    return matrix


def _seconds(rows: ArrayRows, checkpoint: CheckpointStore) -> float:
    config = SolverConfig(max_epochs=EPOCHS)
    return embed(rows, config, InProcessExecutor(), init="random", checkpoint=checkpoint).seconds


@contextmanager
def _timed_writes() -> Iterator[list[float]]:
    """Yield a list that collects the seconds of every write of a state."""
    spent: list[float] = []
    write: Callable[..., None] = DirectoryCheckpoint.write

    def timed(*arguments: Any) -> None:
        began = time.perf_counter()
        write(*arguments)
        spent.append(time.perf_counter() - began)

    DirectoryCheckpoint.write = timed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        DirectoryCheckpoint.write = write  # type: ignore[method-assign]
