"""The recipe in cluster/README.md, run as it stands but for its paths: processes started by hand."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from distributed import Client
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.core.types import InputError
from psmds_dist.deploy.settings import worker_environment
from psmds_dist.executor import connect, write_certificates

README = Path(__file__).parent.parent / "cluster" / "README.md"


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
    """What a block starts, once its scheduler has written its file; all of it is ended by its process group."""
    with (place / "log").open("wb") as log:
        process = shell(start + "\nwait", stdout=log, stderr=log)
    try:
        end = time.monotonic() + 30
        while not (place / file).exists():
            assert time.monotonic() < end, (place / "log").read_text()
            time.sleep(0.05)
        yield process
    finally:
        _end(process)


def _end(process):
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(20)
    end = time.monotonic() + 20
    while any(_session(p.pid) == process.pid for p in psutil.process_iter()):
        assert time.monotonic() < end, "the cluster does not end"
        time.sleep(0.1)


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def run(code):
    process = shell(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out


@pytest.mark.wide
@pytest.mark.slow
def test_the_recipe(shared):
    start, jobs, *_ = blocks("bash", shared)
    python, _ = blocks("python", shared)
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
    out = run(f"{sys.executable} {shared / 'job.py'}")
    assert out.startswith(str(expected.normalized_stress_))

    members = [p for p in psutil.process_iter() if _session(p.pid) == cluster.pid]
    listening = {c.laddr.ip for p in members for c in p.net_connections("tcp") if c.status == "LISTEN"}
    assert listening == {"127.0.0.1"}
    with Client(scheduler_file=str(shared / "cluster.json")) as client:
        for environment in client.run(lambda: dict(os.environ)).values():
            assert environment.items() >= worker_environment().items()  # not replaced by Dask's own
        peaks = client.run(lambda: psutil.Process().memory_info().rss / 2**20)
        print("MiB of an idle worker after a job:", [round(peak) for peak in peaks.values()])


@pytest.mark.slow
@pytest.mark.wide
def test_the_recipe_with_tls(shared):
    """Those with the certificate are let in; those without, or with another, get a sentence."""
    *_, start, jobs = blocks("bash", shared)
    _, python = blocks("python", shared)
    with started(start, shared, "encrypted.json"):
        run(jobs)
        expected = PatternSearchMDS(random_state=0).fit(squareform(pdist(np.load(shared / "points.npy"))))
        assert np.array_equal(read_result(shared / "secret-map.zarr").embedding, expected.embedding_)
        (shared / "secret.py").write_text(python)
        assert run(f"{sys.executable} {shared / 'secret.py'}") == f"{expected.normalized_stress_}\n"

        write_certificates(shared / "foreign")
        address = json.loads((shared / "encrypted.json").read_text())["address"]
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises(InputError, match=f"the scheduler at {address} uses TLS: pass --tls"):
            connect(address)
        with pytest.raises(InputError, match="no Dask scheduler answers at .* needs --tls"):
            connect(address.replace("tls", "tcp"))
        with pytest.raises(InputError, match="does not have the certificate in .*foreign: pass --tls"):
            connect(scheduler_file=shared / "encrypted.json", tls=shared / "foreign")
        with pytest.raises(InputError, match="does not use TLS: leave out --tls, or start it with TLS"):
            connect(address.replace("tls", "tcp"), tls=shared / "tls")


def test_the_variables_are_those_of_our_own_clusters():
    start, *_ = blocks("bash")
    (line,) = [line for line in start.splitlines() if line.startswith("export MALLOC")]
    assert dict(pair.split("=") for pair in line.split()[1:]) == worker_environment()


@pytest.mark.parametrize(("code", "again"), [(0, False), (1, False), (75, True), (130, True)])
def test_the_job_asks_to_be_run_again_when_it_can_go_on(tmp_path, code, again):
    """The script for Slurm as it stands, among stand-ins for the commands it calls."""
    (script,) = blocks("sh")
    stand_ins = {"srun": 'exec "$@"', "psmds": f'[ "$1" = distances ] || exit {code}', "scontrol": 'echo "$@"'}
    for name, body in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout == ("requeue 17\n" if again else "")
