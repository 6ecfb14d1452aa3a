"""What processes are, and what may surprise where several work together."""

import platform
import socket
import time

import llvmlite.binding as llvm
import pytest

from psmds_dist.utils.facts import Processor, WorkerFacts, compiled_for, differences, facts_of_process

WIDE = Processor("skylake-avx512", frozenset({"avx2", "avx512f", "fma"}))
NARROW = Processor("haswell", frozenset({"avx2", "fma"}))
VERSIONS = {"python": "3.12.1", "numpy": "2.0", "numba": "0.62", "llvmlite": "0.45"}
NOW = 1e9


def worker(host, processor=WIDE, clock=NOW, **versions):
    return WorkerFacts(host, processor, {**VERSIONS, **versions}, clock, 2**30)


def test_this_process():
    found = facts_of_process()
    assert found.host == socket.gethostname()
    assert found.versions["python"] == platform.python_version()
    assert abs(found.clock - time.time()) < 60
    assert found.processor.name == llvm.get_host_cpu_name()
    assert all(llvm.get_host_cpu_features()[feature] for feature in found.processor.features)


def test_the_environment_names_another_processor():
    here = platform.machine()
    assert compiled_for({"NUMBA_CPU_NAME": "generic"}) == (f"{here} generic", frozenset())
    given = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,-fma"}
    assert compiled_for(given) == (f"{here} haswell", frozenset({"avx2"}))


def test_nothing_is_said_of_equals():
    assert differences([worker("a"), worker("b", clock=NOW + 3)], worker("here", clock=NOW + 2), 2.0) == []


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ([worker("a", numba="0.63")], "versions of numba differ (0.62 on here, 0.63 on a)"),
        ([worker("a", python="3.11.7")], "versions of python differ (3.11.7 on a, 3.12.1 on here)"),
        (
            [worker("a", NARROW), worker("b")],
            "different processors (haswell on a; skylake-avx512 on here with avx512f), so the last bits",
        ),
        ([worker("a", clock=NOW + 60)], "the clock of a is 60 s ahead of that of this machine"),
        ([worker("a"), worker("b", clock=NOW - 30)], "the clock of b is 28 s behind that of this machine"),
    ],
)
def test_differences_are_told(others, sentence):
    (said,) = differences(others, worker("here"), 2.0)
    assert sentence in said
