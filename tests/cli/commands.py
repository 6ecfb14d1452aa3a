"""Commands, run in this process."""

import sys
from pathlib import Path

from click.testing import CliRunner

from psmds_dist.cli.app import main

N = 120
IDS = [f"sample {k}, é" for k in range(N)]
PSMDS = str(Path(sys.executable).parent / "psmds")


def run(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def refused(*arguments):
    """The sentence in which a command refuses."""
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    *_, sentence = result.stderr.strip().splitlines()
    assert sentence.startswith("Error: ")
    assert sentence.endswith((".", "?")), sentence
    return sentence
