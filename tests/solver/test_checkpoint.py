"""A run that was cut short goes on to the same bits, or says why it cannot."""

import errno
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from subprocess import PIPE
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from reference import distances
from scipy.spatial.distance import cdist

import landmarks.solver.fit
from landmarks import LandmarkMDS
from landmarks.panel.check import MatrixEntries
from landmarks.panel.inputs import matrix_panel
from landmarks.panel.sources import store_panel
from landmarks.solver.fit import _attach
from landmarks.solver.types import LandmarkConfig
from psmds_dist import PatternSearchMDS
from psmds_dist.api.embed import embed
from psmds_dist.api.results import read_result
from psmds_dist.api.run import RunContext
from psmds_dist.cli.app import main
from psmds_dist.cli.exits import INTERRUPTED, TRY_AGAIN
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.errors import AlreadyComplete, OwnershipLost
from psmds_dist.core.types import InputError, StopReason
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import open_rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.solver.checkpoint import (
    NO_CHECKPOINT,
    CheckpointStore,
    CheckpointStream,
    DirectoryCheckpoint,
    differences,
    open_checkpoint,
)
from psmds_dist.solver.search import _Pool
from psmds_dist.solver.solve import HISTORY, solve
from tests.clusters import STOPPING, wait_for

ARRAYS = {"x": np.arange(6.0).reshape(2, 3), "radius": np.float64(0.1), "word": np.array("right")}


@pytest.fixture
def said():
    return []


@pytest.fixture
def checkpoint(tmp_path, said):
    kept = DirectoryCheckpoint(tmp_path / "run.checkpoint", say=said.append, every=0)
    kept.attach({"a": 1})
    return kept


def noisy(n=150, seed=0):
    """Distances in 12 dimensions, which no map in two fits."""
    return distances(np.random.default_rng(seed).random((n, 12)))


# --- what is written ------------------------------------------------------------------------------------------


def test_the_last_state_comes_back_as_it_was(checkpoint):
    stream = checkpoint.stream("solve")
    stream.save(3, lambda: {**ARRAYS, "x": ARRAYS["x"] - 1})
    stream.save(4, lambda: ARRAYS)
    found = stream.last()
    assert set(found) == set(ARRAYS)
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(found[name], values)


def test_two_generations_are_kept_and_streams_are_apart(checkpoint):
    one, other = checkpoint.stream("solve"), checkpoint.stream("solve-1")
    for epoch in range(5):
        one.save(epoch, lambda: ARRAYS)
    other.save(7, lambda: ARRAYS)
    names = sorted(path.name for path in checkpoint.folder.iterdir())
    assert names == ["solve-1.000000007.npz", "solve.000000003.npz", "solve.000000004.npz"]


@pytest.mark.parametrize("name", ["", "Solve", "solve.0", "../solve", "solve-", "0", "so lve"])
def test_a_stream_whose_states_would_not_be_recognized_is_refused(checkpoint, name):
    with pytest.raises(ValueError, match="cannot name a stream"):
        checkpoint.stream(name)


def test_any_package_names_its_own_streams(checkpoint):
    """Another process, which never heard of the stream, recognizes its states by their contents."""
    checkpoint.stream("folding-1a").save(1, lambda: ARRAYS)
    (checkpoint.folder / "copy.000000001.npz").write_bytes(
        (checkpoint.folder / "folding-1a.000000001.npz").read_bytes()
    )
    (checkpoint.folder / "blank.000000001.npz").write_bytes(b"")
    other = DirectoryCheckpoint(checkpoint.folder, resume=True)
    assert [path.name for path in other.states()] == ["folding-1a.000000001.npz"]
    with pytest.raises(InputError, match="a was 1, is 2"):
        other.attach({"a": 2})
    other.remove()
    left = sorted(path.name for path in checkpoint.folder.iterdir())
    assert left == ["blank.000000001.npz", "copy.000000001.npz"]


def test_a_state_that_lost_all_its_bytes_is_replaced(checkpoint, said):
    stream = checkpoint.stream("solve")
    stream.save(1, lambda: {"x": np.zeros(3)})
    for blank in (b"", bytes(5000)):
        (checkpoint.folder / "solve.000000001.npz").write_bytes(blank)
        assert stream.last() is None
        assert stream.add(1, {"x": np.ones(3)})
        np.testing.assert_array_equal(stream.last()["x"], np.ones(3))
    checkpoint.remove()
    assert not checkpoint.folder.exists()


def test_every_changed_byte_is_noticed(checkpoint, said):
    stream = checkpoint.stream("solve")
    stream.save(1, lambda: {"x": np.zeros(3)})
    stream.save(2, lambda: {"x": np.arange(3.0)})
    newest = checkpoint.folder / "solve.000000002.npz"
    whole = newest.read_bytes()
    for place in range(len(whole)):
        newest.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        np.testing.assert_array_equal(stream.last()["x"], np.zeros(3))
    assert len(said) == len(whole)
    assert "solve.000000002.npz is damaged (its digest is not that of its contents)" in said[0]


