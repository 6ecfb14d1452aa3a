"""Entries about gaps, weights, bounds, losses, transformations and pinned points."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform
from sklearn.isotonic import IsotonicRegression

from psmds_dist import PatternSearchMDS, measure
from psmds_dist.core.rules import PairRule
from tests.fuzz.choosing import Chooser, seldom
from tests.fuzz.judging import judged
from tests.fuzz.oracle import Verdict, worse
from tests.pair_costs import Pairs

LOSSES = ["squared", "huber", "log"]
"""Losses of the cases: kernels of each are compiled for half a minute."""


@dataclass(frozen=True)
class Case:
    """What a fit is given, and what it must come to."""

    pairs: Pairs
    rule: PairRule
    parameters: dict[str, Any]
    pinned: np.ndarray | None = None
    verdict: Verdict = Verdict.RIGHT
    story: list[str] = field(default_factory=list)

    def fit(self, **more: Any) -> PatternSearchMDS:
        """Fit an estimator."""
        rule = self.rule
        mds = PatternSearchMDS(
            loss=rule.loss,
            weight_power=rule.power,
            transformation=rule.transformation,
            **{"random_state": 0, "max_epochs": 60, **self.parameters, **more},
        )
        return mds.fit(
            self.pairs.low,
            weights=self.pairs.weights if rule.weighted else None,
            upper=self.pairs.high if rule.bounded else None,
            pinned=self.pinned,
        )


def case_of(choose: Chooser) -> Case:
    """Any valid case, or one whose known pairs do not join all points."""
    n, dims, seed = choose.pick([12, 20, 30, 7, 4]), choose.pick([2, 2, 1, 3]), choose.number(0, 9999)
    random = np.random.default_rng(seed)
    t = squareform(pdist(random.normal(size=(n, 3)))) * 10.0 ** seldom(choose, 0, [6, -6, 12, -12], 5)
    gaps, scale = seldom(choose, 0.0, [0.3, 0.6, 0.9], 2), float(np.sqrt(np.mean(t[t > 0] ** 2)))
    loss, power = seldom(choose, "squared", LOSSES[1:]), seldom(choose, 0, [-1, -2, 1])
    weighted, bounded = seldom(choose, False, [True], 2), seldom(choose, False, [True])
    transformation = seldom(choose, None, ["ratio", "interval", "spline", "ordinal"])
    if transformation is not None:
        loss, power, weighted, bounded = "squared", 0, False, False
    power = 0 if bounded else power
    low, high = t.copy(), t + scale * bounded * _symmetric(random.exponential(size=(n, n)))
    if bounded:
        high[_symmetric(random.random((n, n))) > 0.8] = np.inf
        np.fill_diagonal(high, 0)
    missing = _symmetric(random.random((n, n))) > 1 - gaps
    low[missing] = high[missing] = np.nan
    zero = seldom(choose, 0.0, [0.2, 0.9], 2)
    weights = _symmetric(random.uniform(0.1, 4, (n, n)) * (random.random((n, n)) >= zero))
    rule = PairRule(loss, power=power, weighted=weighted, bounded=bounded, transformation=transformation)
    known = ~missing & ((weights > 0) | (not weighted)) & ~np.eye(n, dtype=bool)
    joined = connected_components(known, directed=False)[0] == 1 and bool((known.any(axis=1)).all())
    if known.any():  # what power laws and thresholds are relative to
        scale = float(np.sqrt(np.mean(low[known] ** 2)))
    pinned, bounds = _region(choose, n, dims, scale, random) if transformation is None else (None, None)
    parameters = {
        "n_components": dims,
        "dtype": choose.pick(["float32", "float64"]),
        "bad_moves": choose.pick([True, True, False]),
        "init": seldom(choose, "auto", ["random", "classical"]),
        "bounds": bounds,
    }
    verdict = Verdict.RIGHT if joined and n > dims else Verdict.REFUSED
    story = [f"seed {seed}, n={n}, gaps {gaps}, zero weights {zero * weighted}, {rule}, {parameters}"]
    return Case(Pairs(low, high, weights, scale), rule, parameters, pinned, verdict, story)


def _symmetric(values: np.ndarray) -> np.ndarray:
    upper = np.triu(values, 1)
    return upper + upper.T


def _region(
    choose: Chooser, n: int, dims: int, scale: float, random: np.random.Generator
) -> tuple[np.ndarray | None, Any]:
    """Pinned coordinates and bounds, usually neither."""
    how = seldom(choose, "free", ["pinned", "bounds", "both"], 3)
    pinned = None
    if how in ("pinned", "both"):
        pinned = np.where(random.random((n, dims)) < 0.3, scale * random.uniform(0, 1, (n, dims)), np.nan)
        pinned[0] = np.nan
    return pinned, (0, 2 * scale) if how in ("bounds", "both") else None


def rules(choose: Chooser, folder: Path) -> str:
    """A fit by any rule: its error, its place, the same bits on one thread and after an interrupt."""
    case = case_of(choose)

    def call() -> None:
        mds = case.fit()
        require_right(case, mds)
        require_same(mds, case.fit(n_jobs=1))
        resumed = interrupted_and_resumed(case, choose.number(1, 4), folder / "kept")
        require_same(mds, resumed)

    return judged(call, case.verdict, "; ".join(case.story))


def interrupted_and_resumed(case: Case, epoch: int, folder: Path) -> PatternSearchMDS:
    """A fit that was interrupted after an epoch, of any of its solves, and went on."""

    def interrupt(event: Any) -> None:
        if event.epoch == epoch:
            raise KeyboardInterrupt

    case.fit(checkpoint=folder, on_epoch=interrupt)
    return case.fit(checkpoint=folder, resume=True)


def require_same(one: PatternSearchMDS, other: PatternSearchMDS) -> None:
    """Assert that two fits came to the same bits."""
    assert np.array_equal(one.embedding_, other.embedding_), "other bits"
    assert one.normalized_stress_ == other.normalized_stress_, "another stress"
    assert one.stop_reason_ == other.stop_reason_


def require_right(case: Case, mds: PatternSearchMDS) -> None:
    """Assert that a map is where it must be, and that its error is right by formulas."""
    x, pairs, rule = mds.embedding_, case.pairs, case.rule
    n = len(x)
    assert np.isfinite(x).all(), "coordinates are not finite"
    if case.pinned is not None:
        some = ~np.isnan(case.pinned)
        assert np.array_equal(x[some], case.pinned[some]), "a pinned coordinate has moved"
    if (bounds := case.parameters["bounds"]) is not None:
        assert (x >= bounds[0]).all()
        assert (x <= bounds[1]).all(), "a coordinate is out of bounds"
    rows = case.parameters["dtype"]
    given = [values.astype(rows).astype(float) for values in (pairs.low, pairs.high, pairs.weights)]
    if rule.transformation is not None:
        expected = best_stress1(given[0], squareform(pdist(x)), rule.transformation)
        if expected is not None:
            assert abs(mds.stress1_ - expected) <= 1e-5 + 1e-4 * expected, f"{mds.stress1_}, by formula {expected}"
        return
    read = Pairs(*given, pairs.scale)
    weight = read.full_weights(rule).sum()
    expected = read.error(rule, x) / (weight * n / (n - 1))
    unit = pairs.scale ** {"squared": 2, "huber": 2, "log": 0}[rule.loss]
    assert abs(mds.error_ - expected) <= 1e-4 * expected + 1e-8 * unit, f"error {mds.error_}, by formula {expected}"
    told = measure(
        pairs.low,
        x,
        weights=pairs.weights if rule.weighted else None,
        upper=pairs.high if rule.bounded else None,
        loss=rule.loss,
        weight_power=rule.power,
        dtype=rows,
    )
    assert told.error == mds.error_, f"measured {told.error}, fitted {mds.error_}"


def best_stress1(t: np.ndarray, d: np.ndarray, transformation: str) -> float | None:
    """Stress-1 against the best disparities, by regression; None for a spline, whose basis is not told here."""
    known = np.triu(~np.isnan(t), 1)
    t, d = t[known] / np.nanmax(t), d[known]
    if not d.any() or transformation == "spline":
        return None
    if transformation == "ratio":
        fitted = t * ((t @ d) / (t @ t))
    elif transformation == "interval":
        terms = np.column_stack([np.ones_like(t), t])
        fitted = terms @ np.linalg.lstsq(terms, d)[0]
        if np.polyfit(t, d, 1)[0] < 0 or fitted.min() < 0:  # constrained
            return None
    else:
        order = np.lexsort((d, t))
        fitted = np.empty_like(d)
        fitted[order] = IsotonicRegression().fit_transform(np.arange(d.size), d[order])
    return float(np.sqrt(((d - fitted) ** 2).sum() / (d**2).sum()))


SPOILS = {
    "negative weight": ("weights", lambda w: _with(w, -1.0)),
    "missing weight": ("weights", lambda w: _with(w, np.nan)),
    "infinite weight": ("weights", lambda w: _with(w, np.inf)),
    "weights of one order": ("weights", lambda w: _with(w, 9.0, both=False)),
    "no weight at all": ("weights", np.zeros_like),
    "a point without weight": ("weights", lambda w: _without(w, 0.0)),
    "few weights": ("weights", lambda w: w[1:, 1:]),
    "flat weights": ("weights", np.ravel),
    "text for weights": ("weights", lambda w: w.astype(str)),
    "crossed bounds": ("upper", lambda u: _with(u, 0.0)),
    "one bound missing": ("upper", lambda u: _with(u, np.nan)),
    "negative bound": ("upper", lambda u: _with(u, -1.0)),
    "bounds of one order": ("upper", lambda u: _with(u, 99.0, both=False)),
    "few bounds": ("upper", lambda u: u[:-1, :-1]),
    "a gap of one order": ("X", lambda t: _with(t, np.nan, both=False)),
    "a point without pairs": ("X", lambda t: _without(t, np.nan)),
    "an infinite entry": ("X", lambda t: _with(t, np.inf)),
    "a zero under a logarithm": ("log", lambda t: _with(t, 0.0)),
    "a zero under a power": ("power", lambda t: _with(t, 0.0)),
    "bounds and a power": ("bounded power", np.copy),
    "weights and order": ("weighted ordinal", np.copy),
    "pins and order": ("pinned ordinal", np.copy),
    "all pinned": ("pinned", np.zeros_like),
    "infinite pin": ("pinned", lambda p: _with(p, np.inf, both=False)),
    "few pins": ("pinned", lambda p: p[1:]),
    "pin out of bounds": ("bounded pin", lambda p: _with(p, 7.0, both=False)),
    "pins far away": ("pinned", lambda p: _with(p, 1e9, both=False)),
}
"""What can be wrong, by what is spoiled: a matrix, or the options that do not go together."""


def _with(values: np.ndarray, wrong: float, *, both: bool = True) -> np.ndarray:
    found = values.copy()
    found[1, 0] = wrong
    if both:
        found[0, 1] = wrong
    return found


def _without(values: np.ndarray, wrong: float) -> np.ndarray:
    found = values.copy()
    found[2] = found[:, 2] = wrong
    found[2, 2] = 0
    return found


def bad_rules(choose: Chooser, folder: Path) -> str:
    """One thing that is wrong with weights, bounds, gaps, pins, or how they are combined: a sentence."""
    name, n = choose.pick(list(SPOILS)), choose.pick([12, 5, 20])
    what, spoil = SPOILS[name]
    t = squareform(pdist(np.random.default_rng(choose.number(0, 999)).normal(size=(n, 3))))
    given: dict[str, Any] = {"X": t}
    parameters: dict[str, Any] = {"max_epochs": 3, "dtype": choose.pick(["float32", "float64"])}
    pinned = np.full((n, 2), np.nan)
    if what in ("weights", "weighted ordinal"):
        given["weights"] = spoil(np.ones((n, n)))
    elif what in ("upper", "bounded power"):
        given["upper"] = spoil(t + 1)
    elif "pin" in what:
        given["pinned"] = spoil(_with(pinned, 0.5, both=False))
    else:
        given["X"] = spoil(t)
    parameters |= {
        "log": {"loss": choose.pick(["log", "relative"])},
        "power": {"weight_power": choose.pick([-1, -2])},
        "bounded power": {"weight_power": -1},
        "weighted ordinal": {"transformation": choose.pick(["ordinal", "ratio"])},
        "pinned ordinal": {"transformation": choose.pick(["ordinal", "spline"])},
        "bounded pin": {"bounds": (0, 1)},
    }.get(what, {})

    def call() -> None:
        PatternSearchMDS(random_state=0, **parameters).fit(**given)

    return judged(call, Verdict.REFUSED, f"{name}, n={n}, {parameters}")


def rule_parameters(choose: Chooser, folder: Path) -> str:
    """Any values of the parameters that say what a pair costs and where points may be."""
    t = squareform(pdist(np.random.default_rng(0).normal(size=(16, 3))))
    table: dict[str, tuple[list[Any], list[Any]]] = {
        "loss": (LOSSES, [None, "cubic", 3, True, [], np.ones(2)]),
        "weight_power": ([0, -1, 2], [None, "x", 9, -99, float("nan"), float("inf"), True, 1j, [1]]),
        "transformation": ([None, "ordinal", "ratio", "interval", "spline"], ["rank", 3, True, [], ("ordinal",)]),
        "ties": (["primary"], ["tertiary", None, 1, []]),
        "bounds": (
            [None, (0, None), (-9, 9), [(0, 5), (-5, None)], np.array([-8.0, 8.0]), (-np.inf, np.inf)],
            [(1, 0), (0,), 3, "0:1", [(0, 1)] * 3, (np.nan, 1), (0, 0), [[0, 1], [2]], (np.inf, np.inf), {}, (1j, 2)],
        ),
    }
    names = sorted({choose.pick(list(table)) for _ in range(choose.number(1, 3))})
    wrong = choose.pick([*names, None])
    found = {name: choose.pick(table[name][name == wrong]) for name in names}
    alone = (
        wrong
        or found.get("transformation") is None
        or (found.get("loss", "squared") == "squared" and found.get("weight_power", 0) == 0)
    )
    placed = found.get("bounds") is not None and not _unbounded(found["bounds"])
    verdict = Verdict.REFUSED if wrong else Verdict.RIGHT
    if not wrong:
        clash = not alone or (placed and found.get("transformation") is not None)
        verdict = worse(verdict, Verdict.REFUSED if clash else Verdict.RIGHT)

    def call() -> None:
        mds = PatternSearchMDS(random_state=0, max_epochs=30, **found).fit(t)
        assert np.isfinite(mds.embedding_).all()
        assert np.isfinite(mds.error_)

    return judged(call, verdict, f"rule parameters {found!r}")


def _unbounded(bounds: Any) -> bool:
    return isinstance(bounds, tuple) and not np.isfinite(bounds[0] or 0.0) and not np.isfinite(bounds[1] or 0.0)


def compile_rules() -> None:
    """Compile the kernels of all cases, or load them from disk."""
    t = squareform(pdist(np.random.default_rng(0).normal(size=(12, 3))))
    pinned = np.full((12, 2), np.nan)
    pinned[0] = 0.0
    for dtype in ("float32", "float64"):
        for loss in LOSSES:
            case = Case(Pairs(t, t, np.ones_like(t), 1.0), PairRule(loss, weighted=True), {"dtype": dtype}, None)
            case.fit()
            replace(case, pinned=pinned).fit()
        for transformation in ("ratio", "ordinal"):
            PatternSearchMDS(transformation=transformation, dtype=dtype, random_state=0, n_init=1).fit(t)


ENTRIES = {"rules": rules, "bad rules": bad_rules, "rule parameters": rule_parameters}
