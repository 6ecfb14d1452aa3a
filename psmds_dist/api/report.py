"""Text about runs: progress on a terminal, figures and tables."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from psmds_dist.core.events import Event, OnEvent, StageEvent, ignore
from psmds_dist.core.quality import OF_ALL_PAIRS, Quality
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import InputCheck
from psmds_dist.ingest.scan import Progress
from psmds_dist.solver.progress import TimeLeft
from psmds_dist.utils.text import escaped


def describe_seconds(seconds: float) -> str:
    """Format a duration in the unit that suits it."""
    if 0 < seconds < 0.095:
        return f"{1e3 * seconds:.0f} ms" if seconds >= 0.001 else f"{1e3 * seconds:.1f} ms"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


@contextmanager
def progress(quiet: bool) -> Iterator[OnEvent]:
    """Show a line with stage, epoch, radius, error and remaining time, if standard error is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield ignore
        return
    from rich.console import Console
    from rich.live import Live

    left = TimeLeft()
    line = Live(
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=8,
        redirect_stdout=sys.stdout.isatty(),  # otherwise printed text would not reach a redirected file
    )
    with line as live:
        yield lambda event: live.update(_line(event, left))


def _line(event: Event, left: TimeLeft) -> str:
    if isinstance(event, StageEvent):
        return event.stage + ("" if event.total is None else f"   {event.done:,} of {event.total:,}")
    return (
        f"epoch {event.epoch}   radius {event.radius:.3g} (ends at {event.end_radius:.3g})   "
        f"rms error {math.sqrt(event.mse):.5g}   {event.moved:.0%} moved   "
        f"{describe_seconds(event.seconds)}, about {describe_seconds(left.update(event))} left"
    )


