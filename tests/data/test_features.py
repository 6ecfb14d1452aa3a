"""Points that are read piece by piece, and sparse ones, compared with SciPy."""

import gc
import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse
from scipy.spatial.distance import cdist, pdist, squareform

from landmarks import LandmarkMDS
from psmds_dist import InputError, build, open_points, open_rows
from psmds_dist.data import features, stored_points
from psmds_dist.executor import InProcessExecutor
from tests.cli.commands import run
from tests.conformance.sources import SourceSuite

N = 80


def dense(seed=0):
    return np.random.default_rng(seed).normal(size=(N, 6))


def in_zarr(folder, x):
    zarr.create_array(folder / "x.zarr", data=x, chunks=(13, 4))
    return folder / "x.zarr"


def in_npy(folder, x):
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def few(seed=0):
    """Sparse points, two of which nearly coincide."""
    found = np.random.default_rng(seed).random((N, 300))
    found[found < 0.9] = 0
    found[1] = found[0]
    found[1, found[1].argmax()] += 1e-5
    return found


def in_npz(folder, x):
    sparse.save_npz(folder / "x.npz", sparse.csr_matrix(x))
    return folder / "x.npz"


class TestStreamed(SourceSuite):
    @pytest.fixture(autouse=True)
    def small_pieces(self, monkeypatch):
        monkeypatch.setattr(features, "PIECE_BYTES", 8 * 6 * 40)

    @pytest.fixture
    def source(self, tmp_path):
        return open_points(in_zarr(tmp_path, dense()))

    @pytest.fixture
    def different(self, tmp_path):
        zarr.create_array(tmp_path / "y.zarr", data=dense(1), chunks=(13, 4))
        return open_points(tmp_path / "y.zarr")

    @pytest.fixture
    def expected(self):
        return cdist(dense(), dense())


class TestSparse(SourceSuite):
    max_pickle_bytes = None

    @pytest.fixture
    def source(self):
        return open_points(sparse.csc_array(few()), dtype="float64")

    @pytest.fixture
    def different(self):
        return open_points(sparse.csr_array(few()), "cityblock", dtype="float64")

    @pytest.fixture
    def expected(self, source):
        return source.take(np.arange(N))  # compared with SciPy below; here with all other ways to read


