"""The whole solve on real Dask workers: the same bits however it is spread and whatever happens to them."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import dask.array
import numpy as np
import psutil
import pytest
import zarr
from distributed import Client
from sklearn.exceptions import ConvergenceWarning
from zarr.storage import LocalStore, WrapperStore

from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.api.embed import embed
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import ClusterLost
from psmds_dist.data.cache import stored
from psmds_dist.data.sources import ArrayRows
from psmds_dist.data.store import ZarrRows, open_rows
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor, InProcessExecutor
from psmds_dist.ingest.build import build
from psmds_dist.kernels.warm import warm_up_solver
from psmds_dist.planning.memory import exact
from tests.clusters import ended, wait_for, with_workers

N = 1200
SETTINGS = {"random_state": 3, "max_epochs": 16, "init": "random"}
STREAMING = "1 MB"  # of 5.8 MB of rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]


def noisy_distances(n, dims=5):
    random = np.random.default_rng(8)
    points = random.normal(size=(n, dims))
    distances = np.sqrt(np.maximum(((points[:, None] - points[None]) ** 2).sum(axis=2), 0))
    noise = np.abs(random.normal(scale=0.2, size=(n, n)))
    matrix = distances + noise + noise.T
    np.fill_diagonal(matrix, 0)
    return matrix.astype(np.float32)


@pytest.fixture(scope="module")
def matrix():
    return noisy_distances(N)


@pytest.fixture(scope="module")
def stores(tmp_path_factory, matrix):
    """The same matrix in several forms on disk."""
    folder = tmp_path_factory.mktemp("stores")
    build(ArrayRows(matrix), folder / "ours", InProcessExecutor())
    layouts = {"square": (400, 400), "tall": (N, 64), "short": (7, N)}
    for name, chunks in layouts.items():
        zarr.create_array(folder / name, data=matrix, chunks=chunks)
    zarr.create_array(folder / "format 2", data=matrix, chunks=(300, 700), zarr_format=2)
    return folder


@pytest.fixture(scope="module")
def reference(matrix):
    mds = PatternSearchMDS(n_jobs=1, **SETTINGS).fit(matrix)
    assert mds.n_epochs_ == 16
    return mds


def same(mds, reference):
    assert np.array_equal(mds.embedding_, reference.embedding_)
    assert np.array_equal(mds.raw_embedding_, reference.raw_embedding_)
    assert np.array_equal(mds.point_stress_, reference.point_stress_)
    for column in ("epoch", "radius", "mse", "moved"):
        assert np.array_equal(mds.history_[column], reference.history_[column])


FORMS = ["ours", "square", "tall", "short", "format 2"]


def streaming(path, blocks=8):
    """The smallest limit that works in one process, and so many blocks to keep."""
    rows = stored(open_rows(path))
    return exact(rows, 2).min_limit + blocks * rows.block_bytes


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_same_bits_from_every_layout_cached_and_streamed(stores, reference, form, streamed):
    memory_limit = streaming(stores / form) if streamed else None
    mds = PatternSearchMDS(memory_limit=memory_limit, **SETTINGS).fit(stores / form)
    assert (mds.result_.plan.cached_share < 1) == (memory_limit is not None)
    same(mds, reference)


def test_same_bits_from_a_store_of_the_users_own(client, stores, reference):
    class Own(WrapperStore):
        """Nowhere to be imported from, as what is defined in a notebook."""

    given = zarr.open_array(Own(LocalStore(stores / "square")), mode="r")
    same(PatternSearchMDS(cluster=client, **SETTINGS).fit(given), reference)


@pytest.mark.parametrize("threads", [1, 2])
def test_same_bits_for_every_number_of_threads(matrix, reference, threads):
    same(PatternSearchMDS(n_jobs=threads, **SETTINGS).fit(matrix), reference)


@pytest.mark.parametrize("bad_moves", [True, False])
@pytest.mark.filterwarnings("ignore:the monotone solve ran out of epochs")
@pytest.mark.parametrize("n_components", [3, 5])
def test_same_bits_in_other_dimensions_and_modes(client, stores, n_components, bad_moves):
    settings = {
        "n_components": n_components,
        "bad_moves": bad_moves,
        "random_state": 0,
        "max_epochs": 6,
        "init": "random",
    }
    here = PatternSearchMDS(n_jobs=2, **settings).fit(stores / "ours")
    there = PatternSearchMDS(cluster=client, memory_limit="2 MB", **settings).fit(stores / "ours")
    same(there, here)


@pytest.mark.parametrize("memory_limit", [None, STREAMING])
@pytest.mark.parametrize("workers", [2, 4, 1])
def test_same_bits_for_every_number_of_workers(client, stores, reference, workers, memory_limit):
    with_workers(client, workers)
    mds = PatternSearchMDS(cluster=client, memory_limit=memory_limit, **SETTINGS).fit(stores / "ours")
    assert mds.result_.plan.workers == workers
    same(mds, reference)


@pytest.mark.wide
@pytest.mark.parametrize("form", ["square", "tall"])
def test_same_bits_from_foreign_chunks_on_workers(client, stores, reference, form):
    with_workers(client, 2)
    mds = PatternSearchMDS(cluster=client, memory_limit=streaming(stores / form), **SETTINGS).fit(stores / form)
    same(mds, reference)


def test_same_bits_from_arrays_handed_to_workers(client, matrix, reference, tmp_path):
    with_workers(client, 2)
    lazily = dask.array.from_array(matrix, chunks=(700, 400))
    for given in (matrix, lazily):
        mds = PatternSearchMDS(cluster=client, scratch=tmp_path, **SETTINGS).fit(given)
        same(mds, reference)
    assert list(tmp_path.iterdir()) == []
    same(PatternSearchMDS(scratch=tmp_path, **SETTINGS).fit(lazily), reference)


@pytest.mark.wide
def test_a_worker_killed_between_epochs_changes_nothing(client, stores, reference):
    with_workers(client, 2)
    killed = []

    def kill(event):
        if event.epoch in (4, 9):
            killed.append(sorted(client.run(os.getpid, on_error="ignore").values())[0])
            os.kill(killed[-1], signal.SIGKILL)

    mds = PatternSearchMDS(cluster=client, on_epoch=kill, **SETTINGS).fit(stores / "ours")
    assert len(set(killed)) == 2
    same(mds, reference)


@dataclass(frozen=True)
class Deadly(RowSource):
    """Rows whose next reader dies in the middle of it, once the place is armed."""

    rows: ZarrRows
    place: str

    shape = (N, N)
    content_id = "deadly"

    def read(self, lo, hi, out):
        try:
            os.remove(self.place)
        except FileNotFoundError:
            self.rows.read(lo, hi, out)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("epochs", [(3,), (3, 8)], ids=["once", "twice"])
def test_a_worker_killed_while_its_task_runs_changes_nothing(client, stores, reference, tmp_path, epochs):
    with_workers(client, 2)
    place = tmp_path / "armed"
    executor = DaskExecutor(client)
    before = set(client.run(os.getpid).values())

    def arm(event):
        if event.epoch in epochs:
            place.touch()

    config = SolverConfig(seed=3, max_epochs=16)
    source = Deadly(open_rows(stores / "ours"), str(place))
    result = embed(source, config, executor, memory_limit=STREAMING, on_epoch=arm, init="random")
    assert not place.exists()
    wait_for(lambda: not before <= set(client.run(os.getpid, on_error="ignore").values()))
    assert np.array_equal(result.solution.embedding, reference.embedding_)


@pytest.mark.wide
def test_a_cluster_that_grows_and_shrinks_changes_nothing(client, stores, reference):
    with_workers(client, 1)
    seen = []

    def scale(event):
        client.cluster.scale({3: 4, 9: 2}.get(event.epoch, len(client.cluster.worker_spec)))
        if event.epoch == 8:
            wait_for(lambda: len(names(client)) == 4)
        if event.epoch == 13:
            wait_for(lambda: len(names(client)) == 2)
        seen.append(len(names(client)))

    mds = PatternSearchMDS(cluster=client, on_epoch=scale, **SETTINGS).fit(stores / "ours")
    assert seen[0] == 1
    assert 4 in seen[7:9]
    assert seen[-1] == 2
    same(mds, reference)


def names(client):
    return {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}


@contextmanager
def by_hand(client, name, threads):
    """A worker with a nanny, as one starts it on another machine, until it is pre-empted."""
    options = ["--host", "127.0.0.1", "--no-dashboard", "--name", name, "--nthreads", str(threads)]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.wide
def test_a_worker_preempted_and_replaced_by_one_of_another_kind_changes_nothing(client, stores, reference):
    with_workers(client, 1)
    seen = []
    with ExitStack() as stack:
        before = stack.enter_context(by_hand(client, "spot-1", threads=2))
        wait_for(lambda: "spot-1" in names(client))

        def preempt(event):
            if event.epoch == 4:
                before.send_signal(signal.SIGTERM)
                stack.enter_context(by_hand(client, "spot-2", threads=3))
            if event.epoch == 10:
                wait_for(lambda: "spot-2" in names(client) and "spot-1" not in names(client))
            seen.append(names(client))

        mds = PatternSearchMDS(cluster=client, on_epoch=preempt, **SETTINGS).fit(stores / "ours")
    assert "spot-1" in seen[0]
    assert "spot-2" in seen[-1]
    same(mds, reference)


def _cached_rows():
    from psmds_dist.data import cache as rows

    return sum(cache._data.nbytes for cache in rows._HELD.values())


def test_rows_are_cached_during_a_fit_and_let_go_after_it(client, stores):
    with_workers(client, 2)
    held = []
    note = lambda event: held.append(sum(client.run(_cached_rows).values()))  # noqa: E731
    PatternSearchMDS(cluster=client, on_epoch=note, max_epochs=2, init="random").fit(stores / "ours")
    assert held[-1] >= N * N * 4
    assert sum(client.run(_cached_rows).values()) == 0


@pytest.mark.wide
def test_memory_of_workers_stays_in_the_budget(tmp_path):
    n, budget = 5000, 16 * 2**20
    points = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    store = zarr.create_array(tmp_path / "m", shape=(n, n), chunks=(100, n), dtype="f4", compressors=None)
    for lo in range(0, n, 100):
        store[lo : lo + 100] = np.abs(points[lo : lo + 100, None] - points[None]).sum(axis=2)
    with local_client(workers=1, threads=1) as client:
        executor = DaskExecutor(client)
        executor.warm_up(partial(warm_up_solver, 2, "float32", 2))
        [before] = executor.peak_memory().values()
        config = SolverConfig(max_epochs=3)
        result = embed(open_rows(tmp_path / "m"), config, executor, memory_limit=budget, init="random")
    [peak] = result.peak_memory.values()
    assert result.plan.cached_share < 0.15
    print(f"peak {peak / 2**20:.0f} MiB, of which {(peak - before) / 2**20:.0f} MiB for the fit")
    assert peak < budget + 250 * 2**20
    assert peak - before < budget + 60 * 2**20  # the matrix itself has 95 MiB


# an interrupt that comes while Dask's client asks for an answer leaves the question unasked
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("where", ["here", "dask"])
def test_an_interrupt_keeps_the_best_map(request, matrix, stores, where):
    client = request.getfixturevalue("client") if where == "dask" else None
    pids = client and set(client.run(os.getpid).values())

    def interrupt(event):
        if event.epoch == 4:  # while the next epoch is under way
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()

    given = matrix if client is None else stores / "ours"
    slow = {"radius": 1e-3, "eps": 0.0, "max_epochs": 10_000}
    mds = PatternSearchMDS(cluster=client, random_state=0, on_epoch=interrupt, **slow).fit(given)
    assert mds.stop_reason_ == "interrupted"
    assert 4 <= mds.n_epochs_ < 10_000
    assert np.isfinite(mds.embedding_).all()
    assert mds.mse_ <= mds.history_["mse"].min()
    if client is not None:
        assert set(client.run(os.getpid).values()) == pids
        again = PatternSearchMDS(cluster=client, **SETTINGS).fit(given)  # and the cluster works on
        assert again.n_epochs_ == 16


TELLING = """
import contextlib, pathlib, sys
from psmds_dist.api import report
from psmds_dist.cli import app
from psmds_dist.core.events import EpochEvent

