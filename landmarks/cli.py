"""The command group ``psmds landmarks``, which an entry point adds to ``psmds``."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.options import (
    METRIC_HELP,
    ClusterOptions,
    GraphOptions,
    InputPath,
    RunOptions,
    StorePath,
    TargetOptions,
    accept,
    option,
    overwrite_option,
)
from psmds_dist.cli.output import events_shown, parts_shown, print_result, print_status
from psmds_dist.cli.session import (
    finish_run,
    hint_at_unfinished_store,
    memory_limit,
    open_checkpoint,
    open_executor,
    require_map_place,
    require_output,
    save,
)
from psmds_dist.core.errors import InputError
from psmds_dist.utils.text import escaped

if TYPE_CHECKING:
    from landmarks.run import LandmarkRun
    from psmds_dist.core.types import Ints

NEGLIGIBLE_STRESS = 1e-5
"""Held-out stress that more landmarks cannot lower: the rest is rounding."""

WIDE = 0.2
"""Width of an interval, as a share of its figure, beyond which it does not tell whether more landmarks would help."""

MAX_DIGITS = 18
"""Most digits of a row number; longer ones may not fit into 64 bits."""


@click.group(name="landmarks", context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Embed landmarks and place all other points.

    For matrices that are too large to be computed or read as a whole.

    \b
    psmds landmarks fit points.npy map.zarr --metric euclidean
    psmds landmarks transform map.zarr new.npy new.csv
    """  # noqa: D301


@dataclass(frozen=True)
class LandmarkOptions:
    """Which points are landmarks, and what the input holds."""

    n_landmarks: int | None = option(
        "-S", "--n-landmarks", type=click.IntRange(2), help="Number of landmarks [default: 1000, or all points]."
    )
    landmarks: str | None = option(
        "--landmarks",
        type=click.Path(exists=True, dir_okay=False),
        help="File with the row numbers of the landmarks, from 0, one per line; for a panel, those of its columns.",
    )
    selection: str = option(
        "--selection",
        type=click.Choice(["random", "maxmin", "kmeans++"]),
        default="random",
        show_default=True,
        help="How landmarks are chosen.",
    )
    metric: str | None = option(
        "--metric",
        help=f"{METRIC_HELP}, if INPUT holds points (or lines of text) instead of dissimilarities.",
    )
    seed: int = option("--seed", default=0, show_default=True, help="Seed of all random numbers.")
    dtype: str = option(
        "--dtype",
        type=click.Choice(["float32", "float64"]),
        default="float32",
        show_default=True,
        help="Type of the panel.",
    )

    @property
    def input_metric(self) -> str:
        """Metric as the estimator expects it."""
        return "precomputed" if self.metric is None else self.metric

    def rows(self) -> list[int] | None:
        """Read the row numbers in the file of landmarks; they may lie outside the input."""
        return None if self.landmarks is None else _read_rows(self.landmarks)


def _read_rows(path: str) -> list[int]:
    try:
        words = Path(path).read_text(encoding="utf-8-sig").split()
    except UnicodeDecodeError as error:
        raise InputError(
            f"--landmarks {path} is not a text file ({error.reason}); list row numbers, one per line."
        ) from None
    for word in words:
        if not (word.isascii() and word.removeprefix("-").isdigit() and len(word) <= MAX_DIGITS):
            raise InputError(f"--landmarks {path} must list row numbers, one per line; {word[:30]!r} is not one.")
    if not words:
        raise InputError(f"--landmarks {path} is empty; list row numbers, one per line.")
    return [int(word) for word in words]


@dataclass(frozen=True)
class MapOptions:
    """How the map is computed from landmarks."""

    n_components: int = option("--components", "-L", default=2, show_default=True, help="Dimensions of the map.")
    refine: str = option(
        "--refine",
        type=click.Choice(["none", "panel", "full"]),
        default="none",
        show_default=True,
        help="Refine all points against the panel or the whole matrix.",
    )
    n_init: int = option(
        "--starts", default=2, show_default=True, help="Number of starts of the landmarks, of which the best is kept."
    )
    evaluate: bool = option(
        "--evaluation/--no-evaluation", default=True, show_default=True, help="Measure the stress on held-out pairs."
    )


