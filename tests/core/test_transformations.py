"""Transformations against regressions over all pairs by SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.spatial.distance import pdist, squareform
from sklearn.isotonic import isotonic_regression

from psmds_dist import InputError
from psmds_dist.core.rules import PairRule
from psmds_dist.core.transformations import (
    MAX_BINS,
    SPREAD,
    BinGrid,
    BinSums,
    Splines,
    degeneracy,
    knots_of,
    transformation_of,
)
from psmds_dist.kernels.bins import MISSING, Guide, aligned, bin_sums, locate, number

KINDS = [("ratio", ""), ("interval", ""), ("spline", ""), ("ordinal", "primary"), ("ordinal", "secondary")]


def regression(t: np.ndarray, d: np.ndarray, name: str, ties: str) -> np.ndarray:
    """Best disparities of pairs, from all of them."""
    if name == "ordinal" and ties == "primary":
        order = np.lexsort((d, t))
        values = np.empty(d.size)
        values[order] = isotonic_regression(d[order])
        return values
    if name == "ordinal":
        _, bins, counts = np.unique(t, return_inverse=True, return_counts=True)
        means = np.bincount(bins, d) / counts
        return isotonic_regression(means, sample_weight=counts.astype(float))[bins]
    basis = {"ratio": t[:, None], "interval": np.column_stack((np.ones(t.size), t - t.min()))}.get(name)
    if basis is None:
        ends = np.unique(t)
        basis = Splines(2, inner=2).basis(ends)[np.searchsorted(ends, t)]
    return np.asarray(basis @ lsq_linear(basis, d, (0, np.inf), method="bvls").x)


def placed(rows: np.ndarray, knots: np.ndarray, *, stepwise: bool) -> np.ndarray:
    """Numbers of the last knots below, or positions among knots."""
    guide = Guide.of(knots.astype(rows.dtype))
    found = np.empty(rows.shape, np.uint16) if stepwise else rows.copy()
    if stepwise:
        number(rows, guide, found)
    else:
        locate(found, guide)
    return found


def fitted(t: np.ndarray, x: np.ndarray, name: str, ties: str) -> tuple[np.ndarray, float]:
    """Disparities of all pairs by the table of our transformation, and the sum of their squares over ordered pairs."""
    n, kind = len(x), transformation_of(name, ties)
    knots, _ = knots_of(t)
    rows = placed(squareform(t), knots, stepwise=kind.stepwise)
    grid = BinGrid.of(kind, knots.size, np.ascontiguousarray(x.T), 2.0)
    every = np.arange(n)
    totals = bin_sums(rows, every, every, np.ascontiguousarray(x.T), grid.shape, 2.0, SPREAD, grid.unit)
    found = kind.fit(BinSums.of(totals, grid.unit, 2.0), knots)
    places = rows[np.triu_indices(n, 1)].astype(float)
    low, high = (np.interp(places, np.arange(knots.size), found.table[line]) for line in (0, -1))
    return np.clip(pdist(x), low, high), found.square


@pytest.mark.parametrize(("name", "ties"), KINDS)
def test_disparities_are_the_least_squares_fit_to_all_pairs(name: str, ties: str) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((30, 2))
    t = np.digitize(pdist(x) + 0.7 * random.standard_normal(435), [0.3, 0.8, 1.3, 1.8, 2.4, 3, 4]) + 2.0
    ours, square = fitted(t, x, name, ties)
    best = regression(t, pdist(x), name, ties)
    error, least = np.sum((pdist(x) - ours) ** 2), np.sum((pdist(x) - best) ** 2)
    assert least > 1
    assert error == pytest.approx(least, rel=1e-5)
    assert square == pytest.approx(2 * np.sum(best**2), rel=1e-5)


def test_more_dissimilarities_than_bins_lose_next_to_nothing() -> None:
    random = np.random.default_rng(6)
    x = random.standard_normal((200, 2))
    t = np.exp(3 * pdist(x)) * random.uniform(0.8, 1.25, 19900)
    knots, complete = knots_of(t)
    assert knots.size == MAX_BINS
    assert not complete
    ours, _ = fitted(t, x, "ordinal", "secondary")
    best = regression(t, pdist(x), "ordinal", "secondary")
    d = pdist(x)
    assert np.sum((d - ours) ** 2) == pytest.approx(np.sum((d - best) ** 2), rel=0.02)


def test_positions_are_those_of_a_search_among_knots() -> None:
    random = np.random.default_rng(7)
    knots = np.unique(np.concatenate([random.random(50) ** 8, [3.0, 1000.0]]))
    given = np.concatenate([knots, random.random(500) ** 6, [2000.0, np.nan, 0.0]])
    rows = placed(given[None], knots, stepwise=True)
    wanted = np.maximum(np.searchsorted(knots, given[:-2], side="right") - 1, 0)
    np.testing.assert_array_equal(rows[0, :-2], wanted)
    assert rows[0, -2] == MISSING
    rows = placed(given[None], knots, stepwise=False)
    assert np.isnan(rows[0, -2])
    inside = (given >= knots[0]) & (given <= knots[-1])
    np.testing.assert_allclose(np.interp(rows[0, inside], np.arange(knots.size), knots), given[inside], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_aligned_knots_need_no_search_and_lie_just_below(dtype: str) -> None:
    random = np.random.default_rng(11)
    values = random.gamma(3, size=200_000) ** 2
    knots = np.append(0.0, np.quantile(values, np.linspace(0, 1, 4000))).astype(dtype).astype(float)
    moved = aligned(knots, np.dtype(dtype))
    assert Guide.of(moved.astype(dtype)).reach == 0
    assert Guide.of(knots.astype(dtype)).reach > 0
    assert moved.size >= 0.98 * knots.size
    assert moved[0] == 0
    below = moved[np.searchsorted(moved, knots, side="right") - 1]
    assert np.all(below <= knots)
    np.testing.assert_allclose(below, knots, rtol=1 / 1000)
    given = np.concatenate([moved, random.gamma(3, size=10_000) ** 2, [0.0, 1e6]]).astype(dtype)
    wanted = np.searchsorted(moved, given.astype(float), side="right") - 1
    np.testing.assert_array_equal(placed(given[None], moved, stepwise=True)[0], wanted)


def test_knots_that_would_become_one_stay_where_they_are() -> None:
    """One tiny dissimilarity makes cells wide."""
    knots = np.append(1e-30, 1000 + np.sort(np.random.default_rng(3).random(4000)))
    np.testing.assert_array_equal(aligned(knots, np.dtype("float64")), knots)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spread", [1.0, 1e-12], ids=["wide", "of neighboring numbers"])
def test_what_is_not_above_zero_counts_as_zero(dtype: str, spread: float) -> None:
    knots = np.append(0.0, 1 + spread * np.arange(4)) if dtype == "float64" else np.arange(5.0)
    given = np.array([[0.0, -0.0, -1e-8, -2e-8, knots[1], knots[4]]], dtype)
    np.testing.assert_array_equal(placed(given, knots, stepwise=True), [[0, 0, 0, 0, 1, 4]])
    np.testing.assert_array_equal(placed(given, knots, stepwise=False), [[0, 0, 0, 0, 1, 4]])


@pytest.mark.parametrize("name", ["ordinal", "spline", "interval"])
def test_rounded_zeros_are_one_dissimilarity(name: str) -> None:
    random = np.random.default_rng(0)
    t = np.where(random.random(435) < 0.3, 0.0, np.rint(3 * random.random(435)) + 1)
    near = t.copy()
    near[t == 0] = random.choice([0.0, -0.0, -1e-8, -2e-8], np.count_nonzero(t == 0))
    np.testing.assert_array_equal(knots_of(near)[0], knots_of(t)[0])
    assert not np.signbit(knots_of(near)[0]).any()
    x = random.standard_normal((30, 2))
    np.testing.assert_array_equal(fitted(near, x, name, "primary")[0], fitted(t, x, name, "primary")[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_positions_between_two_knots_are_shares(dtype: str) -> None:
    given = np.array([[0.5, 1, 2, 3, 9, np.nan, -0.0]], dtype)
    np.testing.assert_array_equal(placed(given, np.array([1.0, 3.0]), stepwise=False), [[0, 0, 0.5, 1, 1, np.nan, 0]])


@pytest.mark.parametrize("name", ["ratio", "interval"])
def test_the_ends_tell_all_about_a_line(name: str) -> None:
    random = np.random.default_rng(8)
    x = random.standard_normal((40, 2))
    t = pdist(x) + 0.3 * random.random(780)
    kind, knots = transformation_of(name, "primary"), knots_of(t)[0]
    if name == "ratio":
        knots = np.append(0.0, knots)
    x = np.ascontiguousarray(x.T)
    found = []
    for chosen in (knots, kind.needed(knots)):
        rows, every = placed(squareform(t), chosen, stepwise=False), np.arange(40)
        grid = BinGrid.of(kind, chosen.size, x, 2.0)
        sums = BinSums.of(bin_sums(rows, every, every, x, grid.shape, 2.0, SPREAD, grid.unit), grid.unit, 2.0)
        fit = kind.fit(sums, chosen)
        found.append((np.interp(t, chosen, fit.table[0]), fit.square))
    assert kind.needed(knots).size == 2
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-6)


@pytest.mark.parametrize("outlier", [1.0, 1e9])
def test_positions_among_crowded_knots_are_right(outlier: float) -> None:
    random = np.random.default_rng(10)
    values = random.random(5000).astype("f4") ** 4
    knots = np.append(np.unique(values[:900]).astype(float), outlier)
    rows = placed(values[None], knots, stepwise=True)
    np.testing.assert_array_equal(rows[0], np.maximum(np.searchsorted(knots, values, side="right") - 1, 0))


def test_sums_are_those_over_all_ordered_pairs() -> None:
    random = np.random.default_rng(11)
    x, every = random.standard_normal((2, 40)), np.arange(40)
    rows = squareform(np.where(random.random(780) < 0.2, np.nan, np.floor(6 * random.random(780))))
    pairs, d, dd = np.moveaxis(bin_sums(rows, every, every, x, (6, 1, 3), 1.0, SPREAD, 2.0**40)[:, 0], -1, 0)
    known = ~np.isnan(rows) & ~np.eye(40, dtype=bool)
    numbers = np.where(np.isnan(rows), MISSING, rows).astype(np.uint16)
    same = bin_sums(numbers, every, every, x, (6, 1, 3), 1.0, SPREAD, 2.0**40)[:, 0]
    np.testing.assert_array_equal(np.moveaxis(same, -1, 0), [pairs, d, dd])
    distances = squareform(pdist(x.T))
    np.testing.assert_array_equal(pairs, [np.sum(known & (rows == k)) for k in range(6)])
    np.testing.assert_allclose(d / 2.0**40, [distances[known & (rows == k)].sum() for k in range(6)])
    assert dd.sum() / 2.0**40 == pytest.approx(np.sum(distances[known] ** 2))


def test_sums_are_the_same_bits_in_any_order_of_rows() -> None:
    random = np.random.default_rng(8)
    x = random.standard_normal((3, 50))
    rows = random.random((50, 50)) * 7
    every, mixed = np.arange(50), random.permutation(50)
    arguments = (x, (9, 4, 6), 1.5, SPREAD, 2.0**40)
    parts = [bin_sums(rows, mixed[k : k + 10], mixed[k : k + 10], *arguments) for k in range(0, 50, 10)]
    np.testing.assert_array_equal(sum(parts), bin_sums(rows, every, every, *arguments))


def test_degenerate_maps_are_told() -> None:
    x = np.random.default_rng(9).random((30, 2))
    curve = np.array([[1.0, 2, 3], [0.5, 1, 2]])
    assert degeneracy(x, curve) == ""
    assert degeneracy(x, np.empty((0, 0))) == ""
    assert "all pairs are nearly the same" in degeneracy(x, np.array([[1.0, 2, 3], [1, 1, 1.0005]]))
    assert "all pairs are nearly the same" in degeneracy(x, np.array([[1.0, 3], [1, 1]]))
    assert degeneracy(x, np.array([[1.0, 3], [0, 1], [1, 2]])) == ""  # bounds of two bins touch
    assert "30 points lie in 3 places" in degeneracy(np.repeat(x[:3], 10, axis=0), curve)


def test_rules_that_cannot_be_are_refused() -> None:
    for wrong in ({"transformation": "rank"}, {"transformation": 3}, {"ties": "tertiary"}):
        with pytest.raises(InputError, match="must be one of"):
            PairRule(**wrong)
    for other in ({"loss": "huber"}, {"power": -1}, {"weighted": True}, {"bounded": True}):
        with pytest.raises(InputError, match="transformation='ordinal' is for the squared error"):
            PairRule(transformation="ordinal", **other)
    with pytest.raises(InputError, match="the same, so there is nothing to transform"):
        knots_of(np.full(5, 2.0))


@pytest.mark.parametrize("name", ["ratio", "interval"])
def test_a_few_huge_distances_are_summed_as_they_are(name: str) -> None:
    random = np.random.default_rng(11)
    x = random.standard_normal((150, 2))
    x[0] = 1e5
    t = 3 * pdist(x + 0.1 * random.standard_normal(x.shape))
    ours, square = fitted(t, x, name, "")
    best = regression(t, pdist(x), name, "")
    assert square == pytest.approx(2 * np.sum(best**2), rel=1e-7)
    assert np.sum((pdist(x) - ours) ** 2) == pytest.approx(np.sum((pdist(x) - best) ** 2), rel=1e-2)
