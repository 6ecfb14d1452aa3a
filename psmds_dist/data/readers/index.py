"""Where the rows of a text matrix are, what they are called, and which part of the matrix they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psmds_dist.core.errors import InputError
from psmds_dist.data.readers.cells import Dialect


class Row(NamedTuple):
    """The numbers of a point in a text file."""

    line: int
    """Line that it begins in, from 1."""

    start: int
    """Place of its first number, in bytes of the text."""

    end: int
    """Place after its last number."""

    cells: int
    """How many there are."""


@dataclass(frozen=True)
class Form:
    """How many numbers each row of a matrix has."""

    name: str
    cells: Callable[[int, int], int]
    """Numbers in row ``k`` of ``n``."""

    side: str | None = None
    """``"lower"`` or ``"upper"`` for a triangle."""


SQUARE = Form("a square matrix", lambda k, n: n)
LOWER = Form("a lower triangle", lambda k, n: k, "lower")
FORMS = (
    SQUARE,
    LOWER,
    Form("a lower triangle with its diagonal", lambda k, n: k + 1, "lower"),
    Form("an upper triangle with its diagonal", lambda k, n: n - k, "upper"),
    Form("an upper triangle", lambda k, n: n - k - 1, "upper"),
)


@dataclass(frozen=True)
class Index:
    """What is known of a text matrix once its lines were counted.

    Attributes
    ----------
    rows : list of Row
        Where they are.
    dialect : Dialect
        How numbers are written.
    form : Form
        How many each row has.
    names : list of str or None
        Names of the points, in the order of rows.
    columns : list of int or None
        Column of each point, where columns are in another order than rows.
    """

    rows: list[Row]
    dialect: Dialect
    form: Form
    names: list[str] | None = None
    columns: list[int] | None = None

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.rows)


def fitting_form(rows: Sequence[Row]) -> Form | None:
    """Return the form that all rows have, if any."""
    n = len(rows)
    return next((form for form in FORMS if all(row.cells == form.cells(k, n) for k, row in enumerate(rows))), None)


def form_of(rows: Sequence[Row], path: str) -> Form:
    """Return the form that all rows have.

    Raises
    ------
    InputError
        With the first line that has too many or too few numbers for the form that most have.
    """
    form = fitting_form(rows)
    if form is not None:
        return form
    n, (width, count) = len(rows), Counter(row.cells for row in rows).most_common(1)[0]
    right = [sum(row.cells == form.cells(k, n) for k, row in enumerate(rows)) for form in FORMS]
    if count > max(right):
        raise InputError(_not_square(rows, width, path))
    form = FORMS[right.index(max(right))]
    k = next(k for k, row in enumerate(rows) if row.cells != form.cells(k, n))
    wanted = f"{form.cells(k, n)}, as {form.name} of {n} points has"
    raise InputError(_ragged(rows, k, wanted, path))


def _not_square(rows: Sequence[Row], width: int, path: str) -> str:
    """Sentence about a table whose rows are not as many as its columns."""
    ragged = next((k for k, row in enumerate(rows) if row.cells != width), None)
    if ragged is not None:
        return _ragged(rows, ragged, f"{width}, as most others have", path)
    cut = " It may be cut short." * (len(rows) < width)
    return (
        f"{path} has {len(rows)} rows of {count_of(width)}, but a dissimilarity matrix is square.{cut} For points use "
        "'psmds distances', for distances to landmarks 'psmds landmarks fit', with .npy files."
    )


def _ragged(rows: Sequence[Row], k: int, wanted: str, path: str) -> str:
    cut = "; the file may be cut short" * (k == len(rows) - 1)
    return (
        f"{path} has {count_of(rows[k].cells)} in line {rows[k].line} instead of {wanted}{cut}. Write the file "
        "again, or give its format with --format."
    )


def count_of(numbers: int) -> str:
    """Numbers, counted in words."""
    return f"{numbers} number{'s' * (numbers != 1)}"


def reconciled(
    names: list[str] | None, columns: list[str] | None, path: str
) -> tuple[list[str] | None, list[int] | None]:
    """Return the names of points, and the column of each where columns are in another order than rows.

    Raises
    ------
    InputError
        When rows and columns are not named after the same points.
    """
    if names is None or columns is None or names == columns:
        return names or columns, None
    if set(names) != set(columns) and (only_counted(columns) or only_counted(names)):
        return (names if only_counted(columns) else columns), None
    for what, given in (("rows", names), ("columns", columns)):
        twin, count = Counter(given).most_common(1)[0]
        if count > 1:
            raise InputError(f"{path} has {count} {what} of the name {twin!r}; make the names unique.")
    known = set(names)
    k = next((k for k, name in enumerate(columns) if name not in known), None)
    if k is not None:
        raise InputError(
            f"{path} has a column {columns[k]!r} ({k + 1}) but no row of that name; name rows and columns after the "
            "same points."
        )
    place = {name: k for k, name in enumerate(columns)}
    return names, [place[name] for name in names]


def only_counted(names: Sequence[str]) -> bool:
    """Whether names are only numbers of rows, as pandas and R make them up."""
    bare = [name.lstrip("VX") for name in names]
    return any(bare == list(map(str, range(first, first + len(bare)))) for first in (0, 1))