@pytest.mark.parametrize("length", [0, 1, 50, 300])
def test_a_torn_file_is_skipped_for_the_one_before(checkpoint, said, length):
    stream = checkpoint.stream("solve")
    stream.save(1, lambda: {"x": np.zeros(99)})
    stream.save(2, lambda: {"x": np.ones(99)})
    newest = checkpoint.folder / "solve.000000002.npz"
    newest.write_bytes(newest.read_bytes()[:length])
    np.testing.assert_array_equal(stream.last()["x"], np.zeros(99))
    assert len(said) == 1


def somebody_elses(folder):
    """Files with the names of states that are none, and their contents."""
    archive = folder / "other.npz"
    np.savez(archive, identity=np.arange(3))
    contents = {
        "solve.000000001.npz": b"notes of somebody else",
        "solve-0.000000001.npz": bytes(70) + b"something that begins with zeros",
        "placement.000000007.npz": archive.read_bytes(),
        ".0123456789ab-solve.000000002.npz": b"x",
    }
    archive.unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return contents


def test_a_file_of_somebody_else_with_the_name_of_a_state_stays(checkpoint, said):
    checkpoint.folder.mkdir(parents=True, exist_ok=True)
    contents = somebody_elses(checkpoint.folder)
    assert not checkpoint.found
    stream = checkpoint.stream("solve")
    assert stream.last() is None
    assert "solve.000000001.npz is damaged" in said[0]
    assert not stream.add(1, ARRAYS)
    assert "solve.000000001.npz is not a state of psmds-dist and will not be replaced" in said[1]
    for epoch in (2, 3, 4):
        stream.save(epoch, lambda: ARRAYS)
    stream.forget()
    checkpoint.remove()
    assert {path.name: path.read_bytes() for path in checkpoint.folder.iterdir()} == contents


def test_what_a_killed_process_left_of_a_state_is_removed(checkpoint):
    checkpoint.stream("solve").save(1, lambda: ARRAYS)
    whole = (checkpoint.folder / "solve.000000001.npz").read_bytes()
    for length in (0, 64, 200, len(whole)):  # its digest is written last
        left = bytes(64) + whole[64:]
        (checkpoint.folder / f".{length:012x}-solve.000000002.npz").write_bytes(left[:length])
    checkpoint.remove()
    assert not checkpoint.folder.exists()


def test_nothing_whole_is_nothing(checkpoint, said):
    stream = checkpoint.stream("solve")
    stream.save(1, lambda: ARRAYS)
    (checkpoint.folder / "solve.000000001.npz").write_bytes(b"PK")
    assert stream.last() is None
    assert len(said) == 1


def test_a_pickle_is_never_read(checkpoint, said):
    stream = checkpoint.stream("solve")
    stream.save(1, lambda: {"x": np.array([{}], dtype=object)})
    assert stream.last() is None
    assert "allow_pickle" in said[0]


def test_saving_is_rare_where_it_is_slow(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("psmds_dist.solver.checkpoint.time.monotonic", lambda: now[0])
    kept = DirectoryCheckpoint(tmp_path / "kept")
    write = kept.write

    def slow(name, arrays):
        now[0] += 2.0
        write(name, arrays)

    monkeypatch.setattr(kept, "write", slow)
    stream = kept.stream("solve")
    written = []
    for epoch in range(1000):
        now[0] += 0.5
        before = now[0]
        stream.save(epoch, lambda: ARRAYS)
        if now[0] > before:
            written.append(epoch)
    assert written[0] == 1  # a second of work
    assert len(written) == 1 + (1000 - 2) // 400  # then two seconds of keeping after 200 of work


def test_a_full_disk_does_not_end_a_run(tmp_path, monkeypatch, said):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("psmds_dist.utils.atomic.os.fsync", full)
    kept = DirectoryCheckpoint(tmp_path / "kept", say=said.append, every=0)
    result = embed(ArrayRows(noisy(40)), SolverConfig(max_epochs=3), InProcessExecutor(), checkpoint=kept)
    assert len(result.solution.history) == 3
    assert "No space left" in said[0]
    assert [path.name for path in kept.folder.iterdir()] == ["progress.json"]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a was 1, is 2"]),
        ({"a": {"b": 1, "c": 0}}, {"a": {"b": 2, "c": 0}, "d": 1}, ["a.b was 1, is 2", "d was None, is 1"]),
    ],
)
def test_differences_are_named(before, now, said):
    assert list(differences(before, now)) == said


