"""Results of runs, stored as Zarr groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.embed import Embedding
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import Floats, InputError
from psmds_dist.solver.checkpoint import plain
from psmds_dist.solver.solve import HISTORY
from psmds_dist.utils.text import as_cell


@dataclass(frozen=True)
class Result:
    """A stored result.

    Attributes
    ----------
    embedding, raw_embedding : (n, L) ndarray
        Coordinates in canonical orientation, and as the solver left them.
    stress : Stress
        Stress of ``embedding``.
    history : structured ndarray
        One row per epoch.
    ids : list of str or None
        Row names.
    attributes : dict
        Outcome, configuration, seed, input, versions, memory.
    """

    embedding: Floats
    raw_embedding: Floats
    stress: Stress
    history: NDArray[np.void]
    ids: list[str] | None
    attributes: dict[str, Any]


def write_result(
    path: str | os.PathLike[str],
    result: Embedding,
    *,
    matrix: str | None,
    overwrite: bool,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Write the result of a run as a Zarr group.

    Parameters
    ----------
    path : path
        Directory of the group.
    result : Embedding
        The result.
    matrix : str or None
        Path of the dissimilarities.
    overwrite : bool
        Whether to replace an existing result.
    beside : mapping of str to str, optional
        Paths of upper bounds and weights.

    Raises
    ------
    InputError
        If ``path`` exists and may not be replaced.
    """
    from psmds_dist.data.store import write_result as write

    solution, stress = result.solution, result.solution.stress
    arrays = {
        "embedding": solution.embedding,
        "raw_embedding": solution.raw_embedding,
        "point_stress": stress.point_stress,
        **{f"history/{column}": np.ascontiguousarray(solution.history[column]) for column in HISTORY.names or ()},
    }
    attributes = {
        "matrix": matrix,
        **(beside or {}),
        "n": len(solution.embedding),
        "n_components": solution.embedding.shape[1],
        "stop_reason": str(solution.stop_reason),
        "n_epochs": len(solution.history),
        "radius": solution.radius,
        "seed": solution.seed,
        "start": result.start,
        "starts": result.evidence.as_dict(),
        "seconds": result.seconds,
        "mse": stress.mse,
        "raw_stress": stress.raw_stress,
        "stress1": stress.stress1,
        "normalized_stress": stress.normalized_stress,
        "error": stress.error,
        "known_pairs": result.check.known_pairs,
        "rule": result.config.rule.as_dict(),
        "run": plain(result.identity),
        "check": result.check.as_dict(),
        "memory_limit": result.plan.limit,
        "peak_memory": result.peak_memory,
        "versions": result.versions,
    }
    write(path, arrays, attributes, result.ids, overwrite=overwrite)


def read_result(path: str | os.PathLike[str]) -> Result:
    """Read a result that `write_result` wrote.

    Raises
    ------
    InputError
        If there is no result at ``path``.
    """
    from psmds_dist.data.store import read_result as read

    arrays, attributes, ids = read(path)
    none = np.empty(0)  # a landmark map without refinement has no history
    columns = [arrays.get(f"history/{name}", none) for name in HISTORY.names or ()]
    history = np.empty(len(columns[0]), dtype=HISTORY)
    for name, column in zip(HISTORY.names or (), columns, strict=True):
        history[name] = column
    stress = Stress(
        mse=float(attributes["mse"]),
        raw_stress=float(attributes["raw_stress"]),
        stress1=float(attributes["stress1"]),
        normalized_stress=float(attributes["normalized_stress"]),
        point_stress=arrays["point_stress"],
        error=float(attributes.get("error", attributes["mse"])),
    )
    raw = arrays.get("raw_embedding", arrays["embedding"])
    return Result(arrays["embedding"], raw, stress, history, ids, attributes)


def attributes_at(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Attributes of the result at ``path``; empty if there is no valid one."""
    from psmds_dist.data.store import read_result as read

    try:
        return read(path)[1]
    except InputError:
        return {}


def export_stored(place: str | os.PathLike[str], output: str | os.PathLike[str], *, sort: bool = False) -> None:
    """Write the coordinates of a stored map, also of a landmark map, as they are or in the order of their first axis.

    Raises
    ------
    InputError
        For a suffix that `write_coordinates` does not know, or a sorted file that would not tell whose rows it holds.
    """
    from psmds_dist.data.store import read_result as read

    arrays, _, ids = read(place)
    x, stress = arrays["embedding"], arrays["point_stress"]
    if not sort:
        write_coordinates(output, x, ids, stress)
        return
    if Path(output).suffix.lower() == ".npy":
        raise InputError(f"sorted rows need their ids, which {str(output)!r} does not hold: write a .csv or .tsv file.")
    order = np.argsort(x[:, 0], kind="stable")
    write_coordinates(output, x[order], [ids[k] if ids else str(k) for k in order], stress[order])


def write_coordinates(
    path: str | os.PathLike[str],
    embedding: Floats,
    ids: list[str] | None = None,
    point_stress: Floats | None = None,
) -> None:
    """Write coordinates to a file: ``.csv`` or ``.tsv`` with ids or row numbers and point stress, or ``.npy``.

    Ids are written by `psmds_dist.utils.text.as_cell`, so that no spreadsheet runs them; `read_ids` removes the
    apostrophes.

    Raises
    ------
    InputError
        For any other suffix.
    """
    from psmds_dist.data.store import atomic_file

    kind = Path(path).suffix.lower()
    if kind not in (".csv", ".tsv", ".npy"):
        raise InputError(f"output {str(path)!r} must end in .csv, .tsv or .npy.")
    with atomic_file(path) as fresh:
        if kind == ".npy":
            with fresh.open("wb") as file:  # numpy.save would add .npy to a name that ends in .NPY
                np.save(file, embedding)
        else:
            columns = embedding if point_stress is None else np.column_stack((embedding, point_stress))
            names = [f"x{k + 1}" for k in range(embedding.shape[1])] + ["point_stress"] * (point_stress is not None)
            _write_table(fresh, "," if kind == ".csv" else "\t", names, columns, ids)


def _write_table(path: Path, separator: str, names: list[str], columns: Floats, ids: list[str] | None) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=separator)
        table.writerow(["id", *names])
        for k, values in enumerate(columns.tolist()):
            table.writerow([as_cell(ids[k]) if ids else str(k), *map(repr, values)])
