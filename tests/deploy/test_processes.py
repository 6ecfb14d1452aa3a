"""The commands ``scheduler`` and ``worker``: what they start, with which settings, and sentences for mistakes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from psmds_dist.cli.app import main
from psmds_dist.core.errors import ClusterLost, InputError
from psmds_dist.deploy import processes
from psmds_dist.deploy import scheduler_file as files
from psmds_dist.executor import write_certificates
from tests.clusters import ended, wait_for

PSMDS = str(Path(sys.executable).parent / "psmds")


@pytest.fixture
def started(monkeypatch):
    """Commands and environments of the processes that would be started."""
    found = []
    monkeypatch.setattr(processes.os, "execve", lambda program, command, environment: found.append(command))
    monkeypatch.setattr(processes, "keep_running", lambda command, *rest: found.append(command))
    return found


def options(command):
    return dict(zip(command[3::2], command[4::2], strict=True))


def scheduler_file(folder, address):
    (folder / "cluster.json").write_text(json.dumps({"address": address}))
    return str(folder / "cluster.json")


def fails(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 1, result.output
    return result.stderr


def test_a_scheduler_listens_on_loopback(started, tmp_path):
    processes.become_scheduler(str(tmp_path / "cluster.json"))
    (command,) = started
    assert command[:3] == [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    assert options(command) == {
        "--preload": "psmds_dist.deploy.scheduler_file",
        "--host": "127.0.0.1",
        "--port": "0",
        "--dashboard-address": "127.0.0.1:0",
    }


def test_a_worker_listens_where_its_scheduler_is(started, tmp_path):
    file = scheduler_file(tmp_path, "tcp://127.0.0.1:8786")
    processes.run_worker(file, threads=3, name="one")
    (command,) = started
    assert command[:3] == [sys.executable, "-m", "distributed.cli.dask_worker"]
    assert options(command) == {
        "--scheduler-file": file,
        "--host": "127.0.0.1",
        "--nthreads": "3",
        "--nworkers": "1",
        "--memory-limit": "0",
        "--name": "one",
        "--death-timeout": "120.0",
        "--preload-nanny": "psmds_dist.deploy.ending",
        "--dashboard-address": "127.0.0.1:0",
    }


def test_names_of_workers_differ(started, tmp_path):
    processes.run_worker(scheduler_file(tmp_path, "tcp://127.0.0.1:8786"), threads=1)
    assert options(started[0])["--name"] == f"{socket.gethostname()}-{os.getpid()}"


@pytest.mark.parametrize("given", [{"host": "127.0.0.1"}, {"interface": "lo"}])
def test_where_to_listen_can_be_said(started, tmp_path, given):
    processes.become_scheduler(str(tmp_path / "cluster.json"), **given, dashboard_port=0)
    processes.run_worker(scheduler_file(tmp_path, "tcp://192.0.2.1:8786"), threads=1, **given)
    assert [options(command)["--host"] for command in started] == ["127.0.0.1"] * 2


def test_keys_are_given_as_files(started, tmp_path):
    write_certificates(str(tmp_path / "tls"))
    processes.become_scheduler(str(tmp_path / "cluster.json"), tls=str(tmp_path / "tls"))
    processes.run_worker(scheduler_file(tmp_path, "tls://127.0.0.1:1"), threads=1, tls=str(tmp_path / "tls"))
    for command in started:
        assert options(command)["--tls-key"] == str(tmp_path / "tls" / "key.pem")
        assert options(command)["--protocol"] == "tls"
        assert "PRIVATE KEY" not in " ".join(command)


def test_what_the_user_sets_takes_precedence(monkeypatch):
    assert processes._environment()["DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"] == "None"
    assert processes._environment()["MALLOC_MMAP_THRESHOLD_"] == str(2**25)
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "True")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "7")
    assert processes._environment()["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] == "True"
    assert processes._environment()["MALLOC_MMAP_THRESHOLD_"] == "7"


def test_mistakes_are_sentences(tmp_path):
    file = tmp_path / "cluster.json"
    both = fails("scheduler", "--scheduler-file", file, "--host", "127.0.0.1", "--interface", "lo")
    assert "give a host (127.0.0.1) or an interface (lo) to listen on, not both" in both
    unknown = fails("worker", "--scheduler-file", file, "--interface", "ib7")
    assert "interface must be a network interface with an IPv4 address, not 'ib7': this machine has " in unknown
    foreign = fails("scheduler", "--scheduler-file", file, "--host", "192.0.2.1")
    assert "cannot listen on 192.0.2.1, port 0 (Cannot assign requested address" in foreign
    nowhere = fails("scheduler", "--scheduler-file", tmp_path / "no" / "cluster.json")
    assert "cluster.json' cannot be written: choose a directory that exists" in nowhere
    assert "the TLS file" in fails("scheduler", "--scheduler-file", file, "--tls", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name in ("--port", "--dashboard-port"):
            message = fails("scheduler", "--scheduler-file", file, name, port)
            assert f"cannot listen on 127.0.0.1, port {port} (Address already in use" in message


def test_a_worker_without_a_scheduler_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "ATTEMPT", 0.1)
    assert "no scheduler file" in fails("worker", "--scheduler-file", tmp_path / "none.json", "--threads", 1)


def test_a_worker_tells_what_it_waits_for_and_for_how_long(tmp_path):
    file = tmp_path / "none.json"
    began = time.monotonic()
    said = fails("worker", "--scheduler-file", file, "--threads", 1, "--death-timeout", 0.5)
    assert time.monotonic() - began < 30
    waiting, _, ended = said.partition("\n")
    assert f"waiting for {file}: start 'psmds scheduler --scheduler-file {file}', or correct the path" in waiting
    assert f"no scheduler file '{file}' after 0.5 seconds" in ended


def test_a_file_that_is_there_is_not_waited_for(started, tmp_path, caplog):
    with caplog.at_level("INFO"):
        processes.run_worker(scheduler_file(tmp_path, "tcp://127.0.0.1:8786"), threads=1)
    assert "waiting" not in caplog.text


def test_the_file_of_a_running_scheduler_is_refused(started, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as running:
        address = f"tcp://127.0.0.1:{running.getsockname()[1]}"
        file = scheduler_file(tmp_path, address)
        assert f"a scheduler answers at {address}, the address in '{file}': end it first" in fails(
            "scheduler", "--scheduler-file", file
        )
    assert started == []
    processes.become_scheduler(file)  # it has ended, such as by a kill, and left its file
    assert len(started) == 1


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"address": "x"}', '{"address": "tcp://[::1:9"}'])
def test_a_file_that_names_no_scheduler_is_replaced(started, tmp_path, content):
    (tmp_path / "cluster.json").write_text(content)
    processes.become_scheduler(str(tmp_path / "cluster.json"))
    assert len(started) == 1


@pytest.mark.parametrize("content", [b"\x93NUMPY\x01\x00", b"a,b\n1,2\n"])
def test_a_file_of_something_else_is_not_replaced(started, tmp_path, content):
    (tmp_path / "matrix").write_bytes(content)
    sentence = "matrix exists and is not a scheduler file: choose another path, or remove it."
    assert sentence in fails("scheduler", "--scheduler-file", tmp_path / "matrix")
    assert started == []
    assert (tmp_path / "matrix").read_bytes() == content


def test_a_scheduler_file_that_is_a_pipe_is_refused(started, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "pipe exists and is not a scheduler file" in fails("scheduler", "--scheduler-file", tmp_path / "pipe")
    assert started == []


def test_a_scheduler_removes_its_own_file_only(monkeypatch, tmp_path):
    file = tmp_path / "cluster.json"
    monkeypatch.setenv("PSMDS_SCHEDULER_FILE", str(file))
    monkeypatch.setattr(files.atexit, "register", lambda *call: None)
    one, two = (SimpleNamespace(id=i, identity=lambda i=i: {"id": i, "address": "tcp://node:1"}) for i in "12")
    files.dask_setup(one)
    files.dask_setup(two)
    files.dask_teardown(one)
    assert json.loads(file.read_text())["id"] == "2"
    files.dask_teardown(two)
    assert os.listdir(tmp_path) == []
    files.dask_teardown(two)


def test_a_scheduler_that_cannot_write_its_file_ends(monkeypatch, tmp_path):
    monkeypatch.setenv("PSMDS_SCHEDULER_FILE", str(tmp_path / "gone" / "cluster.json"))
    with pytest.raises(SystemExit, match="cluster.json cannot be written"):
        files.dask_setup(SimpleNamespace(id="1", identity=dict))


def test_a_scheduler_that_cannot_write_its_file_ends_with_one_sentence(tmp_path):
    name = "x" * 256
    command = [PSMDS, "scheduler", "--scheduler-file", tmp_path / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"Error: {tmp_path / name} cannot be written: File name too long.\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("at_once")
def test_the_wait_for_the_file_counts_in_the_death_timeout():
    with pytest.raises(ClusterLost, match="had no scheduler for 60 seconds"):
        processes.keep_running(["false"], lambda: True, 60, time.monotonic() - 60)


def test_a_worker_must_agree_with_its_scheduler_about_tls(started, tmp_path):
    write_certificates(str(tmp_path / "tls"))
    with pytest.raises(InputError, match="uses TLS: pass --tls"):
        processes.run_worker(scheduler_file(tmp_path, "tls://127.0.0.1:1"), threads=1)
    with pytest.raises(InputError, match="does not use TLS: leave out --tls"):
        processes.run_worker(scheduler_file(tmp_path, "tcp://127.0.0.1:1"), threads=1, tls=str(tmp_path / "tls"))


def test_a_scheduler_file_that_is_being_written_is_waited_for(tmp_path):
    (tmp_path / "cluster.json").write_text('{"address": ')
    with pytest.raises(InputError, match="no scheduler file .* after 0.3 seconds: start 'psmds scheduler"):
        processes.scheduler_address(str(tmp_path / "cluster.json"), 0.3)


def test_only_a_file_that_is_gone_is_removed(monkeypatch, tmp_path):
    assert processes.is_removed(str(tmp_path / "none"))
    assert not processes.is_removed(str(tmp_path))

    def stale(path):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(processes.os, "stat", stale)
    assert not processes.is_removed(str(tmp_path / "none"))


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(processes, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(processes, "MAX_PAUSE", 0.02)
    monkeypatch.setattr(processes, "POLL", 0.01)


@pytest.mark.usefixtures("at_once")
def test_what_ends_is_started_again_until_it_is_not_wanted(tmp_path):
    log = tmp_path / "log"
    processes.keep_running(
        ["sh", "-c", f"echo again >> {log}"], lambda: not log.exists() or len(log.read_text()) < 18, 60
    )
    assert log.read_text() == "again\n" * 3


@pytest.mark.usefixtures("at_once")
def test_what_is_not_wanted_early_on_is_ended(tmp_path):
    log = tmp_path / "log"
    began = time.monotonic()
    processes.keep_running(["sh", "-c", f"echo > {log}; exec sleep 60"], lambda: not log.exists(), 60)
    assert time.monotonic() - began < 30


@pytest.mark.usefixtures("at_once")
def test_a_worker_gives_up_in_the_end():
    with pytest.raises(ClusterLost, match="had no scheduler for 0.1 seconds: start one, then the worker"):
        processes.keep_running(["false"], lambda: True, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("looking", [False, True])
def test_a_signal_ends_a_waiting_worker(tmp_path, looking):
    """Before it has found a scheduler, whether it looks for one yet or not, and without a word."""
    command = [PSMDS, "worker", "--scheduler-file", scheduler_file(tmp_path, "tcp://127.0.0.1:9"), "--threads", "1"]
    said = tmp_path / "said"
    with said.open("w") as file, ended(subprocess.Popen(command, stdout=file, stderr=file)) as worker:
        wait_for(lambda: psutil.Process(worker.pid).children())
        (child,) = psutil.Process(worker.pid).children()
        wait_for(lambda: not looking or "Run preload setup" in said.read_text())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert "Traceback" not in said.read_text()
        wait_for(lambda: not psutil.pid_exists(child.pid))


@pytest.mark.slow
@pytest.mark.wide
def test_a_worker_finds_a_scheduler_that_was_killed_and_started_again(tmp_path):
    """And ends when that one ends in order."""
    file = ["--scheduler-file", str(tmp_path / "cluster.json")]
    with ExitStack() as stack:
        scheduler, worker = (_start(stack, tmp_path, role, *file) for role in ("scheduler", "worker"))
        wait_for(lambda: "Registered to" in (tmp_path / "worker").read_text(), 120)
        scheduler.kill()
        scheduler.wait()
        scheduler = _start(stack, tmp_path, "scheduler", *file)
        wait_for(lambda: (tmp_path / "worker").read_text().count("Registered to") == 2, 120)
        scheduler.terminate()
        assert scheduler.wait(60) == 0
        assert worker.wait(60) == 0
        assert not (tmp_path / "cluster.json").exists()


def _start(stack, folder, role, *arguments):
    with (folder / role).open("ab") as log:
        process = subprocess.Popen([PSMDS, role, *arguments], stdout=log, stderr=log)
    return stack.enter_context(ended(process))
