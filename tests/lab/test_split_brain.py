"""A node that is cut off goes on with its job while Slurm runs it elsewhere: exactly one map, and the loser says so."""

import os
import time

import numpy as np
import pytest

from psmds_dist import read_result
from tests.cli.commands import run
from tests.clusters import STOPPING
from tests.lab.netns import Network, can_have_networks  # noqa: F401
from tests.lab.slurm import Host, started_slurm, unavailable

pytestmark = pytest.mark.cluster

OPTIONS = ["--init", "random", "--starts", "1", "--no-polish", "--radius-tol", "0.05", "--resume", "-q"]

JOB = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --ntasks=1 --output={folder}/log
cd {folder}
restart=${{SLURM_RESTART_COUNT:-0}}
hostname > host$restart
moments=({moments})
{stopping} ${{moments[restart]}} waiting$restart fit matrix.npy out/map.zarr {options}
code=$?
echo $code > code$restart
case $code in
    75 | 130) scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit $code
"""
"""A job that is queued again if it can go on; its command is stopped at the moments given, see stopping.py."""


@pytest.fixture(scope="module")
def lab(can_have_networks, tmp_path_factory):  # noqa: F811
    """A network, and a Slurm with a controller and three nodes, each on a host of its own."""
    if reason := unavailable():
        pytest.skip(reason)
    with Network(4) as network:
        hosts = [Host(network.address(i), ("nsenter", f"--net=/run/netns/{network.name}-{i}")) for i in network.hosts]
        with started_slurm(tmp_path_factory.mktemp("slurm"), hosts) as slurm:
            yield network, slurm


@pytest.fixture
def folder(tmp_path):
    """A directory that all nodes share, with a matrix and its map by a run on a laptop."""
    points = np.random.default_rng(0).normal(size=(300, 5))
    np.save(tmp_path / "matrix.npy", np.linalg.norm(points[:, None] - points, axis=2).astype("float32"))
    run("fit", tmp_path / "matrix.npy", tmp_path / "laptop.zarr", *OPTIONS)
    return tmp_path


def submitted(slurm, folder, *moments):
    script = folder / "job.sh"
    script.write_text(
        JOB.format(
            folder=folder,
            moments=" ".join(moments),
            stopping=" ".join(map(str, STOPPING)),
            options=" ".join(OPTIONS),
        )
    )
    return slurm.submit(script)


def awaited(file, seconds=300):
    end = time.monotonic() + seconds
    while not (file.exists() and (file.stat().st_size or file.name.startswith("waiting"))):
        assert time.monotonic() < end, "\n".join([file.name, *map(str, file.parent.iterdir()), said(file.parent)])
        time.sleep(0.1)
    return file.read_text().strip()


def said(folder):
    return (folder / "log").read_text() if (folder / "log").exists() else ""


def cut_off(network, slurm, folder, job):
    """Cut the link of the node that runs a job, and wait until the job runs on another; return the first host."""
    host = 1 + int(awaited(folder / "host0").removeprefix("node"))
    network.cut(host)
    slurm.wait_for_job(job, "RUNNING", "COMPLETED", restarts=1, seconds=300)
    assert awaited(folder / "host1") != awaited(folder / "host0")
    return host


def require_one_map(slurm, folder, job):
    """Require the map of the laptop, nothing beside it, and that the loser said so and was not queued again."""
    known = slurm.wait_for_job(job, "COMPLETED")
    assert known["Restarts"] == "1"
    assert (awaited(folder / "code0"), awaited(folder / "code1")) == ("1", "0"), said(folder)
    (loss,) = [line for line in said(folder).splitlines() if "taken over by" in line and line.startswith("Error")]
    assert loss.endswith("this process ends and writes nothing more there.")
    assert "Traceback" not in said(folder)
    assert os.listdir(folder / "out") == ["map.zarr"]
    found, expected = read_result(folder / "out/map.zarr"), read_result(folder / "laptop.zarr")
    np.testing.assert_array_equal(found.raw_embedding, expected.raw_embedding)
    np.testing.assert_array_equal(found.embedding, expected.embedding)
    return loss


def test_a_run_that_was_cut_off_ends_while_the_requeued_one_goes_on(lab, folder):
    network, slurm = lab
    job = submitted(slurm, folder, "state", "state")
    awaited(folder / "waiting0")
    host = cut_off(network, slurm, folder, job)
    try:
        awaited(folder / "waiting1")
        (folder / "waiting0").unlink()
        assert awaited(folder / "code0") == "1", said(folder)
    finally:
        network.mend(host)
    (folder / "waiting1").unlink()
    loss = require_one_map(slurm, folder, job)
    assert f"(job {job} of lab, restart 1)" in loss or f"(job {job}, restart 1)" in loss
    assert "this is a later restart of its job" in said(folder)


def test_a_run_that_comes_back_after_the_requeued_one_has_ended_leaves_its_map(lab, folder):
    """It was about to rename its own map to the target."""
    network, slurm = lab
    job = submitted(slurm, folder, "map", "never")
    awaited(folder / "waiting0")
    host = cut_off(network, slurm, folder, job)
    try:
        slurm.wait_for_job(job, "COMPLETED", seconds=300)
        (folder / "waiting0").unlink()
        awaited(folder / "code0")
    finally:
        network.mend(host)
    assert "another process, which has ended since" in require_one_map(slurm, folder, job)
