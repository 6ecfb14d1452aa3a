"""Where a run stands, kept in a directory, so that it can go on after a loss.

A checkpoint is a few files, each a digest with an ``.npz`` archive behind it. A file is written beside its name, synced
and renamed, carries the identity of the run, and stays until two newer ones of its stream are there. Whatever else is
in the directory stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from psmds_dist.core.errors import AlreadyComplete
from psmds_dist.core.types import InputError
from psmds_dist.utils.atomic import atomic_file
from psmds_dist.utils.locks import exclusive_lock

Arrays = Mapping[str, Any]
"""Arrays of any shape, scalars among them, by name."""

Identity = Mapping[str, Any]
Say = Callable[[str], object]

EVERY = 1.0
"""Seconds of work that a run may lose at most, where keeping it costs less than `OVERHEAD` of that."""

OVERHEAD = 0.01
"""Largest share of the time that may go into saving."""

GENERATIONS = 2
"""States of a stream that are kept."""

NAME = re.compile(r"(solve(-\d+)?|starts?|placement|refinement|polish-[0-9a-f]+)\.\d{9}\.npz")
HALF = re.compile(rf"\.[0-9a-f]{{12}}-{NAME.pattern}")
"""Names of states, and of those that are being written, or were when a process was killed."""

ZIP = b"PK\x03\x04"
"""How an ``.npz`` archive of somebody else begins."""

IDENTITY = "identity"
MARK = f"{IDENTITY}.npy".encode()
"""Name of the first member of every state, at the beginning of its archive and in the directory at the end."""

EDGE = 4096
"""Bytes at either end of a state that hold its mark; where one end is damaged the other tells."""

VERSION = "psmds-dist"
"""Part of an identity that does not matter to a run that has ended."""

DIGEST = hashlib.blake2b
DIGEST_BYTES = DIGEST().digest_size


def _state(name: str, number: int) -> str:
    return f"{name}.{number:09d}.npz"


class DirectoryStream:
    """One line of states of a run, of which only the last counts; or, by `add`, pieces that all count."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self._checkpoint = checkpoint
        self._name = name
        self.every = checkpoint.every

    def last(self) -> Arrays | None:
        """Last state that is whole; a damaged one gives way to the one before, and that is told."""
        return next(self._whole(), None)

    def pieces(self) -> list[Arrays]:
        """Every piece that is whole."""
        return list(self._whole())

    def save(self, number: int, state: Callable[[], Arrays], *, now: bool = False) -> None:
        """Keep a state, when enough work has been done since the last one or when it must be ``now``."""
        if (now or self.should_save) and self.add(number, state()):
            for old in self._states()[:-GENERATIONS]:
                old.unlink(missing_ok=True)

    def add(self, number: int, arrays: Arrays) -> bool:
        """Keep a piece; a full disk is told and does not end the run."""
        began = time.monotonic()
        try:
            self._checkpoint.write(_state(self._name, number), arrays)
            kept = True
        except OSError as error:
            self._checkpoint.say(f"the run goes on, but its checkpoint is not kept: {error}")
            kept = False
        self._checkpoint.rest(time.monotonic() - began)
        return kept

    def forget(self) -> None:
        """Remove all states."""
        for path in self._states():
            path.unlink(missing_ok=True)

    @property
    def should_save(self) -> bool:
        """Whether so much work is not yet kept that keeping it pays."""
        return self._checkpoint.should_save

    def _whole(self) -> Iterator[Arrays]:
        for path in reversed(self._of_this(self._checkpoint.candidates())):
            try:
                yield {name: values for name, values in _read(path).items() if name != IDENTITY}
            except (OSError, ValueError) as error:
                self._checkpoint.say(f"{path} is damaged ({_first_line(error)}) and left out.")

    def _states(self) -> list[Path]:
        return self._of_this(self._checkpoint.states())

    def _of_this(self, paths: list[Path]) -> list[Path]:
        return [path for path in paths if path.name.rsplit(".", 2)[0] == self._name]


