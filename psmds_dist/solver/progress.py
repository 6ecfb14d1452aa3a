"""Where a run stands, in a small file beside its checkpoint that anybody can read while it runs.

A thread writes it: at the start and the end, at most once a second as the run goes on, and from time to time while
nothing happens, so that a reader knows when the run was last alive. The run itself never waits for the file system.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Protocol

from psmds_dist.core.errors import AlreadyComplete, DamagedDataError, InputError, StorageError
from psmds_dist.core.events import EpochEvent, Event, StageEvent
from psmds_dist.core.executor import ClusterState
from psmds_dist.core.types import StopReason
from psmds_dist.utils.atomic import replace_unsynced
from psmds_dist.utils.locks import is_lost
from psmds_dist.utils.remote_paths import AnyPath, path_of

FILE = "progress.json"
"""Name of the file in the directory of a checkpoint."""

KIND = "psmds-dist progress"
"""First value in the file, by which it is recognized."""

UNFINISHED = re.compile(rf"\.[0-9a-f]{{12}}-{re.escape(FILE)}")
"""Name of a file that is being written, or was when a process was killed."""

INTERVAL = 1.0
"""Least seconds between two writes."""

HEARTBEAT = 10.0
"""Seconds after which the file is written although nothing happened."""

OVERHEAD = 0.01
"""Largest share of the time that may go into writing."""

LONGEST = 30.0
"""Most seconds between two writes."""

PATIENCE = 5.0
"""Seconds that the end of a run waits for a file system that hangs."""

MOST_BYTES = 2**16
"""Largest file that is read."""

JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF", "JOB_ID": "Grid Engine"}
"""Environment variables in which batch systems tell the number of a job."""

DECAY = 0.75
"""Factor per halving by which the epochs beyond one decrease: between those of fast and slow runs."""

INITIAL_EPOCHS = 5.0
"""Epochs assumed for the first halving."""


@dataclass
class TimeLeft:
    """Estimator of the remaining time, from the number of epochs per halving of the radius.

    Large radii take many epochs; later the radius halves in almost every epoch. The estimate therefore starts from the
    recent number of epochs per halving, of which the part beyond one decays.
    """

    _radius: float = math.inf
    _needed: float = INITIAL_EPOCHS
    _since: int = 0

    def update(self, event: EpochEvent) -> float:
        """Seconds left after an epoch."""
        self._since += 1
        if event.radius < self._radius:
            if math.isfinite(self._radius):
                self._needed = (self._needed + self._since) / 2
            self._radius, self._since = event.radius, 0
        halvings = max(1.0, math.ceil(math.log2(max(event.radius / event.end_radius, 1.0))))
        decaying: float = (1 - DECAY**halvings) / (1 - DECAY)
        needed = max(self._needed, (self._needed + self._since) / 2)
        epochs = halvings + max(0.0, needed - 1) * decaying
        return epochs * event.seconds / event.epoch


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes
    ----------
    command, directory : str
        Command line of the process, and the directory that it was started in.
    host, pid : str, int
        Where it runs.
    started, session_started, updated : float
        Seconds since 1970: when the run was started first, when this process started, and when it was last alive.
    job : str
        Batch system and number of the job; empty outside of one.
    restarts : int
        How often the run was resumed.
    state : {"running", "ended"}
        Whether the process works.
    reason : str
        Why it ended: a `psmds_dist.core.types.StopReason`, or ``"error"``.
    message : str
        The error.
    stage, done, total : str, int or None
        Stage, see `psmds_dist.core.events.StageEvent`, and its parts.
    epoch, radius, end_radius, stress, moved : number or None
        As in the last `psmds_dist.core.events.EpochEvent`.
    seconds : float
        Time since this process started.
    seconds_left : float or None
        Estimate of the time left; None where it is unknown.
    at_least : bool
        Whether stages follow that the estimate does not include.
    workers, workers_lost, bytes_read : int or None
        As in `psmds_dist.core.executor.ClusterState`.
    dashboard : str
        Address of Dask's dashboard; empty without one.
    """

    command: str = ""
    directory: str = ""
    host: str = ""
    pid: int = 0
    started: float = 0.0
    session_started: float = 0.0
    updated: float = 0.0
    job: str = ""
    restarts: int = 0
    state: str = "running"
    reason: str = ""
    message: str = ""
    stage: str = "start"
    done: int | None = None
    total: int | None = None
    epoch: int | None = None
    radius: float | None = None
    end_radius: float | None = None
    stress: float | None = None
    moved: float | None = None
    seconds: float = 0.0
    seconds_left: float | None = None
    at_least: bool = True
    workers: int | None = None
    workers_lost: int | None = None
    bytes_read: int | None = None
    dashboard: str = ""

    @classmethod
    def of_this_process(cls) -> Progress:
        """Progress of a run that begins."""
        now = time.time()
        return cls(
            command=shlex.join([_program(), *sys.argv[1:]]),
            directory=os.path.abspath(os.curdir),
            host=socket.gethostname(),
            pid=os.getpid(),
            started=now,
            session_started=now,
            updated=now,
            job=next((f"{name} {os.environ[key]}" for key, name in JOBS.items() if os.environ.get(key)), ""),
        )

    def continuing(self, earlier: Progress | None) -> Progress:
        """The same for a run that is resumed, of which an earlier process may have left its progress."""
        if earlier is None:
            return replace(self, restarts=1)
        known = {name: getattr(earlier, name) for name in ("epoch", "radius", "end_radius", "stress", "moved")}
        return replace(self, started=earlier.started, restarts=earlier.restarts + 1, **known)

    def as_text(self) -> str:
        """JSON that `from_text` reads."""
        values = {name: None if _is_odd(value) else value for name, value in asdict(self).items()}
        return json.dumps({"kind": KIND, **values}, indent=1)

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Inverse of `as_text`; names that a newer version adds are left out.

        Raises
        ------
        ValueError
            When it is something else.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("kind") != KIND:
            raise ValueError("it holds something else")
        values = {item.name: found[item.name] for item in fields(cls) if item.name in found}
        for item in fields(cls):
            if not _fits(values.get(item.name, item.default), str(item.type)):
                raise ValueError(f"its {item.name} is {values[item.name]!r}")
        return cls(**values)


