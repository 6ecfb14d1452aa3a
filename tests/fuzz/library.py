"""Entries of the Python interface."""

from __future__ import annotations

import copy
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

import psmds_dist
from landmarks import LandmarkMDS
from psmds_dist import PatternSearchMDS, read_result
from psmds_dist.api.embed import measure
from psmds_dist.core.stress import canonical
from psmds_dist.core.types import InputError
from psmds_dist.data.ids import read_ids
from psmds_dist.data.points import open_points
from psmds_dist.data.sources import ArrayRows, open_npy
from psmds_dist.data.store import open_rows
from psmds_dist.executor import InProcessExecutor
from psmds_dist.ingest.build import build
from tests.fuzz import matrices
from tests.fuzz.choosing import Chooser, seldom
from tests.fuzz.judging import FuzzFailure, judged
from tests.fuzz.oracle import Verdict, on_matrix, require_right_map, squared, worse

FIGURES = ("mse", "raw_stress", "stress1", "normalized_stress")


def figures(mds: Any) -> dict[str, float]:
    """Stress attributes of a fitted estimator."""
    return {name: getattr(mds, f"{name}_") for name in FIGURES}


def small_matrix(n: int = 20, seed: int = 0) -> np.ndarray:
    """Valid dissimilarities."""
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, 3))))


def fit(choose: Chooser, folder: Path) -> str:
    """``PatternSearchMDS.fit`` on any matrix."""
    given = matrices.matrix(choose, folder)
    rows = seldom(choose, "float32", ["float64"])
    n_components = choose.pick([2, 2, 1, 3])
    verdict = given.judged(rows, n_components)
    mds = PatternSearchMDS(n_components, dtype=rows, random_state=0)

    def call() -> None:
        kept = copy.deepcopy(given.array)
        mds.fit(given.value)
        require_right_map(given.array, rows, mds.embedding_, figures(mds), bound=1.0)
        assert _same(kept, given.array), "the input was changed"

    return judged(call, verdict, f"{given.story}, rows {rows}, {n_components} components")


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, np.ndarray) or a.dtype.kind == "O" or np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


class Odd:
    """An unexpected argument."""


ODD = [None, "two", -1, 0, 2.5, float("nan"), float("inf"), True, [2], {}, Odd(), 1j, np.float64(-3), 10**400]
"""Values that are invalid for many parameters."""

PARAMETERS: dict[str, tuple[list[Any], list[Any]]] = {
    "n_components": ([2, 3, 1, 5, np.int8(2), np.uint64(3)], [None, "two", -1, 0, 2.5, True, [2], 10**9, float("nan")]),
    "bad_moves": ([True, False], [None, "yes", 1, 0, [True]]),
    "eps": (
        [1e-4, 0, 0.5, 1e300, 5e-324, np.float32(0.1), Fraction(1, 8)],
        [None, "x", -1, float("nan"), float("inf"), True, 1j],
    ),
    "radius": (
        [None, 1.0, 0.01, 1e-3, 5, np.float32(2)],
        ["x", -1, 0, float("nan"), float("inf"), True, 1e19, 1e200, 1e308],
    ),
    "radius_tol": ([None, 0.1, 1e-3, 1e6], ["x", -1, 0, float("nan"), float("inf"), True]),
    "max_epochs": ([500, 0, 1, 3, 10**6], [None, "x", -1, 2.5, True, float("inf")]),
    "direction_share": ([1.0, 0.5, 1e-9, 1], [None, "x", 0, -1, 2, float("nan"), True]),
    "init": (["auto", "search", "random", "classical", "landmarks"], [None, "foo", 3, "", [], {}]),
    "n_init": (["auto", 1, 2, np.int64(2)], [0, -1, None, "x", 1.5, True, np.ones(2)]),
    "effort": (["quick", "default"], [None, "max", 1, True, []]),
    "polish": (["auto", True, False], [None, "yes", 1, 0, [True]]),
    "loss": (["squared"], [None, "cubic", 2, True, []]),
    "weight_power": ([0, 0.0], [None, "x", 99, float("nan"), True, 1j]),
    "sample": ([None, 20, 50], ["x", 0, 19, 2.5, True, [30]]),
    "local": ([0, 0.0], [None, "x", 1, -0.5, float("nan"), True, 1j]),
    "local_neighbors": ([1, 10], [None, "x", 0, -3, 2.5, True]),
    "disconnected": (["refuse", "largest"], [None, "bridge", True, 3]),
    "random_state": ([0, 7, None, 2**64, 2**100], [-1, "x", 1.5, True, 2**128, [1], 10**60]),
    "dtype": (["float32", "float64", np.float32, np.dtype("f8")], ["float16", "int8", None, 3, "x", "float128", [1]]),
    "symmetrize": ([False, True], []),
    "memory_limit": (
        [None, "1 GiB", 10**9, "500MB"],
        ["x", -1, 0, 10, "1 B", float("nan"), True, [], "10 parsecs", ""],
    ),
    "n_jobs": ([None, 1, 2, -1, np.int64(1)], [0, -2, "x", 1.5, True]),
    "cluster": ([None], ["nonsense", "local:0", "ssh:nowhere.txt", 3, []]),
    "scratch": ([None], []),
    "on_epoch": ([None], []),
}
"""Valid and invalid values of each parameter of the estimator."""


