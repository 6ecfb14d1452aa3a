"""Clusters whose network fails: links that are cut, processes that are stopped, hosts without the data."""

import json
import os
import re
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from psmds_dist import InProcessExecutor, PatternSearchMDS, build, open_points
from psmds_dist.executor import write_certificates
from tests.clusters import wait_for
from tests.lab.netns import Network, processes
from tests.lab.netns import can_have_networks as can_have_networks

pytestmark = pytest.mark.cluster

PSMDS = str(Path(sys.executable).parent / "psmds")

PATIENCE = 300
"""Seconds to wait for what takes some, on two slow cores."""

LONGEST_CUT = int(os.environ.get("PSMDS_LAB_CUT", "120"))
"""Seconds that a worker is cut off at the most."""

SCHEDULER, CLIENT, WORKERS = 1, 5, (2, 3, 4)

SOLVE = {"init": "random", "n_init": 1, "random_state": 0, "polish": False}
SOLVE |= {"bad_moves": False, "eps": 0.0, "radius_tol": 1e-12, "max_epochs": 2000}  # several hundred epochs

FIT = """
import json, os, sys, time
import numpy as np
from psmds_dist import PatternSearchMDS
from psmds_dist.executor import connect

place, settings = sys.argv[1], json.loads(sys.argv[2])

def on_epoch(event):
    print("epoch", event.epoch, flush=True)
    if os.path.exists(f"{place}/slow"):
        time.sleep(2)

if __name__ == "__main__":
    with connect(scheduler_file=f"{place}/cluster.json", tls=f"{place}/tls") as client:
        mds = PatternSearchMDS(cluster=client, on_epoch=on_epoch, **settings).fit(f"{place}/data/matrix.zarr")
    np.save(f"{place}/map.npy", mds.embedding_)
"""

PROBE = """
import json, sys
from psmds_dist.executor import connect

def rows_held(dask_worker):
    from psmds_dist.data import cache
    held = sum(len(rows._slot) for rows in cache._HELD.values())
    cache.clear_row_cache()
    return dask_worker.name, held

with connect(scheduler_file=f"{sys.argv[1]}/cluster.json", tls=f"{sys.argv[1]}/tls") as client:
    print(json.dumps(dict(client.run(rows_held, on_error="ignore").values())))
"""


class Cluster:
    """A scheduler on one host, a worker on each of three, and a fit on a fifth, with TLS between them."""

    def __init__(self, network, place):
        self.network = network
        self.place = place
        self.store = place / "data" / "matrix.zarr"
        self.store.parent.mkdir()
        write_certificates(str(place / "tls"))
        np.save(place / "points.npy", np.random.default_rng(0).normal(size=(300, 5)))
        build(open_points(str(place / "points.npy"), "euclidean"), str(self.store), InProcessExecutor(1))
        self.start(SCHEDULER, "scheduler")
        for host in WORKERS:
            self.start(host, "worker", "--threads", "1", "--name", f"w{host}")

    def start(self, host, role, *options, blind=False):
        """Start a process of the cluster; its place is shared by path, but for one that cannot see the data."""
        there = ["--scheduler-file", self.place / "cluster.json", "--tls", self.place / "tls"]
        where = ["--interface", "eth0"] if host == SCHEDULER else []
        command = [PSMDS, role, *there, *where, *options]
        if blind:
            command = ["sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', self.store.parent, *command]
        return self.network.start(host, command, self.log(host), ["--mount"] if blind else [])

    def log(self, host):
        return self.place / f"host{host}.log"

    def fit(self):
        """Start a fit that takes two seconds an epoch while the file ``slow`` is there."""
        (self.place / "slow").touch()
        command = [sys.executable, "-c", FIT, self.place, json.dumps(SOLVE)]
        self.running = self.network.start(CLIENT, command, self.log(CLIENT))

    def epoch(self):
        """Epochs that the fit has done; it must not have failed."""
        log = self.log(CLIENT).read_text()
        assert not self.running.poll(), log
        return int(log.rpartition("epoch ")[2].split()[0]) if "epoch " in log else 0

    def goes_on(self, epochs=2):
        """Wait until the fit has done some more epochs."""
        wanted = self.epoch() + epochs
        wait_for(lambda: self.epoch() >= wanted, PATIENCE)

    def rows_held(self):
        """Blocks that each worker has read since the last call, by its name; none of a worker that does not answer."""
        done = self.network.run(SCHEDULER, [sys.executable, "-c", PROBE, self.place])
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def connected(self, *hosts):
        """Wait until workers have found the scheduler."""
        wait_for(lambda: self.rows_held().keys() >= {f"w{host}" for host in hosts}, PATIENCE)

    def works(self, *hosts):
        """Wait until workers are back and have been given work, which they read rows for."""
        self.rows_held()
        wait_for(lambda: self.epoch() and all(map(self.rows_held().get, [f"w{host}" for host in hosts])), PATIENCE)

    def process(self, host, module):
        """Process of a host that runs a module."""
        found = map(psutil.Process, processes(self.network.namespace(host)))
        return next(process for process in found if module in " ".join(process.cmdline()))

    def result(self):
        """Coordinates, once the fit has ended."""
        (self.place / "slow").unlink()
        assert self.running.wait(PATIENCE) == 0, self.log(CLIENT).read_text()
        return np.load(self.place / "map.npy")


@pytest.fixture
def cluster(can_have_networks, tmp_path):
    with Network(5) as network:
        yield Cluster(network, tmp_path)


def test_a_run_goes_on_whatever_is_cut_or_stopped(cluster):
    """All in one run: two workers are cut off and stopped in turn, one of them for minutes; then the scheduler."""
    cluster.fit()
    network = cluster.network
    cluster.works(*WORKERS)
    cluster.process(2, "dask_worker").kill()
    cluster.works(2)

    network.cut(4)
    cut_off = time.monotonic()
    for seconds in (15, 30):
        network.cut(3)
        time.sleep(seconds)
        cluster.goes_on()
        network.mend(3)
        cluster.works(3)
    with stopped(cluster.process(3, "multiprocessing.spawn")):
        time.sleep(40)
        cluster.goes_on()
    time.sleep(max(0, LONGEST_CUT - (time.monotonic() - cut_off)))
    network.mend(4)
    cluster.works(*WORKERS)

    network.cut(SCHEDULER)
    time.sleep(15)
    network.mend(SCHEDULER)
    cluster.goes_on()
    with stopped(cluster.process(SCHEDULER, "dask_scheduler")):
        time.sleep(40)
    cluster.goes_on()
    cluster.works(*WORKERS)
    expected = PatternSearchMDS(n_jobs=1, **SOLVE).fit(str(cluster.store))
    assert np.array_equal(cluster.result(), expected.embedding_)
    assert cluster.epoch() == expected.n_epochs_


@contextmanager
def stopped(process):
    """Stop a process for the length of the block; its connections stay."""
    process.send_signal(signal.SIGSTOP)
    yield
    process.send_signal(signal.SIGCONT)


def test_a_host_without_the_data_is_named(cluster):
    cluster.connected(*WORKERS)
    cluster.network.kill(4)
    cluster.start(4, "worker", "--threads", "1", "--name", "w4", blind=True)
    cluster.connected(4)
    command = [PSMDS, "fit", cluster.store, cluster.place / "map.zarr", "--tls", cluster.place / "tls"]
    done = cluster.network.run(CLIENT, [*command, "--cluster", cluster.place / "cluster.json"])
    assert done.returncode == 1, done.stderr
    assert re.search(rf"10\.77\.0\.4:\d+ on host4\) cannot read {cluster.store}", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