class Checkpoint:
    """A directory for the states of one run.

    Parameters
    ----------
    folder : path
        Made when the first state is kept.
    resume : bool
        Whether to go on from what is there.
    overwrite : bool
        Whether another run's states give way once the run begins.
    finished : (path, mapping), optional
        The result of a run that has ended well and its identity; it counts where no states are.
    say : callable
        Told of a damaged or unwritable checkpoint.
    every : float
        Least seconds of work between two states; 0 keeps every state, whatever that costs.

    Raises
    ------
    InputError
        When another run's states are there that shall neither go on nor give way, or when there is something else.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        resume: bool = False,
        overwrite: bool = False,
        finished: tuple[str, Identity] | None = None,
        say: Say = print,
        every: float = EVERY,
    ) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.overwrite = overwrite
        self.finished = finished
        self.say = say
        self.every = self._pause = every
        self._saved = time.monotonic()
        self._identity: Identity = {}
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"checkpoint {self.folder} must be a directory, or a path where nothing is yet.")
        if self.found and not (resume or overwrite):
            raise InputError(
                f"{self.folder} holds the checkpoint of a run that has not ended: go on with it by resume=True "
                "(--resume), or remove it to begin anew."
            )

    @property
    def should_save(self) -> bool:
        """Whether so much work is not yet kept, in whatever strands, that keeping it pays."""
        return time.monotonic() - self._saved >= self._pause

    def rest(self, taken: float) -> None:
        """Let work go on for a while after so many seconds of writing."""
        self._saved = time.monotonic()
        self._pause = self.every and max(self.every, taken / OVERHEAD)

    @property
    def found(self) -> bool:
        """Whether there is something to go on from."""
        return any(self.states())

    def candidates(self, names: re.Pattern[str] = NAME) -> list[Path]:
        """Files that have the name of a state, in the order of their numbers; archives of somebody else are none."""
        named = sorted(path for path in self.folder.glob("*.npz") if names.fullmatch(path.name))
        return [path for path in named if not _edges(path).startswith(ZIP)]

    def states(self, names: re.Pattern[str] = NAME) -> list[Path]:
        """Files in the directory that were written as states, whole or damaged: only these are ever removed."""
        return [path for path in self.candidates(names) if _is_ours(path)]

    def attach(self, identity: Identity) -> None:
        """Take up the run that ``identity`` describes.

        Raises
        ------
        InputError
            When the states in the directory, or the result, belong to another run; it names the differences.
        AlreadyComplete
            When this run has ended already.
        """
        if self.overwrite:
            self.remove()
        self._identity = identity = plain(identity)
        if self.finished is not None:
            _require_same(*self.finished, identity)
            if not self.found:
                raise AlreadyComplete(
                    f"{self.finished[0]} is finished, from the same input and configuration: nothing is left to do."
                )
        for before in self._identities():
            if changes := list(differences(before, identity)):
                raise InputError(
                    f"{self.folder} is the checkpoint of another run ({'; '.join(changes)}): resume with the same "
                    "input and parameters, or remove it to begin anew."
                )

    def stream(self, name: str) -> DirectoryStream:
        """States of one part of the run; `NAME` knows them by the names of parts, and nothing else as ours."""
        if not NAME.fullmatch(_state(name, 0)):
            raise ValueError(f"states of {name!r} would not be known again: NAME must name all parts of runs.")
        return DirectoryStream(self, name)

    def write(self, name: str, arrays: Arrays) -> None:
        """Write a file that is found whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / name).exists() and not _is_ours(self.folder / name):
            raise FileExistsError(f"{self.folder / name} is not a state of psmds-dist and will not be replaced")
        contents: dict[str, Any] = {IDENTITY: np.array(json.dumps(self._identity)), **arrays}
        with atomic_file(self.folder / name) as fresh, fresh.open("w+b") as file:
            file.write(bytes(DIGEST_BYTES))
            np.savez(file, **contents)
            digest = _digest(file)
            file.seek(0)
            file.write(digest)

    def seed(self) -> int | None:
        """Seed of the run whose states are here: one that goes on, and was given none, takes it up."""
        return next((before["configuration"]["seed"] for before in self._identities()), None)

    def _identities(self) -> Iterator[Any]:
        for path in self.states():
            try:
                yield json.loads(str(_read(path)[IDENTITY]))
            except (OSError, ValueError):
                continue  # told when its state is wanted

    def remove(self) -> None:
        """Remove what is ours, and the directory when nothing else is in it: the run has ended well."""
        for path in [*self.states(), *self.states(HALF)]:
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()


