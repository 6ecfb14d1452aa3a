"""Watch a run, and trigger events at their moments."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from psmds_dist.core.layout import Layout
from tests.chaos import processes
from tests.chaos.cluster import Cluster
from tests.chaos.kinds import LARGE, Kind, states
from tests.chaos.plans import TO_SCHEDULER, TO_WORKERS, Event, Moment

PAUSE = 1e-3
"""Seconds between two observations: writing a state takes longer."""

STOPPED = 1.5
"""Seconds that a worker is stopped."""


class Watch:
    """Observer of the files of a run."""

    def __init__(self, kind: Kind, target: Path, usual: float) -> None:
        self._kind, self._target, self._usual = kind, target, usual
        self._folder = kind.kept(target)
        self._before = set(_names(self._folder))
        self._seen: set[str] = set()
        self._began = time.monotonic()

    def reached(self, moment: Moment) -> bool:
        """Whether a moment has been reached."""
        if moment.what == "time":
            return time.monotonic() - self._began >= moment.size * self._usual
        if moment.what == "kept":
            self._seen |= {path.name for path in states(self._folder)} - self._before
            return len(self._seen) >= moment.size
        if moment.what == "keeping":
            return any(name.endswith(".partial") or ".new-" in name for name in _names(self._folder))
        return self._ending()

    def _ending(self) -> bool:
        if self._kind.is_store:
            return len(states(self._folder)) == Layout(LARGE).count
        return any(name.startswith(f".{self._target.name}.new-") for name in _names(self._target.parent))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def unfold(
    command: subprocess.Popen[bytes], events: list[Event], watch: Watch, cluster: Cluster | None, end: float
) -> int:
    """Trigger the events, each at its moment, until the command ends or the time is ``end``.

    Workers are those of the cluster, or of the command if there is none.

    Returns
    -------
    int
        Number of events that were triggered while the command was running.
    """
    happened = 0
    for event in events:
        while not (watch.reached(event.moment) and _has_victim(event, command, cluster)):
            if command.poll() is not None or time.monotonic() > end:
                return happened
            time.sleep(PAUSE)
        if command.poll() is not None:
            return happened
        happened += _happen(event, command, cluster)
    return happened


def _happen(event: Event, command: subprocess.Popen[bytes], cluster: Cluster | None) -> bool:
    signals = {"SIGKILL of the command": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
    if event.what in signals:
        command.send_signal(signals[event.what])
        return True
    if event.what == TO_SCHEDULER and cluster is not None:
        cluster.kill_scheduler()
        return True
    workers = _workers(command, cluster)
    return bool(workers) and _to_worker(event.what, workers[event.victim % len(workers)])


def _has_victim(event: Event, command: subprocess.Popen[bytes], cluster: Cluster | None) -> bool:
    """Whether the target of the event exists: workers take a while to start."""
    return event.what not in TO_WORKERS or bool(_workers(command, cluster))


def _workers(command: subprocess.Popen[bytes], cluster: Cluster | None) -> list[psutil.Process]:
    return processes.workers_of(command.pid) if cluster is None else cluster.workers()


def _to_worker(what: str, worker: psutil.Process) -> bool:
    try:
        if what.startswith("SIGSTOP"):
            worker.suspend()
        if what.startswith("SIGSTOP and"):
            time.sleep(STOPPED)
        if what.endswith("SIGCONT"):
            worker.resume()
        if "SIGKILL" in what:
            worker.kill()
    except psutil.NoSuchProcess:
        return False
    return True
