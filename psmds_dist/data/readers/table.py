"""Tables as text: CSV, TSV and columns between blanks, with or without names, whole or a triangle."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product

from psmds_dist.core.errors import DamagedDataError, InputError
from psmds_dist.data.readers.cells import MISSING, Dialect
from psmds_dist.data.readers.index import Index, Row, fitting_form, form_of, reconciled
from psmds_dist.data.readers.text import Line, TextFile, as_name

SNIFFED_LINES, SNIFFED_CELLS = 20, 50
DELIMITERS = ("\t", ";", ",", None)
"""In the order in which they are tried: a comma may be the decimal mark of the others."""

ENOUGH = 0.6
"""Share of cells that are numbers where a delimiter is the right one; some may be damaged."""

_QUOTED = re.compile(rb'\s*"((?:[^"]|"")*)"')
_WORD = re.compile(rb"\s*(\S*)")
_FRACTION = re.compile(r"[-+]?\d*[.,]\d+([eE][-+]?\d+)?")
_COMMENT = re.compile(rb"#(?!N/A|DIV/0!|REF!|VALUE!|NAME\?|NUM!|NULL!)")
_DELIMITERS = re.compile(r"[,;|\t ]")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of a table, whose first cell may be a name; without its text, since there are as many as points."""

    number: int
    """That of the line, from 1."""

    start: int
    """Place of its first byte."""

    end: int
    """Place after its last byte."""

    first: bytes
    """Its first cell, without quotes."""

    after: int
    """Place of the second cell, from the beginning of the line."""

    cells: int
    """Cells after the first."""

    is_comment: bool
    """Whether it begins with ``#``, but not with an error of a spreadsheet."""

    def row(self, named: bool) -> Row:
        """Numbers of the line, beside the name of its point or from the first cell on."""
        if named:
            return Row(self.number, self.start + self.after, self.end, self.cells)
        return Row(self.number, self.start, self.end, self.cells + 1)


def read_index(file: TextFile, dialect: Dialect | None = None) -> Index:
    """Find the rows of a table, and its names.

    Parameters
    ----------
    file : TextFile
        The table.
    dialect : Dialect, optional
        How its cells are written; by default it is found out.

    Raises
    ------
    InputError
        When it is neither square nor a triangle, or names columns and rows differently.
    """
    dialect = dialect or sniff(file)
    entries = _without_comments([_entry(line, dialect) for line in _whole(_content(file), dialect)], dialect)
    if not entries:
        raise InputError(f"{file.path} holds no numbers; check how it was written.")
    [first] = file.pieces([(entries[0].start, entries[0].end)])
    heading = _cells(first, dialect)
    has_heading, named = _parts(entries, heading, dialect)
    if has_heading:
        as_name(first, file.path, entries[0].number)  # it is UTF-8
    if has_heading and named and len(heading) == len(entries):  # with a cell above the names
        _require_heading(heading, entries[0].number, file.path, dialect)
    body = entries[has_heading:]
    rows = [entry.row(named) for entry in body]
    names = [as_name(entry.first, file.path, entry.number) for entry in body] if named else None
    columns = _column_names(heading, len(rows), file.path) if has_heading else None
    if names and columns and _lacks_first_row(rows, names, columns):
        names, columns = [columns[0], *names], None
        rows = [Row(rows[0].line, rows[0].start, rows[0].start, 0), *rows]
    if names and rows[0].cells == 0:
        _refuse_joined(names, rows[0].line, file.path)
    if names:
        _refuse_count(names, rows, file.path)
    form, (names, order) = form_of(rows, file.path), reconciled(names, columns, file.path)
    if order is not None and form.side is not None and names:
        _refuse_order(names, order, file.path)
    return Index(rows, dialect, form, names, order)


def _refuse_joined(names: Sequence[str], line: int, path: str) -> None:
    """Refuse a heading with other delimiters than the lines below, which looks like the name of a first point."""
    if set(_DELIMITERS.split(names[0])) & set(names[1:]):
        raise InputError(f"{path} has other delimiters in line {line}, {names[0][:40]!r}, than below; write one kind.")


