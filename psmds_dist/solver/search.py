"""The search for the map of a small matrix: many starts of several kinds, and hops from the best map found.

No start is right for all data: classical scaling misses what it cannot see, random starts fold, and both miss the
swap of a few points. So a small matrix, on which a whole descent takes milliseconds, gets some of each kind, and then
*hops* (basin hopping): the points of the best map are shaken by a search that begins with a large radius, and the
result is kept where it is better. Where starts do not agree, a map with an axis more is squeezed flat as well
(`psmds_dist.solver.lifting`), which often is better than all of them. Threads share the starts of a round; what is
found depends on none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from psmds_dist.core.config import GUIDED_FROM, RADIUS_TOL
from psmds_dist.core.rng import RandomStream, generator
from psmds_dist.core.rules import PLAIN, PairRule
from psmds_dist.core.stress import disparity
from psmds_dist.core.types import Floats, Ints, Rows
from psmds_dist.kernels.jit import current_threads
from psmds_dist.kernels.pairs import DescentPlan, PairKernels, kernels_of
from psmds_dist.solver.checkpoint import NO_CHECKPOINT, CheckpointStream
from psmds_dist.solver.lifting import flattened, lifted
from psmds_dist.solver.parts import Links, known_pairs, turned, weak_parts
from psmds_dist.solver.schedule import uniform_half
from psmds_dist.solver.state_file import Arrays

ROUND = 8
"""Descents of a round, which threads share."""

WORK = 9e8
"""Points cubed times dimensions times descents: small matrices get many, which take no time there."""

FEWEST, MOST = ROUND, 24 * ROUND
"""Bounds of the number of descents."""

SHARES = {"quick": 0.0, "default": 1.0, "best": 20.0}
"""Work of each effort, as a multiple of the default's; none leaves the start from classical scaling alone."""

CLASSICAL_RADII = (0.1, 0.3)
"""First radii of descents from classical scaling, as shares of the root mean square dissimilarity: to settle it, and
to leave its basin. Random starts begin with a radius of 1."""

HOP_RADII = (0.3, 0.6, 0.15, 1.0)
"""First radii of hops that shake all points, every other one."""

MOVED, MOVED_RADIUS = 0.02, 0.1
"""Share of the points that the other hops put elsewhere, of three times as many of the highest stress, and the first
radius after that, or after a squeeze."""

EPS, SETTLED = 1e-3, 0.05
"""A descent halves its radius where an epoch gains less, and ends at this share of the residuals."""

MAX_EPOCHS = 200
"""Most epochs of a descent."""

SWEEPS, GUIDED_SWEEPS = 10, 150
"""Sweeps of majorization that end a descent; from `GUIDED_FROM` dimensions on they are all of it, for there moves along
axes take long and few maps are traps."""

RELAXATION = 1.8
"""Length of a step of majorization; sweeps converge several times as fast as with 1."""

SAME_STRESS, SAME_SHAPE = 2e-3, 1e-2
"""Share of the stress, and Procrustes disparity, within which two descents found the same map."""

NEGLIGIBLE = 1e-4
"""Stress that is as good as none: descents come that near to 0 where a map fits exactly."""

ENOUGH = 3
"""Fewest starts that have to find the best map until the search ends early; they have to be half of all, too: three of
forty found a map of wine that is 0.5 % worse than the best."""


class Squeeze(NamedTuple):
    """A hop from the map of classical scaling with an axis more, which is squeezed flat."""

    most_points: int
    sweeps: int
    noise: bool
    """Whether the axis is noise, not the next one of classical scaling: some data want the one, some the other."""

    again: bool
    """Whether it is for searches in which the one before paid, or no two starts are as good."""

    more_than: int = 0
    """Points that there are more of."""

    hops: int = 0
    """Fewest hops of searches that have it."""


