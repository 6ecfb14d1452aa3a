"""The benchmark suite's judgement: a wrong result fails it, a slow one does not."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from psmds_dist import PatternSearchMDS
from tests import reference
from tests.benchmarks import __main__ as suite
from tests.benchmarks import comparison, data, machine
from tests.benchmarks.cases import CASES
from tests.benchmarks.curves import exponent
from tests.benchmarks.methods import OURS, PAPER, RANDOM, Map, Method
from tests.benchmarks.ours import exact
from tests.benchmarks.paper import one_epoch


def shrunk(store: str, seed: int) -> Map:
    """A method of ours that went wrong."""
    found = exact(store, seed)
    return Map(found.embedding / 2)


def line(what, stress, **more):
    record = {"data": "digits", "n": 100, "what": what, "ours": what in (OURS, RANDOM), "stress": stress, "note": ""}
    run = {"stress": stress, "claimed": None}
    return {**record, "runs": [run], "seconds": 1.0, **more}


GOOD = line("SMACOF", 0.30)


@pytest.mark.parametrize(
    ("ours", "others", "fault"),
    [
        (line(OURS, 0.32), [GOOD], "more than 1.03 times the 0.30000 of SMACOF"),
        (line(OURS, None, note="coordinates that are not finite"), [GOOD], "not finite"),
        (line(OURS, 0.30, runs=[{"stress": 0.30, "claimed": 0.29}]), [GOOD], "tells a stress of 0.29"),
        (line(RANDOM, 0.20), [line(PAPER, 0.30)], "0.30000 of the paper's algorithm"),
    ],
)
def test_wrong_results_are_called_wrong(ours, others, fault):
    assert fault in comparison.judge(ours, [ours, *others])


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        (line(OURS, 0.301), [GOOD]),
        (line(OURS, 0.25), [GOOD]),
        (line(OURS, 0.30, seconds=1e6), [GOOD]),
        (line(OURS, 1e-4), [line("classical MDS", 1e-9)]),
        (line(OURS, 0.30, runs=[{"stress": 0.30, "claimed": 0.30}]), []),
        (line(OURS, None, left_out="left out: takes minutes (--full)"), [GOOD]),
        (line("SMACOF", 0.9), [line(OURS, 0.3)]),
    ],
)
def test_right_slow_and_left_out_ones_are_not(ours, others):
    assert comparison.judge(ours, [ours, *others]) is None


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize(("target", "code"), [("tests.benchmarks.ours:exact", 0), ("tests.test_benchmarks:shrunk", 1)])
def test_exit_code_of_the_quick_profile_tells_a_wrong_result(target, code, tmp_path, monkeypatch, capsys):
    paper = Method(PAPER, "tests.benchmarks.peers:paper", "matrix", 1000, 1000, quick=True)
    ours = Method(OURS, target, "store", 1000, 1000, ours=True, quick=True)
    monkeypatch.setattr(comparison, "METHODS", (ours, paper))
    monkeypatch.setattr(comparison, "_sets", lambda settings: [data.digits(settings, 150)])
    assert suite.main(["--quick", "--only", "compare", "--output", str(tmp_path)]) == code
    out, err = capsys.readouterr()
    assert ("WRONG: pattern search on digits, N = 150: stress" in err) == (code == 1)
    assert PAPER in out
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert {record["what"] for record in kept["cases"]["compare"]} == {OURS, PAPER}
    assert all(record["peak_memory"] > 2**20 for record in kept["cases"]["compare"])
    assert kept["facts"]["packages"]["numpy"] == np.__version__


def test_maps_are_compared_with_the_best_known_and_its_cache_is_used(tmp_path, capsys):
    arguments = ["--quick", "--only", "maps", "--sets", "simplex-12", "--output", str(tmp_path)]
    assert suite.main(arguments) == 0
    assert "simplex-12: SMACOF, classical in " in capsys.readouterr().out
    assert suite.main([*arguments, "--cached"]) == 0
    out = capsys.readouterr().out
    assert "simplex-12: " not in out
    assert "worst: simplex-12, " in out
    record, *bounds = json.loads((tmp_path / "bench.json").read_text())["cases"]["maps"]
    assert 1 <= record["times_best"] <= record["worst"] < 1.03
    assert len(bounds) == 5


def test_the_papers_algorithm_in_numpy_is_the_papers():
    random = np.random.default_rng(0)
    t = reference.distances(random.random((25, 4)))
    x = random.random((25, 2))
    expected, (after,) = reference.sequential(t, x, 0.2, radius_tol=0.01, max_epochs=1)
    moved = np.ascontiguousarray(x.T)
    one_epoch(t, moved, 0.2)
    np.testing.assert_allclose(moved.T, expected, atol=1e-12)
    assert after < reference.error(t, x)


def test_exponents_are_fitted_on_logarithms():
    assert exponent([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)


def test_every_case_is_told_of():
    table = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    assert [name for name in CASES if f"`{name}`" not in table] == []


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Cases that note that they ran, and do no more; call it to run the suite."""
    ran = []

    def case_of(name):
        def case(settings):
            """Note that it ran."""
            ran.append(name)
            return []

        return case

    for name in CASES:
        monkeypatch.setitem(CASES, name, case_of(name))

    def run(*arguments):
        ran.clear()
        return suite.main([*arguments, "--output", str(tmp_path)]), list(ran)

    return run


