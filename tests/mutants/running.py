"""Runs the tests of a module over a fault, in a copy of the project."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.mutants.generating import Mutant

ROOT = Path(__file__).parent.parent.parent
OUTPUT = "output-of-tests.txt"
PYTEST = [
    *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore:Module already imported"),
    *("-o", "faulthandler_timeout=60", "-o", "faulthandler_exit_on_timeout=true"),  # faults make endless loops
]
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["tests.mutants.preload"])


def copy_of_project(folder: Path) -> Path:
    """Copy what Git knows, and compiled kernels with the times of their sources."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kernels = [path.relative_to(ROOT) for path in ROOT.glob("*/**/__pycache__/*.nb?") if ".venv" not in path.parts]
    for name in [*listed.splitlines(), *kernels]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def is_noticed(fault: Mutant | None, tests: list[str], folder: Path, seconds: float) -> bool:
    """Whether a test fails, or does not end, with the fault in the copy; without a fault, whether any does."""
    if fault is None:
        return _fails(tests, folder, seconds)
    place = folder / fault.path
    sound = place.read_text()
    place.write_text(fault.code)
    try:
        return _fails(tests, folder, seconds)
    finally:
        place.write_text(sound)


def _fails(tests: list[str], folder: Path, seconds: float) -> bool:
    process = FORKSERVER.Process(target=_pytest, args=(tests, folder))
    process.start()
    process.join(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with all that the tests have started
    process.join()
    return process.exitcode != 0


def _pytest(tests: list[str], folder: Path) -> None:
    import pytest

    os.setsid()
    os.chdir(folder)
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    output = os.open(OUTPUT, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for stream in range(3):
        os.dup2(output, stream)
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.split(".")[0] in ("psmds_dist", "landmarks", "tests")]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    os._exit(pytest.main([*PYTEST, *tests]))
