"""Disturbed runs, each repeated until it succeeds and compared with an undisturbed one."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psmds_dist.cli.exits import INTERRUPTED, TRY_AGAIN
from tests.chaos import processes
from tests.chaos.cluster import Cluster
from tests.chaos.command import FILE_SIZE, OUTPUT
from tests.chaos.disk import Folder
from tests.chaos.events import Watch, unfold
from tests.chaos.kinds import Kind, states
from tests.chaos.plans import SMALL_DISK, SMALL_FILES, Attempt, Plan

PATIENCE = 150.0
"""Seconds after which an attempt counts as hanging."""

DEADLINE = "5"
"""Seconds that a worker may hang."""

ORPHANS = 20.0
"""Seconds that child processes may outlive a command."""

MOST = 4
"""Attempts to succeed after the last event."""


@dataclass
class Record:
    """Outcome of a run."""

    plan: Plan
    attempts: int = 0
    events: list[str] = field(default_factory=list)
    resumed: bool = False
    identical: bool = False
    faults: list[str] = field(default_factory=list)
    orphans: float = 0.0
    """Longest time that a child process outlived its command, in seconds."""

    seconds: float = 0.0


@dataclass
class Undisturbed:
    """Seconds and outcome of an undisturbed run."""

    seconds: float = 1.0
    outcome: dict[str, Any] = field(default_factory=dict)


class Study:
    """Runner of disturbed runs, one after the other.

    Parameters
    ----------
    folder : Path
        An empty directory.
    data : Path
        Directory written by `prepare`.
    known : dict
        Undisturbed runs by the names of their kinds.
    """

    def __init__(self, folder: Path, data: Path, known: dict[str, Undisturbed]) -> None:
        folder.mkdir()
        self._folder, self._data, self._known = folder, data, known
        self._cluster = Cluster(folder)

    def close(self) -> None:
        """Stop the cluster."""
        self._cluster.close()

    def learn(self, kind: Kind) -> None:
        """Run a kind without events."""
        self._known[kind.name] = Undisturbed()
        record = Record(Plan(-1, kind, (), Attempt("in process")))
        folder = Folder(self._folder / "undisturbed", None)
        target = folder.path / "target.zarr"
        began = time.monotonic()
        if self._attempt(record, record.plan.last, target, resume=False):
            raise RuntimeError(f"an undisturbed run failed: {record.faults}")
        self._known[kind.name] = Undisturbed(time.monotonic() - began, kind.outcome(target))
        folder.close()

    def run(self, plan: Plan) -> Record:
        """Run a plan; if the run ended before its events, repeat it with earlier ones."""
        for _ in range(4):
            record = self._run(plan)
            if record.events:
                break
            plan = plan.sooner()
        return record

    def _run(self, plan: Plan) -> Record:
        record = Record(plan)
        for log in self._folder.glob(f"log-{plan.number}-*"):
            log.unlink()
        began = time.monotonic()
        room = next((attempt.room for attempt in plan.attempts if attempt.scarcity == SMALL_DISK), None)
        with closing(Folder(self._folder / f"run-{plan.number}", room)) as folder:
            self._repeat(record, folder)
        record.seconds = time.monotonic() - began
        return record

    def _repeat(self, record: Record, folder: Folder) -> None:
        """Start the command until it succeeds."""
        target = folder.path / "target.zarr"
        for attempt in [*record.plan.attempts, *[record.plan.last] * MOST]:
            code = self._attempt(record, attempt, target, resume=record.attempts > 0)
            if code == 0 or "already holds a result" in self._said(record):  # killed after the work was done
                self._compare(record, target)
                return
            folder.enlarge()
        record.faults.append(f"did not end well in {record.attempts} attempts")

    def _attempt(self, record: Record, attempt: Attempt, target: Path, *, resume: bool) -> int:
        kept = record.plan.kind.kept(target)
        if attempt.damage and damaged(kept, attempt.damage):
            record.events.append(f"newest state {attempt.damage}")
        had_states = bool(states(kept))
        record.attempts += 1
        mark = processes.new_mark()
        command = self._start(record, attempt, target, mark, resume=resume)
        code = self._let_happen(record, attempt, target, command)
        self._count_orphans(record, mark)
        record.resumed |= had_states and "starting a new run" not in self._said(record, ".out")
        if attempt.scarcity and code:
            record.events.append(attempt.scarcity)
        self._judge(record, attempt, code, kept)
        return code

    def _start(
        self, record: Record, attempt: Attempt, target: Path, mark: str, *, resume: bool
    ) -> subprocess.Popen[bytes]:
        # a map that its disk has no room for goes to the temporary directory, which is this study's own
        more = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s", "TMPDIR": str(self._folder)}
        if attempt.scarcity == SMALL_FILES:
            more[FILE_SIZE] = str(attempt.room)
        if attempt.output:
            more[OUTPUT] = attempt.output
        arguments = record.plan.kind.arguments(self._data, target, resume) + self._where(attempt.place)
        return processes.start("tests.chaos.command", arguments, mark, self._log(record), **more)

    def _let_happen(self, record: Record, attempt: Attempt, target: Path, command: subprocess.Popen[bytes]) -> int:
        kind, end = record.plan.kind, time.monotonic() + PATIENCE
        watch = Watch(kind, target, self._known[kind.name].seconds)
        cluster = self._cluster if attempt.place == "scheduler file" else None
        happened = unfold(command, list(attempt.events), watch, cluster, end)
        record.events += [event.what for event in attempt.events[:happened]]
        try:
            return command.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            record.faults.append(f"hangs: {attempt.place}, {attempt.names}")
            command.kill()
            return command.wait()

    def _count_orphans(self, record: Record, mark: str) -> None:
        self._cluster.rouse()
        waited, left = processes.gone(mark, ORPHANS)
        record.orphans = max(record.orphans, waited)
        record.faults += [f"left behind: {name}" for name in left]

    def _log(self, record: Record) -> Path:
        return self._folder / f"log-{record.plan.number}-{record.attempts}"

    def _said(self, record: Record, stream: str = ".err") -> str:
        return self._log(record).with_suffix(stream).read_text(errors="replace")

    def _where(self, place: str) -> list[str]:
        if place == "two workers":
            return ["--workers", "2", "--deadline", DEADLINE]
        if place == "scheduler file":
            self._cluster.ready()
            return ["--cluster", str(self._cluster.file), "--deadline", DEADLINE]
        return []

    def _judge(self, record: Record, attempt: Attempt, code: int, kept: Path) -> None:
        """Record an exit that must not happen."""
        names, said = attempt.names, self._said(record)
        usual = {0}
        if "SIGKILL of the command" in names:
            usual.add(-9)
        if "SIGTERM" in names or "SIGINT" in names:
            usual |= {INTERRUPTED, -15, -2}
        if attempt.scarcity:
            usual.add(1)
        if "SIGKILL of the scheduler" in names:
            usual.add(TRY_AGAIN)
            if "no Dask scheduler answers" in said:
                usual.add(1)  # killed before any connection
        if "already holds a result" in said and not kept.exists():
            usual.add(1)
        if any("worker" in name or "SIGSTOP" in name for name in names) and "did not start" in said:
            usual.add(1)  # killed before the cluster was found: one sentence, and the command is rerun
        stopped = names.count("SIGSTOP for good")
        if stopped and stopped + names.count("SIGKILL of a worker") > 1 and "has answered in" in said:
            usual.add(TRY_AGAIN)  # neither of the two workers is left, or one is just restarting
        if code not in usual:
            record.faults.append(f"exit code {code} after {names or 'nothing'}: {said[-600:]}")
        elif "Traceback" in said and "psmds_dist/cli/" in said:
            record.faults.append(f"traceback after {names}: {said[-1500:]}")

    def _compare(self, record: Record, target: Path) -> None:
        found, wanted = record.plan.kind.outcome(target), self._known[record.plan.kind.name].outcome
        different = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        record.identical = not different
        if different:
            record.faults.append(f"differs in {', '.join(different[:8])}")
        left = sorted(path.name for path in target.parent.iterdir() if path != target)
        left += [str(path.relative_to(target)) for path in target.rglob("*.partial")]
        if left:
            record.faults.append(f"files left: {', '.join(left[:5])}")


def damaged(folder: Path, how: str) -> bool:
    """Damage the latest state of a run, if there is one."""
    kept = [path for path in states(folder) if path.stat().st_size]
    if not kept:
        return False
    newest = max(kept, key=lambda path: path.stat().st_mtime_ns)
    whole = newest.read_bytes()
    middle = len(whole) // 2
    newest.write_bytes(
        {
            "a byte flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "truncated": whole[:middle],
            "emptied": b"",
        }[how]
    )
    return True