@pytest.mark.parametrize("only", [["passes", "small"], ["passes,small"], ["passes,", "small,passes"]])
def test_cases_are_named_with_blanks_or_commas(recorded, only):
    assert recorded("--only", *only) == (0, ["passes", "small"])
    assert recorded() == (0, list(CASES))


@pytest.mark.parametrize(("load", "busy"), [(0.1, False), (3.9, True)])
def test_a_busy_machine_is_told(recorded, monkeypatch, capsys, load, busy):
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    recorded("--only", "small", "--quick")
    machine, quick, *_ = capsys.readouterr().out.splitlines()
    assert ", 2 cores, " in machine
    assert f"load {load}" in machine
    assert ("others are at work" in machine) == busy
    assert quick.startswith("--quick: sets are smaller")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "passes,nope"], "no case is called 'nope'; there are compare, maps"),
        (["--only", ""], "no case is called ''"),
        (["--largest", "few"], "few is no number of points; give a whole number from 1 on."),
        (["--sets", "digits", "--largest", "99"], "the chosen data sets have more than 99 points."),
        (["--sets", "nope"], "invalid choice: 'nope'"),
        (["--data", "nowhere"], "nowhere is no directory; give the one that holds t10k"),
        (["--output", __file__], "test_benchmarks.py cannot be written to: File exists"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(recorded, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as ended:
        suite.main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_suite_and_not_just_a_solve(recorded, monkeypatch, tmp_path, capsys, digits, number):
    def interrupted(settings):
        """Interrupt a solve, which would answer a `KeyboardInterrupt` with its best map so far."""
        PatternSearchMDS(init="random", on_epoch=lambda event: signal.raise_signal(number)).fit(digits[:50, :50])
        raise AssertionError

    monkeypatch.setitem(CASES, "passes", interrupted)
    before = signal.getsignal(number)
    assert recorded("--only", "small", "passes", "guided") == (130, ["small"])
    assert "Interrupted in passes; what was done before it is in " in capsys.readouterr().err
    assert list(json.loads((tmp_path / "bench.json").read_text())["cases"]) == ["small"]
    assert signal.getsignal(number) is before


def test_a_case_that_comes_to_no_end_is_told_and_others_go_on(recorded, monkeypatch, capsys):
    def full(settings):
        """Find the disk full."""
        raise OSError("no space left")

    monkeypatch.setitem(CASES, "passes", full)
    assert recorded("--only", "passes", "small") == (1, ["small"])
    assert "WRONG: passes came to no end: no space left" in capsys.readouterr().err


def test_a_matrix_of_an_interrupted_run_is_made_anew(monkeypatch, tmp_path):
    settings = suite.Settings("quick", tmp_path, tmp_path)

    def stop(*_):
        raise suite.Stopped

    def half(*arguments, build=data.build, **more):
        build(*arguments, **more)
        stop()

    for owner, name, function in ((data, "build", half), (data.DataSet, "rows", lambda _: SimpleNamespace(read=stop))):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, function)
            with pytest.raises(suite.Stopped):
                data.digits(settings, 60)
    one = data.digits(settings, 60)
    expected = reference.distances(np.load(one.points))
    np.testing.assert_allclose(np.load(one.matrix), expected, rtol=1e-6)
    assert sorted(path.name for path in one.points.parent.iterdir()) == ["matrix.npy", "matrix.zarr", "points.npy"]


def test_a_disk_that_cannot_be_slowed_down_is_told(tmp_path, monkeypatch):
    (tmp_path / "blkio").mkdir()
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    with machine.slow_disk(tmp_path, 10**6) as slowed:
        assert not slowed
    assert [place.name for place in tmp_path.rglob("*")] == ["blkio"]
