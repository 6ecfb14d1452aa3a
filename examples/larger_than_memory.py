"""Embed a matrix on disk with Dask workers whose memory limit is below the size of the matrix."""

import tempfile
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

from psmds_dist import DaskExecutor, PatternSearchMDS, build, open_points

N = 4000
LIMIT = "48 MiB"


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        points, store = Path(folder, "points.npy"), Path(folder, "matrix.zarr")
        np.save(points, np.random.default_rng(0).standard_normal((N, 3)) * [3, 2, 0.1])
        check = build(open_points(points, "euclidean"), store, DaskExecutor(client), metric="euclidean")
        print(f"{check.n:,} points, matrix of {check.n**2 * 4 / 2**20:.0f} MiB, {LIMIT} for each worker")

        mds = PatternSearchMDS(cluster=client, memory_limit=LIMIT, random_state=0).fit(store)
        print(f"on two workers: {mds.n_epochs_} epochs, normalized stress {mds.normalized_stress_:.5f}")

        alone = PatternSearchMDS(random_state=0).fit(store)
        print("in this process, the same bits:", np.array_equal(mds.embedding_, alone.embedding_))


if __name__ == "__main__":
    main()
