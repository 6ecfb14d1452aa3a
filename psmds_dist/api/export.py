"""Maps as files of other programs: tables, arrays, ordinations, and points for pictures on the web."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from psmds_dist.core.errors import InputError
from psmds_dist.core.types import Floats, Ints
from psmds_dist.data.ids import DELIMITERS
from psmds_dist.utils.extras import extra
from psmds_dist.utils.text import as_cell, escaped, of_cell

QIIME_TYPES = "#q2:types"
"""Begins a line about the types of columns in metadata of QIIME 2."""


@dataclass(frozen=True)
class MapTable:
    """A map as a table: a row for each point.

    Attributes
    ----------
    coordinates : (n, L) ndarray
        The map.
    ids : list of str or None
        Names of the points.
    point_stress : (n,) ndarray or None
        Normalized stress of each point.
    joined : dict of str to list of str
        Further columns.
    """

    coordinates: Floats
    ids: list[str] | None = None
    point_stress: Floats | None = None
    joined: dict[str, list[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the points, or their row numbers."""
        return self.ids or [str(row) for row in range(len(self.coordinates))]

    @property
    def numbers(self) -> dict[str, list[float]]:
        """Columns of numbers by their headings."""
        axes = {f"x{k + 1}": axis.tolist() for k, axis in enumerate(self.coordinates.T)}
        return axes if self.point_stress is None else {**axes, "point_stress": self.point_stress.tolist()}

    @property
    def columns(self) -> dict[str, Sequence[object]]:
        """All columns, without names of points."""
        return {**self.numbers, **self.joined}

    def taken(self, rows: Ints) -> MapTable:
        """The same with some rows, in their order."""
        stress = None if self.point_stress is None else self.point_stress[rows]
        joined = {name: [cells[k] for k in rows] for name, cells in self.joined.items()}
        return MapTable(self.coordinates[rows], [self.names[k] for k in rows], stress, joined)

    def records(self) -> Iterator[dict[str, object]]:
        """Yield a dictionary for each point; numbers that are not finite are None."""
        heads = ["id", *self.columns]
        for values in zip(self.names, *self.columns.values(), strict=True):
            yield {head: _finite(value) for head, value in zip(heads, values, strict=True)}

    def to_frame(self) -> Any:
        """Return a data frame of pandas, with names as its index.

        Raises
        ------
        InputError
            When pandas is missing.
        """
        pandas = extra("pandas", "frames", "a data frame")
        index = None if self.ids is None else pandas.Index(self.ids, name="id")
        return pandas.DataFrame(self.columns, index=index)

    def to_anndata(self) -> Any:
        """Return an AnnData object with the map as ``obsm["X_mds"]`` and names as ``obs_names``.

        Raises
        ------
        InputError
            When anndata is missing.
        """
        anndata = extra("anndata", "anndata", "an AnnData object")
        pandas = extra("pandas", "anndata", "an AnnData object")
        stress = {} if self.point_stress is None else {"point_stress": self.point_stress}
        columns = pandas.DataFrame({**stress, **self.joined}, index=pandas.Index(self.names))
        return anndata.AnnData(obs=columns, obsm={"X_mds": self.coordinates})


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_map(table: MapTable, path: str, format: str | None = None) -> None:
    """Write a map in the format that the suffix of its file means, or another one.

    Parameters
    ----------
    table : MapTable
        The map.
    path : str
        The file, which is replaced.
    format : str, optional
        One of `WRITERS`; by default the suffix of ``path``.

    Raises
    ------
    InputError
        For a format that is not known, or does not hold what the table has.
    """
    from psmds_dist.data.store import atomic_file

    write = WRITERS[format_of(path, format)]
    with atomic_file(path) as fresh:
        write(table, fresh)


def format_of(path: str, format: str | None = None) -> str:
    """Return the format to write a file in.

    Raises
    ------
    InputError
        For one that is not known.
    """
    chosen = Path(path).suffix.lower().removeprefix(".") if format is None else format
    if chosen in WRITERS:
        return chosen
    known = ", ".join(f".{name}" for name in WRITERS if name != "ordination")
    raise InputError(f"output {str(path)!r} must end in one of {known}, or have --format {'|'.join(WRITERS)}.")


def _write_npy(table: MapTable, path: Path) -> None:
    if table.joined:
        raise InputError("a .npy file holds coordinates alone; join metadata to another format, such as .csv.")
    with path.open("wb") as file:  # numpy.save would add .npy to a name that ends in .NPY
        np.save(file, table.coordinates)


def _write_separated(separator: str) -> Callable[[MapTable, Path], None]:
    def write(table: MapTable, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, delimiter=separator)
            lines.writerow(["id", *map(as_cell, table.columns)])
            for name, *values in zip(table.names, *table.columns.values(), strict=True):
                lines.writerow([as_cell(name), *map(_cell, values)])

    return write


def _cell(value: object) -> str:
    return as_cell(value) if isinstance(value, str) else repr(value)


def _write_parquet(table: MapTable, path: Path) -> None:
    parquet = extra("pyarrow.parquet", "parquet", "a .parquet file")
    arrow = extra("pyarrow", "parquet", "a .parquet file")
    parquet.write_table(arrow.table({"id": table.names, **table.columns}), path)


def _write_h5ad(table: MapTable, path: Path) -> None:
    table.to_anndata().write_h5ad(path)


