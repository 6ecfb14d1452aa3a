"""Do the entries of a matrix behave like dissimilarities, or like similarities? A sample of points tells.

In a triangle of dissimilarities two long sides come with a short third one less often than with a long one; near is
transitive, far is not. So the product of the three entries around a triangle, each taken as its deviation from the
means of its row and column, is negative on average; for similarities, where large is near, it is positive. Take a
matrix with zero diagonal, centre it, and sum over all triples::

    skewness = sum_ijk c_ij c_jk c_ki / (sum_ij c_ij^2)^(3/2)

For entries without any structure it is zero but for chance, about ``sqrt(6) / m^1.5`` for ``m`` points. It does not
depend on scale, nor on a constant added to all entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from psmds_dist.core.types import EntryKind, Floats, Ints, Rows
from psmds_dist.ingest.triangles import mirrored

SAMPLE = 64
"""Points whose mutual entries are looked at: products of matrices of this size stay in one thread of BLAS."""

NEIGHBOURS = 4
"""Consecutive points in the sample: rows are often in the order of groups, which single points of many would miss."""

FEWEST = 12
"""Points of which dissimilarities mostly show a structure beyond chance."""

_KEY = 0x7472696164


@lru_cache(maxsize=4)
def sample_points(n: int) -> Ints:
    """Choose points to look at: all of a small matrix, otherwise `SAMPLE` in runs of neighbours at random places."""
    if n <= SAMPLE:
        return np.arange(n)
    random = np.random.Generator(np.random.Philox(key=[_KEY, n]))
    contiguous_runs = random.choice(n // NEIGHBOURS, SAMPLE // NEIGHBOURS, replace=False)
    return np.sort((contiguous_runs[:, None] * NEIGHBOURS + np.arange(NEIGHBOURS)).ravel())


def triad_skewness(sample: Rows) -> float:
    """Mean product around a triangle, see above.

    Parameters
    ----------
    sample : (m, m) array
        Entries between some points; the diagonal is ignored, and entries that are not finite count as the mean.

    Returns
    -------
    float
        Between -1 and 1; NaN when all entries are equal, or there are fewer than 4 points.
    """
    m = len(sample)
    if m < 4:
        return math.nan
    c = np.array(sample, np.float64)
    np.fill_diagonal(c, np.nan)
    known = np.isfinite(c)
    unknown = ~known
    c[unknown] = 0
    top = float(np.abs(c).max())
    if top == 0:
        return math.nan
    c /= top
    c -= c.sum() / np.count_nonzero(known)
    c[unknown] = 0
    rows = c.sum(axis=0) / (m - 2)
    c -= rows + rows[:, None] - c.sum() / ((m - 1) * (m - 2))
    c[unknown] = 0
    squares = float(np.vdot(c, c))
    if squares <= 1e-12 * m * m:
        return math.nan
    return float(np.vdot(c @ c, c)) / math.sqrt(squares) ** 3


def chance(m: int) -> float:
    """Bound on the skewness that ``m`` points without structure show: twice its standard deviation, and a margin."""
    return 2 * math.sqrt(6 / m**3) + 0.01


@dataclass(frozen=True)
class SimilarityCheck:
    """What tells similarities from dissimilarities.

    Attributes
    ----------
    skewness : float
        `triad_skewness` of a sample.
    points : int
        Points in the sample.
    telling : bool
        Whether the sample is large and complete enough that dissimilarities of points would show. Bounds were set with
        random matrices (``python -m tests.fuzz.judgements``).
    heavy_diagonal : bool
        Whether diagonal entries that are not zero outweigh the rest of their rows, as those of a Gram matrix do
        (``t_ij^2 <= t_ii t_jj``) and those of spoilt distances do not.
    """

    skewness: float
    points: int
    telling: bool = False
    heavy_diagonal: bool = False

    @classmethod
    def of(cls, sample: Rows, diagonal: Floats, squares: Floats, columns: int) -> SimilarityCheck:
        """Weigh a sample, and some rows: their diagonal entries, and the sums of squares of their other entries."""
        there = np.flatnonzero(diagonal)
        elsewhere = math.sqrt(float(squares[there].sum()) / max(1, there.size * (columns - 1)))
        heavy = there.size > 0 and float(diagonal[there].mean()) >= elsewhere
        sides = mirrored(sample)
        telling = len(sides) >= FEWEST and int(np.count_nonzero(np.isfinite(sides))) > sides.size / 2
        return cls(triad_skewness(sides), len(sample), telling, heavy)

    @property
    def like_similarities(self) -> bool:
        """Whether the entries off the diagonal behave like similarities, beyond chance."""
        return self.skewness > chance(self.points)

    @property
    def like_dissimilarities(self) -> bool:
        """Whether they behave like dissimilarities, beyond chance."""
        return self.skewness < -chance(self.points)

    @property
    def entries(self) -> EntryKind:
        """What the entries behave like; unclear where little or nothing tells, in a sample that could."""
        if self.like_similarities:
            return "similarities"
        unclear = self.telling and self.skewness > -0.6 * chance(self.points)
        return "unclear" if unclear else "dissimilarities"

    @property
    def of_similarities(self) -> bool:
        """Whether diagonal and entries together leave no other explanation."""
        return self.heavy_diagonal and not self.like_dissimilarities
