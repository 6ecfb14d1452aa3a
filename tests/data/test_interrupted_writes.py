"""Interrupts while Zarr's threads write a directory that will be renamed."""

import os
import signal
import time

import numpy as np
import pytest
import zarr.storage._local as local

from psmds_dist.data.store import write_result


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
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