@contextmanager
def counter(what: str, quiet: bool) -> Iterator[Progress]:
    """Show a progress bar, if standard error is a terminal; yields ``show(done, total)``."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    console, redirect = Console(stderr=True), sys.stdout.isatty()
    with Bar(console=console, transient=True, redirect_stdout=redirect) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def stress_lines(stress: Stress | Quality, rule: PairRule = PLAIN, check: InputCheck | None = None) -> str:
    """Format the stress of a map, one figure per line.

    Parameters
    ----------
    stress : Stress or Quality
        The figures.
    rule : PairRule
        What a pair costs.
    check : InputCheck, optional
        Tells how many pairs count.
    """
    if math.isnan(stress.normalized_stress):
        return "stress             not measured: `psmds quality` does it"
    w = "w " if rule.weighted or rule.power or rule.local else ""
    error = stress.standard_error if isinstance(stress, Stress) else 0.0
    spread = f" +- {error:.6f}" * (error > 0)
    lines = [
        f"normalized stress  {stress.normalized_stress:.6f}{spread}   sqrt(sum {w}(t-d)^2 / sum {w}t^2)",
        f"Stress-1           {stress.stress1:.6f}   sqrt(sum {w}(t-d)^2 / sum {w}d^2)",
        f"mean squared error {stress.mse:.6g}",
        f"raw stress         {stress.raw_stress:.6g}",
    ]
    if isinstance(stress, Stress) and not rule.least_squares:
        lines.insert(0, f"{rule.loss + ' loss':18} {stress.error:.6g}   mean of what was lowered")
    if rule.transformation is not None:
        ties = f", {rule.ties} treatment of ties" * (rule.transformation == "ordinal")
        lines.append(f"Here t are disparities: {rule.transformation} transformation{ties}.")
    if w:
        near = f"; the {rule.local_neighbors} nearest points of each point have {rule.local:g} of the objective"
        lines.append(
            "All figures are weighted" + f", by t^{rule.power:g}" * bool(rule.power) + near * bool(rule.local) + "."
        )
    if isinstance(stress, Stress) and error:
        rows = f"{stress.measured_rows:,} of {len(stress.point_stress):,} rows"
        lines.append(f"Estimated from {rows}, drawn at random; +- is one standard error.")
    if check is not None and check.missing:
        lines.append(f"known pairs        {check.known_pairs:,} of {check.suspicion.pairs:,}")
    return "\n".join(lines)


_STRESS = {
    "normalized_stress": "normalized stress",
    "stress1": "Stress-1",
    "mse": "mean squared error",
    "raw_stress": "raw stress",
}

_MEASURES = {
    "scaled_stress": ("after scaling", "normalized stress of the map at its best scale"),
    "strain": ("strain", "misfit of classical scaling, ||B - X X'|| / ||B||"),
    "pearson": ("Pearson", "correlation of t and d"),
    "spearman": ("Spearman", "correlation of their ranks"),
    "trustworthiness": ("trustworthiness", "are the {k} nearest points of the map near?"),
    "continuity": ("continuity", "are the {k} nearest points near in the map?"),
    "neighborhood_hit": ("neighborhood hit", "share of the {k} nearest with the label of the point"),
    "knn_score": ("k-NN score", "points with the label of most of the {k} nearest"),
    "procrustes": ("Procrustes", "disparity to the known coordinates, 0 to 1"),
}


def quality_lines(found: Quality, rule: PairRule = PLAIN) -> str:
    """Format the measures of a map, one per line; those of a sample with their intervals."""
    lines = [] if found.intervals.keys() & _STRESS else [stress_lines(found, rule)]
    if not lines:
        lines = [f"{len(found.rows):,} of {found.n:,} rows, drawn at random; in brackets 95 % confidence intervals"]
        lines += [_measured(found, name, text, "") for name, text in _STRESS.items()]
    absent = OF_ALL_PAIRS if found.left_out else ()
    shown = [name for name in _MEASURES if name not in absent and getattr(found, name) is not None]
    lines += [_measured(found, name, *_MEASURES[name]) for name in shown]
    if absent:
        names = ", ".join(_MEASURES[name][0] for name in absent)
        why = "not all pairs count alike (gaps, weights, bounds or loss)"
        if rule.transformation is not None:
            why = "dissimilarities are transformed"
        lines.append(f"Left out, as {why}:\n{names}.")
        if rule.transformation is not None:
            lines.append("`psmds quality --matrix MATRIX MAP.csv` compares exported coordinates with MATRIX.")
    return "\n".join(lines)


def _measured(found: Quality, name: str, text: str, note: str) -> str:
    """Line on a measure, with its interval or else a note."""
    digits = ".6g" if name in ("mse", "raw_stress") else ".6f"
    if name in found.intervals:
        low, high = found.intervals[name]
        note = f"[{low:{digits}}, {high:{digits}}]   {note}"
    return f"{text:<18} {getattr(found, name):{digits}}   {note.format(k=found.n_neighbors)}".rstrip()


def fact_lines(facts: Mapping[str, object], indent: int = 0) -> list[str]:
    """Format facts, one per line; nested ones are indented."""
    lines: list[str] = []
    for name, value in facts.items():
        inner = value if isinstance(value, Mapping) else _numbered(value)
        if inner:
            lines += [f"{'':{indent}}{name}", *fact_lines(inner, indent + 2)]
        else:
            lines.append(f"{'':{indent}}{name:{20 - indent}} {_format(value)}".rstrip())
    return lines


def _numbered(value: object) -> Mapping[str, object]:
    """Mappings in a list, by number; empty for other values."""
    items = value if isinstance(value, list) else []
    return {str(k): item for k, item in enumerate(items, 1)} if any(isinstance(i, Mapping) for i in items) else {}


def _format(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float) and math.isnan(value):
        return "not measured"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value)) or "none"
    return "none" if value == {} else escaped(str(value))


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format a table: the first column left-aligned, others right-aligned, control characters escaped."""
    rows = [list(map(escaped, row)) for row in rows]
    widths = [max(len(line[k]) for line in [head, *rows]) for k in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [head, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)
