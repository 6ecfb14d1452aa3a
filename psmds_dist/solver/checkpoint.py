"""Checkpoints: the state of a run, saved so that a later process can continue it to the same bits.

A run attaches its identity to a `CheckpointStore` and saves states to named streams of it. `DirectoryCheckpoint` keeps
them as files (`psmds_dist.solver.state_file`); `NullCheckpoint` keeps nothing.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from psmds_dist.core.errors import AlreadyComplete, DamagedDataError, InputError, OwnershipLost
from psmds_dist.solver.progress import remove_progress
from psmds_dist.solver.state_file import (
    STATE,
    UNFINISHED,
    Arrays,
    Identity,
    is_archive,
    is_state,
    order_of,
    read_state,
    state_name,
    stream_of,
    token_of,
    write_state,
)
from psmds_dist.utils.locks import claim_on, exclusive_lock, require_owner
from psmds_dist.utils.remote_paths import AnyPath, path_of

Say = Callable[[str], object]

EVERY = 1.0
"""Seconds of work that a run may lose at most, where saving it costs less than `OVERHEAD` of that."""

OVERHEAD = 0.01
"""Largest share of the time that may go into saving."""

GENERATIONS = 2
"""States of a stream that are kept."""

VERSION = "psmds-dist"
"""Part of an identity that does not matter to a run that has ended."""


class CheckpointStream(ABC):
    """States of one part of a run, of which only the last counts; or, by `add`, pieces that all count."""

    every: float
    """Least seconds of work between two states."""

    @property
    @abstractmethod
    def should_save(self) -> bool:
        """Whether so much work is unsaved that saving it pays."""

    @abstractmethod
    def save(self, number: int, state: Callable[[], Arrays], *, now: bool = False) -> None:
        """Save a state, when enough work has been done since the last one or when it must be ``now``."""

    @abstractmethod
    def add(self, number: int, arrays: Arrays) -> bool:
        """Save a piece, and return whether it is safe."""

    @abstractmethod
    def last(self) -> Arrays | None:
        """Last state."""

    @abstractmethod
    def pieces(self) -> list[Arrays]:
        """Every piece."""

    @abstractmethod
    def forget(self) -> None:
        """Remove all states."""


class CheckpointStore(ABC):
    """Saved states of one run, in streams."""

    folder: AnyPath | None = None
    """Directory or URL of the states; None where nothing is saved."""

    overwrite: bool = False
    """Whether another run's states are removed once the run begins."""

    @property
    def found(self) -> bool:
        """Whether there is something to continue from."""
        return False

    @property
    def resumes(self) -> bool:
        """Whether the run continues from what is there."""
        return self.found and not self.overwrite

    @abstractmethod
    def attach(self, identity: Identity) -> None:
        """Begin, or continue, the run that ``identity`` describes.

        Raises
        ------
        InputError
            When the states, or the result, belong to another run; it names the differences.
        AlreadyComplete
            When this run has ended already.
        """

    @abstractmethod
    def stream(self, name: str) -> CheckpointStream:
        """States of one part of the run: lower case words and numbers joined by hyphens name it."""

    @abstractmethod
    def seed(self) -> int | None:
        """Seed of the run whose states are saved; one that continues without a seed takes this one."""

    @abstractmethod
    def remove(self) -> None:
        """Remove all states: the run has ended well."""


class NullCheckpoint(CheckpointStore, CheckpointStream):
    """A store that saves nothing; it is its own stream."""

    every = math.inf

    @property
    def should_save(self) -> bool:
        """Never."""
        return False

    def attach(self, identity: Identity) -> None:
        """Accept any run."""

    def stream(self, name: str) -> CheckpointStream:
        """Itself."""
        return self

    def last(self) -> Arrays | None:
        """No state."""
        return None

    def pieces(self) -> list[Arrays]:
        """No pieces."""
        return []

    def save(self, number: int, state: Callable[[], Arrays], *, now: bool = False) -> None:
        """Discard the state."""

    def add(self, number: int, arrays: Arrays) -> bool:
        """Discard the piece."""
        return False

    def forget(self) -> None:
        """Nothing is there."""

    def seed(self) -> int | None:
        """No seed."""
        return None

    def remove(self) -> None:
        """Nothing is there."""


NO_CHECKPOINT = NullCheckpoint()


