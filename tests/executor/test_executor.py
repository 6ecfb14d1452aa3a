"""The two executors, on work that is not MDS; the cluster is real processes on this machine."""

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial

import numba
import numpy as np
import psutil
import pytest
from distributed import Client
from distributed.comm import CommClosedError

from psmds_dist.core.types import ClusterLost, InputError, WorkerError
from psmds_dist.data import cache as rows
from psmds_dist.data.cache import RowCache, get_row_cache
from psmds_dist.data.opening import open_matrix
from psmds_dist.data.sources import ArrayRows
from psmds_dist.deploy.local import local_client
from psmds_dist.executor import DaskExecutor, InProcessExecutor, connect, dispatch, errors
from psmds_dist.executor import dask as on_dask
from psmds_dist.executor import workers as pool
from psmds_dist.executor.dispatch import Assignment, MapCall, Task
from psmds_dist.executor.stragglers import StragglerDetector
from psmds_dist.kernels.jit import available_threads
from tests.clusters import all_blocks, wait_for, with_workers

BLOCKS = range(3, 40)


@pytest.fixture(params=["here", "dask"])
def executor(request):
    if request.param == "here":
        return InProcessExecutor()
    return DaskExecutor(request.getfixturevalue("client"))


def total(blocks):
    return sum(blocks)


def napping(blocks, seconds=0.3):
    time.sleep(seconds)
    return os.getpid()


def failing(blocks, error):
    if 7 in blocks:
        raise error
    return len(blocks)


def ending_the_process(blocks):
    os.kill(os.getpid(), signal.SIGKILL)


def replace_one(client):
    """Put a new process in the place of one worker."""
    client.restart_workers([next(iter(client.run(os.getpid)))])


