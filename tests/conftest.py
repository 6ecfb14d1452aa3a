"""Shared settings and fixtures."""

import gc
import logging
import os
import signal
import sys

# before Numba is imported: tests compare one thread and two, and waiting threads sleep
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# before NumPy is imported: threads of BLAS that wait for each other spin, which takes ten times the time of the work
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests are rewritten as they are imported, and start hundreds of processes: unless the bytecode is kept, each of them
# compiles what it imports.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""

import hypothesis
import numpy as np
import pytest

from tests.digits import digit_distances

sys.dont_write_bytecode = False
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; tests interrupt processes
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are the same in every run: a failure in CI can be reproduced.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=8)
WITHOUT_SHRINKING = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
hypothesis.settings.register_profile(
    "mutants", deadline=None, derandomize=True, max_examples=40, phases=WITHOUT_SHRINKING
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave to ``make test`` the first parameters of a slow test, and of others each value of each parameter once.

    All other combinations only widen the search.
    """
    seen = {}
    for item in items:
        if item.get_closest_marker("wide"):
            continue
        name = item.nodeid.partition("[")[0]
        values = set(enumerate(item.callspec._idlist)) if hasattr(item, "callspec") else set()
        if name in seen and (item.get_closest_marker("slow") or values <= seen[name]):
            item.add_marker("wide")
        seen.setdefault(name, set()).update(values)


def pytest_collection():
    """Look for no garbage among modules and tests, which stay: a search through them takes most of a second."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(params=["sorted", "shuffled"])
def digits(request: pytest.FixtureRequest) -> np.ndarray:
    return digit_distances(request.param)


@pytest.fixture
def quiet():
    """Hide the log messages of Dask about killed workers."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.fixture(scope="session")
def shared_client():
    """Client of two local Dask workers for one module after the other."""
    from psmds_dist.deploy.local import local_client

    with local_client(workers=2, threads=1) as client:
        yield client


@pytest.fixture(scope="module")
def client(shared_client):
    """Client of two local Dask workers, as if they were new; a module may replace them, or start more."""
    from tests.clusters import with_workers, without_runs

    return without_runs(with_workers(shared_client, 2))
