"""A user's own source: it passes the suite, and is taken wherever dissimilarities are."""

import pickle

import cloudpickle
import numpy as np
import pytest

from landmarks import LandmarkMDS
from psmds_dist import (
    ArrayRows,
    InputError,
    PatternSearchMDS,
    ReadProfile,
    RowSource,
    WrappedSource,
    build,
    open_rows,
)
from psmds_dist.executor import InProcessExecutor
from tests.conformance.sources import SourceSuite

cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["_"]))  # as of a user's script or notebook

N = 90
LANDMARKS = np.arange(0, N, 3)


class OnACircle(RowSource):
    """Distances along a circle between points at equal steps."""

    def __init__(self, n, columns=None):
        self.columns = np.arange(n) if columns is None else columns
        self.shape = n, len(self.columns)

    def read(self, lo, hi, out):
        steps = np.abs(np.arange(lo, hi)[:, None] - self.columns)
        out[: hi - lo] = np.minimum(steps, self.shape[0] - steps)


class Named(WrappedSource):
    """The same with names."""

    ids = tuple(f"point {k}" for k in range(N))


class Features(RowSource):
    """Coordinates, for a metric."""

    dtype = np.dtype("float64")

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def read(self, lo, hi, out):
        out[: hi - lo] = self.values[lo:hi]


def matrix():
    rows = np.empty((N, N), np.float32)
    OnACircle(N).read(0, N, rows)
    return rows


class TestMinimal(SourceSuite):
    @pytest.fixture
    def source(self):
        return OnACircle(N)

    @pytest.fixture
    def different(self):
        return OnACircle(N)  # nothing is taken for equal

    @pytest.fixture
    def expected(self):
        return matrix()


class TestRectangular(TestMinimal):
    @pytest.fixture
    def source(self):
        return OnACircle(N, LANDMARKS)

    @pytest.fixture
    def expected(self):
        return matrix()[:, LANDMARKS]


class TestWrapped(TestMinimal):
    @pytest.fixture
    def source(self):
        return Named(OnACircle(N))


def test_copies_in_other_processes_are_the_same_source():
    source = OnACircle(N)
    copies = [pickle.loads(pickle.dumps(source)) for _ in range(2)]
    assert source.content_id == copies[0].content_id == copies[1].content_id != OnACircle(N).content_id


HOW = {"random_state": 0, "max_epochs": 20}


def test_fit_takes_it():
    mds = PatternSearchMDS(**HOW).fit(Named(OnACircle(N)))
    np.testing.assert_array_equal(mds.embedding_, PatternSearchMDS(**HOW).fit(matrix()).embedding_)
    assert mds.ids_ == list(Named.ids)


def test_build_takes_it(tmp_path):
    check = build(OnACircle(N), tmp_path / "d.zarr", InProcessExecutor(), ids=Named.ids)
    rows = open_rows(tmp_path / "d.zarr")
    np.testing.assert_array_equal(rows.take(np.arange(N)), matrix())
    assert (check.n, rows.ids) == (N, list(Named.ids))


@pytest.mark.parametrize("refine", ["none", "panel", "full"])
def test_landmark_mode_takes_it(refine):
    how = {"n_landmarks": 30, "random_state": 0, "refine": refine}
    mds = LandmarkMDS(**how).fit(Named(OnACircle(N)))
    np.testing.assert_array_equal(mds.embedding_, LandmarkMDS(**how).fit(matrix()).embedding_)
    assert tuple(mds.ids_) == Named.ids


def test_landmark_mode_takes_a_panel_of_it():
    how = {"landmarks": LANDMARKS, "random_state": 0}
    mds = LandmarkMDS(**how).fit(OnACircle(N, LANDMARKS))
    np.testing.assert_array_equal(mds.embedding_, LandmarkMDS(**how).fit(matrix()[:, LANDMARKS]).embedding_)
    known = OnACircle(N, LANDMARKS)
    known.landmarks = LANDMARKS
    found = LandmarkMDS(random_state=0).fit(known)
    np.testing.assert_array_equal(found.embedding_, mds.embedding_)


def test_landmark_mode_takes_features_from_it():
    how = {"metric": "euclidean", "n_landmarks": 20, "random_state": 0}
    features = np.random.default_rng(0).random((N, 4))
    mds = LandmarkMDS(**how).fit(Features(features))
    np.testing.assert_array_equal(mds.embedding_, LandmarkMDS(**how).fit(features).embedding_)