def _refuse_count(names: Sequence[str], rows: Sequence[Row], path: str) -> None:
    """Refuse the number of the other rows, alone in its line: a triangle of PHYLIP whose lines are in another order.

    With it as a point, a triangle with its diagonal would be a larger one without.
    """
    alone = [k for k in (0, -1) if rows[k].cells == 0 and names[k] == str(len(rows) - 1)]
    if alone and not all(name.isdigit() for name in names):
        raise InputError(
            f"{path} has the number of its other rows, {names[alone[0]]}, alone in line {rows[alone[0]].line}: put it "
            "in the first line if this is a matrix of PHYLIP, or give the point another name."
        )


def _refuse_order(names: Sequence[str], order: Sequence[int], path: str) -> None:
    """Refuse a triangle whose columns are in another order than its rows: half of its pairs would be elsewhere."""
    k = next(k for k, column in enumerate(order) if column != k)
    raise InputError(
        f"{path} is a triangle whose columns are in another order than its rows: row {k + 1}, {names[k]!r}, is column "
        f"{order[k] + 1}. Write both in one order, or the whole matrix."
    )


def sniff(file: TextFile) -> Dialect:
    """Find out how the cells of a table are separated, and how its numbers are written.

    Raises
    ------
    InputError
        When the cells are no numbers, whatever separates them.
    """
    for delimiter in DELIMITERS:
        dialects = [Dialect(delimiter, decimal) for decimal in ".," if decimal != delimiter]
        shares = [_share_of_numbers(dialect, file) for dialect in dialects]
        if max(shares) >= ENOUGH:
            return dialects[shares.index(max(shares))]
    raise InputError(f"{file.path} is a text file without a table of numbers; check its path.")


def _share_of_numbers(dialect: Dialect, file: TextFile) -> float:
    """How many of the cells in the first lines are numbers, beside names; zero where nothing is delimited."""
    lines = list(islice(_whole(_content(file), dialect), SNIFFED_LINES))
    texts = {line.start: line.text for line in lines}
    entries = _without_comments([_entry(line, dialect) for line in lines], dialect)
    last = [_last_cells(entry, texts[entry.start], dialect) for entry in entries[1:] or entries]
    found = [cell for cells in last for cell in cells if cell not in MISSING]
    several = dialect.delimiter is None or any(entry.cells for entry in entries)
    return sum(map(is_number, found)) / len(found) if several and found else 0.0


def _last_cells(entry: _Entry, line: bytes, dialect: Dialect) -> list[str]:
    """Some cells at the end of a line, without the first one if there are others."""
    alone = dialect.delimiter is None and not entry.cells and is_number(_text(entry.first))
    text = entry.first if alone else line[entry.after :]
    return [cell.strip() for cell in _text(dialect.column(text)).split("\n")[-SNIFFED_CELLS:] if text]


def _content(file: TextFile) -> Iterator[Line]:
    return (line for line in file.lines() if line.text.strip())


def _without_comments(entries: list[_Entry], dialect: Dialect) -> list[_Entry]:
    """Leave out lines that begin with ``#``, unless they have as many cells as others between delimiters."""
    plain = [entry for entry in entries if not entry.is_comment]
    usual = {entry.cells for entry in plain} if dialect.delimiter else set()
    return [entry for entry in entries if entry.cells in usual] if len(plain) < len(entries) and usual else plain


def _whole(lines: Iterable[Line], dialect: Dialect) -> Iterator[Line]:
    """Put together the lines of a quoted name with line ends in it."""
    lines = iter(lines)
    for line in lines:
        while _is_broken(line.text, dialect) and (following := next(lines, None)):
            gap = b"\n".rjust(following.start - line.end, b"\r")  # so that places stay right
            line = Line(line.number, line.start, line.text + gap + following.text)
        yield line


def _is_broken(text: bytes, dialect: Dialect) -> bool:
    """Whether a quote is open at the end of a line, where quotes begin cells."""
    if b'"' not in text:
        return False
    mark = (dialect.delimiter or " ").encode() + b'"'
    return (text.startswith(b'"') or mark in text) and text.count(b'"') % 2 == 1


def _entry(line: Line, dialect: Dialect) -> _Entry:
    first, after = _first_cell(line.text, dialect)
    count = dialect.count(line.text, after)
    return _Entry(line.number, line.start, line.end, first, after, count, _COMMENT.match(line.text) is not None)


