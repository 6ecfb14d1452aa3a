"""``make bench``: timings beside those of others, in one run on one machine.

Prints tables, draws curves, and writes ``bench.json`` with the facts of the machine into the output folder. Ratios
and medians are what to look at: absolute times drift with the machine. ``--full`` adds what takes minutes or much
disk, ``--quick`` takes two minutes in all. Ends with exit code 1 when a result was wrong, never because it was slow.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks import machine
from tests.benchmarks.cases import CASES, QUICK, STANDARD
from tests.benchmarks.harness import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases; return the exit code."""
    options = _options(arguments)
    profile = "quick" if options.quick else "full" if options.full else "standard"
    settings = Settings(profile, options.data, options.output.resolve())
    settings.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"when": time.strftime("%Y-%m-%d %H:%M"), "profile": profile, "facts": machine.facts()}
    results["cases"] = {}
    wrong = []
    for name in options.only or (QUICK if options.quick else STANDARD):
        print(f"\n== {name}: {CASES[name].__doc__}\n", flush=True)
        found = CASES[name](settings)
        wrong += [record["wrong"] for record in found if record.get("wrong")]
        results["cases"][name] = found
        write(settings.output / "bench.json", results)
    print(f"\nWritten: {settings.output / 'bench.json'}")
    for sentence in wrong:
        print(f"WRONG: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def write(path: Path, results: dict[str, Any]) -> None:
    """Write results beside, then over what was there."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(results, indent=2))
    os.replace(beside, path)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), help="these cases only")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="two minutes, to see that results are right")
    length.add_argument("--full", action="store_true", help="also what takes minutes, or 10 GB of disk")
    parser.add_argument(
        "--data", type=Path, default=Settings.data, help="where MNIST test set and words are, if they are"
    )
    parser.add_argument("--output", type=Path, default=Settings.output, help="for tables, curves and matrices")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
