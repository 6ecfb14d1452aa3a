"""Options that several commands share, as frozen dataclasses whose fields declare their click options."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from psmds_dist.cli.output import Print, start_json_log, status_printer
from psmds_dist.utils.remote import is_url

if TYPE_CHECKING:
    from psmds_dist.core.region import Region
    from psmds_dist.core.rules import PairRule

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

MAX_COUNT = 10**15
"""Largest count; a float represents every whole number up to nine times this."""


GEODESIC = "geodesic"
"""Metric whose distances are shortest paths on a graph of neighbors."""


SAMPLE_ROWS = click.IntRange(20)
"""Rows of a sample: `core.config.MIN_SAMPLE`, which is not imported for a help text, as it takes NumPy."""


FILES = {".npy", ".npz", ".csv", ".tsv", ".txt", ".json", ".parquet", ".h5", ".hdf5", ".h5ad"}
"""Endings of files that are no Zarr stores."""


class StorePath(click.Path):
    """A path or URL where a Zarr store is to be written, not one that looks like that of another file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with a message."""
        if os.path.splitext(str(value))[1].lower() in FILES and not os.path.exists(value):
            advice = "end its name in .zarr (psmds export writes other files from there)"
            self.fail(f"{value} would be a Zarr store, which is a directory: {advice}.", param, ctx)
        return super().convert(value, param, ctx)


class Positive(click.FloatRange):
    """A positive, finite number. A `click.FloatRange` accepts NaN in every range."""

    def __init__(self) -> None:
        super().__init__(min=0, max=math.inf, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with a message."""
        number = float(super().convert(value, param, ctx))
        return self.fail("nan is not a number.", param, ctx) if math.isnan(number) else number


