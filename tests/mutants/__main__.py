"""``python -m tests.mutants``: how many faults the tests of each module notice, and which survive."""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np

from tests.mutants.generating import mutants_of
from tests.mutants.running import OUTPUT, ROOT, copy_of_project, is_noticed

MODULES = {
    "schedule": (["psmds_dist/solver/schedule.py"], ["tests/solver/test_schedule.py", "tests/solver/test_solve.py"]),
    "epoch": (
        ["psmds_dist/solver/epoch.py"],
        [
            "tests/solver/test_epoch.py",
            "tests/kernels/test_gradient.py::test_the_gradient_of_the_objective_predicts_differences_of_the_error",
        ],
    ),
    "cache": (["psmds_dist/data/cache.py"], ["tests/data/test_rows.py"]),
    "checkpoint": (["psmds_dist/solver/checkpoint.py"], ["tests/solver/test_checkpoint.py"]),
    "check": (
        ["psmds_dist/ingest/check.py", "psmds_dist/ingest/scan.py"],
        ["tests/ingest/test_check.py", "tests/ingest/test_gaps.py", "tests/ingest/test_conversion.py"],
    ),
    "planning": (["psmds_dist/planning/memory.py"], ["tests/planning/test_plan.py", "tests/planning/test_cost.py"]),
    "executor": (
        ["psmds_dist/executor/dispatch.py", "psmds_dist/executor/stragglers.py", "psmds_dist/executor/errors.py"],
        ["tests/executor/test_decisions.py"],  # without a cluster
    ),
}
"""Files that get faults, and the tests that must notice them."""

EQUIVALENT = Path(__file__).parent / "equivalent.toml"


def main() -> None:
    """Print a table, and below the row of a module the faults that survive."""
    options = _options()
    known = {entry["fault"]: entry["reason"] for entry in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])}
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_project(Path(folder))
        print(f"{'module':12} {'faults':>7} {'noticed':>8} {'equal':>6} {'survive':>8} {'seconds':>8}", flush=True)
        for name in options.module:
            _study(name, options, known, copy)


def _study(name: str, options: argparse.Namespace, known: dict[str, str], copy: Path) -> None:
    paths, tests = MODULES[name]
    tests = [*tests, "-m", options.marks]
    began = time.perf_counter()
    if is_noticed(None, tests, copy, 3600):
        raise SystemExit(f"the tests of {name} fail without any fault:\n{(copy / OUTPUT).read_text()}")
    patience = 10 + 2 * (time.perf_counter() - began)
    random = np.random.default_rng(options.seed)
    each = [itertools.islice(mutants_of(path, random), options.sample // len(paths)) for path in paths]
    faults = list(itertools.chain(*each))
    equal = [fault for fault in faults if fault.words in known]
    survivors = [f for f in faults if f.words not in known and not is_noticed(f, tests, copy, patience)]
    noticed = len(faults) - len(equal) - len(survivors)
    seconds = time.perf_counter() - began
    print(f"{name:12} {len(faults):7} {noticed:8} {len(equal):6} {len(survivors):8} {seconds:8.0f}", flush=True)
    print(*survivors, sep="\n", end="\n" * bool(survivors), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", nargs="+", choices=MODULES, default=list(MODULES))
    parser.add_argument("--sample", type=int, default=60, help="faults a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--marks", default="not wide and not slow", help="tests to run, as pytest's -m")
    return parser.parse_args()


if __name__ == "__main__":
    assert Path.cwd() == ROOT, f"run it in {ROOT}"
    main()
