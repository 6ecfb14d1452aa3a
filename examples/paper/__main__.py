"""``python examples/paper``: run the experiments of the paper again, and write RESULTS.md and RESULTS.html.

What is finished is kept in ``cells.json`` and ``sections``: an interrupted command goes on where it stopped, and
``--only`` renews its experiments among the others.
"""

from __future__ import annotations

import argparse
import os
import time
from importlib import import_module
from pathlib import Path

from page import page
from study import Study

EXPERIMENTS = ["manifolds", "words", "digits", "convergence", "noise", "holes"]
BEYOND = ["scaling", "larger"]
"""Run by name only."""

HEAD = """# The experiments of the paper, run again

Written by `{command}`. *Pattern search, default* is `PatternSearchMDS()` as it comes; *as in the paper* is one
random start with moves along all axes and no polish (`init="random", moves="axes", n_init=1, polish=False`). Peers are
those of scikit-learn with the same graphs of neighbors, or as many neighbors as they need; SMACOF has one random
start and at most 300 iterations. Times are wall times on the machine at hand, whatever else it was doing.

"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python examples/paper", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=EXPERIMENTS + BEYOND, default=EXPERIMENTS, help="these experiments"
    )
    parser.add_argument("--quick", action="store_true", help="small sets and few seeds: about two minutes")
    parser.add_argument("--output", type=Path, help="folder of the results [default: that of this file]")
    parser.add_argument("--words", type=Path, default=os.environ.get("PSMDS_PAPER_WORDS"), help="word vectors (.npz)")
    parser.add_argument("--mnist", type=Path, default=os.environ.get("PSMDS_PAPER_MNIST"), help="folder of MNIST")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    folder = given.output or Path(__file__).parent / ("quick" if given.quick else "")
    (folder / "sections").mkdir(parents=True, exist_ok=True)
    study = Study(folder, given.quick, given.words and Path(given.words), given.mnist and Path(given.mnist))
    began = time.perf_counter()
    for name in given.only:
        (folder / "sections" / f"{name}.md").write_text(import_module(name).run(study), encoding="utf-8")
    text = HEAD.format(command="python examples/paper" + " --quick" * given.quick) + "\n".join(finished(folder))
    (folder / "RESULTS.md").write_text(text, encoding="utf-8")
    (folder / "RESULTS.html").write_text(page(text, folder), encoding="utf-8")
    print(f"{folder / 'RESULTS.md'} and .html after {time.perf_counter() - began:.0f} s")


def finished(folder: Path) -> list[str]:
    """Sections of all experiments that were run, now or before."""
    files = [folder / "sections" / f"{name}.md" for name in EXPERIMENTS + BEYOND]
    return [file.read_text(encoding="utf-8") for file in files if file.exists()]


if __name__ == "__main__":
    main()
