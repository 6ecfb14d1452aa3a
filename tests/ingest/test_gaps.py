"""Matrices with missing pairs in the input check: what is counted, told and refused."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

from psmds_dist import ArrayRows, DissimilarityWarning, InProcessExecutor, InputCheck, InputError, build, open_rows
from psmds_dist.core.layout import Layout
from psmds_dist.data.transforms import WithoutZeroWeights
from psmds_dist.ingest.check import check_source
from psmds_dist.ingest.gaps import Gaps, GapScanner, component_sizes, largest_component
from psmds_dist.ingest.passes import known_check

IDS = [f"p{k}" for k in range(90)]


def distances(n=90, seed=0):
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, 3))))


def with_gaps(share=0.3, n=90, seed=0):
    """Distances without some pairs, drawn at random."""
    matrix = distances(n, seed)
    hidden = np.triu(np.random.default_rng(seed + 1).random((n, n)) < share, 1)
    matrix[hidden | hidden.T] = np.nan
    return matrix


def without_pairs_between(*parts):
    """Distances known only between the points of each part."""
    matrix = np.full((90, 90), np.nan)
    for part in parts:
        matrix[np.ix_(part, part)] = distances()[np.ix_(part, part)]
    np.fill_diagonal(matrix, 0)
    return matrix


def check(matrix, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissimilarityWarning)
        return check_source(ArrayRows(matrix, "float64"), InProcessExecutor(1), **more)


@st.composite
def masks(draw):
    """A mask of missing pairs, perhaps of one order only, without the diagonal."""
    n = draw(st.integers(2, 40))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    missing = np.triu(random.random((n, n)) < draw(st.sampled_from([0, 0.1, 0.6, 0.95, 1])), 1)
    missing |= missing.T
    if draw(st.booleans()):
        i, j = random.choice(n, 2, replace=False)
        missing[i, j] = not missing[i, j]
    return missing


@settings(max_examples=60, deadline=None)
@given(masks(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_gaps_are_those_of_the_mask_however_it_is_cut(missing, step, random):
    n = len(missing)
    scanners = [GapScanner(n) for _ in range(3)]
    for lo in range(0, n, step):
        part = missing[lo : lo + step]
        if part.any():
            random.choice(scanners).add(lo, part)
    gaps = Gaps(n)
    for scanner in scanners:
        gaps.add(scanner.result())
    known = ~missing
    np.fill_diagonal(known, False)
    np.testing.assert_array_equal(gaps.known, known.sum(axis=1))
    np.testing.assert_array_equal(gaps.one_sided, np.flatnonzero((missing != missing.T).any(axis=1)))
    _, expected = connected_components(known, directed=False)
    labels = gaps.labels
    np.testing.assert_array_equal(labels[:, None] == labels, expected[:, None] == expected)
    assert component_sizes(labels) == sorted(np.bincount(expected), reverse=True)
    assert np.count_nonzero(labels == largest_component(labels)) == component_sizes(labels)[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scale_and_counts_are_of_known_pairs(dtype):
    matrix = with_gaps().astype(dtype)
    missing = np.isnan(matrix)
    with pytest.warns(DissimilarityWarning, match=rf"{missing.sum() // 2:,} of the 4,005 pairs of the matrix are miss"):
        found = check_source(ArrayRows(matrix, dtype), InProcessExecutor(1))
    off = ~np.eye(90, dtype=bool)
    assert found.rms == pytest.approx(np.sqrt(np.nanmean(matrix[off].astype(float) ** 2)), rel=1e-6)
    assert found.highest == np.nanmax(matrix)
    assert found.missing == missing.sum() // 2
    known = (~missing).sum(axis=1) - 1
    order = np.argsort(known, kind="stable")
    assert found.poorest == tuple((k, known[k]) for k in order.tolist())
    assert found.asymmetry is None or found.asymmetry == 0


def test_gaps_are_found_however_many_rows_are_filled_at_a_time(monkeypatch):
    matrix = with_gaps()
    expected = check(matrix)
    monkeypatch.setattr("psmds_dist.ingest.scan.FILL_BYTES", 7 * matrix[0].nbytes)
    assert check(matrix) == expected


def test_what_is_known_of_gaps_is_kept_with_a_store(tmp_path):
    with pytest.warns(DissimilarityWarning, match="are missing"):
        found = build(ArrayRows(with_gaps(), "float64"), tmp_path / "g.zarr", InProcessExecutor(1), ids=IDS)
    assert known_check(open_rows(tmp_path / "g.zarr"), InputCheck) == found


def test_a_diagonal_of_nan_is_one_of_zeros():
    matrix = distances()
    np.fill_diagonal(matrix, np.nan)
    found = check(matrix)
    assert (found.missing, found.rms) == (0, pytest.approx(check(distances()).rms))


@pytest.mark.parametrize("other", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_lone_triangle_with_gaps_is_told_and_mirrored(side, other, tmp_path):
    whole = with_gaps()
    matrix = whole.copy()
    matrix[np.tril_indices(90, -1) if side == "upper" else np.triu_indices(90, 1)] = other
    with pytest.raises(InputError, match=rf"^only the {side} .*--triangle {side}") as told:
        check(matrix)
    assert "Also" not in str(told.value)
    with pytest.warns(DissimilarityWarning, match="are missing"):
        found = build(ArrayRows(matrix, "float64"), tmp_path / "t.zarr", InProcessExecutor(1), triangle=side)
    assert found == check(whole)


def test_pairs_known_in_one_order_are_told_and_completed_by_symmetrize(tmp_path):
    whole = with_gaps()
    i, j = np.argwhere(np.triu(~np.isnan(whole), 1))[::3].T
    matrix = whole.copy()
    matrix[i, j] = np.nan
    with pytest.raises(InputError, match=rf"known in one order only, the first 0 \(id 'p0'\) and {j[0]} .*symmetrize"):
        check(matrix, ids=IDS)
    with pytest.warns(DissimilarityWarning, match="are missing"):
        build(ArrayRows(matrix, "float64"), tmp_path / "s.zarr", InProcessExecutor(1), symmetrize=True)
    np.testing.assert_array_equal(open_rows(tmp_path / "s.zarr").take(np.arange(90)), whole)


@pytest.mark.parametrize("value", [0.0, 1e-12])
def test_a_single_pair_known_in_one_order_is_told_whatever_its_size(value):
    matrix = with_gaps()
    i, j = np.argwhere(np.triu(np.isnan(matrix)))[7]
    matrix[j, i] = value
    with pytest.raises(InputError, match=rf"the first {i} and {j}, with {value:g} in row {j} and NaN in the other"):
        check(matrix)


def test_asymmetry_is_found_beside_gaps():
    matrix = with_gaps()
    i, j = np.argwhere(np.triu(~np.isnan(matrix), 1))[100]
    matrix[i, j] += 0.01
    with pytest.raises(InputError, match=rf"the worst pair found is ({i}|{j}) .*and ({i}|{j}) "):
        check(matrix, ids=IDS)


def test_similarities_are_found_beside_gaps():
    with pytest.raises(InputError, match="looks like similarities"):
        check(np.where(np.eye(90), 1, np.exp(-with_gaps())))
    with pytest.warns(match="are missing"), pytest.warns(match="behave like similarities"):
        check_source(ArrayRows(np.where(np.eye(90), 0, np.exp(-with_gaps())), "float64"), InProcessExecutor(1))


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (np.full((90, 90), np.nan), r"^all entries of the matrix off its diagonal are NaN"),
        (
            without_pairs_between(range(1, 61), range(61, 90)),
            r"3 components without a known pair between them \(of 60, 29, 1 points\).*outside the largest are 'p0', "
            r"'p61', 'p62', 'p63', 'p64', \.\.\. \(without any known pair: 'p0'\).*--disconnected largest",
        ),
        (
            without_pairs_between(range(0, 90, 2), range(1, 90, 2)),
            r"2 components .*\(of 45, 45 points\).*outside the largest are 'p1', 'p3', ",
        ),
    ],
)
def test_points_without_a_relative_position_are_named(matrix, sentence):
    with pytest.raises(InputError, match=sentence):
        check(matrix, ids=IDS)


def test_components_are_found_across_blocks():
    """A chain of known pairs joins all points; without one of its links there are two components."""
    matrix = np.full((90, 90), np.nan)
    chain = np.arange(89)
    matrix[chain, chain + 1] = matrix[chain + 1, chain] = 1.0
    np.fill_diagonal(matrix, 0)
    assert Layout(90).count > 2
    assert check(matrix).missing == 4005 - 89
    matrix[44, 45] = matrix[45, 44] = np.nan
    with pytest.raises(InputError, match=r"2 components .*of 45, 45 points"):
        check(matrix)


@pytest.mark.parametrize("ids", [None, IDS])
def test_the_largest_component_can_be_kept(ids, tmp_path):
    inside = [*range(1, 40), *range(50, 71)]
    matrix = without_pairs_between(inside, range(40, 50), range(71, 90))
    source = ArrayRows(matrix, "float64")
    with pytest.warns(DissimilarityWarning, match=r"30 of 90 points are left out, .*: '?p?0'?, '?p?40'?, "):
        build(source, tmp_path / "l.zarr", InProcessExecutor(1), ids=ids, disconnected="largest")
    store = open_rows(tmp_path / "l.zarr")
    assert store.ids == [f"{'p' if ids else ''}{k}" for k in inside]
    np.testing.assert_array_equal(store.take(np.arange(60)), matrix[np.ix_(inside, inside)])


def test_a_connected_matrix_is_kept_as_it_is(tmp_path):
    build(ArrayRows(distances(), "float64"), tmp_path / "w.zarr", InProcessExecutor(1), disconnected="largest")
    store = open_rows(tmp_path / "w.zarr")
    assert (store.n, store.ids) == (90, None)
    with pytest.raises(InputError, match="disconnected must be 'refuse' or 'largest', not 'bridge'"):
        build(ArrayRows(distances()), tmp_path / "b.zarr", InProcessExecutor(1), disconnected="bridge")


class Watched(ArrayRows):
    """Rows that tell whether they were verified, and that may have changed."""

    stale = False
    is_verified = False

    def verified(self):
        again = Watched(self.values, "float64")
        again.is_verified = True
        return again

    def is_stale(self):
        return self.stale


def test_a_matrix_without_zero_weights_verifies_and_watches_both():
    source, weights = Watched(distances(9), "float64"), Watched(np.ones((9, 9)), "float64")
    both = WithoutZeroWeights(source, weights)
    checked = both.verified()
    assert checked.source.is_verified
    assert checked.weights.is_verified
    assert not both.is_stale()
    weights.stale = True
    assert both.is_stale()
    weights.stale, source.stale = False, True
    assert both.is_stale()