def test_a_null_checkpoint_saves_nothing():
    stream = NO_CHECKPOINT.stream("solve")
    stream.save(1, lambda: ARRAYS, now=True)
    assert stream.last() is None
    assert not stream.add(1, ARRAYS)
    assert not stream.pieces()
    assert not stream.should_save


def test_a_run_resumes_what_is_there_unless_it_overwrites(checkpoint):
    assert (NO_CHECKPOINT.found, NO_CHECKPOINT.resumes, checkpoint.resumes) == (False, False, False)
    checkpoint.stream("solve").save(1, lambda: ARRAYS)
    assert DirectoryCheckpoint(checkpoint.folder, resume=True).resumes is True
    assert DirectoryCheckpoint(checkpoint.folder, overwrite=True).resumes is False


def test_the_states_of_the_latest_owner_count_and_an_earlier_one_leaves_them(checkpoint):
    folder = checkpoint.folder

    def owner(token, identity):
        store = DirectoryCheckpoint(folder, resume=True)
        assert store.token == token
        store.token = max(token, 7)
        store._identity = identity
        return store

    checkpoint.stream("solve").save(1, lambda: ARRAYS)
    owner(0, {"a": 1}).stream("solve").add(2, ARRAYS)
    loser = owner(8, {"a": 2})
    loser.token = 3
    loser.stream("solve").add(9, ARRAYS)
    latest = owner(8, {"a": 1})
    assert latest.identities() == [{"a": 1}, {"a": 1}]  # one written without a token, of the same run
    assert latest.stream("solve").last() is not None
    checkpoint.remove()
    assert sorted(path.name for path in folder.iterdir()) == ["solve.000000002.7.npz", "solve.000000009.3.npz"]
    latest.remove()
    assert not folder.exists()


def test_states_of_two_runs_without_an_owner_are_both_told(checkpoint):
    checkpoint.stream("solve").save(1, lambda: ARRAYS)
    other = DirectoryCheckpoint(checkpoint.folder, resume=True)
    other._identity = {"b": 2}
    other.stream("refine").add(1, ARRAYS)
    assert sorted(map(list, other.identities())) == [["a"], ["b"]]


def test_a_state_that_was_never_written_need_not_be_removed(checkpoint, monkeypatch):
    def lose(path, identity, arrays):
        raise OwnershipLost("taken over")

    monkeypatch.setattr("psmds_dist.solver.checkpoint.write_state", lose)
    with pytest.raises(OwnershipLost, match="^taken over$"):
        checkpoint.stream("solve").add(1, ARRAYS)
    assert not checkpoint.folder.exists()


def test_a_run_that_has_ended_is_named(tmp_path):
    place = str(tmp_path / "map.zarr")
    kept = DirectoryCheckpoint(tmp_path / "run.checkpoint", resume=True, finished=(place, {"a": 1}))
    with pytest.raises(AlreadyComplete, match=f"^{place} is finished, from the same input"):
        kept.attach({"a": 1})


def test_whoever_saves_states_has_to_implement_all_of_it():
    assert {"should_save", "save", "add", "last", "pieces", "forget"} == CheckpointStream.__abstractmethods__
    assert {"attach", "stream", "seed", "remove"} == CheckpointStore.__abstractmethods__


def test_the_folder_of_a_checkpoint_is_made_with_those_above_it(tmp_path):
    kept = DirectoryCheckpoint(tmp_path / "a" / "b" / "c")
    assert not kept.folder.parent.exists()
    assert kept.stream("solve").add(1, ARRAYS)
    assert kept.found


def test_streams_share_one_clock(tmp_path):
    """Many short starts, each with a stream of its own, are kept as one long one is."""
    checkpoint = DirectoryCheckpoint(tmp_path / "kept", every=0.2)
    assert not checkpoint.stream("solve-0").should_save
    time.sleep(0.21)
    assert checkpoint.stream("solve-1").should_save
    checkpoint.stream("solve-2").save(0, lambda: ARRAYS)
    assert not checkpoint.stream("solve-3").should_save


# --- solves ---------------------------------------------------------------------------------------------------


def solved(matrix, config, kept=NO_CHECKPOINT, **how):
    rows = ArrayRows(matrix, dtype="float64")
    scale = float(np.sqrt((matrix**2).sum() / (len(matrix) * (len(matrix) - 1))))
    return solve(rows, config, InProcessExecutor(), scale=scale, budget=2**30, stream=kept.stream("solve"), **how)


def same(found, wanted):
    np.testing.assert_array_equal(found.raw_embedding, wanted.raw_embedding)
    np.testing.assert_array_equal(found.embedding, wanted.embedding)
    for column in set(HISTORY.names) - {"seconds"}:
        np.testing.assert_array_equal(found.history[column], wanted.history[column])
    assert found.stop_reason == wanted.stop_reason
    assert found.stress.mse == wanted.stress.mse


