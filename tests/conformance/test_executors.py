"""What every executor must do. Run it over your own executor::

    from tests.conformance.test_executors import ExecutorSuite

    class TestMine(ExecutorSuite):
        @pytest.fixture
        def executor(self):
            return MyExecutor()

Work, functions and results are picklable, as those of this package are. ``test_toy_executor.py`` is an example.
"""

import os
from functools import partial

import dask.array
import numpy as np
import psutil
import pytest

from psmds_dist import ArrayRows, DaskExecutor, Executor, InProcessExecutor, InputError, build, open_rows
from psmds_dist.api.embed import embed, measure
from psmds_dist.core.config import SolverConfig
from psmds_dist.data.opening import open_matrix
from psmds_dist.executor import workers
from psmds_dist.ingest.check import check_source
from tests.clusters import all_blocks, with_workers

BLOCKS = range(3, 40)


def total(blocks):
    return sum(blocks)


def scaled(blocks, x):
    return x * len(blocks)


def process_of(blocks):
    return os.getpid()


def failing(blocks, error):
    if 7 in blocks:
        raise error
    return len(blocks)


def mark(place):
    """Leave a mark of this process in a directory."""
    with open(os.path.join(place, str(os.getpid())), "w"):
        pass


def distances(n=150, dtype="float32"):
    points = np.random.default_rng(0).normal(size=(n, 4))
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)).astype(dtype)


