"""Results of runs, stored as Zarr groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psmds_dist.api.embed import Embedding
from psmds_dist.api.export import MapTable, format_of, join, write_map
from psmds_dist.core.region import Region
from psmds_dist.core.stress import Stress
from psmds_dist.core.types import Floats, InputError
from psmds_dist.solver.checkpoint import plain
from psmds_dist.solver.solve import HISTORY


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
    disparities : (2 or 3, k) ndarray or None
        Knots and disparities, where dissimilarities were transformed, see `psmds_dist.solver.solve.Solution`.
    region : Region or None
        Where points had to be.
    """

    embedding: Floats
    raw_embedding: Floats
    stress: Stress
    history: NDArray[np.void]
    ids: list[str] | None
    attributes: dict[str, Any]
    disparities: Floats | None = None
    region: Region | None = None

    def to_frame(self) -> Any:
        """Return a data frame of pandas: coordinates and point stress, with ids as its index."""
        return MapTable(self.embedding, self.ids, self.stress.point_stress).to_frame()

    def to_anndata(self) -> Any:
        """Return an AnnData object with the map as ``obsm["X_mds"]``, ids and the stress of each point."""
        return MapTable(self.embedding, self.ids, self.stress.point_stress).to_anndata()


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
    path : path or URL
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

    solution, stress, region = result.solution, result.solution.stress, result.region
    arrays = {
        "embedding": solution.embedding,
        "raw_embedding": solution.raw_embedding,
        "point_stress": stress.point_stress,
        **({"disparities": solution.disparities} if solution.disparities.size else {}),
        **({"region/low": region.low, "region/high": region.high} if region else {}),
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
        **_of_sample(stress),
        "known_pairs": result.check.known_pairs,
        **({"certificate": result.certificate.as_dict()} if result.certificate else {}),
        "rule": result.config.rule.as_dict(),
        **({"pinned_coordinates": int(region.fixed.sum())} if region else {}),
        "run": plain(result.identity),
        "check": result.check.as_dict(),
        "memory_limit": result.plan.limit,
        "peak_memory": result.peak_memory,
        "versions": result.versions,
    }
    write(path, arrays, attributes, result.ids, overwrite=overwrite)


def _of_sample(stress: Stress) -> dict[str, float]:
    """What an estimate is from; nothing where all rows were read."""
    if not stress.standard_error:
        return {}
    return {"standard_error": stress.standard_error, "measured_rows": stress.measured_rows}


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
        standard_error=float(attributes.get("standard_error", 0.0)),
    )
    raw = arrays.get("raw_embedding", arrays["embedding"])
    region = Region(arrays["region/low"], arrays["region/high"]) if "region/low" in arrays else None
    disparities = arrays.get("disparities")
    return Result(arrays["embedding"], raw, stress, history, ids, attributes, disparities, region)


def attributes_at(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Attributes of the result at ``path``; empty if there is no valid one."""
    from psmds_dist.data.store import read_result as read

    try:
        return read(path)[1]
    except InputError:
        return {}


def export_stored(
    place: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    sort: bool = False,
    format: str | None = None,
    metadata: str | None = None,
) -> int:
    """Write the coordinates of a stored map, also of a landmark map.

    Parameters
    ----------
    place : path
        The map.
    output : path
        The file, which is replaced.
    sort : bool
        Whether rows are in the order of their first axis rather than as they are.
    format : str, optional
        One of `psmds_dist.api.export.WRITERS`; by default the suffix of ``output``.
    metadata : str, optional
        A .csv or .tsv file with columns to add, by the ids in its first column.

    Returns
    -------
    int
        Number of points that are not in the metadata.

    Raises
    ------
    InputError
        For a format that is not known, or a sorted file that would not tell whose rows it holds.
    """
    from psmds_dist.data.store import read_result as read

    arrays, _, ids = read(place)
    table, missing = MapTable(arrays["embedding"], ids, arrays["point_stress"]), 0
    if metadata is not None:
        table, missing = join(table, metadata)
    if sort:
        if format_of(str(output), format) == "npy":
            raise InputError(
                f"sorted rows need their ids, which {str(output)!r} does not hold: write a .csv or .tsv file."
            )
        table = table.taken(np.argsort(table.coordinates[:, 0], kind="stable"))
    write_map(table, os.fspath(output), format)
    return missing


def write_coordinates(
    path: str | os.PathLike[str],
    embedding: Floats,
    ids: list[str] | None = None,
    point_stress: Floats | None = None,
) -> None:
    """Write coordinates to a file of the format that its suffix means, see `psmds_dist.api.export.WRITERS`.

    Tables have ids or row numbers and point stress. Ids in .csv and .tsv are written by
    `psmds_dist.utils.text.as_cell`, so that no spreadsheet runs them; `read_ids` removes the apostrophes.

    Raises
    ------
    InputError
        For a suffix that is not known.
    """
    write_map(MapTable(embedding, ids, point_stress), os.fspath(path))
