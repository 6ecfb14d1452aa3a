"""What a run needs from start to end: executor, memory limit, checkpoint, target and exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from psmds_dist.cli.exits import Interrupted, Resumable, set_resume_hint
from psmds_dist.cli.options import ClusterOptions, RunOptions
from psmds_dist.cli.output import Print, notes_shown, print_note, status_printer
from psmds_dist.core.errors import AlreadyComplete, InputError, StorageError
from psmds_dist.utils.remote import absolute, require_local

if TYPE_CHECKING:
    from psmds_dist.core.executor import Executor
    from psmds_dist.core.sources import RowSource
    from psmds_dist.core.types import StopReason
    from psmds_dist.solver.checkpoint import DirectoryCheckpoint

TO_CONTINUE = "rerun the same command to continue"
TO_RESUME = "rerun the same command with --resume to continue"


@contextmanager
def open_executor(cluster: ClusterOptions, *, quiet: bool = False) -> Iterator[Executor]:
    """Yield the executor that the options select; a cluster that was started for it ends with the block.

    Notes and warnings of the library are printed meanwhile, and a run that is already complete ends the command.
    """
    with _exit_if_complete(status_printer(quiet)), notes_shown(quiet), _recorded(cluster) as executor:
        yield executor


@contextmanager
def _recorded(cluster: ClusterOptions) -> Iterator[Executor]:
    """Yield the executor, with a performance report of its work where one is wanted."""
    from psmds_dist.deploy.clusters import open_executor
    from psmds_dist.executor import performance_report

    opened = open_executor(cluster.name(), threads=cluster.threads, tls=cluster.tls, deadline=cluster.deadline)
    with opened as executor, performance_report(executor, cluster.performance_report):
        yield executor


@contextmanager
def _exit_if_complete(say: Print) -> Iterator[None]:
    """End the command with exit code 0 when its run is already complete."""
    try:
        yield
    except AlreadyComplete as complete:
        say(str(complete))
        raise click.exceptions.Exit(0) from None


def memory_limit(cluster: ClusterOptions, executor: Executor) -> int:
    """Memory limit of a worker in bytes."""
    from psmds_dist.core.layout import parse_bytes

    limit = cluster.memory_limit
    return executor.memory_limit() if limit is None else parse_bytes(limit, "--memory-limit")


def row_names(source: RowSource, file: str | None) -> list[str] | None:
    """Names of the rows of a source: those in a file if one is given, otherwise its own."""
    from psmds_dist.data.ids import read_ids
    from psmds_dist.data.pairs import PairRows

    if file is not None and isinstance(source, PairRows):
        raise InputError(f"{source.location} is a list of pairs, which names its points itself; leave --ids out.")
    names = source.ids if file is None else read_ids(file, source.n)
    return None if names is None else list(names)


def with_matrices_beside(source: RowSource, ids: list[str] | None, beside: Mapping[str, str]) -> RowSource:
    """A matrix with its upper bounds and weights, where there are any."""
    from psmds_dist.api.inputs import ids_of, side_by_side
    from psmds_dist.data.opening import open_matrix

    opened = {name: open_matrix(path, source.dtype.name) for name, path in beside.items()}
    return side_by_side(source, ids, {name: (other, ids_of(other)) for name, other in opened.items()})


def require_output(output: str, overwrite: bool, *read: str) -> None:
    """Reject an output file that belongs to an input, or that exists and may not be overwritten."""
    from psmds_dist.data.store import require_apart

    require_local(output, "a file")
    require_apart(output, *read)
    if os.path.isfile(output) and not overwrite:
        raise InputError(f"{output} already exists; choose another path or use --overwrite.")


def require_map_place(target: str, overwrite: bool, run: RunOptions, source: str | None, nbytes: int = 0) -> None:
    """Reject a target or picture that cannot be written, before the run starts."""
    from psmds_dist.data.store import require_result_place

    require_result_place(target, overwrite=overwrite, nbytes=nbytes, apart=[source])
    if run.plot:
        from psmds_dist.api.plot import require_picture_place

        require_picture_place(run.plot, target, *filter(None, [source]))


def hint_at_unfinished_store(target: str) -> None:
    """If the current command leaves an unfinished store, tell how to continue it."""

    def hint() -> str:
        from psmds_dist.data.store import is_unfinished
        from psmds_dist.ingest.halves import half_of

        begun = is_unfinished(target) or is_unfinished(half_of(target))
        return f"{target} is unfinished; {TO_CONTINUE}" if begun else ""

    set_resume_hint(hint)


def open_checkpoint(target: str, run: RunOptions) -> tuple[DirectoryCheckpoint, bool]:
    """Open the checkpoint of a run, and lock it and the target until the command ends.

    Returns
    -------
    checkpoint : DirectoryCheckpoint
        The checkpoint beside the target.
    overwrite : bool
        Whether the target may be replaced. This includes a map that was cut short, and one of the same run, which may
        have been killed after it wrote the map and before it removed the checkpoint. A finished map is kept: a resumed
        run compares itself with it and ends.
    """
    from psmds_dist.api.results import attributes_at
    from psmds_dist.core.types import StopReason
    from psmds_dist.solver.checkpoint import DirectoryCheckpoint

    folder = f"{absolute(target)}.checkpoint"
    _lock(target, folder)
    stored = attributes_at(target) if run.resume else {}
    partial_map = any(reason.resumable and reason == stored.get("stop_reason") for reason in StopReason)
    identity = stored.get("run")  # missing in a landmark map that was fitted without a checkpoint
    finished = None if partial_map or run.overwrite or identity is None else (target, identity)
    checkpoint = DirectoryCheckpoint(
        folder,
        resume=run.resume,
        overwrite=run.overwrite and not run.resume,
        finished=finished,
        say=lambda text: print_note(text.rstrip(".")),
    )
    set_resume_hint(lambda: TO_RESUME if checkpoint.found else "")
    if run.resume:
        _say_what_is_resumed(checkpoint, run.say)
    return checkpoint, run.overwrite or partial_map or finished is not None


def _lock(*places: str) -> None:
    from psmds_dist.utils.locks import exclusive_lock

    with notes_shown(quiet=False):  # it may have to wait, and tells why
        for place in places:
            click.get_current_context().with_resource(exclusive_lock(place))


def _say_what_is_resumed(checkpoint: DirectoryCheckpoint, say: Print) -> None:
    if checkpoint.found:
        say(f"resuming from {checkpoint.folder}")
    elif checkpoint.finished is None:
        say(f"no checkpoint found in {checkpoint.folder}; starting a new run")


def save(write: Callable[..., object], target: str, overwrite: bool) -> None:
    """Write the map of a run to its target, or to a fallback if the target was created by someone else meanwhile."""
    from psmds_dist.data.store import save_to_fallback
    from psmds_dist.utils.locks import require_owner

    try:
        write(target, overwrite=overwrite)
    except InputError as error:
        require_owner(target)
        saved = save_to_fallback(partial(write, overwrite=False))
        raise StorageError(f"{error} The run is complete, and {saved}.") from None


def finish_run(reason: StopReason, target: str, checkpoint: DirectoryCheckpoint) -> None:
    """Remove the checkpoint of a run that is complete; otherwise fail and tell how to resume."""
    from psmds_dist.core.types import StopReason

    if not reason.resumable:
        checkpoint.remove()
        return
    how = f"{target} holds the best map so far; {TO_RESUME}."
    if reason is StopReason.INTERRUPTED:
        raise Interrupted(f"interrupted: {how}")
    failure = Resumable if reason is StopReason.LOST else click.ClickException
    raise failure(f"{reason.advice}; {how}")
