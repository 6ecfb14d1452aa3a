"""A Ctrl-C is never lost."""

import ctypes
import signal
import sys
import time
import weakref

import numpy as np
import pytest

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.interrupts import heard, kept_back, terminable


class Interrupting:
    """An object with which a Ctrl-C comes when it goes."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("guard", [heard, terminable])
def test_an_interrupt_that_falls_into_a_finaliser_comes_again(guard):
    def run():
        with guard():
            Interrupting()  # gone at once
            time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        run()


def test_an_interrupt_that_falls_into_a_callback_of_a_weak_reference_comes_again():
    def run():
        with heard():
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

    with heard():
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
    [("psmds_dist.run", "warm_up_solver", PatternSearchMDS()), ("landmarks.fit", "warm_up_landmarks", LandmarkMDS())],
)
def test_a_fit_ends_at_an_interrupt_that_falls_into_a_callback_of_the_compiler(module, name, estimator, monkeypatch):
    @ctypes.CFUNCTYPE(None)  # what is raised in it goes nowhere, as in those of llvmlite
    def callback():
        signal.raise_signal(signal.SIGINT)

    def warm_up(*arguments):
        callback()
        time.sleep(30)

    monkeypatch.setattr(f"{module}.{name}", warm_up)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(1 - np.eye(9))


def test_terminable_makes_an_interrupt_of_a_termination():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_started_is_complete_when_an_interrupt_counts(number):
    done = []

    def run():
        with terminable():
            with kept_back():
                signal.raise_signal(number)
                done.append("started")
            done.append("used")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["started"]
