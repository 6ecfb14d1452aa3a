"""What every row source must do: the suite that a source of your own should pass.

Make a class of tests with two fixtures, and run pytest::

    from tests.conformance.sources import SourceSuite

    class TestEditDistances(SourceSuite):
        @pytest.fixture
        def source(self):
            return EditDistances(["cat", "cart", "dog"])

        @pytest.fixture
        def expected(self):  # all rows, computed in any other way
            return np.array([[0, 1, 3], [1, 0, 4], [3, 4, 0]])

A fixture ``different``, a source with other rows, adds the test that both are told apart. `max_pickle_bytes` is None
for a source whose rows lie in memory: it never travels.
"""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from psmds_dist import ReadProfile, RowSource
from psmds_dist.data.cache import RowCache, stored

UNTOUCHED = -7.0


def read(source, lo=0, hi=None, spare=2):
    """Read rows into a buffer with room for more, and see that those stay as they are."""
    hi = source.n if hi is None else hi
    out = np.full((hi - lo + spare, source.shape[1]), UNTOUCHED, source.dtype)
    source.read(lo, hi, out)
    assert (out[hi - lo :] == UNTOUCHED).all(), "rows beyond hi - lo were written"
    return out[: hi - lo]


def spans(n, count=12):
    """All rows, the first and the last one, and some others."""
    random = np.random.default_rng(0)
    some = [sorted(random.choice(n + 1, 2, replace=False).tolist()) for _ in range(count)]
    return [(0, n), (0, 1), (n - 1, n), *map(tuple, some)]


class SourceSuite:
    """Tests of a source against its rows as an array."""

    max_pickle_bytes: int | None = 6_000

    @pytest.fixture
    def source(self):
        """The source."""
        raise NotImplementedError

    @pytest.fixture
    def expected(self):
        """All its rows."""
        raise NotImplementedError

    @pytest.fixture
    def different(self):
        """A source with other rows, or None."""
        return

    @pytest.fixture
    def wanted(self, source, expected):
        return np.asarray(expected).astype(source.dtype)

    def test_it_is_a_row_source_with_valid_attributes(self, source, wanted):
        assert isinstance(source, RowSource)
        assert tuple(source.shape) == wanted.shape
        assert source.n == len(wanted)
        assert isinstance(source.dtype, np.dtype)
        assert source.dtype.name in ("float32", "float64")
        assert isinstance(source.content_id, str)
        assert source.location is None or isinstance(source.location, str)
        if source.ids is not None:
            assert len(source.ids) == len(set(source.ids)) == source.n
        if source.landmarks is not None:
            assert source.landmarks.dtype == np.int64
            assert source.landmarks.shape == (source.shape[1],)

    def test_reads_equal_the_rows_whatever_the_range(self, source, wanted):
        for lo, hi in spans(source.n):
            np.testing.assert_array_equal(read(source, lo, hi), wanted[lo:hi])
        np.testing.assert_array_equal(read(source, spare=0), wanted)

    def test_reads_of_some_rows_agree(self, source, wanted):
        n, width = source.shape
        random = np.random.default_rng(1)
        for count in (1, min(5, n), min(20, n)):
            rows = random.permutation(n)[:count]
            for columns in (slice(0, width), slice(width // 3, width // 3 + max(1, width // 2))):
                out = np.full((count + 1, columns.stop - columns.start), UNTOUCHED, source.dtype)
                source.read_rows(rows, columns, out)
                np.testing.assert_array_equal(out[:count], wanted[rows, columns])
                assert (out[count:] == UNTOUCHED).all(), "rows beyond those asked for were written"
            np.testing.assert_array_equal(source.take(rows), wanted[rows])

    def test_a_pickled_copy_is_the_same_source(self, source, wanted):
        before, again = source.content_id, pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(read(again), wanted)
        assert (again.content_id, again.shape, again.dtype) == (before, source.shape, source.dtype)
        assert again.read_profile == source.read_profile

    def test_it_pickles_small_whatever_was_done_with_it(self, source):
        read(source)
        _ = source.content_id, source.ids, source.landmarks, source.read_profile, source.layout
        if self.max_pickle_bytes is not None:
            assert len(pickle.dumps(source)) <= self.max_pickle_bytes

    def test_a_verified_source_reads_the_same(self, source, wanted):
        verified = source.verified()
        assert isinstance(verified, RowSource)
        assert (verified.shape, verified.dtype, verified.content_id) == (source.shape, source.dtype, source.content_id)
        for lo, hi in spans(source.n, 4):
            np.testing.assert_array_equal(read(verified, lo, hi), wanted[lo:hi])
        np.testing.assert_array_equal(verified.take(np.array([source.n - 1, 0])), wanted[[-1, 0]])

    def test_prefetch_is_harmless(self, source, wanted):
        for lo, hi in spans(source.n, 4):
            source.prefetch(lo, hi)
            np.testing.assert_array_equal(read(source, lo, hi), wanted[lo:hi])

    def test_rows_in_memory_are_ready_for_use(self, source, wanted):
        rows = source.in_memory()
        if rows is not None:
            np.testing.assert_array_equal(rows, wanted)
            assert rows.dtype == source.dtype
            assert rows.flags.c_contiguous

    def test_it_is_not_stale(self, source):
        read(source)
        assert source.is_stale() is False

    def test_the_content_id_tells_content_apart(self, source, different):
        assert source.content_id == source.content_id
        if different is not None:
            assert different.content_id != source.content_id

    def test_its_read_profile_can_be_planned_with(self, source):
        profile = source.read_profile
        assert isinstance(profile, ReadProfile)
        assert 1 <= profile.rows_per_chunk <= source.n
        assert profile.scratch_bytes >= 0
        assert profile.read_copies >= 1
        assert profile.read_amplification >= 1
        assert stored(source).min_limit >= 0

    def test_threads_may_read_at_once(self, source, wanted):
        def check(span):
            np.testing.assert_array_equal(read(source, *span), wanted[slice(*span)])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(check, 3 * spans(source.n, 6)))

    def test_a_row_cache_delivers_all_rows(self, source, wanted):
        layout, rows = source.layout, stored(source)
        for budget in (rows.min_limit, rows.once + rows.nbytes):
            cache = RowCache(source, budget)
            for _ in range(2):
                seen = []
                for batch in cache.batches(range(layout.count)):
                    np.testing.assert_array_equal(batch.rows[batch.slots], wanted[batch.points])
                    seen += batch.points.tolist()
                assert sorted(seen) == list(range(source.n))
