"""Commands that write stores of dissimilarities: ``distances`` and ``ingest``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.options import (
    GEODESIC,
    ClusterOptions,
    GraphOptions,
    StorePath,
    TargetOptions,
    accept,
    disconnected_option,
    dtype_option,
    format_option,
    metric_option,
)
from psmds_dist.cli.output import parts_shown, print_note
from psmds_dist.cli.session import hint_at_unfinished_store, memory_limit, open_executor, row_names
from psmds_dist.utils.atomic import folder_above
from psmds_dist.utils.remote import is_url

if TYPE_CHECKING:
    from psmds_dist.core.sources import RowSource
    from psmds_dist.core.types import InputCheck
    from psmds_dist.data.geodesics import Geodesics
    from psmds_dist.data.objects import Objects

UNNAMED = "the points have no names (--ids FILE gives them)"
"""Part of a note on objects that do not name themselves."""


@click.command()
@click.argument("points", type=click.Path(exists=True))
@click.argument("target", type=StorePath())
@metric_option(default="euclidean", show_default=True)
@accept(GraphOptions, "graph")
@dtype_option
@accept(TargetOptions, "output")
@accept(ClusterOptions, "cluster")
def distances(
    points: str,
    target: str,
    metric: str,
    graph: GraphOptions,
    dtype: str,
    output: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Write the distances between POINTS to the store TARGET.

    POINTS is a .npy file or Zarr array of shape (N, D), or a sparse matrix of SciPy (.npz); with --metric
    package.module.function, it may also be a text file of one string per line. Such a function is called once for each
    pair, on one thread of each worker (--workers); functions of RapidFuzz run on all threads. Geodesic distances are
    shortest paths on a graph of neighbors. After an interruption, rerun the same command to continue.
    """
    from psmds_dist.data.features import open_points
    from psmds_dist.data.functions import is_function
    from psmds_dist.data.geodesics import open_geodesics
    from psmds_dist.data.objects import open_objects
    from psmds_dist.ingest.build import build

    source: RowSource
    parameters = graph.parameters(metric)
    if metric == GEODESIC:
        source = open_geodesics(points, **parameters, ids=output.ids, dtype=_row_type(dtype))
        output = replace(output, ids=None)
        _note_left_out(source, output)
    elif is_function(metric):
        source = open_objects(points, metric, dtype=_row_type(dtype))
        _note_objects(source, output)
    else:
        source = open_points(points, metric, dtype=_row_type(dtype))
    _note_dissimilarities(points, output)
    _write_store(partial(build, metric=metric, dtype=dtype), source, target, output, cluster)


def _note_objects(source: Objects, output: TargetOptions) -> None:
    """Tell what is compared, and what has no names."""
    if not output.quiet:
        unnamed = source.ids is None and output.ids is None
        print_note(f"{source.location}: {source.described}" + f"; {UNNAMED}" * unnamed)


def _note_dissimilarities(points: str, output: TargetOptions) -> None:
    """Tell when points look like what was computed from points."""
    from psmds_dist.data.formats import NPY, begins_with
    from psmds_dist.data.points import seem_dissimilarities

    if not output.quiet and begins_with(points, NPY) and seem_dissimilarities(points):
        print_note(f"{points} looks like a dissimilarity matrix; 'psmds ingest' stores it as such")


def _note_left_out(source: Geodesics, output: TargetOptions) -> None:
    """Tell how many points there are where some are left out."""
    if source.kept is not None and not output.quiet:
        print_note(f"the graph is not connected; its largest part has {source.n:,} points, the others are left out")


@click.command()
@click.argument("matrix", type=click.Path())
@click.argument("target", type=StorePath())
@format_option
@click.option(
    "--similarity",
    metavar="RULE",
    help="MATRIX holds similarities s: store 1-s, 'sqrt(1-s)', 'sqrt(2(1-s))', '-log s', 'max-s' or '1/s'.",
)
@click.option("--symmetrize", is_flag=True, help="Replace the two entries of each pair by their mean.")
@click.option(
    "--triangle",
    type=click.Choice(["upper", "lower", "auto"]),
    help="Mirror this triangle and ignore the other; 'auto' mirrors the only one that is filled.",
)
@click.option("--zero-diagonal", is_flag=True, help="Set the diagonal to zero.")
@disconnected_option
@dtype_option
@accept(TargetOptions, "output")
@accept(ClusterOptions, "cluster")
def ingest(
    matrix: str,
    target: str,
    format: str | None,
    similarity: str | None,
    symmetrize: bool,
    triangle: str | None,
    zero_diagonal: bool,
    disconnected: str,
    dtype: str,
    output: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Check MATRIX and write it to the store TARGET.

    MATRIX is a Zarr array, also in a .zip archive or at a URL (s3://bucket/m.zarr, gs://, az://, https://), or a file:
    .npy, square or in SciPy's condensed form; CSV, TSV or a table between blanks, with or without names; a PHYLIP
    matrix; a table of TSPLIB; .npz or HDF5 (of UniFrac, scikit-bio, AnnData), of several matrices with the name of one:
    file.h5::name. Text may be compressed, and a triangle, which is unpacked in TMPDIR first. Empty cells and NA are
    missing pairs. A matrix is read in blocks and never loaded as a whole. After an interruption, rerun the same command
    to continue. TARGET may be a URL, too, except of HTTP; credentials come from the environment, such as
    AWS_ACCESS_KEY_ID.
    """
    from psmds_dist.data.opening import open_matrix
    from psmds_dist.ingest.build import build

    write = partial(
        build,
        similarity=similarity,
        symmetrize=symmetrize,
        triangle=triangle,
        zero_diagonal=zero_diagonal,
        disconnected=disconnected,
        dtype=dtype,
    )
    source = open_matrix(matrix, _row_type(dtype) if similarity is None else "float64", format)
    _write_store(write, source, target, output, cluster)


def _row_type(dtype: str) -> str:
    """Type of the rows that a store of some type is made of."""
    from psmds_dist.data.encoding import HALF_SIZES

    return "float32" if dtype in HALF_SIZES else dtype


def _write_store(
    write: Callable[..., InputCheck],
    source: RowSource,
    target: str,
    output: TargetOptions,
    cluster: ClusterOptions,
) -> None:
    """Write a checked store; ``write`` is `psmds_dist.build` with the options of the command."""
    from psmds_dist.core.layout import format_bytes
    from psmds_dist.data.store import open_rows

    with open_executor(cluster, quiet=output.quiet) as executor:
        hint_at_unfinished_store(target)
        executor.check_readable(source)
        executor.check_writable(target if is_url(target) else str(folder_above(Path(os.path.realpath(target)))))
        ids = row_names(source, output.ids)
        with parts_shown("writing", output.quiet) as show:
            check = write(
                source,
                target,
                executor,
                ids=ids,
                overwrite=output.overwrite,
                memory_limit=memory_limit(cluster, executor),
                on_progress=show,
            )
    stored = open_rows(target)
    size = format_bytes(stored.array.nbytes)
    known = f", {check.known_pairs:,} known pairs" if check.missing else ""
    output.say(f"{target}: {check.n:,} points{known}, {size}, root mean square dissimilarity {check.rms:.6g}; checked.")
    if rounding := stored.encoding.describe(check.rms, check.highest):
        output.say(f"{stored.array.dtype} rounded the dissimilarities {rounding}.")