place = pathlib.Path(sys.argv.pop(1))

@contextlib.contextmanager
def progress(quiet):
    yield lambda event: isinstance(event, EpochEvent) and event.epoch == 10 and place.touch()

report.progress = progress
app.main()
"""
"""The command, but telling when epochs are under way."""


@pytest.mark.parametrize("options", [["--workers", "2"], ["--threads", "1"]], ids=["dask", "here"])
@pytest.mark.wide
def test_ctrl_c_at_the_terminal_keeps_the_map(tmp_path, stores, options):
    """The terminal sends the signal to every process of the group; here the test does."""
    target = tmp_path / "map.zarr"
    endless = ["--radius", "1e-3", "--eps", "0", "--max-epochs", "1000000"]
    told = tmp_path / "told"
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, told, "fit", str(stores / "ours"), str(target), *endless, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        assert any("points, rows" in line for line in process.stdout)  # after a line on the workers
        wait_for(told.exists)
        members = [p for p in psutil.process_iter() if _session(p.pid) == process.pid]
        assert len(members) >= (3 if "--workers" in options else 1)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted" in out
    assert "Traceback" not in err
    assert re.fullmatch(
        r"Error: interrupted: .* best map so far; rerun the same command with --resume to continue\.\n", err
    )
    result = read_result(target)
    assert result.attributes["stop_reason"] == "interrupted"
    assert len(result.history) > 3
    assert np.isfinite(result.stress.normalized_stress)
    assert {place.name for place in tmp_path.iterdir()} == {"map.zarr", "map.zarr.checkpoint", "told"}
    wait_for(lambda: not any(_session(p.pid) == process.pid for p in members))


DEADLY = """
import pathlib, sys
from functools import partial
from psmds_dist.api import embed as run, report
from psmds_dist.cli import app
from tests.clusters import Plagued, telling

