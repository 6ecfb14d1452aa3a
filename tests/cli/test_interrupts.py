"""A Ctrl-C is never lost."""

import ctypes
import os
import signal
import subprocess
import sys
import time
import weakref

import distributed
import numpy as np
import pytest

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.deploy.local import local_client
from psmds_dist.utils.signals import defer_interrupts, reraise_swallowed_interrupt, sigterm_as_interrupt
from tests.marks import wide


class Interrupting:
    """An object with which a Ctrl-C comes when it goes."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("guard", [reraise_swallowed_interrupt, sigterm_as_interrupt])
def test_an_interrupt_that_falls_into_a_finaliser_comes_again(guard):
    def run():
        with guard():
            Interrupting()  # gone at once
            time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        run()


def test_an_interrupt_that_falls_into_a_callback_of_a_weak_reference_comes_again():
    def run():
        with reraise_swallowed_interrupt():
            watched = {1, 2}
            watch = weakref.ref(watched, lambda _: signal.raise_signal(signal.SIGINT))
            del watched
            time.sleep(30)
            return watch

    with pytest.raises(KeyboardInterrupt):
        run()


def test_other_errors_in_finalisers_are_reported_as_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    before = sys.unraisablehook

    class Failing:
        def __del__(self):
            raise ValueError("as ever")

    with reraise_swallowed_interrupt():
        Failing()
    assert [str(ignored.exc_value) for ignored in told] == ["as ever"]
    assert sys.unraisablehook is before


def test_a_fit_ends_at_an_interrupt_that_python_ignores():
    matrix = np.abs(np.subtract.outer(np.arange(300.0), np.arange(300.0)))

    def interrupt(event):
        if event.epoch == 4:
            Interrupting()

    mds = PatternSearchMDS(radius=1e-3, eps=0.0, max_epochs=10**6, init="random", on_epoch=interrupt).fit(matrix)
    assert mds.stop_reason_ == "interrupted"


@pytest.mark.parametrize(
    ("module", "name", "estimator"),
    [
        ("psmds_dist.api.embed", "warm_up_solver", PatternSearchMDS()),
        ("landmarks.solver.fit", "warm_up_landmarks", LandmarkMDS()),
    ],
)
def test_a_fit_ends_at_an_interrupt_that_falls_into_a_callback_of_the_compiler(module, name, estimator, monkeypatch):
    @ctypes.CFUNCTYPE(None)  # what is raised in it goes nowhere, as in those of llvmlite
    def callback():
        signal.raise_signal(signal.SIGINT)

    def warm_up(*arguments, **options):
        callback()
        time.sleep(30)

    monkeypatch.setattr(f"{module}.{name}", warm_up)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(1 - np.eye(9))


def test_sigterm_becomes_an_interrupt():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_deferred_interrupt_is_raised_when_everything_has_started(number):
    done = []

    def run():
        with sigterm_as_interrupt():
            with defer_interrupts():
                signal.raise_signal(number)
                done.append("started")
            done.append("used")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["started"]


class Opened:
    """A cluster or client with which a Ctrl-C comes when it closes."""

    closed = ()
    error = None

    def __init__(self, *given, **how):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self, timeout=None):
        signal.raise_signal(signal.SIGINT)
        Opened.closed += (type(self).__name__,)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, TimeoutError("timed out")])
def test_a_local_cluster_is_closed_in_order_when_interrupts_come_meanwhile(error, monkeypatch):
    monkeypatch.setattr(distributed, "LocalCluster", type("LocalCluster", (Opened,), {}))
    monkeypatch.setattr(distributed, "Client", type("Client", (Opened,), {}))
    monkeypatch.setattr(Opened, "error", error)
    monkeypatch.setattr(Opened, "closed", ())
    with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt(), local_client(2, 1):
        signal.raise_signal(signal.SIGINT)
    assert Opened.closed == ("Client", "LocalCluster")


HOOKED = """
import signal
import sys


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == chosen:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)


chosen = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupting())
from psmds_dist.__main__ import main

main()
"""
"""The command, with a Ctrl-C as it begins to import a module."""


@pytest.mark.parametrize(
    "name",
    ["click", "numba", *wide("psmds_dist.cli.app", "psmds_dist.api.embed", "numpy.random", "llvmlite.binding")],
)
def test_an_interrupt_during_imports_ends_the_command_without_a_traceback(name, tmp_path):
    np.save(tmp_path / "matrix.npy", 1 - np.eye(9))
    command = [sys.executable, "-c", HOOKED, name, "fit", "matrix.npy", "map.zarr"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert done.stderr in ("", "Error: interrupted.\n")
    assert os.listdir(tmp_path) == ["matrix.npy"]


AGAIN = """
import signal
import click
from psmds_dist.api import embed
from psmds_dist.__main__ import main

embed.embed = lambda *given, **how: signal.raise_signal(signal.SIGINT)
click.ClickException.show = lambda error: signal.raise_signal(signal.SIGINT)
main()
"""


def test_a_second_interrupt_ends_a_command_that_is_about_to_end(tmp_path):
    np.save(tmp_path / "matrix.npy", 1 - np.eye(9))
    command = [sys.executable, "-c", AGAIN, "fit", "matrix.npy", "map.zarr"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


ABANDONED = """
import atexit
import gc
import signal
import threading
from psmds_dist import __main__ as process
from psmds_dist.cli.app import main


