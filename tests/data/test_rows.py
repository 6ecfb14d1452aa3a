import gc
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import MatrixRows

from psmds_dist.core.layout import Layout
from psmds_dist.core.types import BudgetError
from psmds_dist.data import cache as rows
from psmds_dist.data.cache import ResidentRows, RowCache
from psmds_dist.data.sources import ArrayRows
from psmds_dist.ingest.scan import read_strips
from psmds_dist.planning.memory import RowBuffers
from psmds_dist.solver.schedule import halves
from psmds_dist.solver.tasks import CachedRows, Measure


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    yield
    rows.clear_row_cache()
    assert readers() == []


def readers():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("psmds-read")]


def matrix(n, dtype=np.float32):
    return np.arange(n * n, dtype=dtype).reshape(n, n)


def block_bytes(n, itemsize=4):
    return Layout(n).rows * n * itemsize


def deliver(cache, blocks, wanted):
    """Take all batches and compare them with the matrix; return the points in the order of delivery."""
    points = []
    for batch in cache.batches(blocks):
        assert_array_equal(batch.rows[batch.slots], wanted[batch.points])
        assert batch.rows.flags.c_contiguous
        points.append(batch.points)
    return np.concatenate(points)


def check_epochs(cache, wanted, epochs=3, seed=0):
    layout = Layout(len(wanted))
    for epoch in range(epochs):
        for half in halves(layout, seed, epoch):
            points = deliver(cache, half, wanted)
            expected = np.concatenate([np.arange(*layout.bounds(b)) for b in half])
            assert_array_equal(np.sort(points), np.sort(expected))


