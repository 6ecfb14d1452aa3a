"""One method on one data set in a separate process: ``python -m tests.benchmarks.child job.json``.

Its peak memory is its own, and its side effects end with the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.data import DataSet
from tests.benchmarks.machine import peak_memory
from tests.benchmarks.methods import Map, Method

ROOT = Path(__file__).parents[2]


class Inputs:
    """Inputs of the methods, loaded outside the measured time."""

    def __init__(self, data: DataSet) -> None:
        self._data = data

    @property
    def store(self) -> str:
        """Path of the store: methods of this package read the file themselves."""
        return str(self._data.store)

    @property
    def points_path(self) -> str:
        """File of the points."""
        return str(self._data.points)

    @property
    def panel_path(self) -> str:
        """Store of the panel."""
        return str(self._data.panel)

    @cached_property
    def matrix(self) -> np.ndarray:
        """The matrix in float64, for peers."""
        matrix = np.empty((self._data.n, self._data.n))
        for i, row in enumerate(self._rows()):
            matrix[i] = row
        return matrix

    @cached_property
    def condensed(self) -> np.ndarray:
        """The upper triangle, row by row."""
        n = self._data.n
        upper, start = np.empty(n * (n - 1) // 2), 0
        for i, row in enumerate(self._rows()):
            upper[start : start + n - 1 - i] = row[i + 1 :]
            start += n - 1 - i
        return upper

    def _rows(self) -> Iterator[np.ndarray]:
        """Rows of the file, read one by one: a memory map would count as memory."""
        with open(self._data.matrix, "rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            for _ in range(shape[0]):
                yield np.fromfile(file, dtype, shape[1])

    @cached_property
    def points(self) -> np.ndarray:
        """The points."""
        return np.load(self._data.points)


def run_child(method: Method, data: DataSet, tiny: DataSet, timeout: float = 3600) -> dict[str, Any]:
    """Run a method in a child process.

    Returns
    -------
    dict
        ``runs`` (seconds, stress, passes, whether finite, and the stress it claims; one for each seed), ``trace`` of
        the first, ``peak`` memory; or ``failed`` with the last line of the child's output.
    """
    with tempfile.TemporaryDirectory() as folder:
        job, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        told = {
            "target": method.target,
            "warm": method.warm or method.target,
            "needs": method.needs,
            "seeds": method.seeds,
            "measured": method.measured,
            "data": data.as_dict(),
            "tiny": tiny.as_dict(),
            "answer": str(answer),
        }
        job.write_text(json.dumps(told))
        command = [sys.executable, "-m", "tests.benchmarks.child", str(job)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=ROOT)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {timeout:.0f} s"}
        if answer.exists():
            return json.loads(answer.read_text())
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        return {"failed": lines[-1][:100]}


def main(path: str) -> None:
    """Run a job and write its result."""
    job = json.loads(Path(path).read_text())
    data, method = DataSet(**job["data"]), _function(job["target"])
    _function(job["warm"])(_given(job, DataSet(**job["tiny"])), 0)
    given = _given(job, data)
    maps = [_timed(method, given, seed) for seed in range(job["seeds"])]
    peak = peak_memory()
    runs = [_run(data, job["measured"], *one) for one in maps]
    answer = {"peak": peak, "runs": runs, "trace": _trace(data, maps[0][1])}
    Path(job["answer"]).write_text(json.dumps(answer))


def _function(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _given(job: dict[str, Any], data: DataSet) -> Any:
    return getattr(Inputs(data), job["needs"])


def _timed(method: Any, given: Any, seed: int) -> tuple[float, Map]:
    began = time.perf_counter()
    found = method(given, seed)
    return time.perf_counter() - began, found


def _run(data: DataSet, measured: bool, seconds: float, found: Map) -> dict[str, Any]:
    """Record of a run."""
    finite = bool(np.isfinite(found.embedding).all())
    stress = _stress(data, found.embedding) if finite and measured else found.claimed
    told = {"seconds": seconds, "stress": stress, "passes": found.passes, "finite": finite}
    return {**told, "claimed": found.claimed}


def _stress(data: DataSet, embedding: np.ndarray) -> float:
    """Normalized stress of a map; all maps are measured with this function."""
    from psmds_dist.api.embed import measure
    from psmds_dist.executor import InProcessExecutor

    return measure(data.rows(), np.asarray(embedding, float), InProcessExecutor()).normalized_stress


def _trace(data: DataSet, found: Map) -> list[tuple[float, float]]:
    """Seconds and normalized stress of each epoch."""
    given = None
    points = []
    for when, what in found.trace():
        if isinstance(what, np.ndarray):
            points.append((when, _stress(data, what)))
        else:
            given = _sum_of_squares(data) if given is None else given
            points.append((when, float(np.sqrt(max(what, 0.0) / given))))
    return points


def _sum_of_squares(data: DataSet) -> float:
    """Sum of squared dissimilarities over ordered pairs."""
    from psmds_dist.api.embed import measure
    from psmds_dist.executor import InProcessExecutor

    return 2 * measure(data.rows(), np.zeros((data.n, 2)), InProcessExecutor()).raw_stress


if __name__ == "__main__":
    main(sys.argv[1])
