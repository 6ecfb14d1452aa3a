"""As many worker processes as a cluster has: the same bits as in one process."""

import dask
import numpy as np
import pytest

from psmds_dist import PatternSearchMDS, open_points
from psmds_dist.deploy.local import local_client
from psmds_dist.deploy.settings import setting

pytestmark = pytest.mark.cluster

WORKERS = 32


def test_32_workers_give_the_same_bits(tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(14_000, 3)))  # 99 blocks
    source = open_points(str(tmp_path / "points.npy"), "euclidean")
    settings = {"init": "random", "radius": 1.0, "max_epochs": 2, "random_state": 0}
    alone = PatternSearchMDS(n_jobs=2, **settings).fit(source)
    setting("start-timeout")  # reads the defaults, before one is overridden
    busy = set()

    def blocks_held():  # a function of this module would make workers import it, and with it all of the estimator
        from psmds_dist.data.cache import _HELD

        return sum(len(rows._slot) for rows in _HELD.values())

    with dask.config.set({"psmds.start-timeout": 900}), local_client(WORKERS, 1) as client:

        def on_epoch(event):
            busy.update(address for address, held in client.run(blocks_held).items() if held)

        mds = PatternSearchMDS(cluster=client, memory_limit="128 MiB", on_epoch=on_epoch, **settings).fit(source)
    assert np.array_equal(mds.embedding_, alone.embedding_)
    assert len(mds.result_.peak_memory) == WORKERS
    assert len(busy) == 30  # of an odd number of pairs of blocks
