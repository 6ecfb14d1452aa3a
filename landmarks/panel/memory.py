"""Memory of passes over a panel."""

from __future__ import annotations

from psmds_dist.data.features import PIECE_BYTES
from psmds_dist.planning.memory import MemoryRequirement, RowStorage

__all__ = ["PIECE_BYTES", "panel_pass"]


def panel_pass(panel: RowStorage) -> MemoryRequirement:
    """What writing and checking a panel needs: a block being written to disk, and the findings about its entries."""
    return MemoryRequirement("a pass over the panel", {"rows being written": 2 * panel.block_bytes}, panel)
