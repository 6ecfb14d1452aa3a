"""The default fit of a small matrix: one dial, evidence, the same bits however it is run, and resumed."""

import numba
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from reference import distances
from sklearn.exceptions import ConvergenceWarning

from psmds_dist import PatternSearchMDS, build
from psmds_dist.api.embed import embed
from psmds_dist.api.results import read_result
from psmds_dist.core.config import SMALL_POINTS, SolverConfig
from psmds_dist.core.types import BudgetError, InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.kernels import pairs
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.solver.epoch import Objective


def noisy(n=300, seed=0):
    """Distances in 12 dimensions, which no map in two fits."""
    return distances(np.random.default_rng(seed).random((n, 12))).astype("float32")


def fitted(t, dims=2, **more):
    return PatternSearchMDS(dims, **{"random_state": 0, **more}).fit(t)


def same(found, wanted):
    assert_array_equal(found.embedding_, wanted.embedding_)
    assert found.normalized_stress_ == wanted.normalized_stress_
    assert (found.start_, found.stop_reason_, found.n_epochs_) == (wanted.start_, wanted.stop_reason_, wanted.n_epochs_)
    assert_array_equal(found.evidence_.stresses, wanted.evidence_.stresses)
    assert found.evidence_.as_dict() == wanted.evidence_.as_dict()


@pytest.fixture(scope="module")
def whole():
    return fitted(noisy())


# --- the dial -------------------------------------------------------------------------------------------------


def test_the_default_searches(whole):
    assert whole.start_ in ("classical", "random")
    assert whole.evidence_.starts > 1
    assert whole.evidence_.best == pytest.approx(whole.normalized_stress_, rel=1e-3)
    assert whole.stop_reason_ == "radius_tol"


def test_the_dial_takes_more_starts_for_no_worse_a_map():
    t = noisy(60)
    quick, default, best = (fitted(t, effort=effort) for effort in ("quick", "default", "best"))
    assert (quick.start_, quick.evidence_.starts, quick.evidence_.hops) == ("classical", 1, 0)
    assert quick.evidence_.starts < default.evidence_.starts < best.evidence_.starts
    assert quick.normalized_stress_ >= default.normalized_stress_ >= best.normalized_stress_ * (1 - 1e-6)


@pytest.mark.parametrize("effort", ["quick", "default", "best"])
@pytest.mark.parametrize("count", [1, 5])
def test_starts_that_are_asked_for_are_all_there_are(count, effort):
    found = fitted(noisy(60), n_init=count, effort=effort).evidence_
    assert (found.starts, found.hops) == (count, 0)


@pytest.mark.parametrize(("init", "effort", "starts"), [
    ("random", "default", 1), ("random", "best", 4), ("classical", "quick", 1), ("classical", "best", 4),
])  # fmt: skip
def test_whole_solves_where_nothing_is_searched(init, effort, starts):
    mds = fitted(noisy(60), init=init, effort=effort)
    assert (mds.evidence_.starts, mds.evidence_.hops) == (starts, 0)
    assert mds.evidence_.stresses.min() == mds.normalized_stress_
    assert fitted(noisy(60), init=init, n_init=3, effort=effort).evidence_.starts == 3


def test_a_given_start_is_solved_once():
    t = noisy(60)
    x = np.random.default_rng(0).normal(size=(60, 2))
    mds = PatternSearchMDS(effort="best", random_state=0).fit(t, init=x)
    assert (mds.start_, mds.evidence_.starts) == ("given", 1)


def test_a_radius_begins_at_random_and_a_large_matrix_is_not_searched():
    assert fitted(noisy(60), radius=0.5).start_ == "random"
    assert fitted(noisy(60), max_epochs=0).start_ == "random"
    mds = fitted(noisy(SMALL_POINTS + 1), max_epochs=2, eps=0.5)
    assert mds.start_ == "landmarks"
    assert mds.evidence_.starts == 1


@pytest.mark.parametrize("parameter", [
    {"effort": "max"}, {"effort": True}, {"effort": None}, {"polish": "yes"}, {"polish": 1}, {"polish": None},
    {"n_init": 0}, {"n_init": "many"}, {"n_init": 2.5}, {"n_init": True}, {"n_init": None}, {"n_init": np.ones(2)},
], ids=str)  # fmt: skip
def test_other_values_are_refused_in_a_sentence(parameter):
    [(name, value)] = parameter.items()
    with pytest.raises(InputError, match=rf"^{name} must be .*'auto'.*, not|^{name} must be one of .*, not") as told:
        fitted(noisy(20), **parameter)
    assert str(told.value).endswith(f"not {value!r}.")