@given(
    n=st.sampled_from([3, 31, 70, 96, 101, 200]),
    band=st.sampled_from([1, 2, 3, 7, 9, 12, 50, 1000]),
    kept=st.one_of(st.integers(2, 12), st.sampled_from([10**6])),
    odd_bytes=st.integers(0, 100),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_every_budget_and_band_delivers_the_matrix(n, band, kept, odd_bytes, dtype, seed):
    wanted = matrix(n, dtype)
    cache = RowCache(MatrixRows(wanted, band), kept * block_bytes(n, wanted.itemsize) + odd_bytes)
    check_epochs(cache, wanted, seed=seed)
    everyone = range(Layout(n).count)
    assert_array_equal(np.sort(deliver(cache, everyone, wanted)), np.arange(n))


@pytest.mark.parametrize("n", [96, 101])
@pytest.mark.parametrize("band", [1, 3, 7, 12, 40, 1000])
def test_a_matrix_with_room_is_read_once(n, band):
    source = MatrixRows(matrix(n), band)
    cache = RowCache(source, Layout(n).count * block_bytes(n))
    check_epochs(cache, source.matrix, epochs=5)
    assert sorted(row for lo, hi in source.reads for row in range(lo, hi)) == list(range(n))
    if band > Layout(n).rows:
        assert len(source.reads) <= -(-n // band)


@pytest.mark.parametrize("kept", [0, 1, 5, 13, 29])
def test_what_has_no_room_is_read_again_and_nothing_else(kept):
    n = 96  # 32 blocks of 3 rows
    source = MatrixRows(matrix(n))
    cache = RowCache(source, (kept + 2) * block_bytes(n))
    check_epochs(cache, source.matrix, epochs=1)
    assert source.rows_read == n
    for epochs in range(2, 6):
        check_epochs(cache, source.matrix, epochs=1, seed=epochs)
        assert source.rows_read == n + (epochs - 1) * (n - 3 * kept)


def test_of_a_tall_band_without_room_only_the_span_that_is_wanted_is_read():
    n, band = 96, 12  # bands of 4 blocks
    source = MatrixRows(matrix(n), band)
    cache = RowCache(source, 16 * block_bytes(n))  # 8 for the buffers, 8 kept: two bands
    wanted = list(range(0, 32, 2))
    deliver(cache, wanted, source.matrix)
    assert source.reads == [(0, 12), (12, 24), *[(12 * k, 12 * k + 9) for k in range(2, 8)]]
    source.reads.clear()
    deliver(cache, [b + 1 for b in wanted], source.matrix)
    assert source.reads == [(12 * k + 3, 12 * k + 12) for k in range(2, 8)]


def test_a_block_kept_alone_is_not_kept_again_with_its_neighbours():
    n, band = 96, 21  # bands of 7 blocks; the last has 4
    source = MatrixRows(matrix(n), band)
    cache = RowCache(source, 31 * block_bytes(n))  # 14 for the buffers, 17 kept
    for blocks in ([0], [28], [8], [7, 9], [10], [11], [14], [15], [16], [20]):
        deliver(cache, blocks, source.matrix)
    assert source.reads[:4] == [(0, 21), (84, 96), (24, 27), (21, 30)]
    for _ in range(2):
        source.reads.clear()
        deliver(cache, range(32), source.matrix)
    assert source.reads == [(21, 42), (51, 63), (63, 84)]


def test_a_band_too_tall_for_the_buffers_is_read_block_by_block():
    source = MatrixRows(matrix(96), 48)
    cache = RowCache(source, 10 * block_bytes(96))
    deliver(cache, range(0, 32, 2), source.matrix)
    assert source.reads == [(6 * k, 6 * k + 3) for k in range(16)]


def test_memory_is_what_was_planned():
    n = 101
    source = MatrixRows(matrix(n), 7)
    budget = 17 * block_bytes(n)
    plan = RowBuffers.plan(rows.stored(source), budget)
    cache = RowCache(source, budget)
    check_epochs(cache, source.matrix)
    held = sum(array.nbytes for array in [cache._data, *cache._buffers])
    assert held == plan.nbytes <= budget


def test_less_than_two_blocks_are_refused():
    with pytest.raises(BudgetError, match="two blocks of 3 rows of 96 points"):
        RowCache(MatrixRows(matrix(96)), 2 * block_bytes(96) - 1)


@pytest.mark.parametrize("bad_row", [0, 50, 95])
def test_an_error_of_the_source_reaches_the_caller_and_leaves_no_thread(bad_row):
    broken = [True]

    def fail(lo, hi):
        if broken[0] and lo <= bad_row < hi:
            raise OSError(f"disk gone at {bad_row}")

    source = MatrixRows(matrix(96), before_read=fail)
    cache = RowCache(source, 10 * block_bytes(96))
    with pytest.raises(OSError, match=f"disk gone at {bad_row}"):
        list(cache.batches(range(32)))
    assert readers() == []
    broken[0] = False  # and what was read before is still good
    check_epochs(cache, source.matrix)


def test_reading_runs_one_ahead_of_the_consumer():
    ahead = threading.Event()

    def note(lo, hi):
        if lo >= 3:
            ahead.set()

    cache = RowCache(MatrixRows(matrix(96), before_read=note), 2 * block_bytes(96))
    batches = cache.batches(range(32))
    first = next(batches)
    assert ahead.wait(5)  # the second run is read while the first is in use
    second, third = next(batches), next(batches)
    assert_array_equal(second.points, [3, 4, 5])
    assert [second.rows is first.rows, third.rows is first.rows] == [False, True]  # buffers take turns
    batches.close()


def test_only_what_comes_for_the_first_time_is_verified():
    class Verifying(MatrixRows):
        def verified(self):
            return self.proof

    source, proof = Verifying(matrix(96)), MatrixRows(matrix(96))
    source.proof = proof
    cache = RowCache(source, 12 * block_bytes(96))
    deliver(cache, range(5), source.matrix)
    for _ in range(2):
        deliver(cache, range(32), source.matrix)
    assert proof.reads == [(3 * k, 3 * k + 3) for k in range(32)]
    assert source.reads == [(3 * k, 3 * k + 3) for k in range(10, 32)]


def test_bytes_that_were_read_are_counted_as_they_are_stored():
    source = MatrixRows(matrix(96))
    source.read_profile = replace(source.read_profile, stored_share=0.5)
    before = rows.bytes_read()
    deliver(RowCache(source, 40 * block_bytes(96)), range(4), source.matrix)
    assert rows.bytes_read() - before == 12 * 96 * 4 // 2


def test_kept_rows_come_in_batches_of_a_limited_number_of_points():
    layout = Layout(100_000, 5)
    batches = rows.batches_of(range(layout.count), layout)
    assert sorted(block for batch in batches for block in batch) == list(range(layout.count))
    assert {len(batch) * layout.rows for batch in batches[:-1]} == {2**15 // layout.rows * layout.rows}


@pytest.mark.parametrize("kept", [0, 5])
def test_a_source_is_told_what_will_be_read(kept):
    source = MatrixRows(matrix(96))
    cache = RowCache(source, (kept + 2) * block_bytes(96))
    deliver(cache, range(32), source.matrix)
    assert source.expected == source.reads[1:]
    source.expected, source.reads = [], []
    deliver(cache, range(32), source.matrix)
    assert len(source.reads) == 32 - kept  # what is kept is neither read nor asked for
    assert source.expected == source.reads[1:]


def test_a_scan_tells_what_it_will_read():
    source = MatrixRows(matrix(96))
    for run, found in read_strips(source, range(32), 1):
        assert_array_equal(found, source.matrix[3 * run[0] : 3 * run[-1] + 3])
    assert source.expected == source.reads[1:]


def test_leaving_early_waits_for_the_read_under_way():
    source = MatrixRows(matrix(96), before_read=lambda lo, hi: time.sleep(0.02))
    cache = RowCache(source, 12 * block_bytes(96))
    deliver(cache, range(5), source.matrix)
    for taken in range(4):
        batches = cache.batches(range(32))
        for _ in range(taken):
            next(batches)
        batches.close()
        assert readers() == []
    check_epochs(cache, source.matrix)


def test_an_interrupted_kernel_frees_the_rows_even_while_its_traceback_lives():
    """As in a worker that keeps the exception of a failed task and is given the next."""
    source = MatrixRows(matrix(96))
    held = CachedRows(source, 12 * block_bytes(96))

    def interrupt(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        held.collect(range(32), interrupt)
    sums = []
    again = threading.Thread(target=lambda: sums.extend(Measure(held, np.zeros((1, 96)))(range(32))))
    again.daemon = True
    again.start()
    again.join(20)
    assert caught.traceback
    assert len(sums) == 1
    exact = (source.matrix.astype(float) ** 2).sum(axis=1) - source.matrix.diagonal().astype(float) ** 2
    assert_array_equal(sums[0][:, 2], exact)


def test_two_threads_share_a_cache():
    n = 200
    source = MatrixRows(matrix(n), 4, before_read=lambda lo, hi: time.sleep(0.0005))
    cache = RowCache(source, 14 * block_bytes(n))
    errors = []

    def work(seed):
        try:
            check_epochs(cache, source.matrix, epochs=4, seed=seed)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_a_process_holds_the_rows_of_one_source_and_budget():
    one, other = MatrixRows(matrix(96), token="one"), MatrixRows(matrix(96), token="other")
    budget = 40 * block_bytes(96)
    held = rows.get_row_cache(one, budget)
    assert rows.get_row_cache(one, budget) is held
    deliver(held, range(32), one.matrix)
    deliver(rows.get_row_cache(MatrixRows(one.matrix, token="one"), budget), range(32), one.matrix)
    assert one.rows_read == 96
    assert rows.get_row_cache(other, budget) is not held
    deliver(rows.get_row_cache(one, budget), range(32), one.matrix)
    assert one.rows_read == 2 * 96
    rows.clear_row_cache()
    deliver(rows.get_row_cache(one, budget), range(32), one.matrix)
    assert one.rows_read == 3 * 96


def test_rows_held_in_a_slot_of_their_own_stay_while_others_come_and_go():
    one, other = MatrixRows(matrix(96), token="one"), MatrixRows(matrix(96), token="other")
    slot, budget = {}, 40 * block_bytes(96)
    with rows.held_in(slot):
        held = rows.get_row_cache(one, budget)
    rows.get_row_cache(other, budget)
    rows.clear_row_cache()
    with rows.held_in(slot):
        assert rows.get_row_cache(one, budget) is held
    assert list(slot.values()) == [held]


def test_what_is_held_is_freed_with_its_release():
    rows.get_row_cache(MatrixRows(matrix(96)), 40 * block_bytes(96))
    rows.clear_row_cache()
    gc.collect()
    assert [kept for kept in gc.get_objects() if isinstance(kept, RowCache)] == []


@pytest.mark.parametrize("kept", [2, 9, 100])
def test_a_panel_of_some_columns_is_cut_by_its_own_width(kept):
    panel = np.random.default_rng(0).random((10_000, 5), np.float32)
    layout = Layout(10_000, 5)
    assert (layout.rows, Layout(10_000).rows) == (312, 200)
    cache = RowCache(MatrixRows(panel), kept * 312 * 5 * 4)
    assert_array_equal(deliver(cache, range(layout.count), panel), np.arange(10_000))
    (batch,) = ResidentRows(panel, layout).batches([0, layout.count - 1])
    assert_array_equal(batch.points, [*range(312), *range(*layout.bounds(layout.count - 1))])


def test_a_resident_matrix_is_used_where_it_is_and_pushes_nothing_out():
    stored = MatrixRows(matrix(96))
    budget = 40 * block_bytes(96)
    held = rows.get_row_cache(stored, budget)
    values = matrix(101)
    resident = rows.get_row_cache(ArrayRows(values), budget=0)
    assert isinstance(resident, ResidentRows)
    (batch,) = resident.batches([5, 0, 33])
    assert batch.rows is values
    assert_array_equal(batch.points, [0, 1, 2, 15, 16, 17, 99, 100])
    assert_array_equal(batch.slots, batch.points)
    assert rows.get_row_cache(stored, budget) is held
