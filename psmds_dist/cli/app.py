"""The command ``psmds``: its subcommands, and how their errors are reported."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import click

from psmds_dist import __version__
from psmds_dist.cli import admin, build, dimensions, fit, inspect, plan, plot, processes, submit, watch
from psmds_dist.cli.exits import Interrupted, Resumable, resume_hint
from psmds_dist.cli.output import log_error, logs_json
from psmds_dist.core.errors import ClusterLost, PsmdsError
from psmds_dist.deploy.settings import prepare_process
from psmds_dist.utils.signals import Interrupts, sigterm_as_interrupt
from psmds_dist.utils.text import escaped_lines


class Commands(click.Group):
    """The commands of this package, and those that others add with the entry point ``psmds.commands``.

    An error is reported as one sentence on standard error with exit code 1, never as a traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *(point.name for point in entry_points(group="psmds.commands"))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command of this package, or load it from the package that adds it."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for point in entry_points(group="psmds.commands", name=cmd_name):
            return point.load()  # type: ignore[no-any-return]
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Errors become sentences without control characters, and SIGTERM acts like Ctrl-C."""
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            vars(error).update(message=escaped_lines(error.message))  # keeps the class of click's own errors
            if not logs_json():
                raise
            log_error(error)
            raise click.exceptions.Exit(error.exit_code) from None

    def _invoke(self, ctx: click.Context) -> Any:
        interrupts = ctx.ensure_object(Interrupts)
        try:
            with sigterm_as_interrupt(interrupts):
                return super().invoke(ctx)
        except ClusterLost as error:
            hint = resume_hint(ctx) or "no checkpoint was saved; rerun the same command"
            raise Resumable(f"{str(error).removesuffix('.')}; {hint}.") from None
        except (PsmdsError, OSError) as error:
            raise click.ClickException(_sentence(error)) from None
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, Exception) and not interrupts.came:
                raise  # Ctrl-C during an import may surface as any exception
            raise Interrupted(f"interrupted; {resume_hint(ctx)}".removesuffix("; ") + ".") from None


def _sentence(error: Exception) -> str:
    """Describe an error in one sentence."""
    if isinstance(error, FileNotFoundError) and not error.filename:  # raised by `os.getcwd`
        return "the working directory no longer exists; change to another directory and rerun the command."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return str(error)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="psmds")
def main() -> None:
    """Pattern search multidimensional scaling of matrices larger than memory.

    \b
    psmds distances points.npy matrix.zarr     compute the distances between points
    psmds ingest matrix.npy matrix.zarr        check and store an existing matrix
    psmds fit matrix.zarr map.zarr             compute a map
    psmds export map.zarr map.csv              write its coordinates with ids
    """  # noqa: D301
    prepare_process()


for _command in (
    build.distances,
    build.ingest,
    fit.fit,
    plan.plan,
    dimensions.dimensions,
    inspect.info,
    inspect.quality,
    inspect.export,
    plot.plot,
    submit.submit,
    watch.status,
    watch.watch,
    admin.certificates,
    admin.demo,
    processes.scheduler,
    processes.worker,
):
    main.add_command(_command)