@pytest.mark.parametrize("bad_moves", [True, False])
def test_a_solve_cut_after_any_epoch_goes_on_to_the_same_bits(tmp_path, bad_moves):
    matrix = noisy(80)
    config = SolverConfig(bad_moves=bad_moves, max_epochs=60, direction_share=0.5)
    whole = solved(matrix, config)
    for cut in range(1, len(whole.history) + 1, 7):
        kept = DirectoryCheckpoint(tmp_path / f"{bad_moves}-{cut}", every=0)

        def stop(event, cut=cut):
            if event.epoch == cut:
                raise KeyboardInterrupt

        part = solved(matrix, config, kept, on_epoch=stop)
        assert part.stop_reason is StopReason.INTERRUPTED or len(part.history) == len(whole.history)
        same(solved(matrix, config, kept), whole)


def test_the_best_map_met_before_the_cut_is_not_forgotten(tmp_path):
    """A start at the optimum and a large radius: everything after is worse, and the first map must come back."""
    matrix = distances(np.random.default_rng(1).random((60, 2)))
    config = SolverConfig(radius=2.0, radius_tol=1.0, max_epochs=6, eps=0.0)
    start = np.random.default_rng(1).random((60, 2))
    whole = solved(matrix, config, start=start)
    kept = DirectoryCheckpoint(tmp_path / "kept", every=0)

    def stop(event):
        if event.epoch == 2:
            raise KeyboardInterrupt

    solved(matrix, config, kept, start=start, on_epoch=stop)
    again = solved(matrix, config, kept, start=start)
    assert again.stress.mse < 1e-20
    same(again, whole)


@pytest.mark.parametrize("init", ["random", "landmarks"])
@pytest.mark.parametrize("epoch", [1, 5])
def test_several_starts_go_on_in_the_one_that_was_cut(tmp_path, epoch, init):
    matrix = noisy(60)
    whole = PatternSearchMDS(n_init=3, random_state=0, init=init).fit(matrix)
    seen = []

    def stop(event):
        seen.append(event.epoch)
        if seen.count(1) == 2 and event.epoch == epoch:
            raise KeyboardInterrupt

    rows, config = ArrayRows(matrix), SolverConfig(n_init=3, seed=0)
    folder = tmp_path / "kept"
    cut = embed(
        rows,
        config,
        InProcessExecutor(),
        init=init,
        on_epoch=stop,
        checkpoint=DirectoryCheckpoint(folder, every=0),
    )
    assert cut.solution.stop_reason is StopReason.INTERRUPTED
    epochs = []
    found = embed(
        rows, config, InProcessExecutor(), init=init, on_epoch=lambda event: epochs.append(event.epoch),
        checkpoint=DirectoryCheckpoint(folder, resume=True, every=0),
    )  # fmt: skip
    np.testing.assert_array_equal(found.solution.embedding, whole.embedding_)
    assert found.start == whole.start_
    assert epochs[0] == epoch + 1


def test_a_landmark_start_is_kept(tmp_path, monkeypatch):
    matrix = noisy(200)
    rows, config = ArrayRows(matrix), SolverConfig(seed=3)
    whole = embed(rows, config, InProcessExecutor(), init="landmarks")

    def stop(event):
        raise KeyboardInterrupt

    folder = tmp_path / "kept"
    how = {"init": "landmarks"}
    embed(rows, config, InProcessExecutor(), on_epoch=stop, checkpoint=DirectoryCheckpoint(folder, every=0), **how)

    def again(*arguments):
        raise AssertionError("the start was computed again")

    monkeypatch.setattr("psmds_dist.api.embed.choose_start", again)
    found = embed(
        rows, config, InProcessExecutor(), checkpoint=DirectoryCheckpoint(folder, resume=True, every=0), **how
    )
    assert found.start == "landmarks"
    same(found.solution, whole.solution)


