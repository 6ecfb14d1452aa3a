"""Which points serve as landmarks."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np

from psmds_dist.core.rng import generator
from psmds_dist.core.types import Floats, InputError, Ints


class LandmarkStream(IntEnum):
    """What landmark mode draws random numbers for; numbers follow those of `psmds_dist.core.rng.RandomStream`."""

    SELECTION = 16
    HELD_OUT_PAIRS = 17
    VALIDATION_PAIRS = 18
    COARSE_LANDMARKS = 19
    CURVE_LANDMARKS = 20
    SET_ASIDE = 21


CANDIDATES = 10
"""Candidates a landmark for the choices that look at distances: a random sample of the points, so that their cost
does not grow with the points."""

FEWEST_CANDIDATES = 5_000

Distances = Callable[[int, Ints], Floats]
"""Dissimilarities of one point to some others."""


def require_method(method: object) -> None:
    """Refuse a way to choose that there is not."""
    if method not in tuple(_METHODS):  # by equality: not all that users pass can be hashed
        raise InputError(f"selection must be one of {', '.join(map(repr, _METHODS))}, not {method!r}.")


def choose(n: int, count: int, method: str, seed: int, distances: Distances, candidates: Ints | None = None) -> Ints:
    """Choose landmarks.

    Parameters
    ----------
    n : int
        Number of points.
    count : int
        Number of landmarks.
    method : {"random", "maxmin", "kmeans++"}
        Uniformly at random; each as far as possible from those before it; or at random with a chance in
        proportion to the squared dissimilarity to the nearest before it.
    seed : int
        Key of the random numbers.
    distances : callable
        ``distances(i, candidates)`` gives dissimilarities of point ``i``.
    candidates : (m,) int64, optional
        Points to choose from; all by default.

    Returns
    -------
    (count,) int64
        Row indices in the order of the choice: the first ``k`` are a choice of ``k``. They know each other, as far as
        distances are looked at: not where points are drawn at random from all.

    Raises
    ------
    InputError
        When there are too few distinct points.
    """
    require_method(method)
    random = generator(seed, LandmarkStream.SELECTION)
    everyone = np.arange(n) if candidates is None else np.asarray(candidates, dtype=np.int64)
    if count > everyone.size:
        raise InputError(f"n_landmarks must be at most the number of points, {everyone.size}, not {count}.")
    if method == "random" and candidates is not None:
        return _acquainted(everyone, count, random, distances)
    return _METHODS[method](everyone, count, random, distances)


def _random(candidates: Ints, count: int, random: np.random.Generator, distances: Distances) -> Ints:
    return random.permutation(candidates)[:count].copy()  # a view would hold all the others


def _acquainted(candidates: Ints, count: int, random: np.random.Generator, distances: Distances) -> Ints:
    """Choose at random, but each known to those before it."""
    left = random.permutation(candidates)
    chosen = np.empty(count, dtype=np.int64)
    for k in range(count):
        if not left.size:
            raise InputError(
                f"n_landmarks is {count}, but only {k} landmarks were found that all know each other: ask for at most "
                f"{k}."
            )
        chosen[k], left = left[0], left[1:]
        left = left[~np.isnan(distances(int(chosen[k]), left))]
    return chosen


def _spread(
    candidates: Ints, count: int, random: np.random.Generator, distances: Distances, pick: Callable[[Floats], int]
) -> Ints:
    """Choose one after the other, each by what is nearest to every candidate so far."""
    candidates = np.sort(random.permutation(candidates)[: max(CANDIDATES * count, FEWEST_CANDIDATES)])
    chosen = [int(random.integers(candidates.size))]
    nearest = np.full(candidates.size, np.inf)
    unknown = np.zeros(candidates.size, dtype=bool)
    while len(chosen) < count:
        fresh = distances(int(candidates[chosen[-1]]), candidates)
        unknown |= np.isnan(fresh)
        nearest = np.minimum(nearest, np.nan_to_num(fresh))  # those of which one is missing are out, as if chosen
        nearest[chosen] = 0
        if not nearest.max() > 0:
            raise _too_few(count, len(chosen), candidates.size, missing=bool(unknown.any()))
        chosen.append(pick(nearest))
    return candidates[chosen]


def _too_few(count: int, found: int, candidates: int, *, missing: bool) -> InputError:
    """Make the error for candidates that lie on chosen ones, or of which some dissimilarity to those is missing."""
    known = " that know each other" if missing else ""
    advice = f"at most {found}" if missing else "fewer landmarks, or selection='random'"
    return InputError(
        f"n_landmarks is {count}, but there are only {found} distinct points{known} among the {candidates} "
        f"candidates; ask for {advice}."
    )


def _maxmin(candidates: Ints, count: int, random: np.random.Generator, distances: Distances) -> Ints:
    return _spread(candidates, count, random, distances, lambda nearest: int(np.argmax(nearest)))


def _kmeans(candidates: Ints, count: int, random: np.random.Generator, distances: Distances) -> Ints:
    def pick(nearest: Floats) -> int:
        near_one = np.ldexp(nearest, -int(np.frexp(nearest.max())[1]))  # squares of others could overflow, or be zero
        weight = np.cumsum(near_one**2)
        last = int(np.flatnonzero(near_one)[-1])
        return min(int(np.searchsorted(weight, random.random() * weight[-1], side="right")), last)

    return _spread(candidates, count, random, distances, pick)


_METHODS = {"random": _random, "maxmin": _maxmin, "kmeans++": _kmeans}
