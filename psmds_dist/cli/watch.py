"""Commands that tell how far a run is: ``status`` and ``watch``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.exits import INTERRUPTED
from psmds_dist.cli.options import Positive
from psmds_dist.cli.output import print_note, print_result
from psmds_dist.core.errors import InputError
from psmds_dist.utils.text import escaped_lines

if TYPE_CHECKING:
    from psmds_dist.api.watch import RunStatus

REDRAW, LINE = 1.0, 10.0
"""Seconds between two looks at the files: on a terminal, and where lines are printed."""


@click.command()
@click.argument("target", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--prometheus", is_flag=True, help="Print metrics in the text format of Prometheus.")
def status(target: str, as_json: bool, prometheus: bool) -> None:
    """Tell how far the run is that writes TARGET.

    TARGET is the map or store of the run, there or to come, or the directory of a checkpoint. Files alone are read,
    from any machine that sees them. Times are in seconds, points in time in seconds since 1970.

    Exit codes: 0 finished, 3 running, 75 to be continued (interrupted, killed, or not heard of for a minute), 1 failed
    or nothing there.
    """
    from psmds_dist.api.metrics import prometheus_text
    from psmds_dist.api.watch import RunState, RunStatus, read_status

    if as_json and prometheus:
        raise click.UsageError("--json and --prometheus are mutually exclusive; use one of them.")
    found = read_status(target)
    if found.state is RunState.ABSENT and not (as_json or prometheus):
        raise InputError(f"{target}: {found.summary}; give the TARGET of a run.")
    describe = prometheus_text if prometheus else _as_json if as_json else RunStatus.describe
    print_result(describe(found).rstrip("\n"))
    raise click.exceptions.Exit(found.state.exit_code)


def _as_json(found: RunStatus) -> str:
    return json.dumps(found.as_dict(), indent=2)


@click.command()
@click.argument("target", type=click.Path())
@click.option(
    "--interval", type=Positive(), help=f"Seconds between two looks [default: {REDRAW:g}, or {LINE:g} in a log]."
)
@click.option(
    "--metrics", metavar="[HOST:]PORT", help="Also serve metrics for Prometheus, on this machine only without HOST."
)
def watch(target: str, interval: float | None, metrics: str | None) -> None:
    """Follow the run that writes TARGET until it ends.

    As 'psmds status', again and again; waits for a run that has not started yet, and for an interrupted batch job to be
    started again. Ctrl-C ends the watch and leaves the run alone. Exit codes as 'psmds status'.
    """
    from psmds_dist.api.metrics import metrics_served, prometheus_text
    from psmds_dist.api.watch import read_status

    look = partial(read_status, target)
    served = nullcontext("") if metrics is None else metrics_served(lambda: prometheus_text(look()), metrics)
    try:
        with served as url, _screen() as show:
            if url:
                print_note(f"metrics at {url}")
            found = _follow(look, show, interval or (REDRAW if sys.stdout.isatty() else LINE))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    print_result(found.describe())
    raise click.exceptions.Exit(found.state.exit_code)


def _follow(look: Callable[[], RunStatus], show: Callable[[RunStatus], object], interval: float) -> RunStatus:
    """Show the status until the run is over."""
    while not (found := look()).is_over:
        show(found)
        time.sleep(interval)
    return found


@contextmanager
def _screen() -> Iterator[Callable[[RunStatus], object]]:
    """Yield what shows a status: a part of the terminal that is drawn again, or lines where something changed."""
    if not sys.stdout.isatty():
        yield _Lines()
        return
    from rich.live import Live
    from rich.text import Text

    with Live(transient=True, auto_refresh=False) as live:
        yield lambda found: live.update(Text(escaped_lines(found.describe())), refresh=True)


class _Lines:
    """Prints a line where it differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, found: RunStatus) -> None:
        line = found.line()
        if line != self._last:
            print_result(f"{time.strftime('%H:%M:%S')}   {line}")
        self._last = line
