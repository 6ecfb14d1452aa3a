"""The command ``fit``: compute a map in exact mode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.options import (
    SAMPLE_ROWS,
    ClusterOptions,
    RegionOptions,
    RuleOptions,
    RunOptions,
    StorePath,
    accept,
    disconnected_option,
    format_option,
    option,
)
from psmds_dist.cli.output import events_shown
from psmds_dist.cli.session import (
    finish_run,
    memory_limit,
    open_checkpoint,
    open_executor,
    require_map_place,
    row_names,
    save,
    with_matrices_beside,
)
from psmds_dist.utils.remote import absolute
from psmds_dist.utils.text import note_unsafe

if TYPE_CHECKING:
    from psmds_dist.api.embed import Embedding
    from psmds_dist.api.results import Result
    from psmds_dist.core.config import SolverConfig
    from psmds_dist.core.rules import PairRule


@dataclass(frozen=True)
class SolverOptions:
    """Parameters of the solve and of its start."""

    n_components: int = option("--components", "-L", default=2, show_default=True, help="Dimensions of the map.")
    seed: int = option("--seed", default=0, show_default=True, help="Seed of all random numbers.")
    monotone: bool = option("--monotone", is_flag=True, help="Never let the error rise (slower).")
    eps: float = option(
        "--eps",
        default=1e-4,
        show_default=True,
        help="Halve the radius when an epoch lowers the error by at most this fraction.",
    )
    radius: float | None = option("--radius", type=float, help="Initial radius [default: searched].")
    radius_tol: float | None = option(
        "--radius-tol",
        type=float,
        help="Final radius [default: 2e-4 of the root mean square dissimilarity, more on noisy data].",
    )
    max_epochs: int = option("--max-epochs", default=500, show_default=True, help="Maximum number of epochs.")
    direction_share: float = option(
        "--direction-share", default=1.0, show_default=True, help="Fraction of the axes tried per epoch."
    )
    moves: str = option(
        "--moves",
        default="auto",
        show_default=True,
        help="Moves to try: 'axes', 'guided' (against the gradient), or 'auto' (depends on the number of dimensions).",
    )
    n_init: int | None = option(
        "--starts", type=click.IntRange(1), help="Number of starts, of which the best is kept [default: by --effort]."
    )
    effort: str = option(
        "--effort",
        type=click.Choice(["quick", "default", "best"]),
        default="default",
        show_default=True,
        help="How long to search for the best map: one start, some, or twenty times as many.",
    )
    polish: bool | None = option(
        "--polish/--no-polish",
        default=None,
        help="End at a local minimum to many digits [default: up to 2,000 points; six steps up to 5,000].",
    )
    sample: int | None = option(
        "--sample",
        type=SAMPLE_ROWS,
        help="Estimate the stress of the map from this many random rows instead of a last pass over all.",
    )
    init: str = option(
        "--init",
        default="auto",
        show_default=True,
        help="Initial map: 'random', 'classical' (scaling), 'landmarks', 'sample' (for large matrices with gaps), or "
        "'auto' (depends on the number of points, and on gaps).",
    )

    def config(self, rule: PairRule) -> SolverConfig:
        """Configuration of the solve."""
        from psmds_dist.core.config import SolverConfig

        return SolverConfig(
            n_components=self.n_components,
            bad_moves=not self.monotone,
            eps=self.eps,
            radius=self.radius,
            radius_tol=self.radius_tol,
            max_epochs=self.max_epochs,
            direction_share=self.direction_share,
            moves=self.moves,
            n_init="auto" if self.n_init is None else self.n_init,
            effort=self.effort,
            polish="auto" if self.polish is None else self.polish,
            seed=self.seed,
            rule=rule,
            sample=self.sample,
        )


@click.command()
@click.argument("matrix", type=click.Path())
@click.argument("target", type=StorePath())
@format_option
@accept(SolverOptions, "solver")
@accept(RuleOptions, "pairs")
@accept(RegionOptions, "places")
@disconnected_option
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    help="Type of the rows [default: float32, or that of a store written by psmds].",
)
@accept(RunOptions, "run")
@accept(ClusterOptions, "cluster")
def fit(
    matrix: str,
    target: str,
    format: str | None,
    solver: SolverOptions,
    pairs: RuleOptions,
    places: RegionOptions,
    disconnected: str,
    dtype: str | None,
    run: RunOptions,
    cluster: ClusterOptions,
) -> None:
    """Embed MATRIX and write the map to TARGET.

    MATRIX holds dissimilarities: a store, another Zarr array, or a file of any format that 'psmds ingest' reads. TARGET
    becomes a Zarr group. For several runs or many workers, and for text that does not fit into memory, ingest MATRIX
    first: a store is read faster, is checked only once, and keeps the names of its rows.

    NaN marks a missing pair. Weights, and upper bounds of censored dissimilarities, are matrices of the same points.
    With --pinned, new points find their places on an older map, whose points stay where they are.

    Ctrl-C ends the run and writes the best map so far. The state of the run is saved in TARGET.checkpoint; after a
    failure, --resume continues from there to the same result.
    """
    from psmds_dist.api.embed import embed
    from psmds_dist.api.results import read_result, write_result
    from psmds_dist.data.opening import open_matrix
    from psmds_dist.ingest.connected import keep_connected, rows_kept

    config = solver.config(pairs.rule)
    checkpoint, overwrite = open_checkpoint(target, run)
    first = open_matrix(matrix, dtype, format)
    ids = row_names(first, run.ids)
    source = with_matrices_beside(first, ids, pairs.beside)
    region = places.region(source.n, config.n_components, ids)
    nbytes = 8 * source.n * (2 * config.n_components + 1)
    require_map_place(target, overwrite, run, first.location, nbytes)
    with open_executor(cluster, quiet=run.quiet) as executor, events_shown(run.quiet) as show:
        note_unsafe(ids)
        executor.check_readable(source)
        limit = memory_limit(cluster, executor)
        source, ids = keep_connected(
            source, executor, disconnected, ids=ids, weighted=config.rule.weighted, memory_limit=limit
        )
        if region is not None and source.n < region.n:
            region = region.of_points(rows_kept(source))
        result = embed(
            source,
            config,
            executor,
            memory_limit=cluster.memory_limit,
            ids=ids,
            init=solver.init,
            region=region,
            on_event=show,
            on_plan=lambda plan: run.say(plan.describe(executor.topology())),
            checkpoint=checkpoint,
        )
    beside = {name: absolute(path) for name, path in pairs.beside.items()}
    save(partial(write_result, result=result, matrix=first.location, beside=beside), target, overwrite)
    run.say(_summary(result, target))
    if run.plot:
        _save_picture(read_result(target), run.plot)
    finish_run(result.solution.stop_reason, target, checkpoint)


def _summary(result: Embedding, target: str) -> str:
    """Outcome of a run, its notes and its stress, one per line."""
    from psmds_dist.api.embed import CERTIFICATE_MISSING
    from psmds_dist.api.report import stress_lines
    from psmds_dist.planning.memory import describe_exceeded

    solution = result.solution
    outcome = f"{len(solution.history)} epochs in {result.seconds:.2f} s, {solution.stop_reason.description}"
    notes = [CERTIFICATE_MISSING] if result.certificate_missing else []
    notes += [result.degeneracy] if result.degeneracy else []
    notes += [describe_exceeded(result.over)] if result.over else []
    starts = filter(None, [result.evidence.describe()])
    lines = [f"{outcome}; map in {target}", *starts, *(f"Note: {note}." for note in notes)]
    lines.append(stress_lines(solution.stress, result.config.rule, result.check))
    return "\n".join(lines)


def _save_picture(result: Result, path: str) -> None:
    from psmds_dist.api.plot import save_map

    title = f"{result.attributes['n']:,} points, normalized stress {result.stress.normalized_stress:.4f}"
    save_map(
        path,
        result.embedding,
        colour=None if result.stress.standard_error else result.stress.point_stress,
        colour_label="point stress",
        title=title,
        history=result.history,
        loss=result.attributes["rule"]["loss"],
        ids=result.ids,
    )
