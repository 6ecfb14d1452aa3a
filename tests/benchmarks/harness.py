"""Shared parts of the cases: settings, clocks and tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psmds_dist.api.report import table
from psmds_dist.core.layout import format_bytes

Record = dict[str, Any]
"""A row of the table of a case, and of its JSON. ``wrong`` is a sentence about a wrong result."""


@dataclass(frozen=True)
class Settings:
    """Settings from the command line."""

    profile: str = "standard"
    data: Path = Path("../shared/data")
    output: Path = Path("bench-output")
    sets: tuple[str, ...] = ()
    largest: int | None = None
    cached: bool = False

    @property
    def full(self) -> bool:
        """Whether to run what takes long or much disk space."""
        return self.profile == "full"

    @property
    def quick(self) -> bool:
        """Whether to stay within two minutes."""
        return self.profile == "quick"

    def pick(self, quick: Any, standard: Any, full: Any) -> Any:
        """Choose the value for the profile."""
        return {"quick": quick, "standard": standard, "full": full}[self.profile]


def once(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def seconds(function: Callable[[], Any], repeat: int = 5) -> float:
    """Median seconds of a call, after a warm-up."""
    function()
    return statistics.median(once(function) for _ in range(repeat))


def least_seconds(function: Callable[[], Any], repeat: int = 5) -> float:
    """Least seconds of a call, after a warm-up: the speed of the undisturbed machine."""
    function()
    return min(once(function) for _ in range(repeat))


def show(records: Sequence[Record], **columns: str) -> None:
    """Print records as a table.

    Parameters
    ----------
    records : sequence of dict
        The lines.
    **columns : str
        For each key to show, in order, its format: one of Python's, or ``"bytes"``. Missing values stay
        empty.
    """
    names = [name for name in columns if any(record.get(name) is not None for record in records)]
    head = ["" if name == "what" else name.replace("_", " ") for name in names]
    print(table(head, [[_cell(record.get(name), columns[name]) for name in names] for record in records]), flush=True)


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    return format_bytes(value) if form == "bytes" else format(value, form)


def held(what: str, value: float | None, *, least: float | None = None, most: float | None = None) -> Record:
    """Line about a figure with a bound, or None without the figure; missing the bound is not a failure."""
    met = value is not None and (least is None or value >= least) and (most is None or value <= most)
    must = f"at least {least:g}" if least is not None else f"at most {most:g}"
    return {"what": what, "value": value, "must_be": must, "met": "yes" if met else "NO"}


def show_held(records: Sequence[Record]) -> None:
    """Print lines about bounds."""
    print()
    show(records, what="", value=".4g", must_be="", met="")
