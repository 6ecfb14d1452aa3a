"""A process that is forked after a fit works, or says why it cannot; nobody waits for it in vain."""

import os
import subprocess
import sys

import pytest

from tests.marks import wide_but_one

SCRIPT = """
import multiprocessing
import sys

import numpy as np
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS

MATRIX = squareform(pdist(np.random.default_rng(0).normal(size=(300, 3))))


def embed(seed):
    return PatternSearchMDS(random_state=seed, init="random").fit(MATRIX).embedding_.tobytes()


def arithmetic(seed):
    return np.linalg.svd(MATRIX)[1].tobytes()


def refusal(seed):
    try:
        return embed(seed)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    method, work = sys.argv[1], globals()[sys.argv[2]]
    expected = embed(3), arithmetic(3)
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map_async(work, [3, 3, 3]).get(timeout=300)
    print([f if isinstance(f, str) else f in expected for f in found])
"""


def run(tmp_path, method, work, **environment):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, script, method, work],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def said_by(tmp_path, method, work, **environment):
    done = run(tmp_path, method, work, **environment)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.wide
def test_a_forked_child_says_that_it_cannot_run_kernels(tmp_path):
    said = said_by(tmp_path, "fork", "refusal", NUMBA_THREADING_LAYER="omp")
    assert said.count("ForkError: this process was forked from one that had run kernels on GNU OpenMP") == 3
    assert "get_context('spawn')" in said


@pytest.mark.slow
@pytest.mark.wide
def test_an_error_of_a_forked_child_reaches_the_parent(tmp_path):
    done = run(tmp_path, "fork", "embed", NUMBA_THREADING_LAYER="omp")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("psmds_dist.core.errors.ForkError: this process was forked")


@pytest.mark.parametrize("layer", wide_but_one("omp", "workqueue"))
def test_a_forked_child_computes_with_numpy(tmp_path, layer):
    assert said_by(tmp_path, "fork", "arithmetic", NUMBA_THREADING_LAYER=layer) == "[True, True, True]"


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize(
    ("method", "layer"), [("spawn", "omp"), pytest.param("fork", "workqueue", marks=pytest.mark.wide)]
)
def test_other_ways_give_the_same_bits(tmp_path, method, layer):
    assert said_by(tmp_path, method, "embed", NUMBA_THREADING_LAYER=layer) == "[True, True, True]"