def dying_once(blocks, place):
    """End the process of the first task that comes here; the claim is atomic."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def threads_of_kernels(blocks):
    return numba.get_num_threads()


def test_every_block_is_in_exactly_one_group(executor):
    parts = list(executor.map(total, BLOCKS))
    assert sorted(b for group, _ in parts for b in group) == list(BLOCKS)
    assert len(parts) == executor.n_workers
    assert all(result == sum(group) for group, result in parts)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_groups_are_bounded(executor, size):
    parts = list(executor.map(total, BLOCKS, group=size))
    assert sorted(b for group, _ in parts for b in group) == list(BLOCKS)
    assert max(len(group) for group, _ in parts) <= size


def test_no_blocks_no_calls(executor):
    assert list(executor.map(total, [])) == []


def test_both_workers_take_part(client):
    assert len({pid for _, pid in DaskExecutor(client).map(napping, BLOCKS)}) == 2


def is_at_work(key, task):
    return str(key).startswith("psmds") and task.state not in ("memory", "erred", "released", "forgotten")


@pytest.mark.parametrize(
    "error",
    [InputError("the matrix is blue."), ValueError("other"), OSError(5, "Input/output error", "x.npy")],
)
def test_an_error_in_work_comes_as_itself_and_leaves_nothing_running(executor, error):
    with pytest.raises(type(error)) as caught:
        list(executor.map(partial(failing, error=error), BLOCKS, group=1))
    assert str(caught.value) == str(error)
    assert caught.value.__cause__ is not caught.value
    del caught
    gc.collect()  # a traceback keeps the run's futures
    if isinstance(executor, DaskExecutor):
        scheduler = executor._client.cluster.scheduler
        wait_for(lambda: not [key for key, task in scheduler.tasks.items() if is_at_work(key, task)])
    assert len(list(executor.map(total, BLOCKS))) == executor.n_workers  # and all are free for the next


def test_leaving_a_run_early_cancels_the_rest(client):
    gc.collect()  # tracebacks of other tests keep futures of theirs
    began = time.monotonic()
    for _ in DaskExecutor(client).map(partial(napping, seconds=2.0), range(40), group=1):
        break
    scheduler = client.cluster.scheduler
    wait_for(lambda: not [key for key, task in scheduler.tasks.items() if is_at_work(key, task)])
    assert time.monotonic() - began < 30  # two workers would sleep for 40 seconds


def test_threads_in_a_task_are_those_of_the_worker(client):
    assert {n for _, n in DaskExecutor(client).map(threads_of_kernels, BLOCKS)} == {1}


@pytest.mark.parametrize("threads", [1, 2, None])
def test_threads_in_process(threads):
    before = numba.get_num_threads()
    [(_, used)] = InProcessExecutor(threads).map(threads_of_kernels, BLOCKS)
    assert used == min(threads or available_threads(), available_threads())
    assert numba.get_num_threads() == before


def _hold_some(blocks, source):
    cache = get_row_cache(source, 10**8)
    assert isinstance(cache, RowCache)
    for _ in cache.batches(blocks):
        pass
    return cache._data.nbytes


def _held():
    return len(rows._HELD)


def held_by(executor):
    """How many row caches each process that works for an executor holds."""
    if isinstance(executor, InProcessExecutor):
        return [len(executor._rows)]
    return list(executor._client.run(_held).values())


def test_close_lets_go_of_the_rows(executor):
    source = ArrayRows(np.ones((1100, 1100)))  # float64, so float32 rows must be cached
    blocks = range(source.layout.count)
    held = [nbytes for _, nbytes in executor.map(partial(_hold_some, source=source), blocks)]
    assert len(held) == executor.n_workers
    assert min(held) >= 1100 * 1100 * 4 // 3  # about half
    assert set(held_by(executor)) == {1}
    executor.close()
    assert set(held_by(executor)) == {0}


def test_runs_of_one_process_hold_rows_each_for_itself():
    one, other = InProcessExecutor(), InProcessExecutor()
    list(one.map(partial(_hold_some, source=ArrayRows(np.ones((1100, 1100)))), range(32)))
    list(other.map(partial(_hold_some, source=ArrayRows(np.zeros((1100, 1100)))), range(32)))
    assert (held_by(one), held_by(other)) == ([1], [1])
    other.close()
    assert (held_by(one), held_by(other)) == ([1], [0])


@pytest.mark.wide
def test_peak_memory_is_that_of_each_worker_alone(client):
    """What getrusage tells would include the process that started it: this one, with its big array."""
    ballast = np.ones(100_000_000)  # 800 MB, touched
    replace_one(client)
    peaks = DaskExecutor(client).peak_memory()
    assert len(peaks) == 2
    assert 20e6 < min(peaks.values()) <= max(peaks.values()) < 700e6
    assert InProcessExecutor().peak_memory()["in-process"] > ballast.nbytes


def test_a_worker_killed_in_a_task_is_made_up_for(client, tmp_path, quiet):
    executor = DaskExecutor(client)
    work = partial(dying_once, place=str(tmp_path / "died"))
    parts = list(executor.map(work, BLOCKS, group=2))
    assert (tmp_path / "died").exists()
    assert sorted(b for group, _ in parts for b in group) == list(BLOCKS)


def test_cancelled_tasks_are_issued_again(client, quiet):
    """`KilledWorker` and cancelled tasks are final for Dask, so the executor must issue the blocks itself."""
    executor = DaskExecutor(client)
    call = MapCall(executor._pool, StragglerDetector(30), napping)
    results = call.results(BLOCKS, 10)
    first = next(results)
    pending = [future for future in call._in_flight if future.status == "pending"]
    client.cancel(pending, force=True)
    parts = [first, *results]
    assert pending
    assert sorted(b for group, _ in parts for b in group) == list(BLOCKS)


class Evaporated:
    """A future whose answer went down with its worker: Dask waits for it to be computed again."""

    status = "pending"

    def result(self, timeout):
        raise TimeoutError(f"timed out after {timeout} s.")

    def release(self):
        pass


def test_an_answer_that_is_lost_before_it_is_fetched_is_asked_for_again(client):
    executor = DaskExecutor(client)
    call, part = MapCall(executor._pool, StragglerDetector(30), total), Task([3, 4])
    call._unfinished[part] = None
    assert list(call._collect(Evaporated(), Assignment(part, next(iter(executor._pool.available.values()))))) == []
    assert part in call._unfinished
    assert part.losses == 1
    call._check_workers()
    [future] = call._in_flight
    assert list(call._collect(future, call._in_flight.pop(future))) == [([3, 4], 7)]


def test_a_client_that_is_about_to_lose_its_scheduler_knows_no_more_than_before(client, monkeypatch):
    executor = DaskExecutor(client)
    before = executor._pool.refresh()
    future = client.submit(int, pure=False)

    def closing(*args, **kwargs):
        raise CommClosedError("ConnectionPool closing.")

    async def closing_too():
        closing()

    monkeypatch.setattr(executor._pool, "_identify", closing_too)
    monkeypatch.setattr(client, "who_has", closing)
    assert executor._pool.refresh() == before
    assert executor._pool.holders(future) == set()


def test_a_task_that_comes_after_the_scheduler_was_lost_ends_in_a_sentence(client):
    with Client(client.scheduler.address, set_as_default=False) as second:
        executor = DaskExecutor(second)
    with pytest.raises(ClusterLost, match="the Dask scheduler is gone, or the client was closed"):
        executor._pool.submit(int)


def test_work_that_kills_every_worker_ends_in_a_sentence(client, quiet, monkeypatch):
    for module in (dispatch, errors):  # workers take seconds to start
        monkeypatch.setattr(module, "ATTEMPTS", 2)
    with pytest.raises(WorkerError, match=r"lost its workers 2 times .* out of memory: lower memory_limit"):
        list(DaskExecutor(client).map(ending_the_process, [0]))
    assert all_blocks(DaskExecutor(client).map(total, BLOCKS)) == list(BLOCKS)  # the cluster is of use still
    with_workers(client, 2)


def test_interrupts_do_not_reach_workers_the_restarted_ones_neither(client, quiet):
    with_workers(client, 2)
    pids = set(client.run(os.getpid).values())
    replace_one(client)
    before = client.run(os.getpid)
    assert len(set(before.values()) & pids) == 1
    for pid in before.values():
        os.kill(pid, signal.SIGINT)
    time.sleep(0.5)
    assert client.run(os.getpid) == before


def _mark(place):
    with open(os.path.join(place, str(os.getpid())), "w"):
        pass


def test_warm_up_runs_on_workers_that_come_later(client, tmp_path, quiet):
    executor = DaskExecutor(client)
    executor.warm_up(partial(_mark, str(tmp_path)))
    pids = {str(os.getpid()), *map(str, client.run(os.getpid).values())}
    assert {place.name for place in tmp_path.iterdir()} == pids
    replace_one(client)
    wait_for(lambda: len(list(tmp_path.iterdir())) == 4)
    executor.close()
    assert not [name for name in client.cluster.scheduler.worker_plugins if "psmds" in name]


def dying_once_there(place, here):
    if os.getpid() != here:
        dying_once([], place)


def test_a_worker_that_dies_while_all_are_prepared_is_made_up_for(client, tmp_path, quiet):
    executor = DaskExecutor(client)
    executor.warm_up(partial(dying_once_there, str(tmp_path / "died"), os.getpid()))
    assert (tmp_path / "died").exists()
    assert all_blocks(executor.map(total, [1, 2])) == [1, 2]
    executor.close()
    assert not [name for name in client.cluster.scheduler.worker_plugins if "psmds" in name]


@pytest.mark.wide
@pytest.mark.slow
def test_a_worker_that_is_lost_again_and_again_comes_back(quiet):
    """Left to itself, Dask closes a worker's nanny 15 s after a loss if it finds the worker away in that moment."""
    with local_client(2, 1) as client:
        lost = 0.0
        for pause in (0, 14.5):
            time.sleep(max(0, lost + pause - time.monotonic()))
            lost = lost or time.monotonic()
            workers = client.scheduler_info(n_workers=-1)["workers"]
            first = next(address for address, worker in workers.items() if worker["name"] == 0)
            os.kill(client.run(os.getpid, workers=[first])[first], signal.SIGKILL)
            wait_for(lambda first=first: first not in client.scheduler_info(n_workers=-1)["workers"])
            wait_for(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2)