def chosen(choose: Chooser, table: dict[str, tuple[list[Any], list[Any]]]) -> tuple[dict[str, Any], Verdict]:
    """Choose up to three parameters; usually one of them is wrong."""
    names = sorted({choose.pick(list(table)) for _ in range(choose.number(1, 3))})
    wrong = choose.pick([*names, None])
    found, verdict = {}, Verdict.RIGHT
    for name in names:
        good, bad = table[name]
        found[name] = choose.pick(bad if name == wrong and bad else good)
        verdict = Verdict.REFUSED if name == wrong and bad else verdict
    return found, verdict


def parameters(choose: Chooser, folder: Path) -> str:
    """``PatternSearchMDS`` with any parameters."""
    t = small_matrix()
    found, verdict = chosen(choose, PARAMETERS)
    mds = PatternSearchMDS(**{"random_state": 0, "max_epochs": 60, **found})

    def call() -> None:
        mds.fit(t)
        require_right_map(t, str(np.dtype(mds.dtype)), mds.embedding_, figures(mds), bound=2.0 if found else 1.0)

    return judged(call, verdict, f"parameters {found!r}")


@np.errstate(over="ignore")
def start_of(choose: Chooser, scale: float) -> tuple[str, Any, Verdict]:
    """Coordinates to start from."""
    random = np.random.default_rng(choose.number(0, 99))
    x = random.normal(size=(20, 2))
    kinds = {
        "near": (x * scale, Verdict.RIGHT),
        "zeros": (x * 0, Verdict.RIGHT),
        "shifted": (x * scale + 1e3 * scale, Verdict.RIGHT),
        "small": (x * scale * 1e-9, Verdict.RIGHT),
        "denormal": (x * 5e-324, Verdict.RIGHT),
        "list": ((x * scale).tolist(), Verdict.RIGHT),
        "float16": ((x * 1).astype("f2"), Verdict.RIGHT if scale > 1e-3 else Verdict.EITHER),
        "wide": (x * scale * 300, Verdict.RIGHT),
        "1e200": (x * 1e200, Verdict.REFUSED),
        "1e308": (x * 1e308, Verdict.REFUSED),
        "1e19": (x * scale * 1e19, Verdict.REFUSED),
        "shifted far": (x * scale + 1e30 * scale, Verdict.REFUSED),
        "nan": (x * np.nan, Verdict.REFUSED),
        "inf": (x + np.inf, Verdict.REFUSED),
        "few": (x[:5], Verdict.REFUSED),
        "flat": (x.ravel(), Verdict.REFUSED),
        "three": (x[:, [0, 1, 1]], Verdict.REFUSED),
        "text": ([["a", "b"]] * 20, Verdict.REFUSED),
        "complex": (x * 1j, Verdict.REFUSED),
        "number": (3, Verdict.REFUSED),
        "Fortran": (np.asfortranarray(x * scale), Verdict.RIGHT),
        "bool": (x > 0, Verdict.EITHER),
        "ragged": ([[1, 2], [3]], Verdict.REFUSED),
        "masked": (np.ma.array(x * scale, mask=x > 1), Verdict.REFUSED),
        "dates": (np.zeros((20, 2), "M8[s]"), Verdict.REFUSED),
    }
    name = choose.pick(list(kinds))
    return name, *kinds[name]


def start(choose: Chooser, folder: Path) -> str:
    """``PatternSearchMDS.fit(init=...)``."""
    t = small_matrix() * 10.0 ** choose.pick([0, 6, -6])
    scale = float(np.sqrt((t**2).sum() / (20 * 19)))
    name, init, verdict = start_of(choose, scale)
    mds = PatternSearchMDS(random_state=0, max_epochs=choose.pick([500, 0, 1]), bad_moves=choose.pick([True, False]))

    def call() -> None:
        mds.fit(t, init=init)
        require_right_map(t, "float32", mds.embedding_, figures(mds), bound=1.0 if mds.max_epochs == 500 else np.inf)

    return judged(call, verdict, f"init {name}, scale {scale:.3g}, {mds.max_epochs} epochs, bad moves {mds.bad_moves}")


