"""Whatever compiles does it before a clock runs."""

import numba
import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

import landmarks.kernels
from landmarks import LandmarkMDS
from landmarks.solver.types import Clock
from psmds_dist import PatternSearchMDS
from psmds_dist.api import embed as run
from psmds_dist.core.config import SMALL_POINTS
from psmds_dist.kernels import descent, gradient, guided, moves, multiply, scan
from tests.marks import wide

KERNELS = [
    value
    for module in (descent, gradient, moves, guided, multiply, scan, landmarks.kernels)
    for value in vars(module).values()
    if isinstance(value, numba.core.dispatcher.Dispatcher) and value.targetoptions.get("parallel")
]


def signatures():
    """What is compiled, or loaded, in this process."""
    return {(kernel.__name__, signature) for kernel in KERNELS for signature in kernel.signatures}


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Let this process forget its kernels; it loads them from disk again."""
    for kernel in KERNELS:
        kernel._reset_overloads()
    assert not signatures()


def distances(n, dims, dtype="float32"):
    return squareform(pdist(np.random.default_rng(0).normal(size=(n, dims + 2)))).astype(dtype)


@pytest.fixture
def ahead(monkeypatch):
    """What was compiled when the clock of an exact fit began to run."""
    found, real = [], run._saved_start

    def noting(*arguments):
        found.append(signatures())
        return real(*arguments)

    monkeypatch.setattr(run, "_saved_start", noting)
    return found


WAYS = [
    {},
    {"bad_moves": False},
    {"bad_moves": False, "direction_share": 0.5},
    {"moves": "guided"},
    {"moves": "guided", "bad_moves": False, "direction_share": 0.4},
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dims", [2, 3, 10, *wide(1)])
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.filterwarnings("ignore:the monotone solve ran out of epochs")
def test_a_fit_compiles_before_it_begins(way, dims, dtype, ahead):
    radius = {"radius_tol": 1e-7} if dtype == "float32" else {}  # down to where float32 is left
    PatternSearchMDS(dims, init="random", random_state=0, max_epochs=60, dtype=dtype, **way, **radius).fit(
        distances(40, dims, dtype)
    )
    assert ahead == [signatures()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_start_from_classical_scaling_compiles_before_it_begins(dtype, ahead):
    PatternSearchMDS(2, init="classical", random_state=0, dtype=dtype, max_epochs=5).fit(distances(40, 2, dtype))
    assert ahead == [signatures()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dims", [1, 2, 3, 10])
def test_a_search_and_a_polish_compile_before_they_begin(dims, dtype, ahead):
    mds = PatternSearchMDS(dims, random_state=0, dtype=dtype).fit(distances(40, dims, dtype))
    assert mds.evidence_.starts > 1
    assert ahead == [signatures()]


@pytest.mark.parametrize("rule", [{}, *wide({"transformation": "ratio"})], ids=str)
def test_a_polish_of_few_steps_compiles_before_it_begins(rule, ahead):
    fit = PatternSearchMDS(2, init="random", random_state=0, eps=0.1, **rule).fit(distances(SMALL_POINTS + 1, 2))
    assert fit.stop_reason_ == "radius_tol"
    assert ahead == [signatures()]


@pytest.mark.parametrize(
    "rule",
    [
        {"weight_power": -1},
        {"loss": "huber"},
        {"transformation": "ordinal"},
        {"transformation": "ratio"},
        {"local": 0.3},
    ],
    ids=str,
)
def test_a_fit_by_a_rule_compiles_before_it_begins(rule, ahead):
    PatternSearchMDS(2, init="random", random_state=0, max_epochs=5, **rule).fit(distances(40, 2))
    late = sorted(str(one) for one in signatures() - ahead[0])
    assert late == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dims", [2, 10, *wide(1, 3)])
def test_a_start_from_landmarks_compiles_before_it_begins(dims, dtype, ahead):
    mds = PatternSearchMDS(dims, init="landmarks", random_state=0, dtype=dtype, max_epochs=5).fit(
        distances(1000, dims, dtype)
    )
    assert mds.start_ == "landmarks"
    assert ahead == [signatures()]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dims", [1, 2, 3, 10])
@pytest.mark.parametrize("refine", ["none", "panel", "full"])
def test_a_fit_through_landmarks_compiles_in_none_of_its_stages(refine, dims, dtype, monkeypatch):
    counted, late, real = signatures(), [], Clock.end

    def noting(clock, stage):
        late.extend((stage, new) for new in signatures() - counted)
        real(clock, stage)

    def left_out(clock):
        counted.update(signatures())

    monkeypatch.setattr(Clock, "end", noting)
    monkeypatch.setattr(Clock, "leave_out", left_out)
    LandmarkMDS(dims, n_landmarks=60, refine=refine, random_state=0, dtype=dtype).fit(distances(200, dims, dtype))
    assert late == []
    assert counted
