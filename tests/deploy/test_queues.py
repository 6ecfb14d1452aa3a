"""Jobs of batch systems: the scripts that dask-jobqueue renders for them, without a batch system."""

import gc
import os
import subprocess
import sys
from contextlib import contextmanager

import dask
import psutil
import pytest

from psmds_dist import InputError, WorkerError, open_client
from psmds_dist.deploy import queues
from psmds_dist.deploy.queues import job_arguments, new_cluster
from psmds_dist.executor import write_certificates
from tests.clusters import wait_for

JOB = {"cores": 4, "memory": "8 GiB"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    return tmp_path


@contextmanager
def opened(home, kind="slurm"):
    write_certificates(str(home / "tls"))
    cluster = new_cluster(kind, JOB, "file.yaml", None, str(home / "tls"))
    try:
        yield cluster
    finally:
        cluster.close()


def command(folder, name, script):
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


HEADERS = {
    "slurm": ["#SBATCH -J dask-worker", "#SBATCH -n 1", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=8G"],
    "pbs": ["#PBS -N dask-worker", "#PBS -l select=1:ncpus=4:mem=8192MB"],
    "lsf": ["#BSUB -n 4", '#BSUB -R "span[hosts=1]"'],
    "sge": ["#$ -N dask-worker"],
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_job_is_one_process_with_all_its_cores(home, kind):
    with opened(home, kind) as cluster:
        lines = cluster.job_script().splitlines()
    assert set(HEADERS[kind]) <= set(lines)
    assert "export DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=False" in lines
    assert "export MALLOC_TRIM_THRESHOLD_=268435456" in lines
    worker = next(line for line in lines if line.startswith(sys.executable))
    assert " --nthreads 4 --memory-limit 8.00GiB --nanny --death-timeout 60 " in worker
    assert " --dashboard-address 127.0.0.1:0 --interface lo --protocol tls:// " in worker


def test_a_cluster_listens_on_its_interface_only_and_scripts_hold_no_secrets(home):
    with opened(home) as cluster:
        script, scheduler = cluster.job_script(), cluster.scheduler
        listening = {c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == "LISTEN"}
    assert scheduler.address.startswith("tls://127.0.0.1:")
    assert listening == {"127.0.0.1"}
    assert f"--tls-ca-file {home}/tls/certificate.pem --tls-cert {home}/tls/certificate.pem" in script
    assert f"--tls-key {home}/tls/key.pem" in script
    assert "PRIVATE" not in script


def test_what_is_given_takes_precedence(home):
    write_certificates(str(home / "tls"))
    given = job_arguments(
        {
            **JOB,
            "silence_logs": "error",
            "interface": "lo",
            "processes": 2,
            "job_script_prologue": ["module load python"],
            "worker_extra_args": ["--lifetime", "1h"],
            "scheduler_options": {"port": 8786},
        },
        8,
        str(home / "tls"),
    )
    assert (given["interface"], given["processes"], given["cores"]) == ("lo", 2, 4)
    assert given["job_script_prologue"][-1] == "module load python"
    assert given["worker_extra_args"] == ["--dashboard-address", "127.0.0.1:0", "--lifetime", "1h"]
    assert given["scheduler_options"] == {"dashboard_address": "127.0.0.1:0", "port": 8786}


def test_threads_are_the_cores_of_a_job_that_does_not_say(home):
    write_certificates(str(home / "tls"))
    assert job_arguments({}, 3, str(home / "tls"))["cores"] == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("core: 4", "{} has the unknown name core: did you mean cores?"),
        ("qqqqqq: 4", "{} has the unknown name qqqqqq: use some of account, adapt, "),
        ("memory: 1GB", "{} does not describe a job (You must specify how much cores and memory per job you want"),
        (
            "{cores: 1, memory: 1GB, interface: no0}",
            "interface must be a network interface with an IPv4 address, not 'no0': this machine has ",
        ),
        ("{cores: 1, memory: lots}", "{} does not describe a job ("),
        ("{cores: 1, memory: 1GB, jobs: 0}", "jobs must be a whole number of at least 1, not 0"),
        ("{cores: 1, memory: 1GB, adapt: 3}", "adapt must hold minimum_jobs and maximum_jobs, not 3"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # dask-jobqueue leaves half a cluster
def test_mistakes_in_a_file_are_explained(home, text, sentence):
    command(home, "sbatch", "exit 1")
    path = home / "slurm.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        open_client(f"slurm:{path}").__enter__()
    assert sentence.replace("{}", str(path), 1) in str(error.value)
    del error
    gc.collect()


def test_a_batch_system_that_is_not_there_is_explained(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home / "bin"))
    (home / "slurm.yaml").write_text("cores: 1\nmemory: 1GB\n")
    with pytest.raises(InputError, match="cluster 'slurm' needs the command sbatch, which this machine does not have"):
        open_client(f"slurm:{home / 'slurm.yaml'}").__enter__()


def test_a_job_that_is_refused_is_explained(home):
    command(home, "sbatch", "echo 'sbatch: error: invalid account' >&2; exit 1")
    (home / "slurm.yaml").write_text("cores: 1\nmemory: 1GB\n")
    with pytest.raises(WorkerError, match=r"sbatch refused a job \(sbatch: error: invalid account\): correct"):
        open_client(f"slurm:{home / 'slurm.yaml'}").__enter__()


def test_a_missing_library_is_explained(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(InputError, match=r"cluster 'lsf' needs dask_jobqueue: pip install 'psmds-dist\[slurm\]'"):
        open_client("lsf").__enter__()


def test_ctrl_c_stays_an_interrupt_after_the_library_is_imported():
    """It replaces the handler when it is imported."""
    code = """
import signal
from psmds_dist.utils.extras import extra
extra("dask_jobqueue", "slurm", "a test")
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted\n"


@pytest.mark.slow
def test_jobs_that_end_are_submitted_again(home, monkeypatch):
    """With the commands of a batch system that starts its jobs at once."""
    command(
        home, "sbatch", f'echo >> {home}/jobs; cp "$1" {home}/$$.sh; setsid sh {home}/$$.sh 2>/dev/null >&2 & echo $!'
    )
    command(home, "scancel", 'kill -- "-$1"')
    (home / "slurm.yaml").write_text("cores: 1\nmemory: 1GB\njobs: 1\n")
    monkeypatch.setattr(queues, "REPLACE_INTERVAL", 1)

    def processes():
        return client.run(os.getpid)

    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}):
        with open_client(f"slurm:{home / 'slurm.yaml'}") as client:
            ((address, process),) = processes().items()
            client.retire_workers([address])  # as if it had reached its time limit
            wait_for(lambda: processes() and processes().keys() != {address})
            assert not psutil.pid_exists(process)
        assert len((home / "jobs").read_text().splitlines()) == 2
