"""The status of a run or store, from files alone: from any machine that sees them, while it runs and afterwards."""

from __future__ import annotations

import enum
import math
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from psmds_dist.api.report import describe_seconds, fact_lines
from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.layout import format_bytes
from psmds_dist.core.types import StopReason
from psmds_dist.solver.checkpoint import describe_run
from psmds_dist.solver.progress import FILE, HEARTBEAT, Progress, read_progress
from psmds_dist.utils.lease import has_ended, owner_of
from psmds_dist.utils.remote import absolute
from psmds_dist.utils.remote_paths import AnyPath, RemotePath, path_of
from psmds_dist.utils.text import escaped

SILENCE = 60.0
"""Seconds without a sign of life after which a run may have been killed: two of the longest intervals between them."""

GONE = HEARTBEAT + 5
"""The same where its process is not on this machine any more, on which it ran, and has left no lock file there."""

BLOCKS = 20
"""The same for a store, in times that a block took on average."""

Facts = dict[str, Any]


class RunState(enum.StrEnum):
    """What a run or a store is doing.

    Attributes
    ----------
    exit_code : int
        Exit code of ``psmds status``.
    """

    exit_code: int

    def __new__(cls, value: str, exit_code: int) -> RunState:
        """Make a member of its value and exit code."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.exit_code = exit_code
        return member

    FINISHED = "finished", 0
    RUNNING = "running", 3
    WAITING = "waiting", 75
    SILENT = "silent", 75
    FAILED = "failed", 1
    ABSENT = "absent", 1


LOG_TAIL = 1000
"""Bytes of a log that may be told."""


@dataclass(frozen=True)
class RunStatus:
    """Status of a run or store.

    Attributes
    ----------
    target : str
        Absolute path of the map, store or checkpoint.
    state : RunState
        What it is doing.
    summary : str
        The same as a sentence, with what to do.
    heard : float or None
        Seconds since the last sign of life, where the run has not finished.
    facts : dict
        Progress of the run (see `psmds_dist.solver.progress.Progress`), attributes of the map, or blocks of the store.
    """

    target: str
    state: RunState
    summary: str
    heard: float | None = None
    facts: Facts = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come: a batch job that was interrupted may be started again."""
        return self.state in (RunState.FINISHED, RunState.FAILED) or (
            self.state is RunState.WAITING and not self.facts.get("job")
        )

    def as_dict(self) -> Facts:
        """All of it as JSON values."""
        return {**asdict(self), "state": str(self.state)}

    def describe(self) -> str:
        """One screen of text."""
        facts = self.facts
        shown = _of_progress(facts) if "session_started" in facts else _of_map(facts) if "seed" in facts else facts
        heard = {} if self.heard is None else {"last heard of": f"{describe_seconds(self.heard)} ago"}
        return "\n".join([f"{self.target}: {self.summary}", *fact_lines({**shown, **heard})])

    def line(self) -> str:
        """One line of text: how far it is."""
        facts = self.facts
        if self.state is not RunState.RUNNING:
            return self.summary
        parts = [facts.get("stage", "writing"), _parts(facts), _epoch(facts), _stress(facts), _time_left(facts)]
        return "   ".join(filter(None, parts))


def read_status(target: str | os.PathLike[str]) -> RunStatus:
    """Status of the run that writes a map, of a store, or of the run whose checkpoint directory is given.

    Parameters
    ----------
    target : path or URL
        The map or store, there or to come, or the directory of a checkpoint.
    """
    place = absolute(target)
    folder = place if _is_checkpoint(place) else f"{place}.checkpoint"
    try:
        progress = read_progress(folder)
    except DamagedDataError as error:
        return _of_states(place, folder, f"{error} ") or _of_target(place, str(error))
    if progress is not None:
        return _of_run(place, path_of(folder), progress)
    return _of_states(place, folder) or _of_target(place)


def _is_checkpoint(place: str) -> bool:
    return (path_of(place) / FILE).exists() or bool(describe_run(place))


def _of_run(place: str, folder: AnyPath, progress: Progress) -> RunStatus:
    heard = _age(folder / FILE, progress.updated)
    ended = _running if progress.state == "running" else _ended
    state, summary = ended(place, progress, heard)
    if state is RunState.FINISHED:
        return _of_target(place)
    return RunStatus(place, state, summary, heard, asdict(progress))


def _age(path: AnyPath, updated: float) -> float:
    """Seconds since a file was written, by whichever clock tells less: those of two machines may differ."""
    with suppress(OSError):
        updated = max(updated, path.modified() if isinstance(path, RemotePath) else path.stat().st_mtime)
    return max(0.0, time.time() - updated)


