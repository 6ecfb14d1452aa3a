"""Numbers of a text matrix, some rows at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from psmds_dist.core.errors import DamagedDataError
from psmds_dist.core.types import Floats
from psmds_dist.data.readers.cells import numbers
from psmds_dist.data.readers.index import Index, Row
from psmds_dist.data.readers.text import TextFile
from psmds_dist.kernels.jit import current_threads

PARSED_BYTES = 1_000_000
"""Text to parse at a time: enough that a call costs nothing."""

AHEAD = 1
"""Pieces that are begun beside those of all threads, so that none waits for the consumer."""


@dataclass(frozen=True)
class TextMatrix:
    """A text file and the places of its rows."""

    file: TextFile
    index: Index

    def read(self, lo: int, hi: int) -> Iterator[tuple[int, int, Floats]]:
        """Yield the numbers of rows ``lo`` to ``hi``, some rows at a time: the first, the one after the last, numbers.

        They are parsed on as many threads as kernels run on.
        """
        steps, threads = list(self._steps(lo, hi)), current_threads()
        if threads == 1 or len(steps) == 1:
            yield from ((first, last, self._parsed(first, last)) for first, last in steps)
            return
        todo, pending = iter(steps), deque[tuple[int, int, Future[Floats]]]()
        with ThreadPoolExecutor(threads, thread_name_prefix="psmds-parse") as pool:
            for done in range(len(steps)):
                wanted = threads + AHEAD if not done else 1
                pending.extend((*step, pool.submit(self._parsed, *step)) for step in islice(todo, wanted))
                first, last, found = pending.popleft()
                yield first, last, found.result()

    def _steps(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Runs of rows, as many at a time as are worth a call."""
        first, size = lo, 0
        for k in range(lo, hi):
            size += self.index.rows[k].end - self.index.rows[k].start
            if size >= PARSED_BYTES or k == hi - 1:
                yield first, k + 1
                first, size = k + 1, 0

    def _parsed(self, first: int, last: int) -> Floats:
        rows = self.index.rows[first:last]
        texts = self.file.pieces([(row.start, row.end) for row in rows])
        dialect = self.index.dialect
        columns = [dialect.column(text) for row, text in zip(rows, texts, strict=True) if row.cells]
        try:
            found = numbers(b"\n".join(columns))
        except ValueError:
            raise self._damaged(rows, texts) from None
        if found.size != sum(row.cells for row in rows):
            raise self._damaged(rows, texts)
        return found

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
