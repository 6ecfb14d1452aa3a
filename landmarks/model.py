"""A fitted landmark map: what is needed to place new points, in memory and on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from landmarks.panel.check import PanelEntries
from landmarks.panel.sources import points_panel
from landmarks.panel.tables import array_panel, without_mask
from landmarks.solver.placement import PlacementModel, place, require_finite
from landmarks.solver.types import Data, LandmarkFit
from psmds_dist.core.arrays import fill, numbers_of
from psmds_dist.core.types import Floats, InputError, Ints, Rows
from psmds_dist.data.points import Metric
from psmds_dist.ingest.check import ROUNDING_TOL
from psmds_dist.ingest.scan import largest_usable
from psmds_dist.kernels.jit import parallel_region
from psmds_dist.solver.checkpoint import plain

KIND = "landmark map"


@dataclass(frozen=True)
class Model:
    """A fitted landmark map.

    Attributes
    ----------
    frame : Frame
        Landmark coordinates, and how to place points against them.
    landmarks : (S,) int64
        Row indices of the landmarks in what was fitted.
    embedding : (n, L) ndarray
        Coordinates of all points fitted.
    columns : (S,) int64 or None
        Columns of the matrix or panel that was fitted which hold the landmarks; None where points were fitted.
    width : int
        Columns of what was fitted.
    residual : (n,) ndarray
        Normalised stress of each against the landmarks, or against all after a full refinement.
    metric : str
        How dissimilarities of new points come about: ``"precomputed"``, or a metric.
    metric_params : mapping
        Its parameters.
    features : (S, d) ndarray or None
        The landmarks themselves, when points were fitted.
    dtype : str
        Type of the dissimilarities.
    ids : list of str or None
        Row names.
    facts : mapping
        Stress, seed and the like, for `psmds info`.
    """

    frame: PlacementModel
    landmarks: Ints
    embedding: Floats
    residual: Floats
    columns: Ints | None = None
    width: int = 0
    metric: str = "precomputed"
    metric_params: Mapping[str, Any] = field(default_factory=dict)
    features: Floats | None = None
    dtype: str = "float32"
    ids: list[str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, result: LandmarkFit, data: Data, matrix: str | None = None) -> Model:
        """Model of a fit, perhaps of a matrix in some place."""
        columns = data.columns_with(result.landmarks)
        features = data.features(result.landmarks)
        return cls(
            frame=result.frame,
            landmarks=result.landmarks,
            embedding=result.embedding,
            residual=result.stress.point_stress,
            columns=result.landmarks if columns is None and features is None else columns,
            width=data.columns,
            metric=data.metric,
            metric_params=data.metric_params,
            features=features,
            dtype=data.dtype.name,
            ids=None if data.ids is None else list(data.ids),
            facts={"matrix": matrix, **_facts(result)},
        )

    @property
    def order(self) -> Ints:
        """Landmarks in the order in which `transform` takes dissimilarities to them: of the rows, where all are."""
        every_point = self.landmarks.size == len(self.embedding) and self.features is None
        return np.sort(self.landmarks) if every_point else self.landmarks

    def transform(self, X: Any) -> Floats:
        """Place new points; see `landmarks.LandmarkMDS.transform`."""
        rows = self._rows(X)
        with parallel_region():
            placement = place(rows, np.arange(len(rows)), self.frame)
        known = placement[3]
        x = self.frame.in_map(placement[0])
        short = np.flatnonzero(known <= x.shape[1])
        if short.size:
            raise InputError(
                f"row {int(short[0])} of X has known dissimilarities to {int(known[short[0]])} landmarks, but "
                f"{x.shape[1] + 1} are needed to place it: fill them in or leave the row out."
            )
        require_finite(placement, self.frame.scale, None)
        return x

    def _rows(self, X: Any) -> Rows:
        given = numbers_of(without_mask(X), "X")
        if given.dtype.kind not in ("fiu" if self.features is None else "fiub") or given.ndim != 2:
            raise InputError(f"X must be a two-dimensional array of numbers, not {given.dtype} of shape {given.shape}.")
        if self.features is not None:
            return self._measured(given)
        size = self.frame.y.shape[1]
        kept = self.columns if self.columns is not None and given.shape[1] == self.width else None
        if kept is not None:
            given = given[:, kept]
        if given.shape[1] != size:
            whole = f", or all {self.width} as in fit" * (self.width != size)
            raise InputError(
                f"X must have a column for each of the {size} landmarks, in the order of landmarks_{whole}, not "
                f"{given.shape[1]} columns."
            )
        rows: Rows = np.empty(given.shape, self.dtype)
        fill(rows, given)
        self._require_usable(rows, np.arange(size) if kept is None else kept)
        return rows

    def _require_usable(self, rows: Rows, columns: Ints) -> None:
        """Refuse dissimilarities that no point can have; ``columns`` are those of the user."""
        negative = rows < -ROUNDING_TOL * self.frame.scale
        wrong = np.argwhere(np.isinf(rows) | negative | (rows > largest_usable(rows.dtype, self.frame.scale)))
        if wrong.size:
            i, s = wrong[0].tolist()
            landmark = PanelEntries(self.landmarks, self.ids).landmark(s)
            raise InputError(
                f"X has the dissimilarity {rows[i, s]:g} as {rows.dtype.name} in row {i}, column {columns[s]} "
                f"({landmark}): dissimilarities are zero or more, and small enough for their squares to be finite; "
                "write NaN where one is missing."
            )

    def _measured(self, points: Any) -> Rows:
        """Distances of new points to the landmarks."""
        assert self.features is not None
        if points.shape[1] != self.width:
            raise InputError(
                f"X has {points.shape[1]} features, but LandmarkMDS is expecting {self.width} features as input."
            )
        metric = Metric(self.metric, dict(self.metric_params))
        panel = points_panel(array_panel(points, "float64"), self.features, metric, dtype=self.dtype)
        rows: Rows = np.empty(panel.shape, panel.dtype)
        panel.read(0, panel.n, rows)
        return rows

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model to one Zarr group."""
        from psmds_dist.data.store import write_result

        arrays = {
            "embedding": self.embedding,
            "point_stress": self.residual,
            "landmarks": self.landmarks,
            "frame/y": self.frame.y,
            "frame/centre": self.frame.centre,
            "frame/axes": self.frame.axes,
            "frame/pull": self.frame.pull,
            "frame/offset": self.frame.offset,
        }
        if self.features is not None:
            arrays["features"] = self.features
        if self.columns is not None:
            arrays["columns"] = self.columns
        attributes = {
            "model": KIND,
            "n": len(self.embedding),
            "n_components": self.embedding.shape[1],
            "width": self.width,
            "scale": self.frame.scale,
            "rank": self.frame.rank,
            "metric": self.metric,
            "metric_params": json.loads(json.dumps(dict(self.metric_params), default=lambda value: value.tolist())),
            "dtype": self.dtype,
            **self.facts,
        }
        write_result(path, arrays, attributes, self.ids, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model that `save` wrote.

        Raises
        ------
        InputError
            When there is none at ``path``.
        """
        from psmds_dist.data.store import read_result

        arrays, attributes, ids = read_result(path)
        if attributes.get("model") != KIND:
            raise InputError(
                f"{os.fspath(path)} is the result of 'psmds fit', no landmark map: it has no landmarks to place "
                "new points by."
            )
        frame = PlacementModel(
            y=np.ascontiguousarray(arrays["frame/y"]),
            centre=arrays["frame/centre"],
            axes=arrays["frame/axes"],
            pull=np.ascontiguousarray(arrays["frame/pull"]),
            offset=arrays["frame/offset"],
            scale=float(attributes["scale"]),
            rank=int(attributes["rank"]),
        )
        features, columns = arrays.get("features"), arrays.get("columns")
        if features is None and columns is None:  # models of a matrix were once saved without
            columns = arrays["landmarks"]
        known = {"model", "n", "n_components", "width", "scale", "rank", "metric", "metric_params", "dtype"}
        return cls(
            frame=frame,
            landmarks=arrays["landmarks"],
            embedding=arrays["embedding"],
            residual=arrays["point_stress"],
            columns=columns,
            width=int(attributes["width"]),
            metric=str(attributes["metric"]),
            metric_params=attributes["metric_params"],
            features=features,
            dtype=str(attributes["dtype"]),
            ids=ids,
            facts={key: value for key, value in attributes.items() if key not in known},
        )


def _facts(result: LandmarkFit) -> dict[str, Any]:
    """What a stored map says of itself besides what it needs."""
    return {
        "n_landmarks": int(result.landmarks.size),
        "refine": result.config.refine,
        "refined": result.refined,
        "selection": result.config.selection,
        "seed": result.config.seed,
        "peak_memory": result.peak_memory,
        "landmark_stress": result.landmark_stress,
        "agreement": result.agreement.tolist(),
        "stress_is_exact": result.exact is not None,
        **{name: getattr(result.stress, name) for name in ("mse", "raw_stress", "stress1", "normalized_stress")},
        "set_aside": int(result.aside.size),
        "held_out": None if result.estimate is None else vars(result.estimate),
        "curve": [c.as_dict() for c in result.curve],
        "seconds": sum(result.seconds.values()),
        "stages": result.seconds,
        "stop_reason": str(result.stop_reason),
        "run": plain(result.identity),
    }
