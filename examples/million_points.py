"""Embed points in landmark mode, by default 100,000: ``python examples/million_points.py 1000000``."""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from landmarks import LandmarkMDS


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    random = np.random.default_rng(0)
    centres = random.standard_normal((30, 16)) * 3
    points = centres[random.integers(0, 30, n)] + random.standard_normal((n, 16))

    began = time.perf_counter()
    mds = LandmarkMDS(n_landmarks=500, metric="euclidean", random_state=0).fit(points)
    low, high = mds.stress_interval_
    print(f"{n:,} points in {time.perf_counter() - began:.1f} s")
    print(f"normalized stress on held-out pairs {mds.normalized_stress_:.4f} ({low:.4f} to {high:.4f})")
    print("with fewer landmarks:", ", ".join(f"{c['n_landmarks']}: {c['normalized_stress']:.4f}" for c in mds.curve_))

    new = centres[:5] + random.standard_normal((5, 16))
    with tempfile.TemporaryDirectory() as folder:
        mds.save(Path(folder, "map.zarr"))
        again = LandmarkMDS.load(Path(folder, "map.zarr"))
    print("new points from the stored map, the same bits:", np.array_equal(mds.transform(new), again.transform(new)))


if __name__ == "__main__":
    main()