class DirectoryStream(CheckpointStream):
    """A stream in a directory; the last two states are kept, in case the newest is damaged."""

    def __init__(self, checkpoint: DirectoryCheckpoint, name: str) -> None:
        self._checkpoint = checkpoint
        self._name = name
        self.every = checkpoint.every

    @property
    def should_save(self) -> bool:
        """Whether so much work is unsaved that saving it pays."""
        return self._checkpoint.should_save

    def save(self, number: int, state: Callable[[], Arrays], *, now: bool = False) -> None:
        """Save a state, when enough work has been done since the last one or when it must be ``now``."""
        if (now or self.should_save) and self.add(number, state()):
            self._checkpoint.unlink(self._of_this(self._checkpoint.states())[:-GENERATIONS])

    def add(self, number: int, arrays: Arrays) -> bool:
        """Save a piece; a full disk is reported and does not end the run."""
        began = time.monotonic()
        try:
            self._checkpoint.write(state_name(self._name, number, self._checkpoint.token), arrays)
            saved = True
        except OSError as error:
            require_owner(self._checkpoint.folder)  # otherwise the loss is the reason
            self._checkpoint.say(f"the run continues, but its checkpoint was not saved: {error}")
            saved = False
        self._checkpoint.rest(time.monotonic() - began)
        return saved

    def last(self) -> Arrays | None:
        """Last state that is whole; a damaged one is reported and skipped."""
        return next(self._whole(), None)

    def pieces(self) -> list[Arrays]:
        """Every piece that is whole."""
        return list(self._whole())

    def forget(self) -> None:
        """Remove all states."""
        self._checkpoint.unlink(self._of_this(self._checkpoint.states()))

    def _whole(self) -> Iterator[Arrays]:
        for path in reversed(self._of_this(self._checkpoint.candidates())):
            try:
                identity, arrays = read_state(path)
            except DamagedDataError as error:
                self._checkpoint.say(f"{str(error).rstrip('.')} and was skipped.")
            else:
                if self._checkpoint.belongs_here(identity):
                    yield arrays

    def _of_this(self, paths: list[AnyPath]) -> list[AnyPath]:
        return [path for path in paths if stream_of(path) == self._name]


