"""Processes of a study, identified by a mark in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "PSMDS_CHAOS"
ROOT = Path(__file__).parents[2]


def environment(mark: str, **more: str) -> dict[str, str]:
    """Environment of a marked process and its children."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, MARK: mark, **more}


def new_mark() -> str:
    """A unique mark."""
    return uuid.uuid4().hex


def start(module: str, arguments: list[str], mark: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` in its own process group, with its output in files."""
    with log.with_suffix(".out").open("ab") as out, log.with_suffix(".err").open("ab") as err:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=out,
            stderr=err,
            env=environment(mark, **more),
            start_new_session=True,
        )


def marked(mark: str) -> list[psutil.Process]:
    """Running processes with a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def workers_of(pid: int) -> list[psutil.Process]:
    """Worker processes that are children of a command or a nanny."""
    try:
        return [child for child in psutil.Process(pid).children(recursive=True) if _is_worker(child)]
    except psutil.Error:
        return []


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def gone(mark: str, patience: float) -> tuple[float, list[str]]:
    """Wait until no process has a mark; return the seconds, and the processes that had to be killed.

    Stopped processes are continued: only then can they notice that their command has ended.
    """
    began = time.monotonic()
    for process in marked(mark):
        with suppress(psutil.Error):
            process.resume()
    while (left := marked(mark)) and time.monotonic() - began < patience:
        time.sleep(0.05)
    names = []
    for process in left:
        try:
            names.append(" ".join(process.cmdline())[:80])
            process.kill()
        except psutil.Error:
            continue
    return time.monotonic() - began, names
