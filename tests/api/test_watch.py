"""The status of runs and stores, from files alone."""

import os
import socket
import time
import urllib.error
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import pdist, squareform

from psmds_dist import InputError, PatternSearchMDS, build, open_points
from psmds_dist.api.metrics import METRICS, metrics_served, prometheus_text
from psmds_dist.api.watch import RunState, RunStatus, read_status
from psmds_dist.core.types import StopReason
from psmds_dist.executor import InProcessExecutor
from psmds_dist.solver.checkpoint import DirectoryCheckpoint
from psmds_dist.solver.progress import Progress
from psmds_dist.utils.lease import Owner

NOW = time.time()
RUN = replace(
    Progress.of_this_process(),
    command="psmds fit matrix.zarr map.zarr",
    directory="/data",
    job="Slurm 77",
    restarts=2,
    stage="epochs",
    epoch=34,
    radius=0.0123,
    end_radius=0.002,
    stress=0.0842,
    moved=0.12,
    seconds=720.0,
    seconds_left=240.0,
    at_least=False,
    workers=3,
    workers_lost=1,
    bytes_read=2**30,
)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "map.zarr"


def recorded(target, ago=0.0, **changes):
    """Status of a run whose progress was written so many seconds ago."""
    folder = target.with_name("map.zarr.checkpoint")
    folder.mkdir(exist_ok=True)
    path = folder / "progress.json"
    path.write_text(replace(RUN, updated=time.time() - ago, **changes).as_text())
    os.utime(path, (time.time() - ago,) * 2)
    return read_status(target)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    matrix = squareform(pdist(np.random.default_rng(0).normal(size=(40, 3))))
    path = tmp_path_factory.mktemp("finished") / "map.zarr"
    mds = PatternSearchMDS(random_state=0, max_epochs=200).fit(matrix)
    mds.save(path)
    return path, mds


def test_a_run_on_one_screen(target):
    found = recorded(target)
    assert (found.state, found.state.exit_code, found.is_over) == (RunState.RUNNING, 3, False)
    text = found.describe()
    assert f"{target}: running on {socket.gethostname()} (process {os.getpid()}, Slurm 77)" in text
    for part in (
        "34, radius 0.0123 (ends at 0.002), 12% of the points moved",
        "0.08420",
        "12 min so far, about 4 min left",
        "2, first started 20",
        "3, 1 lost",
        "1.00 GiB",
        "psmds fit matrix.zarr map.zarr",
        "last heard of",
    ):
        assert part in text
    assert len(text.splitlines()) < 15
    assert found.line() == (
        "epochs   epoch 34, radius 0.0123 (ends at 0.002), 12% of the points moved   stress 0.08420   about 4 min left"
    )


def test_what_is_unknown_is_left_out(target):
    unknown = dict.fromkeys(("epoch", "radius", "end_radius", "stress", "moved", "seconds_left", "workers"))
    found = recorded(target, stage="check", done=3, total=1200, restarts=0, bytes_read=None, **unknown)
    _, *lines = found.describe().splitlines()
    assert "check   3 of 1,200 done" in lines[0]
    for name in ("epoch ", "stress", "left", "restarts", "workers", "None", "nan"):
        assert not any(name in line for line in lines)
    assert "at least 4 min left" in recorded(target, at_least=True).describe()


def test_a_run_that_is_not_heard_of(target):
    found = recorded(target, ago=3 * 3600, host="node7")
    assert (found.state, found.state.exit_code, found.is_over) == (RunState.SILENT, 75, False)
    assert found.heard == pytest.approx(3 * 3600, abs=60)
    assert "last heard of 180 min ago" in found.summary.replace("3 h 00 min", "180 min")
    assert "on node7" in found.summary
    assert "may have been killed" in found.summary
    assert "cd /data && psmds fit matrix.zarr map.zarr --resume" in found.summary
    assert recorded(target, ago=30, host="node7").state is RunState.RUNNING


def test_a_clock_that_differs_does_not_make_a_run_silent(target):
    folder = target.with_name("map.zarr.checkpoint")
    folder.mkdir()
    for skew in (-7200, 7200):
        (folder / "progress.json").write_text(replace(RUN, host="node7", updated=time.time() + skew).as_text())
        assert read_status(target).state is RunState.RUNNING


@pytest.fixture
def child():
    """A process that has ended."""
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    return child


def left_locked(place, child, **changes):
    """Make the lock file that a process which was killed has left."""
    owner = replace(Owner.current(), name=f"process {child} on {socket.gethostname()}", **changes)
    place.with_name(f".{place.name}.lock").write_bytes(owner.header())


def test_a_process_that_has_left_its_lock_was_killed(target, child):
    """Known at once, but not where another system has made the lock."""
    assert recorded(target, pid=child).state is RunState.RUNNING
    left_locked(target, child, kernel="another")
    assert recorded(target, pid=child).state is RunState.RUNNING
    left_locked(target, child)
    assert recorded(target, pid=child).state is RunState.WAITING
    left_locked(target, os.getpid())
    assert recorded(target, pid=child).state is RunState.RUNNING


