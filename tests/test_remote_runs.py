"""Commands that read and write at URLs, on workers, while the line to the server is cut."""

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from psmds_dist.api.watch import RunState, read_status
from psmds_dist.data.store import read_result
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.utils import lease
from tests.cli.commands import PSMDS, refused, run
from tests.clusters import ended, wait_for
from tests.servers import (
    BUCKET,
    KEY,
    SECRET,
    line_to,
    restored_after,
    s3_environment,
    s3_server,
    started_often_saving,
    states_at,
)

pytest.importorskip("obstore")

N = 24
FIT = ("--max-epochs", "30", "--seed", "3")
URL = f"s3://{BUCKET}/run/matrix.zarr"


@pytest.fixture(scope="module")
def s3():
    with s3_server() as port:
        yield port


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", np.random.default_rng(0).normal(size=(N, 3)))
    return tmp_path


def same_maps(first, second):
    return (read_result(first)[0]["embedding"] == read_result(second)[0]["embedding"]).all()


@pytest.mark.wide
def test_a_url_is_ingested_to_planned_embedded_from_and_measured(s3, place):
    run("distances", "points.npy", "local.zarr", "-q")
    run("ingest", "local.zarr", URL)
    assert f"{N}" in run("info", URL)
    assert "finished" in run("status", URL)
    run("plan", URL)
    run("fit", "local.zarr", "here", "-q")
    run("fit", URL, "there", "-q")
    assert same_maps("here", "there")
    assert run("quality", "there") == run("quality", "here")
    run("landmarks", "fit", URL, f"s3://{BUCKET}/run/landmarks", "-S", "8", "-q")
    run("landmarks", "fit", "local.zarr", "landmarks-here", "-S", "8", "-q")
    assert same_maps("landmarks-here", f"s3://{BUCKET}/run/landmarks")
    assert "cannot be written by HTTP" in refused("fit", "local.zarr", "https://localhost/map")
    assert "is a whole bucket" in refused("fit", "local.zarr", f"s3://{BUCKET}")
    for path in filter(Path.is_file, place.rglob("*")):
        assert SECRET.encode() not in path.read_bytes()
        assert KEY.encode() not in path.read_bytes()


def started(*command):
    """A command in a process of its own."""
    return subprocess.Popen([PSMDS, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends_well(process):
    """Wait for a command and return what it has printed."""
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output + errors


@pytest.mark.slow
@pytest.mark.wide
def test_two_workers_write_and_read_through_an_outage_of_ten_seconds(s3, place):
    np.save("points.npy", np.random.default_rng(1).normal(size=(300, 3)))
    url = f"s3://{BUCKET}/outage/matrix.zarr"
    run("distances", "points.npy", "local.zarr", "-q")
    run("fit", "local.zarr", "here", "-q", *FIT)
    with line_to(s3) as line, s3_environment(line.port):
        line.cut_after(100_000)
        writing = started("ingest", "local.zarr", url, "--workers", "2")
        with ended(writing):
            restored_after(line, 2)
            said = ends_well(writing)
        told = run("info", url)
        assert "300" in told
        line.cut_after(100_000)
        fitting = started("fit", url, "there", "--workers", "2", *FIT)
        with ended(fitting):
            restored_after(line, 10)
            said += ends_well(fitting)
    assert same_maps("here", "there")
    assert SECRET not in said
    assert KEY not in said


@pytest.mark.slow
@pytest.mark.wide
def test_a_map_at_a_url_survives_an_outage_and_the_end_of_its_process(s3, place, monkeypatch):
    np.save("points.npy", np.random.default_rng(1).normal(size=(300, 9)))
    target = f"s3://{BUCKET}/maps/map"
    run("distances", "points.npy", URL, "--overwrite", "-q")
    run("fit", URL, "here", "-q", *FIT)
    with line_to(s3) as line, s3_environment(line.port):
        fitting = started_often_saving("fit", URL, target, *FIT)
        with ended(fitting):
            wait_for(lambda: states_of(target, s3))
            line.cut()
            time.sleep(10)
            before = states_of(target, s3)
            line.restore()
            wait_for(lambda: states_of(target, s3) != before)
            assert read_status(target).state is RunState.RUNNING
            fitting.kill()
    monkeypatch.setattr(lease, "LEASE", 1.0)
    assert "holds the checkpoint of an unfinished run" in refused("fit", URL, target)
    assert "newest states" in run("info", f"{target}.checkpoint")
    assert f"resuming from {target}.checkpoint" in run("fit", URL, target, "--resume", *FIT)
    assert same_maps("here", target)
    assert not RemoteStore(f"{target}.checkpoint").objects()
    assert not [name for name in RemoteStore(f"s3://{BUCKET}/maps").objects() if ".lock" in name]
    assert "finished" in run("watch", target)
    assert "normalized_stress" in run("info", target)
    run("export", target, "map.csv")
    run("plot", target, "map.png")
    assert Path("map.png").stat().st_size > 1000
    assert "is finished" in run("fit", URL, target, "--resume", *FIT)
    assert "already holds a result" in refused("fit", URL, target, *FIT)


def states_of(target, port):
    """Names of the states of a run, by a line of its own."""
    with s3_environment(port):
        return states_at(target)


def _chunks_in(url, port):
    with s3_environment(port):
        return sum("/c." in name for name in RemoteStore(url).objects())


@pytest.mark.slow
@pytest.mark.wide
def test_a_run_that_gives_up_is_continued(s3, place, monkeypatch):
    np.save("points.npy", np.random.default_rng(1).normal(size=(300, 3)))
    url = f"s3://{BUCKET}/given-up/matrix.zarr"
    monkeypatch.setenv("PSMDS_RETRY_SECONDS", "2")
    with line_to(s3) as line, s3_environment(line.port):
        line.cut_after(100_000)
        writing = started("distances", "points.npy", url, "--workers", "2")
        with ended(writing):
            assert line.was_cut.wait(240)
            _, errors = writing.communicate(timeout=120)
        assert writing.returncode == 1
        assert "could not be reached for" in errors
        assert "Traceback" not in errors
        assert "Task was destroyed" not in errors
        line.restore()
        written = _chunks_in(url, s3)
        assert "unfinished" in refused("fit", url, "there")
        monkeypatch.setenv("PSMDS_RETRY_SECONDS", "60")
        monkeypatch.setattr(lease, "LEASE", 1.0)
        run("distances", "points.npy", url, "-q")
        assert 3 < written < _chunks_in(url, s3)
        run("fit", url, "there", "-q", *FIT)
    run("distances", "points.npy", "local.zarr", "-q")
    run("fit", "local.zarr", "here", "-q", *FIT)
    assert same_maps("here", "there")
