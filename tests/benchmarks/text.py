"""Text files into a store: speed and memory beside the readers of other libraries, each in a process of its own."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist

from tests.benchmarks.harness import Record, Settings, held, show, show_held

CELL = 8
"""Bytes of a number in the files, with what separates it from the next."""

MOST_MIB, SHARE = 300, 0.8
"""Largest resident memory of an ingestion, and least speed beside the fastest reader that streams."""

LIMITS = {"phylip": 40 << 20, "csv": 48 << 20}
"""The memory limits of ingestions, little above what they need; interpreter and libraries take 220 MiB beside them."""

_MEASURED = """
import json, re, sys, time
{imports}
began = time.perf_counter()
{body}
seconds = time.perf_counter() - began
own = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())  # getrusage adds the peak of the parent
print(json.dumps([seconds, 1024 * int(own[1])]))
"""

_INGEST = {
    kind: (
        "import pyarrow.csv, zarr\nfrom psmds_dist import build\nfrom psmds_dist.data.opening import open_matrix\n"
        "from psmds_dist.executor import InProcessExecutor",
        f"build(open_matrix(sys.argv[1]), sys.argv[1] + '.zarr', InProcessExecutor(), memory_limit={limit})",
    )
    for kind, limit in LIMITS.items()
}
PEERS: dict[str, dict[str, tuple[str, str]]] = {
    "csv": {
        "pandas, in chunks": (
            "import pandas",
            "for part in pandas.read_csv(sys.argv[1], index_col=0, chunksize=64): part.to_numpy()",
        ),
        "pyarrow, streaming": (
            "import pyarrow.csv",
            "options = pyarrow.csv.ReadOptions(block_size=1 << 24)\n"
            "for batch in pyarrow.csv.open_csv(sys.argv[1], read_options=options): pass",
        ),
        "NumPy, 64 rows a call": (
            "import itertools, numpy",
            "with open(sys.argv[1]) as file:\n"
            "    width = len(next(file).split(','))\n"
            "    while lines := list(itertools.islice(file, 64)):\n"
            "        numpy.loadtxt(lines, delimiter=',', usecols=range(1, width), ndmin=2)",
        ),
    },
    "phylip": {
        "NumPy, line by line": (
            "import numpy",
            "with open(sys.argv[1]) as file:\n    next(file)\n"
            "    for line in file: numpy.array(line.split()[1:], float)",
        ),
    },
}


def text(settings: Settings) -> list[Record]:
    """A lower triangle of PHYLIP and a CSV into a store, and what other libraries take to read them.

    Files have 100 MB each, with --full 2 GB. Imports are not timed; readers keep nothing of what they have read.
    """
    nbytes = settings.pick(4_000_000, 100_000_000, 2_000_000_000)
    records: list[Record] = []
    with tempfile.TemporaryDirectory(dir=settings.output) as folder:
        for kind, write, n in (
            ("phylip", _write_phylip, math.isqrt(2 * nbytes // CELL)),
            ("csv", _write_csv, math.isqrt(nbytes // CELL)),
        ):
            path = Path(folder, f"matrix.{kind}")
            write(path, np.random.default_rng(0).normal(size=(n, 3)))
            size = path.stat().st_size
            for what, (imports, body) in {"psmds ingest": _INGEST[kind], **PEERS[kind]}.items():
                records.append({"what": what, "file": kind, "n": n, **_measure(path, size, imports, body)})
            path.unlink()
            shutil.rmtree(f"{path}.zarr", ignore_errors=True)
    show(records, what="", file="", n=",d", seconds=".2f", MB_per_s=".1f", peak="bytes")
    bounds = [held(f"{own['file']}: MiB resident", own["peak"] / 2**20, most=MOST_MIB) for own in _own(records)]
    bounds += [
        held(f"{own['file']}: of the fastest reader", _share(own, records), least=SHARE) for own in _own(records)
    ]
    show_held(bounds)
    return [*records, *bounds]


def _own(records: list[Record]) -> list[Record]:
    return [record for record in records if record["what"] == "psmds ingest"]


def _share(own: Record, records: list[Record]) -> float:
    peers = [other["MB_per_s"] for other in records if other["file"] == own["file"] and other is not own]
    return float(own["MB_per_s"] / max(peers))


def _measure(path: Path, size: int, imports: str, body: str) -> Record:
    code = _MEASURED.format(imports=imports, body=body)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"seconds": math.nan, "MB_per_s": 0.0, "peak": 0, "wrong": f"{path.name}: {done.stderr.strip()[-300:]}"}
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, "MB_per_s": size / 1e6 / seconds, "peak": peak}


def _cells(distances: np.ndarray, delimiter: str) -> bytes:
    """Distances below ten as text with five decimals, each after a delimiter: many times as fast as with a format."""
    left = np.minimum(np.rint(distances * 1e5), 999_999).astype(np.int64)
    cells = np.empty((left.size, CELL), np.uint8)
    cells[:, 0], cells[:, 2] = ord(delimiter), ord(".")
    for place in (7, 6, 5, 4, 3, 1):
        left, cells[:, place] = left // 10, left % 10 + ord("0")
    return cells.tobytes()


def _write_phylip(path: Path, points: np.ndarray) -> None:
    with path.open("wb") as file:
        file.write(b"%d\n" % len(points))
        for k in range(len(points)):
            file.write(b"s%d%s\n" % (k, _cells(cdist(points[k : k + 1], points[:k])[0], "\t")))


def _write_csv(path: Path, points: np.ndarray) -> None:
    with path.open("wb") as file:
        file.write(",".join(["id", *(f"s{k}" for k in range(len(points)))]).encode() + b"\n")
        for k in range(len(points)):
            file.write(b"s%d%s\n" % (k, _cells(cdist(points[k : k + 1], points)[0], ",")))