@pytest.fixture
def stranger(client, tmp_path):
    """A worker without this package."""
    blocker = tmp_path / "blocker.py"
    blocker.write_text("import sys\nsys.modules['psmds_dist'] = None\n")
    command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--no-nanny"]
    options = ["--name", "stranger", "--preload", str(blocker), "--no-dashboard", "--nthreads", "1"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command + options, stdout=log, stderr=log, cwd=tmp_path)
    try:
        wait_for(lambda: "stranger" in names_of(client))
        yield
    finally:
        process.terminate()
        process.wait(10)
    wait_for(lambda: "stranger" not in names_of(client))


def names_of(client):
    return [worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]


def test_a_worker_without_the_package_is_named_in_a_sentence(client, stranger):
    with pytest.raises(WorkerError, match=r"a worker cannot import 'psmds_dist': install psmds-dist, in the same"):
        DaskExecutor(client)
    assert "stranger" in names_of(client)  # the question does it no harm


def test_a_worker_with_another_version_is_told(client, monkeypatch):
    monkeypatch.setattr("psmds_dist.__version__", "99.0")
    with pytest.raises(WorkerError, match=r"worker tcp://.* has psmds-dist 0.*, but this process 99\.0: install"):
        DaskExecutor(client)


def test_a_matrix_that_workers_cannot_read_is_told_with_host_and_reason(client, tmp_path):
    np.save(tmp_path / "t.npy", np.zeros((5, 5)))
    source, executor = open_matrix(str(tmp_path / "t.npy")), DaskExecutor(with_workers(client, 2))
    executor.check_readable(source)
    InProcessExecutor().check_readable(source)
    executor.check_readable(ArrayRows(np.zeros((5, 5), np.float32)))  # travels with the work
    (tmp_path / "t.npy").unlink()
    host = re.escape(socket.gethostname())
    sentence = (
        rf"2 of 2 workers \(first tcp://.* on {host}\) cannot read .*t.npy \(it does not exist there\): put it where"
    )
    with pytest.raises(InputError, match=sentence):
        executor.check_readable(source)