class ExecutorSuite:
    """Tests of the executor that the fixture ``executor`` returns."""

    def test_it_is_an_executor(self, executor):
        assert isinstance(executor, Executor)
        assert isinstance(executor.in_process, bool)
        assert executor.n_workers >= 1

    # map

    @pytest.mark.parametrize("group", [None, 1, 4, 1000])
    @pytest.mark.parametrize("blocks", [BLOCKS, [5, 3, 11], [8]], ids=["range", "list", "one"])
    def test_every_block_is_in_exactly_one_group(self, executor, blocks, group):
        parts = list(executor.map(total, blocks, group=group))
        assert all_blocks(parts) == sorted(blocks)
        assert all(result == sum(part) for part, result in parts)
        assert all(part for part, _ in parts)
        if group is None:
            assert len(parts) <= executor.n_workers
        else:
            assert max(len(part) for part, _ in parts) <= group

    def test_no_blocks_no_groups(self, executor):
        assert list(executor.map(total, [])) == []

    def test_work_and_results_come_over_to_the_last_bit(self, executor):
        x = np.random.default_rng(1).normal(size=(1000, 3))
        for part, found in executor.map(partial(scaled, x=x), BLOCKS):
            np.testing.assert_array_equal(found, x * len(part))

    @pytest.mark.parametrize("group", [None, 1])
    @pytest.mark.parametrize(
        "error", [InputError("the matrix is blue."), ValueError("other"), OSError(5, "Input/output error", "x.npy")]
    )
    def test_an_error_of_the_work_is_raised_as_it_is_and_the_next_call_works(self, executor, error, group):
        with pytest.raises(type(error)) as caught:
            list(executor.map(partial(failing, error=error), BLOCKS, group=group))
        assert str(caught.value) == str(error)
        assert all_blocks(executor.map(total, BLOCKS)) == list(BLOCKS)

    def test_a_call_can_be_left_early(self, executor):
        results = executor.map(total, BLOCKS, group=2)
        part, result = next(results)
        results.close()
        assert result == sum(part)
        assert all_blocks(executor.map(total, BLOCKS)) == list(BLOCKS)

    # what is done before and after

    def test_whoever_works_was_warmed_up(self, executor, tmp_path):
        executor.warm_up(partial(mark, str(tmp_path)))
        processes = {os.getpid(), *(pid for _, pid in executor.map(process_of, BLOCKS, group=1))}
        assert processes <= {int(name) for name in os.listdir(tmp_path)}
        executor.close()

    def test_a_broadcast_reaches_every_other_process(self, executor, tmp_path):
        executor.broadcast(partial(mark, str(tmp_path)))
        others = {pid for _, pid in executor.map(process_of, BLOCKS, group=1)} - {os.getpid()}
        assert others <= {int(name) for name in os.listdir(tmp_path)}
        executor.close()

    def test_it_can_be_closed_twice_and_used_again(self, executor):
        list(executor.map(total, BLOCKS))
        executor.close()
        executor.close()
        assert all_blocks(executor.map(total, BLOCKS)) == list(BLOCKS)

    def test_memory_is_plausible(self, executor):
        assert 2**20 < executor.memory_limit() < psutil.virtual_memory().total
        usage = executor.memory_usage()
        assert all(2**20 < used.resident < psutil.virtual_memory().total for used in usage.values())
        assert all(used.peak > 2**20 for used in usage.values())
        assert set(executor.peak_memory()) == set(usage)

    def test_what_all_can_reach_passes_the_checks(self, executor, tmp_path):
        np.save(tmp_path / "t.npy", np.zeros((5, 5)))
        executor.check_readable(open_matrix(str(tmp_path / "t.npy")))
        executor.check_writable(str(tmp_path))
        executor.check_writable("s3://bucket/matrix.zarr")  # writing it will tell

    def test_dask_arrays_are_computed(self, executor):
        x = np.arange(12.0).reshape(3, 4)
        np.testing.assert_array_equal(executor.compute(dask.array.from_array(x, chunks=2) + 1), x + 1)

    # whole runs, to the last bit

    @pytest.mark.parametrize("moves", ["axes", "guided"])
    def test_an_embedding_is_the_same(self, executor, moves):
        config = SolverConfig(n_components=3, seed=1, max_epochs=6, moves=moves)
        here, there = (
            embed(ArrayRows(distances()), config, worker, init="random") for worker in (InProcessExecutor(), executor)
        )
        one, other = here.solution, there.solution
        np.testing.assert_array_equal(other.raw_embedding, one.raw_embedding)
        np.testing.assert_array_equal(other.stress.point_stress, one.stress.point_stress)
        for column in ("epoch", "radius", "mse", "moved"):
            np.testing.assert_array_equal(other.history[column], one.history[column])
        assert there.check == here.check
        assert set(there.peak_memory) == set(executor.memory_usage())

    def test_a_streamed_embedding_is_the_same(self, executor, tmp_path):
        """Of a store, whose rows do not fit into what a worker may take."""
        build(ArrayRows(distances(1000)), tmp_path / "store", InProcessExecutor())
        source = open_rows(tmp_path / "store")
        here = embed(source, SolverConfig(seed=1, max_epochs=4), InProcessExecutor(), init="random")
        there = embed(source, SolverConfig(seed=1, max_epochs=4), executor, init="random", memory_limit="2 MB")
        assert there.plan.cached_share < 1 == here.plan.cached_share
        np.testing.assert_array_equal(there.solution.embedding, here.solution.embedding)

    def test_a_check_is_the_same(self, executor):
        matrix = distances(dtype="float64")
        assert check_source(ArrayRows(matrix), executor) == check_source(ArrayRows(matrix), InProcessExecutor())

    def test_stress_is_the_same(self, executor):
        x = np.random.default_rng(2).normal(size=(150, 2))
        here = measure(ArrayRows(distances()), x, InProcessExecutor())
        there = measure(ArrayRows(distances()), x, executor)
        assert (there.normalized_stress, there.mse) == (here.normalized_stress, here.mse)

    def test_a_store_is_the_same(self, executor, tmp_path):
        found = []
        for name, worker in (("here", InProcessExecutor()), ("there", executor)):
            check = build(ArrayRows(distances()), tmp_path / name, worker)
            rows = np.empty((150, 150), np.float32)
            open_rows(tmp_path / name).read(0, 150, rows)
            found.append((check, rows.tobytes()))
        assert found[0] == found[1]


class TestInProcess(ExecutorSuite):
    @pytest.fixture
    def executor(self):
        return InProcessExecutor()


@pytest.mark.slow
class TestDaskDirectly(ExecutorSuite):
    """Calls in quick succession, which go to the workers directly."""

    @pytest.fixture
    def executor(self, client, monkeypatch):
        monkeypatch.setattr(workers, "TASK_INTERVAL", 600.0)
        executor = DaskExecutor(with_workers(client, 2))
        list(executor.map(total, BLOCKS))
        assert executor._pool.can_call_directly()
        return executor


@pytest.mark.slow
class TestDaskTasks(ExecutorSuite):
    """Calls that all go by tasks."""

    @pytest.fixture
    def executor(self, client, monkeypatch):
        monkeypatch.setattr(workers.WorkerPool, "can_call_directly", lambda self: False)
        return DaskExecutor(with_workers(client, 2))
