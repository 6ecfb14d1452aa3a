"""Damaged stores, panels, maps and models: reading returns what was written, or fails with one sentence."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from landmarks import LandmarkMDS
from landmarks.panel.build import build_panel
from landmarks.panel.sources import points_panel, store_panel
from landmarks.panel.tables import array_panel
from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import describe, open_panel, open_rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from tests.fuzz.choosing import Chooser
from tests.fuzz.judging import FuzzFailure, judged
from tests.fuzz.oracle import Verdict

N = 40
IDS = [f"point {k} é" for k in range(N)]


def _made(kind: str, place: Path) -> None:
    x = np.random.default_rng(1).normal(size=(N, 3))
    matrix = squareform(pdist(x))
    if kind == "store":
        build(ArrayRows(matrix, "float64"), place, InProcessExecutor(), ids=IDS, metric="euclidean")
    elif kind == "panel":
        source = points_panel(array_panel(x, "float64"), list(range(3, 23)))
        build_panel(source, place, InProcessExecutor(), ids=IDS)
    elif kind == "map":
        mds = PatternSearchMDS(random_state=0).fit(matrix)
        object.__setattr__(mds.result_, "ids", IDS)
        mds.save(place)
    else:
        LandmarkMDS(metric="euclidean", n_landmarks=15, random_state=0, n_init=1).fit(x).save(place)


READERS: dict[str, Callable[[Path], Any]] = {
    "store": lambda place: _of_fit(PatternSearchMDS(random_state=0, dtype="float64", max_epochs=20).fit(str(place))),
    "panel": lambda place: _of_fit(LandmarkMDS(random_state=0, n_init=1, evaluate=False).fit(str(place))),
    "map": lambda place: _of_result(read_result(place)),
    "model": lambda place: (LandmarkMDS.load(place).transform(np.ones((2, 3))), LandmarkMDS.load(place).embedding_),
    "landmarks of a store": lambda place: _of_fit(
        LandmarkMDS(random_state=0, n_landmarks=12, n_init=1).fit(str(place))
    ),
    "quality of a map": lambda place: _of_result(read_result(place)),
    "description": lambda place: _without_check(describe(place)),
    "rows of a panel": lambda place: _of_panel(place),
    "rows of a store": lambda place: _of_rows(open_rows(place).verified()),
    "copy of a store": lambda place: _of_copy(place),
    "copy with zeros on the diagonal": lambda place: _of_copy(place, zero_diagonal=True),
    "copy of one triangle": lambda place: _of_copy(place, triangle="upper"),
    "panel out of a store": lambda place: _of_panel_copy(place),
}
SUBJECTS = {
    "landmarks of a store": "store",
    "quality of a map": "map",
    "rows of a panel": "panel",
    "rows of a store": "store",
    "copy of a store": "store",
    "copy with zeros on the diagonal": "store",
    "copy of one triangle": "store",
    "panel out of a store": "store",
}


def _of_fit(mds: Any) -> Any:
    return mds.embedding_, mds.normalized_stress_, mds.ids_


def _of_result(result: Any) -> Any:
    return (
        result.embedding,
        result.raw_embedding,
        result.stress.mse,
        result.stress.point_stress,
        result.history,
        result.ids,
        result.attributes,
    )


def _of_rows(rows: Any) -> Any:
    out = np.empty((rows.n, rows.layout.columns), rows.dtype)
    rows.read(0, rows.n, out)
    return out, rows.ids, rows.dtype.name


def _of_panel(place: Path) -> Any:
    panel = open_panel(place).verified()
    return _of_rows(panel), panel.landmarks


def _of_copy(place: Path, **how: Any) -> Any:
    """Rows of a copy, which has its own checksums: damaged rows must not get any."""
    source, copy = open_rows(place), place.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    build(source, copy, InProcessExecutor(), ids=source.ids, **how)
    return _of_rows(open_rows(copy).verified())


def _of_panel_copy(place: Path) -> Any:
    source, copy = store_panel(open_rows(place), np.arange(3, 23)), place.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    build_panel(source, copy, InProcessExecutor())
    return _of_panel(copy)


def _without_check(facts: dict[str, Any]) -> dict[str, Any]:
    """A damaged check is reported as missing, which is correct: it is computed again."""
    return {name: value for name, value in facts.items() if name != "checked"}


@cache
def _original(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="psmds-fuzz-original-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    place = folder / kind
    _made(kind, place)
    return place


@cache
def _expected(reader: str, kind: str) -> Any:
    return READERS[reader](_original(kind))


def same(a: Any, b: Any) -> bool:
    """Whether two results of reading are equal to the bit."""
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def _flip(file: Path, choose: Chooser) -> str:
    content = bytearray(file.read_bytes())
    place, bit = choose.number(0, len(content) - 1), choose.number(0, 7)
    content[place] ^= 1 << bit
    times = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # like a failing disk
    return f"bit {bit} of byte {place}"


def _cut(file: Path, choose: Chooser) -> str:
    size = choose.number(0, file.stat().st_size - 1)
    os.truncate(file, size)
    return f"cut to {size} bytes"


def _vanish(file: Path, choose: Chooser) -> str:
    file.unlink()
    return "gone"


def _rewrite(file: Path, choose: Chooser) -> str:
    """Change one value of the metadata, or some bytes of a chunk."""
    if file.name != "zarr.json":
        return _flip(file, choose)
    content = json.loads(file.read_text())
    places = list(_leaves(content, ()))
    path = choose.pick(places)
    value = choose.pick([None, 0, -1, 1e300, "x", [], {}, True, 10**30, float("nan")])
    target = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    file.write_text(json.dumps(content))
    return f"{'/'.join(map(str, path))} set to {value!r}"


def _leaves(value: Any, path: tuple[Any, ...]) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _leaves(inner, (*path, key))


def _damage(choose: Chooser, folder: Path, how: Callable[[Path, Chooser], str]) -> str:
    reader = choose.pick(list(READERS))
    kind = SUBJECTS.get(reader, reader)
    if reader == "description":
        kind = choose.pick(["store", "panel", "map", "model"])
    expected = _expected(reader, kind)
    place = folder / kind
    shutil.copytree(_original(kind), place)
    files = [file for file in sorted(place.rglob("*")) if file.is_file() and file.stat().st_size]
    small = [file for file in files if file.name == "zarr.json" or "ids" in file.parts or "landmarks" in file.parts]
    file = choose.pick(choose.pick([files, small]))
    what = how(file, choose)
    story = f"{reader} after {file.relative_to(folder)}: {what}"
    found: list[Any] = []

    def call() -> None:
        found.append(READERS[reader](place))

    end = judged(call, Verdict.EITHER, story)
    if found and not same(found[0], expected):
        raise FuzzFailure(f"{story}: something else than was written came back in silence")
    return end


def flipped(choose: Chooser, folder: Path) -> str:
    """One flipped bit in any file."""
    return _damage(choose, folder, _flip)


def broken(choose: Chooser, folder: Path) -> str:
    """A file that is truncated, missing, or has a changed value."""
    return _damage(choose, folder, choose.pick([_cut, _vanish, _rewrite, _rewrite]))


ENTRIES = {"one flipped bit": flipped, "broken files": broken}