def test_a_directory_that_workers_cannot_write_to_is_told(client, tmp_path):
    executor = DaskExecutor(with_workers(client, 2))
    executor.check_writable(str(tmp_path))
    assert os.listdir(tmp_path) == []
    executor.check_writable("s3://bucket/map.zarr")  # not a path: writing it will tell
    with pytest.raises(InputError, match=r"cannot write to .*nowhere \(it does not exist there\): choose one that"):
        executor.check_writable(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"cannot write to /proc \(.+\): pass scratch="):  # also for root
        executor.check_writable("/proc", "pass scratch= elsewhere")


def test_hosts_and_threads_are_counted(client):
    assert DaskExecutor(with_workers(client, 2)).topology() == (1, 2, 2)
    assert InProcessExecutor().topology() is None


def test_large_coordinates_do_not_warn(client):
    work = partial(_length, payload=np.zeros(2_000_000))
    assert {n for _, n in DaskExecutor(client).map(work, [0, 1])} == {2_000_000}


def _length(blocks, payload):
    return len(payload)


def test_memory_limit_is_half_of_the_smallest_workers(client):
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    assert DaskExecutor(client).memory_limit() == min(limits) // 2
    assert 0 < InProcessExecutor().memory_limit() < psutil.virtual_memory().total


def test_the_cluster_listens_on_loopback_only(client):
    here = psutil.Process()
    processes = [here, *here.children(recursive=True)]
    listening = [c.laddr.ip for p in processes for c in p.net_connections("tcp") if c.status == "LISTEN"]
    assert len(listening) >= 5  # scheduler, its dashboard, nannies, workers
    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_what_is_no_client_is_refused(client):
    with pytest.raises(InputError, match=r"connected distributed\.Client, not str"):
        DaskExecutor("tcp://127.0.0.1:8786")
    from distributed import Client

    with Client(client.scheduler.address, set_as_default=False) as other:
        pass
    with pytest.raises(InputError, match="this one is closed"):
        DaskExecutor(other)


def test_a_scheduler_without_workers_is_told(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(on_dask, "WORKER_TIMEOUT", 1)
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(WorkerError, match=r"no free worker for 1 seconds: start some with 'dask worker tcp://"),
    ):
        DaskExecutor(client)