def _first_cell(text: bytes, dialect: Dialect) -> tuple[bytes, int]:
    """First cell of a line, without quotes, and where the next one begins, beyond the end if there is none."""
    quoted = _QUOTED.match(text)
    mark = (dialect.delimiter or "").encode()
    if quoted and not text[quoted.end() :][:1].strip(mark or None):
        return quoted[1].replace(b'""', b'"'), quoted.end() + len(mark)
    if not mark:
        word = _WORD.match(text)
        return (word[1], word.end()) if word else (b"", 0)
    cut = text.find(mark)
    return (text, len(text) + 1) if cut < 0 else (text[:cut], cut + 1)


def _parts(entries: Sequence[_Entry], heading: Sequence[str], dialect: Dialect) -> tuple[bool, bool]:
    """Whether the first line is a heading, and whether the first cells are names.

    What is no number is a name. Where names may be numbers, the matrix is what has a form; so a table of numbers alone
    has no names if it is square, unless its first cell is empty. Fractions are no heading, and without one no names: a
    triangle that has lost its first line, or has a word in its first column, would look like a smaller one with names.
    """
    worded = any(not _is_value(cell, dialect) for cell in heading[1:]) and len(entries) > 1
    headings = [True] if worded or (len(heading) > 1 and not heading[0]) else [False, True]
    if _are_fractions(heading) and is_number(heading[0].replace(",", ".")):
        headings = [False]
    fractions = _are_fractions([_text(entry.first) for entry in entries])
    found = [
        (has_heading, named)
        for has_heading, named in product(headings, [False, True])
        if (has_heading or not fractions if named else fractions or not _has_words(entries[has_heading:], dialect))
    ]
    fitting = (parts for parts in found if fitting_form([entry.row(parts[1]) for entry in entries[parts[0] :]]))
    return next(fitting, found[0])


def _require_heading(heading: Sequence[str], line: int, path: str, dialect: Dialect) -> None:
    """Refuse a row of numbers without names in which something else is wrong, which looks like a heading."""
    values = [_is_value(cell, dialect) for cell in heading]
    numbers = any(is_number(cell.replace(",", ".")) for cell in heading[1:])  # whatever the decimal mark
    if heading[0] and values[0] and numbers and not all(values):
        wrong = heading[values.index(False)]
        raise DamagedDataError(
            f"{path} has {wrong!r} instead of a number in line {line}; correct it, or leave it empty if the "
            "pair is missing. If that line is a heading, give its first cell a name."
        )


def _has_words(entries: Sequence[_Entry], dialect: Dialect) -> bool:
    return not all(_is_value(_text(entry.first).strip(), dialect) for entry in entries)


def _are_fractions(cells: Sequence[str]) -> bool:
    """Whether most cells are numbers with a decimal mark."""
    return 2 * sum(_FRACTION.fullmatch(cell.strip()) is not None for cell in cells) > len(cells)


def _cells(line: bytes, dialect: Dialect) -> list[str]:
    """Cells of a line of names."""
    text = _text(line).strip("\r\n" if dialect.delimiter else " \t\r\n")
    text = text if dialect.delimiter else text.replace("\t", " ")
    lines = [f"{part}\n" for part in text.split("\n")]
    try:
        found = next(csv.reader(lines, delimiter=dialect.delimiter or " ", skipinitialspace=True), [])
    except csv.Error:  # a name that is longer than any name
        found = text.split(dialect.delimiter)
    return [cell.strip() for cell in found]


def _column_names(heading: list[str], n: int, path: str) -> list[str]:
    """Names in a heading, without that of the column of names.

    Raises
    ------
    InputError
        When there is not one for each point.
    """
    if len(heading) == n:
        return heading
    if len(heading) == n + 1:
        return heading[1:]
    raise InputError(
        f"{path} has a heading of {len(heading)} cells above {n} rows, but needs one for each point, and perhaps one "
        "for the column of names: the file may be cut short, or hold no dissimilarities. Properties of points color a "
        "map (psmds plot --color), and features have distances (psmds distances)."
    )


def _lacks_first_row(rows: Sequence[Row], names: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a lower triangle without its diagonal begins with the second point, as R prints one."""
    triangle = all(row.cells == k for k, row in enumerate(rows, 1))
    return triangle and columns[0] != names[0] and list(columns[1:]) == list(names[:-1])


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _is_value(cell: str, dialect: Dialect) -> bool:
    return cell in MISSING or is_number(cell.replace(dialect.decimal, "."))


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    with suppress(ValueError):
        float(cell)
        return "_" not in cell
    return False