def describe_run(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts of the run whose states a directory holds; empty where there are none."""
    if not os.path.isdir(folder):
        return {}
    checkpoint = Checkpoint(folder, resume=True)
    names = [path.name.split(".") for path in checkpoint.states()]  # the newest of a stream comes last
    states = {name: int(number) for name, number, _ in names}
    run: Identity = next(checkpoint._identities(), {})
    facts = {"kind": "checkpoint", "to go on": "its command again, with --resume", "newest states": states, **run}
    return facts if states else {}


class NullCheckpoint:
    """What a run uses that keeps nothing; it is its own stream."""

    should_save = False
    every = math.inf

    def attach(self, identity: Identity) -> None:
        """Forget the identity."""

    def stream(self, name: str) -> NullCheckpoint:
        """Itself."""
        return self

    def last(self) -> Arrays | None:
        """No state."""
        return None

    def pieces(self) -> list[Arrays]:
        """No pieces."""
        return []

    def save(self, number: int, state: Callable[[], Arrays], *, now: bool = False) -> None:
        """Forget the state."""

    def add(self, number: int, arrays: Arrays) -> bool:
        """Forget the piece."""
        return False

    def forget(self) -> None:
        """Nothing is there."""

    def seed(self) -> None:
        """No seed."""

    def remove(self) -> None:
        """Nothing is there."""


NO_CHECKPOINT = NullCheckpoint()
CheckpointStore = Checkpoint | NullCheckpoint
CheckpointStream = DirectoryStream | NullCheckpoint


@contextmanager
def open_checkpoint(folder: str | os.PathLike[str] | None, resume: bool) -> Iterator[CheckpointStore]:
    """Yield what keeps the states of an estimator's run, if anything does; its troubles become warnings.

    Raises
    ------
    InputError
        When there is nothing to resume from, or a run that was not asked for.
    StorageError
        When another run that lives keeps its states there.
    """
    if not isinstance(resume, bool | np.bool_):
        raise InputError(f"resume must be True or False, not {resume!r}.")
    if folder is None:
        if resume:
            raise InputError("resume=True needs the directory of a checkpoint: give checkpoint, too.")
        yield NO_CHECKPOINT
        return
    with exclusive_lock(folder):
        yield Checkpoint(folder, resume=bool(resume), say=partial(warnings.warn, stacklevel=2))


def plain(identity: Identity | None) -> Any:
    """An identity as JSON holds it, without NumPy's integers."""
    return json.loads(json.dumps(identity, default=int))


def _require_same(target: str, finished: Identity, identity: Identity) -> None:
    """Refuse to go on, or to say that all is done, where the result of another run is at the target."""
    if changes := list(differences(finished, {**identity, VERSION: finished.get(VERSION)})):
        raise InputError(
            f"{target} is the finished map of another run ({'; '.join(changes)}): give another path, or "
            "overwrite=True (--overwrite)."
        )


def _is_ours(path: Path) -> bool:
    """Whether a file is a state, whole or damaged, or one of which only the place for its digest is written."""
    edges = _edges(path)
    return not edges.startswith(ZIP) and (MARK in edges or not edges.strip(b"\0"))


def _edges(path: Path) -> bytes:
    """Both ends of a file; what is none, or has gone, looks like the archive of somebody else."""
    try:
        with path.open("rb") as file:
            head = file.read(EDGE)
            file.seek(max(len(head), os.fstat(file.fileno()).st_size - EDGE))
            return head + file.read(EDGE)
    except (FileNotFoundError, IsADirectoryError):  # a run that lives may just have removed it
        return ZIP


def differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Say where two nested mappings differ, one phrase each."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield f"{name} was {before!r}, is {now!r}"


def _digest(file: IO[bytes]) -> bytes:
    """Digest of what follows the place for it."""
    file.seek(DIGEST_BYTES)
    return hashlib.file_digest(file, DIGEST).digest()  # type: ignore[arg-type]


def _read(path: Path) -> Arrays:
    with path.open("rb") as file:
        if file.read(DIGEST_BYTES) != _digest(file):
            raise ValueError("its digest is not that of its contents")
        file.seek(DIGEST_BYTES)
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
