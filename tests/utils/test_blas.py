"""The limit of threads of BLAS, which callers in several threads share."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from psmds_dist import PatternSearchMDS, open_points
from psmds_dist.utils.blas import one_thread


def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def in_one_thread():
    with one_thread():
        return threads()


def test_a_caller_may_wait_for_another_one_and_the_last_restores_the_threads():
    before = threads()
    with ThreadPoolExecutor(1) as pool, one_thread():
        assert pool.submit(in_one_thread).result(20) == [1] * len(before)
        assert threads() == [1] * len(before)
    assert threads() == before


@pytest.mark.slow
@pytest.mark.wide
def test_a_polish_goes_through_rows_that_are_computed_as_it_reads_them(tmp_path):
    """Their products are on one thread of BLAS as well."""
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(2500, 20)))
    how = {"random_state": 0, "polish": True, "init": "random", "eps": 0.05, "radius_tol": 1.0}
    kept, streamed = (
        PatternSearchMDS(2, memory_limit=limit, **how).fit(open_points(tmp_path / "points.npy"))
        for limit in (None, "16MiB")
    )
    np.testing.assert_array_equal(kept.embedding_, streamed.embedding_)
