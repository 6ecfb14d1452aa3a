"""``python -m tests.digests``: a digest of the bits of many maps, to compare two versions of the code on one machine.

Bits depend on the kind of processor, so there is no table of expected values: run it before and after a change.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_digits

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS


def digest(x: np.ndarray) -> str:
    """The first digits of the digest of some coordinates."""
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=8).hexdigest()


def matrices() -> dict[str, np.ndarray]:
    """A small and a larger matrix."""
    points = np.random.default_rng(0).normal(size=(300, 6))
    return {"gauss 300": squareform(pdist(points)), "digits 1797": squareform(pdist(load_digits().data))}


def exact() -> list[dict[str, Any]]:
    """Parameters of fits to whole matrices."""
    plain = [{"n_components": dims} for dims in (1, 2, 3, 10)]
    others: list[dict[str, Any]] = [
        {"bad_moves": False, "max_epochs": 60},
        {"bad_moves": False, "n_components": 10, "max_epochs": 40},
        {"moves": "guided"},
        {"moves": "axes", "n_components": 10},
        {"dtype": "float64"},
        {"init": "random", "n_init": 3},
        {"direction_share": 0.5},
    ]
    return plain + others


def through_landmarks() -> list[dict[str, Any]]:
    """Parameters of landmark fits."""
    return [
        {"n_landmarks": 100, "n_components": dims, "refine": refine} for dims in (2, 5) for refine in ("panel", "full")
    ]


def maps(client: Any = None) -> Iterator[tuple[str, np.ndarray]]:
    """All maps with their names."""
    where = {} if client is None else {"cluster": client, "memory_limit": "1 GiB"}
    for name, t in matrices().items():
        for options in exact() if client is None else exact()[1:5]:
            yield f"{name} {options}", PatternSearchMDS(**options, **where, random_state=0).fit_transform(t)
        for options in through_landmarks():
            yield f"{name} landmarks {options}", LandmarkMDS(**options, **where, random_state=0).fit_transform(t)
    points = load_digits().data
    mds = LandmarkMDS(metric="euclidean", n_landmarks=100, **where, random_state=0).fit(points)
    yield "digits from points", mds.embedding_
    yield "digits transform", mds.transform(points[:50])


def streamed(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Maps of a stored matrix that does not fit the memory allowed."""
    np.save(folder / "t.npy", matrices()["digits 1797"])
    for limit in ("300 MiB", "2 GiB"):
        mds = PatternSearchMDS(random_state=0, memory_limit=limit)
        yield f"digits .npy {limit}", mds.fit_transform(str(folder / "t.npy"))


def main() -> None:
    """Print the table; with the argument ``workers`` the maps made by two Dask workers as well."""
    warnings.simplefilter("ignore")
    for name, x in maps():
        print(digest(x), name, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, x in streamed(Path(folder)):
            print(digest(x), name, flush=True)
    if "workers" in sys.argv[1:]:
        from dask.distributed import Client, LocalCluster

        with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            for name, x in maps(client):
                print(digest(x), "workers", name, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
