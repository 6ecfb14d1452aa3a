"""Fits by other rules than the squared error of every pair, compared with the plain one."""

from __future__ import annotations

import shutil
import statistics
from contextlib import closing
from functools import partial

import numpy as np

from psmds_dist import PatternSearchMDS
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.sources import RowSource
from psmds_dist.data.cache import HeldRows, ResidentRows, RowCache, stored
from psmds_dist.data.paired import PairedRows
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.kernels.pairs import kernels_of
from tests.benchmarks import data
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held

MB = 10**6

REPEAT = 7
"""Passes of each kind, in turns."""


def ordinal(settings: Settings) -> list[Record]:
    """Squared distances of 16-D clusters, N = 20,000 (1.6 GB), streamed within 400 MB: transformed, and as they are.

    Seconds of a whole fit, kernels loaded; the store may be in the page cache.
    """
    n, limit = settings.pick(3000, 20_000, 20_000), settings.pick(60, 400, 400) * MB
    one = data.scattered(settings, "ordinal", data.clusters(n), "sqeuclidean")
    try:
        data.build_store(one)
        kinds = {"as they are": None, "ratio": "ratio", "interval": "interval", "ordinal": "ordinal"}
        found = [_fit(one, name, kind, limit) for name, kind in kinds.items()]
    finally:
        shutil.rmtree(one.folder)
    for record in found:
        record["times"] = record["seconds"] / found[0]["seconds"]
    show(found, what="", seconds=".1f", times=".1f", epochs=".0f", kept=".0%", stress1=".5f")
    lines = [held("seconds of the ordinal fit over the plain one", found[-1]["times"], most=3)]
    show_held(lines)
    return found + lines


def _fit(one: data.DataSet, name: str, transformation: str | None, limit: int) -> Record:
    mds = PatternSearchMDS(transformation=transformation, random_state=0, memory_limit=limit)
    seconds = once(lambda: mds.fit(one.store))
    record = {"what": name, "seconds": mds.result_.seconds, "wall": seconds, "stress1": mds.stress1_}
    return {**record, "epochs": mds.n_epochs_, "kept": mds.result_.plan.cached_share}


def weights(settings: Settings) -> list[Record]:
    """Passes in which points move by several rules, beside the plain one: rows in memory, and streamed from a store.

    Distances serve as weights as well, so that both come from the page cache.
    """
    one = data.scattered(settings, "weights", data.clusters(settings.pick(2000, 8000, 8000)))
    rules = {"plain": PLAIN, "power -1": PairRule(power=-1), "weights": PairRule(weighted=True)}
    try:
        data.build_store(one)
        sources = {name: PairedRows((one.rows(),) * 2) if rule.weighted else one.rows() for name, rule in rules.items()}
        lines = [
            *_passes("in memory", rules, {name: _in_memory(source) for name, source in sources.items()}),
            *_passes("streamed", rules, {name: RowCache(s, stored(s).min_limit) for name, s in sources.items()}),
        ]
    finally:
        shutil.rmtree(one.folder)
    show(lines, what="", rows="", seconds=".3f", times=".2f")
    in_memory, streamed = (line["times"] for line in lines if line["what"] == "weights")
    bounds = [
        held("seconds of a weighted pass over a plain one, in memory", in_memory, most=1.6),
        held("the same, streamed", streamed, most=2.2),
    ]
    show_held(bounds)
    return lines + bounds


def _in_memory(source: RowSource) -> HeldRows:
    rows = np.empty(source.shape, source.dtype)
    source.read(0, source.n, rows)
    return ResidentRows(rows, source.layout)


def _passes(where: str, rules: dict[str, PairRule], held_rows: dict[str, HeldRows]) -> list[Record]:
    """Seconds of a pass by each rule, and how many times those of the first; medians of turns."""
    passes = [partial(_pass, rules[name], rows) for name, rows in held_rows.items()]
    for run in passes:
        run()
    turns = np.array([[once(run) for run in passes] for _ in range(REPEAT)])
    times = turns / turns[:, :1]
    return [
        {"what": name, "rows": where, "seconds": statistics.median(seconds), "times": statistics.median(ratios)}
        for name, seconds, ratios in zip(rules, turns.T.tolist(), times.T.tolist(), strict=True)
    ]


def _pass(rule: PairRule, rows: HeldRows) -> None:
    layout, kernels = rows.layout, kernels_of(rule, 10.0)
    x = np.random.default_rng(0).normal(size=(2, layout.n)).astype(np.float32)
    with parallel_region(), closing(rows.batches(range(layout.count))) as batches:
        for batch in batches:
            kernels.propose(batch.rows, batch.slots, batch.points, x, 0.1, np.arange(2))
