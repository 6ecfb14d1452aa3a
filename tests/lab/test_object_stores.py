"""Stores, maps, checkpoints and locks at URLs of Azure and Google, on emulators of this machine."""

import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from psmds_dist import InputError
from psmds_dist.core.errors import StorageError
from psmds_dist.data.store import read_result
from psmds_dist.data.store.remote import RemoteStore
from psmds_dist.utils import lease
from psmds_dist.utils.atomic import atomic_file
from psmds_dist.utils.locks import claim_on, exclusive_lock
from psmds_dist.utils.remote_paths import path_of
from tests.cli.commands import run
from tests.clusters import ended, wait_for
from tests.lab.emulators import azure_environment, azure_server, google_environment, google_server
from tests.servers import BUCKET, line_to, s3_environment, s3_server, started_often_saving, states_at

pytest.importorskip("obstore")
pytestmark = pytest.mark.cluster


@contextmanager
def amazon_server():
    with s3_server() as port:
        yield f"s3://{BUCKET}", port


SERVERS = {
    "Azure": (azure_server, azure_environment),
    "Google": (google_server, google_environment),
    "Amazon": (amazon_server, s3_environment),
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request):
    """URL, port, and what sets the environment for another port."""
    serve, environment = SERVERS[request.param]
    with serve() as (url, port):
        yield url, port, environment


@pytest.fixture
def place(server, tmp_path, monkeypatch):
    """A URL of its own for each try of a test, which runs in a directory with points."""
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", np.random.default_rng(0).normal(size=(40, 3)))
    return f"{server[0]}/{tmp_path.name}"


def same_maps(first, second):
    return (read_result(first)[0]["embedding"] == read_result(second)[0]["embedding"]).all()


def test_objects_are_written_listed_read_and_removed(place):
    folder = path_of(place)
    for name in ("a.npz", "é ü+%.npz"):
        with atomic_file(folder / name) as fresh:
            fresh.write_bytes(b"0123456789" * 3)
    listed = {path.name: path for path in folder.glob("*.npz")}
    assert set(listed) == {"a.npz", "é ü+%.npz"}
    assert all(path.edges(4) == b"01236789" for path in listed.values())
    for path in listed.values():
        path.unlink()
        assert not path.exists()
    assert not folder.is_dir()


def test_distances_and_maps_are_written_read_and_replaced(place):
    run("distances", "points.npy", "local.zarr", "-q")
    run("distances", "points.npy", f"{place}/matrix.zarr", "-q")
    run("fit", "local.zarr", "here", "-q")
    run("fit", f"{place}/matrix.zarr", f"{place}/map", "-q")
    run("fit", f"{place}/matrix.zarr", f"{place}/map", "-q", "--overwrite")
    assert same_maps("here", f"{place}/map")
    run("export", f"{place}/map", "map.csv")
    assert "finished" in run("status", f"{place}/map")
    assert not [name for name in RemoteStore(place).objects() if ".lock" in name or ".checkpoint" in name]


def test_one_process_writes_at_a_time_and_a_silent_one_is_replaced(place, monkeypatch):
    monkeypatch.setattr(lease, "LEASE", 1.0)
    monkeypatch.setattr(lease, "INTERVAL", 0.2)
    url = f"{place}/map"
    other = subprocess.Popen([sys.executable, "-c", HOLDING, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with ended(other):
        other.stdout.readline()
        with pytest.raises(StorageError, match="is being written by process"), exclusive_lock(url):
            pass
        other.kill()
    with exclusive_lock(url):
        taken = claim_on(url)
        assert taken.holds()
        lock = path_of(f"{place}/.map.lock")
        before = lock.edges(4096)
        taken.beat(7)
        assert b"heartbeat 000000000007" in lock.edges(4096)
        lock.write_bytes(lease.Owner.current(taken.owner).header() + lease.stamp(0))
        taken.beat(8)
        assert not taken.holds()
        lock.write_bytes(before)
    assert not lock.exists()


HOLDING = """import sys
from psmds_dist.utils import lease
from psmds_dist.utils.locks import exclusive_lock

lease.INTERVAL = 0.2
with exclusive_lock(sys.argv[1]):
    print(flush=True)
    input()
"""


def test_a_killed_run_goes_on_to_the_same_bits_after_an_outage(server, place, monkeypatch):
    _, port, environment = server
    run("distances", "points.npy", "local.zarr", "-q")
    run("fit", "local.zarr", "here", "-q")
    monkeypatch.setattr(lease, "LEASE", 1.0)
    with line_to(port) as line, environment(line.port):
        fitting = started_often_saving("fit", "local.zarr", f"{place}/map", pause=1.0)
        with ended(fitting):
            wait_for(lambda: states_of(f"{place}/map", environment, port))
            line.cut()
            fitting.kill()
    assert "resuming from" in run("fit", "local.zarr", f"{place}/map", "--resume")
    assert same_maps("here", f"{place}/map")


def states_of(target, environment, port):
    """Names of the states of a run, by a line of its own."""
    with environment(port):
        return states_at(target)


def test_what_is_not_there_is_told(server, place):
    with pytest.raises((InputError, StorageError), match="no-such"):
        read_result(f"{server[0].replace(BUCKET, 'no-such-bucket')}/map")
    with pytest.raises(InputError, match="does not exist"):
        read_result(f"{place}/nothing")
