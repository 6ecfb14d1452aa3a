"""The files for PBS, LSF and Grid Engine in cluster/: the jobs that they become, line by line."""

import re
import sys
from pathlib import Path

import pytest

from psmds_dist.deploy.files import read_mapping
from psmds_dist.deploy.queues import new_cluster
from psmds_dist.deploy.settings import exported
from psmds_dist.executor import write_certificates

CLUSTER = Path(__file__).parents[2] / "cluster"


@pytest.mark.parametrize("kind", ["pbs", "lsf", "sge"])
def test_a_file_becomes_this_job(kind, tmp_path, monkeypatch):
    """All but names of this machine; the interface of the file is one that few machines have."""
    script = _script(kind, tmp_path, monkeypatch)
    exports = [line for line in script.splitlines(keepends=True) if line.startswith("export ")]
    assert {line.split()[1].split("=")[0] for line in exports} == set(exported())
    assert "".join(line for line in script.splitlines(keepends=True) if line not in exports) == _expected(kind)


def _expected(kind):
    return (Path(__file__).parent / "job_scripts" / f"{kind}.sh").read_text()


def _script(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_certificates("tls")
    file = CLUSTER / f"{kind}.yaml"
    given = read_mapping(str(file), "the jobs")
    assert given.pop("jobs") == 4
    assert given.pop("interface") == "ib0"
    cluster = new_cluster(kind, {**given, "interface": "lo"}, str(file), None, "tls")
    try:
        return _anonymous(cluster.job_script(), tmp_path)
    finally:
        cluster.close()


def _anonymous(script, folder):
    script = script.replace(sys.executable, "python").replace(str(folder), "/home/user")
    return re.sub(r"tls://[\d.]+:\d+", "tls://SCHEDULER", script)