place = pathlib.Path(sys.argv.pop(1))
embed = run.embed
run.embed = lambda source, *rest, **how: embed(Plagued(source, str(place)), *rest, **how)
report.progress = partial(telling, place)
app.main()
"""
"""The command, but every process that reads rows after the third epoch is killed."""


@pytest.mark.slow
@pytest.mark.wide
def test_workers_that_die_one_after_the_other_leave_the_best_map_and_a_sentence(tmp_path, stores):
    """Exit code 1, since the same command would kill its workers again, but with fewer workers it can go on."""
    target, told = tmp_path / "map.zarr", tmp_path / "told"
    options = ["--workers", "1", "--memory-limit", "1 MB", "--init", "random"]
    command = [sys.executable, "-c", DEADLY, told, "fit", stores / "ours", target, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "3 epochs in" in done.stdout
    assert "cut short, this is the best map so far" in done.stdout
    assert re.search(r"Error: one worker after the other died .*", done.stderr)
    remedy = "rerun the same command with --resume to continue."
    assert done.stderr.endswith(f"; {target} holds the best map so far; {remedy}\n")
    assert read_result(target).attributes["stop_reason"] == "workers_died"
    resumed = subprocess.run(
        [sys.executable, "-m", "psmds_dist", "fit", stores / "ours", target, "--init", "random", "--resume"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from" in resumed.stdout
    assert read_result(target).attributes["stop_reason"] == "radius_tol"


STARTING = """
import pathlib, sys, distributed
from psmds_dist.cli import app

