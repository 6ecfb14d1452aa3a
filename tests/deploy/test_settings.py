"""Settings of clusters: defaults, overrides, what workers get, and sentences for mistakes."""

import json
import os
import subprocess
import sys

import dask
import distributed  # noqa: F401 - its settings have defaults
import pytest

from psmds_dist import InputError
from psmds_dist.deploy.settings import (
    dask_settings,
    exported,
    listen_on,
    setting,
    worker_environment,
)


def in_new_process(code, **environment):
    """What an expression is in a process with other settings, since Dask reads them once."""
    code = f"import json; from psmds_dist.deploy.settings import *; print(json.dumps({code}))"
    environment = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def test_defaults():
    assert (setting("deadline"), setting("tls"), setting("portable")) == (30.0, None, False)
    assert worker_environment() == {"MALLOC_TRIM_THRESHOLD_": str(2**28), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
    assert listen_on() == {"host": "127.0.0.1"}


def test_a_file_and_the_environment_override_defaults(tmp_path):
    (tmp_path / "psmds.yaml").write_text("psmds: {deadline: 5, cluster: 'local:3', environment: {OMP_PROC_BIND: true}}")
    given = {"DASK_CONFIG": tmp_path, "DASK_PSMDS__INTERFACE": "ib0", "MALLOC_TRIM_THRESHOLD_": 7}
    given["DASK_PSMDS__DASK__DISTRIBUTED__SCHEDULER__WORKER_TTL"] = "9s"
    found = in_new_process(
        "[setting('deadline'), default_cluster(), listen_on(), worker_environment(), dask_settings()]", **given
    )
    assert found[:3] == [5, "local:3", {"interface": "ib0"}]
    assert found[3] == {"OMP_PROC_BIND": "True", "MALLOC_TRIM_THRESHOLD_": "7", "MALLOC_MMAP_THRESHOLD_": str(2**25)}
    with dask.config.set(found[4]):
        assert dask.config.get("distributed.scheduler.worker-ttl") == "9s"
        assert dask.config.get("distributed.nanny.pre-spawn-environ.OMP_PROC_BIND") == "True"


def test_the_default_cluster_is_read_from_the_environment(tmp_path):
    assert (
        in_new_process("default_cluster()", DASK_CONFIG=tmp_path, DASK_PSMDS__CLUSTER="slurm:a.yaml") == "slurm:a.yaml"
    )
    assert in_new_process("[default_cluster(), 'dask' in __import__('sys').modules]", DASK_CONFIG=tmp_path) == [
        None,
        False,
    ]


def test_any_file_of_the_configuration_may_name_a_cluster(tmp_path):
    (tmp_path / "mine.yaml").write_text("psmds: {cluster: 'local:3'}")
    for place in (tmp_path, tmp_path / "mine.yaml"):
        assert in_new_process("default_cluster()", DASK_CONFIG=place) == "local:3"


def test_a_file_that_is_no_yaml_is_explained(tmp_path):
    (tmp_path / "psmds.yaml").write_text("psmds: [")
    code = "from psmds_dist.cli.app import main; main(['plan', '--points', '10'])"
    environment = {**os.environ, "DASK_CONFIG": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Dask's configuration cannot be read: ")
    assert str(tmp_path / "psmds.yaml") in done.stderr


def test_names_that_no_variable_can_have():
    with dask.config.set({"psmds.environment": {"A B=": 3}}), pytest.raises(InputError, match=r"has the name 'A B='"):
        worker_environment()


def test_dask_settings_change_nothing_but_what_they_name():
    before = dask.config.get("distributed.scheduler")
    with dask.config.set(dask_settings()):
        within = dask.config.get("distributed.scheduler")
        assert within.keys() == before.keys()
        assert within["worker-ttl"] == "60s"
        assert dask.config.get("distributed.worker.memory.terminate") is False


def test_exported_settings_are_those_of_dask_in_another_process():
    names = ["distributed.scheduler.worker-ttl", "distributed.worker.memory.pause", "distributed.admin.tick.interval"]
    code = f"[__import__('distributed') and __import__('dask').config.get(name) for name in {names}]"
    with dask.config.set({"psmds.dask.distributed.scheduler.worker-ttl": "77s"}):
        assert in_new_process(code, **exported()) == ["77s", False, "500ms"]


def test_a_portable_worker_has_kernels_for_any_processor():
    with dask.config.set({"psmds.portable": True}):
        assert worker_environment()["NUMBA_CPU_NAME"] == "generic"


def test_a_portable_command_has_them_too(tmp_path):
    """What is set before Numba is loaded; the command calls it first."""
    code = "[prepare_process(), __import__('numba').config.CPU_NAME, __import__('numba').config.CPU_FEATURES][1:]"
    given = {"DASK_CONFIG": tmp_path, "DASK_PSMDS__PORTABLE": "true"}
    assert in_new_process(code, **given) == ["generic", ""]
    assert in_new_process(code, DASK_CONFIG=tmp_path) == [None, None]


def test_a_variable_is_left_out_by_null():
    with dask.config.set({"psmds.environment.MALLOC_TRIM_THRESHOLD_": None}):
        assert list(worker_environment()) == ["MALLOC_MMAP_THRESHOLD_"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"psmds.dead-line": 3}, "no setting psmds.dead-line: use one of cluster, dask, deadline"),
        ({"psmds.environment": "A=1"}, "psmds.environment must be a section of names and values, not 'A=1'"),
        ({"psmds.host": "10.0.0.1", "psmds.interface": "ib0"}, "give a host (10.0.0.1) or an interface (ib0)"),
    ],
)
def test_mistakes_are_explained(given, sentence):
    setting("deadline")  # defaults are loaded, and stay when the configuration is restored
    with dask.config.set(given), pytest.raises(InputError) as error:
        setting("deadline"), worker_environment(), listen_on()
    assert sentence in str(error.value)
