"""Options that several commands share, as frozen dataclasses whose fields declare their click options."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from psmds_dist.cli.output import Print, start_json_log, status_printer
from psmds_dist.utils.remote import is_url

if TYPE_CHECKING:
    from psmds_dist.core.rules import PairRule

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

MAX_COUNT = 10**15
"""Largest count; a float represents every whole number up to nine times this."""


GEODESIC = "geodesic"
"""Metric whose distances are shortest paths on a graph of neighbors."""


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
        help="Work on a cluster: local:4, the address or file of a Dask scheduler, slurm:file.yaml (pbs, lsf, sge), "
        "ssh:hosts.txt, kubernetes:file.yaml, or package.module:function [default: work in this process].",
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

    @property
    def rule(self) -> PairRule:
        """Rule of the pairs."""
        from psmds_dist.core.rules import PairRule

        weighted, bounded = self.weights is not None, self.upper is not None
        return PairRule(self.loss, power=self.weight_power, weighted=weighted, bounded=bounded)

    @property
    def beside(self) -> dict[str, str]:
        """Paths of the matrices beside the first one."""
        return {name: path for name, path in {"upper": self.upper, "weights": self.weights}.items() if path is not None}


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


dtype_option = click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True, help="Type of the rows."
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
