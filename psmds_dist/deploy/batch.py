"""Batch jobs: the script of a job that runs a whole command in its allocation, and its submission to Slurm."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from psmds_dist.core.errors import InputError

LEAD = 120
"""Seconds before the time limit at which the command is asked to end."""

PLAIN = re.compile(r"[\w@%+=:,./\[\]-]+")
"""Options that a script may hold without quotes."""

RESERVED = {
    "--wrap": "the command after '--' takes its place",
    "--array": "the jobs of an array would share one target: submit one job for each, or see cluster/slurm",
    "-a": "the jobs of an array would share one target: submit one job for each, or see cluster/slurm",
}
"""Options of sbatch that a job of one command cannot have, and why."""


@dataclass(frozen=True)
class Job:
    """A command that runs in an allocation of Slurm.

    Attributes
    ----------
    command : sequence of str
        Arguments of ``psmds``.
    target : str
        Absolute path beside which the log and the job's private directory are.
    directory : str
        Directory that the command is run in.
    options : sequence of str
        Options of sbatch, which override those set here.
    on_workers : bool
        Whether the command can work on a cluster, which a job of several nodes then starts.
    interface : str, optional
        Network interface of the cluster, by default that of Slurm.
    program : sequence of str
        Program and arguments that are ``psmds`` on the nodes.
    """

    command: Sequence[str]
    target: str
    directory: str
    options: Sequence[str] = ()
    on_workers: bool = True
    interface: str | None = None
    program: Sequence[str] = field(default_factory=lambda: (sys.executable, "-m", "psmds_dist"))

    def __post_init__(self) -> None:
        for option in self.options:
            if reason := RESERVED.get(option.partition("=")[0]):
                raise InputError(f"sbatch option {option.partition('=')[0]} cannot be used here: {reason}.")
        for text in (*self.options, self.target):
            if "\n" in text:
                raise InputError(f"{text!r} has a line break, which an option of sbatch cannot have: remove it.")


def script(job: Job) -> str:
    """Render the script of a job: options and variables, followed by what is the same for all jobs."""
    listen = [] if job.interface is None else ["--interface", job.interface]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {_quoted(option)}" for option in _defaults(job)),
        *(f"#SBATCH {option}" for option in _joined(job.options)),
        "",
        f"cd {shlex.quote(job.directory)} || exit 1",
        f"psmds=({shlex.join(job.program)})",
        f"run=({shlex.join(job.command)})",
        f"target={shlex.quote(job.target)}",
        f"on_workers={'yes' if job.on_workers else 'no'}",
        f"listen=({shlex.join(listen)})",
        "",
        Path(__file__).with_name("job.sh").read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


def _defaults(job: Job) -> list[str]:
    return [
        f"--job-name={Path(job.target).name}",
        f"--comment={_mark(job.target)}",
        f"--output={job.target.replace('%', '%%')}.log",
        "--open-mode=append",
        "--requeue",
        "--no-kill",
        f"--signal=B:TERM@{LEAD}",
    ]


def _mark(target: str) -> str:
    """Comment by which the jobs that write a target are known."""
    return f"psmds {target}"


def _joined(options: Sequence[str]) -> list[str]:
    """Options with their values, one per line of the script."""
    joined: list[str] = []
    for option in options:
        if option.startswith("-") or not joined:
            joined.append(_quoted(option))
        else:
            joined[-1] += f" {_quoted(option)}"
    return joined


def _quoted(option: str) -> str:
    """Quote an option as Slurm reads it, which is not as a shell does."""
    return option if PLAIN.fullmatch(option) else '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


@dataclass(frozen=True)
class Submitted:
    """A job that Slurm has accepted."""

    number: str
    log: str


def submit(job: Job) -> Submitted:
    """Submit a job to Slurm.

    Raises
    ------
    InputError
        When Slurm is not there, does not accept the job, or has another one that writes the same target.
    """
    if others := _jobs_of(job.target):
        raise InputError(
            f"job {others[0]} writes {job.target} already: watch it with 'psmds status', or end it with 'scancel "
            f"{others[0]}' before another one is submitted; or give another TARGET."
        )
    number = _slurm(["sbatch", "--parsable"], script(job)).split(";")[0].strip()
    known = _slurm(["scontrol", "show", "job", number])
    log = re.search(r"^\s*StdOut=(.*)$", known, re.MULTILINE)
    return Submitted(number, log[1].replace("%%", "%") if log else "")


def _jobs_of(target: str) -> list[str]:
    """Jobs of this user, waiting or running, that write a target; none where Slurm does not say."""
    if shutil.which("squeue") is None:
        return []
    command = ["squeue", "--me", "--noheader", "--format=%i %k"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    jobs = (line.strip().partition(" ") for line in done.stdout.splitlines())
    return [number for number, _, comment in jobs if comment == _mark(target)]


def _slurm(command: list[str], text: str | None = None) -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError(
            f"{command[0]} was not found: submit from a machine with the commands of Slurm, such as a login node, or "
            "print the script with --dry-run."
        ) from None
    if done.returncode:
        words = "; ".join(re.sub(r"^\w+: (error: )?", "", line) for line in done.stderr.splitlines() if line.strip())
        raise InputError(f"{command[0]} did not accept the job: {words.rstrip('.') or f'code {done.returncode}'}.")
    return done.stdout
