"""Work that one process does while others wait: turns, and kernels that are compiled once."""

import os
import subprocess
import sys
import time

from psmds_dist.utils import turns
from psmds_dist.utils.turns import Turn

KERNEL = """
import sys, time
from pathlib import Path
from psmds_dist.kernels.jit import serial

@serial
def total(values):
    s = 0.0
    for k in range(values.size):
        s += values[k] ** 3
    return s

if __name__ == "__main__":
    import numpy as np
    Path(sys.argv[1]).touch()
    while not Path("go").exists():
        time.sleep(0.005)
    assert total(np.arange(4.0)) == 36
    print(sum(total.stats.cache_misses.values()), sum(total.stats.cache_hits.values()))
"""


def test_processes_that_want_a_kernel_at_once_compile_it_once(tmp_path):
    (tmp_path / "toy.py").write_text(KERNEL)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    started = [
        subprocess.Popen(
            [sys.executable, "toy.py", f"ready{k}"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        for k in range(2)
    ]
    while len(list(tmp_path.glob("ready*"))) < 2:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    told = sorted(process.communicate(timeout=120)[0].split() for process in started)
    assert told == [["0", "1"], ["1", "0"]]
    assert not list(tmp_path.rglob("*.compiling"))


def test_a_turn_is_given_to_the_next(tmp_path):
    first, second = Turn(), Turn()
    first.take(tmp_path / "lock")
    first.end()
    began = time.monotonic()
    second.take(tmp_path / "lock")
    assert time.monotonic() - began < turns.PATIENCE / 2
    second.end()
    assert not (tmp_path / "lock").exists()


def test_patience_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 0.1)
    first, second = Turn(), Turn()
    first.take(tmp_path / "lock")
    second.take(tmp_path / "lock")  # held by the first: goes on without it
    assert (tmp_path / "lock").exists()
    for turn in (second, first):
        turn.end()
    assert not (tmp_path / "lock").exists()


def test_nobody_waits_where_there_is_no_place_for_a_lock(tmp_path):
    Turn().take(tmp_path / "missing" / "lock")
    assert not (tmp_path / "missing").exists()