def test_epochs_that_ran_out_are_a_warning():
    with pytest.warns(ConvergenceWarning, match="max_epochs"):
        mds = fitted(noisy(60), max_epochs=1)
    assert mds.stop_reason_ == "max_epochs"


# --- evidence -------------------------------------------------------------------------------------------------


def test_evidence_is_saved_with_the_map(tmp_path, whole):
    whole.save(tmp_path / "map.zarr")
    saved = zarr.open_group(tmp_path / "map.zarr", mode="r").attrs["starts"]
    assert saved == whole.evidence_.as_dict()
    assert read_result(tmp_path / "map.zarr").attributes["starts"] == saved
    assert saved["lowest"] <= saved["median"] <= saved["highest"]


# --- the same bits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_same_bits_on_one_thread_and_two(whole, n_jobs):
    same(fitted(noisy(), n_jobs=n_jobs), whole)


def test_the_search_keeps_to_its_threads(monkeypatch):
    seen, real = [], pairs.descend

    def noting(rows, *arguments):
        if len(rows) == 40:  # kernels are compiled on fewer points
            seen.append(numba.get_num_threads())
        real(rows, *arguments)

    monkeypatch.setattr(pairs, "descend", noting)
    fitted(noisy(40), n_jobs=1)
    assert set(seen) == {1}


def test_same_bits_from_a_store_and_a_file(tmp_path, whole):
    build(ArrayRows(noisy()), tmp_path / "t.zarr", InProcessExecutor())
    same(fitted(tmp_path / "t.zarr"), whole)
    np.save(tmp_path / "t.npy", noisy())
    same(fitted(tmp_path / "t.npy"), whole)


@pytest.mark.slow
def test_same_bits_on_two_workers(client, tmp_path, whole):
    np.save(tmp_path / "t.npy", noisy())
    same(fitted(tmp_path / "t.npy", cluster=client), whole)


def interrupt_at(count, function):
    """The function, which is interrupted at one of its calls."""
    calls = []

    def interrupted(*arguments, **more):
        calls.append(1)
        if len(calls) == count:
            raise KeyboardInterrupt
        return function(*arguments, **more)

    return interrupted


def test_a_search_that_was_interrupted_is_begun_again(tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "descend", interrupt_at(2, pairs.descend))
        with pytest.raises(KeyboardInterrupt):
            fitted(noisy(), checkpoint=tmp_path / "kept")
    same(fitted(noisy(), checkpoint=tmp_path / "kept"), whole)
    assert not (tmp_path / "kept").exists()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "step"), [("propose", 3), ("propose", 4), ("gradient", 1), ("gradient", 4)])
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(tmp_path, monkeypatch, whole, name, step):
    """In the second epoch, or in the polish."""
    with monkeypatch.context() as patch:
        patch.setattr(Objective, name, interrupt_at(step, getattr(Objective, name)))
        cut = fitted(noisy(), checkpoint=tmp_path / "kept")
    assert cut.stop_reason_ == "interrupted"
    assert (tmp_path / "kept").exists()
    same(fitted(noisy(), checkpoint=tmp_path / "kept", resume=True), whole)
    assert not (tmp_path / "kept").exists()


def test_what_a_long_search_found_is_saved(tmp_path, monkeypatch, whole):
    """With its evidence: the run that goes on does not search again."""
    source = ArrayRows(noisy())
    with monkeypatch.context() as patch:
        patch.setattr(Objective, "gradient", interrupt_at(2, Objective.gradient))
        kept = DirectoryCheckpoint(tmp_path / "kept", every=0)
        embed(source, SolverConfig(), InProcessExecutor(), checkpoint=kept)
    monkeypatch.setattr(pairs, "descend", lambda rows, *_: len(rows) > 4 and pytest.fail("searched again"))
    kept = DirectoryCheckpoint(tmp_path / "kept", resume=True, every=0)
    found = embed(source, SolverConfig(), InProcessExecutor(), checkpoint=kept)
    assert_array_equal(found.solution.embedding, whole.embedding_)
    assert found.evidence.as_dict() == whole.evidence_.as_dict()
    assert found.evidence.best == whole.evidence_.best
    assert found.start == whole.start_


# --- memory ---------------------------------------------------------------------------------------------------


def test_too_little_memory_for_a_search_is_refused_with_advice():
    t = noisy(1500)
    with pytest.raises(BudgetError, match="init random"):
        fitted(t, memory_limit="12MB")
    mds = fitted(t, memory_limit="12MB", init="random", max_epochs=0)
    assert mds.start_ == "random"