told = pathlib.Path(sys.argv.pop(1))

class LocalCluster(distributed.LocalCluster):
    def __init__(self, **options):
        told.touch()
        super().__init__(**options)

distributed.LocalCluster = LocalCluster
app.main()
"""
"""The command, but telling when its cluster starts."""


@pytest.mark.parametrize("children", [0, 2], ids=["before the workers", "with the workers"])
@pytest.mark.wide
def test_ctrl_c_while_the_cluster_starts_counts(tmp_path, stores, children):
    told = tmp_path / "told"
    process = subprocess.Popen(
        [sys.executable, "-c", STARTING, told, "fit", stores / "ours", tmp_path / "map.zarr", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        wait_for(lambda: told.exists() and len(psutil.Process(process.pid).children()) >= children)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "Error: interrupted.\n"
    assert not (tmp_path / "map.zarr").exists()
    wait_for(lambda: not any(_session(p.pid) == process.pid for p in psutil.process_iter()))


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@contextmanager
def cluster_by_hand(port, file):
    """A scheduler at a port, and a worker; both end at once with the block."""
    here = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", file]
    run = partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    processes = [run([sys.executable, "-m", "distributed.cli.dask_scheduler", *here, "--port", str(port)])]
    try:
        wait_for(file.exists)
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", *here, "--nthreads", "1", "--no-nanny"]
        processes.append(run(worker))
        yield processes
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait(20)


@pytest.mark.slow
@pytest.mark.wide
def test_a_scheduler_that_comes_back_goes_on_with_the_run(stores, reference, tmp_path):
    """The new one knows nothing of the old one's workers and tasks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        before = stack.enter_context(cluster_by_hand(port, tmp_path / "one.json"))
        client = stack.enter_context(Client(scheduler_file=str(tmp_path / "one.json"), set_as_default=False))

        def lose(event):
            if event.epoch == 4:
                for process in before:
                    process.kill()
                    process.wait(20)
                stack.enter_context(cluster_by_hand(port, tmp_path / "two.json"))

        mds = PatternSearchMDS(cluster=client, on_epoch=lose, **SETTINGS).fit(stores / "ours")
        client.close()
    same(mds, reference)


