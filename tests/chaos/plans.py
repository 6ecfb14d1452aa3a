"""Plan of the events of a run, determined by a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tests.chaos.command import CLOSED, FULL
from tests.chaos.kinds import KINDS, Kind

PLACES = ("in process", "two workers", "scheduler file")

DEADLY = ("SIGKILL of the command", "SIGTERM", "SIGINT")
TO_WORKERS = (
    "SIGKILL of a worker",
    "SIGKILL of a worker",
    "SIGSTOP and SIGCONT",
    "SIGSTOP and SIGKILL",
    "SIGSTOP for good",
)
TO_SCHEDULER = "SIGKILL of the scheduler"
SMALL_DISK, SMALL_FILES = "disk full", "file size limit"
LOST = (CLOSED, FULL)
DAMAGES = ("a byte flipped", "truncated", "emptied")


@dataclass(frozen=True)
class Moment:
    """Moment of an event.

    ``"time"``: after that share of the time of an undisturbed run. ``"kept"``: when that many states (or chunks) have
    been saved. ``"keeping"``: while a state is written. ``"ending"``: while the result is written.
    """

    what: str
    size: float = 1.0

    def sooner(self) -> Moment:
        """An earlier moment, for a run that ended before this one."""
        return Moment("time", self.size / 2) if self.what == "time" else Moment("kept", 1)


@dataclass(frozen=True)
class Event:
    """An event and its moment."""

    what: str
    moment: Moment
    victim: int = 0
    """Index of the worker."""


@dataclass(frozen=True)
class Attempt:
    """One start of the command, with the events before it and during it."""

    place: str
    events: tuple[Event, ...] = ()
    scarcity: str | None = None
    """`SMALL_DISK` or `SMALL_FILES`"""

    room: int = 0
    damage: str | None = None
    """Damage to the latest state before the attempt."""

    output: str | None = None
    """State of its standard output: `CLOSED` or `FULL`."""

    def sooner(self) -> Attempt:
        """The same attempt with earlier events and less space."""
        events = tuple(replace(event, moment=event.moment.sooner()) for event in self.events)
        return replace(self, events=events, room=self.room // 2)

    @property
    def names(self) -> list[str]:
        """Names of all events."""
        some = [event.what for event in self.events]
        return (
            some
            + ([self.scarcity] if self.scarcity else [])
            + ([f"newest state {self.damage}"] if self.damage else [])
            + ([f"output {self.output}"] if self.output else [])
        )


@dataclass(frozen=True)
class Plan:
    """A run: disturbed attempts, and where the last, undisturbed one takes place."""

    number: int
    kind: Kind
    attempts: tuple[Attempt, ...]
    last: Attempt

    def sooner(self) -> Plan:
        """The same with earlier events."""
        return replace(self, attempts=tuple(attempt.sooner() for attempt in self.attempts))

    def __str__(self) -> str:
        parts = [f"{attempt.place}: {' + '.join(attempt.names)}" for attempt in self.attempts]
        return f"{self.kind.name}; " + ", then ".join([*parts, f"{self.last.place}: to the end"])


def plan_run(seed: int, number: int, kinds: list[Kind] = KINDS, tmpfs: bool = True) -> Plan:
    """Plan a run from the seed and its number."""
    random = np.random.default_rng([seed, number])
    kind = kinds[random.integers(len(kinds))]
    place = str(random.choice(PLACES, p=[0.5, 0.25, 0.25]))
    count = int(random.choice([1, 2, 3], p=[0.6, 0.3, 0.1]))
    attempts = []
    for k in range(count):
        attempts.append(_attempt(random, kind, place, first=k == 0, tmpfs=tmpfs))
        if random.random() < 0.2:
            place = str(random.choice(PLACES))
    lost = [str(random.choice(LOST)) if random.random() < 0.15 else None for _ in range(count + 1)]
    attempts = [replace(attempt, output=output) for attempt, output in zip(attempts, lost, strict=False)]
    return Plan(number, kind, tuple(attempts), Attempt(place, damage=_damage(random), output=lost[-1]))


def _attempt(random: np.random.Generator, kind: Kind, place: str, *, first: bool, tmpfs: bool) -> Attempt:
    damage = None if first else _damage(random)
    if first and random.random() < 0.15:
        scarcity = SMALL_DISK if (random.random() < 0.7) & tmpfs else SMALL_FILES
        if scarcity == SMALL_DISK or place != "scheduler file":  # the workers of a cluster have no limit
            return Attempt(place, scarcity=scarcity, room=_room(random, kind) // (1 + 3 * (scarcity == SMALL_FILES)))
    return Attempt(place, tuple(_events(random, place)), damage=damage)


def _events(random: np.random.Generator, place: str) -> list[Event]:
    events = []
    if place != "in process" and random.random() < 0.6:
        for _ in range(random.integers(1, 3)):
            events.append(Event(str(random.choice(TO_WORKERS)), _moment(random, 0.6), int(random.integers(2))))
        if random.random() < 0.3:
            return events
    if place == "scheduler file" and random.random() < 0.4:
        return [*events, Event(TO_SCHEDULER, _moment(random, 0.9))]
    return [*events, Event(str(random.choice(DEADLY, p=[0.6, 0.2, 0.2])), _moment(random, 1.0))]


def _moment(random: np.random.Generator, latest: float) -> Moment:
    what = str(random.choice(["time", "kept", "keeping", "ending"], p=[0.4, 0.25, 0.2, 0.15]))
    if what == "time":
        return Moment(what, random.uniform(0.1, latest))
    if what == "kept":
        return Moment(what, int(random.integers(1, 12)))
    return Moment(what if latest == 1.0 or what == "keeping" else "keeping")


def _damage(random: np.random.Generator) -> str | None:
    return str(random.choice(DAMAGES)) if random.random() < 0.25 else None


def _room(random: np.random.Generator, kind: Kind) -> int:
    low, high = kind.room
    return int(np.exp(random.uniform(np.log(low), np.log(high))))
