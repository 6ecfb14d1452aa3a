"""Placing points against landmarks whose coordinates stand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from landmarks import kernels
from psmds_dist.core.config import FLOAT32_RADIUS, FLOAT32_SCALE
from psmds_dist.core.stress import turned
from psmds_dist.core.types import Executor, Floats, InputError, Ints, Rows
from psmds_dist.data.cache import Batch
from psmds_dist.kernels import moves
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.solver.checkpoint import CheckpointStream
from psmds_dist.solver.state_file import Arrays
from psmds_dist.solver.tasks import CachedRows, gather, points_of, scatter_into

END_SHARE = 5e-3
"""Radius at which a point is placed, as a share of its own root mean square residual: a smaller one fits noise."""

FLOOR = 1e-9
"""Or this share of the scale of the data, whichever is more."""

ROUGH = 1 / 8
"""The same for points that all move again on the whole matrix afterwards."""

EXACT = 1e-3
"""Normalised stress of the landmarks below which the data may be exact, so that their map is worth more digits."""

MOST_PROBES = 300

PORTION = 10.0
"""Seconds of work between two looks at whether placed points should be kept."""

RANK_TOL = 1e-7
"""Share of the largest singular value below which the landmarks leave an axis open."""


@dataclass(frozen=True)
class PlacementModel:
    """Landmark coordinates, centred, with the linear map that places points in closed form.

    Points solve ``|x|^2 - 2 x.y_s + |y_s|^2 = t_s^2`` in the least squares sense. With the landmarks centred the
    unknown ``|x|^2`` drops out and ``x = -1/2 pinv(Y) (t^2 - offset)`` with ``offset_s = |y_s|^2``. Classical
    landmark MDS (de Silva and Tenenbaum, 2004) is the same with the landmarks' mean squared dissimilarities as
    the offset.
    """

    y: Floats
    """(L, S), centred"""

    centre: Floats
    axes: Floats
    """A place ``x`` against the landmarks is at ``(x - centre) @ axes`` in the map."""

    pull: Floats
    offset: Floats
    scale: float
    """Root mean square dissimilarity between landmarks."""

    rank: int

    @classmethod
    def of(cls, coordinates: Floats, scale: float, mean_squares: Floats | None = None) -> PlacementModel:
        """Frame of landmarks at ``(S, L)`` coordinates; classical when their mean squares are given."""
        origin = coordinates.mean(axis=0)
        y = np.ascontiguousarray((coordinates - origin).T)
        # eigenvectors of the small Gram matrix and einsum, since the order of BLAS sums depends on its threads
        values, vectors = np.linalg.eigh(np.einsum("as,bs->ab", y, y))
        kept = values > (RANK_TOL * max(values[-1], 0) ** 0.5) ** 2
        inverse = np.einsum("ak,k,bk->ab", vectors[:, kept], 1 / values[kept], vectors[:, kept])
        offset = np.einsum("as,as->s", y, y) if mean_squares is None else mean_squares
        return cls(y, -origin, np.eye(y.shape[0]), np.einsum("ab,bs->as", inverse, y), offset, scale, int(kept.sum()))

    def arithmetic(self, dtype: np.dtype[Any], radius: float = math.inf) -> np.dtype[Any]:
        """Type of the arithmetic: float64 where float32 holds neither the squares of the data nor a move's gain."""
        low, high = FLOAT32_SCALE
        fits = low < self.scale < high and radius >= FLOAT32_RADIUS * self.scale
        return dtype if fits else np.dtype(np.float64)

    @property
    def coordinates(self) -> Floats:
        """Landmarks in the map, (S, L)."""
        return self.in_map(self.y.T)

    def in_map(self, x: Floats) -> Floats:
        """Where places against the landmarks are in the map, each row by itself."""
        return turned(x, self.centre, self.axes)


Placement = tuple[Floats, Floats, Floats, Ints]
"""Coordinates (k, L), squared residuals, squared dissimilarities, and known landmarks of some points."""


@dataclass(frozen=True)
class Place:
    """Place the points of some blocks of a panel, each alone.

    ``start`` holds coordinates to continue from with ``radius``; without it points begin in closed form, with the
    root mean square residual there as their radius. They are done at a ``share`` of their residual. Those of
    ``seated`` are not placed any better than they begin: somebody knows where they stand.
    """

    panel: CachedRows
    frame: PlacementModel
    start: Floats | None = None
    radius: float = -1.0
    share: float = END_SHARE
    seated: Ints | None = None

    def __call__(self, blocks: Sequence[int]) -> Placement:
        """Return the placement of all points of ``blocks``."""
        return self.panel.collect(blocks, self._place)

    def _place(self, batch: Batch) -> Placement:
        start = None if self.start is None else self.start[batch.points]
        radii = np.full(batch.points.size, self.radius)
        if self.seated is not None:
            radii[np.isin(batch.points, self.seated)] = 0.0
        return place(batch.rows, batch.slots, self.frame, start, radii, self.share)