@pytest.mark.parametrize("since", [5, "yesterday"])
def test_a_garbled_lock_tells_nothing(target, child, since):
    left_locked(target, child, since=since)
    assert recorded(target, pid=child).state is RunState.RUNNING


def test_a_process_that_is_gone_was_killed(target, child):
    found = recorded(target, ago=20, pid=child, job="")
    assert (found.state, found.is_over) == (RunState.WAITING, True)
    assert f"process {child} on {socket.gethostname()} was killed; continue with: cd /data" in found.summary
    assert recorded(target, ago=20, pid=child, host="node7").state is RunState.RUNNING  # cannot be known from here
    reused = recorded(target, ago=20, session_started=1.0)  # this process began later: it has the number of another
    assert reused.state is RunState.WAITING
    assert recorded(target, ago=20, session_started=NOW + 3600).state is RunState.RUNNING


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason.resumable])
def test_an_interrupted_run_waits_to_be_continued(target, reason):
    found = recorded(target, state="ended", reason=str(reason))
    assert (found.state, found.is_over) == (RunState.WAITING, False)  # its batch job may be started again
    assert reason.description in found.summary
    assert "--resume" in found.summary
    assert recorded(target, state="ended", reason=str(reason), job="").is_over
    python = recorded(target, state="ended", reason=str(reason), command="analysis.py")
    assert "run it again with resume=True" in python.summary


def test_a_run_that_failed(target):
    found = recorded(target, state="ended", reason="error", message="no free worker.")
    assert (found.state, found.state.exit_code, found.is_over) == (RunState.FAILED, 1, True)
    assert "no free worker." in found.summary


def test_a_run_that_saves_its_map(target, finished):
    assert recorded(target, state="ended", reason="radius_tol").summary.startswith("saving the map")
    late = recorded(target, ago=3600, state="ended", reason="radius_tol")
    assert (late.state, late.summary.partition(";")[0]) == (RunState.WAITING, "computed, but the map was not saved")
    finished[0].rename(target)
    try:
        assert recorded(target, state="ended", reason="radius_tol").state is RunState.FINISHED
    finally:
        target.rename(finished[0])


def test_a_finished_map(finished):
    path, mds = finished
    found = read_status(path)
    assert (found.state, found.state.exit_code, found.is_over) == (RunState.FINISHED, 0, True)
    assert found.facts["normalized_stress"] == mds.normalized_stress_
    assert found.facts["n_epochs"] == mds.n_epochs_
    assert f"{mds.normalized_stress_:.6f}" in found.describe()
    assert "converged" in found.line()


def test_a_map_that_was_cut_short_and_lost_its_checkpoint(finished, tmp_path):
    _, mds = finished
    solution = replace(mds.result_.solution, stop_reason=StopReason.INTERRUPTED)
    mds.result_, whole = replace(mds.result_, solution=solution), mds.result_
    try:
        mds.save(tmp_path / "cut.zarr")
    finally:
        mds.result_ = whole
    found = read_status(tmp_path / "cut.zarr")
    assert (found.state, "its checkpoint is gone" in found.summary) == (RunState.WAITING, True)


@pytest.mark.parametrize("text", ["", "{", '{"kind": "psmds-dist progress", "epoch": "x"}', "\0" * 100])
def test_a_garbled_file_is_a_sentence(target, text):
    folder = target.with_name("map.zarr.checkpoint")
    folder.mkdir()
    (folder / "progress.json").write_text(text)
    found = read_status(target)
    assert found.state is RunState.FAILED
    assert "progress.json cannot be read" in found.summary
    checkpoint = DirectoryCheckpoint(folder, every=0)
    checkpoint.attach({"configuration": {"seed": 0}})
    checkpoint.stream("solve").save(7, lambda: {"x": np.zeros(2)}, now=True)
    found = read_status(target)
    assert (found.state, found.facts) == (RunState.RUNNING, {"newest states": {"solve": 7}})
    assert "progress.json cannot be read" in found.summary
    os.utime(next(folder.glob("*.npz")), (NOW - 3600,) * 2)
    found = read_status(folder)  # the directory itself will do
    assert (found.state, "--resume" in found.summary) == (RunState.WAITING, True)
    found.describe()


def test_a_store_under_construction(tmp_path):
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((400, 3)))
    path = tmp_path / "store.zarr"
    seen = []

    def on_progress(done, total):
        seen.append((done, total, read_status(path)))

    build(open_points(tmp_path / "points.npy", "euclidean"), path, InProcessExecutor(), on_progress=on_progress)
    for done, total, found in seen:
        assert found.state is RunState.RUNNING
        assert (found.facts["done"], found.facts["total"]) == (done, total)
        assert f"{done:,} of {total:,} done" in found.line()
    assert len(seen) > 2
    assert read_status(path).state is RunState.FINISHED
    assert "finished" in read_status(path).summary


@pytest.fixture
def unfinished(tmp_path):
    """A store of which a part is written."""
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((400, 3)))
    path = tmp_path / "store.zarr"

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(open_points(tmp_path / "points.npy", "euclidean"), path, InProcessExecutor(), on_progress=stop)
    return path


