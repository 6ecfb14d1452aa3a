"""An executor of one's own in a few lines: two threads of this process. It passes the suite, so it can run anything."""

from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

from psmds_dist import Executor
from psmds_dist.executor import clear_row_cache, process_memory, run_work
from tests.conformance.test_executors import ExecutorSuite


class ThreadExecutor(Executor):
    """Runs work in threads of this process."""

    n_workers = 2
    in_process = True

    def __init__(self):
        self._threads = ThreadPoolExecutor(self.n_workers)

    def map(self, work, blocks, *, group=None):
        size = group or max(1, -(-len(blocks) // self.n_workers))
        parts = [blocks[k : k + size] for k in range(0, len(blocks), size)]
        futures = {self._threads.submit(run_work, work, part): part for part in parts}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def memory_limit(self):
        return 2**30

    def memory_usage(self):
        return {"threads": process_memory()}

    def close(self):
        clear_row_cache()


class TestThreads(ExecutorSuite):
    @pytest.fixture
    def executor(self):
        return ThreadExecutor()
