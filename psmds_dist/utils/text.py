"""Untrusted names, escaped so that neither a terminal nor a spreadsheet interprets their content."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 controls (including escape, which starts ANSI sequences), bidirectional marks, line separators, and
surrogates, which UTF-8 cannot encode."""

_FORMULA = re.compile("'*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
"""Beginning of a formula in a spreadsheet, also in full width."""

_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def escaped(text: str) -> str:
    """Escape control characters like Python's `repr`."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def escaped_lines(text: str) -> str:
    """Escape control characters, except line ends."""
    return "\n".join(map(escaped, text.split("\n")))


def as_cell(name: str) -> str:
    """Format a name as a cell of a table that a spreadsheet may open.

    Control characters are escaped. A name that a spreadsheet would read as a formula gets a leading apostrophe, as
    OWASP recommends; signed numbers, such as ``-1``, do not.
    """
    return f"'{escaped(name)}" if _is_formula(name) else escaped(name)


def of_cell(cell: str) -> str:
    """Recover a name from a cell formatted by `as_cell`; control characters stay escaped."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def note_unsafe(names: Sequence[str] | None) -> None:
    """Log which names are shown or exported in escaped form."""
    _note(names, _is_controlled, "contain control characters", "they are shown and exported escaped, such as \\x1b")
    _note(names, _is_formula, "look like formulas", "they are exported to .csv and .tsv with a leading apostrophe")


def _note(names: Sequence[str] | None, test: Callable[[str], bool], what: str, consequence: str) -> None:
    rows = [row for row, name in enumerate(names or ()) if test(name)]
    if rows and names is not None:
        log.info("%d ids %s, the first %r in row %d: %s", len(rows), what, names[rows[0]], rows[0], consequence)


def _is_controlled(name: str) -> bool:
    return _CONTROL.search(name) is not None


def _is_formula(name: str) -> bool:
    return _FORMULA.match(name) is not None and _NUMBER.fullmatch(name) is None