@main.command()
@click.argument("source", metavar="INPUT", type=InputPath())
@click.argument("target", type=StorePath())
@accept(MapOptions, "map_")
@accept(LandmarkOptions, "chosen")
@accept(GraphOptions, "graph")
@accept(RunOptions, "run")
@accept(ClusterOptions, "cluster")
def fit(
    source: str,
    target: str,
    map_: MapOptions,
    chosen: LandmarkOptions,
    graph: GraphOptions,
    run: RunOptions,
    cluster: ClusterOptions,
) -> None:
    """Embed INPUT through landmarks and write the map to TARGET.

    INPUT is a store of dissimilarities or a .npy matrix; a panel of dissimilarities to landmarks (N x S, with
    --landmarks unless it records their rows); or, with --metric, points (.npy or Zarr, N x D), or for a function of two
    strings a text file of one per line.

    The state of the run is saved in TARGET.checkpoint; after a failure, --resume continues from there to the same
    result.
    """
    from landmarks.run import LandmarkRun

    checkpoint, overwrite = open_checkpoint(target, run)
    require_map_place(target, overwrite, run, source)
    with open_executor(cluster, quiet=run.quiet) as executor, events_shown(run.quiet) as show:
        mds = LandmarkRun(
            n_components=map_.n_components,
            n_landmarks=chosen.n_landmarks,
            landmarks=chosen.rows(),
            selection=chosen.selection,
            metric=chosen.input_metric,
            metric_params=graph.parameters(chosen.metric),
            refine=map_.refine,
            n_init=map_.n_init,
            dtype=chosen.dtype,
            memory_limit=cluster.memory_limit,
            evaluate=map_.evaluate,
            random_state=chosen.seed,
            on_stage=run.say,
        )
        mds.fit_on(source, executor, checkpoint, run.ids, show)
    save(mds.model_.save, target, overwrite)
    run.say(_summary(mds, target))
    if run.plot:
        _save_picture(mds, run.plot)
    finish_run(mds.result_.stop_reason, target, checkpoint)


def _summary(mds: LandmarkRun, target: str) -> str:
    """Outcome of a fit, its notes and its figures, one per line."""
    from psmds_dist.core.types import StopReason
    from psmds_dist.planning.memory import describe_exceeded

    result = mds.result_
    notes = [result.advice] if result.stop_reason is StopReason.EPOCHS else []
    notes += [describe_exceeded(result.over)] if result.over else []
    outcome = f"\n{len(mds.embedding_):,} points by {mds.landmarks_.size:,} landmarks; map in {target}"
    return "\n".join([outcome, *(f"Note: {note}." for note in notes), _figures(mds)])


def _figures(mds: LandmarkRun) -> str:
    from psmds_dist.api.report import table

    lines = [
        f"normalized stress  {_stress(mds)}",
        f"landmarks alone    {mds.landmark_stress_:.6f}   disparity to the other starts: "
        + (", ".join(f"{value:.2g}" for value in mds.agreement_) or "none")
        + " (0: same map, 1: unrelated)",
    ]
    if len(mds.curve_):
        rows = [
            [f"{c['n_landmarks']:,}", f"{c['normalized_stress']:.6f}", f"{c['low']:.6f}", f"{c['high']:.6f}"]
            for c in mds.curve_
        ]
        lines += ["", "Held-out stress by number of landmarks, before refinement and from one start each:"]
        lines += [table(["landmarks", "held-out stress", "from", "to"], rows), _verdict(mds)]
    return "\n".join(lines)


def _verdict(mds: LandmarkRun) -> str:
    """Whether more landmarks would help, from the fewest whose stress lies within the interval of all."""
    last = mds.curve_[-1]
    if len(mds.curve_) < 2 or math.isinf(last["high"]):
        return "Too few values to judge."
    if last["normalized_stress"] > NEGLIGIBLE_STRESS and last["high"] - last["low"] > WIDE * last["normalized_stress"]:
        return "The interval is too wide to tell whether more landmarks would help."
    as_good = mds.curve_["normalized_stress"] <= max(last["high"], NEGLIGIBLE_STRESS)
    enough = int(mds.curve_["n_landmarks"][as_good][0])
    if enough < last["n_landmarks"]:
        return f"{enough:,} landmarks are as good, within the interval: more would hardly help."
    if last["normalized_stress"] <= NEGLIGIBLE_STRESS:
        return "Held-out stress is zero: more landmarks would not help."
    if mds.stress_is_exact_:
        return "Stress decreased with the number of landmarks; the stress after the full refinement is given above."
    return "Stress still decreases with the number of landmarks: more may help."


