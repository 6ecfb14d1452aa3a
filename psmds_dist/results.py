"""Results on disk: one Zarr group a run, written beside and renamed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.quality import Stress
from psmds_dist.run import Embedding
from psmds_dist.solve import HISTORY
from psmds_dist.types import Floats, InputError


@dataclass(frozen=True)
class Result:
    """A stored result.

    Attributes
    ----------
    embedding, raw_embedding : (n, L) ndarray
        Coordinates in canonical position, and as the solver left them.
    stress : Stress
        Stress of ``embedding``.
    history : structured ndarray
        One row an epoch.
    ids : list of str or None
        Row names.
    attributes : dict
        Everything else: outcome, configuration, seed, input, versions, memory.
    """

    embedding: Floats
    raw_embedding: Floats
    stress: Stress
    history: NDArray[np.void]
    ids: list[str] | None
    attributes: dict[str, Any]


def write_result(
    path: str | os.PathLike[str], result: Embedding, *, matrix: str | None, overwrite: bool
) -> None:
    """Write a run's outcome as a Zarr group.

    Parameters
    ----------
    path : path
        Where; nothing is there yet, or a result that ``overwrite`` gives up.
    result : Embedding
        The outcome.
    matrix : str or None
        Where the dissimilarities are.
    overwrite : bool
        Whether an older result may be replaced.

    Raises
    ------
    InputError
        When something is there already.
    """
    from psmds_dist.store import write_result as write

    solution, stress = result.solution, result.solution.stress
    arrays = {
        "embedding": solution.embedding,
        "raw_embedding": solution.raw_embedding,
        "point_stress": stress.point_stress,
        **{
            f"history/{column}": np.ascontiguousarray(solution.history[column])
            for column in HISTORY.names or ()
        },
    }
    attributes = {
        "matrix": matrix,
        "n": len(solution.embedding),
        "n_components": solution.embedding.shape[1],
        "stop_reason": str(solution.stop_reason),
        "n_epochs": len(solution.history),
        "radius": solution.radius,
        "seed": solution.seed,
        "seconds": solution.seconds,
        "mse": stress.mse,
        "raw_stress": stress.raw_stress,
        "stress1": stress.stress1,
        "normalized_stress": stress.normalized_stress,
        "config": result.config.as_dict(),
        "check": result.check.as_dict(),
        "memory_limit": result.plan.limit,
        "peak_memory": result.peak_memory,
        "versions": result.versions,
    }
    write(path, arrays, attributes, result.ids, overwrite=overwrite)


def read_result(path: str | os.PathLike[str]) -> Result:
    """Read a result back.

    Raises
    ------
    InputError
        When there is none at ``path``.
    """
    from psmds_dist.store import read_result as read

    arrays, attributes, ids = read(path)
    columns = [arrays[f"history/{name}"] for name in HISTORY.names or ()]
    history = np.empty(len(columns[0]), dtype=HISTORY)
    for name, column in zip(HISTORY.names or (), columns, strict=True):
        history[name] = column
    stress = Stress(
        mse=float(attributes["mse"]),
        raw_stress=float(attributes["raw_stress"]),
        stress1=float(attributes["stress1"]),
        normalized_stress=float(attributes["normalized_stress"]),
        point_stress=arrays["point_stress"],
    )
    return Result(arrays["embedding"], arrays["raw_embedding"], stress, history, ids, attributes)


def export(result: Result, path: str | os.PathLike[str]) -> None:
    """Write coordinates for other programs: ``.csv`` and ``.tsv`` with ids and point stress, ``.npy`` bare.

    Raises
    ------
    InputError
        For any other ending.
    """
    kind = Path(path).suffix.lower()
    if kind == ".npy":
        with Path(path).open("wb") as file:  # numpy.save would add its ending to a name in capitals
            np.save(file, result.embedding)
    elif kind in (".csv", ".tsv"):
        _export_table(result, Path(path), "," if kind == ".csv" else "\t")
    else:
        raise InputError(f"output {str(path)!r} must end in .csv, .tsv or .npy.")


def _export_table(result: Result, path: Path, separator: str) -> None:
    import csv

    n, dims = result.embedding.shape
    ids = result.ids or [str(k) for k in range(n)]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=separator)
        table.writerow(["id", *(f"x{k + 1}" for k in range(dims)), "point_stress"])
        for name, place, stress in zip(ids, result.embedding, result.stress.point_stress, strict=True):
            table.writerow([name, *(repr(float(value)) for value in place), repr(float(stress))])
