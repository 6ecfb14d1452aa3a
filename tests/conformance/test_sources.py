"""Every row source of this repository passes the suite."""

import copy
import tempfile
from functools import cache, partial
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import pdist, squareform
from sklearn.neighbors import kneighbors_graph

from landmarks.panel.sources import Columns, TrustedPanel, points_panel, store_panel
from landmarks.panel.tables import array_panel, labelled, npy_panel
from psmds_dist import (
    ArrayRows,
    InputError,
    ReadProfile,
    RowSource,
    WrappedSource,
    open_geodesics,
    open_matrix,
    open_pairs,
    open_points,
    open_rows,
)
from psmds_dist.data.encoding import Halves, Rounded, Units
from psmds_dist.data.similarities import FromSimilarities
from psmds_dist.data.sources import open_npy
from psmds_dist.data.store import create, open_panel, open_table
from psmds_dist.data.transforms import OneTriangle, Subset, Symmetrized, ZeroDiagonal
from tests.conformance.sources import SourceSuite

N = 70
LANDMARKS = np.array([40, 3, 69, 0, 17])
TALL = {"chunks": (23, 31)}
PLAIN = {"chunks": (9, N), "compressors": None}
SOME = np.array([3, 1])
FEW = np.array([0, 1, 2, 7, 8, 30, 31, 32, 33, 69])


def points(seed=0):
    return np.random.default_rng(seed).random((N, 3))


def distances(seed=0):
    return squareform(pdist(points(seed)))


def dense(x):
    return squareform(pdist(x))


def skewed(seed=0):
    """A matrix whose entries all differ from each other, with a diagonal."""
    return 1 + np.random.default_rng(seed).random((N, N))


def panel(seed=0):
    rows = distances(seed)[:, LANDMARKS].copy()
    rows[5, 2] = rows[9, 0] = np.nan
    return rows


def kept(write):
    """Write what a folder holds once, since tests only read it."""
    written = {}

    def path(folder, *given, **how):
        if folder not in written:
            written[folder] = write(folder, *given, **how)
        return written[folder]

    return path


@kept
def saved(folder, array):
    np.save(folder / "rows.npy", array)
    return folder / "rows.npy"


@kept
def foreign(folder, array, **how):
    zarr.create_array(folder / "foreign.zarr", data=array, **{**TALL, **how})
    return folder / "foreign.zarr"


@kept
def as_text(folder, array, suffix, separator=",", **how):
    """A table with names, of pandas, whose columns are in another order than its rows."""
    names = [f"{k:03d}" for k in range(len(array))]
    frame = pd.DataFrame(array, names, names)
    order = np.random.default_rng(2).permutation(len(array))
    frame.iloc[:, order].to_csv(folder / f"rows{suffix}", sep=separator, **how)
    return folder / f"rows{suffix}"


@kept
def as_phylip(folder, array, cells):
    rows = [" ".join([f"taxon{k}", *map(repr, row[slice(*cells(k))])]) for k, row in enumerate(array.tolist())]
    (folder / "rows.phylip").write_text("\n".join([str(len(rows)), *rows, ""]))
    return folder / "rows.phylip"


@kept
def as_hdf5(folder, array):
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("matrix", data=array, chunks=(11, 30), dtype=">f8")
        file["order"] = [f"p{k}" for k in range(len(array))]
    return folder / "rows.h5"


@kept
def as_npz(folder, **arrays):
    np.savez_compressed(folder / "rows.npz", **arrays)
    return folder / "rows.npz"


@kept
def as_sparse(folder, array):
    sparse.save_npz(folder / "sparse.npz", sparse.csr_array(unlisted(array, 0)))
    return folder / "sparse.npz"


@kept
def zipped(folder, array):
    with zarr.storage.ZipStore(folder / "rows.zip", mode="w") as store:
        zarr.create_array(store, data=array, **TALL)
    return folder / "rows.zip"


def building(folder, array, dtype="float32", **how):
    """A store that is written and not finished yet."""
    target = create(Path(tempfile.mkdtemp(dir=folder)) / "ours.zarr", N, dtype, **how)
    for block in range(target.layout.count):
        target.write(block, array[slice(*target.layout.bounds(block))].astype(dtype))
    return target


@kept
def ours(folder, array, dtype="float32", **how):
    ids = [f"p{k}" for k in range(N)]
    target = building(folder, array, dtype, ids=ids, **how)
    target.finish({"dtype": dtype})
    return target.path


@kept
def half_size(folder, array, encoding):
    """A store of two bytes a number."""
    target = create(folder / "half.zarr", N, encoding)
    for block in range(target.layout.count):
        target.write(block, array[slice(*target.layout.bounds(block))].astype("f4"))
    target.finish({"dtype": "float32"})
    return folder / "half.zarr"


