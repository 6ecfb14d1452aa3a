"""Maps by default compared with the best that are known, on many data sets; order on a line compared with the truth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from psmds_dist import PatternSearchMDS
from tests.benchmarks.best_known import DEFAULT, Array, BestKnown, digest_of, stress
from tests.benchmarks.comparison import CLAIM
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held
from tests.benchmarks.map_sets import QUICK, SETS, MapSet, noisy_line

EXACT = 1e-6
"""Stress of a map that shows the dissimilarities exactly: less is not better."""


def maps(settings: Settings) -> list[Record]:
    """Stress by default on forty data sets, ten seeds, against the best of everything that was tried.

    Tried are the highest effort of this package, 100 random starts (20 from 301 points on, 5 from 1,001, 2 from 2,001),
    scikit-learn's SMACOF from classical scaling and from 20 random starts (3, 2, 1) with a tolerance of 1e-9 and at
    most 3,000 iterations (300,000 / N), the best map of each polished by L-BFGS-B; with --full, all starts and
    iterations up to 2,000 points. What was tried is kept in maps.json in the output folder, and only the default is run
    again; with --cached nothing else is. The standard profile takes sets of up to 2,000 points, --full all, --quick the
    smallest; --sets and --largest choose. Stress below 1e-6 counts as 1e-6.
    """
    known = BestKnown.open(settings.output / "maps.json")
    found = [_record(one, known, settings) for one in sets_of(settings)]
    print()
    show(found, **COLUMNS)
    bounds = [*_bounds(found)]
    show_held(bounds)
    for record in sorted(found, key=lambda record: -record["worst"])[:3]:
        print(f"worst: {record['what']}, {record['worst']:.4f} times {record['best']:.6f} of {record['found_by']}")
    return [*found, *bounds]


COLUMNS = {
    "what": "",
    "n": ",",
    "dims": "d",
    "default": ".6f",
    "times_best": ".4f",
    "worst": ".4f",
    "spread_%": ".2f",
    "best": ".6f",
    "found_by": "",
    "seconds": ".3f",
}


def sets_of(settings: Settings) -> Sequence[MapSet]:
    """Sets of a profile, or those that the command line names, up to a number of points; the smallest come first."""
    largest = settings.largest or (np.inf if settings.sets else settings.pick(1000, 2000, np.inf))
    names = settings.sets or (QUICK if settings.quick else [one.name for one in SETS])
    return sorted((one for one in SETS if one.name in names and one.n <= largest), key=lambda one: one.n)


def _record(one: MapSet, known: BestKnown, settings: Settings) -> Record:
    """Run the default, and what else was not run on a set yet; compare."""
    matrix = one.matrix()
    fits, seconds = _fits(matrix, one.dims, settings.pick(3, 10, 10))
    if not settings.cached:
        known.run(one.name, matrix, one.dims, settings)
    found = [stress(matrix, fit.embedding_) for fit in fits]
    digest = digest_of(matrix, one.dims)
    known.note(digest, DEFAULT, "psmds-dist", found, set=one.name)
    best, found_by = known.best(digest)
    claimed = max(abs(fit.normalized_stress_ - own) for fit, own in zip(fits, found, strict=True))
    wrong = None if claimed <= CLAIM else f"{one.name}: the reported stress is off by {claimed:.2g}."
    about = {"what": one.name, "n": one.n, "dims": one.dims, "best": best, "found_by": found_by, "wrong": wrong}
    return {**about, **compared(found, best), "runs": found, "seconds": seconds}


def _fits(matrix: Array, dims: int, seeds: int) -> tuple[list[PatternSearchMDS], float]:
    """Default fits, and the median of their seconds."""
    fits = [PatternSearchMDS(dims, random_state=seed) for seed in range(seeds)]
    return fits, statistics.median(once(lambda fit=fit: fit.fit(matrix)) for fit in fits)


def compared(found: Sequence[float], best: float) -> Record:
    """Compare the stress of several seeds with the best."""
    stresses = np.maximum(found, EXACT)
    median, least = float(np.median(stresses)), max(best, EXACT)
    return {
        "default": median,
        "times_best": median / least,
        "worst": float(stresses.max()) / least,
        "spread_%": 100 * float(np.ptp(stresses)) / median,
    }


def _bounds(found: Sequence[Record]) -> list[Record]:
    """Lines about the bounds of the maps."""

    def more(key: str, bound: float) -> int:
        return sum(record[key] > bound for record in found)

    return [
        held("sets above 1.001 times the best", more("times_best", 1.001), most=2),
        held("sets above 1.005 times the best", more("times_best", 1.005), most=0),
        held("sets whose worst seed is above 1.001 times", more("worst", 1.001), most=2),
        held("sets whose worst seed is above 1.005 times", more("worst", 1.005), most=0),
        held("sets whose seeds spread by more than 0.2 %", more("spread_%", 0.2), most=0),
    ]


def order(settings: Settings) -> list[Record]:
    """Order of points of a line in one dimension, whose distances have relative errors of 0, 10 and 30 %.

    Rank correlation with the true order, as a share of that of the map in which SMACOF ends from the true positions,
    and stress, as a multiple of that of the true positions. The worst of ten seeds of data and start is shown, of three
    from 5,000 points on.
    """
    sizes = settings.pick([50], [50, 500, 5000], [50, 500, 5000, 10_000])
    most = settings.pick(3, 10, 10)
    found = [_ordered(n, share, most if n < 5000 else 3) for n in sizes for share in (0.0, 0.1, 0.3)]
    show(found, what="", n=",", seeds="d", correlation=".6f", of_allowed=".6f", stress_of_true=".6f", seconds=".3f")
    bounds = [
        held("least rank correlation, of what is allowed", min(line["of_allowed"] for line in found), least=0.999),
        held("largest stress, in that of the true positions", max(line["stress_of_true"] for line in found), most=1),
    ]
    show_held(bounds)
    return [*found, *bounds]


def _ordered(n: int, share: float, seeds: int) -> Record:
    """Worst figures over seeds."""
    runs = [_order_of(n, share, seed) for seed in range(seeds)]
    return {
        "what": f"errors of {share:.0%}",
        "n": n,
        "seeds": seeds,
        "correlation": min(run["correlation"] for run in runs),
        "of_allowed": min(run["correlation"] / run["allowed"] for run in runs),
        "stress_of_true": max(run["stress"] / run["true_stress"] for run in runs),
        "seconds": statistics.median(run["seconds"] for run in runs),
        "runs": runs,
    }


def _order_of(n: int, share: float, seed: int) -> Record:
    """Order and stress of one map."""
    positions, matrix = noisy_line(n, share, seed)
    mds = PatternSearchMDS(1, random_state=seed)
    took = once(lambda: mds.fit(matrix))
    return {
        "seconds": took,
        "correlation": _same_order(mds.embedding_, positions),
        "allowed": _same_order(settled(matrix, positions), positions),
        "stress": max(stress(matrix, mds.embedding_), EXACT),
        "true_stress": max(stress(matrix, positions), EXACT),
    }


def settled(matrix: Array, positions: Array) -> Array:
    """Iterate SMACOF in one dimension, where only the order counts, until the order stays."""
    x, before = positions[:, 0], np.array([])
    while not np.array_equal(ranks := np.argsort(x), before):
        x, before = np.einsum("ij,ij->i", matrix, np.sign(x[:, None] - x)) / len(x), ranks
    return x[:, None]


def _same_order(x: Array, positions: Array) -> float:
    """Rank correlation, whatever the direction."""
    return abs(float(spearmanr(x[:, 0], positions[:, 0]).statistic))