def test_a_search_that_is_interrupted_is_kept(tmp_path, monkeypatch):
    matrix, folder = noisy(60), tmp_path / "kept"
    whole = PatternSearchMDS(random_state=0).fit(matrix)
    with monkeypatch.context() as patch:
        patch.setattr(_Pool, "turn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            PatternSearchMDS(random_state=0, checkpoint=folder).fit(matrix)
    assert [path.name.split(".")[0] for path in folder.glob("*.npz")] == ["search"]
    monkeypatch.setattr(_Pool, "run", interrupted)  # all starts are there
    found = PatternSearchMDS(random_state=0, checkpoint=folder, resume=True).fit(matrix)
    np.testing.assert_array_equal(found.embedding_, whole.embedding_)
    assert found.evidence_.as_dict() == whole.evidence_.as_dict()
    assert not folder.exists()


def interrupted(*arguments):
    raise KeyboardInterrupt


def test_seconds_are_of_all_sessions(tmp_path, monkeypatch):
    ahead = [0.0]
    monkeypatch.setattr("psmds_dist.solver.solve.time", SimpleNamespace(perf_counter=lambda: perf_counter() + ahead[0]))

    def stop(event):
        ahead[0] = 1000.0  # as if the second epoch took that long
        if event.epoch == 3:
            raise KeyboardInterrupt

    rows, config, folder = ArrayRows(noisy(40)), SolverConfig(seed=1), tmp_path / "kept"
    embed(rows, config, InProcessExecutor(), on_epoch=stop, checkpoint=DirectoryCheckpoint(folder, every=0))
    found = embed(rows, config, InProcessExecutor(), checkpoint=DirectoryCheckpoint(folder, resume=True, every=0))
    assert 2000 > found.seconds >= found.solution.history["seconds"][-1] > 1000


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path):
    """The checkpoint of a run over `noisy(40)` with the seed 1."""
    folder = tmp_path / "kept"

    def stop(event):
        if event.epoch == 3:
            raise KeyboardInterrupt

    kept = DirectoryCheckpoint(folder, every=0)
    embed(ArrayRows(noisy(40)), SolverConfig(seed=1), InProcessExecutor(), on_epoch=stop, checkpoint=kept)
    return folder


@pytest.mark.parametrize(
    ("changes", "matrix", "said"),
    [
        ({"eps": 0.01}, noisy(40), r"configuration\.eps was 0\.0001, is 0\.01"),
        ({"random_state": 2}, noisy(40), r"configuration\.seed was 1, is 2"),
        ({"n_init": 2}, noisy(40), r"configuration\.n_init was 'auto', is 2"),
        ({"init": "landmarks"}, noisy(40), r"configuration\.init was 'auto', is 'landmarks'"),
        ({}, noisy(40, seed=5), r"input\.content was '[0-9a-f]{32}', is '[0-9a-f]{32}'"),
        ({}, noisy(41), r"input\.points was 40, is 41"),
        ({"dtype": "float64"}, noisy(40), r"input\.dtype was 'float32', is 'float64'"),
    ],
)
def test_another_run_is_refused_with_the_difference(unfinished, changes, matrix, said):
    mds = PatternSearchMDS(**{"random_state": 1, **changes}, checkpoint=unfinished, resume=True)
    before = sorted(unfinished.iterdir())
    with pytest.raises(InputError, match=said):
        mds.fit(matrix)
    assert sorted(unfinished.iterdir()) == before


def test_an_unfinished_run_is_not_started_again_unasked(unfinished):
    with pytest.raises(InputError, match="an unfinished run: continue it with resume=True"):
        PatternSearchMDS(random_state=1, checkpoint=unfinished).fit(noisy(40))


def test_an_estimator_goes_on_and_clears_up(unfinished):
    found = PatternSearchMDS(random_state=1, checkpoint=unfinished, resume=True).fit(noisy(40))
    whole = PatternSearchMDS(random_state=1).fit(noisy(40))
    np.testing.assert_array_equal(found.embedding_, whole.embedding_)
    assert not unfinished.exists()


def test_a_run_that_goes_on_has_its_seed_from_there(unfinished):
    """As README has it: no random_state, neither before nor after."""
    found = PatternSearchMDS(checkpoint=unfinished, resume=True).fit(noisy(40))
    assert found.seed_ == 1
    np.testing.assert_array_equal(found.embedding_, PatternSearchMDS(random_state=1).fit(noisy(40)).embedding_)


def test_damage_is_a_warning_of_an_estimator(unfinished):
    max(unfinished.iterdir()).write_bytes(b"")
    with pytest.warns(UserWarning, match="is damaged"):
        found = PatternSearchMDS(random_state=1, checkpoint=unfinished, resume=True).fit(noisy(40))
    whole = PatternSearchMDS(random_state=1).fit(noisy(40))
    np.testing.assert_array_equal(found.embedding_, whole.embedding_)


def test_resume_starts_a_new_run_where_nothing_is(tmp_path):
    found = PatternSearchMDS(random_state=1, checkpoint=tmp_path / "none", resume=True).fit(noisy(40))
    np.testing.assert_array_equal(found.embedding_, PatternSearchMDS(random_state=1).fit(noisy(40)).embedding_)


@pytest.mark.parametrize("make", [PatternSearchMDS, LandmarkMDS])
def test_what_resume_needs(make, tmp_path):
    with pytest.raises(InputError, match="resume=True needs the directory"):
        make(resume=True).fit(noisy(40))
    with pytest.raises(InputError, match="resume must be True or False"):
        make(resume="yes", checkpoint=tmp_path / "a").fit(noisy(40))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="must be a directory"):
        make(checkpoint=tmp_path / "file").fit(noisy(40))
    assert (tmp_path / "file").read_text() == "mine"


