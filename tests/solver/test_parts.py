"""Parts of a matrix that few known pairs join: found, and turned to where these fit."""

import numpy as np
import pytest
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist

from psmds_dist.core.rules import PairRule
from psmds_dist.solver.parts import Links, known_pairs, turned, weak_parts
from tests.marks import wide_but_one


def in_batches(sizes, common=0, bridges=0, seed=0):
    """Batch of each point, and which pairs are known: in a batch, of common points, and between some of each."""
    random, batch = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    known = batch[:, None] == batch
    shared = random.choice(batch.size, common, replace=False)
    known[shared] = known[:, shared] = True
    some = np.concatenate([random.choice(np.flatnonzero(batch == k), bridges, replace=False) for k in set(batch)])
    known[np.ix_(some, some)] = True
    return batch, known


def same_parts(labels, batch):
    return np.array_equal(labels[:, None] == labels, batch[:, None] == batch)


@pytest.mark.parametrize(("sizes", "bridges"), [((40, 40), 3), ((30, 90), 4), ((40, 50, 60), 2), ((25,) * 5, 1)])
def test_batches_with_a_few_bridges_are_parts(sizes, bridges):
    batch, known = in_batches(sizes, bridges=bridges)
    assert same_parts(weak_parts(known), batch)


def test_points_in_common_belong_to_one_of_the_parts():
    batch, known = in_batches((80, 80), common=4)
    labels = weak_parts(known)
    agree = labels == batch
    assert max(agree.mean(), 1 - agree.mean()) >= 1 - 4 / 160


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_gaps_at_random_leave_one_part(share):
    known = np.random.default_rng(1).random((120, 120)) >= share
    assert not weak_parts(known | known.T).any()


def test_a_table_of_two_kinds_is_one_part():
    known = np.zeros((70, 70), bool)
    known[:50, 50:] = known[50:, :50] = True
    assert not weak_parts(known).any()


@pytest.mark.parametrize("rule", [PairRule(gaps=True), PairRule(weighted=True), PairRule(weighted=True, bounded=True)])
def test_links_are_the_known_pairs_between_parts(rule):
    random, labels = np.random.default_rng(2), np.array([0, 0, 1, 1, 1])
    low = random.random((5, 5))
    high = low + 0.5 * rule.bounded
    low[0, 3] = high[0, 3] = np.nan
    weights = np.where(random.random((5, 5)) < 0.3, 0, random.random((5, 5)))
    parts = [low, *([high] if rule.bounded else []), *([weights] if rule.weighted else [])]
    found = Links.of(np.hstack(parts), labels, rule)
    expected = {
        (i, j): (low[i, j], high[i, j], weights[i, j] if rule.weighted else 1.0)
        for i in range(5)
        for j in range(5)
        if labels[i] != labels[j] and (i, j) != (0, 3) and (weights[i, j] > 0 or not rule.weighted)
    }
    values = zip(found.low, found.high, found.weights, strict=True)
    assert dict(zip(zip(found.i.tolist(), found.j.tolist(), strict=True), values, strict=True)) == expected
    assert known_pairs(np.hstack(parts), rule)[labels == 0][:, labels == 1].sum() == sum(i < 2 for i, _ in expected)


@pytest.mark.parametrize("dims", wide_but_one(2, 1, 3))
def test_a_part_that_was_mirrored_and_moved_is_turned_back(dims):
    random = np.random.default_rng(3)
    batch, known = in_batches((20, 40), bridges=6)
    true = random.normal(size=(60, dims))
    t = np.where(known, cdist(true, true), np.nan)
    wrong = true.T.copy()
    wrong[:, batch == 0] = 1 - wrong[::-1, batch == 0]
    wrong[0, batch == 0] *= -1
    links = Links.of(t, batch, PairRule(gaps=True))
    found = turned(wrong, links, np.random.default_rng(0))
    assert links.cost(found) < 1e-4 * links.cost(wrong)
    assert procrustes(true, found.T)[2] < 1e-4 if dims > 1 else np.abs(found - true.T).max() < 1e-2
    np.testing.assert_array_equal(found[:, batch == 1], wrong[:, batch == 1])


def test_a_map_that_fits_stays():
    batch, known = in_batches((20, 40), bridges=6)
    true = np.random.default_rng(4).normal(size=(60, 2))
    links = Links.of(np.where(known, cdist(true, true), np.nan), batch, PairRule(gaps=True))
    np.testing.assert_array_equal(turned(true.T, links, np.random.default_rng(0)), true.T)
