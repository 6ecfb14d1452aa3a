"""Distances through matrix products."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from psmds_dist import open_points
from psmds_dist.data import products
from psmds_dist.data.products import Products

METRICS = ["euclidean", "sqeuclidean", "cosine", "correlation"]


def near_pairs(n=300, d=40):
    """Groups of points a thousand times, and a million times, closer to each other than to the others; far from 0."""
    random = np.random.default_rng(0)
    centres = 100 + random.normal(size=(n // 3, d))
    near = centres + 1e-3 * random.normal(size=centres.shape)
    return np.concatenate([centres, near, near + 1e-6 * random.normal(size=centres.shape)])


DATA = {
    "digits": lambda: load_digits().data[:500],
    "float32": lambda: np.random.default_rng(1).normal(size=(300, 50)).astype("f4"),
    "near pairs": near_pairs,
    "duplicates": lambda: np.repeat(1 + np.random.default_rng(2).random((40, 9)), 5, axis=0),
    "tiny": lambda: 1e-160 * near_pairs(60),
    "huge": lambda: 1e152 * np.random.default_rng(3).normal(size=(60, 12)),
    "one value": lambda: np.vstack([np.full((30, 8), 0.1), np.arange(8)]),
}


def opened(folder, x, metric="euclidean", dtype="float32"):
    np.save(folder / "x.npy", x)
    return open_points(folder / "x.npy", metric, dtype=dtype)


def by_pairs(x, metric):
    """The same by SciPy, pair by pair and in float64."""
    x = np.asarray(x, float)
    if metric in ("euclidean", "sqeuclidean"):
        return cdist(x, x, metric)
    if metric == "correlation":
        x = x - x.mean(axis=1, keepdims=True)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    return cdist(units, units, "sqeuclidean") / 2


def all_rows(source, step=None):
    out = np.empty((source.n, source.n), source.dtype)
    for lo in range(0, source.n, step or source.n):
        source.read(lo, min(lo + (step or source.n), source.n), out[lo:])
    return out


WITHOUT_DISTANCES = {("huge", "sqeuclidean"), ("one value", "correlation")}
CASES = [(data, metric) for data in DATA for metric in METRICS if (data, metric) not in WITHOUT_DISTANCES]


@pytest.mark.parametrize(("data", "metric"), CASES)
def test_bits_are_those_of_a_computation_by_pairs(tmp_path, data, metric):
    x = DATA[data]()
    with np.errstate(over="ignore"):
        expected = by_pairs(x, metric).astype("f4")
    found = all_rows(opened(tmp_path, x, metric))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found, found.T)


def test_near_pairs_keep_all_digits_of_float32(tmp_path):
    x = near_pairs()
    exact = by_pairs(x, "euclidean")
    near = (exact > 0) & (exact < exact.max() / 1000)
    assert near.sum() > 200
    found = all_rows(opened(tmp_path, x))
    np.testing.assert_allclose(found[near], exact[near], rtol=1e-7)


def test_bits_depend_neither_on_blocks_nor_on_tiles_nor_on_threads(tmp_path, monkeypatch):
    source = opened(tmp_path, DATA["digits"]())
    expected = all_rows(source)
    for step in (1, 7, 300):
        np.testing.assert_array_equal(all_rows(source, step), expected)
    for threads in (1, 2):
        with threadpool_limits(threads):
            np.testing.assert_array_equal(all_rows(source), expected)
    monkeypatch.setattr(products, "ROWS", 33)
    monkeypatch.setattr(products, "COLUMNS", 64)
    monkeypatch.setattr(products, "PAIR_BYTES", 2000)
    np.testing.assert_array_equal(all_rows(source), expected)


def test_few_pairs_are_left_to_the_slow_way():
    x = np.random.default_rng(0).normal(size=(1000, 64))
    asked = []
    counted = Products(x, (True, 1.0), lambda a, b, out: asked.append(len(b)) or cdist(a, b, out=out))
    counted.fill(0, 1000, np.empty((1000, 1000), "f4"))
    assert sum(asked) < 100  # of a million


@pytest.mark.parametrize(
    ("metric", "dtype", "features"), [("euclidean", "f4", 7), ("euclidean", "f8", 12), ("cityblock", "f4", 12)]
)
def test_other_types_metrics_and_few_features_are_computed_by_pairs(tmp_path, monkeypatch, metric, dtype, features):
    monkeypatch.setattr(Products, "fill", None)
    x = np.random.default_rng(0).normal(size=(50, features))
    source = opened(tmp_path, x, metric, np.dtype(dtype).name)
    np.testing.assert_array_equal(all_rows(source), cdist(x, x, metric).astype(dtype))


def test_squares_that_overflow_are_infinite_as_by_pairs(tmp_path):
    x = 1e200 * np.random.default_rng(0).normal(size=(20, 10))
    np.testing.assert_array_equal(all_rows(opened(tmp_path, x)), by_pairs(x, "euclidean"))
