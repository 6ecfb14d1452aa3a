"""What a process may use, from files as control groups of both versions write them, and from Slurm's variables."""

import os
import resource

import psutil
import pytest

from psmds_dist.utils.machine import available_memory, numa_nodes, usable_cpus

GIB = 2**30


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


V2 = {
    "proc/self/cgroup": "0::/slurm/job_7/step",
    "sys/fs/cgroup/slurm/job_7/step/cpu.max": "max 100000",
    "sys/fs/cgroup/slurm/job_7/cpu.max": "350000 100000",
    "sys/fs/cgroup/slurm/job_7/step/memory.max": "max",
    "sys/fs/cgroup/slurm/job_7/memory.max": 8 * GIB,
    "sys/fs/cgroup/slurm/job_7/memory.current": 3 * GIB,
    "sys/fs/cgroup/slurm/job_7/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7",
}
V1 = {
    "proc/self/cgroup": "4:cpu,cpuacct:/docker/a\n5:memory:/docker/a\n1:name=systemd:/x",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": 4 * GIB,
    "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB,
    "sys/fs/cgroup/memory/memory.stat": "cache 9\ntotal_inactive_file 4096",
}
UNLIMITED = {
    "proc/self/cgroup": "4:cpu,cpuacct:/\n5:memory:/\n0::/",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB,
}


@pytest.mark.parametrize(
    ("files", "environ", "cpus"),
    [
        (V2, {}, 3),
        (V1, {}, 1),
        (UNLIMITED, {}, 16),
        ({}, {}, 16),
        ({}, {"SLURM_CPUS_PER_TASK": "4"}, 4),
        ({}, {"SLURM_CPUS_PER_TASK": "64"}, 16),
        ({}, {"SLURM_CPUS_PER_TASK": "x"}, 16),
        (V2, {"SLURM_CPUS_PER_TASK": "2"}, 2),
        ({**V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "20000"}, {}, 1),
        ({"proc/self/cgroup": "0::/gone"}, {}, 16),
    ],
)
def test_cpus_are_the_least_that_is_allowed(tmp_path, files, environ, cpus):
    assert usable_cpus(environ, tree(tmp_path, files), affinity=16) == cpus


@pytest.mark.parametrize(
    ("files", "memory"),
    [(V2, 6 * GIB), (V1, 3 * GIB + 4096), (UNLIMITED, 100 * GIB), ({}, 100 * GIB)],
)
def test_memory_is_what_control_groups_leave(tmp_path, files, memory):
    assert available_memory({}, tree(tmp_path, files), free=100 * GIB) == memory


@pytest.mark.parametrize(
    ("environ", "allocated"),
    [
        ({"SLURM_MEM_PER_NODE": "20480"}, 20 * GIB),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "8"}, 16 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_CPU": "2048"}, None),
    ],
)
def test_memory_is_that_of_the_allocation(tmp_path, environ, allocated):
    found = available_memory(environ, tmp_path, free=100 * GIB)
    if allocated is None:
        assert found == 100 * GIB
    else:
        assert allocated - found == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)


def test_memory_is_what_addresses_are_left_for(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_AS)
    own = psutil.Process().memory_info().vms
    try:
        resource.setrlimit(resource.RLIMIT_AS, (own + 4 * GIB, before[1]))
        found = available_memory({}, tmp_path, free=100 * GIB)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert found == pytest.approx(4 * GIB, rel=0.05)


def test_nothing_is_left_of_a_full_group(tmp_path):
    assert available_memory({}, tree(tmp_path, {**V1, "sys/fs/cgroup/memory/memory.usage_in_bytes": 9 * GIB})) == 0


def test_this_process():
    assert 1 <= usable_cpus() <= os.cpu_count()
    assert 0 < available_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("lists", "given", "nodes"),
    [
        (["0-3,8-11", "4-7,12-15"], set(range(16)), [{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}]),
        (["0-3", "4-7"], {2, 3, 4}, [{2, 3}, {4}]),
        (["0-3", "4-7"], {1}, [{1}]),
        (["0-1", ""], {0, 1}, [{0, 1}]),  # memory without CPUs
        ([], {0, 5}, [{0, 5}]),
    ],
)
def test_cpus_by_the_memory_that_is_near(tmp_path, lists, given, nodes):
    files = {f"sys/devices/system/node/node{k}/cpulist": cpus for k, cpus in enumerate(lists)}
    assert numa_nodes(tree(tmp_path, files), given) == nodes