def test_a_store_that_is_not_written_any_more(unfinished):
    for folder, _, files in os.walk(unfinished):
        for name in files:
            os.utime(os.path.join(folder, name), (time.time() - 3600,) * 2)
    found = read_status(unfinished)
    assert (found.state, found.is_over) == (RunState.WAITING, True)
    assert "rerun the same command" in found.summary
    assert found.heard == pytest.approx(3600, abs=60)


def test_a_store_whose_process_was_killed(unfinished, child):
    assert read_status(unfinished).state is RunState.RUNNING
    left_locked(unfinished, child)
    assert read_status(unfinished).state is RunState.WAITING


def test_nothing_there(tmp_path):
    found = read_status(tmp_path / "nothing")
    assert (found.state, found.state.exit_code, found.is_over) == (RunState.ABSENT, 1, False)
    zarr.save_array(tmp_path / "foreign.zarr", np.zeros((3, 3)))
    (tmp_path / "file").write_text("text")
    assert read_status(tmp_path / "foreign.zarr").state is RunState.ABSENT
    assert read_status(tmp_path / "file").state is RunState.ABSENT


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("", " (empty)"),
        ("begins\nError: bad.npy is damaged.\n\n", ", which ends with: Error: bad.npy is damaged."),
        ("\x1b[31m" + "x" * 5000, f", which ends with: {'x' * 1000}"),
    ],
)
def test_a_job_that_failed_before_its_run_began(tmp_path, log, told):
    (tmp_path / "map.zarr.log").write_text(log)
    found = read_status(tmp_path / "map.zarr")
    assert found.state is RunState.ABSENT
    assert found.summary.endswith(f"; the log of its job is {tmp_path}/map.zarr.log{told}")


@pytest.mark.parametrize(
    ("dashboard", "host", "shown"),
    [
        ("http://127.0.0.1:4711/status", socket.gethostname(), "http://127.0.0.1:4711/status"),
        ("http://127.0.0.1:4711/status", "node7", "ssh -N -L 8787:127.0.0.1:4711 node7, then "),
        ("http://node9:4711/status", "node7", "ssh -N -L 8787:127.0.0.1:4711 node9, then "),
        ("nonsense", "node7", None),
        ("http://[:4711/status", "node7", None),
    ],
)
def test_the_dashboard_and_how_to_reach_it(target, dashboard, host, shown):
    _, *lines = recorded(target, dashboard=dashboard, host=host).describe().splitlines()
    found = [line for line in lines if line.startswith("dashboard")]
    assert len(found) == bool(shown)
    assert all(shown in line for line in found)


def samples(text):
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(text))
    return {(s.name, s.labels.get("state")): (s, f.type) for f in families for s in f.samples}


def test_metrics_are_what_prometheus_reads(tmp_path):
    place = tmp_path / 'a "map"\n\\.zarr'
    status = RunStatus(str(place), RunState.RUNNING, "", facts=vars(replace(RUN, updated=NOW)))
    found = samples(prometheus_text(status))
    assert {sample.labels["target"] for sample, _ in found.values()} == {str(place)}
    assert found["psmds_state", "running"][0].value == 1
    assert sum(sample.value for (name, _), (sample, _) in found.items() if name == "psmds_state") == 1
    expected = {"psmds_epoch": 34, "psmds_stress": 0.0842, "psmds_radius": 0.0123, "psmds_left_seconds": 240}
    counters = {"psmds_workers_lost_total": 1, "psmds_bytes_read_total": 2**30, "psmds_restarts_total": 2}
    for name, value in {**expected, **counters, "psmds_updated_timestamp_seconds": NOW}.items():
        assert found[name, None][0].value == value
        assert found[name, None][1] == ("counter" if name in counters else "gauge")
    assert ("psmds_map_stress", None) not in found


def test_metrics_of_what_is_unknown_are_left_out(finished):
    absent = RunStatus("x", RunState.ABSENT, "", facts={"stress": float("nan"), "epoch": None, "radius": "wide"})
    assert {name for name, _ in samples(prometheus_text(absent))} == {"psmds_state"}
    found = samples(prometheus_text(read_status(finished[0])))
    assert found["psmds_map_stress", None][0].value == finished[1].normalized_stress_
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_metrics_are_served_on_loopback():
    texts = iter(["first 1\n", "second 2\n"])
    with metrics_served(lambda: next(texts), "0") as url:
        assert url.startswith("http://127.0.0.1:")
        for expected in ("first 1\n", "second 2\n"):
            with urllib.request.urlopen(url, timeout=30) as reply:
                assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert reply.read().decode() == expected
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("metrics", "secrets"), timeout=30)
        port = url.split(":")[2].split("/")[0]
        with pytest.raises(InputError, match="cannot be served at"), metrics_served(str, port):
            pass
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=30)


@pytest.mark.parametrize("address", ["", "port", "99999", "-1", "nowhere.invalid:0", "host:"])
def test_an_address_that_cannot_be_served(address):
    with pytest.raises(InputError, match="give a free port"), metrics_served(str, address):
        pass