def test_no_folder_is_a_null_checkpoint():
    with open_checkpoint(None, False) as found:
        assert found is NO_CHECKPOINT


def test_info_tells_of_a_run_that_has_not_ended(tmp_path):
    def stop(event):
        if event.epoch == 3:
            raise KeyboardInterrupt

    kept = tmp_path / "run.checkpoint"
    rows, config = ArrayRows(noisy(60)), SolverConfig(n_components=3, seed=5)
    embed(rows, config, InProcessExecutor(), on_epoch=stop, checkpoint=DirectoryCheckpoint(kept, every=0))
    (kept / "notes.txt").write_text("somebody else's")
    facts = json.loads(CliRunner().invoke(main, ["info", str(kept), "--json"]).stdout)
    assert facts["kind"] == "checkpoint"
    assert facts["newest states"]["solve-0"] == 3
    assert facts["input"]["points"] == 60
    assert facts["configuration"]["n_components"] == 3
    assert facts["configuration"]["seed"] == 5
    assert "with --resume" in CliRunner().invoke(main, ["info", str(kept)]).stdout
    nothing = tmp_path / "nothing.checkpoint"
    nothing.mkdir()
    assert CliRunner().invoke(main, ["info", str(nothing)]).exit_code == 1


# --- landmark runs --------------------------------------------------------------------------------------------


class Stop(Exception):
    """Ends a run in the middle, as a kill would."""