def scaled(choose: Chooser, folder: Path) -> str:
    """The same map up to scale from ``c T``: bit for bit for powers of two."""
    n = choose.pick([13, 24, 40, 70])
    t = small_matrix(n, choose.number(0, 99)).astype("f4")
    dtype, monotone, dims = choose.pick(["float32", "float64"]), choose.pick([False, True]), choose.pick([2, 3, 1, 4])
    power = choose.number(-30, 30) if choose.number(0, 1) else None
    factor = 2.0**power if power is not None else choose.pick([1e6, 1e-6, 1e3, 3.0])
    story = f"n={n}, {dtype}, monotone {monotone}, {dims} components, times {factor:g}"

    def call() -> None:
        one = PatternSearchMDS(dims, random_state=0, dtype=dtype, bad_moves=not monotone, n_init=2).fit(t)
        other = PatternSearchMDS(dims, random_state=0, dtype=dtype, bad_moves=not monotone, n_init=2).fit(
            t.astype(float) * factor
        )
        require_right_map(t.astype(float) * factor, dtype, other.embedding_, figures(other), bound=1.0)
        if power is not None:
            assert np.array_equal(one.embedding_ * factor, other.embedding_), "not the same bits"
            assert one.normalized_stress_ == other.normalized_stress_
            assert one.n_epochs_ == other.n_epochs_
        else:
            gap = abs(one.normalized_stress_ - other.normalized_stress_)
            assert gap <= 0.1 * one.normalized_stress_ + 1e-3, (
                f"{one.normalized_stress_} and {other.normalized_stress_}"
            )

    return judged(call, Verdict.RIGHT, story)


LANDMARK_PARAMETERS: dict[str, tuple[list[Any], list[Any]]] = {
    "n_components": ([2, 3, 1, np.int8(2)], PARAMETERS["n_components"][1]),
    "n_landmarks": ([None, 10, 30, 40, np.int64(12)], [0, -1, 1, 2, 2.5, "x", True, 10**6, [3]]),
    "landmarks": (
        [None, list(range(12)), np.arange(40)],
        [[0, 0, 1, 2], [-1, 2, 3, 4], [60, 1, 2, 3], "x", 3, [0.5, 1, 2, 3], [], [[0, 1, 2, 3]]],
    ),
    "selection": (["random", "maxmin", "kmeans++"], ["x", None, 3, ["random"]]),
    "metric": (["precomputed"], ["x", "", "Euclidean!", None, 3, ["euclidean"]]),
    "metric_params": ([None, {}], [{"p": 3}, 5, "x"]),
    "refine": (["none", "panel", "full"], ["x", None, 3, True, ["none"]]),
    "n_init": ([1, 3], [0, -1, None, "x", 1.5, True]),
    "closed_form": (["least_squares", "classical"], ["x", None, 3]),
    "evaluate": ([True, False], []),
    "random_state": PARAMETERS["random_state"],
    "dtype": PARAMETERS["dtype"],
    "memory_limit": ([None, "1 GiB", 10**9], PARAMETERS["memory_limit"][1]),
    "n_jobs": PARAMETERS["n_jobs"],
}


def landmark_parameters(choose: Chooser, folder: Path) -> str:
    """``LandmarkMDS`` with any parameters."""
    t = small_matrix(60)
    found, verdict = chosen(choose, LANDMARK_PARAMETERS)
    if found.get("landmarks") is not None or found.get("refine") == "panel":
        verdict = worse(verdict, Verdict.EITHER)
    mds = LandmarkMDS(**{"random_state": 0, "n_landmarks": None if "landmarks" in found else 20, **found})

    def call() -> None:
        mds.fit(t)
        require_right_map(t, str(np.dtype(mds.dtype)), mds.embedding_, _exact_figures(mds), bound=1.0)

    return judged(call, verdict, f"landmark parameters {found!r}")


def _exact_figures(mds: LandmarkMDS) -> dict[str, float]:
    return figures(mds) if mds.stress_is_exact_ else {}


MANY = 24
"""Number of points from which on only some are landmarks."""


