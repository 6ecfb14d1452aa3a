"""The benchmark suite's judgement: a wrong result fails it, a slow one does not."""

import json

import numpy as np
import pytest

from tests import reference
from tests.benchmarks import __main__ as suite
from tests.benchmarks import comparison, data
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
