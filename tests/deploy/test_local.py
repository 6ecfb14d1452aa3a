"""Workers of this machine, and the memory that is near them."""

import os

import pytest

from psmds_dist.deploy import clusters, local
from psmds_dist.deploy.clusters import open_client


@pytest.fixture
def two_nodes(monkeypatch):
    """A machine whose first two CPUs have memory of their own."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("this process may use one CPU only")
    nodes = [{cpu} for cpu in cpus]
    monkeypatch.setattr(local, "numa_nodes", lambda: nodes)
    monkeypatch.setattr(clusters, "numa_nodes", lambda: nodes)
    return nodes


def affinities():
    """CPUs of each thread of this process."""
    return {tuple(sorted(os.sched_getaffinity(int(thread)))) for thread in os.listdir("/proc/self/task")}


@pytest.mark.slow
def test_each_node_has_a_worker_that_stays_there_also_after_a_restart(two_nodes):
    with open_client("local", threads=1) as client:
        for _ in range(2):
            assert sorted(map(sorted, client.run(affinities).values())) == [[tuple(node)] for node in two_nodes]
            client.restart()


@pytest.mark.slow
def test_one_worker_for_two_nodes_has_all_cpus(two_nodes):
    with open_client("local:1", threads=1) as client:
        assert set().union(*client.run(affinities).popitem()[1]) >= set().union(*two_nodes)
