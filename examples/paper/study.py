"""What the experiments share: settings, finished runs in a file, tables and claims."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from methods import Problem, timed

Cell = dict[str, Any]
TOO_LONG = "takes more than"


@dataclass(frozen=True)
class Study:
    """Where results go, and how much is done."""

    folder: Path
    quick: bool = False
    words: Path | None = None
    mnist: Path | None = None

    def pick(self, full: Any, quick: Any) -> Any:
        """Return what the length of the study asks for."""
        return quick if self.quick else full

    @property
    def seeds(self) -> range:
        """Seeds of samples and starts."""
        return range(self.pick(5, 3))

    @property
    def few_seeds(self) -> range:
        """The same where a run takes long."""
        return range(3)

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Finished runs."""
        file = self.folder / "cells.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def cell(self, key: str, compute: Callable[[], Cell]) -> Cell:
        """Return the result of a run, which is computed unless an earlier command did."""
        if key not in self.cells:
            print(key, flush=True)
            self.cells[key] = compute()
            fresh = self.folder / "cells.json.new"
            fresh.write_text(json.dumps(self.cells, indent=1))
            os.replace(fresh, self.folder / "cells.json")
        return self.cells[key]

    def map_file(self, key: str) -> Path:
        """File of the coordinates of a run."""
        return self.folder / "maps" / (re.sub(r"[^\w.]+", "-", key) + ".npy")

    def solve(
        self,
        name: str,
        method: str,
        seed: int,
        problem: Callable[[], Problem],
        measures: Callable[[Problem, np.ndarray], Cell],
    ) -> Cell:
        """Return seconds and measures of a map, or the failure of its method."""
        key, first = (f"{name} | {method} | seed {one}" for one in (seed, 0))

        def compute() -> Cell:
            if TOO_LONG in self.cells.get(first, {}).get("failure", ""):
                return self.cells[first]
            given = problem()
            found, seconds, failure = timed(method, given, seed)
            if found is None:
                return {"failure": failure}
            self.map_file(key).parent.mkdir(parents=True, exist_ok=True)
            np.save(self.map_file(key), found)
            return {"seconds": seconds, **measures(given, found)}

        return self.cell(key, compute)

    def load_map(self, name: str, method: str, seed: int) -> np.ndarray | None:
        """Return the coordinates of a run, or None if it failed."""
        file = self.map_file(f"{name} | {method} | seed {seed}")
        return np.load(file) if file.exists() else None


def picture(name: str, caption: str) -> str:
    """Return a picture with a line about what it shows, as Markdown."""
    return f"![{name.removesuffix('.png')}]({name})\n\n*{caption}*\n\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def values(cells: Sequence[Cell], measure: str) -> list[float]:
    """Values of a measure in the runs that have it."""
    return [cell[measure] for cell in cells if cell.get(measure) is not None]


def median(cells: Sequence[Cell], measure: str) -> float:
    """Median over runs; NaN if none has the measure."""
    found = values(cells, measure)
    return statistics.median(found) if found else float("nan")


def spread(cells: Sequence[Cell], measure: str, form: str = ".4f") -> str:
    """Median over runs, with least and most; or that they failed."""
    found = values(cells, measure)
    if not found:
        return "failed" if any("failure" in cell for cell in cells) else ""
    middle = format(statistics.median(found), form)
    return middle if max(found) == min(found) else f"{middle} ({min(found):{form}} to {max(found):{form}})"


def failures(named: dict[str, Sequence[Cell]]) -> str:
    """Sentences about the methods that failed."""
    told = Counter((name, cell["failure"]) for name, cells in named.items() for cell in cells if "failure" in cell)
    return "".join(
        f"* Failed: {name}, {count} of {len(named[name])} runs: {why}\n" for (name, why), count in sorted(told.items())
    )


def claim(text: str, holds: bool, found: str, why: str = "") -> str:
    """Line of a statement, whether it holds here, what was found, and where it does not hold why."""
    reason = "" if holds or not why else f" {why}"
    return f"* **{'Holds' if holds else 'Does not hold'}**: {text} Here: {found}.{reason}\n"
