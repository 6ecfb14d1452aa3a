"""Commands around runs: ``certificates`` and ``demo``."""

from __future__ import annotations

from pathlib import Path

import click

from psmds_dist.cli.output import print_status


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
def certificates(directory: str) -> None:
    """Create a TLS certificate and key in DIRECTORY, for --tls.

    Anyone who can read them can use the cluster. They are valid for one year.
    """
    from psmds_dist.executor import write_certificates

    write_certificates(directory)
    print_status(f"{directory}: certificate.pem and key.pem, readable only by you, valid for one year")


@click.command()
@click.option(
    "--output",
    default="demo-output",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Directory for stores, maps and pictures.",
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1), help="Number of Dask workers.")
@click.option("--points", default=10_000, show_default=True, type=click.IntRange(100), help="Points of the surface.")
def demo(output: str, workers: int, points: int) -> None:
    """Embed digits and a large surface on local Dask workers."""
    from psmds_dist.cli.demo import run

    run(Path(output), workers, points, print_status)
