"""The recipe in cluster/by-hand, run as it stands but for its paths: processes started by hand."""

import csv
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.core.types import InputError
from psmds_dist.deploy.settings import worker_environment
from psmds_dist.executor import connect, write_certificates
from tests.clusters import wait_for

README = Path(__file__).parent.parent / "cluster" / "by-hand" / "README.md"


def blocks(language, place="/shared"):
    text = README.read_text(encoding="utf-8").replace("/shared", str(place))
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    place = tmp_path_factory.mktemp("shared")
    np.save(place / "points.npy", np.random.default_rng(0).normal(size=(300, 4)))
    return place


def shell(code, **how):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.Popen(["bash", "-euc", code], env=environment, start_new_session=True, **how)


@contextmanager
def started(start, place, file):
    """What a block starts, once its scheduler has written its file; all of it ends when its scheduler does."""
    with (place / "log").open("wb") as log:
        process = shell(start + "\nwait", stdout=log, stderr=log)
    try:
        wait_for(lambda: (place / file).exists(), 120)
        yield psutil.Process(process.pid)
        members = psutil.Process(process.pid).children(recursive=True)
        next(member for member in members if "distributed.cli.dask_scheduler" in member.cmdline()).terminate()
        assert process.wait(60) == 0, (place / "log").read_text()
        wait_for(lambda: not any(map(psutil.Process.is_running, members)))
    finally:
        _kill(process)


def _kill(process):
    """Kill what a failed test leaves."""
    if process.poll() is None:
        for member in psutil.Process(process.pid).children(recursive=True):
            member.kill()
        process.kill()
        process.wait()


def run(code):
    process = shell(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out


@pytest.mark.wide
@pytest.mark.slow
def test_the_recipe(shared):
    start, jobs, *_ = blocks("bash", shared)
    (python,) = blocks("python", shared)
    with started(start, shared, "cluster.json") as cluster:
        _try_recipe(cluster, shared, jobs, python)


def _try_recipe(cluster, shared, jobs, python):
    out = run(jobs)
    assert re.search(r"300 points, rows .*, [12] workers? with 400\.0 MiB each: kept in memory", out)
    expected = PatternSearchMDS(random_state=0).fit(squareform(pdist(np.load(shared / "points.npy"))))
    assert np.array_equal(read_result(shared / "map.zarr").embedding, expected.embedding_)
    with (shared / "map.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 301

    (shared / "job.py").write_text(python)
    assert run(f"{sys.executable} {shared / 'job.py'}").startswith(str(expected.normalized_stress_))

    members = cluster.children(recursive=True)
    listening = {c.laddr.ip for p in members for c in p.net_connections("tcp") if c.status == "LISTEN"}
    assert listening == {"127.0.0.1"}
    with connect(scheduler_file=str(shared / "cluster.json")) as client:
        for environment in client.run(lambda: dict(os.environ)).values():
            assert environment.items() >= worker_environment().items()  # not replaced by Dask's own
        assert set(client.run(lambda dask_worker: dask_worker.name).values()) == {"one", "two"}


@pytest.mark.slow
@pytest.mark.wide
def test_the_recipe_with_tls(shared):
    """Those with the certificate are let in; those without, or with another, get a sentence."""
    *_, start, jobs = blocks("bash", shared)
    with started(start, shared, "encrypted.json"):
        run(jobs)
        expected = PatternSearchMDS(random_state=0).fit(squareform(pdist(np.load(shared / "points.npy"))))
        assert np.array_equal(read_result(shared / "secret-map.zarr").embedding, expected.embedding_)

        write_certificates(shared / "foreign")
        address = json.loads((shared / "encrypted.json").read_text())["address"]
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises(InputError, match=f"the scheduler at {address} uses TLS: pass --tls"):
            connect(address)
        with pytest.raises(InputError, match="no Dask scheduler answers at .* needs --tls"):
            connect(address.replace("tls", "tcp"))
        with pytest.raises(InputError, match="does not have the certificate in .*foreign: pass --tls"):
            connect(scheduler_file=shared / "encrypted.json", tls=shared / "foreign")
        with pytest.raises(InputError, match="does not use TLS: leave out --tls, or start it with --tls"):
            connect(address.replace("tls", "tcp"), tls=shared / "tls")
