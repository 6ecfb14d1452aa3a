"""Batch jobs on a real Slurm: whatever ends an allocation, the run ends with the bits of one that nothing disturbed.

What happens to a run waits for its progress, so that slow machines take longer and miss nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import numpy as np
import psutil
import pytest
import yaml
from scipy.spatial.distance import pdist, squareform

from psmds_dist import read_result
from tests.clusters import STOPPING, ended
from tests.lab.slurm import poll, slurm

pytestmark = pytest.mark.cluster
__all__ = ["slurm"]

RECIPES = Path(__file__).parents[2] / "cluster" / "slurm"
PSMDS = (sys.executable, "-m", "psmds_dist")
BRAKED = (sys.executable, Path(__file__).with_name("braked.py"))

# a run of thousands of epochs, each of which takes a cluster longer to arrange than to compute
LONG = ("--init", "random", "--effort", "quick", "--no-polish", "--components", "10", "--moves", "axes")
LONG += ("--direction-share", "0.1", "--eps", "0", "--radius-tol", "1e-300")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


@pytest.fixture
def place(tmp_path):
    """Folder with a matrix that all nodes see, new for each attempt of a test."""
    points = np.random.default_rng(0).normal(size=(600, 10))
    np.save(tmp_path / "matrix.npy", squareform(pdist(points)).astype("f4"))
    return tmp_path


def saved_epoch(target):
    """Last epoch in the checkpoint of a map."""
    states = Path(f"{target}.checkpoint").glob("solve-*.npz")
    return max((int(state.name.split(".")[1]) for state in states), default=0)


def require_map_of_one_process(slurm, target, arguments):
    """Compare a map, bit by bit, with that of an undisturbed run in one process."""
    again = target.with_name(f"{target.name}-again")
    slurm.run(*PSMDS, "fit", "matrix.npy", again, *arguments, "-q", cwd=target.parent)
    here, there = read_result(again), read_result(target)
    assert np.array_equal(here.embedding, there.embedding)
    assert here.attributes["stop_reason"] == there.attributes["stop_reason"] == "max_epochs"


class Run:
    """A submitted fit."""

    def __init__(self, slurm, place, name, epochs, *options, program=PSMDS):
        self.slurm, self.target = slurm, place / name
        self.arguments = (*LONG, "--max-epochs", str(epochs))
        command = ("fit", "matrix.npy", name, *self.arguments)
        self.answer = slurm.run(*program, "submit", *options, "--", *command, cwd=place).stdout
        self.job = int(self.answer.split(":")[0].removeprefix("job "))

    @property
    def log(self):
        return Path(f"{self.target}.log").read_text()

    def wait_for_epochs(self):
        """Wait until the running job has saved more epochs."""
        before = saved_epoch(self.target)

        def more():
            state = self.slurm.state(self.job)
            assert state not in ENDED, f"{state} at epoch {saved_epoch(self.target)}: {self.log}"
            return saved_epoch(self.target) > before

        poll(more, 400, lambda: self.log)

    def wait_for_restart(self, restarts):
        self.slurm.wait_for_job(self.job, "RUNNING", restarts=restarts)
        self._set("TimeLimit=60")  # Slurm keeps what `end_soon` has set
        self.wait_for_epochs()

    def preempt(self, nodes):
        """Give the nodes to another job for a moment."""
        options = ("--partition=urgent", "--exclusive", f"--nodes={nodes}", "--output=/dev/null")
        urgent = self.slurm.submit(*options, "--wrap", "true")
        self.slurm.wait_for_job(urgent, "COMPLETED")

    def end_soon(self):
        """Move the time limit so near that Slurm announces it at once."""
        self._set("EndTime=now+121")

    def _set(self, what):
        self.slurm.run("scontrol", "update", f"JobId={self.job}", what)

    def processes(self):
        """Command lines of what the job has started and that still runs."""
        private = f"{self.target}.job-{self.job}"
        lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        return [line for line in lines if private in line]

    def require_right_end(self):
        """Require the map of an undisturbed run, and nothing beside it but the log."""
        self.slurm.wait_for_job(self.job, "COMPLETED", seconds=900)
        left = {path.name for path in self.target.parent.glob(f"{self.target.name}*")}
        assert left == {self.target.name, f"{self.target.name}.log"}
        poll(lambda: not self.processes(), 60, lambda: str(self.processes()))
        require_map_of_one_process(self.slurm, self.target, self.arguments)


def test_a_run_across_nodes_survives_what_ends_its_allocations(slurm, place):
    brake = place / "brake"
    brake.touch()
    program = (*BRAKED, brake)
    run = Run(slurm, place, "nodes.zarr", 1500, "--nodes=3", "--exclusive", "--time=60", program=program)
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
    brake.unlink()
    run.require_right_end()


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
    run.require_right_end()


def test_a_chain_of_three_allocations_on_one_node(slurm, place):
    """The signal is the one that Slurm sends before the time limit."""
    run = Run(slurm, place, "chain.zarr", 3000, "--exclusive", "--time=60")
    run.wait_for_epochs()
    for restart in (1, 2):
        slurm.cancel(run.job, "--batch", "--signal=TERM")
        run.wait_for_restart(restart)
    run.require_right_end()
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
    again = slurm.run(*PSMDS, "submit", "--", "fit", "matrix.npy", "cancelled.zarr", cwd=place, check=False)
    assert (again.returncode, f"job {run.job} writes {run.target} already" in again.stderr) == (1, True)
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


def test_workers_as_jobs_of_which_one_is_cancelled(slurm, place):
    """The recipe for SLURMCluster: the lost job is submitted again, and works."""
    given = yaml.safe_load((RECIPES / "slurm.yaml").read_text())
    here = {"jobs": 2, "cores": 1, "memory": "1GiB", "interface": "lo", "shared_temp_directory": str(place)}
    (place / "slurm.yaml").write_text(yaml.safe_dump({**given, **here}))
    target, arguments, held = place / "jobs.zarr", (*LONG, "--max-epochs", "200"), place / "held"
    command = [*STOPPING, "state", held, "fit", "matrix.npy", target, *arguments]
    command += ["--cluster", "slurm:slurm.yaml"]
    with ended(subprocess.Popen(command, cwd=place, env=slurm.environment, stdout=PIPE, stderr=PIPE)) as fit:

        def until(condition):
            """Wait while the command runs."""
            poll(lambda: condition() or fit.poll() is not None, 300, slurm.logs)
            assert fit.poll() is None, fit.communicate()

        until(lambda: held.exists() and len(_running(slurm)) == 2)
        first, *_ = before = _running(slurm)
        slurm.cancel(first)
        until(lambda: set(_running(slurm)) - set(before))
        held.unlink()
        out, err = fit.communicate(timeout=600)
        assert fit.returncode == 0, err
    assert b"2 workers" in out + err or b"1 worker" in out + err
    poll(lambda: not _running(slurm), 60, slurm.logs)
    require_map_of_one_process(slurm, target, arguments)


def _running(slurm):
    """Numbers of the running jobs."""
    return slurm.run("squeue", "-h", "-t", "RUNNING", "-o", "%i").stdout.split()


def test_an_array_of_landmark_runs_keeps_the_best(slurm, place):
    """The recipe, with three small runs."""
    np.save(place / "points.npy", np.random.default_rng(1).normal(size=(300, 8)))
    recipe = (RECIPES / "landmarks-array.sbatch").read_text()
    script = recipe.replace("0-9", "0-2").replace(" --exclusive", "").replace("euclidean", "euclidean -S 40")
    (place / "array.sbatch").write_text(script)
    bin_folder = Path(sys.executable).parent
    slurm.run("env", f"PATH={bin_folder}:{slurm.environment['PATH']}", "sbatch", "array.sbatch", cwd=place)
    poll(lambda: len(list(place.glob("map-?.zarr"))) == 3 and not _running(slurm), 300, slurm.logs)
    stress = {path.name: json.loads((path / "zarr.json").read_text()) for path in place.glob("map-?.zarr")}
    stress = {name: facts["attributes"]["normalized_stress"] for name, facts in stress.items()}
    assert len(set(stress.values())) > 1
    assert os.readlink(place / "best.zarr") == min(stress, key=stress.get)
