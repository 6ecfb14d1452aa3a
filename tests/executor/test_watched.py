"""What an executor knows of its workers while they work, and the performance report of Dask."""

import contextlib
import logging
import threading

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import ArrayRows, DaskExecutor, InProcessExecutor, InputError, build, open_rows
from psmds_dist.api.embed import embed
from psmds_dist.core.config import SolverConfig
from psmds_dist.core.errors import StorageError
from psmds_dist.core.executor import ClusterState
from psmds_dist.executor import _dask_internals as internals
from psmds_dist.executor import dask, performance_report
from psmds_dist.executor.workers import Worker, WorkerPool
from tests.clusters import wait_for, with_workers

N = 400


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    matrix = squareform(pdist(np.random.default_rng(0).normal(size=(N, 4)))).astype("float32")
    path = tmp_path_factory.mktemp("store") / "matrix.zarr"
    build(ArrayRows(matrix), path, InProcessExecutor())
    return path


def test_bytes_read_in_this_process_are_those_of_each_pass(store):
    executor, rows = InProcessExecutor(), open_rows(store)
    assert executor.cluster_state() == ClusterState(1, bytes_read=0)
    config = SolverConfig(max_epochs=4, radius=1.0, polish=False)
    embed(rows, config, executor, init="random", memory_limit="1 GiB")
    assert executor.cluster_state().bytes_read == 4 * N**2  # kept in memory after the first epoch
    assert InProcessExecutor().cluster_state().bytes_read == 0


def pool_of(*tellings, read=()):
    """A pool whose workers had read some bytes when they took handlers, and told of more later, each in turn."""
    pool = WorkerPool(client=None, deadline=30)
    pool.run_on_all = lambda function: dict(read)
    pool._install_handlers()
    for told in tellings:
        pool._update({a: Worker(a, a, 1, 0, "running", 0.0, bytes_) for a, bytes_ in told.items()})
    return pool


def test_lost_workers_are_counted_and_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="psmds_dist"):
        pool = pool_of({"a": None, "b": None}, {"b": None}, {"b": None, "c": None}, {})
    assert pool.lost == 3
    assert sorted(record.fields["worker"] for record in caplog.records) == ["a", "b", "c"]
    assert {record.event for record in caplog.records} == {"worker_lost"}


def test_bytes_of_lost_workers_and_of_earlier_runs():
    assert pool_of({"a": None}, {"a": 7}).bytes_read() is None
    read = {"a": 0, "b": 100}
    assert pool_of({"a": 0, "b": 100}, {"a": 50, "b": 130}, {"b": 140}, read=read).bytes_read() == 50 + 40


def test_bytes_read_before_the_first_heartbeat_count():
    assert pool_of({"a": None, "b": 130}, {"a": 60, "b": 130}, read={"a": 10, "b": 100}).bytes_read() == 50 + 30
    assert pool_of({"a": 60}, read={"a": 100}).bytes_read() == 0  # the heartbeat is older than the handler


@pytest.mark.slow
def test_workers_tell_what_they_have_read(client, store):
    executor, rows = DaskExecutor(with_workers(client, 2)), open_rows(store)
    state = executor.cluster_state()
    assert (state.workers, state.lost) == (2, 0)
    assert state.dashboard == client.dashboard_link
    executor._pool._install_handlers()
    assert executor.cluster_state().bytes_read == 0
    embed(rows, SolverConfig(max_epochs=4, radius=1.0, polish=False), executor, init="random")
    wait_for(lambda: executor._pool.refresh() and executor.cluster_state().bytes_read >= 4 * N**2)


def add_number(dask_worker):
    internals.add_metric(dask_worker, "psmds-test", lambda dask_worker: 7)


@pytest.mark.slow
def test_a_number_comes_with_the_heartbeats(client):
    client.run(add_number)

    def told():
        found = client.scheduler_info(n_workers=-1)["workers"].values()
        return {worker["metrics"].get("psmds-test") for worker in found} == {7}

    wait_for(told)


def test_a_dashboard_that_is_not_there():
    class Client:
        @property
        def dashboard_link(self):
            raise KeyError("dashboard")

    assert dask._dashboard_of(Client()) == ""


@pytest.mark.slow
def test_a_performance_report_shows_the_work(client, store, tmp_path, caplog):
    pytest.importorskip("bokeh")
    executor, page = DaskExecutor(with_workers(client, 2)), tmp_path / "report.html"
    with performance_report(executor, page):
        recorded = embed(open_rows(store), SolverConfig(max_epochs=4), executor, init="random")
        assert not executor._pool.can_call_directly()
    assert executor._pool.direct_calls
    text = page.read_text()
    assert "Task Stream" in text
    assert "run_task" in text or "psmds-" in text
    plain = embed(open_rows(store), SolverConfig(max_epochs=4), InProcessExecutor(), init="random")
    np.testing.assert_array_equal(recorded.solution.embedding, plain.solution.embedding)
    with pytest.raises(StorageError, match="create its directory first"):
        performance_report(executor, tmp_path / "no" / "x").__enter__()
    with contextlib.suppress(ValueError), performance_report(executor, tmp_path / "failed.html"):
        raise ValueError("the block")
    with caplog.at_level(logging.INFO, logger="psmds_dist"), performance_report(executor, tmp_path):
        pass
    assert "was not written" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_a_performance_report_without_bokeh(client, monkeypatch, tmp_path):
    monkeypatch.setattr(dask, "_has_bokeh", bool)  # returns False
    executor = DaskExecutor(client)
    with pytest.raises(InputError, match="needs Bokeh where the scheduler runs"), performance_report(executor, "x"):
        pass


def test_a_performance_report_that_nobody_wants():
    with performance_report(InProcessExecutor(), None):
        assert threading.active_count()
    with pytest.raises(InputError, match="needs Dask workers"), performance_report(InProcessExecutor(), "x.html"):
        pass
