"""The command line: ``psmds``."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from psmds_dist import __version__
from psmds_dist.core.errors import (
    AlreadyComplete,
    ClusterLost,
    DissimilarityWarning,
    InputError,
    PsmdsError,
    StorageError,
)
from psmds_dist.utils.atomic import folder_above
from psmds_dist.utils.signals import Interrupts, sigterm_as_interrupt
from psmds_dist.utils.streams import discard_output
from psmds_dist.utils.text import escaped_lines, note_unsafe

if TYPE_CHECKING:
    from psmds_dist.api.results import Result
    from psmds_dist.core.types import RowSource, StopReason
    from psmds_dist.data.points import Points
    from psmds_dist.data.sources import NpyMatrix
    from psmds_dist.data.store import ZarrRows
    from psmds_dist.executor import AnyExecutor
    from psmds_dist.solver.checkpoint import DirectoryCheckpoint

F = TypeVar("F", bound=Callable[..., Any])

GOING_ON = "psmds_dist.cli.app.going_on"
"""Where a command leaves a function that says, after an interruption, how to go on, where something is kept."""

INTERRUPTED = 130
"""Exit code after a Ctrl-C, as shells have it, and after a SIGTERM."""

TRY_AGAIN = 75
"""Exit code of a run that lost its cluster and can go on: "try again later" (EX_TEMPFAIL of sysexits.h)."""


UNWRITABLE = "standard output cannot be written ({}): send it to a file or command that takes it."
"""What is said where the answer of a command is lost."""


class Positive(click.FloatRange):
    """A number that is positive and finite: NaN is in every range of click's."""

    def __init__(self) -> None:
        super().__init__(min=0, max=math.inf, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or say what is wrong with it."""
        number = float(super().convert(value, param, ctx))
        return self.fail("nan is no number.", param, ctx) if math.isnan(number) else number


MOST = 10**15
"""Beyond nine times this, a float is not every whole number."""


def count(text: str) -> int:
    """Read how many there are of something, also from 1e6."""
    with suppress(ValueError):
        number = float(text)
        if number.is_integer() and 1 <= number <= MOST:
            return int(number)
    raise click.BadParameter(f"{text} is no whole number from 1 to {MOST:g}.")


def echo(text: str, *, err: bool = False) -> None:
    """Print lines of text, in which control characters of names and paths are escaped."""
    click.echo(escaped_lines(text), err=err)


class Interrupted(click.ClickException):
    """A Ctrl-C that nobody below has answered."""

    exit_code = INTERRUPTED


class Commands(click.Group):
    """The commands here, and those that other packages add under the entry point ``psmds.commands``.

    Faults end in a sentence on standard error and exit code 1, never in a traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands."""
        return sorted({*super().list_commands(ctx), *(point.name for point in entry_points(group="psmds.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command here, or load it from the package that adds it."""
        here = super().get_command(ctx, cmd_name)
        if here is not None:
            return here
        for point in entry_points(group="psmds.commands", name=cmd_name):
            return point.load()  # type: ignore[no-any-return]
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its faults become sentences without control characters, and a SIGTERM is a Ctrl-C."""
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            vars(error).update(message=escaped_lines(error.message))  # of click's own errors too, whose class must stay
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        interrupts = Interrupts()
        try:
            with sigterm_as_interrupt() as interrupts:
                return super().invoke(ctx)
        except ClusterLost as error:
            how = _going_on(ctx) or "nothing is kept yet, so give the same command again"
            raise Resumable(f"{str(error).removesuffix('.')}; {how}.") from None
        except (PsmdsError, OSError) as error:
            raise click.ClickException(_sentence(error)) from None
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, Exception) and not interrupts.came:
                raise  # a Ctrl-C in the middle of an import may come out as any error
            raise Interrupted(f"interrupted; {_going_on(ctx)}".removesuffix("; ") + ".") from None


def _going_on(ctx: click.Context) -> str:
    how: Callable[[], str] = ctx.meta.get(GOING_ON, str)
    return how()


class Resumable(click.ClickException):
    """A run that was cut short through no fault of its own, and can go on."""

    exit_code = TRY_AGAIN


def tell(text: str) -> None:
    """Print words about a run; its result does not depend on whether they can be written."""
    try:
        echo(text)
    except OSError as error:
        discard_output()
        if error.errno not in (errno.EPIPE, errno.EBADF):  # nobody reads on, or it was closed from the start
            echo(f"Note: standard output is lost ({error.strerror}), the result is not.", err=True)


def answer(text: str) -> None:
    """Print what a command was asked for; it fails when that cannot be written."""
    try:
        echo(text)
    except BrokenPipeError:  # who reads it has seen enough
        raise click.exceptions.Exit(1) from None
    except OSError as error:
        raise StorageError(UNWRITABLE.format(error.strerror)) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and not error.filename:  # as `os.getcwd` raises it
        return "the working directory has been removed: change to another one (cd), and run the command again."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return str(error)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="psmds")
def main() -> None:
    """Pattern search multidimensional scaling of matrices larger than memory.

    \b
    psmds distances points.npy matrix.zarr     distances of points
    psmds ingest matrix.npy matrix.zarr        a matrix you have already
    psmds fit matrix.zarr map.zarr             embed it
    psmds export map.zarr map.csv              coordinates with ids
    """  # noqa: D301


def _apply(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


executor_options = _apply(
    click.option("--workers", type=click.IntRange(1), help="Start this many Dask workers on this machine."),
    click.option("--scheduler", help="Address of a running Dask scheduler, such as tcp://host:8786."),
    click.option("--scheduler-file", type=click.Path(), help="Scheduler file of a running Dask scheduler."),
    click.option("--tls", type=click.Path(), help="Encrypt: the directory that 'psmds certificates' made."),
    click.option(
        "--deadline",
        type=Positive(),
        default=30.0,
        show_default=True,
        help="Seconds that a worker may hang before others do its work.",
    ),
    click.option("--threads", type=click.IntRange(1), help="Kernel threads a process [default: all cores]."),
    click.option("--memory-limit", help="Memory a worker may take, such as '4 GiB' [default: 80 % of what is free]."),
)
resuming = click.option(
    "--resume",
    is_flag=True,
    help="Go on from TARGET.checkpoint, where an interrupted run keeps its state; a finished map stays as it is.",
)
quietly = click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
overwriting = click.option("--overwrite", is_flag=True, help="Replace what is at the target.")
naming = click.option(
    "--ids",
    type=click.Path(exists=True, dir_okay=False),
    help="Names of the rows: one a line, or .csv/.tsv/.npy [default: those of a store].",
)
storing = _apply(
    click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True),
    naming,
    overwriting,
    executor_options,
    quietly,
)


@contextmanager
def open_executor(
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    threads: int | None,
    *,
    tls: str | None,
    deadline: float,
    quiet: bool,
) -> Iterator[AnyExecutor]:
    """Yield the executor that the options ask for; a cluster started for it ends with the block."""
    from psmds_dist.executor import DaskExecutor, InProcessExecutor, connect, dask_silenced, local_client
    from psmds_dist.kernels.jit import available_threads

    if sum(option is not None for option in (workers, scheduler, scheduler_file)) > 1:
        raise click.UsageError("give one of --workers, --scheduler and --scheduler-file.")
    with ExitStack() as stack:
        stack.enter_context(_ending(_silent if quiet else tell))
        stack.enter_context(_notes(quiet))
        if workers is not None:
            threads = threads or max(1, available_threads() // workers)
            yield DaskExecutor(stack.enter_context(local_client(workers, threads, tls)), deadline)
        elif scheduler is not None or scheduler_file is not None:
            stack.enter_context(dask_silenced())
            yield DaskExecutor(stack.enter_context(connect(scheduler, scheduler_file, tls)), deadline)
        elif tls is not None:
            raise click.UsageError("--tls needs one of --workers, --scheduler and --scheduler-file.")
        else:
            yield InProcessExecutor(threads)


@contextmanager
def _ending(say: Callable[[str], object]) -> Iterator[None]:
    """End the command well where its run has ended already."""
    try:
        yield
    except AlreadyComplete as done:
        say(str(done))
        raise click.exceptions.Exit(0) from None


class _Notes(logging.Handler):
    """Shows what the library logs as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(f"Note: {record.getMessage()}.", err=True)


@contextmanager
def _notes(quiet: bool) -> Iterator[None]:
    """Show notes of the library, and its warnings about a matrix, as lines; nothing of them where that is asked for."""
    logger, handler, level = logging.getLogger("psmds_dist"), _Notes(), logging.getLogger("psmds_dist").level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", DissimilarityWarning)
        warnings.showwarning = partial(_note_warning, warnings.showwarning)
        if quiet:
            yield
            return
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


def _note_warning(others: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Show warnings about a matrix as lines on standard error, and others as ``others`` does."""
    if issubclass(category, DissimilarityWarning):
        click.echo(f"Note: {message}.", err=True)
    else:
        others(message, category, *where)


def _build(
    source: Points | NpyMatrix | ZarrRows,
    target: str,
    options: dict[str, Any],
    executor: AnyExecutor,
    **how: Any,
) -> None:
    from psmds_dist.api.report import counter
    from psmds_dist.core.layout import format_bytes, parse_bytes
    from psmds_dist.ingest.build import build

    say_how_to_go_on(target)
    limit = options["memory_limit"]
    executor.require(source.path)
    executor.require(str(folder_above(Path(os.path.realpath(target)))))
    names = names_of(source, options["ids"])
    with counter("writing", options["quiet"]) as show:
        check = build(
            source,
            target,
            executor,
            ids=names,
            overwrite=options["overwrite"],
            memory_limit=executor.memory_limit() if limit is None else parse_bytes(limit, "--memory-limit"),
            on_progress=show,
            **how,
        )
    if not options["quiet"]:
        size = format_bytes(check.n**2 * source.dtype.itemsize)
        tell(f"{target}: {check.n:,} points, {size}, root mean square dissimilarity {check.rms:.6g}; checked.")


def say_how_to_go_on(target: str) -> None:
    """Have an interruption of this command say what is to be done with an unfinished store, if it leaves one."""

    def how() -> str:
        from psmds_dist.data.store import is_unfinished

        return f"{target} is unfinished, and the same command goes on with it" if is_unfinished(target) else ""

    click.get_current_context().meta[GOING_ON] = how


def executor_options_of(options: dict[str, Any]) -> dict[str, Any]:
    """Those of a command's options that `open_executor` takes."""
    names = ("workers", "scheduler", "scheduler_file", "threads", "tls", "deadline")
    return {name: options[name] for name in names} | {"quiet": options.get("quiet", False)}


@main.command()
@click.argument("points", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", type=click.Path())
@click.option("--metric", default="euclidean", show_default=True, help="Any metric of scipy.spatial.distance.cdist.")
@storing
def distances(points: str, target: str, metric: str, **options: Any) -> None:
    """Write the distances between POINTS (.npy, N x D) to the store TARGET.

    Run again after an interruption, it goes on where it stopped.
    """
    from psmds_dist.data.points import open_points, seem_dissimilarities

    source = open_points(points, metric, dtype=options["dtype"])
    if not options["quiet"] and seem_dissimilarities(points):
        echo(f"Note: {points} looks like dissimilarities already; 'psmds ingest' takes them as such.", err=True)
    with open_executor(**executor_options_of(options)) as executor:
        _build(source, target, options, executor, metric=metric)


@main.command()
@click.argument("matrix", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@click.option("--symmetrize", is_flag=True, help="Take the mean of both orders of each pair.")
@click.option(
    "--triangle",
    type=click.Choice(["upper", "lower", "auto"]),
    help="Mirror this triangle and ignore the other; auto mirrors a lone one.",
)
@click.option("--zero-diagonal", is_flag=True, help="Set the diagonal to zero.")
@storing
def ingest(
    matrix: str, target: str, symmetrize: bool, triangle: str | None, zero_diagonal: bool, **options: Any
) -> None:
    """Turn MATRIX into the store TARGET, checking it on the way.

    MATRIX is a .npy file, square or in SciPy's condensed form, or a Zarr array, also in a .zip archive. It is never
    loaded whole. Run again after an interruption, it goes on where it stopped.
    """
    from psmds_dist.data.sources import open_matrix

    source = open_matrix(matrix, options["dtype"])
    with open_executor(**executor_options_of(options)) as executor:
        changes = {"symmetrize": symmetrize, "triangle": triangle, "zero_diagonal": zero_diagonal}
        _build(source, target, options, executor, **changes)


@main.command()
@click.argument("matrix", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--components", "-L", "n_components", default=2, show_default=True, help="Dimensions of the map.")
@click.option("--seed", default=0, show_default=True, help="Seed of every random number.")
@click.option("--monotone", is_flag=True, help="Never let the error rise (slower).")
@click.option("--eps", default=1e-4, show_default=True, help="Halve the radius when an epoch gains at most this share.")
@click.option("--radius", type=float, help="Starting radius [default: searched].")
@click.option(
    "--radius-tol", type=float, help="End radius [default: 2e-4 of the root mean square, more on noisy data]."
)
@click.option("--max-epochs", default=500, show_default=True)
@click.option("--direction-share", default=1.0, show_default=True, help="Share of the axes tried in an epoch.")
@click.option(
    "--moves",
    default="auto",
    show_default=True,
    help="Try moves along 'axes', 'guided' ones against the gradient, or as suits the number of components.",
)
@click.option(
    "--starts",
    "n_init",
    default=1,
    show_default=True,
    help="Starts; the best is kept, all but the first random.",
)
@click.option(
    "--init",
    default="auto",
    show_default=True,
    help="Begin at 'random', at 'landmarks', or as suits the size.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    help="Type of the rows [default: float32, or what a store of psmds holds].",
)
@naming
@click.option("--plot", type=click.Path(dir_okay=False), help="Also save a picture of the map.")
@resuming
@overwriting
@executor_options
@quietly
def fit(matrix: str, target: str, **options: Any) -> None:
    """Embed the dissimilarities in MATRIX and write the map to TARGET (a Zarr group).

    MATRIX is a store, another Zarr array, or a .npy file, square or in SciPy's condensed form. Ingest it first where
    several runs are to come, or many workers: a store is read faster, checked once, and knows the names of its rows.

    Ctrl-C ends the run and keeps the best map so far. While it runs, its state is kept in TARGET.checkpoint: after a
    loss --resume goes on from there, to the same result.
    """
    from psmds_dist.api.embed import CERTIFICATE_MISSING, embed
    from psmds_dist.api.report import progress, stress_lines
    from psmds_dist.api.results import read_result, write_result
    from psmds_dist.core.config import SolverConfig
    from psmds_dist.data.sources import open_matrix
    from psmds_dist.data.store import require_result_place
    from psmds_dist.planning.memory import describe_exceeded

    say = _silent if options["quiet"] else tell
    names = ("n_components", "seed", "eps", "radius", "radius_tol", "max_epochs", "direction_share", "moves")
    config = SolverConfig(bad_moves=not options["monotone"], **{name: options[name] for name in names})
    checkpoint, overwrite = open_checkpoint(target, options["resume"], options["overwrite"], say)
    source = open_matrix(matrix, options["dtype"])
    ids = names_of(source, options["ids"])
    nbytes = 8 * source.n * (2 * config.n_components + 1)
    require_result_place(target, overwrite=overwrite, nbytes=nbytes, apart=[source.path])
    if options["plot"]:
        from psmds_dist.api.plot import require_picture_place

        require_picture_place(options["plot"], target, source.path)
    with open_executor(**executor_options_of(options)) as executor, progress(options["quiet"]) as show:
        note_unsafe(ids)
        executor.require(source.path)
        result = embed(
            source,
            config,
            executor,
            memory_limit=options["memory_limit"],
            ids=ids,
            init=options["init"],
            n_init=options["n_init"],
            on_epoch=show,
            on_plan=lambda plan: say(plan.describe()),
            checkpoint=checkpoint,
        )
    save(partial(write_result, result=result, matrix=source.path), target, overwrite)
    solution = result.solution
    how = solution.stop_reason.description
    say(f"{len(solution.history)} epochs in {result.seconds:.2f} s, {how}; map in {target}")
    if result.certificate_missing:
        say(f"Note: {CERTIFICATE_MISSING}.")
    if result.over:
        say(f"Note: {describe_exceeded(result.over)}.")
    say(stress_lines(solution.stress))
    if options["plot"]:
        _picture(read_result(target), options["plot"])
    finish_run(solution.stop_reason, target, checkpoint)


def names_of(source: Any, file: str | None) -> list[str] | None:
    """Names of the rows of a source: those in a file where it is given, otherwise its own."""
    from psmds_dist.data.ids import read_ids

    return getattr(source, "ids", None) if file is None else read_ids(file, source.n)


def open_checkpoint(
    target: str, resume: bool, overwrite: bool, say: Callable[[str], object]
) -> tuple[DirectoryCheckpoint, bool]:
    """The checkpoint beside a target, and whether what is at the target gives way; this command owns both.

    So does a map that was cut short, and one of the same run, which may have been killed between writing its map and
    removing its checkpoint. A finished map stays: a run that goes on ends when it has compared itself with it.
    """
    from psmds_dist.api.results import facts_at
    from psmds_dist.core.types import StopReason
    from psmds_dist.solver.checkpoint import DirectoryCheckpoint
    from psmds_dist.utils.locks import exclusive_lock

    folder, command = f"{os.path.abspath(target)}.checkpoint", click.get_current_context()
    for place in (target, folder):
        command.with_resource(exclusive_lock(place))
    facts = facts_at(target) if resume else {}
    cut = any(reason.resumable and reason == facts.get("stop_reason") for reason in StopReason)
    known = facts.get("run")  # not in a map through landmarks that no checkpoint watched over
    finished = None if cut or overwrite or known is None else (target, known)
    checkpoint = DirectoryCheckpoint(
        folder,
        resume=resume,
        overwrite=overwrite and not resume,
        finished=finished,
        say=partial(echo, err=True),
    )
    if resume and checkpoint.found:
        say(f"going on from {checkpoint.folder}")
    elif resume and finished is None:
        say(f"no {checkpoint.folder}: beginning anew")
    command.meta[GOING_ON] = lambda: "the same command with --resume goes on" if checkpoint.found else ""
    return checkpoint, overwrite or cut or finished is not None


def save(write: Callable[..., object], target: str, overwrite: bool) -> None:
    """Write the map of a run to its target, or elsewhere where somebody has put something there in the meantime."""
    from psmds_dist.data.store import save_to_fallback

    try:
        write(target, overwrite=overwrite)
    except InputError as error:
        raise StorageError(
            f"{error} The run has ended all the same: {save_to_fallback(partial(write, overwrite=False))}."
        ) from None


def finish_run(reason: StopReason, target: str, checkpoint: DirectoryCheckpoint) -> None:
    """End a command whose map is written: the checkpoint goes, or what can be done with it is said."""
    from psmds_dist.core.types import StopReason

    if not reason.resumable:
        checkpoint.remove()
        return
    how = f"{target} holds the best map so far; the same command with --resume goes on."
    if reason is StopReason.INTERRUPTED:
        raise Interrupted(f"interrupted: {how}")
    failure = Resumable if reason is StopReason.LOST else click.ClickException
    raise failure(f"{reason.advice}; {how}")


def _silent(text: str) -> None:
    """Say nothing."""


def _picture(result: Result, path: str) -> None:
    from psmds_dist.api.plot import save_map

    title = f"{result.attributes['n']:,} points, normalised stress {result.stress.normalized_stress:.4f}"
    save_map(
        path,
        result.embedding,
        colour=result.stress.point_stress,
        colour_label="point stress",
        title=title,
        history=result.history,
    )


@main.command()
@click.argument("path", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(path: str, as_json: bool) -> None:
    """Tell what the store, result or checkpoint at PATH is."""
    from psmds_dist.api.report import fact_lines
    from psmds_dist.data.store import describe
    from psmds_dist.solver.checkpoint import describe_run

    facts = describe_run(path) or describe(path)
    if as_json:
        answer(json.dumps(facts, indent=2))
        return
    answer("\n".join(fact_lines(facts)))


@main.command()
@click.argument("result", type=click.Path(exists=True))
@click.option("--matrix", type=click.Path(), help="The dissimilarities [default: where the result was made from].")
@click.option(
    "--worst", default=5, show_default=True, type=click.IntRange(0), help="List the points of highest stress."
)
@click.option(
    "--compare",
    multiple=True,
    type=click.Choice(["smacof", "classical"]),
    help="Run scikit-learn's method too.",
)
@executor_options
def quality(result: str, matrix: str | None, worst: int, compare: tuple[str, ...], **options: Any) -> None:
    """Measure the stress of RESULT against its matrix anew, and name its worst points."""
    from psmds_dist.api.embed import measure
    from psmds_dist.api.report import stress_lines, table
    from psmds_dist.api.results import read_result
    from psmds_dist.core.stress import worst_points
    from psmds_dist.data.sources import open_matrix

    found = read_result(result)
    place = matrix or found.attributes.get("matrix")
    if place is None:
        raise InputError(
            f"{result} does not say where its dissimilarities are (its map may come from points, a panel or memory): "
            "pass --matrix with the whole matrix."
        )
    source = open_matrix(place)
    with open_executor(**executor_options_of(options)) as executor:
        executor.require(source.path)
        stress = measure(source, found.embedding, executor, options["memory_limit"])
    answer(stress_lines(stress))
    if worst:
        rows = [[name, f"{value:.4f}"] for name, value in worst_points(stress, found.ids, worst)]
        answer("\n" + table(["worst points", "point stress"], rows))
    if compare:
        answer("\n" + table(*_comparisons(source, found, compare)))


def _comparisons(source: RowSource, found: Result, methods: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    from psmds_dist.api import compare

    matrix = compare.load(source)
    dims = int(found.attributes["n_components"])
    seed = int(found.attributes["seed"])
    runs: dict[str, Callable[..., compare.Comparison]] = {
        "smacof": partial(compare.smacof, random_state=seed),
        "classical": compare.classical_mds,
    }
    rows = [["pattern search", f"{found.stress.normalized_stress:.6f}", f"{found.attributes['seconds']:.2f}"]]
    for method in methods:
        other = runs[method](matrix, dims)
        rows.append([other.method, f"{other.stress.normalized_stress:.6f}", f"{other.seconds:.2f}"])
    return ["method", "normalised stress", "seconds"], rows


@main.command()
@click.argument("matrix", type=click.Path(), required=False)
@click.option("--points", "-N", type=count, help="Instead of MATRIX: plan for so many points, without data.")
@click.option("--landmarks", "-S", "n_landmarks", type=count, help="Plan a map of the points by so many landmarks.")
@click.option("--components", "-L", "n_components", default=2, show_default=True, help="Dimensions of the map.")
@click.option("--epochs", type=click.IntRange(0), help="Epochs of the solve [default: what is usual].")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Dask workers; none is started.")
@click.option("--threads", type=click.IntRange(1), help="Kernel threads of each [default: a share of the cores here].")
@click.option("--memory-limit", help="Memory a worker may take [default: a share of this machine's].")
@click.option("--disk", help="What a worker reads in a second, such as 1.5GB/s [default: measured, or 1GB/s].")
@click.option("--network", default="1.25GB/s", show_default=True, help="What the scheduler's link carries in a second.")
@click.option("--computed", is_flag=True, help="Dissimilarities to landmarks are computed from points, not read.")
def plan(matrix: str | None, points: int | None, n_landmarks: int | None, **options: Any) -> None:
    """Tell what a map of MATRIX, or of so many points, takes: memory, passes, time, and what saturates first.

    MATRIX is what 'psmds fit' takes: a store, another Zarr array, or a .npy file. A second of measuring on this machine
    stands for every thread of every worker. Nothing is started.
    """
    from psmds_dist.api import probe
    from psmds_dist.api.embed import known_check
    from psmds_dist.api.forecast import job_of, plan_of, report, rows_of
    from psmds_dist.core.config import SolverConfig
    from psmds_dist.core.layout import parse_bytes
    from psmds_dist.core.validation import require_dims
    from psmds_dist.data.cache import read_cost, stored
    from psmds_dist.data.sources import open_matrix
    from psmds_dist.planning.cost import Rates

    _require_one_job(matrix, points, n_landmarks, options["computed"])
    dims, workers = options["n_components"], options["workers"]
    threads = options["threads"] or max(1, probe.available_threads() // workers)
    limit = options["memory_limit"]
    bytes_a_worker = probe.memory_share(workers) if limit is None else parse_bytes(limit, "--memory-limit")
    reads, checked, cost = probe.Reading(_speed(options["disk"] or "1GB/s", "--disk"), 0.0), False, 1.0
    if points is not None:
        rows = rows_of(points, n_landmarks, dims)
    else:
        source = open_matrix(matrix)
        rows, checked, cost = stored(source), known_check(source) is not None, read_cost(source)
        require_dims(source.n, SolverConfig(n_components=dims).n_components)
        reads = reads if options["disk"] else probe.reading(source)
    made = plan_of(rows, dims, workers, bytes_a_worker, read_cost=cost)
    rates = Rates(
        roots=probe.roots(dims, min(threads, probe.available_threads())),
        distances=probe.distances(16) if options["computed"] else 1.0,
        disk=reads.speed,
        reading=reads.busy,
        network=_speed(options["network"], "--network"),
    )
    job = job_of(made, dims, threads, epochs=options["epochs"], checked=checked, computed=options["computed"])
    answer(made.describe())
    answer(report(made, job, rates))


def _require_one_job(matrix: str | None, points: int | None, n_landmarks: int | None, computed: bool) -> None:
    """Refuse options of which it is not clear, together, what they plan."""
    if (matrix is None) == (points is None):
        came = "neither came" if points is None else "both came"
        raise click.UsageError(f"give MATRIX or --points, one of them: {came}.")
    if points is None and n_landmarks is not None:
        raise click.UsageError("--landmarks goes with --points, not with MATRIX.")
    if computed and n_landmarks is None:
        raise click.UsageError("--computed goes with --landmarks: rows of a whole matrix are read.")


def _speed(text: str, name: str) -> float:
    """Bytes a second."""
    from psmds_dist.core.layout import parse_bytes

    return float(parse_bytes(re.sub(r"\s*/\s*s\s*$", "", text), name))


@main.command()
@click.argument("result", type=click.Path(exists=True))
@click.argument("output", type=click.Path(dir_okay=False))
@overwriting
def export(result: str, output: str, overwrite: bool) -> None:
    """Write the coordinates of RESULT to OUTPUT: .csv or .tsv with ids and point stress, or .npy.

    In ids, control characters become escapes. An id that a spreadsheet would take for a formula gets a leading
    apostrophe, which --ids OUTPUT takes off again; signed numbers stay.
    """
    from psmds_dist.api.results import export_stored

    require_output(output, overwrite, result)
    export_stored(result, output)
    tell(f"{output}: the coordinates of {result}")


def require_output(output: str, overwrite: bool, *read: str) -> None:
    """Refuse a file to write that lies in what is read, or is there and was not to be replaced."""
    from psmds_dist.data.store import require_apart

    require_apart(output, *read)
    if os.path.isfile(output) and not overwrite:
        raise InputError(f"{output} exists, so it stays; give another path, or --overwrite.")


@main.command()
@click.argument("directory", type=click.Path(file_okay=False))
def certificates(directory: str) -> None:
    """Make a certificate and its key in DIRECTORY, for --tls.

    Everyone who can read them can use the cluster: keep them to yourself. They are valid for a year.
    """
    from psmds_dist.executor import write_certificates

    write_certificates(directory)
    tell(f"{directory}: certificate.pem and key.pem, readable by you alone, valid for a year")


@main.command()
@click.option("--output", default="demo-output", show_default=True, type=click.Path(file_okay=False))
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1))
@click.option("--points", default=10_000, show_default=True, type=click.IntRange(100), help="Points of the manifold.")
def demo(output: str, workers: int, points: int) -> None:
    """Embed real digits and a large manifold on Dask workers of this machine, and draw both maps."""
    from psmds_dist.cli.demo import run

    run(Path(output), workers, points, tell)
