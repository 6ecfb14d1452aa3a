"""Interrupts while Zarr's threads write a directory that will be renamed, and while a place is tried."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import zarr.storage._local as local

from psmds_dist.data.store import write_result
from psmds_dist.data.store.paths import require_writable


@pytest.mark.parametrize("name", ["zarr.json", "0"])
def test_slow_threads_leave_nothing_after_an_interrupt(tmp_path, monkeypatch, name):
    """A thread that is held up creates the directory of its file anew."""
    put, came = local._put, []

    def put_late(path, *contents, **how):
        if path.name == name and not came:
            came.append(path)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return put(path, *contents, **how)

    monkeypatch.setattr(local, "_put", put_late)
    with pytest.raises(KeyboardInterrupt):
        write_result(tmp_path / "map.zarr", {"embedding": np.zeros((5, 2))}, {})
    time.sleep(0.3)
    assert came
    assert list(tmp_path.iterdir()) == []


class Killed(BaseException):
    """The end of a process, after which nothing is cleaned up."""


@pytest.mark.parametrize("end", [KeyboardInterrupt, Killed])
def test_a_trial_that_is_cut_short_does_not_stay(tmp_path, monkeypatch, end):
    """An interrupt removes it, and what a killed process leaves goes with the next result."""
    touch = Path.touch

    def stay(path):
        raise OSError

    with monkeypatch.context() as patch:

        def touch_last(path):
            touch(path)
            if end is Killed:
                patch.setattr(Path, "unlink", stay)
                patch.setattr(Path, "rmdir", stay)
            raise end

        patch.setattr(Path, "touch", touch_last)
        with pytest.raises(end):
            require_writable(tmp_path / "map.zarr")
    assert len(list(tmp_path.glob(".map.zarr.new-*/*"))) == (end is Killed)
    write_result(tmp_path / "map.zarr", {"embedding": np.zeros((5, 2))}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["map.zarr"]
