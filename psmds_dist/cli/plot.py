"""The command ``plot``: pictures of maps."""

from __future__ import annotations

from dataclasses import dataclass

import click

from psmds_dist.cli.options import InputPath, accept, option, overwrite_option
from psmds_dist.cli.output import print_status
from psmds_dist.cli.session import require_output

KINDS = ("map", "stress", "convergence", "shepard")


@dataclass(frozen=True)
class PictureOptions:
    """What is drawn, and in which colors."""

    kind: str = option(
        "--kind",
        type=click.Choice(KINDS),
        default="map",
        show_default=True,
        help="The points; colored by their stress; error and radius of each epoch; distances against dissimilarities.",
    )
    color: str | None = option(
        "--color",
        type=click.Path(exists=True, dir_okay=False),
        help="Label or value of each point: one per line, .npy, or the last column of a .csv/.tsv whose first column "
        "names the points.",
    )
    categorical: bool = option("--categorical", is_flag=True, help="Draw all numbers as classes.")
    X: str | None = option(
        "--matrix",
        type=click.Path(),
        help="Dissimilarities of a Shepard diagram [default: those that RESULT was computed from].",
    )
    sample: int | None = option(
        "--sample",
        type=click.IntRange(1),
        help="Points whose pairs a Shepard diagram shows [default: about four million pairs].",
    )
    ids: bool | None = option(
        "--ids/--no-ids",
        default=None,
        help="Write the ids of the points beside them, or do not [default: those of up to 50 points].",
    )
    title: str | None = option("--title", help="Title of the picture [default: kind, number of points and stress].")


@click.command()
@click.argument("results", nargs=-1, required=True, type=InputPath())
@click.argument("picture", type=click.Path(dir_okay=False))
@accept(PictureOptions, "options")
@overwrite_option
def plot(results: tuple[str, ...], picture: str, options: PictureOptions, overwrite: bool) -> None:
    """Draw RESULTS and save the PICTURE (.png, .pdf, .svg, ...).

    RESULTS are maps of psmds, or files with coordinates (.npy, .csv or .tsv). Several maps of the same points are drawn
    side by side, moved, turned, mirrored and brought to the size of the first; of several solves, the convergence is
    drawn together. Beyond 50,000 points, pixels are colored instead of points.
    """
    from psmds_dist.api.plot import plot as draw
    from psmds_dist.api.plot import require_picture_place

    require_picture_place(picture, *results, *filter(None, (options.color, options.X)))
    require_output(picture, overwrite, *results)
    draw(list(results), picture, **vars(options))
    print_status(f"{picture}: {options.kind} of {', '.join(results)}")
