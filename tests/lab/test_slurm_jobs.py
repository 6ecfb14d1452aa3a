"""Batch jobs on a real Slurm: whatever ends an allocation, the run ends with the bits of one that nothing disturbed.

What happens to a run waits for its progress, so that slow machines take longer and miss nothing.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import read_result
from tests.lab.slurm import poll, slurm

pytestmark = pytest.mark.cluster
__all__ = ["slurm"]

PSMDS = (sys.executable, "-m", "psmds_dist")

# a run of so many epochs, each of which takes a cluster longer to arrange than to compute
LONG = ("--init", "random", "--effort", "quick", "--no-polish", "--eps", "1e-12", "--radius-tol", "1e-12")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folder with a matrix that all nodes see."""
    place = tmp_path_factory.mktemp("shared")
    points = np.random.default_rng(0).normal(size=(600, 10))
    np.save(place / "matrix.npy", squareform(pdist(points)).astype("f4"))
    return place


class Run:
    """A submitted fit, and the same one in this process."""

    def __init__(self, slurm, place, name, epochs, *options):
        self.slurm, self.target = slurm, place / name
        self.arguments = ("matrix.npy", name, *LONG, "--max-epochs", str(epochs))
        self.answer = slurm.run(*PSMDS, "submit", *options, "--", "fit", *self.arguments, cwd=place).stdout
        self.job = int(self.answer.split(":")[0].removeprefix("job "))
        slurm.run("scontrol", "update", f"JobId={self.job}", "TimeLimit=60", check=False)

    @property
    def log(self):
        return Path(f"{self.target}.log").read_text()

    @property
    def epoch(self):
        """Last epoch that was saved."""
        states = Path(f"{self.target}.checkpoint").glob("solve-*.npz")
        return max((int(state.name.split(".")[1]) for state in states), default=0)

    def wait_for_epochs(self):
        """Wait until the running job has saved more epochs."""
        before = self.epoch

        def more():
            state = self.slurm.state(self.job)
            assert state not in ENDED, f"{state} at epoch {self.epoch}: {self.log}"
            return self.epoch > before

        poll(more, 400, lambda: self.log)

    def wait_for_restart(self, restarts):
        self.slurm.wait_for_job(self.job, "RUNNING", restarts=restarts)
        self.wait_for_epochs()

    def preempt(self, nodes):
        """Give the nodes to another job for a moment."""
        urgent = self.slurm.submit("-p", "urgent", "--exclusive", f"--nodes={nodes}", "-o", "/dev/null", "--wrap", ":")
        self.slurm.wait_for_job(urgent, "COMPLETED")

    def end_soon(self):
        """Move the time limit so near that Slurm announces it at once."""
        self.slurm.run("scontrol", "update", f"JobId={self.job}", "EndTime=now+121")

    def require_map_of_one_process(self):
        """Compare the map, bit by bit, with that of an undisturbed run in one process; nothing else is left."""
        self.slurm.wait_for_job(self.job, "COMPLETED", seconds=900)
        again = f"{self.target.name}-again"
        self.slurm.run(*PSMDS, "fit", self.arguments[0], again, *self.arguments[2:], "-q", cwd=self.target.parent)
        here, there = (read_result(self.target.with_name(name)) for name in (again, self.target.name))
        assert np.array_equal(here.embedding, there.embedding)
        assert here.attributes["stop_reason"] == there.attributes["stop_reason"] == "max_epochs"
        left = {path.name for path in self.target.parent.glob(f"{self.target.name}*")}
        assert left == {self.target.name, f"{self.target.name}.log", again}


def test_a_run_across_nodes_survives_what_ends_its_allocations(slurm, place):
    run = Run(slurm, place, "nodes.zarr", 5000, "--nodes=3", "--exclusive", "--time=60")
    run.wait_for_epochs()
    _require_secrets_hidden(run)

    run.end_soon()
    run.wait_for_restart(1)
    slurm.set_grace_time(100)  # the job ends by itself and asks for its restart
    run.preempt(nodes=3)
    run.wait_for_restart(2)

    worker = slurm.nodes[-1] if slurm.job(run.job)["BatchHost"] != slurm.nodes[-1] else slurm.nodes[0]
    slurm.kill_node(worker)
    slurm.wait_for_nodes(run.job, 2)
    run.wait_for_epochs()
    slurm.revive_node(worker)
    assert slurm.job(run.job)["Restarts"] == "2"

    slurm.set_grace_time(0)  # the job is killed
    run.preempt(nodes=3)
    run.wait_for_restart(3)
    run.end_soon()
    run.wait_for_restart(4)
    run.require_map_of_one_process()