def _stress(mds: LandmarkRun) -> str:
    low, high = mds.stress_interval_
    if mds.stress_is_exact_:
        return f"{mds.normalized_stress_:.6f}   over all pairs"
    if math.isnan(mds.normalized_stress_):
        return "not measured: no pairs were held out"
    aside = mds.result_.aside.size
    pairs = f"on pairs of {aside} landmarks set aside" if aside else "on held-out pairs"
    return f"{mds.normalized_stress_:.6f}   {pairs}, 95 % interval {low:.6f} to {high:.6f}"


def _save_picture(mds: LandmarkRun, path: str) -> None:
    from psmds_dist.api.plot import save_map

    stress = "" if math.isnan(mds.normalized_stress_) else f", normalized stress {mds.normalized_stress_:.4f}"
    title = f"{len(mds.embedding_):,} points, {mds.landmarks_.size:,} landmarks{stress}"
    save_map(
        path,
        mds.embedding_,
        colour=mds.point_stress_,
        colour_label="point stress",
        title=title,
        history=mds.history_,
        ids=mds.ids_,
    )


@main.command()
@click.argument("model", type=InputPath())
@click.argument("new", type=click.Path(exists=True, dir_okay=False))
@click.argument("output", type=click.Path(dir_okay=False))
@overwrite_option
def transform(model: str, new: str, output: str, overwrite: bool) -> None:
    """Place new points into the map MODEL.

    Their coordinates are written to OUTPUT (.csv, .tsv or .npy). NEW is a .npy file. For a map of dissimilarities it
    holds those to the landmarks, one row per point, in the order of 'psmds landmarks list MODEL' (for a map of a panel,
    the order of its columns); for a map of points, it holds points.
    """
    from landmarks.model import Model
    from psmds_dist.api.results import write_coordinates
    from psmds_dist.data.sources import load_npy

    require_output(output, overwrite, model, new)
    placed = Model.load(model).transform(load_npy(os.path.abspath(new)))
    write_coordinates(output, placed)
    print_status(f"{output}: {len(placed):,} points placed into {model}")


@main.command(name="list")
@click.argument("model", type=InputPath())
@click.option("--ids", is_flag=True, help="List their names instead, if the map holds names.")
def list_landmarks(model: str, ids: bool) -> None:
    """List the row numbers of the landmarks of the map MODEL.

    They count from 0 and have the format of --landmarks.
    """
    from landmarks.model import Model

    found = Model.load(model)
    if ids and found.ids is None:
        raise InputError(f"{model} holds no row names; leave out --ids.")
    rows = found.order.tolist()
    print_result("\n".join(escaped(found.ids[row]) if ids and found.ids is not None else str(row) for row in rows))


@main.command()
@click.argument("source", metavar="INPUT", type=InputPath())
@click.argument("target", type=StorePath())
@accept(LandmarkOptions, "chosen")
@accept(GraphOptions, "graph")
@accept(TargetOptions, "output")
@accept(ClusterOptions, "cluster")
def panel(
    source: str,
    target: str,
    chosen: LandmarkOptions,
    graph: GraphOptions,
    output: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Write the dissimilarities to the landmarks to TARGET.

    After an interruption, rerun the same command to continue. 'psmds landmarks fit TARGET map.zarr' embeds the panel.
    """
    from landmarks.panel.build import build_panel
    from landmarks.panel.data import open_data
    from landmarks.solver.fit import choose_landmarks
    from landmarks.solver.types import LandmarkConfig
    from psmds_dist.core.layout import format_bytes
    from psmds_dist.data.store import require_apart

    require_apart(target, source)
    hint_at_unfinished_store(target)
    rows = chosen.rows()
    config = LandmarkConfig(n_landmarks=chosen.n_landmarks, selection=chosen.selection, seed=chosen.seed)
    with (
        open_executor(cluster, quiet=output.quiet) as executor,
        parts_shown("writing", output.quiet) as show,
        open_data(
            source,
            executor,
            metric=chosen.input_metric,
            metric_params=graph.parameters(chosen.metric),
            landmarks=rows,
            ids=output.ids,
            dtype=chosen.dtype,
        ) as data,
    ):
        if data.candidates is None:  # otherwise the input is a panel, and they name its columns
            config = replace(config, landmarks=rows)
        landmarks: Ints = choose_landmarks(data, config)
        build_panel(
            data.columns_of(landmarks),
            target,
            executor,
            ids=data.ids,
            names=data.entries(landmarks),
            metric=chosen.metric,
            overwrite=output.overwrite,
            memory_limit=memory_limit(cluster, executor),
            on_progress=show,
        )
    size = format_bytes(data.n * landmarks.size * data.dtype.itemsize)
    output.say(f"{target}: {data.n:,} points x {landmarks.size:,} landmarks, {size}; checked.")