class DirectoryCheckpoint(CheckpointStore):
    """A directory, or URL, for the states of one run; other files in it are left alone.

    Parameters
    ----------
    folder : path or URL
        Made when the first state is saved.
    resume : bool
        Whether to continue from what is there.
    overwrite : bool
        Whether another run's states are removed once the run begins.
    finished : (path, mapping), optional
        The result of a run that has ended well and its identity; it counts where no states are.
    say : callable
        Called with a sentence about a damaged or unwritable checkpoint.
    every : float
        Least seconds of work between two states; 0 saves every state, whatever that costs.

    Raises
    ------
    InputError
        When another run's states are there that are neither to be continued nor overwritten, or when the path is no
        directory.
    """

    folder: AnyPath

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
        self.folder = path_of(folder)
        self.overwrite = overwrite
        self.finished = finished
        self.say = say
        self.every = self._pause = every
        self._saved = time.monotonic()
        self._identity: Identity = {}
        self._streams: set[str] = set()
        self.token = self._new_token()
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"checkpoint {self.folder} must be a directory, or a path where nothing is yet.")
        if self.found and not (resume or overwrite):
            raise InputError(
                f"{self.folder} holds the checkpoint of an unfinished run: continue it with resume=True (--resume), or "
                "remove it to start a new run."
            )

    @property
    def should_save(self) -> bool:
        """Whether so much work is unsaved, in whatever stream, that saving it pays."""
        return time.monotonic() - self._saved >= self._pause

    def rest(self, taken: float) -> None:
        """Save nothing for a while after so many seconds of writing."""
        self._saved = time.monotonic()
        self._pause = self.every and max(self.every, taken / OVERHEAD)

    @property
    def found(self) -> bool:
        """Whether there is something to continue from."""
        return any(self.states())

    def candidates(self) -> list[AnyPath]:
        """Files that have the name of a state, the newest of a stream last; archives that are no states are none."""
        named = sorted((path for path in self.folder.glob("*.npz") if STATE.fullmatch(path.name)), key=order_of)
        return [path for path in named if not is_archive(path)]

    def states(self) -> list[AnyPath]:
        """Files that were written as states, whole or damaged, the newest of a stream last."""
        return [path for path in self.candidates() if is_state(path, self._streams)]

    def attach(self, identity: Identity) -> None:
        """Begin, or continue, the run that ``identity`` describes; see `CheckpointStore.attach`."""
        if self.overwrite:
            self.remove()
        self._identity = identity = plain(identity)
        if self.finished is not None:
            _require_same(*self.finished, identity)
            if not self.found:
                raise AlreadyComplete(
                    f"{self.finished[0]} is finished, from the same input and configuration: nothing is left to do."
                )
        for before in self.identities():
            if changes := list(differences(before, identity)):
                raise InputError(
                    f"{self.folder} is the checkpoint of another run ({'; '.join(changes)}): resume with the same "
                    "input and parameters, or remove it to start a new run."
                )

    def stream(self, name: str) -> CheckpointStream:
        """States of one part of the run."""
        if not STATE.fullmatch(state_name(name, 0)):
            raise ValueError(f"{name!r} cannot name a stream: use lower case words and numbers joined by hyphens.")
        self._streams.add(name)
        return DirectoryStream(self, name)

    def write(self, name: str, arrays: Arrays) -> None:
        """Write a state; if another process has become the owner meanwhile, it is removed again."""
        path = self.folder / name
        require_owner(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and not is_state(path, self._streams):
            raise FileExistsError(f"{path} is not a state of psmds-dist and will not be replaced")
        try:
            write_state(path, self._identity, arrays)
        except OwnershipLost:
            path.unlink(missing_ok=True)
            self._remove_folder()
            raise

    def seed(self) -> int | None:
        """Seed of the run whose states are here."""
        return next((before["configuration"]["seed"] for before in self.identities()), None)

    def belongs_here(self, identity: Any) -> bool:
        """Whether a state is of this run, not of another one that had lost the directory before it wrote the state."""
        return not self._identity or identity == self._identity

    def identities(self) -> list[Any]:
        """Identity in each state that is whole, without those of runs that had lost the directory."""
        found = []
        for path in self.states():
            with suppress(DamagedDataError):  # reported when its state is wanted
                found.append((token_of(path), read_state(path)[0]))
        last = max(found, key=itemgetter(0), default=(0, None))
        return [identity for token, identity in found if token == last[0] or identity == last[1]]

    def unlink(self, states: list[AnyPath]) -> None:
        """Remove states, but none of a later owner."""
        require_owner(self.folder)
        for path in states:
            if token_of(path) <= self.token:
                with suppress(OSError):
                    path.unlink()

    def remove(self) -> None:
        """Remove all states, unfinished ones too, and the directory when nothing else is in it."""
        unfinished = [path for path in self.folder.glob(".*.npz") if UNFINISHED.fullmatch(path.name)]
        self.unlink([*self.states(), *filter(is_state, unfinished)])
        remove_progress(self.folder)
        self._remove_folder()

    def _remove_folder(self) -> None:
        """Remove the directory when nothing is in it."""
        with suppress(OSError):
            self.folder.rmdir()

    def _new_token(self) -> int:
        """Token in the names of new states, which count more than all that are here; 0 if nobody had one."""
        claim = claim_on(self.folder)
        found = max(map(token_of, self.candidates()), default=0)
        return max(claim.owner.token if claim else 0, found + 1 if found else 0)


def describe_run(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts of the run whose states a directory holds; empty where there are none."""
    if not path_of(folder).is_dir():
        return {}
    checkpoint = DirectoryCheckpoint(folder, resume=True)
    states = {stream_of(path): order_of(path)[2] for path in checkpoint.states()}  # the newest comes last
    run: Identity = next(iter(checkpoint.identities()), {})
    facts = {"kind": "checkpoint", "to go on": "its command again, with --resume", "newest states": states, **run}
    return facts if states else {}


@contextmanager
def open_checkpoint(folder: str | os.PathLike[str] | None, resume: bool) -> Iterator[CheckpointStore]:
    """Yield the store for the states of an estimator's run; problems with it become warnings.

    Raises
    ------
    InputError
        When there is nothing to resume from, or a run that was not asked for.
    StorageError
        When another live run saves its states there.
    """
    if not isinstance(resume, bool | np.bool_):
        raise InputError(f"resume must be True or False, not {resume!r}.")
    if folder is None:
        if resume:
            raise InputError("resume=True needs the directory of a checkpoint: give checkpoint, too.")
        yield NO_CHECKPOINT
        return
    with exclusive_lock(folder):
        yield DirectoryCheckpoint(folder, resume=bool(resume), say=partial(warnings.warn, stacklevel=2))


def plain(identity: Identity | None) -> Any:
    """An identity as JSON holds it, without NumPy's integers."""
    return json.loads(json.dumps(identity, default=int))


def _require_same(target: str, finished: Identity, identity: Identity) -> None:
    """Refuse to continue, or to report completion, where the result of another run is at the target."""
    if changes := list(differences(finished, {**identity, VERSION: finished.get(VERSION)})):
        raise InputError(
            f"{target} is the finished map of another run ({'; '.join(changes)}): give another path, or "
            "overwrite=True (--overwrite)."
        )


def differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Phrases that say where two nested mappings differ."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield f"{name} was {before!r}, is {now!r}"