class Failing:
    def __init__(self, place):
        self.place = place

    def __del__(self):
        fail(self.place)


def fail(place, *given):
    raise ValueError(f"from {place}")


def once(*given):
    gc.callbacks.remove(once)
    fail("gc")


async def task():
    fail("task")


async def loop():
    asyncio.ensure_future(task())
    await asyncio.sleep(0)


@main.command()
def normal():
    global asyncio, kept
    import asyncio  # here, as libraries do
    Failing("finaliser")
    gc.callbacks.append(once)
    gc.collect()
    thread = threading.Thread(target=fail, args=["thread"])
    thread.start()
    thread.join()
    asyncio.run(loop())
    gc.collect()
    task()  # never awaited
    atexit.register(fail, "exit")
    kept = Failing("end")


@main.command()
def interrupted():
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        normal.callback()


@main.command()
def waiting():
    process.GRACE = 0.01
    print("written", end="")
    threading.Thread(target=threading.Event().wait).start()
    signal.raise_signal(signal.SIGINT)


class Waiting:
    def __del__(self):
        threading.Event().wait()


@main.command()
def cleaning():
    global kept
    kept = Waiting()
    process.GRACE = 3600
    atexit.register(print, "cleaned up", flush=True)
    signal.raise_signal(signal.SIGINT)


process.main()
"""
"""Commands that leave behind what fails or waits."""


def test_nothing_that_fails_after_an_interrupt_is_reported():
    command = [sys.executable, "-c", ABANDONED]
    done = subprocess.run([*command, "interrupted"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Error: interrupted.\n")


def test_without_an_interrupt_everything_that_fails_is_reported():
    done = subprocess.run([sys.executable, "-c", ABANDONED, "normal"], capture_output=True, text=True)
    assert done.returncode == 0
    places = ["finaliser", "gc", "thread", "task", "exit", "end"]
    assert [line.removeprefix("ValueError: from ") for line in done.stderr.splitlines() if "Error: " in line] == places
    assert "RuntimeWarning: coroutine 'task' was never awaited" in done.stderr


@pytest.mark.parametrize(("name", "printed"), [("waiting", "written"), ("cleaning", "cleaned up\n")])
def test_an_interrupted_command_runs_exit_functions_but_waits_for_no_thread_or_finaliser(name, printed):
    done = subprocess.run([sys.executable, "-c", ABANDONED, name], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, printed, "Error: interrupted.\n")


def test_an_interrupt_is_ignored_where_the_shell_has_said_so(tmp_path):
    line = f"trap '' INT; exec '{sys.executable}' -c '{HOOKED}' click certificates tls"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == ["tls"]


READY = """
import signal
import psmds_dist.__main__ as process

signal.signal(signal.SIGINT, process._exit)  # as the command begins
print("ready", flush=True)
process.main()
"""

ENDLESS = ["--radius", "1e-5", "--eps", "0", "--max-epochs", "1000000", "--init", "random"]
"""Options of a fit that lasts for an hour: no epoch raises the error, and each moves a point by next to nothing."""


@pytest.fixture
def fit(tmp_path):
    """Start an endless fit that has set up Ctrl-C, in a process group of its own, as a terminal does."""
    points = np.random.default_rng(0).normal(size=(1500, 6))
    np.save(tmp_path / "matrix.npy", np.linalg.norm(points[:, None] - points, axis=2).astype("float32"))

    def start(*options):
        command = [sys.executable, "-c", READY, "fit", "matrix.npy", "map.zarr", "--overwrite", *ENDLESS, *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=tmp_path, process_group=0, **pipes)
        assert process.stdout.readline() == "ready\n"
        return process

    return start


def interrupt_after(process, *pauses):
    """Send Ctrl-C after each pause, and return what the command says until all its processes have ended."""
    for pause in pauses:
        time.sleep(pause)
        os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, (pauses, said)
    assert "Traceback" not in said
    assert "ignored" not in said
    return said


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
@pytest.mark.parametrize("again", [[], [0.05], [0.5]])
def test_interrupts_at_any_moment_end_a_command_without_a_traceback(workers, again, fit, tmp_path):
    for delay in np.linspace(0.01, 5 if workers else 3, 4 if again else 8):
        interrupt_after(fit(*workers), delay, *again)
        left = {"map.zarr", "map.zarr.checkpoint", "matrix.npy"}
        unfinished = {name for name in os.listdir(tmp_path) if name.startswith(".map.zarr.")}
        assert not unfinished or again  # a lock that nobody holds, and half a target: the next run takes them away
        assert set(os.listdir(tmp_path)) - unfinished <= left


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
@pytest.mark.parametrize("line", ["", "epochs in"])
def test_a_second_interrupt_at_any_moment_after_the_first_ends_a_command_without_a_traceback(line, workers, fit):
    for again in [0, 0.03, 0.3, 1]:
        process = fit(*workers)
        assert any("kept in memory" in printed for printed in process.stdout)
        time.sleep(1)  # in most cases there is a map then
        os.killpg(process.pid, signal.SIGINT)
        if line:
            any(line in printed for printed in process.stdout)  # wait for this line, or for the end
        assert interrupt_after(process, again).startswith("Error: interrupted")