our_panel = partial(ours, width=5, landmarks=LANDMARKS)


def mean(array):
    return (array.astype("f4") * np.float32(0.5) + array.T.astype("f4") * np.float32(0.5)).astype("f4")


def listed(array):
    """A third of the entries above the diagonal; zero elsewhere."""
    return np.where(array > 1.66, np.triu(array, 1), 0)


def listed_pairs(array):
    above = listed(array)
    whole = np.where(above + above.T > 0, above + above.T, np.nan)
    np.fill_diagonal(whole, 0)
    return whole


def in_units(array):
    return np.rint(array.astype("f4") * 2**14) / 2**14


def hollow(array):
    return array * (1 - np.eye(N))


def upper(array):
    return np.triu(array) + np.triu(array, 1).T


def same(array):
    return array


def unlisted(array, missing=np.nan):
    """Large entries, with others missing; the diagonal is zero, since it is not listed."""
    listed = np.where(array > 1.5, array, missing)
    np.fill_diagonal(listed, 0)
    return listed


def by_columns(array):
    return array[:, SOME]


MATRICES = {
    "array": (lambda folder, a: ArrayRows(a.astype("f4")), same),
    "array, converted": (lambda folder, a: ArrayRows(a), same),
    "array, float64": (lambda folder, a: ArrayRows(a, "float64"), same),
    "array, by columns": (lambda folder, a: ArrayRows(np.asfortranarray(a)), same),
    ".npy": (lambda folder, a: open_npy(saved(folder, a)), same),
    ".npy, by columns": (lambda folder, a: open_npy(saved(folder, np.asfortranarray(a)), "float64"), same),
    "store": (lambda folder, a: open_rows(ours(folder, a)), same),
    "store, float64": (lambda folder, a: open_rows(ours(folder, a, "float64")), same),
    "store, converted": (lambda folder, a: open_rows(ours(folder, a), "float64"), lambda a: a.astype("f4")),
    "store, verified": (lambda folder, a: open_rows(ours(folder, a)).verified(), same),
    "store, being built": (building, same),
    "store, float16": (lambda folder, a: open_rows(half_size(folder, a, Halves())), lambda a: a.astype("f2")),
    "store, uint16": (lambda folder, a: open_rows(half_size(folder, a, Units(2**-14))).verified(), in_units),
    "store, uint16, converted": (lambda folder, a: open_rows(half_size(folder, a, Units(2**-14)), "float64"), in_units),
    "rounded array": (lambda folder, a: Rounded(ArrayRows(a), Units(2**-14)), in_units),
    "rounded array, converted": (lambda folder, a: Rounded(ArrayRows(a, "float64"), Units(2**-14)), in_units),
    "Zarr": (lambda folder, a: open_matrix(foreign(folder, a)), same),
    "Zarr, plain": (lambda folder, a: open_matrix(foreign(folder, a.astype("f4"), **PLAIN)), same),
    "Zarr, format 2": (lambda folder, a: open_matrix(foreign(folder, a, zarr_format=2)), same),
    "Zarr, sharded": (lambda folder, a: open_matrix(foreign(folder, a, chunks=(10, 35), shards=(20, 70))), same),
    "Zarr, zipped": (lambda folder, a: open_matrix(zipped(folder, a)), same),
    "CSV": (lambda folder, a: open_matrix(as_text(folder, a, ".csv"), "float64"), same),
    "TSV, compressed": (lambda folder, a: open_matrix(as_text(folder, a, ".tsv.gz", "\t")), same),
    "decimal commas": (lambda folder, a: open_matrix(as_text(folder, a, ".csv", ";", decimal=",")), same),
    "symmetrized CSV": (lambda folder, a: Symmetrized(open_matrix(as_text(folder, a, ".csv"))), mean),
    "PHYLIP": (lambda folder, a: open_matrix(as_phylip(folder, a, lambda k: (0, N)), "float64"), same),
    "HDF5": (lambda folder, a: open_matrix(as_hdf5(folder, a), "float64"), same),
    ".npz": (lambda folder, a: open_matrix(as_npz(folder, D=a), "float64"), same),
    "sparse": (lambda folder, a: open_matrix(as_sparse(folder, a)), unlisted),
    "similarities, converted": (
        lambda folder, a: FromSimilarities(open_matrix(saved(folder, a), "float64"), "max-s", 2.0, np.dtype("f4")),
        lambda a: 2 - a,
    ),
    "wrapped array": (lambda folder, a: WrappedSource(ArrayRows(a)), same),
    "symmetrized array": (lambda folder, a: Symmetrized(ArrayRows(a)), mean),
    "symmetrized, .npy": (lambda folder, a: Symmetrized(open_npy(saved(folder, a))), mean),
    "symmetrized, Zarr": (lambda folder, a: Symmetrized(open_rows(foreign(folder, a))), mean),
    "triangle of an array": (lambda folder, a: OneTriangle(ArrayRows(a), "upper"), upper),
    "triangle, store": (lambda folder, a: OneTriangle(open_rows(ours(folder, a)), "upper"), upper),
    "subset, store": (lambda folder, a: Subset(open_rows(ours(folder, a)), FEW), lambda a: a[np.ix_(FEW, FEW)]),
    "subset of an array": (lambda folder, a: Subset(ArrayRows(a), FEW), lambda a: a[np.ix_(FEW, FEW)]),
    "pairs of an array": (lambda folder, a: open_pairs(coo_array(listed(a))), listed_pairs),
    "zero diagonal": (lambda folder, a: ZeroDiagonal(open_rows(ours(folder, a))), hollow),
    "zero diagonal, triangle of an array": (
        lambda folder, a: ZeroDiagonal(OneTriangle(ArrayRows(a), "upper")),
        lambda a: hollow(upper(a)),
    ),
}  # fmt: skip

