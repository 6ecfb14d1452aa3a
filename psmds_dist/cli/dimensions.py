"""The command ``dimensions``: how many dimensions a matrix supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.options import accept, option
from psmds_dist.cli.output import notes_shown, print_result
from psmds_dist.cli.session import require_output

if TYPE_CHECKING:
    from psmds_dist.api.dimensions import Dimensions


@dataclass(frozen=True)
class CurveOptions:
    """What is embedded, and how often."""

    max_components: int = option(
        "--max", default=6, show_default=True, type=click.IntRange(1), help="Most dimensions to try."
    )
    n_init: int = option(
        "--starts",
        default=5,
        show_default=True,
        type=click.IntRange(3),
        help="Independent starts, and shuffles of the dissimilarities.",
    )
    sample: int = option(
        "--sample",
        default=1000,
        show_default=True,
        type=click.IntRange(3),
        help="Embed this many random points of a larger matrix.",
    )
    random_state: int = option("--seed", default=0, show_default=True, help="Seed of all random numbers.")
    dtype: str | None = option(
        "--dtype",
        type=click.Choice(["float32", "float64"]),
        help="Type of the rows [default: float32, or that of a store written by psmds].",
    )
    n_jobs: int | None = option("--threads", type=click.IntRange(1), help="Kernel threads [default: all cores].")
    memory_limit: str | None = option(
        "--memory-limit", help="Memory limit, such as '4 GiB' [default: 80 % of the free memory]."
    )


@dataclass(frozen=True)
class OutputOptions:
    """Files to write, and what to print."""

    plot: str | None = option("--plot", type=click.Path(dir_okay=False), help="Also save a picture of the curves.")
    csv: str | None = option("--csv", type=click.Path(dir_okay=False), help="Also write the curves (.csv or .tsv).")
    overwrite: bool = option("--overwrite", is_flag=True, help="Replace an existing file of --csv.")
    quiet: bool = option("--quiet", "-q", is_flag=True, help="Print no progress and no notes.")

    def check(self, matrix: str) -> None:
        """Reject files that cannot be written, before any work."""
        from psmds_dist.api.dimensions import require_curve_place
        from psmds_dist.api.plot import require_picture_place

        if self.csv:
            require_curve_place(self.csv)
            require_output(self.csv, self.overwrite, matrix)
        if self.plot:
            require_picture_place(self.plot, matrix, *filter(None, [self.csv]))

    def write(self, found: Dimensions) -> None:
        """Write the files."""
        from psmds_dist.api.dimensions import write_curve
        from psmds_dist.api.plot import save_curve

        if self.csv:
            write_curve(self.csv, found)
        if self.plot:
            save_curve(self.plot, found)


@click.command()
@click.argument("matrix", type=click.Path())
@accept(CurveOptions, "curve")
@accept(OutputOptions, "output")
def dimensions(matrix: str, curve: CurveOptions, output: OutputOptions) -> None:
    """Estimate how many dimensions a map of MATRIX needs.

    MATRIX is what 'psmds fit' accepts, without missing pairs. Maps in 1, 2, ... dimensions are computed from
    independent starts, of all points or of a random sample of them, and the same of random dissimilarities: those of
    MATRIX, shuffled over the pairs of points. A dimension is supported if it removes a larger share of the stress than
    it does where there is only noise.

    The command runs in one process and reads the rows of the sample only. Errors of single dissimilarities are not
    taken for dimensions; those of the features of points are, unless they are small.
    """
    from psmds_dist.api import dimensions as api
    from psmds_dist.api.report import counter
    from psmds_dist.data.opening import open_matrix

    output.check(matrix)
    source = open_matrix(matrix, curve.dtype)
    settings = {name: value for name, value in vars(curve).items() if name != "dtype"}
    with notes_shown(output.quiet), counter("maps", output.quiet) as show:
        found = api.dimensions(source, **settings, on_map=show)
    output.write(found)
    print_result("\n".join((found.coverage, "", _table(found), _COLUMNS, "", f"{found.description}.")))


_COLUMNS = (
    "gain: share of the stress that a dimension removes; shuffled: stress of random dissimilarities, where a\n"
    "dimension gains no more than the last column says (a bound for another shuffling)."
)


def _table(found: Dimensions) -> str:
    """Stress with its range over the starts, and what each dimension gains, beside those of noise."""
    from psmds_dist.api.report import table

    columns = found.table()
    names = ("n_components", "stress", "stress_low", "stress_high", "shuffled", "gain", "noise_gain")
    rows = [
        [f"{dims}", f"{stress:.4f}", f"{low:.4f}", f"{high:.4f}", f"{shuffled:.4f}", f"{gain:.1%}", f"{most:.1%}"]
        for dims, stress, low, high, shuffled, gain, most in zip(*(columns[name] for name in names), strict=True)
    ]
    return table(["L", "stress", "lowest", "highest", "shuffled", "gain", "noise gains up to"], rows)
