"""Helpers for tests of Dask clusters."""

import gc
import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psmds_dist.core.events import EpochEvent
from psmds_dist.core.sources import RowSource
from psmds_dist.data.cache import clear_row_cache

STOPPING = [sys.executable, Path(__file__).with_name("stopping.py")]
"""The command psmds, stopped at a moment until a file is gone."""


def wait_for(condition, seconds=60.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


def with_workers(client, count):
    """Scale a local cluster, and wait until all workers have started."""
    client.cluster.scale(count)
    wait_for(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == count)
    return client


def without_runs(client):
    """Remove what executors that were not closed have left on a cluster."""
    gc.collect()  # tasks go with their futures
    for name in [name for name in client.cluster.scheduler.worker_plugins if "psmds" in name]:
        client.unregister_worker_plugin(name)
    client.run(clear_row_cache)
    return client


def all_blocks(parts):
    """List the blocks of all groups of a call."""
    return sorted(block for part, _ in parts for block in part)


@contextmanager
def ended(process):
    """Kill the process if the test fails."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@contextmanager
def telling(place, quiet):
    """Callback that creates a file after the third epoch."""
    yield lambda event: isinstance(event, EpochEvent) and event.epoch == 3 and place.touch()


@dataclass(frozen=True)
class Plagued(RowSource):
    """Rows of a float32 source that kill whoever reads them while a file is there."""

    rows: object
    place: str

    content_id = "plagued"

    @property
    def shape(self):
        return self.rows.shape

    def read(self, lo, hi, out):
        if os.path.exists(self.place):
            os.kill(os.getpid(), signal.SIGKILL)
        self.rows.read(lo, hi, out)