def _require_secrets_hidden(run):
    """The private folder is private, and no key is in what others can read."""
    (private,) = run.target.parent.glob(f"{run.target.name}.job-*")
    assert private.stat().st_mode & 0o77 == 0
    key = (private / "0" / "tls" / "key.pem").read_text().splitlines()[1]
    shown = run.slurm.run("scontrol", "write", "batch_script", run.job, "-").stdout
    assert "certificates" in shown
    assert key not in shown + run.log
    assert "tls://" in json.loads((private / "0" / "cluster.json").read_text())["address"]


def test_a_job_that_loses_its_first_node_is_started_again(slurm, place):
    """Slurm leaves a job running that is not to be killed when a node fails: its workers ask for the restart."""
    run = Run(slurm, place, "first.zarr", 600, "--nodes=2", "--exclusive", "--time=60")
    run.wait_for_epochs()
    first = slurm.job(run.job)["BatchHost"]
    slurm.kill_node(first)
    slurm.wait_for_job(run.job, "RUNNING", restarts=1, seconds=400)
    slurm.revive_node(first)
    run.require_map_of_one_process()


def test_a_chain_of_three_allocations_on_one_node(slurm, place):
    run = Run(slurm, place, "chain.zarr", 20000, "--exclusive", "--time=60")
    for restart in (1, 2):
        run.wait_for_epochs()
        run.end_soon()
        slurm.wait_for_job(run.job, "RUNNING", restarts=restart)
    run.require_map_of_one_process()
    assert "continues in another allocation, as restart 2" in run.log


def test_a_run_that_fails_is_not_started_again(slurm, place):
    """Its exit code is that of the job, and its message ends the log."""
    (place / "file").write_text("")
    (place / "bad.npy").write_bytes((place / "matrix.npy").read_bytes()[:1000])
    answer = slurm.run(*PSMDS, "submit", "--time=5", "--", "fit", "bad.npy", "bad.zarr", cwd=place).stdout
    known = slurm.wait_for_job(answer.split(":")[0].removeprefix("job "), "FAILED")
    assert (known["ExitCode"], known["Restarts"]) == ("1:0", "0")
    log = (place / "bad.zarr.log").read_text()
    assert "Error: " in log
    assert "bad.npy" in log
    assert not list(place.glob("bad.zarr.job-*"))


def test_a_cancelled_job_stays_cancelled(slurm, place):
    run = Run(slurm, place, "cancelled.zarr", 10**6, "--exclusive")
    run.wait_for_epochs()
    slurm.cancel(run.job)
    slurm.wait_for_job(run.job, "CANCELLED")
    poll(lambda: set(slurm.idle_nodes()) == set(slurm.nodes), 60, slurm.logs)
    assert slurm.job(run.job)["Restarts"] == "0"


def test_paths_with_odd_names(slurm, place):
    folder = place / 'it\'s a $HOME "#1" 100%'
    folder.mkdir()
    submit = (*PSMDS, "submit", "--time=5", "--comment=two words", "--", "fit", "../matrix.npy", "my map.zarr")
    answer = slurm.run(*submit, "--max-epochs", "3", cwd=folder).stdout
    known = slurm.wait_for_job(answer.split(":")[0].removeprefix("job "), "COMPLETED")
    assert known["Comment"].startswith("two")
    assert f"log: {folder}/my map.zarr.log" in answer
    assert "3 epochs" in (folder / "my map.zarr.log").read_text()


def test_the_words_of_slurm_are_passed_on(slurm, place):
    for option, words in {
        "--partition=none": "Invalid partition",
        "--time=soon": "Invalid --time",
        "--banana": "banana",
    }.items():
        done = slurm.run(*PSMDS, "submit", option, "--", "fit", "matrix.npy", "no.zarr", cwd=place, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: sbatch did not accept the job: ")
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
