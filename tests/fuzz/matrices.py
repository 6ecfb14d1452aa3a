"""Valid and invalid input: kinds of data, types, memory layouts, containers, and ways to make it invalid."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from tests.fuzz.choosing import Chooser, seldom
from tests.fuzz.oracle import Verdict, on_matrix, worse

SIZES = [3, 4, 5, 8, 13, 24, 40, 70, 0, 1, 2]
GEOMETRIES = [
    "plane",
    "space",
    "line",
    "duplicates",
    "noise",
    "two values",
    "one apart",
    "zero",
    "blocks",
    "far and near",
]
EXPONENTS = [6, -6, 12, -12, 18, 30, -30, 37, -37, -44, 100, -100, 150, -150, -160, 300, -300, 308, -320]
NUMERIC = ["float32", "float16", "longdouble", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64"]
OTHER = ["bool", "complex64", "complex128", "object", "str", "bytes", "datetime64[s]", "timedelta64[s]", "record"]
LAYOUTS = ["C", "Fortran", "strided", "reversed", "read-only", "swapped", "memory-mapped", "offset"]
SPOILS = [
    "nan",
    "one nan pair",
    "inf",
    "-inf",
    "negative",
    "tiny negative",
    "asymmetric",
    "slightly asymmetric",
    "diagonal",
    "tiny diagonal",
    "similarities",
    "similarities with a hole",
    "upper triangle",
    "lower triangle",
    "rounded",
    "oblong",
    "cube",
    "scalar",
    "condensed cut short",
]
CONTAINERS = [
    "condensed",
    "list",
    "masked",
    "masked entry",
    "sparse",
    "frame",
    "frame in another order",
    "matrix",
    "ragged",
    "zarr",
    "dask",
    "store",
    "missing path",
    "None",
    "text",
    "number",
    "npy",
]


@dataclass(frozen=True)
class Given:
    """An input, the plain array that it represents, and its description."""

    value: Any
    array: Any
    story: str
    verdict: Verdict | None = None
    """Outcomes decided by the container, whatever it contains."""

    def judged(self, rows: str, n_components: int = 2) -> Verdict:
        """The expected outcome."""
        own = on_matrix(self.array, rows, n_components)
        return own if self.verdict is None else worse(self.verdict, own)


def points(choose: Chooser, n: int, d: int = 3) -> np.ndarray:
    """Random points of one of several kinds."""
    kind = choose.pick(GEOMETRIES[:4])
    random = np.random.default_rng(choose.number(0, 9999))
    x = random.normal(size=(n, d))
    if kind == "plane":
        x[:, 2:] = 0
    elif kind == "line":
        x[:, 1:] = 0
    elif kind == "duplicates" and n:
        x = x[random.integers(0, max(1, n // 2), n)]
    return x


def dissimilarities(choose: Chooser) -> tuple[np.ndarray, str]:
    """A square float64 matrix with entries near 1, and the name of its kind."""
    n, kind = choose.pick(SIZES[: choose.pick([8, 8, 8, 11])]), choose.pick(GEOMETRIES)
    random = np.random.default_rng(choose.number(0, 9999))
    if kind in GEOMETRIES[:4]:
        t = squareform(pdist(points(choose, n))) if n > 1 else np.zeros((n, n))
    else:
        t = np.abs(random.normal(1, 0.4, (n, n)))
        t = (t + t.T) / 2
        t = {"noise": t, "two values": 1.0 + (t > 1), "zero": 0 * t, "far and near": t**9}.get(kind, t)
    if kind == "one apart" and n:
        t = np.zeros((n, n))
        t[0], t[:, 0] = 1, 1
    if kind == "blocks":
        t[: n // 2, n // 2 :] = t[n // 2 :, : n // 2] = np.inf
    np.fill_diagonal(t, 0)
    return t, f"{kind}, n={n}"


def matrix(choose: Chooser, folder: Path, containers: list[str] = CONTAINERS) -> Given:
    """Any input of a fit."""
    t, story = dissimilarities(choose)
    exponent = seldom(choose, 0, EXPONENTS, 4)
    dtype = seldom(choose, seldom(choose, "float64", NUMERIC), OTHER, 6)
    with np.errstate(all="ignore"):
        t = (
            t * 10.0**exponent
            if abs(exponent) < 300
            else t * 10.0 ** (exponent // 2) * 10.0 ** (exponent - exponent // 2)
        )
        array = cast(t, dtype)
        spoil = seldom(choose, "none", SPOILS, 5)
        array = spoiled(array, spoil, choose)
    layout = seldom(choose, "C", LAYOUTS, 2)
    container = seldom(choose, "ndarray", containers, 4) if containers else "ndarray"
    story = f"{story}, x 1e{exponent}, {dtype}, {spoil}, {layout}, {container}"
    return contained(laid_out(array, layout, folder), container, folder, story)


@np.errstate(all="ignore")
def cast(t: np.ndarray, dtype: str) -> np.ndarray:
    """The matrix in another data type."""
    if dtype == "record":
        return np.zeros(t.shape, dtype=[("a", "f4"), ("b", "f4")])
    if np.dtype(dtype).kind in "iu":
        top = np.abs(t[np.isfinite(t)]).max(initial=0)
        most = np.iinfo(dtype).max if np.dtype(dtype).itemsize < 4 else 10**6
        return np.nan_to_num(t / top * most if top else t, posinf=most).astype(dtype)
    if np.dtype(dtype).kind in "mM":
        return np.nan_to_num(t, posinf=9).astype(np.int64).astype(dtype)
    return t.astype(dtype)


def spoiled(a: np.ndarray, how: str, choose: Chooser) -> np.ndarray:
    """The matrix with a problem."""
    a = a.copy()
    n = len(a)
    if n and a.dtype.kind == "f":
        i, j = choose.number(0, n - 1), choose.number(0, n - 1)
        top = a[np.isfinite(a)].max(initial=0) or a.dtype.type(1)
        if how in ("nan", "inf", "-inf"):
            a[i, j] = float(how)
        elif how == "one nan pair":
            a[i, j] = a[j, i] = np.nan
        elif how == "negative":
            a[i, j] = a[j, i] = -top
        elif how == "tiny negative":
            a[i, j] = a[j, i] = -np.finfo(a.dtype).smallest_subnormal
        elif how == "asymmetric" and i != j:
            a[i, j] = a[j, i] + top
        elif how == "slightly asymmetric":
            a[i, j] = a[j, i] * a.dtype.type(1 + 3e-6)
        elif how == "diagonal":
            a[i, i] = top
        elif how == "tiny diagonal":
            a[i, i] = np.finfo(a.dtype).smallest_subnormal
        elif how == "similarities":
            a = top - a
        elif how == "similarities with a hole":
            a = top - a
            a[i], a[:, i] = 0, 0
        elif how == "upper triangle":
            a = np.triu(a)
        elif how == "lower triangle":
            a = np.tril(a)
        elif how == "rounded":
            a[i, j] = a[j, i] = -top * np.finfo(a.dtype).eps * a.dtype.type(1e-3)
    shapes = {
        "oblong": lambda: a[:, : n // 2],
        "cube": lambda: np.stack([a, a]),
        "scalar": lambda: np.asarray(a.ravel()[0] if a.size else 0.0),
        "condensed cut short": lambda: a[np.triu_indices(n, 1)][:-1] if n > 3 else a[:0],
    }
    return shapes[how]() if how in shapes else a


def laid_out(a: np.ndarray, layout: str, folder: Path) -> np.ndarray:
    """The same numbers in another memory layout."""
    if layout == "Fortran":
        return np.asfortranarray(a)
    if layout == "strided" and a.ndim:
        return np.repeat(a, 2, axis=0)[::2]
    if layout == "reversed" and a.ndim:
        return a[::-1].copy()[::-1]
    if layout == "swapped":
        return a.astype(a.dtype.newbyteorder()) if a.dtype.kind in "fiumMc" else a
    if layout == "read-only":
        a = a.copy()
        a.flags.writeable = False
    if layout == "memory-mapped" and a.size and a.dtype.kind != "O":
        np.save(folder / "mapped.npy", a)
        return np.load(folder / "mapped.npy", mmap_mode="r")
    if layout == "offset" and a.ndim and a.dtype.kind == "f":
        raw = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype)  # not aligned to the size of its type
        raw = raw.reshape(a.shape)
        raw[...] = a
        return raw
    return a


class Frame:
    """Minimal data frame, for code without pandas."""

    def __init__(self, values: np.ndarray, index: list[Any], columns: list[Any]) -> None:
        self.values, self.index, self.columns, self.shape = values, index, columns, values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)


def contained(a: np.ndarray, how: str, folder: Path, story: str) -> Given:
    """The array in another container."""
    refused = {
        "missing path": str(folder / "nowhere.zarr"),
        "None": None,
        "text": "no such matrix",
        "number": 3.5,
        "ragged": [[0, 1, 2], [1, 0], [2, 1, 0]],
    }
    if how in refused:
        return Given(refused[how], a, story, Verdict.REFUSED)
    plain = a.ndim == 2 and a.shape[0] == a.shape[1] and a.dtype.kind in "fiu" and a.dtype != np.longdouble
    make = {
        "condensed": _condensed,
        "list": _listed,
        "masked": _masked,
        "masked entry": _masked_entry,
        "sparse": _sparse,
        "frame": _frame,
        "frame in another order": _shuffled_frame,
        "matrix": _matrix,
        "npy": _npy,
        "zarr": _zarr,
        "dask": _dask,
        "store": _store,
    }.get(how)
    if make is None or (
        how in ("condensed", "sparse", "frame in another order", "zarr", "dask", "store") and not plain
    ):
        return Given(a, a, story)
    if how in ("zarr", "store") and (a.dtype.byteorder == ">" or 0 in a.shape):
        return Given(a, a, story)
    return make(a, folder, story)


def _condensed(a: np.ndarray, folder: Path, story: str) -> Given:
    flat = a[np.triu_indices(len(a), 1)]
    return Given(flat, flat, story)


def _listed(a: np.ndarray, folder: Path, story: str) -> Given:
    value = a.tolist()
    return Given(value, np.asarray(value), story)


def _masked(a: np.ndarray, folder: Path, story: str) -> Given:
    return Given(np.ma.array(a), a, story)


def _masked_entry(a: np.ndarray, folder: Path, story: str) -> Given:
    mask = np.zeros(a.shape, bool)
    if not mask.size:
        return Given(np.ma.array(a), a, story)
    mask.flat[0] = True
    known = np.where(mask, np.nan, a) if a.dtype.kind in "fiu" else a
    return Given(np.ma.array(a, mask=mask), known, story)


def _sparse(a: np.ndarray, folder: Path, story: str) -> Given:
    if a.dtype.kind == "f" and a.dtype.itemsize == 2:
        return Given(a, a, story)
    return Given(sparse.csr_array(a.astype(a.dtype.newbyteorder("="))), a, story, Verdict.REFUSED)


def _frame(a: np.ndarray, folder: Path, story: str) -> Given:
    names = [f"p{k}" for k in range(len(a) if a.ndim else 0)]
    return Given(Frame(a, names, names), a, story)


def _shuffled_frame(a: np.ndarray, folder: Path, story: str) -> Given:
    names = [f"p{k}" for k in range(len(a))]
    verdict = Verdict.REFUSED if len(names) > 1 else None
    return Given(Frame(a, names, names[::-1]), a, story, verdict)


def _matrix(a: np.ndarray, folder: Path, story: str) -> Given:
    return Given(a.view(np.matrix), a, story) if a.ndim == 2 else Given(a, a, story)


def _npy(a: np.ndarray, folder: Path, story: str) -> Given:
    np.save(folder / "given.npy", a, allow_pickle=True)
    return Given(str(folder / "given.npy"), a, story)


def _zarr(a: np.ndarray, folder: Path, story: str) -> Given:
    import zarr

    place = folder / "foreign.zarr"
    chunks = (max(1, len(a) // 2), max(1, len(a) // 3))
    array = zarr.create_array(place, shape=a.shape, dtype=a.dtype, chunks=chunks, config={"write_empty_chunks": True})
    array[...] = a
    return Given(array, a, story)


def _dask(a: np.ndarray, folder: Path, story: str) -> Given:
    import dask.array as da

    return Given(da.from_array(a, chunks=max(1, len(a) // 2)), a, story)


def _store(a: np.ndarray, folder: Path, story: str) -> Given:
    from psmds_dist.data.sources import ArrayRows
    from psmds_dist.data.store import create

    n = len(a)
    if n < 3:
        return Given(a, a, story)
    source = ArrayRows(a, "float64")
    with np.errstate(all="ignore"):
        target = create(folder / "given.zarr", n, "float64")
        rows = np.empty((n, n))
        source.read(0, n, rows)
    height = target.array.chunks[0]
    for block in range(-(-n // height)):
        target.write(block, rows[block * height : (block + 1) * height])
    target._complete()  # unchecked: the fit must check it
    return Given(str(folder / "given.zarr"), a, story)
