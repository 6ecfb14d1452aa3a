"""What users hand over, and how rows come out of it."""

import dask.array
import numpy as np
import pytest
import zarr
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS
from psmds_dist.api.inputs import row_source
from psmds_dist.core.layout import Layout
from psmds_dist.core.types import InputError
from psmds_dist.data.sources import ArrayRows
from psmds_dist.executor import InProcessExecutor, arrays
from psmds_dist.ingest.build import build

N = 90


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, values, index, columns):
        self.values, self.index, self.columns = values, index, columns

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


@pytest.fixture(scope="module")
def matrix():
    return squareform(pdist(np.random.default_rng(1).random((N, 3)))).astype(np.float32)


def rows_of(given, **how):
    with row_source(given, InProcessExecutor(), **how) as source:
        out = np.empty((source.n, source.n), source.dtype)
        source.read(0, source.n, out)
        return out


def test_every_kind_gives_its_rows(tmp_path, matrix):
    build(ArrayRows(matrix), tmp_path / "store", InProcessExecutor())
    array = zarr.create_array(tmp_path / "array", data=matrix, chunks=(40, 40))
    names = [f"s{k}" for k in range(N)]
    kinds = {
        "array": matrix,
        "condensed": squareform(matrix.astype(float), checks=False),
        "frame": Frame(matrix, names, names),
        "store": tmp_path / "store",
        "text path": str(tmp_path / "array"),
        "zarr array": array,
        "array in memory": zarr.create_array(zarr.storage.MemoryStore(), data=matrix),
        "dask": dask.array.from_array(matrix, chunks=(7, 50)),
        "list": matrix.tolist(),
        "mask without effect": np.ma.masked_array(matrix, mask=False),
    }
    for name, given in kinds.items():
        np.testing.assert_array_equal(rows_of(given), matrix, err_msg=name)
        assert rows_of(given, dtype="float64").dtype == np.float64


@pytest.mark.parametrize(("task_bytes", "tasks"), [(2**24, 1), (100_000, 9), (1, 33)])
def test_a_dask_array_is_written_in_tasks_of_many_blocks_each_block_once(monkeypatch, task_bytes, tasks):
    """A task takes Dask a millisecond: one for each small block would take longer than a fit."""
    values = np.random.default_rng(0).random((1000, 100))
    written, executor, computed = {}, InProcessExecutor(), []

    def write(block, rows):
        assert block not in written
        written[block] = np.array(rows)

    def compute(collection):
        computed.append(collection.npartitions)
        collection.compute(scheduler="synchronous")

    monkeypatch.setattr(arrays, "TASK_BYTES", task_bytes)
    monkeypatch.setattr(executor, "compute", compute)
    layout = Layout(1000, 100)
    arrays.write_dask_array(dask.array.from_array(values, chunks=(130, 60)), write, layout, executor)
    assert computed == [tasks]
    np.testing.assert_array_equal(np.concatenate([written[block] for block in range(layout.count)]), values)
    assert {len(written[block]) for block in range(layout.count - 1)} == {layout.rows}


def test_dask_arrays_are_made_symmetric_on_the_way(matrix):
    skew = matrix + np.triu(np.ones_like(matrix), 1)
    given = dask.array.from_array(skew, chunks=(30, 45))
    np.testing.assert_allclose(rows_of(given, symmetrize=True), (skew + skew.T) / 2, rtol=1e-6)


def test_a_stored_matrix_is_not_made_symmetric(tmp_path, matrix):
    zarr.create_array(tmp_path / "array", data=matrix)
    with pytest.raises(InputError, match="run 'psmds ingest --symmetrize' once"):
        rows_of(tmp_path / "array", symmetrize=True)


def test_the_mean_of_both_orders_of_a_dask_array_is_that_of_one_in_memory():
    whole = np.random.default_rng(0).integers(90, 250, (40, 40)).astype("uint8")
    np.fill_diagonal(whole, 0)
    given = dask.array.from_array(whole, chunks=(7, 16))
    np.testing.assert_array_equal(rows_of(given, symmetrize=True), rows_of(whole, symmetrize=True))
    with pytest.raises(InputError, match="only the upper triangle"):
        rows_of(dask.array.triu(given), symmetrize=True)


def test_names_come_from_the_frame_or_the_store(tmp_path, matrix):
    names = [f"sample {k}" for k in range(N)]
    settings = {"max_epochs": 2, "random_state": 0}
    assert PatternSearchMDS(**settings).fit(Frame(matrix, names, names)).ids_ == names
    assert PatternSearchMDS(**settings).fit(Frame(matrix, range(N), range(N))).ids_ == [str(k) for k in range(N)]
    build(ArrayRows(matrix), tmp_path / "store", InProcessExecutor(), ids=names)
    assert PatternSearchMDS(**settings).fit(tmp_path / "store").ids_ == names
    assert PatternSearchMDS(**settings).fit(zarr.open(tmp_path / "store")["dissimilarities"]).ids_ == names


def test_names_are_used_in_sentences(matrix):
    skew = matrix.copy()
    skew[3, 8] += 2
    names = [f"sample {k}" for k in range(N)]
    with pytest.raises(InputError, match=r"3 \(id 'sample 3'\)"):
        PatternSearchMDS().fit(Frame(skew, names, names))


