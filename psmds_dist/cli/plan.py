"""The command ``plan``: estimate what a run takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.options import RegionOptions, RuleOptions, accept, count, format_option, option
from psmds_dist.cli.output import print_result
from psmds_dist.cli.session import row_names, with_matrices_beside

if TYPE_CHECKING:
    from psmds_dist.api.forecast import Forecast
    from psmds_dist.api.probe import Reading
    from psmds_dist.core.config import SolverConfig
    from psmds_dist.core.region import Region
    from psmds_dist.core.rules import PairRule
    from psmds_dist.core.types import InputCheck
    from psmds_dist.planning.memory import RowStorage


@dataclass(frozen=True)
class PlanOptions:
    """The run to plan, and the machines it runs on."""

    points: int | None = option(
        "--points", "-N", type=count, help="Plan for this many points, instead of MATRIX; no data is needed."
    )
    n_landmarks: int | None = option(
        "--landmarks", "-S", type=count, help="Plan landmark mode with this many landmarks."
    )
    n_components: int = option("--components", "-L", default=2, show_default=True, help="Dimensions of the map.")
    epochs: int | None = option(
        "--epochs", type=click.IntRange(0), help="Epochs of the solve [default: a typical number]."
    )
    workers: int = option(
        "--workers", default=1, show_default=True, type=click.IntRange(1), help="Number of Dask workers."
    )
    threads: int | None = option(
        "--threads", type=click.IntRange(1), help="Kernel threads per worker [default: its share of the cores here]."
    )
    memory_limit: str | None = option(
        "--memory-limit", help="Memory limit per worker [default: its share of the memory of this machine]."
    )
    disk: str | None = option(
        "--disk", help="Read bandwidth per worker, such as 1.5GB/s [default: measured, or 1GB/s]."
    )
    network: str = option(
        "--network", default="1.25GB/s", show_default=True, help="Bandwidth of the scheduler's network link."
    )
    computed: bool = option(
        "--computed", is_flag=True, help="Dissimilarities to landmarks are computed from points, not read."
    )

    dtype: str | None = option(
        "--dtype", type=click.Choice(["float32", "float64"]), help="Type of the rows, as 'psmds fit' takes it."
    )
    ids: str | None = option(
        "--ids", type=click.Path(exists=True, dir_okay=False), help="Row names, as 'psmds fit' takes them."
    )

    def check(self, matrix: str | None, pairs: RuleOptions, places: RegionOptions) -> None:
        """Reject options that do not describe one run."""
        if matrix is None and self.points is None:
            raise click.UsageError("give MATRIX or --points.")
        if matrix is not None and self.points is not None:
            raise click.UsageError("MATRIX and --points are mutually exclusive; give one of them.")
        if matrix is not None and self.n_landmarks is not None:
            raise click.UsageError("--landmarks requires --points and cannot be used with MATRIX.")
        if self.n_landmarks is not None and (pairs.given or places.given):
            raise click.UsageError(
                "--landmarks plans for the squared error of free points: leave weights, bounds, losses and pinned "
                "points out, or --landmarks."
            )
        if matrix is None and (pairs.beside or places.pinned is not None):
            raise click.UsageError("--weights, --upper and --pinned are files that belong to MATRIX; give it.")
        if matrix is None and (self.dtype or self.ids):
            raise click.UsageError("--dtype and --ids are about MATRIX; give it.")
        if self.computed and self.n_landmarks is None:
            raise click.UsageError("--computed requires --landmarks; rows of a whole matrix are read.")


@dataclass(frozen=True)
class _Input:
    """What is to be read: rows, the result of an earlier check, the cost of reading them, and their read speed.

    And what is to be done with them: the configuration of the solve, and whether points have a region.
    """

    rows: RowStorage
    check: InputCheck | None
    read_cost: float
    reading: Reading
    config: SolverConfig
    placed: bool = False

    @property
    def forecast(self) -> Forecast | None:
        """Forecast of the run; None for that of a panel."""
        from psmds_dist.api.forecast import ExactForecast

        panel = self.rows.layout.width is not None and self.config.rule.parts == 1
        return None if panel else ExactForecast(self.config, self.placed)


@click.command()
@click.argument("matrix", type=click.Path(), required=False)
@format_option
@accept(PlanOptions, "options")
@accept(RuleOptions, "pairs")
@accept(RegionOptions, "places")
def plan(
    matrix: str | None, format: str | None, options: PlanOptions, pairs: RuleOptions, places: RegionOptions
) -> None:
    """Estimate memory, passes, time and bottleneck of a run.

    MATRIX is any file or store that 'psmds fit' accepts, with the weights, bounds, loss and pinned points that it would
    be given; --points needs no data. Rates are measured on this machine for about a second and assumed for every thread
    of every worker. No worker is started, and no number is checked.
    """
    from psmds_dist.api import probe
    from psmds_dist.api.forecast import job_of, plan_of, report
    from psmds_dist.core.layout import parse_bytes
    from psmds_dist.core.validation import require_neighbors
    from psmds_dist.planning.cost import Rates

    options.check(matrix, pairs, places)
    dims, workers, limit = options.n_components, options.workers, options.memory_limit
    threads = options.threads or max(1, probe.available_threads() // workers)
    bytes_per_worker = probe.memory_share(workers) if limit is None else parse_bytes(limit, "--memory-limit")
    if matrix is None:
        found = _without_data(options, pairs.rule, places)
    else:
        found = _of_matrix(matrix, format, options, pairs, places)
    require_neighbors(found.config.rule, found.rows.layout.n)
    made = plan_of(
        found.rows,
        dims,
        workers,
        bytes_per_worker,
        read_cost=found.read_cost,
        forecast=found.forecast,
    )
    rates = Rates(
        roots=probe.roots(dims, min(threads, probe.available_threads()), found.config.rule),
        distances=probe.distances(16) if options.computed else 1.0,
        disk=found.reading.speed,
        reading=found.reading.busy,
        network=_speed(options.network, "--network"),
    )
    job = job_of(
        made,
        dims,
        threads,
        epochs=options.epochs,
        forecast=found.forecast,
        checked=found.check is not None,
        computed=options.computed,
    )
    print_result(made.describe())
    if found.check is not None and found.check.missing:
        print_result(f"{found.check.known_pairs:,} of {found.check.suspicion.pairs:,} pairs are known")
    print_result(report(made, job, rates, found.forecast))


def _without_data(options: PlanOptions, rule: PairRule, places: RegionOptions) -> _Input:
    """What a run without data would read."""
    from psmds_dist.api.forecast import rows_of

    assert options.points is not None
    rows = rows_of(options.points, options.n_landmarks, options.n_components, parts=rule.parts)
    region = places.region(1, options.n_components, None)  # bounds are the same for all points
    return _Input(rows, None, 1.0, _given_reading(options), *_solved(options, rule, region))


def _of_matrix(
    matrix: str, format: str | None, options: PlanOptions, pairs: RuleOptions, places: RegionOptions
) -> _Input:
    """What a run would read, opened as 'psmds fit' does."""
    from psmds_dist.api import probe
    from psmds_dist.api.embed import rows_to_plan
    from psmds_dist.core.types import InputCheck
    from psmds_dist.core.validation import require_dims
    from psmds_dist.data.cache import stored
    from psmds_dist.data.opening import open_matrix
    from psmds_dist.ingest.passes import known_check

    first = open_matrix(matrix, options.dtype, format)
    ids = row_names(first, options.ids)
    source = with_matrices_beside(first, ids, pairs.beside)
    config, placed = _solved(options, pairs.rule, places.region(first.n, options.n_components, ids))
    require_dims(source.n, config.n_components)
    reading = _given_reading(options) if options.disk else probe.reading(source)
    check = known_check(first, InputCheck)
    if check is not None:
        config = replace(config, rule=replace(config.rule, gaps=check.missing > 0))
    rows = stored(rows_to_plan(source, config.rule))
    known = check if source is first else None  # matrices side by side are checked in every run
    return _Input(rows, known, source.read_profile.read_amplification, reading, config, placed)


def _solved(options: PlanOptions, rule: PairRule, region: Region | None) -> tuple[SolverConfig, bool]:
    """Configuration of the solve, and whether points have a region."""
    from psmds_dist.api.embed import along_axes
    from psmds_dist.core.config import SolverConfig

    config = SolverConfig(n_components=options.n_components, rule=rule)
    return (config, False) if region is None else (along_axes(config), True)


def _given_reading(options: PlanOptions) -> Reading:
    from psmds_dist.api.probe import Reading

    return Reading(_speed(options.disk or "1GB/s", "--disk"), 0.0)


def _speed(text: str, name: str) -> float:
    """Parse a speed, in bytes per second."""
    from psmds_dist.core.layout import parse_bytes

    return float(parse_bytes(re.sub(r"\s*/\s*s\s*$", "", text), name))