@pytest.mark.wide
def test_a_scheduler_that_dies_leaves_the_best_map(matrix, tmp_path):
    """Nobody waits for ever: Dask's client gives up after its timeout, and the map so far comes back."""
    build(ArrayRows(matrix), tmp_path / "m.zarr", InProcessExecutor())
    with (
        cluster_by_hand(0, tmp_path / "cluster.json") as (scheduler, _),
        dask.config.set({"distributed.comm.timeouts.connect": "3s"}),
        Client(scheduler_file=str(tmp_path / "cluster.json"), set_as_default=False) as client,
    ):
        mds = PatternSearchMDS(
            cluster=client,
            random_state=3,
            radius_tol=1e-9,
            on_epoch=lambda event: scheduler.kill() if event.epoch == 4 else None,
        )
        began = time.monotonic()
        with pytest.warns(ConvergenceWarning, match="the cluster was lost in the middle of the run"):
            mds.fit(tmp_path / "m.zarr")
        assert time.monotonic() - began < 60
    assert mds.stop_reason_ == "cluster_lost"
    assert mds.n_epochs_ >= 4
    assert np.isnan(mds.normalized_stress_)
    assert np.isfinite(mds.embedding_).all()
    mds.save(tmp_path / "map.zarr")
    np.testing.assert_array_equal(read_result(tmp_path / "map.zarr").embedding, mds.embedding_)


@pytest.mark.wide
def test_a_scheduler_that_dies_while_a_dask_array_is_computed(matrix, tmp_path):
    """Dask cancels what is waited for, which is not the fault of any worker."""
    with (
        cluster_by_hand(0, tmp_path / "cluster.json") as (scheduler, _),
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        Client(scheduler_file=str(tmp_path / "cluster.json"), set_as_default=False) as client,
    ):
        pid = scheduler.pid

        def deadly(rows):
            os.kill(pid, signal.SIGKILL)
            return rows

        lazily = dask.array.from_array(matrix, chunks=300).map_blocks(deadly, meta=matrix[:0, :0])
        with pytest.raises(ClusterLost, match=r"connection to the Dask scheduler broke \(\S+\): check that it still"):
            PatternSearchMDS(cluster=client, scratch=tmp_path, **SETTINGS).fit(lazily)