def test_a_frame_whose_axes_disagree_is_refused(matrix):
    names = [f"s{k}" for k in range(N)]
    with pytest.raises(InputError, match="index and columns name the points in different orders"):
        PatternSearchMDS().fit(Frame(matrix, names, names[::-1]))


def test_the_scratch_store_is_removed_whatever_happens(tmp_path, matrix):
    lazily = dask.array.from_array(np.where(matrix > 1, np.inf, matrix), chunks=30)
    with pytest.raises(InputError, match="infinite"):
        PatternSearchMDS(scratch=tmp_path).fit(lazily)

    def stop(event):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        PatternSearchMDS(scratch=tmp_path, on_epoch=stop).fit(dask.array.from_array(matrix, chunks=30))
    assert list(tmp_path.iterdir()) == []


def test_a_user_s_matrix_is_never_changed(matrix):
    before = matrix.copy()
    PatternSearchMDS(max_epochs=3).fit(matrix)
    PatternSearchMDS(max_epochs=3, symmetrize=True).fit(matrix)
    assert np.array_equal(matrix, before)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (np.zeros((4, 3)), "square"),
        (np.zeros((4, 4, 4)), "square"),
        (np.zeros(7), "1-D with 7 entries"),
        (np.float64(3), "square"),
        (np.zeros((4, 4), complex), "needs floats or integers"),
        ([["a", "b"], ["c", "d"]], "needs floats or integers"),
        ([[1, 2], [3]], "X cannot be made an array"),
        (None, "needs floats or integers"),
        (np.zeros((4, 4), dtype=object), "needs floats or integers"),
        (np.ma.masked_equal(np.eye(4), 0), "all entries of the matrix off its diagonal are NaN"),
        (sparse.eye_array(5).tocsr(), "sparse matrix"),
        (dask.array.zeros((4, 3)), "square"),
        (dask.array.zeros(4), "square"),
        ("nowhere.zarr", "does not exist"),
    ],
    ids=range(14),
)
def test_what_is_no_matrix_is_a_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        PatternSearchMDS().fit(given)
    assert str(caught.value).endswith(".")


def test_dask_arrays_of_unknown_shape(matrix):
    lazily = dask.array.from_array(matrix, chunks=30)
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        PatternSearchMDS().fit(lazily[lazily[:, 0] > 0])


def test_scratch_must_be_a_place(tmp_path, matrix):
    with pytest.raises(InputError, match=r"scratch='.*nowhere' cannot be written to: No such file"):
        PatternSearchMDS(scratch=tmp_path / "nowhere").fit(dask.array.from_array(matrix))


def test_a_file_is_used_in_place(tmp_path, matrix):
    np.save(tmp_path / "square.npy", matrix)
    np.save(tmp_path / "condensed.npy", squareform(matrix.astype(float), checks=False))
    for name in ("square.npy", "condensed.npy"):
        np.testing.assert_array_equal(rows_of(tmp_path / name), matrix)
    expected = PatternSearchMDS(random_state=0).fit(matrix)
    found = PatternSearchMDS(random_state=0).fit(str(tmp_path / "square.npy"))
    assert np.array_equal(found.embedding_, expected.embedding_)


@pytest.mark.parametrize("given", [[[0, 1], [1]], [[0, 1, 2], [1, 0]]])
def test_ragged_lists_are_a_sentence(given):
    with pytest.raises(InputError, match="X cannot be made an array"):
        rows_of(given)


def test_numbers_too_large_for_their_type_are_a_sentence(matrix):
    huge = matrix.astype(float) * 1e40
    for given in (huge, dask.array.from_array(huge, chunks=40), squareform(huge, checks=False)):
        with pytest.raises(InputError, match="infinite entries as float32"):
            PatternSearchMDS().fit(given)
    assert PatternSearchMDS(dtype="float64").fit(huge).normalized_stress_ < 0.5


@pytest.mark.parametrize("make", [PatternSearchMDS, LandmarkMDS])
def test_masked_records_are_refused_for_their_type(make):
    with pytest.raises(InputError, match="needs floats or integers"):
        make().fit(np.ma.zeros((3, 3), dtype=[("a", "f4")]))


def test_the_names_in_an_npz_file_are_taken_as_numpy_holds_them(tmp_path):
    np.savez(tmp_path / "t.npz", matrix=np.zeros((4, 4)), order=list("abcd"))
    with np.load(tmp_path / "t.npz") as several, pytest.raises(InputError, match=r"where ids = X\['order'\]\[:\]\.$"):
        PatternSearchMDS().fit(several)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_source_shows_the_array_as_it_is_when_it_is_read(dtype):
    first, second = (squareform(pdist(np.random.default_rng(k).random((60, 4)))).astype(dtype) for k in range(2))
    changing = first.copy()
    source, mds = ArrayRows(changing), PatternSearchMDS(random_state=0, effort="quick")
    for matrix in (first, second):
        changing[:] = matrix
        np.testing.assert_array_equal(mds.fit_transform(source), mds.fit_transform(matrix))
    changing[3, 5] = 99
    with pytest.raises(InputError, match="not symmetric"):
        mds.fit(source)
