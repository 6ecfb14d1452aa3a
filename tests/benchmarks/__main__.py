"""make bench: compare timings with other libraries, in one run on one machine.

Prints tables, draws curves, and writes bench.json with the facts of the machine to the output folder. Compare ratios
and medians: absolute times drift with the machine. --full adds cases that take minutes or much disk space, --quick
takes two minutes in all. The exit code is 1 if a result is wrong, never because it is slow. A figure that misses its
bound is marked NO in its table.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import os
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psmds_dist.core.errors import PsmdsError
from tests.benchmarks import machine
from tests.benchmarks.cases import CASES, QUICK, STANDARD
from tests.benchmarks.data import MNIST, WORDS
from tests.benchmarks.harness import Settings
from tests.benchmarks.map_sets import SETS
from tests.benchmarks.maps import sets_of


class Stopped(BaseException):
    """Ctrl-C or SIGTERM; not a `KeyboardInterrupt`, on which a solve would return its best map so far."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases; return the exit code."""
    settings, names = _asked_for(arguments)
    results: dict[str, Any] = {"when": time.strftime("%Y-%m-%d %H:%M"), "profile": settings.profile}
    results |= {"facts": machine.facts(), "cases": {}}
    target = settings.output / "bench.json"
    print(machine.describe(results["facts"]))
    if settings.quick:
        print("--quick: sets are smaller than what the cases tell of, and their bounds are not meant for these.")
    wrong = []
    for name in names:
        print(f"\n== {name}: {inspect.getdoc(CASES[name])}\n", flush=True)
        try:
            with _stoppable():
                found = CASES[name](settings)
        except Stopped:
            done = f"what was done before it is in {target}" if results["cases"] else "nothing was done before it"
            print(f"\nInterrupted in {name}; {done}.", file=sys.stderr)
            return 130
        except (PsmdsError, OSError) as error:  # such as a full disk
            found = [{"what": name, "wrong": f"{name} came to no end: {error}"}]
        wrong += [record["wrong"] for record in found if record.get("wrong")]
        results["cases"][name] = found
        write(target, results)
    print(f"\nWritten: {target}")
    for sentence in wrong:
        print(f"WRONG: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def write(path: Path, results: dict[str, Any]) -> None:
    """Write results to a temporary file, then replace the old one."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(results, indent=2))
    os.replace(beside, path)


def _asked_for(arguments: Sequence[str] | None) -> tuple[Settings, Sequence[str]]:
    """Read the command line, and refuse an output folder that cannot be written."""
    parser = _parser()
    options = parser.parse_args(arguments)
    profile = "quick" if options.quick else "full" if options.full else "standard"
    choice = tuple(options.sets), options.largest, options.cached
    settings = Settings(profile, options.data, options.output.resolve(), *choice)
    try:
        settings.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.output):
            pass
    except OSError as error:
        parser.error(f"argument --output: {options.output} cannot be written to: {error.strerror}.")
    if not sets_of(settings):
        parser.error(f"argument --largest: the chosen data sets have more than {settings.largest} points.")
    chosen = itertools.chain.from_iterable(options.only or [QUICK if options.quick else STANDARD])
    return settings, tuple(dict.fromkeys(chosen))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=f"cases:\n{_summaries()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", type=_cases, metavar="CASE", help="these cases only, as listed below")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="two minutes, to see that results are right")
    length.add_argument("--full", action="store_true", help="also what takes minutes, or 10 GB of disk")
    parser.add_argument(
        "--data",
        type=_folder,
        default=Settings.data,
        help=f"where {MNIST} and {WORDS} are, for those who have them [default: {Settings.data}, if it is there]",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Settings.output,
        help="for bench.json, which each run replaces, curves and matrices [default: %(default)s]",
    )
    maps = parser.add_argument_group("of the case maps")
    maps.add_argument(
        "--sets", nargs="+", choices=[one.name for one in SETS], default=(), metavar="SET", help="these data sets only"
    )
    maps.add_argument("--largest", type=_number, metavar="N", help="data sets of at most N points")
    maps.add_argument("--cached", action="store_true", help="run the default alone; the best is that of earlier runs")
    return parser


def _summaries() -> str:
    """First paragraph of the docstring of each case."""
    first = {name: inspect.getdoc(case).partition("\n\n")[0] for name, case in CASES.items()}
    return "\n".join(
        textwrap.fill(text, 100, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
        for name, text in first.items()
    )


def _cases(text: str) -> list[str]:
    """Parse the names of cases, separated by commas."""
    names = [name for name in text.split(",") if name] or [text]
    for name in names:
        if name not in CASES:
            raise argparse.ArgumentTypeError(f"no case is called {name!r}; there are {', '.join(CASES)}.")
    return names


def _number(text: str) -> int:
    """Parse a number of points."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of points; give a whole number from 1 on.")
    return int(text)


def _folder(text: str) -> Path:
    """Parse the path of an existing directory."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory; give the one that holds {MNIST} and {WORDS}.")
    return Path(text)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Raise `Stopped` on Ctrl-C and SIGTERM, so that child processes are stopped."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
