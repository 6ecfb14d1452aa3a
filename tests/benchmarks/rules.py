"""Fits by other rules than the squared error of every pair, compared with the plain one."""

from __future__ import annotations

import shutil

from psmds_dist import PatternSearchMDS
from tests.benchmarks import data
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held

MB = 10**6


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
