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
