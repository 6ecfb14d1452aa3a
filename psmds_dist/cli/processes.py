"""Processes of a cluster that is started by hand: ``scheduler`` and ``worker``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

import click

from psmds_dist.cli.options import Positive, accept, option
from psmds_dist.cli.output import notes_shown

PORT = click.IntRange(0, 65535)


@dataclass(frozen=True)
class ProcessOptions:
    """Where a process of a cluster finds the others, and where it listens."""

    scheduler_file: str = option(
        "--scheduler-file",
        type=click.Path(dir_okay=False),
        required=True,
        help="File with the address of the scheduler, on a disk that all machines share.",
    )
    host: str | None = option("--host", help="Address to listen on.")
    interface: str | None = option("--interface", help="Network interface to listen on, such as ib0.")
    tls: str | None = option(
        "--tls", type=click.Path(), help="Use TLS with the certificate in this directory ('psmds certificates')."
    )


@click.command()
@accept(ProcessOptions, "options")
@click.option("--port", type=PORT, default=0, help="Port of the scheduler [default: a free one].")
@click.option(
    "--dashboard-port", type=PORT, default=0, help="Port of the dashboard on 127.0.0.1 [default: a free one]."
)
def scheduler(options: ProcessOptions, port: int, dashboard_port: int) -> None:
    """Run the scheduler of a cluster until it is interrupted.

    It listens on 127.0.0.1, or on the network given by --interface or --host. Without --tls anyone who can connect to
    it can run any code as you. The dashboard always listens on 127.0.0.1 only.
    """
    from psmds_dist.deploy.processes import become_scheduler

    become_scheduler(**asdict(options), port=port, dashboard_port=dashboard_port)


@click.command()
@accept(ProcessOptions, "options")
@click.option("--threads", type=click.IntRange(1), help="Kernel threads [default: all cores that it may use].")
@click.option("--name", help="Name, unique in the cluster [default: made of host and process].")
@click.option(
    "--death-timeout",
    type=Positive(),
    default=3600.0,
    show_default=True,
    help="Seconds without a scheduler after which the worker ends.",
)
def worker(options: ProcessOptions, threads: int | None, name: str | None, death_timeout: float) -> None:
    """Run a worker of a cluster until the scheduler closes.

    It listens on the network on which the scheduler is, unless --interface or --host gives another. When its
    connection breaks, it is started again until it finds the scheduler.
    """
    from psmds_dist.deploy.processes import run_worker
    from psmds_dist.utils.machine import usable_cpus

    with notes_shown(quiet=False), suppress(KeyboardInterrupt):  # the usual end of a process like this
        run_worker(**asdict(options), threads=threads or usable_cpus(), name=name, death_timeout=death_timeout)