def _running(place: str, progress: Progress, heard: float) -> tuple[RunState, str]:
    where = f"on {progress.host} (process {progress.pid}{f', {progress.job}' if progress.job else ''})"
    if _was_killed(place, progress, heard):
        return RunState.WAITING, f"process {progress.pid} on {progress.host} was killed; {_to_continue(progress)}"
    if heard > SILENCE:
        ago = describe_seconds(heard)
        return (
            RunState.SILENT,
            f"last heard of {ago} ago, {where}: the job may have been killed, or its machine or network be down; "
            f"once it is known to have ended, {_to_continue(progress)}",
        )
    return RunState.RUNNING, f"running {where}"


def _was_killed(place: str, progress: Progress, heard: float) -> bool:
    """Whether a run was on this machine, and its process is not there any more.

    At once where a lock file is left on this system, for a process that ends removes it; otherwise after a while, since
    hosts may have one name.
    """
    if progress.host != socket.gethostname() or not has_ended(progress.pid, progress.session_started):
        return False
    return heard > GONE or _is_left(place) or _is_left(f"{place}.checkpoint")


def _is_left(place: str) -> bool:
    """Whether a process of this system that was killed has left a path locked."""
    owner = owner_of(place)
    return owner is not None and owner.has_ended()


def _to_continue(progress: Progress) -> str:
    """How to continue a run."""
    if not progress.command.startswith("psmds "):
        return "run it again with resume=True to continue"
    resume = "" if " --resume" in progress.command else " --resume"
    return f"continue with: cd {progress.directory} && {progress.command}{resume}"


def _ended(place: str, progress: Progress, heard: float) -> tuple[RunState, str]:
    if progress.reason == "error":
        return RunState.FAILED, f"ended with an error: {progress.message} Then {_to_continue(progress)}"
    reason = next((reason for reason in StopReason if reason == progress.reason), None)
    if reason is not None and reason.resumable:
        return RunState.WAITING, f"{reason.description}; {_to_continue(progress)}"
    if _facts(place).get("kind") == "result":
        return RunState.FINISHED, ""
    if heard < SILENCE:
        return RunState.RUNNING, f"saving the map, on {progress.host}"
    return RunState.WAITING, f"computed, but the map was not saved; {_to_continue(progress)}"


def _of_states(place: str, folder: str, note: str = "") -> RunStatus | None:
    """Status of a run of which only the states are known; None where there are none."""
    facts = describe_run(folder)
    if not facts:
        return None
    heard = min(_age(path, 0.0) for path in path_of(folder).glob("*.npz"))
    state = RunState.RUNNING if heard < SILENCE else RunState.WAITING
    advice = "" if state is RunState.RUNNING else "; continue with its command and --resume"
    summary = f"{note}A checkpoint was saved {describe_seconds(heard)} ago{advice}"
    return RunStatus(place, state, summary, heard, {"newest states": facts["newest states"]})


def _of_target(place: str, note: str = "") -> RunStatus:
    """Status of what is at the target itself."""
    facts = _facts(place)
    if facts.get("kind") == "result":
        return _of_result(place, facts)
    if facts.get("status") == "building":
        return _of_unfinished(place)
    if facts:
        return RunStatus(place, RunState.FINISHED, f"finished {facts['kind']}", facts=_of_store(facts))
    absent = f"nothing of psmds is there: no map, no store, and no checkpoint of a run{_job_hint(place)}"
    return RunStatus(place, RunState.FAILED if note else RunState.ABSENT, note or absent)


def _job_hint(place: str) -> str:
    """Where a job of `psmds submit` that has begun tells what became of it, and the last that it told."""
    log = f"{place}.log"
    try:
        with open(log, "rb") as file:
            file.seek(-min(LOG_TAIL, os.path.getsize(log)), os.SEEK_END)
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    last = next((f", which ends with: {escaped(line)}" for line in reversed(lines) if line.strip()), " (empty)")
    return f"; the log of its job is {log}{last}"


def _facts(place: str) -> Facts:
    from psmds_dist.data.store import facts_at  # late: needs Zarr

    return facts_at(place)


def _of_result(place: str, facts: Facts) -> RunStatus:
    reason = next((reason for reason in StopReason if reason == facts.get("stop_reason")), None)
    known = {name: facts[name] for name in MAP if name in facts}
    if reason is not None and reason.resumable:
        summary = f"{reason.description}; its checkpoint is gone: run its command again, with --overwrite"
        return RunStatus(place, RunState.WAITING, summary, facts=known)
    return RunStatus(place, RunState.FINISHED, f"finished{f', {reason.description}' if reason else ''}", facts=known)