PANELS = {
    "array": (lambda folder, a: array_panel(a, landmarks=LANDMARKS), same),
    "array, float64": (lambda folder, a: array_panel(a, "float64"), same),
    ".npy": (lambda folder, a: npy_panel(saved(folder, a), landmarks=LANDMARKS), same),
    ".npy, by columns": (lambda folder, a: npy_panel(saved(folder, np.asfortranarray(a))), same),
    "store": (lambda folder, a: open_panel(our_panel(folder, a)), same),
    "store, verified": (lambda folder, a: open_panel(our_panel(folder, a)).verified(), same),
    "store, being built": (partial(building, width=5, landmarks=LANDMARKS), same),
    "Zarr": (lambda folder, a: open_panel(foreign(folder, a, chunks=(23, 2)), landmarks=LANDMARKS), same),
    "points in Zarr": (lambda folder, a: open_table(foreign(folder, a, chunks=(70, 5))), same),
    "labelled array": (lambda folder, a: labelled(array_panel(a), LANDMARKS), same),
    "columns of an array": (lambda folder, a: Columns(array_panel(a), LANDMARKS[SOME], SOME), by_columns),
    "columns, store": (lambda folder, a: Columns(open_panel(our_panel(folder, a)), LANDMARKS[SOME], SOME), by_columns),
}  # fmt: skip

COMPUTED = {
    "condensed array": lambda folder, x: ArrayRows(pdist(x)),
    "condensed .npy": lambda folder, x: open_npy(saved(folder, pdist(x)), "float64"),
    "points": lambda folder, x: open_points(saved(folder, x)),
    "condensed .npz": lambda folder, x: open_matrix(as_npz(folder, D=pdist(x)), "float64"),
    "lower triangle": lambda folder, x: open_matrix(as_phylip(folder, dense(x), lambda k: (0, k))),
    "lower triangle, diagonal": lambda folder, x: open_matrix(
        as_phylip(folder, dense(x), lambda k: (0, k + 1)), "float64"
    ),
    "upper triangle": lambda folder, x: open_matrix(as_phylip(folder, dense(x), lambda k: (k + 1, N)), "float64"),
}

OF_POINTS = {
    "points in an array": lambda folder, x: points_panel(array_panel(x, "float64"), LANDMARKS),
    "points in .npy": lambda folder, x: points_panel(npy_panel(saved(folder, x), "float64"), LANDMARKS),
}

OF_MATRICES = {
    "array": lambda folder, a: store_panel(ArrayRows(a), LANDMARKS),
    "array in memory": lambda folder, a: store_panel(ArrayRows(a.astype("f4")), LANDMARKS),
    "condensed array": lambda folder, a: store_panel(ArrayRows(squareform(a)), LANDMARKS),
    "store": lambda folder, a: store_panel(open_rows(ours(folder, a)), LANDMARKS),
    "Zarr": lambda folder, a: store_panel(open_rows(foreign(folder, a)), LANDMARKS),
    "trusted store": lambda folder, a: TrustedPanel(open_rows(ours(folder, a)), LANDMARKS),
}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """Return the folder of a source, the same for all its tests."""
    return cache(lambda *source: tmp_path_factory.mktemp("source"))


class Suite(SourceSuite):
    """The suite over a table of sources, each made of an array in a folder."""

    sources: dict
    content: object

    @pytest.fixture
    def source(self, name, folder_of):
        return self.made(name, folder_of, 0)

    @pytest.fixture
    def different(self, name, folder_of):
        return self.made(name, folder_of, 1)

    def made(self, name, folder_of, seed):
        return self.make(name, folder_of(type(self), name, seed), type(self).content(seed))

    def make(self, name, folder, content):
        return self.sources[name](folder, content)

    @pytest.fixture(autouse=True)
    def _pickles(self, name):
        if "array" in name:
            self.max_pickle_bytes = None