def rows_of(source):
    found = source.take(np.arange(source.n))
    np.testing.assert_array_equal(found, found.T)
    assert not found.diagonal().any()
    return found


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation", "cityblock", "seuclidean", "mahalanobis"])
@pytest.mark.parametrize("stored", [in_zarr, in_npy])
def test_streamed_distances_are_those_of_scipy(metric, stored, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "HELD_BYTES", 0)
    monkeypatch.setattr(features, "PIECE_BYTES", 8 * 6 * 17)
    source = open_points(stored(tmp_path, dense()), metric, dtype="float64")
    assert type(source).__name__ == "StreamedPoints"
    np.testing.assert_allclose(rows_of(source), squareform(pdist(dense(), metric)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine", "cityblock", "tanimoto"])
def test_sparse_distances_are_those_of_scipy(metric, tmp_path, monkeypatch):
    monkeypatch.setattr("psmds_dist.data.sparse_points.SCRATCH_BYTES", 8 * N * 7)
    x = (few() > 0).astype(float) if metric == "tanimoto" else few()
    expected = cdist(x > 0, x > 0, "jaccard") if metric == "tanimoto" else cdist(x, x, metric)
    found = rows_of(open_points(in_npz(tmp_path, x), metric, dtype="float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)
    if metric == "euclidean":
        np.testing.assert_allclose(found[0, 1], 1e-5, rtol=1e-9)


def test_landmark_mode_takes_sparse_points(tmp_path):
    how = {"n_landmarks": 20, "random_state": 0}
    expected = LandmarkMDS(**how).fit(rows_of(open_points(sparse.csr_array(few()), "cosine"))).embedding_
    for given in (sparse.coo_matrix(few()), in_npz(tmp_path, few())):
        np.testing.assert_array_equal(LandmarkMDS(metric="cosine", **how).fit(given).embedding_, expected)


def test_distances_takes_zarr_and_sparse_points(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("distances", in_zarr(tmp_path, dense()), "a.zarr", "-q")
    run("distances", in_npz(tmp_path, few()), "b.zarr", "--metric", "cosine", "-q")
    assert "80" in run("info", "a.zarr")
    assert "cosine" in run("info", "b.zarr")


def with_nan(x):
    x = x.copy()
    x[5, 2] = np.nan
    return x


WRONG = {
    "other metric": (lambda x: sparse.csr_array(x), "chebyshev", "have the metrics euclidean, .* not 'chebyshev'"),
    "NaN": (lambda x: sparse.csr_array(with_nan(x)), "euclidean", "NaN or infinite features, first in row 5"),
    "no bits": (lambda x: sparse.csr_array(x), "tanimoto", "hold other numbers than 0 and 1"),
    "zero": (lambda x: sparse.csr_array(x * (np.arange(N) != 7)[:, None]), "cosine", "point 7 is zero"),
    "complex": (lambda x: sparse.csr_array(x * 1j), "euclidean", "holds complex128"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_sparse_points_that_cannot_be_used_are_refused(kind):
    make, metric, sentence = WRONG[kind]
    with pytest.raises(InputError, match=sentence):
        open_points(make(few()), metric)


def test_a_point_that_is_not_finite_is_named_when_it_is_read(tmp_path):
    source = open_points(in_zarr(tmp_path, with_nan(dense())))
    with pytest.raises(InputError, match="point 5 has NaN or infinite features"):
        source.take(np.arange(N))


def test_points_of_dask_are_computed_once_and_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_points, "CHUNK_BYTES", 8 * 6 * 7)
    monkeypatch.setattr(features, "PIECE_BYTES", 8 * 6 * 20)
    points, computed = dense().astype("float32"), []
    points[:7] = 0  # a chunk of zeros is written, too

    def block(part):
        computed.append(len(part))
        return part

    lazy = da.from_array(points, chunks=(16, 4)).rechunk((16, 6)).map_blocks(block, dtype="f4", meta=np.empty((0, 0)))
    source = open_points(lazy, "cityblock", dtype="float64", scratch=tmp_path)
    (folder,) = tmp_path.iterdir()
    found = np.empty((N, N))
    source.verified().read(0, N, found)
    np.testing.assert_array_equal(found, cdist(points.astype("f8"), points.astype("f8"), "cityblock"))
    np.testing.assert_array_equal(found, found.T)
    assert sum(computed) == N
    assert len(list((folder / "points.zarr" / "c").iterdir())) == -(-N // 7)
    sent = pickle.loads(pickle.dumps(source))
    del source
    gc.collect()
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="point 0 has NaN"):  # zeros would be points
        sent.read(0, 1, found)


def test_the_array_stays_as_long_as_anything_reads_it(tmp_path):
    source = open_points(da.from_array(dense(), chunks=20), scratch=tmp_path).verified()
    gc.collect()
    build(source, tmp_path / "d.zarr", InProcessExecutor())
    rows = open_rows(tmp_path / "d.zarr")
    found = np.empty((N, N), "f4")
    rows.read(0, N, found)
    np.testing.assert_allclose(found, squareform(pdist(dense())), rtol=1e-6)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        (lambda: da.ones(9), r"of shape \(9,\), but need shape \(n, d\)"),
        (lambda: da.ones((9, 2))[da.ones(9) > 0], "unknown shape: call its compute_chunk_sizes"),
        (lambda: da.ones((9, 2), dtype=complex), "of complex128, but need floats or integers"),
    ],
)
def test_what_is_no_points_of_dask_is_told_before_it_is_computed(points, told, tmp_path):
    with pytest.raises(InputError, match=told):
        open_points(points(), scratch=tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="cannot be written to: No such file"):
        open_points(da.ones((9, 2)), scratch=tmp_path / "nowhere")


def test_landmarks_of_points_of_dask_are_those_of_the_same_array(client):
    how = {"metric": "euclidean", "n_landmarks": 12, "random_state": 0, "evaluate": False}
    lazy = da.from_array(dense(), chunks=(25, 3))
    expected = LandmarkMDS(**how).fit(dense())
    for more in ({}, {"cluster": client}):
        found = LandmarkMDS(**how, **more).fit(lazy)
        np.testing.assert_array_equal(found.embedding_, expected.embedding_)


class TestStoredPoints(TestStreamed):
    @pytest.fixture
    def source(self, tmp_path):
        return open_points(da.from_array(dense(), chunks=(30, 2)), scratch=tmp_path)

    @pytest.fixture
    def different(self, tmp_path):
        return open_points(da.from_array(dense(1), chunks=(30, 2)), scratch=tmp_path)
