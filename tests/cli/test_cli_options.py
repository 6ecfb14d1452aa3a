"""Options of the command line become typed values."""

from dataclasses import FrozenInstanceError, dataclass

import click
import pytest
from click.testing import CliRunner

from psmds_dist.cli.app import main
from psmds_dist.cli.options import accept, option


@dataclass(frozen=True)
class Sizes:
    n_rows: int = option("--rows", "-R", default=3)
    name: str | None = option("--name")


@click.command()
@click.argument("path")
@accept(Sizes, "sizes")
@click.option("--last", is_flag=True)
def command(path, sizes, last):
    click.echo((path, sizes, last))


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["x"], Sizes(3, None)), (["x", "-R", "5"], Sizes(5, None)), (["x", "--name", "n", "--rows", "2"], Sizes(2, "n"))],
)
def test_options_of_a_dataclass_reach_a_command_as_one_value(words, expected):
    assert CliRunner().invoke(command, words).output == f"{('x', expected, False)}\n"


def test_options_appear_in_the_help_in_the_order_of_their_declaration():
    assert [parameter.name for parameter in command.params] == ["path", "n_rows", "name", "last"]


def test_options_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Sizes(1, None).n_rows = 2


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "0"])
@pytest.mark.parametrize("command", [["plan", "--points"], ["fit", "square.npy", "map.zarr", "--deadline"]])
def test_numbers_outside_their_range_are_refused(place, command, number):
    result = CliRunner().invoke(main, [*command, number])
    assert result.exit_code == 2
    assert f"Invalid value for '{command[-1]}'" in result.stderr
