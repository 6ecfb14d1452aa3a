"""Private scheduler and two workers of a study, restarted after each event."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import psutil

from psmds_dist.deploy.settings import worker_environment
from tests.chaos import processes

LOOPBACK = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
WORKER_TTL = "10s"


class Cluster:
    """A cluster that starts on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = ""
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._nannies: list[subprocess.Popen[bytes]] = []

    @property
    def file(self) -> Path:
        """The scheduler file."""
        return self._folder / "scheduler.json"

    def ready(self) -> None:
        """Start the scheduler and its nannies if they are not running."""
        everyone = [self._scheduler, *self._nannies]
        if self._scheduler is None or any(process is None or process.poll() is not None for process in everyone):
            self.close()
            self._start()

    def _start(self) -> None:
        self._mark = processes.new_mark()
        more = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": WORKER_TTL, **worker_environment()}
        common = ["--scheduler-file", str(self.file), *LOOPBACK]
        log = self._folder / "cluster"
        self._scheduler = processes.start(
            "distributed.cli.dask_scheduler", [*common, "--port", "0"], self._mark, log, **more
        )
        end = time.monotonic() + 60
        while not self.file.exists() and time.monotonic() < end:
            time.sleep(0.05)
        options = ["--nthreads", "1", "--memory-limit", "0", "--local-directory", str(self._folder)]
        self._nannies = [
            processes.start("distributed.cli.dask_worker", [*common, *options, "--name", name], self._mark, log, **more)
            for name in ("one", "two")
        ]
        while len(self.workers()) < 2 and time.monotonic() < end:
            time.sleep(0.05)

    def workers(self) -> list[psutil.Process]:
        """Worker processes, the children of nannies."""
        return [worker for nanny in self._nannies for worker in processes.workers_of(nanny.pid)]

    def rouse(self) -> None:
        """Kill workers that are still stopped; their nannies start new ones."""
        for worker in self.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                if worker.status() == psutil.STATUS_STOPPED:
                    worker.kill()

    def kill_scheduler(self) -> None:
        """Kill the scheduler with SIGKILL."""
        if self._scheduler is not None:
            self._scheduler.kill()

    def close(self) -> None:
        """End all processes."""
        for process in [*self._nannies, self._scheduler]:
            if process is not None and process.poll() is None:
                process.terminate()
        if self._mark:
            processes.gone(self._mark, patience=5)
        for process in [*self._nannies, self._scheduler]:
            if process is not None:
                process.wait()
        self._scheduler, self._nannies, self._mark = None, [], ""
        self.file.unlink(missing_ok=True)
