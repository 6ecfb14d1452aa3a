"""Exact mode: speed compared with peers, number of passes, and small problems."""

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
"""Largest stress that counts as reached, as a multiple of that of a long run."""


def speed(settings: Settings) -> list[Record]:
    """MNIST 10,000 from file to map compared with the peers (SMACOF and classical MDS with --full), as ratios.

    A ratio counts if the stress is no worse than that of the peer; runs of this package are medians of five seeds.
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
    """Passes over the matrix until the stress is within 0.5 % of that of a long run, median of five seeds.

    Counted from the history, including the pass that reached the error; the final measurement counts if it was the
    first to reach it. A long run starts at random, with a tenth of the tolerance; the median of three. A start from
    landmarks also reads their rows, at most 1,000: a tenth of a pass over 10,000 points.
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
    """Stress of a long run."""
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
    """Passes until the first error at or below a normalized stress; None if it is never reached."""
    mse = mds.mse_ * (target / mds.normalized_stress_) ** 2
    met = np.flatnonzero(mds.history_["mse"] <= mse)
    if met.size:
        return int(met[0]) + 1
    return mds.n_epochs_ + 1 if mds.normalized_stress_ <= target else None


def small(settings: Settings) -> list[Record]:
    """Small problems, matrix in memory to map, warm, median of five seeds: overhead must stay small."""
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
