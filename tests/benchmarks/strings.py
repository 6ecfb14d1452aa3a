"""Edit distances: a store compared with RapidFuzz alone, and landmarks of many strings within a memory limit."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from landmarks import LandmarkMDS
from psmds_dist import InProcessExecutor, build, open_objects, open_rows
from tests.benchmarks.harness import Record, Settings, held, once, show, show_held

REPEAT = 5
LETTERS = list("abcdefghijklmnopqrstuvwxyz")
LIMIT_MIB = 600
MEMORY = f"{LIMIT_MIB} MiB"


def strings(settings: Settings) -> list[Record]:
    """Levenshtein distances of strings of several lengths, into a store and by RapidFuzz on all threads, in turn, and
    the median of the ratios; landmarks of many strings.
    """
    n = settings.pick(1000, 5000, 5000)
    many = _landmarks(words(settings.pick(2000, 20_000, 100_000), 20), settings.pick(50, 500, 500))  # with its own peak
    lines = [_stored(words(n, length), length) for length in (20, 60)]
    show([*lines, many], what="", seconds=".2f", rapidfuzz=".2f", ratio=".2f", peak_memory="bytes")
    bounds = [held(line["what"], line["ratio"], most=1.3) for line in lines]
    bounds.append(held(f"{many['what']}: MiB resident at the peak", many["peak_memory"] / 2**20, most=LIMIT_MIB))
    show_held(bounds)
    return [*lines, many, *bounds]


def words(n: int, length: int) -> list[str]:
    """Random strings in families, each of which has changes of one letter in ten."""
    random = np.random.default_rng(0)
    roots = random.choice(LETTERS, (max(1, n // 20), length))
    letters = roots[random.integers(0, len(roots), n)]
    changed = random.random(letters.shape) < 0.1
    letters[changed] = random.choice(LETTERS, int(changed.sum()))
    return [f"{''.join(line)}{k}" for k, line in enumerate(letters)]


def _stored(some: list[str], length: int) -> Record:
    record: Record = {"what": f"{len(some):,} strings of {length} letters"}
    with tempfile.TemporaryDirectory() as folder:
        places = (Path(folder) / f"{k}.zarr" for k in range(REPEAT + 1))
        first = next(places)
        _build(some, first)
        if not np.array_equal(open_rows(first).take(np.arange(len(some))), _alone(some)):
            record["wrong"] = f"{record['what']}: other distances than those of RapidFuzz."
        pairs = [(once(lambda place=place: _build(some, place)), once(lambda: _alone(some))) for place in places]
    seconds, rapidfuzz = map(statistics.median, zip(*pairs, strict=True))
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    return record | {"seconds": seconds, "rapidfuzz": rapidfuzz, "ratio": ratio}


def _build(some: list[str], place: Path) -> None:
    build(open_objects(some, Levenshtein.distance), place, InProcessExecutor())


def _alone(some: list[str]) -> np.ndarray:
    return cdist(some, some, scorer=Levenshtein.distance, dtype=np.float32, workers=-1)


def _landmarks(some: list[str], size: int) -> Record:
    mds = LandmarkMDS(n_landmarks=size, metric=Levenshtein.distance, memory_limit=MEMORY, random_state=0)
    seconds = once(lambda: mds.fit(some))
    record: Record = {"what": f"{len(some):,} strings, {size} landmarks, {MEMORY}", "seconds": seconds}
    record["peak_memory"] = max(mds.result_.peak_memory.values())
    if not np.isfinite(mds.embedding_).all():
        record["wrong"] = f"{record['what']}: coordinates that are not finite."
    return record
