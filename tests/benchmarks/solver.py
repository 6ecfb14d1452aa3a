"""Exact mode: how fast beside others, how many passes, and how small a small problem is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import numpy as np

from psmds_dist import PatternSearchMDS
from tests.benchmarks import data
from tests.benchmarks.comparison import compare_on
from tests.benchmarks.data import DataSet
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held
from tests.benchmarks.methods import METHODS, OURS, RANDOM, WIDE

SEEDS = range(5)

TARGET_RATIO = 1.005
"""How near to a long run's stress a map must be."""


def speed(settings: Settings) -> list[Record]:
    """MNIST 10,000 from file to map beside the peers (SMACOF and classical MDS with --full), and the ratios of time.

    A ratio counts where our stress is no worse than the peer's; ours is the median of five seeds, a whole run.
    """
    one = data.mnist(settings) or data.digits(settings)
    found = compare_on(one, METHODS, settings)
    by_name = {record["what"]: record for record in found if record["stress"] is not None}
    bounds = {"SMACOF, scikit-learn": (OURS, 400), "s_gd2, 30 epochs": (WIDE, 50), RANDOM: (OURS, 4)}
    lines = [
        held(f"{name}: its time over {ours}", by_name[name]["seconds"] / by_name[ours]["seconds"], least=least)
        for name, (ours, least) in bounds.items()
        if {name, ours} <= by_name.keys()
    ]
    lines += [
        held(f"{name}: {ours}'s stress over its", by_name[ours]["stress"] / by_name[name]["stress"], most=1)
        for name, (ours, _) in bounds.items()
        if {name, ours} <= by_name.keys()
    ]
    show_held(lines)
    return found + lines


def passes(settings: Settings) -> list[Record]:
    """Passes over the matrix until the error is within 0.5 % of a long run's stress, median of five seeds.

    Counted from the history: the pass that met the error counts, the last look at the stress counts where it was
    the first to meet it. A long run is from random, with a tenth of the tolerance; the median of three. A start from
    landmarks reads their rows besides, at most 1,000: a tenth of a pass over 10,000 points.
    """
    found = []
    for one in _sets_for_passes(settings):
        target = TARGET_RATIO * _long_run(one)
        ways = {"as by default": "auto", "from random": "random", "from landmarks": "landmarks"}
        of_this = [_passes(one, name, init, target) for name, init in ways.items()]
        columns = {"to_stress": ".5f", "passes_to_it": ".0f", "passes_in_all": ".0f", "stress": ".5f", "seconds": ".2f"}
        show(of_this, what="", **columns, reached="")
        print()
        found += of_this
    lines = [
        held(f"passes, {record['what']}", record["passes_to_it"], most=6)
        for record in found
        if record["what"].endswith("as by default")
    ]
    show_held(lines)
    return found + lines


def _sets_for_passes(settings: Settings) -> Iterable[DataSet]:
    if settings.quick:
        yield data.geodesic_roll(settings, 1000)
        return
    yield from data.there(data.words(settings), data.mnist(settings))
    yield data.geodesic_roll(settings, 10_000)


def _long_run(one: DataSet) -> float:
    """Stress that is to be had by patience."""
    runs = [PatternSearchMDS(init="random", eps=1e-5, max_epochs=300, random_state=seed) for seed in range(3)]
    return statistics.median(mds.fit(one.store).normalized_stress_ for mds in runs)


def _passes(one: DataSet, name: str, init: str, target: float) -> Record:
    runs = [PatternSearchMDS(init=init, random_state=seed) for seed in SEEDS]
    times = [once(lambda mds=mds: mds.fit(one.store)) for mds in runs]
    counts = [_passes_to(mds, target) for mds in runs]
    reached = [count for count in counts if count is not None]
    return {
        "what": f"{one.name} {one.n:,}, {name}",
        "to_stress": target,
        "passes_to_it": statistics.median(count or np.inf for count in counts) if len(reached) > 2 else None,
        "passes_in_all": statistics.median(mds.n_epochs_ + 1 for mds in runs),
        "stress": statistics.median(mds.normalized_stress_ for mds in runs),
        "seconds": statistics.median(times),
        "reached": f"{len(reached)} of {len(runs)}",
    }


def _passes_to(mds: PatternSearchMDS, target: float) -> int | None:
    """Passes until the first error at or below a normalised stress; None when it was never met."""
    mse = mds.mse_ * (target / mds.normalized_stress_) ** 2
    met = np.flatnonzero(mds.history_["mse"] <= mse)
    if met.size:
        return int(met[0]) + 1
    return mds.n_epochs_ + 1 if mds.normalized_stress_ <= target else None


def small(settings: Settings) -> list[Record]:
    """Small problems, matrix in memory to map, warm, median of five seeds: a fit must not cost more than its work."""
    roll = data.geodesic_roll(settings, settings.pick(1000, 3000, 3000))
    found = [_small(data.digits(settings, 300)), _small(roll)]
    show(found, what="", seconds=".4f", stress=".5f", epochs=".0f")
    if settings.quick:
        return found
    lines = [
        held("seconds of N = 300", found[0]["seconds"], most=0.03),
        held("seconds of the swiss roll, N = 3,000", found[1]["seconds"], most=0.4),
        held("its stress", found[1]["stress"], most=0.00513),
    ]
    show_held(lines)
    return found + lines


def _small(one: DataSet) -> Record:
    matrix = np.load(one.matrix)
    PatternSearchMDS(random_state=0).fit(matrix)
    runs = [PatternSearchMDS(random_state=seed) for seed in SEEDS]
    return {
        "what": f"{one.name} {one.n:,}",
        "seconds": statistics.median(once(lambda mds=mds: mds.fit(matrix)) for mds in runs),
        "stress": statistics.median(mds.normalized_stress_ for mds in runs),
        "epochs": statistics.median(mds.n_epochs_ for mds in runs),
    }
