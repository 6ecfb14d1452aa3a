"""Cost as a function of points, dimensions, landmarks and workers, with fitted exponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from landmarks import LandmarkMDS
from tests.benchmarks import data
from tests.benchmarks.cluster import epoch_seconds
from tests.benchmarks.curves import exponent
from tests.benchmarks.harness import Record, Settings, show
from tests.benchmarks.roofline import half_epoch


def scaling(settings: Settings) -> list[Record]:
    """Seconds of a round by N and L, of placement by S, of an epoch by workers, with fitted exponents.

    Rows are in memory. Expected: 2 for N, 1 for L and S, and -1 for workers up to the number of cores.
    """
    sizes = settings.pick((1000, 2000, 4000), (2000, 4000, 8000, 16_000), (2000, 4000, 8000, 16_000, 32_000))
    found = _fitted("round against N, L = 2", sizes, lambda n: half_epoch(n, 2)[0])
    found += _fitted("round against L, N = 4,096", (2, 3, 5, 10, 20, 50), lambda dims: half_epoch(4096, dims)[0])
    if not settings.quick:
        points = data.clusters(200_000)
        found += _fitted("placing against S, N = 200,000", (250, 500, 1000, 2000), lambda s: _placing(points, s))
        one = data.euclidean(settings, "clusters", data.clusters(20_000))
        found += _fitted("epoch against workers, N = 20,000", (1, 2), lambda count: epoch_seconds(one, count))
    show(found, what="", size=",", seconds=".4f", exponent=".2f")
    return found


def _fitted(what: str, sizes: Sequence[int], cost: Callable[[int], float]) -> list[Record]:
    costs = [cost(size) for size in sizes]
    found: list[Record] = [{"what": what, "size": n, "seconds": c} for n, c in zip(sizes, costs, strict=True)]
    found[-1]["exponent"] = exponent(sizes, costs)
    return found


def _placing(points: np.ndarray, landmarks: int) -> float:
    """Seconds of a landmark fit without embedding the landmarks."""
    mds = LandmarkMDS(n_landmarks=landmarks, metric="euclidean", evaluate=False, random_state=0)
    return float(mds.fit(points).seconds_["placement"])
