"""This package and its peers on the same data: one table, one check of the results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tests.benchmarks import data
from tests.benchmarks.child import run_child
from tests.benchmarks.curves import draw_traces
from tests.benchmarks.data import DataSet
from tests.benchmarks.harness import Record, Settings, show
from tests.benchmarks.methods import METHODS, OURS, PAPER, RANDOM, SCATTERED, Method

WORSE = {OURS: 1.03, RANDOM: 1.03}
"""Largest correct stress, as a multiple of the best peer's: local optima differ by 1 %."""

LANDMARKS_WORSE = 1.10
"""The same for landmark mode, which uses some of the pairs only."""

EXACT = 2e-4
"""Stress at which even a perfect map ends: the last radius, as a share of the scale."""

DISAGREE = 1.10
"""Largest relative difference between pattern search from random and the algorithm of the paper."""

CLAIM = 1e-6
"""Largest relative difference between the reported and the measured stress of a method of this package."""

COLUMNS = {
    "what": "",
    "seconds": ".3f",
    "times_ours": ".2f",
    "peak_memory": "bytes",
    "stress": ".5f",
    "passes": ".0f",
    "note": "",
}


def compare(settings: Settings) -> list[Record]:
    """This package and its peers on the same data, each in a separate process, kernels and libraries warm.

    Methods of this package are timed from the store on disk to the map, peers from the matrix in memory to the map;
    medians over five seeds if a run is short, else one run. One function measures the stress of all maps.
    """
    found = []
    for one in _sets(settings):
        methods = [method for method in METHODS if method.quick or not settings.quick]
        found += compare_on(one, methods, settings)
    if settings.full:
        for n in (30_000, 100_000):
            found += compare_on(data.scattered(settings, "clusters", data.clusters(n)), SCATTERED, settings)
    return found


def _sets(settings: Settings) -> Iterable[DataSet]:
    """Generate the data sets of a profile."""
    if settings.quick:
        yield data.digits(settings, 500)
        yield data.geodesic_roll(settings, 500)
        yield data.euclidean(settings, "plane", data.plane(300))
        return
    yield data.geodesic_roll(settings, 1000)
    yield data.digits(settings)
    yield from data.there(data.words(settings))
    yield data.geodesic_roll(settings, 3000)
    if settings.full:
        yield data.geodesic_roll(settings, 10_000)
        yield data.euclidean(settings, "clusters", data.clusters(20_000))


def compare_on(one: DataSet, methods: Sequence[Method], settings: Settings) -> list[Record]:
    """Run methods on a data set, print their table, draw their curves, and check the results of this package."""
    print(f"\n{one.name}, N = {one.n:,} ({one.metric})\n", flush=True)
    tiny = data.euclidean(settings, "tiny", data.clusters(64, 3))
    outcomes = {}
    for method in methods:
        reason = method.missing(settings, one.n, one.store.exists())
        outcomes[method.name] = {"left_out": reason} if reason else run_child(method, one, tiny)
    found = _records(one, methods, outcomes)
    show(found, **COLUMNS)
    traces = {name: outcome["trace"] for name, outcome in outcomes.items() if outcome.get("trace")}
    if traces:
        draw_traces(settings.output / f"{one.name}-{one.n}.png".replace(" ", "-"), f"{one.name}, N = {one.n:,}", traces)
    for record in found:
        record["trace"] = traces.get(record["what"])
    return found


def _records(one: DataSet, methods: Sequence[Method], outcomes: dict[str, dict[str, Any]]) -> list[Record]:
    """Records for a table; times are relative to the first method of this package."""
    found = [_record(one, method, outcomes[method.name]) for method in methods]
    ours = next((record["seconds"] for record in found if record["ours"] and "seconds" in record), None)
    for record in found:
        if ours is not None and "seconds" in record:
            record["times_ours"] = record["seconds"] / ours
        record["wrong"] = judge(record, found)
    return found


def _record(one: DataSet, method: Method, outcome: dict[str, Any]) -> Record:
    record: Record = {"data": one.name, "n": one.n, "what": method.name, "ours": method.ours}
    if "runs" not in outcome:
        return {**record, **outcome, "note": next(iter(outcome.values())), "stress": None}
    runs = outcome["runs"]
    finite = all(run["finite"] for run in runs)
    return {
        **record,
        "seconds": statistics.median(run["seconds"] for run in runs),
        "stress": statistics.median(run["stress"] for run in runs) if finite else None,
        "passes": _median(run["passes"] for run in runs),
        "peak_memory": outcome["peak"],
        "runs": runs,
        "note": "" if finite else "coordinates that are not finite",
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def judge(record: Record, others: Sequence[Record]) -> str | None:
    """List what is wrong with the results of this package; slow is not wrong."""
    if not record["ours"] or record.get("left_out"):
        return None
    fault = _unusable(record) or _untrue(record) or _worse(record, others) or _unlike_paper(record, others)
    return fault and f"{record['what']} on {record['data']}, N = {record['n']:,}: {fault}."


def _unusable(record: Record) -> str | None:
    return record["note"] if record["stress"] is None else None


def _untrue(record: Record) -> str | None:
    for run in record["runs"]:
        if run["claimed"] is not None and abs(run["claimed"] - run["stress"]) > CLAIM:
            return f"it tells a stress of {run['claimed']:.7f}, but {run['stress']:.7f} was measured"
    return None


def _worse(record: Record, others: Sequence[Record]) -> str | None:
    peers = [(other["stress"], other["what"]) for other in others if not other["ours"] and other["stress"] is not None]
    if not peers:
        return None
    stress, peer = min(peers)
    allowed = WORSE.get(record["what"], LANDMARKS_WORSE)
    if record["stress"] <= allowed * stress + EXACT:
        return None
    return f"stress {record['stress']:.5f} is more than {allowed} times the {stress:.5f} of {peer}"


def _unlike_paper(record: Record, others: Sequence[Record]) -> str | None:
    plain = next((other["stress"] for other in others if other["what"] == PAPER), None)
    if record["what"] != RANDOM or plain is None:
        return None
    apart = max(plain, record["stress"]) - EXACT > DISAGREE * min(plain, record["stress"])
    return f"stress {record['stress']:.5f}, but {plain:.5f} of the paper's algorithm in NumPy" if apart else None
