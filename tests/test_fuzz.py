"""A few cases of every entry that ``make fuzz`` runs by the thousand; hypothesis makes a failure smaller."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.choosing import Drawn, Seeded
from tests.fuzz.entries import ENTRIES
from tests.fuzz.judging import FuzzFailure, judged, own_folder
from tests.fuzz.oracle import Verdict
from tests.fuzz.rules import SPOILS
from tests.fuzz.running import run_batch
from tests.marks import wide_but_one


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize("entry", list(ENTRIES))
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_entry(entry, data):
    with own_folder() as folder:
        assert ENTRIES[entry](Drawn(data), folder) in ("right", "refused")


@pytest.mark.parametrize("name", list(SPOILS))
def test_a_fault_in_weights_bounds_or_pins_is_told_in_a_sentence(name, tmp_path):
    class Chosen(Seeded):
        """Choices of which the first is this fault."""

        def pick(self, options):
            return name if name in options else super().pick(options)

    assert ENTRIES["bad rules"](Chosen(0, "bad rules", 0), tmp_path) == "refused"


@pytest.mark.parametrize("case", wide_but_one(7, 0, 1, 2, 3))
def test_a_fit_by_any_rule_is_right_and_resumes_to_the_same_bits(case, tmp_path):
    assert ENTRIES["rules"](Seeded(0, "rules", case), tmp_path) in ("right", "refused")


def test_some_files_of_other_programs():
    done = run_batch("files of other programs", 0, range(40))
    assert not done.faults
    assert done.ends["right"] > 5
    assert done.ends["refused"] > 5


def test_a_case_is_a_function_of_its_seed():
    one, same, other = (Seeded(*key) for key in ((3, "ids", 5), (3, "ids", 5), (3, "ids", 6)))
    drawn = [[chooser.number(0, 10**9) for _ in range(4)] for chooser in (one, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("error", "verdict", "told"),
    [
        (None, Verdict.REFUSED, "accepted in silence"),
        (ValueError("numpy's own"), Verdict.REFUSED, "leaked"),
        (ZeroDivisionError("x"), Verdict.EITHER, "instead of a sentence"),
        (AssertionError("wrong stress"), Verdict.RIGHT, "wrong stress"),
    ],
)
def test_faults_are_found(error, verdict, told):
    def call():
        if error is not None:
            raise error

    with pytest.raises(FuzzFailure, match=told):
        judged(call, verdict, "a story")


def test_a_fault_is_counted_and_can_be_repeated(monkeypatch):
    def faulty(choose, folder):
        if choose.number(0, 1):
            raise FuzzFailure("something")
        return "right"

    monkeypatch.setitem(ENTRIES, "ids", faulty)
    batch = run_batch("ids", 4, range(20))
    assert batch.ends["fault"] == len(batch.faults) > 0
    assert batch.ends["right"] == 20 - len(batch.faults)
    assert all(fault.startswith("--seed 4 --only 'ids' --case ") for fault in batch.faults)


def test_a_run_ends_though_its_processes_have_processes_of_their_own():
    code = (
        "import multiprocessing, concurrent.futures as futures\n"
        "from tests.fuzz.aside import aside\n"
        "with futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool:\n"
        "    print(pool.submit(aside, 'a call', str, 7).result())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "7\n"
