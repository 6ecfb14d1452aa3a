"""Explicit tables of TSPLIB: a header, then numbers that are wrapped into lines anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from psmds_dist.core.errors import InputError
from psmds_dist.data.readers.cells import Dialect
from psmds_dist.data.readers.index import FORMS, Form, Index, Row
from psmds_dist.data.readers.text import Line, TextFile

SECTION = "EDGE_WEIGHT_SECTION"

_SQUARE, _LOWER, _LOWER_DIAG, _UPPER_DIAG, _UPPER = FORMS
FORMATS: dict[str, Form] = {
    "FULL_MATRIX": _SQUARE,
    "UPPER_ROW": _UPPER,
    "LOWER_ROW": _LOWER,
    "UPPER_DIAG_ROW": _UPPER_DIAG,
    "LOWER_DIAG_ROW": _LOWER_DIAG,
    "UPPER_COL": _LOWER,
    "LOWER_COL": _UPPER,
    "UPPER_DIAG_COL": _LOWER_DIAG,
    "LOWER_DIAG_COL": _UPPER_DIAG,
}
"""Part of the matrix that is listed; the columns of one triangle are the rows of the other."""

_WORD = re.compile(rb"\S+")


def is_tsplib(lines: Sequence[str]) -> bool:
    """Whether lines are the header of a TSPLIB file."""
    keys = {line.partition(":")[0].strip() for line in lines}
    return {"DIMENSION", "EDGE_WEIGHT_TYPE"} <= keys


def read_index(file: TextFile) -> Index:
    """Find the rows of an explicit table of TSPLIB; its points have no names.

    Parameters
    ----------
    file : TextFile
        The file.

    Raises
    ------
    InputError
        When it lists coordinates, a format that is not known, or too many or too few numbers.
    """
    lines = (line for line in file.lines() if line.text.strip())
    header = dict(map(_field, takewhile(lambda line: _key(line) != SECTION, lines)))
    n, form = _dimension(header, file.path), _form(header, file.path)
    counts = [form.cells(k, n) for k in range(n)]
    numbers = list(takewhile(lambda line: not line.text.lstrip()[:1].isalpha(), lines))
    found = sum(len(line.text.split()) for line in numbers)
    if found != sum(counts):
        raise InputError(
            f"{file.path} has {found:,} numbers in its {SECTION} instead of {sum(counts):,}, as {form.name} of {n} "
            "points has; it may be cut short. Write the file again."
        )
    return Index(list(_rows(numbers, counts)), Dialect(None), form)


def _key(line: Line) -> str:
    return _field(line)[0]


def _field(line: Line) -> tuple[str, str]:
    key, _, value = line.text.decode("utf-8", "replace").partition(":")
    return key.strip(), value.strip()


def _dimension(header: dict[str, str], path: str) -> int:
    text = header.get("DIMENSION", "")
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{path} has DIMENSION {text!r}, but needs the number of points; correct it.")
    return int(text)


def _form(header: dict[str, str], path: str) -> Form:
    kind, named = header.get("EDGE_WEIGHT_TYPE", ""), header.get("EDGE_WEIGHT_FORMAT", "")
    if kind != "EXPLICIT":
        raise InputError(
            f"{path} has EDGE_WEIGHT_TYPE {kind!r} and lists no distances; save its coordinates as a .npy file and use "
            "'psmds distances'."
        )
    if named not in FORMATS:
        raise InputError(f"{path} has EDGE_WEIGHT_FORMAT {named!r}, but needs one of {', '.join(FORMATS)}; convert it.")
    return FORMATS[named]


def _rows(lines: Iterable[Line], counts: Sequence[int]) -> Iterator[Row]:
    """Cut numbers that are wrapped anywhere into rows of so many."""
    words = (
        (line.number, line.start + word.start(), line.start + word.end()) for line in lines for word in _words(line)
    )
    number = end = 0
    for count in counts:
        start = end
        for k in range(count):
            number, first, end = next(words)
            start = start if k else first
        yield Row(number, start, end, count)


def _words(line: Line) -> Iterator[re.Match[bytes]]:
    return _WORD.finditer(line.text)
