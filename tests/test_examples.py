"""Every example runs and prints the expected result."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

PROMISES = {
    "rated_stimuli.py": ((), "nearest neighbour on the map shows the same digit"),
    "gaps.py": (("gaps.png",), "recovered from a list of a fifth of the pairs: True"),
    "weights.py": (("weights.png",), "weights of one over the variance take away nine tenths of it: True"),
    "local_and_global.py": (("dial.png",), "near distances are kept better with every step, all of them worse: True"),
    "robust.py": (("robust.png",), "robust losses take away nine tenths of it: True"),
    "pinned.py": (("pinned.png",), "new samples are as well off on the old map: True"),
    "ordinal.py": (("ordinal.png",), "recovered from seven ratings, better than by metric scaling: True"),
    "seriation.py": ((), "rank correlation with the true order above 0.999: True"),
    "unfolding.py": (("titres.png",), "no worse than L-BFGS from three random starts: True"),
    "larger_than_memory.py": ((), "in this process, the same bits: True"),
    "own_source.py": ((), "near json: "),
    "strings.py": ((), "names are those of the input: True"),
    "million_points.py": (("20000",), "new points from the stored map, the same bits: True"),
}


def test_every_example_is_here():
    assert set(PROMISES) == {path.name for path in EXAMPLES.glob("*.py")}
    listed = (EXAMPLES / "README.md").read_text()
    assert all(name in listed for name in PROMISES)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISES)
def test_example(name, tmp_path):
    arguments, promise = PROMISES[name]
    run = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert promise in run.stdout
    assert ": False" not in run.stdout
    pictures = [name for name in arguments if name.endswith(".png")]
    assert [path.name for path in tmp_path.iterdir()] == pictures
