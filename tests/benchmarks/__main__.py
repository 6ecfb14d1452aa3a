"""``make bench``: timings beside those of others, in one run on one machine.

Prints tables and writes ``bench-output/bench.json``. Ratios and medians are what to look at: absolute times drift
with the machine. ``--full`` adds what takes minutes (SMACOF on 10,000 points).
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

from tests.benchmarks import cases


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(cases.CASES), default=list(cases.CASES))
    parser.add_argument("--full", action="store_true", help="also what takes minutes")
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="where the MNIST test set is, if it is"
    )
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    facts = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    results = {"when": time.strftime("%Y-%m-%d %H:%M"), "facts": facts}
    for name in options.only:
        print(f"\n{name}: {cases.CASES[name].__doc__}\n", flush=True)
        results[name] = cases.CASES[name](options)
        (options.output / "bench.json").write_text(json.dumps(results, indent=2))
    print(f"\nWritten: {options.output / 'bench.json'}")


if __name__ == "__main__":
    main()
