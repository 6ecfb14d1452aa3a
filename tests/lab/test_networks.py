"""Clusters whose network fails: links that are cut, processes that are stopped, hosts without the data."""

import json
import signal
import sys
import time
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
        time.sleep(0.5)

if __name__ == "__main__":
    with connect(scheduler_file=f"{place}/cluster.json", tls=f"{place}/tls") as client:
        mds = PatternSearchMDS(client=client, on_epoch=on_epoch, **settings).fit(f"{place}/matrix.zarr")
    np.save(f"{place}/map.npy", mds.embedding_)
"""

PROBE = """
import json, sys
from psmds_dist.executor import connect

def rows_held(dask_worker):
    from psmds_dist.data.cache import _HELD
    return dask_worker.name, sum(len(rows._slot) for rows in _HELD.values())

with connect(scheduler_file=f"{sys.argv[1]}/cluster.json", tls=f"{sys.argv[1]}/tls") as client:
    print(json.dumps(dict(client.run(rows_held, on_error="ignore").values())))
"""


class Cluster:
    """A scheduler on one host, a worker on each of three, and a fit on a fifth, with TLS between them."""

    def __init__(self, network, place):
        self.network = network
        self.place = place
        write_certificates(str(place / "tls"))
        np.save(place / "points.npy", np.random.default_rng(0).normal(size=(300, 5)))
        build(open_points(str(place / "points.npy"), "euclidean"), str(place / "matrix.zarr"), InProcessExecutor(1))
        self.start(SCHEDULER, "scheduler")
        for host in WORKERS:
            self.start(host, "worker", "--threads", "1", "--name", f"w{host}")

    def start(self, host, role, *options, unshare=()):
        """Start a process of the cluster; its place is shared by path."""
        there = ["--scheduler-file", self.place / "cluster.json", "--tls", self.place / "tls"]
        where = ["--interface", "eth0"] if host == SCHEDULER else []
        command = [PSMDS, role, *there, *where, *options]
        return self.network.start(host, command, self.log(host), unshare)

    def log(self, host):
        return self.place / f"host{host}.log"

    def fit(self):
        """Start a fit that takes half a second an epoch while the file ``slow`` is there."""
        (self.place / "slow").touch()
        command = [sys.executable, "-c", FIT, self.place, json.dumps(SOLVE)]
        return self.network.start(CLIENT, command, self.log(CLIENT))

    def epoch(self):
        """Epochs that the fit has done."""
        log = self.log(CLIENT).read_text()
        return int(log.rpartition("epoch ")[2].split()[0]) if "epoch " in log else 0

    def goes_on(self, epochs=3):
        """Wait until the fit has done some more epochs; return the seconds it took."""
        began, wanted = time.monotonic(), self.epoch() + epochs
        wait_for(lambda: self.epoch() >= wanted, PATIENCE)
        return time.monotonic() - began

    def rows_held(self):
        """Blocks that each worker holds in memory, by its name: only those that work have any."""
        done = self.network.run(SCHEDULER, [sys.executable, "-c", PROBE, self.place])
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def works(self, *hosts):
        """Wait until workers are back and have been given work."""
        wait_for(lambda: all(self.rows_held().get(f"w{host}") for host in hosts), PATIENCE)

    def process(self, host, module):
        """Process of a host that runs a module."""
        found = map(psutil.Process, processes(self.network.namespace(host)))
        return next(process for process in found if module in " ".join(process.cmdline()))

    def result(self, fit):
        (self.place / "slow").unlink()
        assert fit.wait(PATIENCE) == 0, self.log(CLIENT).read_text()
        return np.load(self.place / "map.npy")


@pytest.fixture
def cluster(can_have_networks, tmp_path):
    with Network(5) as network:
        yield Cluster(network, tmp_path)


def say(*what):
    print(time.strftime("%T"), *what, flush=True)


def test_a_run_goes_on_whatever_is_cut_or_stopped(cluster):
    """All in one run: two workers are cut off and stopped in turn, one of them for two minutes; then the scheduler."""
    fit, network = cluster.fit(), cluster.network
    cluster.works(*WORKERS)
    say("all work")
    long_cut = time.monotonic()
    network.cut(4)
    for seconds in (15, 30):
        network.cut(3)
        time.sleep(seconds)
        say("goes on after", seconds, cluster.goes_on())
        network.mend(3)
        cluster.works(3)
        say("3 is back")
    worker = cluster.process(3, "multiprocessing.spawn")
    worker.send_signal(signal.SIGSTOP)
    time.sleep(40)
    say("goes on after stop", cluster.goes_on())
    worker.send_signal(signal.SIGCONT)
    time.sleep(max(0, 120 - (time.monotonic() - long_cut)))
    network.mend(4)
    cluster.works(3, 4)
    say("3, 4 are back")

    network.cut(SCHEDULER)
    time.sleep(15)
    network.mend(SCHEDULER)
    say("goes on after cut of scheduler", cluster.goes_on())
    scheduler = cluster.process(SCHEDULER, "dask_scheduler")
    scheduler.send_signal(signal.SIGSTOP)
    time.sleep(40)
    scheduler.send_signal(signal.SIGCONT)
    say("goes on after stop of scheduler", cluster.goes_on())
    cluster.works(*WORKERS)
    expected = PatternSearchMDS(n_jobs=1, **SOLVE).fit(str(cluster.place / "matrix.zarr"))
    say(expected.n_epochs_, cluster.epoch())
    assert np.array_equal(cluster.result(fit), expected.embedding_)
    assert cluster.epoch() == expected.n_epochs_
