"""Memory of a landmark fit, planned before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from landmarks.panel.memory import PIECE_BYTES
from psmds_dist.core.executor import Executor, Topology
from psmds_dist.core.layout import format_bytes
from psmds_dist.core.sources import RowSource
from psmds_dist.core.types import Ints
from psmds_dist.data.cache import stored
from psmds_dist.planning.memory import (
    FLOAT64_BYTES,
    POINT_SCRATCH,
    SNAPSHOT_COPIES,
    MemoryRequirement,
    Plan,
    RowStorage,
    batch_points,
    checking,
    exact,
    float32_remedy,
    require,
    worker_share,
)

PAIR_COPIES, PAIR_BYTES = 2, 2
"""Copies of the dissimilarities of each pair of landmarks, and bytes beside them, while they are checked and mapped."""

EVALUATION_ROWS = 100
"""Rows of a matrix that are read for the evaluation."""

NAME_BYTES = 160
"""Bytes of a point's name."""

MANY_LANDMARKS = 1000
"""Landmarks from which fewer may be enough."""


def fit_memory(
    panel: RowStorage,
    dims: int,
    refine: str = "none",
    workers: int = 1,
    *,
    here: bool = True,
    named: bool = False,
    of_matrix: bool = False,
) -> MemoryRequirement:
    """What a landmark fit needs, apart from the polish on a whole matrix (`psmds_dist.planning.memory.exact`).

    Parameters
    ----------
    panel : RowStorage
        Dissimilarities to the landmarks.
    dims : int
        Dimensions of the map.
    refine : str
        The refinement: one through the panel holds several placements.
    workers, here
        As in `psmds_dist.planning.memory.checking`.
    named : bool
        Whether points have names.
    of_matrix : bool
        Whether the panel is taken out of a whole matrix, whose rows are read for the evaluation too.
    """
    n, size = panel.layout.n, panel.layout.columns
    through = refine == "panel"
    apart = 0
    if here:
        placements = 4 if through else 1
        parts = {
            "landmarks": panel.itemsize * size**2,
            "places and residuals": FLOAT64_BYTES * n * (placements * placed(dims) + (dims + 3 if through else 2)),
            "names": NAME_BYTES * n * named,
        }
        pieces = min(PIECE_BYTES, EVALUATION_ROWS * n * panel.itemsize) if of_matrix else 0
        apart = (
            FLOAT64_BYTES * n * (4 * dims + 5)
            + NAME_BYTES * n * named
            + (PAIR_COPIES * panel.itemsize + PAIR_BYTES) * size**2
            + pieces
        )
    else:
        parts = {
            "places and residuals": FLOAT64_BYTES * worker_share(n, workers) * (2 * placed(dims) + 1),
            "places to start from": FLOAT64_BYTES * SNAPSHOT_COPIES * n * dims * through,
        }
    parts["scratch of the kernel"] = FLOAT64_BYTES * batch_points(panel) * (4 * dims + POINT_SCRATCH)
    fewer = ("take fewer landmarks (--n-landmarks)",) if size > MANY_LANDMARKS else ()
    what = f"a map of {n:,} points by {size:,} landmarks"
    return MemoryRequirement(what, parts, panel, apart, (*float32_remedy(panel), *fewer))


def placed(dims: int) -> int:
    """Numbers of a placed point: coordinates, residual, squares and known landmarks."""
    return dims + 3


class Planned(Protocol):
    """What planning needs to know of the data."""

    @property
    def n(self) -> int:
        """Number of points."""

    @property
    def origin(self) -> str:
        """How a pass over the panel comes by rows that are not kept."""

    @property
    def ids(self) -> Sequence[str] | None:
        """Names of the points."""

    @property
    def matrix(self) -> RowSource | None:
        """The whole matrix, where there is one."""

    def stored(self, landmarks: Ints) -> RowStorage:
        """How the panel will lie."""

    def making(self, landmarks: Ints) -> MemoryRequirement | None:
        """What it takes to make the panel, where that is done once."""


@dataclass(frozen=True)
class FitPlan:
    """Memory of each stage.

    Attributes
    ----------
    panel : Plan
        For passes over the panel.
    keep : int
        Bytes for the whole panel in memory, where it is made only once.
    polish : Plan or None
        For passes over the whole matrix by a full refinement, beside a panel that is kept.
    passes : str
        How often the panel is gone through.
    origin : str
        How a pass comes by rows that are not kept.
    """

    panel: Plan
    keep: int
    polish: Plan | None
    passes: str
    origin: str

    @property
    def limit(self) -> int:
        """Bytes a process may take."""
        return self.panel.limit

    def describe(self, topology: Topology | None = None) -> str:
        """Say in one line how the dissimilarities will be come by, after one that says where, for workers elsewhere."""
        rows, kept = self.panel.needs.rows, self.panel.cached_share
        how = "kept in memory" if kept == 1 else f"{self.origin}, {self.passes}"
        if 0 < kept < 1 and self.passes != ONCE:
            how = f"{kept:.0%} kept in memory, the rest {how}"
        polish = ""
        if self.polish is not None:
            matrix = format_bytes(self.polish.needs.rows.nbytes)
            polish = f"; then a refinement on the matrix of {matrix}, {self.polish.cached_share:.0%} kept in memory"
        return (
            f"{self.panel.where(topology)}"
            f"{rows.layout.n:,} points by {rows.layout.columns:,} landmarks, panel {format_bytes(rows.nbytes)}, "
            f"{self.panel.who}: {how}{polish}"
        )


ONCE, SEVERAL = "in one pass", "in several passes"


def plan_fit(data: Planned, sites: Ints, dims: int, refine: str, executor: Executor, limit: int) -> FitPlan:
    """Decide how memory is spent, or refuse.

    Rows of the panel are kept only for a refinement that goes through them again.

    Raises
    ------
    BudgetError
        When the limit is too small for these data.
    """
    workers, here = executor.n_workers, executor.in_process
    kind = {"named": data.ids is not None, "of_matrix": data.matrix is not None}
    needs = fit_memory(data.stored(sites), dims, refine, workers, here=here, **kind)
    matrix = data.matrix if refine == "full" else None
    polishing = [] if matrix is None else _polishing(stored(matrix), dims, workers, here=here)
    making = data.making(sites)
    require(limit, needs, *polishing, *([] if making is None else [making]))
    again = refine == "panel"
    panel = Plan.of(limit, needs, workers, again=again)
    keep, polish = min(needs.budget(limit), limit - needs.apart), None
    if matrix is not None:
        polish = Plan.of(limit, polishing[0], workers, matrix.read_profile.read_amplification)
        keep = min(keep, (limit - polishing[0].min_limit) // 2)
    return FitPlan(panel, keep, polish, SEVERAL if again else ONCE, data.origin)


def _polishing(rows: RowStorage, dims: int, workers: int, *, here: bool) -> list[MemoryRequirement]:
    """What a polish on the whole matrix needs beside the placed points, and the check before it."""
    places = FLOAT64_BYTES * placed(dims) * rows.layout.n * here
    stages = exact(rows, dims, workers=workers, here=here), checking(rows, workers, here=here)
    return [needs.with_part("places", places) for needs in stages]