class Transformed(Suite):
    """A table that holds, beside each source, what becomes of the array."""

    def make(self, name, folder, content):
        return self.sources[name][0](folder, content)

    @pytest.fixture
    def expected(self, name):
        return self.sources[name][1](type(self).content(0))


RARE = {
    ".npy, by columns", "store, converted", "Zarr, plain", "TSV, compressed", "decimal commas", "symmetrized CSV",
    "symmetrized, .npy", "triangle, store", "subset, store", "zero diagonal, triangle of an array",
}  # fmt: skip
"""Combinations of parts that others in the table have too."""


@pytest.mark.parametrize(
    "name", [name if name not in RARE else pytest.param(name, marks=pytest.mark.wide) for name in MATRICES]
)
class TestMatrices(Transformed):
    sources, content = MATRICES, staticmethod(skewed)


@pytest.mark.parametrize("name", PANELS)
class TestPanels(Transformed):
    sources, content = PANELS, staticmethod(panel)


@pytest.mark.parametrize("name", COMPUTED)
class TestComputedMatrices(Suite):
    sources, content = COMPUTED, staticmethod(points)

    @pytest.fixture
    def expected(self):
        return distances()


@pytest.mark.parametrize("name", ["geodesics of an array"])
class TestGeodesics(Suite):
    sources, content = {"geodesics of an array": lambda folder, x: open_geodesics(x, 8)}, staticmethod(points)

    @pytest.fixture
    def expected(self):
        return shortest_path(kneighbors_graph(points(), 8, mode="distance"), directed=False)


@pytest.mark.parametrize("name", OF_POINTS)
class TestPanelsOfPoints(Suite):
    sources, content = OF_POINTS, staticmethod(points)

    @pytest.fixture
    def expected(self):
        return distances()[:, LANDMARKS]


@pytest.mark.parametrize("name", OF_MATRICES)
class TestPanelsOfMatrices(Suite):
    sources, content = OF_MATRICES, staticmethod(distances)

    @pytest.fixture
    def expected(self):
        return distances()[:, LANDMARKS]


class Recorded(RowSource):
    """A source that knows all that a source can know, and records what it is told."""

    shape, dtype, location, ids = (N, N), np.dtype("float64"), "somewhere", tuple(f"p{k}" for k in range(N))
    read_profile = ReadProfile(rows_per_chunk=7, scratch_bytes=100, read_amplification=2.0)

    def __init__(self):
        self.verify, self.expected, self.stale = False, [], []

    def read(self, lo, hi, out):
        out[: hi - lo] = distances()[lo:hi]

    def read_columns(self, lo, hi, out):
        self.read(lo, hi, out)

    def prefetch(self, lo, hi):
        self.expected.append((lo, hi))

    def verified(self):
        other = copy.copy(self)
        other.verify = True
        return other

    def is_stale(self):
        return bool(self.stale)


WRAPPERS = {
    "WrappedSource": WrappedSource,
    "Symmetrized": Symmetrized,
    "OneTriangle": lambda source: OneTriangle(source, "lower"),
    "ZeroDiagonal": ZeroDiagonal,
    "Labelled": lambda source: labelled(source, np.arange(N)),
    "Columns": lambda source: Columns(source, np.arange(3), np.arange(3)),
    "StorePanel": lambda source: store_panel(source, LANDMARKS),
    "PointsPanel": lambda source: points_panel(source, LANDMARKS),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_lose_nothing(name):
    inner = Recorded()
    source = WRAPPERS[name](inner)
    assert (source.location, source.ids, source.n) == (inner.location, inner.ids, inner.n)
    assert (inner.content_id if name != "PointsPanel" else "points panel") in source.content_id
    source.prefetch(3, 9)
    assert inner.expected[-1:] == ([] if name == "StorePanel" else [(3, 9)])  # that one reads across rows
    assert not source.is_stale()
    inner.stale.append(True)
    assert source.is_stale()
    verified = source.verified()
    assert (verified.points if name == "PointsPanel" else verified.source).verify
    assert source.read_profile.scratch_bytes >= inner.read_profile.scratch_bytes


def test_what_cannot_be_read_along_columns_is_not_made_symmetric():
    class Rows(RowSource):
        shape = (N, N)

        def read(self, lo, hi, out):
            out[: hi - lo] = 0

    with pytest.raises(InputError, match="are for matrices in arrays, files and stores, not for Rows"):
        Symmetrized(Rows())