def cut_at(monkeypatch, target, calls):
    """Have the call of that number raise `Stop`."""
    module, name = target.rsplit(".", 1)
    real = getattr(sys.modules[module], name)
    left = [calls]

    def counted(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            raise Stop
        return real(*arguments, **named)

    monkeypatch.setattr(target, counted)
    return left


@pytest.mark.parametrize(
    ("refine", "target"),
    [
        ("none", "landmarks.solver.placement.gather"),
        ("panel", "landmarks.solver.refine.panel_pass"),
        ("full", "psmds_dist.solver.epoch.gather"),
    ],
)
def test_a_landmark_run_goes_on_to_the_same_bits(tmp_path, monkeypatch, refine, target):
    points = np.random.default_rng(0).random((400, 3))
    matrix = distances(points)
    how = {"n_landmarks": 30, "refine": refine, "random_state": 0, "n_components": 2}
    whole = LandmarkMDS(**how).fit(matrix)
    monkeypatch.setattr("psmds_dist.solver.checkpoint.EVERY", 0.0)
    monkeypatch.setattr("landmarks.solver.placement.PORTION", 1e-6)
    monkeypatch.setattr(
        DirectoryCheckpoint.__init__, "__kwdefaults__", {**DirectoryCheckpoint.__init__.__kwdefaults__, "every": 0.0}
    )
    kept = tmp_path / "kept"
    # solves of landmarks go through psmds_dist.solver.epoch.gather too: the first calls are theirs
    solves = 0
    if refine == "full":
        counted, plain, seen = cut_at(monkeypatch, target, 10**9), landmarks.solver.fit._mapped, []

        def noting(inputs):
            found = plain(inputs)
            seen.append(10**9 - counted[0])
            return found

        monkeypatch.setattr(landmarks.solver.fit, "_mapped", noting)
        LandmarkMDS(**how).fit(matrix)
        [solves] = seen
        monkeypatch.undo()
        monkeypatch.setattr(
            DirectoryCheckpoint.__init__,
            "__kwdefaults__",
            {**DirectoryCheckpoint.__init__.__kwdefaults__, "every": 0.0},
        )
    with monkeypatch.context() as patch:
        cut_at(patch, target, 1 if refine == "panel" else solves + 3)
        with pytest.raises(Stop):
            LandmarkMDS(**how, checkpoint=kept).fit(matrix)
    assert any(kept.iterdir())
    with monkeypatch.context() as patch:
        count = cut_at(patch, target, 10**9)
        found = LandmarkMDS(**how, checkpoint=kept, resume=True).fit(matrix)
        after = 10**9 - count[0]
    with monkeypatch.context() as patch:
        count = cut_at(patch, target, 10**9)
        LandmarkMDS(**how, checkpoint=tmp_path / "other").fit(matrix)
        complete = 10**9 - count[0]
    assert after < complete  # what was kept is not done again
    np.testing.assert_array_equal(found.embedding_, whole.embedding_)
    np.testing.assert_array_equal(found.point_stress_, whole.point_stress_)
    assert found.normalized_stress_ == whole.normalized_stress_
    assert not kept.exists()


def test_another_landmark_run_is_refused(tmp_path, monkeypatch):
    matrix = distances(np.random.default_rng(0).random((100, 3)))
    monkeypatch.setattr(
        DirectoryCheckpoint.__init__, "__kwdefaults__", {**DirectoryCheckpoint.__init__.__kwdefaults__, "every": 0.0}
    )
    how = {"n_landmarks": 30, "random_state": 0, "checkpoint": tmp_path / "kept"}
    with monkeypatch.context() as patch:
        cut_at(patch, "landmarks.solver.fit.fix_landmarks", 0)
        with pytest.raises(Stop):
            LandmarkMDS(**how).fit(matrix)
    with pytest.raises(InputError, match="landmarks was '[0-9a-f]+', is '[0-9a-f]+'"):
        LandmarkMDS(**{**how, "random_state": 1}, resume=True).fit(matrix)
    with pytest.raises(InputError, match="content was"):
        LandmarkMDS(**how, resume=True).fit(2 * matrix)
    found = LandmarkMDS(**{**how, "random_state": None}, resume=True).fit(matrix)
    assert found.seed_ == 0
    np.testing.assert_array_equal(found.embedding_, LandmarkMDS(n_landmarks=30, random_state=0).fit(matrix).embedding_)


def test_a_landmark_run_is_the_same_with_its_panel_in_memory_or_on_disk(tmp_path):
    landmarks = np.arange(0, 60, 2)

    def identity(matrix, keep):
        source, executor = store_panel(ArrayRows(matrix), landmarks), InProcessExecutor()
        with matrix_panel(source, executor, memory_limit=10**8, keep=keep, scratch=tmp_path) as panel:
            assert (panel.location is not None) == (keep == 0)
            return _attach(panel, MatrixEntries(landmarks), LandmarkConfig(), RunContext.of(executor))

    assert identity(noisy(100), 0) == identity(noisy(100), 10**8)
    assert identity(noisy(100), 10**8) != identity(noisy(100, seed=1), 10**8)


# --- the command line -----------------------------------------------------------------------------------------


DASK = f"{sys.executable} -m distributed.cli.dask_{{}}"
PSMDS = [sys.executable, "-m", "psmds_dist"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    build(ArrayRows(noisy(300)), folder / "matrix.zarr", InProcessExecutor())
    return folder / "matrix.zarr"


FIT = ["--init", "random", "--eps", "1e-5"]


@pytest.fixture(scope="module")
def whole(store):
    """The undisturbed run."""
    target = store.parent / "whole.zarr"
    begun = CliRunner().invoke(main, ["fit", str(store), str(target), *FIT, "-q"])
    assert begun.exit_code == 0, begun.output
    return read_result(target)


def stopped(folder, *command):
    """Start a command that stops as it saves its third state, until the file ``held`` is gone."""
    held = folder / "held"
    process = subprocess.Popen([*STOPPING, "state", held, *command], stdout=PIPE, stderr=PIPE, text=True)
    waited_for(held, process)
    return process, held


def waited_for(path, process):
    """Wait until a path is there."""
    wait_for(lambda: path.exists() or process.poll() is not None, 120)
    assert process.poll() is None, process.communicate()[1][-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_killed_command_goes_on_to_the_same_bits(store, whole, tmp_path, how):
    target = tmp_path / "map.zarr"
    fit = ["fit", str(store), str(target), *FIT]
    process, held = stopped(tmp_path, *fit)
    getattr(process, how)()
    held.unlink()
    _, said = process.communicate()
    if how == "terminate":
        assert process.returncode == INTERRUPTED
        assert "--resume to continue" in said
        assert target.exists()
    else:
        assert not target.exists()
    refused = CliRunner().invoke(main, fit)
    assert refused.exit_code == 1
    assert "Error" in refused.stderr
    went_on = subprocess.run([*PSMDS, *fit, "--resume"], capture_output=True, text=True, check=False)
    assert went_on.returncode == 0, went_on.stderr
    assert "resuming from" in went_on.stdout
    found = read_result(target)
    np.testing.assert_array_equal(found.raw_embedding, whole.raw_embedding)
    np.testing.assert_array_equal(found.history["mse"], whole.history["mse"])
    assert not (tmp_path / "map.zarr.checkpoint").exists()


@contextmanager
def a_cluster(file):
    """A scheduler that can be killed, told where in a file, and one worker."""
    options = ["--scheduler-file", file]
    scheduler = subprocess.Popen(
        [*DASK.format("scheduler").split(), *options, "--port", "0", "--no-dashboard"], stderr=subprocess.DEVNULL
    )
    worker = subprocess.Popen(
        [*DASK.format("worker").split(), *options, "--nthreads", "1", "--no-nanny"], stderr=subprocess.DEVNULL
    )
    try:
        while not file.exists():
            assert scheduler.poll() is None
            time.sleep(0.05)
        yield scheduler
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


def on_a_dying_cluster(command, file, begun):
    """Run a command until `begun`, then kill the scheduler; return its exit code and what it said."""
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"}
    with a_cluster(file) as scheduler:
        process = subprocess.Popen([*command, "--cluster", file], stdout=PIPE, stderr=PIPE, text=True, env=environment)
        begun(process)
        scheduler.kill()
        _, said = process.communicate(timeout=120)
    return process.returncode, said


@pytest.mark.wide
@pytest.mark.slow
def test_a_lost_scheduler_leaves_a_run_that_can_go_on(store, whole, tmp_path):
    """The scheduler dies under the command: the best map, exit code 75, and --resume without a cluster."""
    target, held = tmp_path / "map.zarr", tmp_path / "held"
    fit = ["fit", store, target, *FIT]

    def begun(process):
        waited_for(held, process)
        held.unlink()  # the command looks for it now and then, and finds its scheduler dead

    code, said = on_a_dying_cluster([*STOPPING, "state", held, *fit], tmp_path / "scheduler.json", begun)
    assert code == TRY_AGAIN, said
    assert "--resume to continue" in said
    assert read_result(target).attributes["stop_reason"] == "cluster_lost"
    subprocess.run([*PSMDS, *fit, "--resume", "-q"], check=True)
    np.testing.assert_array_equal(read_result(target).embedding, whole.embedding)


@pytest.mark.wide
@pytest.mark.slow
def test_a_lost_scheduler_leaves_distances_that_go_on(tmp_path):
    """Exit code 75, and the same command without a cluster makes what is missing."""
    points = np.random.default_rng(0).random((2000, 12))
    np.save(tmp_path / "points.npy", points)
    target = tmp_path / "matrix.zarr"
    command = [*PSMDS, "distances", tmp_path / "points.npy", target, "--metric", "jensenshannon", "-q"]

    def begun(process):
        wait_for(lambda: list(target.glob("dissimilarities/c.*")) or process.poll() is not None, 120)
        assert process.poll() is None, process.communicate()[1][-2000:]

    code, said = on_a_dying_cluster(command, tmp_path / "scheduler.json", begun)
    assert code == TRY_AGAIN, said
    assert "matrix.zarr is unfinished; rerun the same command to continue" in said
    assert "Traceback" not in said
    made = {path: path.stat().st_mtime_ns for path in target.glob("dissimilarities/c.*")}
    subprocess.run(command, check=True)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    rows = open_rows(str(target)).array[[0, 1999]]
    np.testing.assert_allclose(rows, cdist(points[[0, 1999]], points, "jensenshannon"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("command", [("fit",), ("landmarks", "fit", "-S", "30")])
def test_an_unfinished_run_is_removed_once_another_has_begun(tmp_path, store, command):
    target = tmp_path / "map.zarr"
    older = DirectoryCheckpoint(f"{target}.checkpoint", every=0)
    older.attach({"a": 1})
    older.stream("solve").save(1, lambda: ARRAYS)
    run = [*command, "--overwrite", "-q"]
    mistyped = CliRunner().invoke(main, [*run, str(tmp_path), str(target)])
    assert mistyped.exit_code == 1
    np.testing.assert_array_equal(older.stream("solve").last()["x"], ARRAYS["x"])
    begun = CliRunner().invoke(main, [*run, str(store), str(target)])
    assert begun.exit_code == 0, begun.output
    assert not older.folder.exists()


def test_starts_that_are_done_are_not_done_again(tmp_path, monkeypatch):
    matrix, config = noisy(30), SolverConfig(n_init=10, seed=1, max_epochs=5)
    solves = []

    def counted(*args, **kwargs):
        if len(solves) == 6:
            raise Stop
        solves.append(kwargs["config"].seed)
        return solve(*args, **kwargs)

    monkeypatch.setattr("psmds_dist.api.embed.solve", counted)
    how = {"init": "random"}
    with pytest.raises(Stop):
        embed(
            ArrayRows(matrix),
            config,
            InProcessExecutor(),
            checkpoint=DirectoryCheckpoint(tmp_path / "kept", every=0),
            **how,
        )
    solves[:] = []
    kept = DirectoryCheckpoint(tmp_path / "kept", resume=True, every=0)
    found = embed(ArrayRows(matrix), config, InProcessExecutor(), checkpoint=kept, **how)
    assert solves == [7, 8, 9, 10]
    monkeypatch.undo()
    whole = embed(ArrayRows(matrix), config, InProcessExecutor(), **how)
    assert whole.solution.seed != 10  # the best is one that was kept
    for name, value in whole.solution.as_arrays().items():
        if name not in ("seconds", "history"):
            np.testing.assert_array_equal(found.solution.as_arrays()[name], value)
    assert found.solution.stop_reason is whole.solution.stop_reason