def _write_json(table: MapTable, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        _write_list(file, table.records())
        file.write("\n")


def _write_list(file: IO[str], items: Iterator[dict[str, object]]) -> None:
    """Write a list with an item a line, one in memory at a time."""
    file.write("[")
    for k, item in enumerate(items):
        file.write(",\n" if k else "\n")
        file.write(json.dumps(item, allow_nan=False))
    file.write("\n]")


def _write_geojson(table: MapTable, path: Path) -> None:
    dims = table.coordinates.shape[1]
    if dims not in (2, 3):
        raise InputError(f"GeoJSON is for 2 or 3 dimensions, but the map has {dims}; write .json.")
    bare = replace(table, coordinates=table.coordinates[:, :0])  # positions are no properties
    with path.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": ')
        _write_list(file, map(_feature, bare.records(), table.coordinates.tolist()))
        file.write("}\n")


def _feature(record: dict[str, object], position: list[float]) -> dict[str, object]:
    point = {"type": "Point", "coordinates": position}
    return {"type": "Feature", "id": record["id"], "geometry": point, "properties": record}


def _write_ordination(table: MapTable, path: Path) -> None:
    """Write scikit-bio's text, which Emperor and QIIME 2 open.

    A map of stress has no eigenvalues: in their place are the sums of squares of its axes, which are the eigenvalues of
    classical scaling where that is exact.
    """
    if table.joined:
        raise InputError("an ordination holds coordinates alone; give its metadata to Emperor or QIIME 2 themselves.")
    n, dims = table.coordinates.shape
    squares = np.square(table.coordinates - table.coordinates.mean(axis=0)).sum(axis=0)
    shares = squares / (squares.sum() or 1)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for title, values in (("Eigvals", squares), ("Proportion explained", shares)):
            file.write(f"{title}\t{dims}\n{_joined(values)}\n\n")
        file.write(f"Species\t0\t0\n\nSite\t{n}\t{dims}\n")
        file.writelines(
            f"{escaped(name)}\t{_joined(x)}\n" for name, x in zip(table.names, table.coordinates, strict=True)
        )
        file.write("\nBiplot\t0\t0\n\nSite constraints\t0\t0\n")


def _joined(values: Floats) -> str:
    return "\t".join(map(repr, values.tolist()))


WRITERS: dict[str, Callable[[MapTable, Path], None]] = {
    "csv": _write_separated(","),
    "tsv": _write_separated("\t"),
    "npy": _write_npy,
    "parquet": _write_parquet,
    "h5ad": _write_h5ad,
    "json": _write_json,
    "geojson": _write_geojson,
    "ordination": _write_ordination,
}
"""By suffix, or the name that ``--format`` takes."""

BINARY = ("npy", "parquet", "h5ad")
"""Formats that are not text."""


def join(table: MapTable, path: str) -> tuple[MapTable, int]:
    """Add the columns of a ``.csv`` or ``.tsv`` file to a map, by the ids in its first column.

    Parameters
    ----------
    table : MapTable
        The map.
    path : str
        Table with a heading; its other ids are ignored.

    Returns
    -------
    MapTable
        With an empty cell where a point has no line.
    int
        Number of points without a line.

    Raises
    ------
    InputError
        When there is no such table, an id is in it twice, or none is that of a point.
    """
    if table.ids is None:
        raise InputError(f"the map has no ids to join {path} by; fit it with ids (--ids).")
    heading, lines = _metadata(path)
    taken = next((name for name in heading if name in ("id", *table.columns)), None)
    if taken is not None:
        raise InputError(f"{path} has a column {taken!r}, as the map has; rename it.")
    found = [lines.get(name, lines.get(escaped(name).strip())) for name in table.ids]
    missing = found.count(None)
    if missing == len(found):
        raise InputError(f"{path} has none of the ids of the map in its first column; the first is {table.ids[0]!r}.")
    rows = [[""] * len(heading) if cells is None else cells for cells in found]
    joined = {name: [cells[k] for cells in rows] for k, name in enumerate(heading)}
    return replace(table, joined={**table.joined, **joined}), missing


def _metadata(path: str) -> tuple[list[str], dict[str, list[str]]]:
    """Headings of a table but the first, and the cells of each id."""
    separator = DELIMITERS.get(Path(path).suffix.lower())
    if separator is None:
        raise InputError(f"metadata is read from .csv and .tsv files, not from {path!r}.")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, delimiter=separator)
            (_, heading), *rows = [(lines.line_num, row) for row in lines if row and row[0] != QIIME_TYPES]
    except FileNotFoundError:
        raise InputError(f"the metadata {path} does not exist; give a .csv or .tsv file.") from None
    except (ValueError, csv.Error) as error:
        raise InputError(
            f"the metadata {path} cannot be read ({error}); give a heading and a line for each id."
        ) from None
    twin = next((name for k, name in enumerate(heading[1:], 1) if name in heading[1:k]), None)
    if twin is not None:
        raise InputError(f"{path} has two columns {twin!r}; rename one.")
    cells: dict[str, list[str]] = {}
    for number, row in rows:
        name = of_cell(row[0].strip())
        if len(row) != len(heading):
            raise InputError(f"{path} has {len(row)} cells in line {number}, but a heading of {len(heading)}.")
        if name in cells:
            raise InputError(f"{path} has the id {name!r} twice; keep one line for each point.")
        cells[name] = row[1:]
    return heading[1:], cells