SQUEEZES = (
    Squeeze(1000, 100, noise=False, again=False),
    Squeeze(500, 250, noise=True, again=True),
    Squeeze(2000, 1000, noise=True, again=False, more_than=1000, hops=5 * ROUND),
)
"""The first two lead 400 points with outliers to a stress of 0.1162, where forty starts end at 0.118 at best. The
third, as long as thirty descents, leads 1,797 digits to 0.32685 from five axes of noise of six; 80 starts and 80 hops
end at 0.32681 to 0.32693."""


class Descent(NamedTuple):
    """What one descent begins with."""

    name: str
    x: Floats
    radius: float


@dataclass(frozen=True)
class Evidence:
    """What the starts of a search say about its map.

    Attributes
    ----------
    stresses : (starts,) ndarray
        Normalised stress that each start reached before the best map was settled; of other losses than the squared
        error, the root of the mean cost.
    best : float
        The lowest, of starts and hops.
    found : int
        How many starts ended at the map that is returned.
    hops : int
        Hops tried after the starts.
    """

    stresses: Floats
    best: float
    found: int
    hops: int

    @property
    def starts(self) -> int:
        """Number of independent starts."""
        return len(self.stresses)

    @property
    def agree(self) -> bool:
        """Whether so many starts found the map that others would hardly find a better one."""
        return self.found >= max(ENOUGH, self.starts / 2)

    @classmethod
    def of(cls, stresses: Sequence[float]) -> Self:
        """Evidence of whole solves, whose maps are the same where their stress is."""
        known = np.array(stresses)
        best = float(np.fmin.reduce(known))  # an interrupted solve may not know its own
        return cls(known, best, int(np.count_nonzero(known <= _as_good(best))), 0)

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, for a checkpoint."""
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, saved: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of `as_arrays`."""
        return cls(saved["stresses"], float(saved["best"]), int(saved["found"]), int(saved["hops"]))

    def as_dict(self) -> dict[str, float | str]:
        """A few plain figures, for records."""
        spread = {"lowest": self.stresses.min(), "median": np.median(self.stresses), "highest": self.stresses.max()}
        counts = {"starts": self.starts, "found_this_map": self.found, "hops": self.hops}
        return {**counts, **{name: float(value) for name, value in spread.items()}, "agreement": self.describe()}

    def describe(self) -> str:
        """One sentence on how the starts agree; empty where there was one, or the stress is unknown."""
        if self.starts == 1 or math.isnan(self.best):
            return ""
        bound = _as_good(self.best)
        more = int(np.count_nonzero(self.stresses <= bound)) - self.found
        others = f", {more} more found one as good" if more else ""
        rest = self.stresses[self.stresses > bound]
        worse = f"; the next best {self._compare(float(rest.min()))}" if rest.size else ""
        hopped = self.hops and not self.found
        told = f"{self.found} of {self.starts} starts found this map"
        return f"{f'a hop found this map, none of {self.starts} starts did' if hopped else told}{others}{worse}"

    def _compare(self, stress: float) -> str:
        if self.best <= NEGLIGIBLE:  # a share of nothing tells nothing
            return f"has a stress of {stress:.2g}"
        return f"is {stress / self.best - 1:.1%} worse"


def _as_good(best: float) -> float:
    """Highest stress that is as good as the best."""
    return max((1 + SAME_STRESS) * best, NEGLIGIBLE)


class Found(NamedTuple):
    """The outcome of a search."""

    name: str
    """Kind of the start that led to the map."""

    x: Floats
    """Coordinates ``(n, L)``, in units of the scale."""

    stress: float
    evidence: Evidence


def descents_of(n: int, n_components: int, effort: str) -> int:
    """Descents that a search may have, starts and hops."""
    share = SHARES[effort]
    fewest = FEWEST + ROUND // 2 * len(_squeezes(n)) if n_components < GUIDED_FROM else 2
    usual = WORK / (n**3 * n_components)
    return max(1, round(share * min(MOST, max(fewest, usual))))


