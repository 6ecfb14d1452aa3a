"""Tables of titres between viruses and sera, missing and censored, against a plain minimiser from many starts."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.spatial import procrustes

from tests.titres import titres


def test_a_made_up_table_has_what_a_real_one_has():
    random = np.random.default_rng(0)
    _, lower, upper = titres.made_up_table(random, 273, 79)
    known, censored = ~np.isnan(lower), np.isinf(upper)
    assert lower.shape == (273, 79)
    assert 0.5 < 1 - known.mean() < 0.9
    assert 0.1 < censored[known].mean() < 0.3
    assert (lower[known] >= 0).all()
    assert (lower[known & ~censored] == upper[known & ~censored]).all()
    assert known.sum(axis=1).min() > 3


def test_the_gradient_of_the_minimiser_is_right():
    random = np.random.default_rng(1)
    _, lower, upper = titres.made_up_table(random, 12, 9)
    value, slope = (lambda z, part=part: np.ravel(titres.cost(lower, upper, z.reshape(-1, 2))[part]) for part in (0, 1))
    assert check_grad(lambda z: value(z)[0], slope, random.normal(scale=5, size=42)) < 1e-3


def compare(viruses, sera, starts, seed):
    """A fit is within 1 % of the best of many minimisations of the same cost."""
    random = np.random.default_rng(seed)
    places, lower, upper = titres.made_up_table(random, viruses, sera)
    mds = titres.fit(lower, upper)
    error, _ = titres.cost(lower, upper, mds.embedding_)
    others = random.normal(scale=10, size=(starts, *places.shape))
    assert error <= 1.01 * titres.best_of_scipy(lower, upper, others)
    return procrustes(places, mds.embedding_)[2]


def test_a_small_table_is_mapped_as_well_as_by_many_starts_of_a_minimiser():
    assert compare(60, 20, 8, 0) < 0.1


@pytest.mark.wide
def test_a_table_of_the_size_of_influenza_is_mapped_as_well_as_by_fifty_starts():
    assert compare(273, 79, 50, 0) < 0.03
