"""The Slurm that other tests use: jobs are pre-empted, and lose their node; its end checks that nothing is left."""

import pytest

from tests.lab.slurm import slurm

pytestmark = pytest.mark.cluster
__all__ = ["slurm"]


def sleep_job(slurm, *options):
    """A job that SIGTERM does not end: one that exits within the grace time is not requeued."""
    return slurm.submit("--output=/dev/null", "--exclusive", *options, "--wrap", "trap '' TERM; sleep 600")


def test_nodes_are_hosts(slurm):
    command = "srun sh -c 'hostname; getent hosts node1'"
    job = slurm.submit("--nodes=3", f"--output={slurm.folder}/out", "--wrap", command)
    slurm.wait_for_job(job, "COMPLETED")
    words = (slurm.folder / "out").read_text().split()
    assert {"node1", "node2", "node3"} <= set(words)


def test_a_job_is_preempted_and_requeued(slurm):
    job = sleep_job(slurm, "--nodes=3", "--requeue")
    slurm.wait_for_job(job, "RUNNING")
    urgent = slurm.submit("-p", "urgent", "--exclusive", "--nodes=3", "--output=/dev/null", "--wrap", "true")
    slurm.wait_for_job(urgent, "COMPLETED")
    slurm.wait_for_job(job, "RUNNING", restarts=1)
    slurm.cancel(job)
    slurm.wait_for_job(job, "CANCELLED")


def test_a_job_loses_its_node_and_is_requeued(slurm):
    job = sleep_job(slurm, "--nodes=1", "--requeue")
    node = slurm.wait_for_job(job, "RUNNING")["NodeList"]
    slurm.kill_node(node)
    again = slurm.wait_for_job(job, "RUNNING", restarts=1)
    assert again["NodeList"] != node
    slurm.revive_node(node)
    slurm.cancel(job)
    slurm.wait_for_job(job, "CANCELLED")