def place_all(
    executor: Executor, work: Place, stream: CheckpointStream, on_progress: Callable[[int, int], object] | None = None
) -> Placement:
    """Place all points, in portions of blocks that can be saved; how they are cut does not change the result.

    A run continues after the portions that were saved.
    """
    layout = work.panel.layout
    everyone = np.arange(layout.n)
    found: Placement | None = None
    saved = block = 0
    for piece in _contiguous(stream.pieces()):
        points = points_of(layout, range(block, saved := int(piece["next"])))
        found, block = scatter_into(found, everyone, points, _placement(piece)), saved
    size = layout.count if stream.every == math.inf else executor.n_workers
    while block < layout.count:
        if on_progress is not None:
            on_progress(block, layout.count)
        blocks = range(block, min(block + size, layout.count))
        began = time.monotonic()
        found = scatter_into(found, everyone, points_of(layout, blocks), gather(executor, work, layout, blocks))
        block = blocks.stop
        if stream.should_save:
            stream.add(saved, _piece(found, points_of(layout, range(saved, block)), saved, block))
            saved = block
        size = max(1, round(size * min(4.0, PORTION / (time.monotonic() - began + 1e-9))))
    assert found is not None
    return found


PLACED = ("x", "errors", "squares", "known")
"""Names of the parts of a placement."""


def _contiguous(pieces: Sequence[Arrays]) -> Iterator[Arrays]:
    """Pieces from the first block on, each beginning where the one before ends."""
    by_first = {int(piece["first"]): piece for piece in pieces}
    block = 0
    while block in by_first:
        yield by_first[block]
        block = int(by_first[block]["next"])


def _piece(found: Placement, points: Ints, first: int, following: int) -> Arrays:
    parts = {name: values[points] for name, values in zip(PLACED, found, strict=True)}
    return {**parts, "first": first, "next": following}


def _placement(piece: Arrays) -> Placement:
    return piece["x"], piece["errors"], piece["squares"], piece["known"]


def place(
    rows: Rows,
    slots: Ints,
    frame: PlacementModel,
    start: Floats | None = None,
    radius: float | Floats = -1.0,
    share: float = END_SHARE,
) -> Placement:
    """Place points by their dissimilarities to the landmarks, in the landmarks' own position.

    `PlacementModel.in_map` turns what is found into coordinates of the map.

    Each begins with the radius given, or with one of its own; where that is 0 it stays where it begins. Points with
    too few known ones become NaN.
    """
    closed, known, squares = kernels.locate(rows, slots, frame.y, frame.pull, frame.offset)
    x = closed if start is None else start.copy()
    radii = np.broadcast_to(np.asarray(radius, dtype=np.float64), slots.shape)
    enough = np.flatnonzero(known > frame.y.shape[0])
    error = np.full(slots.size, np.nan)
    found, error[enough] = _search(rows, slots[enough], known[enough], frame, x[enough], radii[enough], share)
    x[:] = np.nan
    x[enough] = found
    return x, error, squares, known


def _search(
    rows: Rows, slots: Ints, known: Ints, frame: PlacementModel, x: Floats, radii: Floats, share: float
) -> tuple[Floats, Floats]:
    """Search in float32 down to the radius that it can tell apart, and in float64 where a point continues below."""
    if frame.arithmetic(rows.dtype) == np.float64:
        return kernels.search(rows, slots, frame.y, x, radii, FLOOR * frame.scale, share, MOST_PROBES)
    coarse = FLOAT32_RADIUS * frame.scale
    x, errors = kernels.search(rows, slots, frame.y.astype(np.float32), x, radii, coarse, share, MOST_PROBES)
    finer = np.flatnonzero((share * np.sqrt(errors / known) < coarse) & (radii != 0))
    if finer.size:
        x[finer], errors[finer] = kernels.search(
            rows, slots[finer], frame.y, x[finer], np.full(finer.size, coarse), FLOOR * frame.scale, share, MOST_PROBES
        )
    return x, errors


def fix_landmarks(placement: Placement, landmarks: Ints, frame: PlacementModel, among: Rows) -> None:
    """Put landmarks where they stand, with their errors there, given dissimilarities among them."""
    placement[0][landmarks] = frame.y.T
    placement[1][landmarks] = mutual_errors(among, frame.y.T)


def mutual_errors(among: Rows, coordinates: Floats) -> Floats:
    """Squared residuals of each landmark to the others at ``(S, L)`` coordinates."""
    everyone = np.arange(len(among))
    with parallel_region():
        return moves.row_sums(among, everyone, everyone, np.ascontiguousarray(coordinates.T))[:, 0]


def point_name(point: int, ids: Sequence[str] | None) -> str:
    """A point as messages call it."""
    return f"point {point}" + (f" (id {ids[point]!r})" if ids else "")


def require_known(known: Ints, n_components: int, ids: Sequence[str] | None) -> None:
    """Refuse points that too few landmarks are known for.

    Raises
    ------
    InputError
        Naming the first of them.
    """
    short = np.flatnonzero(known <= n_components)
    if short.size:
        first = int(short[0])
        raise InputError(
            f"{point_name(first, ids)} has known dissimilarities to {int(known[first])} landmarks, but "
            f"{n_components + 1} are needed to place it in {n_components} dimensions ({short.size} "
            f"point{'s' * (short.size != 1)} in all know fewer): fill them in, or leave such points out."
        )


def require_finite(placement: Placement, scale: float, ids: Sequence[str] | None) -> None:
    """Refuse points whose dissimilarities overflow beside those between landmarks, of the ``scale``.

    Raises
    ------
    InputError
        Naming the first of them.
    """
    _, errors, squares, known = placement
    lost = np.flatnonzero(~np.isfinite(errors))
    if lost.size:
        first = int(lost[0])
        size = math.sqrt(squares[first] / known[first])
        raise InputError(
            f"{point_name(first, ids)} cannot be placed: its dissimilarities to the landmarks have a root mean square "
            f"of {size:g} and overflow beside those between landmarks ({scale:g}); such values usually stand for 'no "
            "connection' or for a missing pair, so write NaN for these, or leave the point out."
        )