def test_a_wait_for_busy_workers_is_told(client, caplog, monkeypatch):
    monkeypatch.setattr(pool, "LOG_DELAY", 0.1)
    caplog.set_level("INFO", "psmds_dist")
    busy = client.map(time.sleep, [1, 1], pure=False)
    DaskExecutor(client)
    (told,) = [record.message for record in caplog.records if record.name.startswith("psmds_dist")]
    assert re.fullmatch("all workers of tcp://.* are busy; waiting for one", told)
    client.cancel(busy)


@pytest.mark.wide
def test_a_wait_for_workers_is_told_and_an_adaptive_cluster_starts_one(caplog, monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(pool, "LOG_DELAY", 0.1)
    caplog.set_level("INFO", "psmds_dist")
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", host="127.0.0.1", threads_per_worker=1) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.adapt(minimum=0, maximum=1, interval="200ms")
        assert list(DaskExecutor(client).map(total, [1, 2])) == [([1, 2], 3)]
    told, *_ = [record.message for record in caplog.records if record.name.startswith("psmds_dist")]
    assert re.fullmatch("no worker is connected to tcp://.*; waiting for one", told)


@pytest.mark.wide
def test_a_cluster_between_workers_is_waited_for():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0", host="127.0.0.1", threads_per_worker=1) as cluster,
        Client(cluster, set_as_default=False) as alone,
    ):
        executor = DaskExecutor(alone)
        for asked in (lambda: executor.n_workers, executor.memory_limit):
            cluster.scale(0)
            wait_for(lambda: not alone.scheduler_info(n_workers=-1)["workers"])
            back = threading.Timer(0.5, cluster.scale, [1])
            back.start()
            assert asked() >= 1
            back.join()


@pytest.mark.slow
@pytest.mark.parametrize("address", ["nowhere", "nonsense://127.0.0.1:1", "127.0.0.1:door"])
@pytest.mark.wide
def test_a_process_ends_after_a_wrong_address(address):
    code = f"from psmds_dist.executor import connect; connect({address!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "InputError: no Dask scheduler answers at" in ended.stderr


def test_connecting_in_vain_is_a_sentence(tmp_path, monkeypatch):
    import dask

    with pytest.raises(InputError, match="does not exist: start 'psmds scheduler --scheduler-file"):
        connect(scheduler_file=str(tmp_path / "none.json"))
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(InputError, match=r"no Dask scheduler answers at .*torn\.json"):
        connect(scheduler_file=str(tmp_path / "torn.json"))
    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        for address in ("tcp://127.0.0.1:1", "nonsense://127.0.0.1:1"):
            with pytest.raises(InputError, match="no Dask scheduler answers at"):
                connect(address)


@pytest.mark.slow
@pytest.mark.wide
def test_a_cluster_that_loses_its_workers_for_good_ends_the_wait():
    """As far as Dask's setting goes; nobody but ourselves starts workers for a cluster of ours."""
    from dask import config
    from distributed import Client, LocalCluster

    with (
        config.set({"distributed.scheduler.no-workers-timeout": "2s"}),
        LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0", host="127.0.0.1", threads_per_worker=1) as cluster,
        Client(cluster, set_as_default=False) as alone,
    ):
        executor = DaskExecutor(alone)
        cluster.scale(0)
        wait_for(lambda: not alone.scheduler_info(n_workers=-1)["workers"])
        with pytest.raises(WorkerError, match="has had no free worker for [0-9]+ seconds"):
            list(executor.map(total, [1, 2]))


@pytest.mark.slow
def test_workers_that_hang_while_they_start_end_in_a_sentence(tmp_path):
    import dask

    (tmp_path / "stopping.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    began = psutil.Process().children(recursive=True)
    with (
        dask.config.set({"distributed.worker.preload": [str(tmp_path / "stopping.py")], "psmds.start-timeout": 2}),
        pytest.raises(WorkerError, match="the 2 workers did not start on this machine .* rerun the same"),
        local_client(2, 1),
    ):
        pass
    left = [process for process in psutil.Process().children(recursive=True) if process not in began]
    assert not [process for process in left if "spawn_main" in " ".join(process.cmdline())]