def landmark_fit(choose: Chooser, folder: Path) -> str:
    """``LandmarkMDS.fit`` on any matrix."""
    given = matrices.matrix(choose, folder)
    rows = seldom(choose, "float32", ["float64"])
    refine = choose.pick(["none", "none", "panel", "full"])
    own = on_landmarks(given, rows)
    if refine == "panel":
        own = worse(own, Verdict.EITHER)  # small matrices have no held-out pairs
    mds = LandmarkMDS(
        dtype=rows, refine=refine, random_state=0, n_init=2, n_landmarks=None if n_of(given) < MANY else 16
    )

    def call() -> None:
        mds.fit(given.value)
        if np.isfinite(np.asarray(given.array, float)).all() and not np.ma.is_masked(given.value):
            require_right_map(given.array, rows, mds.embedding_, _exact_figures(mds), bound=np.inf)
        assert np.isfinite(mds.embedding_).all()

    return judged(call, own, f"{given.story}, rows {rows}, refine {refine}")


def landmark_places(choose: Chooser, folder: Path) -> str:
    """The message names the position of an invalid entry in the matrix or panel, with its id."""
    n, value = choose.pick([30, 12, 60]), choose.pick([-1.0, np.inf, -np.inf, -1e-3])
    random = np.random.default_rng(choose.number(0, 9999))
    t = squareform(pdist(random.normal(size=(n, 3))))
    sites = random.permutation(n)[: choose.pick([8, n // 2, 11])]
    i, s = choose.number(0, n - 1), choose.number(0, sites.size - 1)
    if i == sites[s]:
        i = (i + 1) % n
    names = choose.pick([None, [f"p{k}" for k in range(n)]])
    if choose.pick([True, False]):
        given = t.astype(choose.pick(["f4", "f8"]))
        given[i, sites[s]] = given[sites[s], i] = value
        places = [(a, b) for a, b in ((sites[s], i), (i, sites[s])) if a in sites]
    else:
        given = np.array(t[:, sites], order=choose.pick(["C", "F"]))
        given[i, s] = value
        places = [(i, s)]
    frame = given if names is None else matrices.Frame(given, names, names[: given.shape[1]])
    story = f"{given.shape} with {value:g} at {(i, s)}, landmarks {sites.tolist()}, names {names is not None}"

    def call() -> None:
        try:
            LandmarkMDS(landmarks=sites.tolist(), random_state=0).fit(frame)
        except InputError as error:
            _require_place(str(error), places, names)
            raise

    return judged(call, Verdict.REFUSED, story)


def _require_place(text: str, places: list[tuple[int, int]], names: list[str] | None) -> None:
    """Assert that a message names one of the given positions, and the id of its row."""
    found = re.search(r"row (\d+)(?: \(id '(\w+)'\))?, column (\d+)", text)
    assert found, f"no place in {text!r}"
    row, name, column = int(found[1]), found[2], int(found[3])
    assert (row, column) in places, f"{text!r}, but it is at {places}"
    assert name == (None if names is None else names[row]), f"another id in {text!r}"


def n_of(given: matrices.Given) -> int:
    """Number of points of an array; None for other objects."""
    return len(given.array) if isinstance(given.array, np.ndarray) and given.array.ndim else 0


def on_landmarks(given: matrices.Given, rows: str) -> Verdict:
    """Verdict on a matrix for landmark mode, which has its own rules for missing pairs and degenerate data."""
    verdict = given.judged(rows)
    a = given.array
    if not isinstance(a, np.ndarray) or a.dtype.kind not in "fiu" or squared(a) is None:
        return verdict
    values = squared(a)
    holes = np.isnan(values).any() or getattr(given.value, "mask", None) is not None
    several = values.size and len(np.unique(values[np.isfinite(values)])) > 2 and len(values) > 4
    if a.dtype.itemsize == 2 or 0 < np.abs(values.diagonal()).max(initial=0) < 1e-3 * np.abs(values).max(initial=0):
        return Verdict.EITHER  # rounding may move landmarks off their line or away from zero
    if verdict is Verdict.RIGHT:
        return Verdict.RIGHT if several and a.ndim == 2 else Verdict.EITHER
    unread = len(values) >= MANY  # rows of points that are not landmarks
    return Verdict.EITHER if holes or unread or a.ndim == 1 else verdict


def landmark_points(choose: Chooser, folder: Path) -> str:
    """``LandmarkMDS(metric=...).fit`` on points, ``transform``, ``save`` and ``load``."""
    n = seldom(choose, 30, [60, 12, 5, 3, 2, 1, 0])
    x = matrices.points(choose, n) * 10.0 ** seldom(choose, 0, [6, -6, 30, -30, 150, -150, 300])
    size = np.abs(x).max(initial=0)
    metric = choose.pick(
        [
            "euclidean",
            "cityblock",
            "cosine",
            "sqeuclidean",
            "seuclidean",
            "mahalanobis",
            "jaccard",
            "hamming",
            "nonsense",
        ]
    )
    spoil = seldom(choose, "none", ["nan", "inf", "text", "flat", "complex", "no columns", "masked"], 5)
    x = {
        "nan": lambda: np.where(x == x.flat[0] if x.size else x, np.nan, x),
        "inf": lambda: x + np.inf,
        "text": lambda: x.astype(str),
        "flat": lambda: x.ravel(),
        "complex": lambda: x * 1j,
        "no columns": lambda: x[:, :0],
        "masked": lambda: np.ma.array(x, mask=x == x),
    }.get(spoil, lambda: x)()
    valid = spoil == "none" and metric in ("euclidean", "cityblock") and n >= 12 and _several(x)
    wrong = spoil in ("inf", "text", "flat", "complex", "no columns") or metric == "nonsense" or n < 3
    verdict = Verdict.RIGHT if valid else Verdict.REFUSED if wrong else Verdict.EITHER
    mds = LandmarkMDS(metric=metric, n_landmarks=choose.pick([None, min(12, max(1, n))]), random_state=0, n_init=1)

    def call() -> None:
        mds.fit(x)
        assert mds.embedding_.shape == (n, 2)
        assert np.isfinite(mds.embedding_).all()
        mds.save(folder / "model")
        loaded = LandmarkMDS.load(folder / "model")
        assert np.array_equal(loaded.embedding_, mds.embedding_)
        placed = mds.transform(x[:5])
        assert np.array_equal(placed, loaded.transform(x[:5]))
        assert np.array_equal(placed[2:3], mds.transform(x[2:3]))

    return judged(
        call,
        verdict,
        f"points n={n}, {metric}, {spoil}, size {size:.3g}",
    )


def _several(x: np.ndarray) -> bool:
    """Whether points have a normal size and spread, so that any landmarks must work."""
    return bool(
        1e-10 < np.abs(x).max(initial=0) < 1e10
        and np.linalg.matrix_rank(x) >= 2
        and len(np.unique(x, axis=0)) == len(x)
    )


_MODEL: dict[str, LandmarkMDS] = {}


def _model(kind: str) -> LandmarkMDS:
    if kind not in _MODEL:
        x = np.random.default_rng(3).normal(size=(50, 3))
        if kind == "points":
            _MODEL[kind] = LandmarkMDS(metric="euclidean", n_landmarks=15, random_state=0, n_init=1).fit(x)
        else:
            _MODEL[kind] = LandmarkMDS(n_landmarks=15, random_state=0, n_init=1).fit(squareform(pdist(x)))
    return _MODEL[kind]


def transform(choose: Chooser, folder: Path) -> str:
    """``LandmarkMDS.transform`` with any input."""
    kind = choose.pick(["points", "matrix"])
    mds = _model(kind)
    width = 3 if kind == "points" else 15
    random = np.random.default_rng(choose.number(0, 99))
    x = np.abs(random.normal(1, 0.3, (choose.pick([4, 1, 2]), width)))
    with np.errstate(over="ignore"):
        kinds = {
            "plain": (x, Verdict.RIGHT),
            "float32": (x.astype("f4"), Verdict.RIGHT),
            "float16": (x.astype("f2"), Verdict.RIGHT),
            "integers": ((x * 10).astype(int), Verdict.RIGHT),
            "Fortran": (np.asfortranarray(x), Verdict.RIGHT),
            "list": (x.tolist(), Verdict.RIGHT),
            "swapped": (x.astype(">f8"), Verdict.RIGHT),
            "reversed": (x[::-1], Verdict.RIGHT),
            "longdouble": (x.astype(np.longdouble), Verdict.RIGHT),
            "bool": (x > 1, Verdict.RIGHT if kind == "points" else Verdict.REFUSED),
            "complex": (x * 1j, Verdict.REFUSED),
            "text": (x.astype(str), Verdict.REFUSED),
            "object": (x.astype(object), Verdict.REFUSED),
            "dates": (x.astype(int).astype("M8[s]"), Verdict.REFUSED),
            "one short": (x[:, :-1], Verdict.REFUSED),
            "flat": (x[0], Verdict.REFUSED),
            "cube": (x[None], Verdict.REFUSED),
            "None": (None, Verdict.REFUSED),
            "inf": (x + np.inf, Verdict.REFUSED),
            "nan": (x * np.nan, Verdict.REFUSED),
            "ragged": ([[1.0, 2.0], [3.0]], Verdict.REFUSED),
            "negative": (-x, Verdict.RIGHT if kind == "points" else Verdict.REFUSED),
            "empty": (x[:0], Verdict.EITHER),
            "zeros": (x * 0, Verdict.RIGHT),
            "1e6": (x * 1e6, Verdict.RIGHT),
            "1e300": (x * 1e300, Verdict.EITHER),
            "1e30": (x * 1e30, Verdict.EITHER),
            "1e-300": (x * 1e-300, Verdict.RIGHT),
            "one hole": (
                np.where(np.arange(width) == 1, np.nan, x),
                Verdict.REFUSED if kind == "points" else Verdict.RIGHT,
            ),
            "mask": (
                np.ma.array(x, mask=np.broadcast_to(np.arange(width) == 1, x.shape)),
                Verdict.REFUSED if kind == "points" else Verdict.RIGHT,
            ),
        }
    name = choose.pick(list(kinds))
    given, verdict = kinds[name]

    def call() -> None:
        placed = mds.transform(given)
        assert placed.shape == (len(given), 2)
        assert np.isfinite(placed).all(), "places are not finite"
        for k in range(len(given)):
            assert np.array_equal(placed[k : k + 1], mds.transform(given[k : k + 1])), "rows depend on each other"

    return judged(call, verdict, f"transform {name} of {kind}")


def ingest(choose: Chooser, folder: Path) -> str:
    """``build`` of a matrix in a file with any options, and reading the store."""
    given = matrices.matrix(choose, folder, [])
    a = given.array
    if a.dtype.kind in "O" or a.dtype.names:
        return "refused" if _saved(a, folder) is None else "right"
    place = _saved(a, folder)
    dtype, symmetrize, zero = (
        choose.pick(["float32", "float64"]),
        choose.pick([False, True]),
        choose.pick([False, True]),
    )
    names, ids_good = ids_of(choose, len(a) if a.ndim else 0)
    verdict = on_matrix(a, dtype, 0)
    if (symmetrize or zero) and verdict is not Verdict.RIGHT:
        verdict = Verdict.EITHER  # other tests cover what the options repair
    if not ids_good:
        verdict = Verdict.REFUSED

    def call() -> None:
        with np.errstate(over="ignore"):
            source = open_npy(place, dtype)
        check = build(
            source, folder / "store", InProcessExecutor(), ids=names, symmetrize=symmetrize, zero_diagonal=zero
        )
        rows = open_rows(folder / "store")
        found = np.empty((rows.n, rows.n), rows.dtype)
        rows.read(0, rows.n, found)
        expected = squared(a).astype(dtype)
        if not symmetrize and not zero:
            assert np.array_equal(found, expected), "other numbers than in the file"
        assert rows.ids == (None if names is None else [str(name) for name in names])
        assert np.isfinite(check.rms)

    return judged(
        call,
        verdict,
        f"{given.story}, to {dtype}, symmetrize {symmetrize}, zero diagonal {zero}, ids {names and names[:3]}",
    )


def _saved(a: np.ndarray, folder: Path) -> Path | None:
    np.save(folder / "matrix.npy", a, allow_pickle=True)
    try:
        open_npy(folder / "matrix.npy")
    except ValueError:
        if a.dtype.kind in "O" or a.dtype.names:
            return None
    return folder / "matrix.npy"


def ids_of(choose: Chooser, n: int) -> tuple[list[Any] | None, bool]:
    """Names of points, and whether they are valid."""
    good = [f"point {k}, é\t\u2603" for k in range(n)]
    kinds: dict[str, tuple[Any, bool]] = {
        "none": (None, True),
        "good": (good, True),
        "numbers": (list(range(n)), True),
        "short": (good[:-1], n == 0),
        "long": ([*good, "more"], False),
        "twice": ([*good[:-1], *good[:1]], n == 1),
        "empty": (["", *good[1:]], n == 0),
    }
    return kinds[seldom(choose, "none", list(kinds))]


def points(choose: Chooser, folder: Path) -> str:
    """``open_points`` and ``build`` with any metric."""
    n = seldom(choose, 20, [8, 3, 2, 1, 0])
    x = matrices.points(choose, n) * 10.0 ** seldom(choose, 0, [6, -6, 30, -30, 150, -150, 300])
    x = matrices.laid_out(
        matrices.cast(x, seldom(choose, "float64", [*matrices.NUMERIC, "bool", "complex64", "str"])),
        choose.pick(matrices.LAYOUTS[:6]),
        folder,
    )
    metric = choose.pick(
        [
            "euclidean",
            "cityblock",
            "cosine",
            "correlation",
            "minkowski",
            "chebyshev",
            "seuclidean",
            "mahalanobis",
            "nonsense",
            "",
            "jaccard",
        ]
    )
    spoil = seldom(choose, "none", ["nan", "flat", "no columns"], 6)
    if spoil == "nan" and x.size and x.dtype.kind == "f":
        x = x.copy()
        x[0, 0] = np.nan
    x = {"flat": x.ravel(), "no columns": x[:, :0]}.get(spoil, x)
    np.save(folder / "points.npy", x)
    size = float(np.abs(x.astype(float)).max(initial=0)) if x.dtype.kind in "fiu" else 0
    plain = spoil == "none" and metric in ("euclidean", "cityblock", "chebyshev") and n >= 3 and x.dtype.kind in "fiu"
    valid = plain and 1e-15 < size < 1e15 and len(np.unique(x, axis=0)) > 1
    wrong = spoil in ("flat", "no columns") or metric in ("nonsense", "") or n < 3 or x.dtype.kind in "cU"
    verdict = Verdict.RIGHT if valid else Verdict.REFUSED if wrong else Verdict.EITHER

    def call() -> None:
        source = open_points(folder / "points.npy", metric)
        build(source, folder / "store", InProcessExecutor(), metric=metric)
        rows = open_rows(folder / "store")
        found = np.empty((n, n), "f4")
        rows.read(0, n, found)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        if plain:
            expected = squareform(pdist(np.asarray(x, float), metric)).astype("f4")
            np.testing.assert_allclose(found, expected, rtol=1e-6)

    return judged(call, verdict, f"points n={n}, {x.dtype}, {metric}, {spoil}, size {size:.3g}")


def quality(choose: Chooser, folder: Path) -> str:
    """``measure``, ``quality`` and ``canonical`` with any map."""
    t = small_matrix() * 10.0 ** choose.pick([0, 6, -6])
    x = np.random.default_rng(choose.number(0, 99)).normal(size=(20, choose.pick([2, 1, 3, 7])))
    with np.errstate(over="ignore"):
        kinds = {
            "plain": (x, Verdict.RIGHT),
            "zeros": (x * 0, Verdict.RIGHT),
            "list": (x.tolist(), Verdict.RIGHT),
            "float16": (x.astype("f2"), Verdict.RIGHT),
            "Fortran": (np.asfortranarray(x), Verdict.RIGHT),
            "shifted": (x + 1e6, Verdict.RIGHT),
            "1e30": (x * 1e30, Verdict.RIGHT),
            "1e200": (x * 1e200, Verdict.REFUSED),
            "nan": (x * np.nan, Verdict.REFUSED),
            "few": (x[1:], Verdict.REFUSED),
            "flat": (x.ravel(), Verdict.REFUSED),
            "no axes": (x[:, :0], Verdict.REFUSED),
            "text": ("x", Verdict.REFUSED),
            "None": (None, Verdict.REFUSED),
            "complex": (x * 1j, Verdict.REFUSED),
            "cube": (x[None], Verdict.REFUSED),
            "too many axes": (np.zeros((20, 20)), Verdict.REFUSED),
            "ragged": ([[1, 2], [3]], Verdict.REFUSED),
        }
    name = choose.pick(list(kinds))
    given, verdict = kinds[name]

    def call() -> None:
        stress = measure(ArrayRows(t), given, InProcessExecutor())
        require_right_map(t, "float32", np.asarray(given, float), vars(stress), bound=np.inf)
        measures = psmds_dist.quality(t, given)
        np.testing.assert_allclose(measures.normalized_stress, stress.normalized_stress, rtol=1e-9)
        assert 0 <= measures.trustworthiness <= 1
        assert 0 <= measures.continuity <= 1
        turned = canonical(np.asarray(given, float))
        np.testing.assert_allclose(pdist(turned), pdist(np.asarray(given, float)), rtol=1e-6, atol=1e-6)

    return judged(call, verdict, f"quality of {name}")


def results(choose: Chooser, folder: Path) -> str:
    """Write and read a result; existing files are not lost."""
    t = small_matrix(12, choose.number(0, 9))
    mds = PatternSearchMDS(choose.pick([2, 1, 3]), random_state=0, max_epochs=choose.pick([5, 0, 500])).fit(t)
    there = choose.pick(
        [
            "nothing",
            "an empty directory",
            "a result",
            "a file",
            "a store",
            "a directory",
            "no directory above",
            "under a file",
        ]
    )
    overwrite = choose.pick([False, True])
    target = folder / "map"
    if there == "an empty directory":
        target.mkdir()
    elif there == "a result":
        PatternSearchMDS(random_state=1).fit(small_matrix(8)).save(target)
    elif there == "a file":
        target.write_text("mine")
    elif there == "a store":
        np.save(folder / "m.npy", t)
        build(open_npy(folder / "m.npy"), target, InProcessExecutor())
    elif there == "a directory":
        (target / "mine").mkdir(parents=True)
    elif there == "no directory above":
        target = folder / "a" / "b" / "map"
    elif there == "under a file":
        (folder / "f").write_text("mine")
        target = folder / "f" / "map"
    good = there in ("nothing", "an empty directory", "no directory above") or (there == "a result" and overwrite)
    before = snapshot(folder)

    def call() -> None:
        mds.save(target, overwrite=overwrite)
        found = read_result(target)
        assert np.array_equal(found.embedding, mds.embedding_)
        assert np.array_equal(found.history, mds.history_)
        assert found.stress.mse == mds.mse_
        assert np.array_equal(found.stress.point_stress, mds.point_stress_)

    how = judged(call, Verdict.RIGHT if good else Verdict.REFUSED, f"saving over {there}, overwrite {overwrite}")
    if not good and snapshot(folder) != before:
        raise FuzzFailure(f"saving over {there}: what was there has changed")
    return how


def snapshot(folder: Path) -> dict[str, bytes]:
    """Contents of a directory."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def names(choose: Chooser, folder: Path) -> str:
    """``read_ids`` with any file."""
    n = 6
    good = [f"n{k}" for k in range(n)]
    kinds: dict[str, tuple[str, Any, Verdict]] = {
        "lines": ("ids.txt", "\n".join(good), Verdict.RIGHT),
        "csv": ("ids.csv", "id,x\n" + "\n".join(f"{g},1" for g in good), Verdict.RIGHT),
        "tsv": ("ids.tsv", "\n".join(f"{g}\t1" for g in good), Verdict.RIGHT),
        "npy": ("ids.npy", np.array(good), Verdict.RIGHT),
        "bytes npy": ("ids.npy", np.array(good, "S"), Verdict.RIGHT),
        "bom": ("ids.txt", "\ufeff" + "\n".join(good), Verdict.RIGHT),
        "windows": ("ids.txt", "\r\n".join(good) + "\r\n", Verdict.RIGHT),
        "short": ("ids.txt", "a\nb", Verdict.REFUSED),
        "twice": ("ids.txt", "\n".join(["a"] * n), Verdict.REFUSED),
        "empty": ("ids.txt", "", Verdict.REFUSED),
        "numbers npy": ("ids.npy", np.arange(n), Verdict.REFUSED),
        "not utf-8": ("ids.txt", b"\xff\xfe\x00\n" * n, Verdict.REFUSED),
        "binary": ("ids.csv", bytes(range(256)), Verdict.REFUSED),
        "nul": ("ids.csv", b"\x00\n" * n, Verdict.REFUSED),
        "no npy": ("ids.npy", b"no npy file", Verdict.REFUSED),
        "empty npy": ("ids.npy", b"", Verdict.REFUSED),
        "pickle": ("ids.npy", np.array([{}] * n), Verdict.REFUSED),
        "square npy": ("ids.npy", np.array([good]), Verdict.REFUSED),
        "open quote": ("ids.csv", '"n0\nn1\nn2\nn3\nn4\nn5', Verdict.REFUSED),
        "long field": ("ids.csv", "x" * 200_000, Verdict.REFUSED),
        "not utf-8 npy": ("ids.npy", np.array([b"\xff%d" % k for k in range(n)]), Verdict.REFUSED),
    }
    name = choose.pick(list(kinds))
    file, content, verdict = kinds[name]
    if isinstance(content, np.ndarray):
        np.save(folder / file, content, allow_pickle=True)
    else:
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)

    def call() -> None:
        assert read_ids(folder / file, n) == good

    return judged(call, verdict, f"ids {name}")


ENTRIES = {
    "PatternSearchMDS.fit": fit,
    "PatternSearchMDS parameters": parameters,
    "PatternSearchMDS init": start,
    "scale": scaled,
    "LandmarkMDS.fit": landmark_fit,
    "LandmarkMDS on points": landmark_points,
    "LandmarkMDS parameters": landmark_parameters,
    "LandmarkMDS.transform": transform,
    "LandmarkMDS names places": landmark_places,
    "ingest": ingest,
    "points": points,
    "ids": names,
    "quality": quality,
    "results": results,
}
