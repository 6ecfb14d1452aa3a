"""Lists of pairs and weights in memory reach workers, with the same map."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from psmds_dist import PatternSearchMDS, open_pairs


@pytest.mark.slow
def test_pairs_and_weights_in_memory_give_the_same_bits_on_workers(client):
    random = np.random.default_rng(0)
    t = pdist(random.random((90, 2)))
    i, j = np.triu_indices(90, 1)
    known = random.random(t.size) < 0.5
    pairs = open_pairs((i[known], j[known], t[known]))
    weights = squareform(random.uniform(0.5, 2, t.size))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*are missing")
        here, there = (
            PatternSearchMDS(random_state=0, cluster=cluster).fit(pairs, weights=weights) for cluster in (None, client)
        )
    np.testing.assert_array_equal(here.embedding_, there.embedding_)
    assert here.normalized_stress_ == there.normalized_stress_ < 1e-4


@pytest.mark.wide
@pytest.mark.slow
def test_a_large_matrix_in_two_batches_gives_the_same_bits_on_workers_and_one_thread(client):
    random = np.random.default_rng(1)
    t = squareform(pdist(random.random((2200, 2)))).astype(np.float32)
    t[:1100, 1106:] = t[1106:, :1100] = np.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*are missing")
        wanted, *others = (
            PatternSearchMDS(random_state=0, **more).fit(t) for more in ({}, {"cluster": client}, {"n_jobs": 1})
        )
    assert wanted.result_.start == "sample"
    for found in others:
        np.testing.assert_array_equal(found.embedding_, wanted.embedding_)


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["primary", "secondary"])
def test_disparities_are_the_same_bits_on_workers_and_streamed(client, ties):
    random = np.random.default_rng(0)
    t = np.digitize(pdist(random.random((600, 2))), np.linspace(0.05, 1.2, 40)) + 1.0
    given = {
        "random_state": 0,
        "transformation": "ordinal",
        "ties": ties,
        "init": "random",
        "n_init": 1,
        "polish": False,
    }
    wanted = PatternSearchMDS(**given).fit(squareform(t))
    for other in ({"cluster": client}, {"memory_limit": "256 MiB"}):
        found = PatternSearchMDS(**given, **other).fit(squareform(t))
        np.testing.assert_array_equal(found.embedding_, wanted.embedding_)
        np.testing.assert_array_equal(found.disparities_, wanted.disparities_)
