"""Memory of passes over a panel."""

from __future__ import annotations

from psmds_dist.planning.memory import MemoryRequirement, RowStorage

PIECE_BYTES = 16_000_000
"""Features, or rows of a matrix, that are held at a time while a panel is filled or evaluated."""


def panel_pass(panel: RowStorage) -> MemoryRequirement:
    """What writing and checking a panel needs: a block being written to disk, and the findings about its entries."""
    return MemoryRequirement("a pass over the panel", {"rows being written": 2 * panel.block_bytes}, panel)