@pytest.mark.wide
@pytest.mark.slow
def test_workers_take_it(client, tmp_path):
    mds = PatternSearchMDS(**HOW, cluster=client).fit(Named(OnACircle(N)))
    np.testing.assert_array_equal(mds.embedding_, PatternSearchMDS(**HOW).fit(matrix()).embedding_)
    through = {"n_landmarks": 30, "random_state": 0}
    mds = LandmarkMDS(**through, cluster=client, scratch=tmp_path).fit(OnACircle(N))
    np.testing.assert_array_equal(mds.embedding_, LandmarkMDS(**through).fit(matrix()).embedding_)
    mds = PatternSearchMDS(**HOW, cluster=client, scratch=tmp_path).fit(ArrayRows(matrix()))  # by a scratch store
    np.testing.assert_array_equal(mds.embedding_, PatternSearchMDS(**HOW).fit(matrix()).embedding_)
    assert list(tmp_path.iterdir()) == []


def changed(**attributes):
    source = OnACircle(N)
    for name, value in attributes.items():
        setattr(source, name, value)
    return source


class Shapeless(RowSource):
    def read(self, lo, hi, out):
        out[: hi - lo] = 0


WRONG = {
    "no shape": (Shapeless(), "the row source Shapeless needs the attribute shape"),
    "three axes": (changed(shape=(N, N, 2)), "has shape .*, but needs two whole numbers"),
    "no numbers": (changed(shape=("many", "many")), "but needs two whole numbers"),
    "text as dtype": (changed(dtype="float32"), "OnACircle has dtype 'float32', but rows are numpy.dtype"),
    "integers": (changed(dtype=np.dtype(int)), r"has dtype dtype\('int64'\), but rows are"),
    "no content id": (changed(content_id=None), "OnACircle has content_id None, but needs text that is not empty"),
    "no profile": (changed(read_profile=None), "OnACircle has read_profile None, but needs a ReadProfile"),
    "no rows": (changed(read_profile=ReadProfile(rows_per_chunk=0)), "at least one row per chunk"),
    "too few ids": (changed(ids=["a", "b"]), "2 ids for 90 points"),
    "equal ids": (changed(ids=N * ["a"]), "the id 'a' twice"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("mds", [PatternSearchMDS(), LandmarkMDS(n_landmarks=10)])
def test_a_wrong_source_is_refused_in_a_sentence(mds, kind):
    source, sentence = WRONG[kind]
    with pytest.raises(InputError, match=sentence):
        mds.fit(source)


def test_a_store_gets_the_ids_of_its_source(tmp_path):
    build(Named(OnACircle(N)), tmp_path / "d.zarr", InProcessExecutor())
    assert tuple(open_rows(tmp_path / "d.zarr").ids) == Named.ids
    build(Named(OnACircle(N)), tmp_path / "other.zarr", InProcessExecutor(), ids=[f"p{k}" for k in range(N)])
    assert open_rows(tmp_path / "other.zarr").ids[1] == "p1"
    with pytest.raises(InputError, match="2 ids for 90 points"):
        build(changed(ids=["a", "b"]), tmp_path / "third.zarr", InProcessExecutor())


def test_ids_may_be_an_array():
    mds = LandmarkMDS(n_landmarks=20, random_state=0).fit(changed(ids=np.arange(N)))
    assert mds.ids_[:2] == ["0", "1"]


def test_a_rectangular_source_is_no_matrix(tmp_path):
    with pytest.raises(InputError, match=r"has shape \(90, 30\), but a dissimilarity matrix is square"):
        PatternSearchMDS().fit(OnACircle(N, LANDMARKS))
    with pytest.raises(InputError, match=r"has shape \(90, 30\), but a dissimilarity matrix is square"):
        build(OnACircle(N, LANDMARKS), tmp_path / "d.zarr", InProcessExecutor())
    with pytest.raises(InputError, match="landmarks must list"):
        LandmarkMDS().fit(OnACircle(N, LANDMARKS))


def test_a_source_without_read_cannot_be_made():
    class Mute(RowSource):
        shape = (N, N)

    with pytest.raises(TypeError, match="read"):
        Mute()
