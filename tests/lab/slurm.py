"""A real Slurm on this machine: munged, slurmctld, and nodes with host names and process ids of their own.

A node is a slurmd in namespaces that end with it, so a node can lose power and nothing outlives the tests. All files
are in one folder. Nodes share the network of this machine, or have one each (`Host.enter`).
"""

import fcntl
import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "unshare", "setpriv")

CONFIG = """\
ClusterName=lab
SlurmctldHost=head({hosts[0].address})
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job waits for `cred_expire` seconds, 120 by default
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
# nodes claim more than this machine has
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=500
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
InactiveLimit=0
KillWait=5
MinJobAge=3600
SlurmctldTimeout=60
SlurmdTimeout=20
MessageTimeout=30
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=REQUEUE GraceTime=3
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
"""

NODE = "NodeName={name} NodeAddr={host.address} Port={port} CPUs=4 RealMemory=4000 State=UNKNOWN"

# pytest lets nobody else into its folders, which munged warns of unless it is forced
MUNGED = ("munged", "--foreground", "--force", "--num-threads=2")

BOOT = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'

WITH_SBIN = os.environ["PATH"] + ":/usr/sbin:/sbin"


@dataclass(frozen=True)
class Host:
    """Where the processes of a node run."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    """Command prefix that enters the network of the host, such as ``("nsenter", "--net=/run/netns/x")``."""


def unavailable():
    """Reason for which no Slurm can be started here; empty if it can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=WITH_SBIN) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (.ci/clusters installs them)"
    if os.geteuid():
        return "only root may start Slurm with nodes in namespaces"
    refused = subprocess.run([*_namespaces(), "true"], capture_output=True, text=True, check=False)
    return f"no namespaces: {refused.stderr.strip()}" if refused.returncode else ""


def _namespaces():
    """Command prefix: in new namespaces, whose processes all end with the first, and that with the tests."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Slurm:
    """A running Slurm: ``node1``, ``node2``, ... with 4 CPUs each, and the partitions ``main`` and ``urgent``.

    Jobs in ``urgent`` pre-empt those in ``main``, which are requeued; they get SIGTERM and 3 s of grace.

    Parameters
    ----------
    folder : Path
        Place of all files; short, because of a socket in it.
    hosts : list of Host
        The host of the controller, and those of the nodes.
    """

    def __init__(self, folder, hosts):
        self.folder = Path(folder)
        self.config = self.folder / "slurm.conf"
        self.environment = {**os.environ, "PATH": WITH_SBIN, "SLURM_CONF": str(self.config)}
        self.hosts = dict(zip(["head", *(f"node{i}" for i in range(1, len(hosts)))], hosts, strict=True))
        self.nodes = list(self.hosts)[1:]
        self._processes = {}

    def start(self):
        for name in ("munge", "state", "spool", "run", "log"):
            (self.folder / name).mkdir(mode=0o755, parents=True)
        self._write_config()
        self._start_munged()
        self._boot("head", "slurmctld", "-D")
        for node in self.nodes:
            self._boot(node, "slurmd", "-D", "-N", node)
        poll(lambda: self.idle_nodes() == self.nodes, 60, self.logs)

    def _write_config(self):
        ports = _free_ports(len(self.hosts))
        (self.folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{host.address} {name}\n" for name, host in self.hosts.items())
        )
        nodes = [NODE.format(name=n, host=self.hosts[n], port=p) for n, p in zip(self.nodes, ports[1:], strict=True)]
        hosts = list(self.hosts.values())
        self.config.write_text(CONFIG.format(folder=self.folder, hosts=hosts, ports=ports, nodes="\n".join(nodes)))

    def _start_munged(self):
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={munge / file}" for option, file in files.items()]
        self._spawn("munged", ["setpriv", "--pdeathsig", "KILL", *MUNGED, *options])
        poll(lambda: (munge / "socket").exists(), 30, self.logs)

    def _boot(self, name, *command):
        """Start a host, whose first process is the command."""
        boot = ["sh", "-c", BOOT, "sh", name, str(self.folder / "hosts"), *command]
        self._spawn(name, [*self.hosts[name].enter, *_namespaces(), *boot])

    def _spawn(self, name, command):
        with (self.folder / "log" / name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def stop(self):
        """End all hosts, and wait until none of the processes that they or their jobs started is left."""
        for name in reversed(list(self._processes)):
            self._kill(name)
        poll(lambda: not self._left(), 60, self._left)

    def _left(self):
        return [
            process.info["cmdline"] for process in psutil.process_iter(["cmdline", "environ"]) if self._ours(process)
        ]

    def _ours(self, process):
        environment = process.info["environ"] or {}  # None if it ended meanwhile
        return process.pid != os.getpid() and environment.get("SLURM_CONF") == str(self.config)

    def _kill(self, name):
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kill_node(self, name):
        """Take the power of a node: every process on it ends at once. Slurm notices within some 20 s."""
        self._kill(name)

    def revive_node(self, name):
        """Start a node again that was killed."""
        self._boot(name, "slurmd", "-D", "-N", name)

    def logs(self):
        """Last lines of all logs."""
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            for log in sorted((self.folder / "log").iterdir())
        )

    def run(self, *command, check=True, **how):
        """Run a command on the host of the controller, as a user would on a login node."""
        done = subprocess.run(
            [*self.hosts["head"].enter, *map(str, command)],
            **{"env": self.environment, "capture_output": True, "text": True, "timeout": 300, **how},
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def submit(self, *options):
        """Call ``sbatch`` with these options and return the number of the job."""
        return int(self.run("sbatch", "--parsable", *options).stdout.split(";")[0])

    def job(self, job):
        """What Slurm knows about a job, by the names of ``scontrol show job``."""
        text = self.run("scontrol", "show", "job", "--oneliner", job).stdout
        return dict(re.findall(r"(\w+(?:/\w+)?)=(\S*)", text))

    def state(self, job):
        """State of a job, such as ``RUNNING``."""
        return self.job(job)["JobState"]

    def wait_for_job(self, job, *states, restarts=0, seconds=180):
        """Wait until a job is in one of the states and was requeued so often at least; return what Slurm knows."""

        def reached():
            known = self.job(job)
            return known if known["JobState"] in states and int(known["Restarts"]) >= restarts else None

        return poll(reached, seconds, lambda: f"{self.job(job)}\n{self.logs()}")

    def wait_for_nodes(self, job, count, seconds=180):
        """Wait until Slurm has noticed that a job has so many nodes."""
        poll(lambda: self.job(job)["NumNodes"] == str(count), seconds, lambda: f"{self.job(job)}\n{self.logs()}")

    def cancel(self, job, *options):
        self.run("scancel", *options, job)

    def idle_nodes(self):
        return sorted(self.run("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N", check=False).stdout.split())

    def set_grace_time(self, seconds):
        """Seconds between SIGTERM and SIGKILL for jobs that are pre-empted."""
        self.run("scontrol", "update", "PartitionName=main", f"GraceTime={seconds}")


def poll(condition, seconds, describe):
    """Wait until a condition is true and return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"timed out after {seconds} s:\n{describe()}"
        time.sleep(0.25)
    return value


def _free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


@contextmanager
def started_slurm(folder, hosts=4 * [Host()]):
    """Yield a `Slurm` with the hosts, by default a controller and three nodes on the network of this machine.

    It ends with the block, and there is never more than one on a machine.
    """
    with open("/tmp/psmds-slurm-lab.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        slurm = Slurm(folder, hosts)
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm of three nodes for the tests of a module, which import this fixture."""
    if reason := unavailable():
        pytest.skip(reason)
    with started_slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm
