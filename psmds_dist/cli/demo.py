"""The demo: two maps from points, on local Dask workers with a memory limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api import compare
from psmds_dist.api.compare import Comparison
from psmds_dist.api.embed import Embedding, embed
from psmds_dist.api.init import provider_of
from psmds_dist.api.plot import save_map
from psmds_dist.api.report import progress, table
from psmds_dist.api.results import write_result
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.layout import format_bytes
from psmds_dist.core.types import Floats, InputError
from psmds_dist.data.points import open_points
from psmds_dist.data.store import open_rows
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.kernels.jit import available_threads
from psmds_dist.kernels.warm import warm_up_gradients, warm_up_scan, warm_up_solver
from psmds_dist.utils.atomic import is_free

MARK = ".psmds-demo"
"""File that marks a directory of the demo."""

Say = Callable[[str], object]


@dataclass(frozen=True)
class Example:
    """Points to embed."""

    name: str
    points: Floats
    colour: NDArray[Any]
    colour_label: str


def digits() -> Example:
    """Load the 1,797 handwritten digits that scikit-learn ships."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Example("digits", data.data, data.target, "digit")


def manifold(n: int) -> Example:
    """Sample an S-curve in three dimensions that is also bent across."""
    random = np.random.default_rng(0)
    along, across = random.uniform(-1.5 * np.pi, 1.5 * np.pi, n), random.uniform(0, 2, n)
    surface = np.column_stack((np.sin(along), across + 0.3 * np.cos(2 * along), np.sign(along) * (np.cos(along) - 1)))
    return Example("manifold", surface, along, "position along the curve")


def run(output: Path, workers: int, points: int, say: Say) -> None:
    """Run the demo.

    Parameters
    ----------
    output : Path
        Directory for stores, maps and pictures; created if needed.
    workers : int
        Dask workers to start.
    points : int
        Points of the manifold.
    say : callable
        Called with each line of the report.
    """
    _prepare(output)
    small, large = digits(), manifold(points)
    limit = max(4 * points**2 // (2 * workers), 64 * 2**20)
    threads = max(1, available_threads() // workers)
    say(f"Starting {workers} Dask workers, {threads} kernel thread(s) and {format_bytes(limit)} of memory each.")
    with local_client(workers, threads) as client:
        executor = DaskExecutor(client)
        with _timed(say, "Compiling kernels, which are cached on disk"):
            executor.warm_up(partial(warm_up_solver, 2, "float32", 2))
            executor.warm_up(partial(warm_up_scan, "float32"))
            executor.warm_up(partial(warm_up_gradients, 2, "float32"))
            for start in ("search", "landmarks"):
                provider_of(start).warm_up(SolverConfig(), "float32", executor)
        maps = {example.name: _embed(example, output, executor, limit, say) for example in (small, large)}
    matrix = open_rows(output / "digits.zarr")
    alone = embed(matrix, SolverConfig(seed=0), InProcessExecutor())
    with _timed(say, "\nscikit-learn's SMACOF on the digits, for comparison"):
        other = compare.smacof(compare.load(matrix), random_state=0)
    _summary(maps, workers, alone, other, say)
    pictures = ", ".join(str(output / f"{name}.png") for name in maps)
    say(f"Pictures: {pictures}. Maps: the .map.zarr groups in the same directory.")


def _prepare(output: Path) -> None:
    """Create the directory, or reuse that of an earlier demo; another might hold files of the same names."""
    mark = output / MARK
    if not (is_free(output) or mark.exists()):
        raise InputError(f"{output} is not empty and not from an earlier demo; choose another directory with --output.")
    output.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _summary(maps: dict[str, Embedding], workers: int, alone: Embedding, other: Comparison, say: Say) -> None:
    found = {f"pattern search, {name}, {workers} workers": map_ for name, map_ in maps.items()}
    found["pattern search, digits, this process"] = alone
    rows = [_row(name, map_.solution.stress.normalized_stress, map_.seconds) for name, map_ in found.items()]
    rows.append(_row("SMACOF, digits, this process", other.stress.normalized_stress, other.seconds))
    say("\n" + table(["", "normalized stress", "seconds"], rows))
    same = np.array_equal(alone.solution.embedding, maps["digits"].solution.embedding)
    say(f"\nThe maps of the digits from {workers} workers and from this process are bitwise identical: {same}.")
    say(f"In this process, pattern search was {other.seconds / alone.seconds:.0f} times as fast as SMACOF.")


def _row(name: str, stress: float, seconds: float) -> list[str]:
    return [name, f"{stress:.5f}", f"{seconds:.2f}"]


def _embed(example: Example, output: Path, executor: DaskExecutor, limit: int, say: Say) -> Embedding:
    say(f"\n{example.name}: {len(example.points):,} points in {example.points.shape[1]} dimensions")
    store = output / f"{example.name}.zarr"
    with _timed(say, f"  Euclidean distances into {store}"):
        points = output / f"{example.name}.npy"
        np.save(points, example.points)
        build(open_points(points), store, executor, metric="euclidean", memory_limit=limit, overwrite=True)
    rows = open_rows(store)
    with progress(quiet=False) as show:
        result = embed(
            rows,
            SolverConfig(seed=0),
            executor,
            memory_limit=limit,
            on_event=show,
            on_plan=lambda plan: say("  " + plan.describe(executor.topology()).replace("\n", "\n  ")),
        )
    solution = result.solution
    peak = max(result.peak_memory.values())
    say(
        f"  {len(solution.history)} epochs in {result.seconds:.2f} s, normalized stress "
        f"{solution.stress.normalized_stress:.5f}, peak memory per worker {format_bytes(peak)}"
    )
    write_result(output / f"{example.name}.map.zarr", result, matrix=str(store), overwrite=True)
    title = f"{example.name}: normalized stress {solution.stress.normalized_stress:.4f}"
    save_map(
        output / f"{example.name}.png",
        solution.embedding,
        colour=example.colour,
        colour_label=example.colour_label,
        title=title,
        history=solution.history,
    )
    return result


@contextmanager
def _timed(say: Say, what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    say(f"{what}: {time.perf_counter() - began:.2f} s")