class InputPath(click.Path):
    """A path that must exist, or a URL; opening a URL tells whether something is there."""

    def __init__(self) -> None:
        super().__init__(exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with a message."""
        return value if is_url(value) else super().convert(value, param, ctx)


def count(text: str) -> int:
    """Parse a count, also in the form 1e6."""
    with suppress(ValueError):
        number = float(text)
        if number.is_integer() and 1 <= number <= MAX_COUNT:
            return int(number)
    raise click.BadParameter(f"{text} is not a whole number from 1 to {MAX_COUNT:g}.")


def option(*flags: str, **settings: Any) -> Any:
    """Declare a dataclass field that is read from a click option; the arguments are those of `click.option`."""
    return field(metadata={"flags": flags, "settings": settings})


def accept(kind: type[Any], argument: str) -> Decorator:
    """Add the options of a dataclass to a command, which receives them as one instance.

    Parameters
    ----------
    kind : type
        Dataclass whose fields are declared with `option`.
    argument : str
        Name of the command's argument.
    """

    def decorate(function: Command) -> Command:
        @wraps(function)
        def command(**values: Any) -> None:
            chosen = {declared.name: values.pop(declared.name) for declared in fields(kind)}
            function(**values, **{argument: kind(**chosen)})

        for declared in reversed(fields(kind)):
            settings = declared.metadata["settings"]
            command = click.option(declared.name, *declared.metadata["flags"], **settings)(command)
        return command

    return decorate


@dataclass(frozen=True)
class ClusterOptions:
    """Where a command runs, and with how much memory."""

    cluster: str | None = option(
        "--cluster",
        metavar="NAME",
        help="Work on a cluster: local:4, local (a worker for each NUMA node), the address or file of a Dask "
        "scheduler, slurm:file.yaml (pbs, lsf, sge), ssh:hosts.txt, kubernetes:file.yaml, or package.module:function "
        "[default: work in this process].",
    )
    workers: int | None = option(
        "--workers", type=click.IntRange(1), help="Start this many Dask workers on this machine, as --cluster local:N."
    )
    tls: str | None = option(
        "--tls",
        type=click.Path(),
        help="Use TLS with the certificate in this directory, created by 'psmds certificates'.",
    )
    deadline: float | None = option(
        "--deadline",
        type=Positive(),
        help="Seconds that a worker may hang before its blocks are reassigned [default: 30].",
    )
    threads: int | None = option(
        "--threads", type=click.IntRange(1), help="Kernel threads per process [default: all cores]."
    )
    performance_report: str | None = option(
        "--performance-report",
        type=click.Path(dir_okay=False),
        help="Write a performance report of Dask, an HTML page, to this file; rounds are slower meanwhile.",
    )
    memory_limit: str | None = option(
        "--memory-limit", help="Memory limit per worker, such as '4 GiB' [default: 80 % of the free memory]."
    )

    def name(self) -> str | None:
        """Name of the cluster, or None to work in this process.

        Raises
        ------
        click.UsageError
            When options contradict each other.
        """
        from psmds_dist.deploy.settings import default_cluster

        if self.cluster is not None and self.workers is not None:
            raise click.UsageError("--cluster and --workers are mutually exclusive; use one of them.")
        named = self.cluster if self.workers is None else f"local:{self.workers}"
        named = default_cluster() if named is None else named
        if self.tls is not None and named is None:
            raise click.UsageError("--tls requires --cluster or --workers.")
        return named


@dataclass(frozen=True)
class GraphOptions:
    """The graph whose shortest paths are geodesic distances."""

    n_neighbors: int | None = option(
        "--neighbors",
        "--neighbours",
        type=click.IntRange(1),
        help="With --metric geodesic: join each point with so many nearest ones [default: 12].",
    )
    radius: float | None = option(
        "--graph-radius", type=Positive(), help="With --metric geodesic: join all points up to this distance instead."
    )
    disconnected: str | None = option(
        "--disconnected",
        type=click.Choice(["refuse", "bridge", "largest"]),
        help="With --metric geodesic: what to do where the graph is not connected; 'bridge' joins the nearest points "
        "of every two parts, 'largest' leaves out the smaller parts [default: refuse].",
    )

    def parameters(self, metric: str | None) -> dict[str, Any]:
        """Parameters of the metric that were given.

        Raises
        ------
        click.UsageError
            When they belong to another metric.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if given and metric != GEODESIC:
            raise click.UsageError("--neighbors, --graph-radius and --disconnected require --metric geodesic.")
        return given


@dataclass(frozen=True)
class RuleOptions:
    """What a pair costs."""

    weights: str | None = option(
        "--weights", type=click.Path(), help="Matrix with the weight of each pair, zero or more; zero is missing."
    )
    upper: str | None = option(
        "--upper",
        type=click.Path(),
        help="Matrix of upper bounds (inf where there is none); MATRIX holds the lower ones.",
    )
    loss: str = option(
        "--loss",
        default="squared",
        show_default=True,
        help="Cost of a residual: squared, absolute or huber (robust), sstress, relative, log.",
    )
    weight_power: float = option(
        "--weight-power",
        default=0.0,
        show_default=True,
        help="Weigh each pair by this power of its dissimilarity; -1 is Sammon's mapping.",
    )

    local: float = option(
        "--local",
        default=0.0,
        show_default=True,
        help="Share of the objective, below 1, that the nearest points of each point have; the whole has the rest. "
        "Near distances are kept better, often at the cost of who is nearest.",
    )
    local_neighbors: int = option(
        "--local-neighbors",
        default=10,
        show_default=True,
        type=click.IntRange(1),
        help="How many points are near to each, for --local.",
    )

    transformation: str | None = option(
        "--transformation",
        help="Compare distances with a fitted function of the dissimilarities: ratio, interval, spline (a smooth one), "
        "or ordinal (any that never falls: non-metric scaling).",
    )
    ties: str = option(
        "--ties",
        default="primary",
        show_default=True,
        help="With --transformation ordinal: whether equal dissimilarities may have different disparities (primary) or "
        "not (secondary).",
    )

    @property
    def rule(self) -> PairRule:
        """Rule of the pairs."""
        from psmds_dist.core.rules import PairRule

        fitted = {"transformation": self.transformation, "ties": self.ties}
        near = {"local": self.local, "local_neighbors": self.local_neighbors}
        return PairRule.of(self.loss, self.weight_power, weights=self.weights, upper=self.upper, **fitted, **near)

    @property
    def given(self) -> bool:
        """Whether anything else is asked for than the squared error of every pair."""
        return not self.rule.plain

    @property
    def beside(self) -> dict[str, str]:
        """Paths of the matrices beside the first one."""
        return {name: path for name, path in {"upper": self.upper, "weights": self.weights}.items() if path is not None}


def interval(text: str) -> tuple[float | None, float | None]:
    """Parse LOW:HIGH; an end that is left out is no bound."""
    low, colon, high = text.partition(":")
    with suppress(ValueError):
        if colon:
            return float(low) if low.strip() else None, float(high) if high.strip() else None
    raise click.BadParameter(f"{text!r} is not LOW:HIGH, such as -1:1, or 0: for no upper bound.")


@dataclass(frozen=True)
class RegionOptions:
    """Where the points of a map may be."""

    pinned: str | None = option(
        "--pinned",
        type=click.Path(exists=True, dir_okay=False),
        help="Coordinates of points that do not move, as 'psmds export' writes them; nan marks a free one.",
    )
    bounds: tuple[tuple[float | None, float | None], ...] = option(
        "--bounds",
        multiple=True,
        type=interval,
        metavar="LOW:HIGH",
        help="Least and greatest coordinate on every axis, or once for each axis; '0:' for coordinates of at least 0.",
    )

    @property
    def given(self) -> bool:
        """Whether there is any demand."""
        return self.pinned is not None or bool(self.bounds)

    def region(self, n: int, n_components: int, ids: list[str] | None) -> Region | None:
        """Where points may be; None for anywhere."""
        from psmds_dist.core.region import Region
        from psmds_dist.data.coordinates import read_pinned

        pinned = None if self.pinned is None else read_pinned(self.pinned, n, ids)
        bounds = self.bounds[0] if len(self.bounds) == 1 else self.bounds or None
        return Region.of(n, n_components, pinned, bounds)


@dataclass(frozen=True)
class TargetOptions:
    """How a command writes its target."""

    ids: str | None = option(
        "--ids",
        type=click.Path(exists=True, dir_okay=False),
        help="Row names: one per line, or .csv/.tsv/.npy [default: those of the input store].",
    )
    overwrite: bool = option("--overwrite", is_flag=True, help="Replace an existing target.")
    quiet: bool = option("--quiet", "-q", is_flag=True, help="Print errors only.")
    log_json: bool = option(
        "--log-json",
        is_flag=True,
        is_eager=True,
        callback=start_json_log,
        help="Write progress, notes and errors to standard error as JSON, one object a line.",
    )

    @property
    def say(self) -> Print:
        """Function that prints the status, or nothing."""
        return status_printer(self.quiet)


@dataclass(frozen=True)
class RunOptions(TargetOptions):
    """How a command that computes a map writes and resumes it."""

    plot: str | None = option("--plot", type=click.Path(dir_okay=False), help="Also save a picture of the map.")
    resume: bool = option(
        "--resume",
        is_flag=True,
        help="Continue from TARGET.checkpoint if an earlier run left one; a finished map is left unchanged.",
    )


METRIC_HELP = (
    "Metric of scipy.spatial.distance.cdist, geodesic, haversine (latitudes and longitudes in degrees; km), tanimoto "
    "(bits), or a function to import, such as rapidfuzz.distance.Levenshtein.distance"
)
"""What ``--metric`` takes."""


def metric_option(**settings: Any) -> Decorator:
    """Option of the metric, with further arguments of `click.option`."""
    return click.option("--metric", help=f"{METRIC_HELP}.", **settings)


dtype_option = click.option(
    "--dtype",
    type=click.Choice(["float32", "float64", "float16", "uint16"]),
    default="float32",
    show_default=True,
    help="Type of the store. float16 and uint16 (multiples of a unit, chosen by the largest in a pass of its own) take "
    "half of the space of float32, and rows are read as such; how far they were rounded is printed.",
)
disconnected_option = click.option(
    "--disconnected",
    type=click.Choice(["refuse", "largest"]),
    default="refuse",
    show_default=True,
    help="What to do with points that no chain of known pairs joins to the others: keep the largest component only.",
)
format_option = click.option(
    "--format",
    help="Format of a file: npy, npz, hdf5, phylip, phylip-strict (names of ten characters), tsplib, csv, tsv, table "
    "(with other delimiters), pairs (two names and a value a line), or unfold (a table between two kinds of points, "
    "which become one map) [default: by its content].",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an existing file.")