def _program() -> str:
    """Name of the program of this process."""
    name = os.path.basename(sys.argv[0])
    return "psmds" if sys.argv[0].endswith(os.path.join("psmds_dist", "__main__.py")) else name


_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


def _fits(value: object, kind: str) -> bool:
    """Whether a value is of the kind that an annotation names."""
    name, _, optional = kind.partition(" | ")
    if value is None:
        return bool(optional)
    return isinstance(value, _KINDS[name]) and (name == "bool" or not isinstance(value, bool)) and not _is_odd(value)


def _is_odd(value: object) -> bool:
    """Whether a value is a number that JSON does not know."""
    return isinstance(value, float) and not math.isfinite(value)


def read_progress(folder: str | os.PathLike[str]) -> Progress | None:
    """Progress of the run whose checkpoint is in a directory; None where there is none.

    Raises
    ------
    DamagedDataError
        When the file is not as it was written.
    """
    path = path_of(folder) / FILE
    try:
        with path.open("rb") as file:
            return Progress.from_text(file.read(MOST_BYTES).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StorageError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
        raise DamagedDataError(f"{path} cannot be read ({reason}).") from None


def remove_progress(folder: AnyPath) -> None:
    """Remove the progress of a run, and leftovers of killed processes; files of others stay."""
    leftovers = [path for path in folder.glob(f".*-{FILE}") if UNFINISHED.fullmatch(path.name)]
    for path in [folder / FILE, *leftovers]:
        if _is_ours(path):
            with suppress(OSError):
                path.unlink()


def _is_ours(path: AnyPath) -> bool:
    """Whether a file is missing, empty, or begins like the ones that this module writes."""
    try:
        with path.open("rb") as file:
            head = file.read(64).strip(b"\0")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return not head or KIND.encode() in head


class Checkpointed(Protocol):
    """What a recorder needs to know of a checkpoint."""

    @property
    def folder(self) -> AnyPath | None:
        """Directory of the checkpoint; None where nothing is saved."""

    @property
    def found(self) -> bool:
        """Whether there is a state to continue from."""

    @property
    def resumes(self) -> bool:
        """Whether the run continues from there."""


class NullRecorder:
    """Records nothing; for runs without a checkpoint."""

    def __call__(self, event: Event) -> None:
        """Ignore an event."""

    def end(self, reason: StopReason) -> None:
        """Ignore the end."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Do nothing for the length of a with block."""
        yield


NO_RECORDER = NullRecorder()


@dataclass
class _Pace:
    """Rate of the parts of a stage."""

    stage: str = ""
    began: float = 0.0
    first: int = 0

    def left(self, event: StageEvent) -> float | None:
        """Seconds left of a stage."""
        now = time.monotonic()
        if event.stage != self.stage:
            self.stage, self.began, self.first = event.stage, now, event.done
        if event.total is None or event.done <= self.first:
            return None
        return (event.total - event.done) * (now - self.began) / (event.done - self.first)


@dataclass
class _Estimator:
    """Time left of a run, from its events."""

    pace: _Pace = field(default_factory=_Pace)
    epochs: TimeLeft = field(default_factory=TimeLeft)

    def after(self, progress: Progress, event: Event) -> Progress:
        """Progress after an event."""
        if isinstance(event, EpochEvent):
            known = {name: getattr(event, name) for name in ("epoch", "radius", "end_radius", "stress", "moved")}
            return replace(progress, **known, seconds_left=self.epochs.update(event))
        if event.stage == "epochs":
            self.epochs = TimeLeft()
        left = None if event.stage == "epochs" else self.pace.left(event)
        parts = {"done": event.done, "total": event.total} if event.total is not None else {"done": None, "total": None}
        return replace(progress, stage=event.stage, seconds_left=left, at_least=not event.last, **parts)


class Recorder(NullRecorder):
    """Records the progress of a run in the directory of its checkpoint.

    Parameters
    ----------
    checkpoint : Checkpointed
        The checkpoint.
    cluster : callable
        Returns the state of the workers.
    """

    def __init__(self, checkpoint: Checkpointed, cluster: Callable[[], ClusterState | None]) -> None:
        assert checkpoint.folder is not None
        self._checkpoint = checkpoint
        self._path = checkpoint.folder / FILE
        self._cluster = cluster
        self._estimator = _Estimator()
        self._progress = Progress()
        self._earlier = ""
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._finish = self._write

    def __call__(self, event: Event) -> None:
        """Take an event in; the file follows within a second."""
        self._progress = self._estimator.after(self._progress, event)
        self._changed.set()

    def end(self, reason: StopReason) -> None:
        """Take in why the run ended."""
        self._progress = replace(self._progress, state="ended", reason=str(reason), seconds_left=None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Write the file for the length of a with block, at whose end it says how the run ended.

        Nothing is left of a run that ended with an error and saved no state; one that was refused leaves the file of
        the unfinished run that it found.
        """
        if not _is_ours(self._path):
            yield
            return
        self._begin()
        writer = threading.Thread(target=self._keep_writing, name="psmds-progress", daemon=True)
        writer.start()
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._ended.set()
            self._changed.set()
            writer.join(PATIENCE)

    def _begin(self) -> None:
        self._progress = Progress.of_this_process()
        if not self._checkpoint.resumes:
            return
        earlier = None
        with suppress(DamagedDataError):
            earlier = read_progress(self._path.parent)
        self._earlier = "" if earlier is None else earlier.as_text()
        self._progress = self._progress.continuing(earlier)

    def _fail(self, error: BaseException) -> None:
        if self._earlier and isinstance(error, InputError | AlreadyComplete):
            self._finish = self._restore
        elif not self._checkpoint.found:
            self._finish = self._discard
        elif isinstance(error, KeyboardInterrupt):
            self.end(StopReason.INTERRUPTED)
        else:
            text = str(error) or type(error).__name__
            self._progress = replace(self._progress, state="ended", reason="error", message=text, seconds_left=None)

    def _keep_writing(self) -> None:
        while not self._ended.wait(self._timed_write()):
            self._changed.wait(HEARTBEAT)
            self._changed.clear()
        self._finish()

    def _timed_write(self) -> float:
        """Write, and return the seconds until the next time."""
        began = time.monotonic()
        self._write()
        return min(LONGEST, max(INTERVAL, (time.monotonic() - began) / OVERHEAD))

    def _write(self) -> None:
        now, cluster = time.time(), self._cluster()
        progress = replace(self._progress, updated=now, seconds=now - self._progress.session_started)
        self._replace_by(progress.as_text() if cluster is None else _with(progress, cluster).as_text())

    def _restore(self) -> None:
        self._replace_by(self._earlier)

    def _discard(self) -> None:
        if not is_lost(self._path):
            remove_progress(self._path.parent)
            with suppress(OSError):
                self._path.parent.rmdir()

    def _replace_by(self, text: str) -> None:
        """Replace the file; not synced, for it matters to nobody after a crash of the machine.

        The file of another process that has taken over stays, and is written again where this one came between.
        """
        if is_lost(self._path):
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_unsynced(self._path, text)


def _with(progress: Progress, cluster: ClusterState) -> Progress:
    return replace(
        progress,
        workers=cluster.workers,
        workers_lost=cluster.lost,
        bytes_read=cluster.bytes_read,
        dashboard=cluster.dashboard,
    )


def recorder_of(checkpoint: Checkpointed, cluster: Callable[[], ClusterState | None]) -> NullRecorder:
    """Recorder for the run of a checkpoint."""
    return NO_RECORDER if checkpoint.folder is None else Recorder(checkpoint, cluster)
