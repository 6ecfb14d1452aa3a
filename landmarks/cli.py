"""``psmds landmarks``: enters the command line by an entry point."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from psmds_dist.cli.app import (
    answer,
    executor_options,
    executor_options_of,
    finish_run,
    naming,
    open_checkpoint,
    open_executor,
    overwriting,
    quietly,
    require_output,
    resuming,
    save,
    say_how_to_go_on,
    tell,
)
from psmds_dist.core.errors import InputError
from psmds_dist.utils.text import escaped

if TYPE_CHECKING:
    from landmarks.estimator import LandmarkMDS
    from psmds_dist.core.types import Ints

NEGLIGIBLE = 1e-5
"""Held-out stress that no further landmark could lower: what is left is rounding."""

MANY_DIGITS = 19
"""So many may not fit into 64 bits."""

METRIC = "Metric of scipy.spatial.distance.cdist, when INPUT holds points and not dissimilarities."


@click.group(name="landmarks", context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Embed landmarks and place everybody else: for matrices that will never be computed whole.

    \b
    psmds landmarks fit points.npy map.zarr --metric euclidean
    psmds landmarks transform map.zarr new.npy new.csv
    """  # noqa: D301


choosing = (
    click.option(
        "-S", "--n-landmarks", type=click.IntRange(2), help="Number of landmarks [default: 1000, or all points]."
    ),
    click.option(
        "--landmarks",
        type=click.Path(exists=True, dir_okay=False),
        help="Your own: row numbers from 0, one a line; of a panel, those of its columns.",
    ),
    click.option(
        "--selection", type=click.Choice(["random", "maxmin", "kmeans++"]), default="random", show_default=True
    ),
    click.option("--metric", help=METRIC),
    click.option("--seed", default=0, show_default=True, help="Seed of every random number."),
    click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True),
)


def _choosing(function: Any) -> Any:
    for option in reversed(choosing):
        function = option(function)
    return function


