"""Dissimilarities and results on disk: the one place that knows Zarr.

A store is a Zarr group with an array ``dissimilarities`` in chunks of whole rows, one chunk a block, perhaps
an array ``ids``, and what is known of the matrix in the group attribute ``psmds``. A chunk is written by one
task and never shared. Checksums are written with the chunks and tested by the input check, not by every pass:
testing takes a fifth of the speed of a cached read.
"""

from psmds_dist.store.describing import describe
from psmds_dist.store.opening import open_rows
from psmds_dist.store.reading import ZarrRows
from psmds_dist.store.results import read_result, require_result_place, write_result
from psmds_dist.store.writing import Target, create, load_check, save_check

__all__ = [
    "Target",
    "ZarrRows",
    "create",
    "describe",
    "load_check",
    "open_rows",
    "read_result",
    "require_result_place",
    "save_check",
    "write_result",
]
