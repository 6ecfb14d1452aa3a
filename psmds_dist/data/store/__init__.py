"""Dissimilarities, panels and results on disk: the one place that knows Zarr.

A store is a Zarr group with an array ``dissimilarities`` in chunks of whole rows, one chunk a block, perhaps
an array ``ids``, and what is known of the matrix in the group attribute ``psmds``. A panel, which holds only
dissimilarities to landmarks, is such a group with an array ``panel`` instead, in which NaN marks what is
missing, and perhaps an array ``landmarks`` of their rows. A chunk is written by one task and never shared.
Checksums are written with the chunks, and verified by the input check and when a process reads a block for the first
time, not by every pass: verifying takes a fifth of the speed of a cached read.
"""

from psmds_dist.data.store.describing import describe, facts_at, unfinished_at
from psmds_dist.data.store.opening import open_panel, open_rows, open_table, shape_at
from psmds_dist.data.store.paths import require_apart
from psmds_dist.data.store.reading import ZarrRows
from psmds_dist.data.store.results import read_result, require_result_place, save_to_fallback, write_result
from psmds_dist.data.store.targets import Target
from psmds_dist.data.store.writing import create, create_table, is_begun, is_unfinished, write_table
from psmds_dist.utils.atomic import atomic_file

__all__ = [
    "Target",
    "ZarrRows",
    "atomic_file",
    "create",
    "create_table",
    "describe",
    "facts_at",
    "is_begun",
    "is_unfinished",
    "open_panel",
    "open_rows",
    "open_table",
    "read_result",
    "require_apart",
    "require_result_place",
    "save_to_fallback",
    "shape_at",
    "unfinished_at",
    "write_result",
    "write_table",
]