@main.command()
@click.argument("source", metavar="INPUT", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@click.option("--components", "-L", "n_components", default=2, show_default=True, help="Dimensions of the map.")
@click.option(
    "--refine", type=click.Choice(["none", "panel", "full"]), default="none", show_default=True,
    help="Let landmarks move too, or polish against the whole matrix.",
)  # fmt: skip
@click.option("--starts", "n_init", default=2, show_default=True, help="Starts of the landmarks; the best is kept.")
@click.option("--no-evidence", is_flag=True, help="Do not measure stress on held-out pairs.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Also save a picture of the map.")
@_choosing
@naming
@resuming
@overwriting
@executor_options
@quietly
def fit(source: str, target: str, **options: Any) -> None:
    """Embed INPUT through landmarks and write the map to TARGET (a Zarr group).

    INPUT is a store of dissimilarities or a .npy matrix, a panel of dissimilarities to landmarks (N x S, with
    --landmarks where it does not tell their rows itself), or, with --metric, points (.npy or Zarr, N x D). While it
    runs, its state is kept in TARGET.checkpoint: after a loss --resume goes on from there, to the same result.
    """
    from landmarks.estimator import LandmarkMDS
    from psmds_dist.core.types import StopReason
    from psmds_dist.data.store import require_result_place
    from psmds_dist.planning.memory import describe_exceeded

    say = _silent if options["quiet"] else tell
    checkpoint, overwrite = open_checkpoint(target, options["resume"], options["overwrite"], say)
    require_result_place(target, overwrite=overwrite, apart=[source])
    if options["plot"]:
        from psmds_dist.api.plot import require_picture_place

        require_picture_place(options["plot"], target, source)
    names = ("n_components", "n_landmarks", "selection", "refine", "n_init", "dtype", "memory_limit")
    with open_executor(**executor_options_of(options)) as executor:
        mds = LandmarkMDS(
            landmarks=_own(options["landmarks"]),
            metric="precomputed" if options["metric"] is None else options["metric"],
            evaluate=not options["no_evidence"],
            random_state=options["seed"],
            on_stage=say,
            **{name: options[name] for name in names},
        )
        mds.fit_on(source, executor, checkpoint, options["ids"])
    save(mds.save, target, overwrite)
    say(f"\n{len(mds.embedding_):,} points by {mds.landmarks_.size:,} landmarks; map in {target}")
    if mds.result_.stop_reason is StopReason.EPOCHS:
        say(f"Note: {mds.result_.advice}.")
    if mds.result_.over:
        say(f"Note: {describe_exceeded(mds.result_.over)}.")
    say(_figures(mds))
    if options["plot"]:
        _picture(mds, options["plot"])
    finish_run(mds.result_.stop_reason, target, checkpoint)


def _silent(text: str) -> None:
    """Say nothing."""


def _own(path: str | None) -> list[int] | None:
    """Row numbers in a file, some of which may be no rows of the input."""
    if path is None:
        return None
    try:
        words = Path(path).read_text(encoding="utf-8-sig").split()
    except UnicodeDecodeError as error:
        raise InputError(f"--landmarks {path} is no text ({error.reason}): list row numbers, one a line.") from None
    for word in words:
        if not (word.isascii() and word.removeprefix("-").isdigit() and len(word) < MANY_DIGITS):
            raise InputError(f"--landmarks {path} must list row numbers, one a line, but {word[:30]!r} is none.")
    if not words:
        raise InputError(f"--landmarks {path} is empty: list row numbers, one a line.")
    return [int(word) for word in words]


def _figures(mds: LandmarkMDS) -> str:
    from psmds_dist.api.report import table

    lines = [
        f"normalised stress  {_stress(mds)}",
        f"landmarks alone    {mds.landmark_stress_:.6f}   disparity of the other starts: "
        + (", ".join(f"{value:.2g}" for value in mds.agreement_) or "no others")
        + " (0: the same map, 1: nothing in common)",
    ]
    if len(mds.curve_):
        rows = [
            [f"{c['n_landmarks']:,}", f"{c['normalized_stress']:.6f}", f"{c['low']:.6f}", f"{c['high']:.6f}"]
            for c in mds.curve_
        ]
        lines += ["", "Are these landmarks enough? Before any refinement, and from one start each:"]
        lines += [table(["landmarks", "held-out stress", "from", "to"], rows), _verdict(mds)]
    return "\n".join(lines)


def _verdict(mds: LandmarkMDS) -> str:
    """What the curve says: the fewest landmarks whose stress lies within the interval of all."""
    last = mds.curve_[-1]
    if len(mds.curve_) < 2 or math.isinf(last["high"]):
        return "That is too little to tell by."
    as_good = mds.curve_["normalized_stress"] <= max(last["high"], NEGLIGIBLE)
    enough = int(mds.curve_["n_landmarks"][as_good][0])
    if enough < last["n_landmarks"]:
        return f"{enough:,} do as well, within the interval: more landmarks would bring little."
    if last["normalized_stress"] <= NEGLIGIBLE:
        return "Held-out stress is zero with these: more landmarks would bring nothing."
    if mds.stress_is_exact_:
        return "Stress fell with the number of landmarks, but the polish has come after that: its stress is above."
    return "Stress still falls with the number of landmarks: more may help."


def _stress(mds: LandmarkMDS) -> str:
    low, high = mds.stress_interval_
    if mds.stress_is_exact_:
        return f"{mds.normalized_stress_:.6f}   over all pairs"
    if math.isnan(mds.normalized_stress_):
        return "not measured: no pairs were held out"
    aside = mds.result_.aside.size
    pairs = f"on pairs of {aside} landmarks set aside" if aside else "on held-out pairs"
    return f"{mds.normalized_stress_:.6f}   {pairs}, 95 % interval {low:.6f} to {high:.6f}"


def _picture(mds: LandmarkMDS, path: str) -> None:
    from psmds_dist.api.plot import save_map

    stress = "" if math.isnan(mds.normalized_stress_) else f", normalised stress {mds.normalized_stress_:.4f}"
    title = f"{len(mds.embedding_):,} points, {mds.landmarks_.size:,} landmarks{stress}"
    save_map(
        path,
        mds.embedding_,
        colour=mds.point_stress_,
        colour_label="point stress",
        title=title,
        history=mds.history_,
    )


@main.command()
@click.argument("model", type=click.Path(exists=True))
@click.argument("new", type=click.Path(exists=True, dir_okay=False))
@click.argument("output", type=click.Path(dir_okay=False))
@overwriting
def transform(model: str, new: str, output: str, overwrite: bool) -> None:
    """Place new points into the map MODEL and write their coordinates to OUTPUT (.csv, .tsv or .npy).

    NEW is a .npy file: dissimilarities to the landmarks, one row a point, in the order in which 'psmds landmarks list
    MODEL' tells them (for a map of a panel, the order of its columns); or the points themselves when the map was made
    from points.
    """
    from landmarks.estimator import LandmarkMDS
    from psmds_dist.api.results import write_coordinates
    from psmds_dist.data.sources import load_npy

    require_output(output, overwrite, model, new)
    placed = LandmarkMDS.load(model).transform(load_npy(os.path.abspath(new)))
    write_coordinates(output, placed)
    tell(f"{output}: {len(placed):,} points placed into {model}")


@main.command(name="list")
@click.argument("model", type=click.Path(exists=True))
@click.option("--ids", is_flag=True, help="Their names instead, where the map knows them.")
def listing(model: str, ids: bool) -> None:
    """List the landmarks of the map MODEL, row numbers from 0, as --landmarks takes them."""
    from landmarks.model import Model

    found = Model.load(model)
    if ids and found.ids is None:
        raise InputError(f"{model} knows no names of its rows: leave --ids out.")
    rows = found.landmarks.tolist()
    answer("\n".join(escaped(found.ids[row]) if ids and found.ids is not None else str(row) for row in rows))


@main.command()
@click.argument("source", metavar="INPUT", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@_choosing
@naming
@overwriting
@executor_options
@quietly
def panel(source: str, target: str, **options: Any) -> None:
    """Write dissimilarities of all points of INPUT to chosen landmarks to the store TARGET.

    Run again after an interruption, it goes on where it stopped. 'psmds landmarks fit TARGET map.zarr' embeds it.
    """
    from landmarks.panel.build import build_panel
    from landmarks.panel.data import open_data
    from landmarks.solver.fit import choose_landmarks
    from landmarks.solver.types import LandmarkConfig
    from psmds_dist.api.report import counter
    from psmds_dist.core.layout import format_bytes, parse_bytes
    from psmds_dist.data.store import require_apart

    require_apart(target, source)
    say_how_to_go_on(target)
    metric = "precomputed" if options["metric"] is None else options["metric"]
    own = _own(options["landmarks"])
    config = LandmarkConfig(n_landmarks=options["n_landmarks"], selection=options["selection"], seed=options["seed"])
    with (
        open_executor(**executor_options_of(options)) as executor,
        counter("writing", options["quiet"]) as show,
        open_data(source, executor, metric=metric, landmarks=own, ids=options["ids"], dtype=options["dtype"]) as data,
    ):
        limit = options["memory_limit"]
        budget = executor.memory_limit() if limit is None else parse_bytes(limit, "--memory-limit")
        if data.candidates is None:  # of a panel they have told what its columns are
            config = replace(config, landmarks=own)
        landmarks: Ints = choose_landmarks(data, config)
        build_panel(
            data.columns_of(landmarks), target, executor, ids=data.ids, names=data.entries(landmarks),
            metric=options["metric"], overwrite=options["overwrite"], memory_limit=budget, on_progress=show,
        )  # fmt: skip
    if not options["quiet"]:
        size = format_bytes(data.n * landmarks.size * data.dtype.itemsize)
        tell(f"{target}: {data.n:,} points x {landmarks.size:,} landmarks, {size}; checked.")
