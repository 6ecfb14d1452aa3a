"""The command ``submit``: run another command as a batch job of Slurm."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from psmds_dist.cli.output import print_result
from psmds_dist.core.errors import InputError

if TYPE_CHECKING:
    from psmds_dist.deploy.batch import Job, Submitted

WHERE = ("cluster", "workers", "tls")
"""Parameters of commands that say where they run, which the job decides."""

NOT_IN_JOBS = ("submit", "status", "watch", "scheduler", "worker")
"""Commands about jobs, or parts of their clusters."""

_COMMAND = f"{__name__}.command"


class Submit(click.Command):
    """A command whose arguments after ``--`` are another command of psmds."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows ``--``; options before it that are unknown here are those of sbatch."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@click.command(
    cls=Submit,
    context_settings={"ignore_unknown_options": True},
    options_metavar="[OPTIONS] [SBATCH OPTIONS] -- COMMAND ...",
)
@click.option("--dry-run", is_flag=True, help="Print the script of the job instead of submitting it.")
@click.option(
    "--interface", help="Network interface of jobs on several nodes, such as ib0 [default: the network of Slurm]."
)
@click.argument("options", metavar="", nargs=-1, type=click.UNPROCESSED)
def submit(dry_run: bool, interface: str | None, options: tuple[str, ...]) -> None:
    """Run another command as a batch job of Slurm.

    \b
    psmds submit --nodes 4 --exclusive --time 24:00:00 -- fit matrix.zarr map.zarr

    On several nodes the job starts a cluster of one worker per node, connected with TLS. When it is pre-empted, loses
    a node or reaches its time limit, it is started again and continues, until the command is done. The log is
    TARGET.log.
    """  # noqa: D301
    from psmds_dist.deploy import batch
    from psmds_dist.utils.remote import is_url

    command = click.get_current_context().meta[_COMMAND]
    parameters = _parsed(command)
    target = parameters.get("target") or f"psmds-{command[0]}"
    if is_url(target):
        raise InputError(
            f"{target} is a URL, but the log and the restarts of a job need a target on a file system of its nodes; "
            "give a path there, and write to the URL with 'psmds ingest' afterwards."
        )
    resumed = "resume" in parameters and not parameters["resume"]
    job = batch.Job(
        command=[*command, *["--resume"] * resumed],
        target=os.path.abspath(target),
        directory=os.getcwd(),
        options=options,
        on_workers="cluster" in parameters,
        interface=interface,
    )
    if dry_run:
        print_result(batch.script(job).removesuffix("\n"))
        return
    print_result(_summary(job, batch.submit(job)))


def _parsed(command: Sequence[str]) -> dict[str, Any]:
    """Parameters of a command, which is checked like one that is run now."""
    ctx = click.get_current_context()
    if not command:
        raise click.UsageError("a command must follow '--', such as: psmds submit --time 60 -- fit MATRIX TARGET.")
    if command[0] in NOT_IN_JOBS:
        raise click.UsageError(f"'{command[0]}' cannot be a job: give a command that computes, such as fit.")
    parent, args = ctx.find_root(), list(command)
    found: click.Command = parent.command
    while isinstance(found, click.Group) and args:
        name, resolved, args = found.resolve_command(parent, args)
        assert resolved is not None
        found, parent = resolved, click.Context(resolved, parent, name)
    with found.make_context(parent.info_name, args, parent=parent.parent) as parsed:
        given = [name for name in WHERE if parsed.params.get(name) is not None]
    if given:
        raise click.UsageError(f"--{given[0]} cannot be used in a job, which has a cluster of its own nodes.")
    return parsed.params


def _summary(job: Job, submitted: Submitted) -> str:
    """What was submitted, where its log is, and how to watch and end it."""
    number, target = submitted.number, shlex.quote(os.path.relpath(job.target))
    return "\n".join(
        [
            f"job {number}: psmds {shlex.join(job.command)}",
            f"log: {submitted.log}",
            f"watch it: squeue --job {number}, psmds status {target}, psmds watch {target}",
            f"end it: scancel {number}",
        ]
    )
