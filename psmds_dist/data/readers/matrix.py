"""Numbers of a text matrix, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import Floats
from psmds_dist.data.readers.cells import numbers
from psmds_dist.data.readers.index import Index, Row
from psmds_dist.data.readers.text import TextFile

PARSED_BYTES = 1_000_000
"""Text to parse at a time: enough that a call costs nothing."""


@dataclass(frozen=True)
class TextMatrix:
    """A text file and the places of its rows."""

    file: TextFile
    index: Index

    def read(self, lo: int, hi: int) -> Iterator[tuple[int, list[Floats]]]:
        """Yield the numbers of rows ``lo`` to ``hi``, some rows at a time, with the first of these."""
        for first, last in self._steps(lo, hi):
            yield first, self._parsed(self.index.rows[first:last])

    def _steps(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Runs of rows, as many at a time as are worth a call."""
        first, size = lo, 0
        for k in range(lo, hi):
            size += self.index.rows[k].end - self.index.rows[k].start
            if size >= PARSED_BYTES or k == hi - 1:
                yield first, k + 1
                first, size = k + 1, 0

    def _parsed(self, rows: Sequence[Row]) -> list[Floats]:
        texts = self.file.pieces([(row.start, row.end) for row in rows])
        dialect = self.index.dialect
        columns = [dialect.column(text) for row, text in zip(rows, texts, strict=True) if row.cells]
        try:
            found = numbers(b"\n".join(columns))
        except ValueError:
            raise self._damaged(rows, texts) from None
        if found.size != sum(row.cells for row in rows):
            raise self._damaged(rows, texts)
        return np.split(found, np.cumsum([row.cells for row in rows])[:-1])

    def _damaged(self, rows: Sequence[Row], texts: Sequence[bytes]) -> DamagedDataError:
        """Sentence about the first cell that is no number."""
        for row, text in zip(rows, texts, strict=True):
            for k, cell in enumerate(self.index.dialect.column(text).split(b"\n") if row.cells else (), 1):
                if not _parses(cell):
                    raw = self.index.dialect.written(cell.decode("utf-8", "replace").strip()[:40])
                    return DamagedDataError(
                        f"{self.file.path} has {raw!r} instead of a number in line {row.line}, number {k} of its row; "
                        f"correct it, or leave it empty if the pair is missing."
                    )
        return DamagedDataError(f"{self.file.path} has lines of other lengths than when it was opened; run again.")


def _parses(cell: bytes) -> bool:
    try:
        return numbers(cell).size == 1 if cell else True
    except ValueError:
        return False
