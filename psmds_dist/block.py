"""Work on blocks of rows: pure functions of a source, coordinates and a step, picklable as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from psmds_dist.kernels import moves
from psmds_dist.partition import Layout
from psmds_dist.rows import Batch, hold, layout_of
from psmds_dist.types import Executor, Floats, Ints, Rows, RowSource

A = TypeVar("A", bound=tuple[NDArray[np.generic], ...])


@dataclass(frozen=True)
class Held:
    """A source and the bytes that a process may spend on its rows."""

    source: RowSource
    budget: int

    @property
    def layout(self) -> Layout:
        """How its rows are cut."""
        return layout_of(self.source)

    def collect(self, blocks: Sequence[int], of: Callable[[Batch], A]) -> A:
        """Apply ``of`` to the rows of ``blocks`` and put its arrays into the order of the points."""
        points, parts = [], []
        with closing(hold(self.source, self.budget).batches(blocks)) as batches:
            for batch in batches:
                points.append(batch.points)
                parts.append(of(batch))
        if len(parts) == 1:  # a batch is in order
            return parts[0]
        order = np.argsort(np.concatenate(points))
        return tuple(np.concatenate(column)[order] for column in zip(*parts, strict=True))  # type: ignore[return-value]


Proposal = tuple[NDArray[np.int16], Floats, Floats]
"""For each point of some blocks, ascending: its best move, that move's gain, and its error before the move."""


@dataclass(frozen=True)
class Propose:
    """Find the best move of every point of some blocks against one snapshot of the coordinates."""

    held: Held
    x: Rows
    radius: float
    axes: tuple[int, ...]

    def __call__(self, blocks: Sequence[int]) -> Proposal:
        """Return the proposals for ``blocks``; a tie goes to the first move."""
        return self.held.collect(blocks, self._propose)

    def _propose(self, batch: Batch) -> Proposal:
        axes = np.asarray(self.axes, dtype=np.int64)
        errors, gains = moves.propose(batch.rows, batch.slots, batch.points, self.x, self.radius, axes)
        best = gains.argmin(axis=1)
        return best.astype(np.int16), gains[np.arange(best.size), best], errors


@dataclass(frozen=True)
class Measure:
    """Exact row sums for given coordinates."""

    held: Held
    x: Floats

    def __call__(self, blocks: Sequence[int]) -> tuple[Floats]:
        """Return ``(k, 3)`` sums as `psmds_dist.kernels.moves.row_sums` gives them."""
        return self.held.collect(blocks, lambda b: (moves.row_sums(b.rows, b.slots, b.points, self.x),))


@dataclass(frozen=True)
class Pick:
    """Some columns of the rows of some blocks."""

    held: Held
    columns: Ints

    def __call__(self, blocks: Sequence[int]) -> tuple[Rows]:
        """Return the ``(k, columns)`` part of the matrix."""
        return self.held.collect(blocks, lambda b: (b.rows[np.ix_(b.slots, self.columns)],))


def gather(executor: Executor, work: Callable[[Sequence[int]], A], layout: Layout, blocks: Sequence[int]) -> A:
    """Run work over blocks and put the arrays of all groups into the order of the points."""
    parts = sorted(executor.run(work, blocks), key=lambda part: part[0][0])
    if len(parts) == 1:
        return parts[0][1]
    points = np.concatenate([points_of(layout, group) for group, _ in parts])
    order = np.argsort(points)
    columns: Iterator[tuple[NDArray[np.generic], ...]] = zip(*(result for _, result in parts), strict=True)
    return tuple(np.concatenate(column)[order] for column in columns)  # type: ignore[return-value]


def points_of(layout: Layout, blocks: Sequence[int]) -> Ints:
    """Points of some blocks, ascending."""
    return layout.points(sorted(blocks))