MAP = ("n", "n_components", "n_epochs", "radius", "normalized_stress", "seconds", "seed", "stop_reason")
"""Attributes of a map that tell how its run ended."""


def _of_store(facts: Facts) -> Facts:
    return {"points": facts.get("n"), "dtype": facts.get("dtype")}


def _of_unfinished(place: str) -> RunStatus:
    from psmds_dist.data.store import unfinished_at  # late: needs Zarr

    found = unfinished_at(place)
    if found is None:  # finished in this moment
        return _of_target(place)
    each = (found.last - found.first) / max(1, found.blocks - 1)
    heard = max(0.0, time.time() - found.last)
    left = (found.total - found.blocks) * each if found.blocks > 1 else None
    facts = {"done": found.blocks, "total": found.total, "seconds_left": left, "at_least": False}
    if heard < max(SILENCE, BLOCKS * each) and not _is_left(place):
        return RunStatus(place, RunState.RUNNING, "being written", heard, facts)
    summary = "unfinished, and not being written; rerun the same command to continue"
    return RunStatus(place, RunState.WAITING, summary, heard, facts)


def _of_progress(facts: Mapping[str, Any]) -> Facts:
    """Progress of a run, for people; what is unknown is left out."""
    texts = {
        "stage": "   ".join(filter(None, [facts["stage"], _parts(facts)])),
        "epoch": _epoch(facts).removeprefix("epoch "),
        "stress": _stress(facts).removeprefix("stress "),
        "time": f"{describe_seconds(facts['seconds'])} so far{_after_comma(_time_left(facts))}",
        "restarts": _restarts(facts),
        "workers": _workers(facts),
        "read": format_bytes(facts["bytes_read"]) if facts["bytes_read"] else "",
        "dashboard": _dashboard(facts) if facts["state"] == "running" else "",
        "command": facts["command"],
    }
    return {name: text for name, text in texts.items() if text}


def _after_comma(text: str) -> str:
    return f", {text}" if text else ""


def _parts(facts: Mapping[str, Any]) -> str:
    return "" if facts.get("total") is None else f"{facts['done']:,} of {facts['total']:,} done"


def _epoch(facts: Mapping[str, Any]) -> str:
    if facts.get("epoch") is None:
        return ""
    radius = f"radius {facts['radius']:.3g} (ends at {facts['end_radius']:.3g})"
    return f"epoch {facts['epoch']:,}, {radius}, {facts['moved']:.0%} of the points moved"


def _stress(facts: Mapping[str, Any]) -> str:
    return "" if facts.get("stress") is None else f"stress {facts['stress']:.5f}"


def _time_left(facts: Mapping[str, Any]) -> str:
    left = facts.get("seconds_left")
    if left is None:
        return ""
    return f"{'at least' if facts['at_least'] else 'about'} {describe_seconds(left)} left"


def _restarts(facts: Mapping[str, Any]) -> str:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts["started"]))
    return f"{facts['restarts']}, first started {since}" if facts["restarts"] else ""


def _workers(facts: Mapping[str, Any]) -> str:
    if facts["workers"] is None:
        return ""
    return f"{facts['workers']}{_after_comma(f'''{facts['workers_lost']} lost''' if facts['workers_lost'] else '')}"


def _dashboard(facts: Mapping[str, Any]) -> str:
    """Address of the dashboard, and how to reach one that listens on the loopback of another machine."""
    link = facts["dashboard"]
    try:
        host, port = urlsplit(link).hostname, urlsplit(link).port
    except ValueError:
        return ""
    if not link or port is None:
        return ""
    machine = facts["host"] if host in ("127.0.0.1", "localhost", "::1") else host
    if machine == socket.gethostname():
        return str(link)
    return f"ssh -N -L 8787:127.0.0.1:{port} {machine}, then http://127.0.0.1:8787/status"


def _of_map(facts: Mapping[str, Any]) -> Facts:
    """Attributes of a map, for people."""
    stress = facts.get("normalized_stress")
    known = stress is not None and math.isfinite(stress)
    seconds = facts.get("seconds")
    texts = {
        "points": f"{facts['n']:,}" if "n" in facts else "",
        "epochs": f"{facts['n_epochs']:,}" if "n_epochs" in facts else "",
        "stress": f"{stress:.6f}" if known else "unknown",
        "time": describe_seconds(seconds) if isinstance(seconds, int | float) else "",
    }
    return {name: text for name, text in texts.items() if text}
