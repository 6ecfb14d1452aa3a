"""Calls that loop or crash in another process are told, and nothing else is."""

import json
import os
import re

import pytest

from psmds_dist.utils.trial import fault_in

ENDLESS = "(a+)+$", "a" * 60 + "b"


@pytest.mark.parametrize(
    ("call", "given", "told"),
    [
        (re.match, ENDLESS, "there is no end in 1 s"),
        (os.abort, (), "a crash, SIGABRT"),
        (json.loads, ("no JSON",), None),
        (json.loads, ("[]",), None),
    ],
)
def test_a_loop_and_a_crash_are_told_and_an_error_is_not(call, given, told):
    assert fault_in(call, *given, seconds=1) == told


def test_without_another_process_nothing_is_tried(monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert fault_in(os.abort, seconds=1) is None
