"""Where dissimilarities come from, and the pass that writes and checks a store of them."""

from psmds_dist.ingest.building import build
from psmds_dist.ingest.ids import check_ids, read_ids
from psmds_dist.ingest.points import Metric, Points, open_points, seem_dissimilarities
from psmds_dist.ingest.sources import (
    ArrayRows,
    ColumnSource,
    NpyMatrix,
    Symmetrized,
    ZeroDiagonal,
    mean_of_orders,
    open_matrix,
    open_npy,
)

__all__ = [
    "ArrayRows",
    "ColumnSource",
    "Metric",
    "NpyMatrix",
    "Points",
    "Symmetrized",
    "ZeroDiagonal",
    "build",
    "check_ids",
    "mean_of_orders",
    "open_matrix",
    "open_npy",
    "open_points",
    "read_ids",
    "seem_dissimilarities",
]
