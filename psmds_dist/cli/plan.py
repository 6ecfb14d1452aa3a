"""The command ``plan``: estimate what a run takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.options import accept, count, option
from psmds_dist.cli.output import print_result

if TYPE_CHECKING:
    from psmds_dist.api.probe import Reading
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

    def check(self, matrix: str | None) -> None:
        """Reject options that do not describe one run."""
        if matrix is None and self.points is None:
            raise click.UsageError("give MATRIX or --points.")
        if matrix is not None and self.points is not None:
            raise click.UsageError("MATRIX and --points are mutually exclusive; give one of them.")
        if matrix is not None and self.n_landmarks is not None:
            raise click.UsageError("--landmarks requires --points and cannot be used with MATRIX.")
        if self.computed and self.n_landmarks is None:
            raise click.UsageError("--computed requires --landmarks; rows of a whole matrix are read.")


@dataclass(frozen=True)
class _Input:
    """What is to be read: rows, the result of an earlier check, the cost of reading them, and their read speed."""

    rows: RowStorage
    check: InputCheck | None
    read_cost: float
    reading: Reading


@click.command()
@click.argument("matrix", type=click.Path(), required=False)
@accept(PlanOptions, "options")
def plan(matrix: str | None, options: PlanOptions) -> None:
    """Estimate memory, passes, time and bottleneck of a run.

    MATRIX is any file or store that 'psmds fit' accepts; --points needs no data. Rates are measured on this machine for
    about a second and assumed for every thread of every worker. No worker is started.
    """
    from psmds_dist.api import probe
    from psmds_dist.api.forecast import job_of, plan_of, report
    from psmds_dist.core.layout import parse_bytes
    from psmds_dist.planning.cost import Rates

    options.check(matrix)
    dims, workers, limit = options.n_components, options.workers, options.memory_limit
    threads = options.threads or max(1, probe.available_threads() // workers)
    bytes_per_worker = probe.memory_share(workers) if limit is None else parse_bytes(limit, "--memory-limit")
    found = _without_data(options) if matrix is None else _of_matrix(matrix, options)
    made = plan_of(
        found.rows,
        dims,
        workers,
        bytes_per_worker,
        read_cost=found.read_cost,
    )
    rates = Rates(
        roots=probe.roots(dims, min(threads, probe.available_threads())),
        distances=probe.distances(16) if options.computed else 1.0,
        disk=found.reading.speed,
        reading=found.reading.busy,
        network=_speed(options.network, "--network"),
    )
    job = job_of(made, dims, threads, epochs=options.epochs, checked=found.check is not None, computed=options.computed)
    print_result(made.describe())
    if found.check is not None and found.check.missing:
        print_result(f"{found.check.known_pairs:,} of {found.check.suspicion.pairs:,} pairs are known")
    print_result(report(made, job, rates))


def _without_data(options: PlanOptions) -> _Input:
    from psmds_dist.api.forecast import rows_of

    assert options.points is not None
    rows = rows_of(options.points, options.n_landmarks, options.n_components)
    return _Input(rows, None, 1.0, _given_reading(options))


def _of_matrix(matrix: str, options: PlanOptions) -> _Input:
    from psmds_dist.api import probe
    from psmds_dist.core.config import SolverConfig
    from psmds_dist.core.types import InputCheck
    from psmds_dist.core.validation import require_dims
    from psmds_dist.data.cache import stored
    from psmds_dist.data.opening import open_matrix
    from psmds_dist.ingest.passes import known_check

    source = open_matrix(matrix)
    require_dims(source.n, SolverConfig(n_components=options.n_components).n_components)
    reading = _given_reading(options) if options.disk else probe.reading(source)
    return _Input(stored(source), known_check(source, InputCheck), source.read_profile.read_amplification, reading)


def _given_reading(options: PlanOptions) -> Reading:
    from psmds_dist.api.probe import Reading

    return Reading(_speed(options.disk or "1GB/s", "--disk"), 0.0)


def _speed(text: str, name: str) -> float:
    """Parse a speed, in bytes per second."""
    from psmds_dist.core.layout import parse_bytes

    return float(parse_bytes(re.sub(r"\s*/\s*s\s*$", "", text), name))
