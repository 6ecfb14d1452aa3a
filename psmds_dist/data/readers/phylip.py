"""PHYLIP's distance matrices: a count, then a line for each sequence with its name and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from psmds_dist.core.errors import InputError
from psmds_dist.data.readers.cells import Dialect
from psmds_dist.data.readers.index import Index, Row, fitting_form, form_of
from psmds_dist.data.readers.text import Line, TextFile, as_name

STRICT_NAME = 10
"""Characters of a name that may hold blanks."""

_WORD = re.compile(rb"\S*")
_IN_NUMBER = re.compile(rb"[0-9.+-]{2}")
"""End of a strict name and the character after it, where both belong to one number."""


@dataclass(frozen=True, slots=True)
class _Record:
    """The line of a sequence, with those that continue it."""

    line: int
    start: int
    end: int
    name: bytes
    """Up to a tab, or to a blank where there is no tab."""

    head: bytes
    """First characters, one more than those of a strict name."""

    words: int
    """Numbers after the name."""

    tabs: bool
    """Whether a single tab is before each of them."""

    tabbed: bool
    """Whether a tab is before the first of them."""

    def relaxed(self) -> tuple[bytes, Row]:
        """Name and numbers, where blanks or a tab end the name."""
        first = self.start + len(self.name) + (self.tabs and self.words > 0)
        return self.name, Row(self.line, first, self.end, self.words)

    def blank(self) -> tuple[bytes, Row]:
        """Name and numbers, where the first blank or tab ends the name."""
        first, *others = self.name.split() or [b""]
        return first, Row(self.line, self.start + len(first), self.end, self.words + len(others))

    def strict(self) -> tuple[bytes, Row]:
        """Name and numbers, where the name has ten characters, whatever they are."""
        name = self.head[:STRICT_NAME]
        joined = len(self.head[STRICT_NAME - 1 :].strip()) == 2  # the name ends in the middle of a word
        words = self.words + len(self.name.split()) - len(name.split()) + joined
        return name, Row(self.line, self.start + len(name), self.end, words)

    def likely_strict(self) -> tuple[bytes, Row] | None:
        """The same, unless ten characters end in the middle of what is no name: after a tab, or in a number."""
        name = self.head[:STRICT_NAME]
        in_number = _IN_NUMBER.fullmatch(self.head[STRICT_NAME - 1 :]) is not None and b" " in name.strip()
        return None if b"\t" in name or in_number else self.strict()

    def continued(self, line: Line) -> _Record:
        """The same with another line of numbers."""
        words = len(line.text.split())
        return replace(self, end=line.end, words=self.words + words, tabs=False)


Rule = Callable[[_Record], tuple[bytes, Row] | None]


def read_index(file: TextFile, rules: Sequence[Rule] = (_Record.relaxed, _Record.likely_strict)) -> Index:
    """Find the rows of a PHYLIP matrix, square or a triangle, and their names.

    Parameters
    ----------
    file : TextFile
        The file.
    rules : sequence of callable
        How names may end; the first by which all lines have the right number of cells is taken.

    Raises
    ------
    InputError
        When the count or the numbers in a line are wrong.
    """
    lines = (line for line in file.lines() if line.text.strip())
    count = _count(next(lines, None), file.path)
    records = list(_records(lines))
    if len(records) != count:
        raise InputError(
            f"{file.path} announces {count} sequences and has lines of {len(records)}; the file may be cut short. "
            "Write it again."
        )
    if rules[0] is _Record.relaxed and not all(record.tabbed for record in records if record.words):
        rules = [_Record.blank, *rules[1:]]  # a single tab among blanks is in no name
    split = [[entry for record in records if (entry := rule(record))] for rule in rules]
    found = next((entries for entries in split if len(entries) == count and _is_sound(entries)), split[0])
    rows = [row for _, row in found]
    tabs = rules[0] is _Record.relaxed and found is split[0] and all(record.tabs for record in records)
    names = [as_name(name, file.path, row.line) for name, row in found]
    return Index(rows, Dialect("\t" if tabs else None), form_of(rows, file.path), names)


def _is_sound(found: Sequence[tuple[bytes, Row]]) -> bool:
    """Whether all lines have the right number of cells, and names are unique: a word of a name may be a number."""
    return len({name for name, _ in found}) == len(found) and fitting_form([row for _, row in found]) is not None


def read_strict_index(file: TextFile) -> Index:
    """Find the rows of a PHYLIP matrix whose names have ten characters; as `read_index`."""
    return read_index(file, [_Record.strict])


def _count(line: Line | None, path: str) -> int:
    words = line.text.split() if line else []
    if not words or not words[0].isdigit():
        raise InputError(f"{path} does not begin with the number of its sequences, as a PHYLIP matrix does.")
    return int(words[0])


def _records(lines: Iterable[Line]) -> Iterator[_Record]:
    """Records of the lines; one that begins with a blank continues the one before."""
    record: _Record | None = None
    for line in lines:
        if record is not None and line.text[:1].isspace():
            record = record.continued(line)
        else:
            if record is not None:
                yield record
            record = _record(line)
    if record is not None:
        yield record


def _record(line: Line) -> _Record:
    text = line.text.rstrip()
    tab = text.find(b"\t")
    word = _WORD.match(text)
    name = text[:tab] if tab >= 0 else word[0] if word else b""
    rest = text[len(name) :]
    tabs = b" " not in rest
    words = rest.count(b"\t") if tabs else len(rest.split())
    return _Record(
        line.number, line.start, line.start + len(text), name, text[: STRICT_NAME + 1], words, tabs, tab >= 0
    )