def search(
    rows: Rows,
    classical: Floats,
    seed: int,
    *,
    descents: int,
    starts: int | None = None,
    early: bool = True,
    rule: PairRule = PLAIN,
    stream: CheckpointStream = NO_CHECKPOINT,
    on_progress: Callable[[int, int], object] | None = None,
) -> Found:
    """Search for the map of lowest stress.

    Parameters
    ----------
    rows : (n, k n) float32
        Dissimilarities, or bounds, as multiples of their root mean square, with a zero diagonal; then weights.
    classical : (n, L + 1) ndarray
        Map by classical scaling, in the same units, with an axis more than the map is to have.
    seed : int
        Key of all random numbers.
    descents : int
        Most descents.
    starts : int, optional
        Starts among them; half by default. Hops use the rest, below `GUIDED_FROM` dimensions.
    early : bool
        Whether the search ends where its starts agree.
    rule : PairRule
        What a pair costs, and what rows hold.
    stream : CheckpointStream
        Where the search is saved between rounds, also when it is interrupted, and from where it goes on.
    on_progress : callable, optional
        Called after each round with the number of descents so far and the most there can be.
    """
    pool = _Pool(rows, seed, classical.shape[1] - 1, rule)
    if (saved := stream.last()) is not None:
        pool.restore(saved)
    most = starts or max(1, -(-descents // 2))
    hops = 0 if starts or pool.sweeps_only else descents - most  # sweeps alone leave no basin
    squeezes = _squeezes(len(rows), hops) if hops and rule.least_squares else []
    steps: list[Callable[[], None]] = [
        *(partial(pool.start, classical, wanted, starts is None and early) for wanted in _rounds(most)),
        pool.turn,
        *(partial(pool.squeeze, classical, squeeze) for squeeze in squeezes),
        *(partial(pool.hop, wanted) for wanted in _rounds(hops - len(squeezes))),
        pool.recall,
    ]
    kept: _Pool | None = None
    try:
        for number, step in enumerate(steps, 1):
            if number > pool.done:
                step()
                pool.done = number
                kept = pool.copy()
                stream.save(number, kept.as_arrays)
                if on_progress is not None:
                    on_progress(pool.count, descents)
    except KeyboardInterrupt:
        if kept is not None:
            stream.save(kept.done, kept.as_arrays, now=True)
        raise
    return pool.outcome()


def _rounds(count: int) -> Iterator[range]:
    """Numbers below ``count``, a round at a time."""
    for lo in range(0, count, ROUND):
        yield range(lo, min(count, lo + ROUND))


def _squeezes(n: int, hops: int = 0) -> list[Squeeze]:
    """Squeezes that a search of ``n`` points and so many hops may have."""
    return [one for one in SQUEEZES if one.more_than < n <= one.most_points and hops >= one.hops]


def _dealt(count: int, threads: int) -> Ints:
    """Order of descents, of which threads take contiguous shares; neighbours, which take about as long, are dealt."""
    return np.argsort(np.arange(count) % threads, kind="stable")


def _starts(classical: Floats, seed: int, which: Sequence[int]) -> Iterator[Descent]:
    """Starts of the given numbers: the first ones from classical scaling, the others random."""
    flat = classical.T[:-1]
    half = uniform_half(len(flat))
    for k in which:
        if k < len(CLASSICAL_RADII):
            yield Descent("classical", flat, CLASSICAL_RADII[k])
        else:
            draw = generator(seed, RandomStream.SEARCH_STARTS, k)
            yield Descent("random", draw.uniform(-half, half, flat.shape), 1.0)


_NUMBERS = ("stress", "count", "hops", "agreed", "pays", "done")
"""Numbers that a pool saves."""


_MAPS = ("near", "aside")
"""Maps with their stress that it saves."""


@dataclass
class _Pool:
    """Descents so far."""

    rows: Rows
    seed: int
    dims: int
    rule: PairRule = PLAIN
    stresses: list[float] = field(default_factory=list)
    near: list[tuple[float, Floats]] = field(default_factory=list)
    best: Descent | None = None
    stress: float = math.inf
    count: int = 0
    hops: int = 0
    agreed: bool = False
    """Whether the starts agree, so that no more of them are needed, nor hops."""

    pays: bool = False
    """Whether the last squeeze found a much better map."""

    aside: list[tuple[float, Floats]] = field(default_factory=list)
    """Squeezed maps that are only a little better than the best of the starts, with their stress. Hops begin there all
    the same, for they leave a squeezed map less often."""

    done: int = 0
    """Steps of the search that are done."""

    @property
    def _best(self) -> Descent:
        assert self.best is not None
        return self.best

    @property
    def scattered(self) -> bool:
        """Whether no two starts are as good as the best."""
        return sum(stress <= _as_good(min(self.stresses)) for stress in self.stresses) < 2

    @property
    def sweeps_only(self) -> bool:
        """Whether descents are majorization alone, which is for squared errors."""
        return self.dims >= GUIDED_FROM and self.rule.least_squares

    @property
    def _kernels(self) -> PairKernels:
        return kernels_of(self.rule, 1.0)

    @property
    def _plan(self) -> DescentPlan:
        """How descents proceed."""
        if self.sweeps_only:
            return DescentPlan(EPS, RADIUS_TOL, SETTLED, 0, GUIDED_SWEEPS, RELAXATION)
        settled, sweeps = (SETTLED, SWEEPS) if self.rule.least_squares else (0.0, 0)
        return DescentPlan(EPS, RADIUS_TOL, settled, MAX_EPOCHS, sweeps, RELAXATION)

    def copy(self) -> Self:
        """What is known now, whatever is found later."""
        return replace(self, stresses=[*self.stresses], aside=[*self.aside])

    def as_arrays(self) -> Arrays:
        """All that is known, for a checkpoint."""
        return {
            "start_stresses": np.array(self.stresses),
            **{f"{name}_stresses": np.array([stress for stress, _ in getattr(self, name)]) for name in _MAPS},
            **{name: np.array([x for _, x in getattr(self, name)]) for name in _MAPS},
            "name": np.array(self._best.name),
            "x": self._best.x,
            **{name: np.asarray(getattr(self, name)) for name in _NUMBERS},
        }

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `as_arrays` returned."""
        self.stresses = saved["start_stresses"].tolist()
        for name in _MAPS:
            setattr(self, name, list(zip(saved[f"{name}_stresses"].tolist(), saved[name], strict=True)))
        self.best = Descent(str(saved["name"]), saved["x"], 0.0)
        for name in _NUMBERS:
            setattr(self, name, saved[name].item())

    def start(self, classical: Floats, which: Sequence[int], settles: bool) -> None:
        """Descend from the starts of these numbers, unless earlier ones agree; ``settles`` says whether they may."""
        if not self.agreed:
            self.run(list(_starts(classical, self.seed, which)))
            self.agreed = settles and self.evidence().agree

    def run(self, descents: Sequence[Descent]) -> None:
        """Descend from starts; of their maps, keep those that may be the best one."""
        found = self._descend(descents)
        self.stresses += [stress for stress, _ in found]
        bound = _as_good(self.stress)
        self.near = [(stress, x) for stress, x in (*self.near, *found) if stress <= bound]

    def hop(self, which: Sequence[int]) -> None:
        """Put a few points of the best map elsewhere, or shake all of them, in turn, unless the starts agree."""
        if self.agreed:
            return
        points = np.arange(len(self.rows))
        errors, _ = self._kernels.row_gradients(self.rows, points, points, self._best.x)
        worst = np.argsort(-errors, kind="stable")
        shaken = (self._best._replace(radius=HOP_RADII[k // 2 % len(HOP_RADII)]) for k in which if k % 2)
        self._descend([*(self._moved(k, worst) for k in which if k % 2 == 0), *shaken])
        self.hops += len(which)

    def squeeze(self, classical: Floats, squeeze: Squeeze) -> None:
        """Squeeze the map of classical scaling with an axis more flat, unless starts agree or it will hardly pay."""
        if self.agreed or (squeeze.again and not self.pays and not self.scattered):
            return
        best, before = self._best, self.stress
        x = classical.T
        if squeeze.noise:
            x = lifted(x[: self.dims], generator(self.seed, RandomStream.LIFT))
        x = flattened(self._kernels, self.rows, x, self.dims, squeeze.sweeps)
        self._descend([Descent("classical", x, MOVED_RADIUS)])
        self.hops += 1
        self.pays = _as_good(self.stress) < before
        if not self.pays and self.stress < before:
            self.aside.append((self.stress, self._best.x))
            self.best, self.stress = best, before

    def recall(self) -> None:
        """Take a map that was put aside where hops found none that is better."""
        for stress, x in self.aside:
            if stress < self.stress:
                self.best, self.stress = Descent("classical", x, 0.0), stress

    def turn(self) -> None:
        """Turn parts of the best map that few known pairs join, where gaps leave any."""
        links = self._links()
        if links is not None:
            x = turned(self._best.x, links, generator(self.seed, RandomStream.PARTS))
            if not np.array_equal(x, self._best.x):
                self._descend([Descent(self._best.name, x, MOVED_RADIUS)])
            self.hops += 1

    def _links(self) -> Links | None:
        """Known pairs between parts, or None where there is one part."""
        if not (self.rule.gaps or self.rule.weighted):
            return None
        labels = weak_parts(known_pairs(self.rows, self.rule))
        return Links.of(self.rows, labels, self.rule) if labels.any() else None

    def _moved(self, key: int, worst: Ints) -> Descent:
        """The best map with some of its worst points turned to random directions."""
        x, n = self._best.x.copy(), len(self.rows)
        count, draw = max(2, round(MOVED * n)), generator(self.seed, RandomStream.SEARCH_HOPS, key)
        some = draw.choice(worst[: 3 * count], min(count, n), replace=False)
        directions = draw.standard_normal((self.dims, some.size))
        x[:, some] = directions * np.sqrt(np.square(x[:, some]).sum(axis=0) / np.square(directions).sum(axis=0))
        return Descent(self._best.name, x, MOVED_RADIUS)

    def _descend(self, descents: Sequence[Descent]) -> list[tuple[float, Floats]]:
        n = len(self.rows)
        x = np.ascontiguousarray(np.stack([start.x for start in descents]), dtype=np.float32)
        keys = range(self.count, self.count + len(descents))
        orders = np.stack([generator(self.seed, RandomStream.SEARCH_ORDERS, k).permutation(n) for k in keys])
        radii = np.array([start.radius for start in descents], np.float32)
        dealt, stresses = _dealt(len(x), current_threads()), np.empty(len(x))
        maps = x[dealt]
        costs = self._kernels.descend(self.rows, maps, orders[dealt], radii[dealt], self._plan)
        x[dealt], stresses[dealt] = maps, np.sqrt(costs)  # rows have mean square 1
        self.count += len(descents)
        best = int(np.argmin(stresses))  # the first on a tie
        if stresses[best] < self.stress:
            self.best, self.stress = Descent(descents[best].name, x[best].astype(float), 0.0), float(stresses[best])
        return [(float(stress), map_.copy()) for stress, map_ in zip(stresses, x, strict=True)]

    def evidence(self) -> Evidence:
        """How many starts ended at the best map."""
        bound = _as_good(self.stress)
        near = (x for stress, x in self.near if stress <= bound)
        found = sum(disparity(self._best.x.T, x.T) <= SAME_SHAPE for x in near)
        return Evidence(np.array(self.stresses), self.stress, found, self.hops)

    def outcome(self) -> Found:
        """The best map, with the evidence for it."""
        return Found(self._best.name, np.ascontiguousarray(self._best.x.T), self.stress, self.evidence())
