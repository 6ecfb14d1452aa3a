"""Pure planning: how rows are cut into blocks, who owns which, and what fits into memory."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_BYTES = 8_000_000
"""Row data of a block, counted in float32."""

MIN_BLOCKS = 32
"""Blocks of a small matrix: enough for random halves to mix and for workers to share."""


@dataclass(frozen=True)
class Layout:
    """Rows of an ``n x n`` matrix cut into equal blocks (the last may be shorter).

    The cut depends on ``n`` only, never on workers, memory or chunks, so that results do not either.
    """

    n: int

    @property
    def rows(self) -> int:
        """Rows a block."""
        return max(1, min(BLOCK_BYTES // (4 * self.n), self.n // MIN_BLOCKS))

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.n // self.rows)

    def bounds(self, block: int) -> tuple[int, int]:
        """First row of a block and the row after its last."""
        lo = block * self.rows
        return lo, min(lo + self.rows, self.n)
